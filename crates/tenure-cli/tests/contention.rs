//! Two and more who want one name: waiting, refusals, take-overs, and what `ls` and `show` tell.
#![allow(clippy::disallowed_methods, reason = "measures real time")]

mod support;

use rustix::process::Signal;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};
use support::{
    FAMILY, FAMILY_SIZE, Leftovers, command, directory, eventually, finished, pids, run, runs, stderr,
    stdout, tenure,
};

/// Holds the name until [`end`]; returns when it does.
fn holder(directory: &Path, options: &[&str]) -> Child {
    let script = "echo $$ >> holder; until [ -e end ]; do sleep 0.01; done";
    let child = command(directory, options, script).spawn().expect("it starts");
    pids(&directory.join("holder"), 1);
    child
}

fn end(directory: &Path) {
    fs::write(directory.join("end"), "").expect("a file");
}

fn show(directory: &Path) -> serde_json::Value {
    let output = run(tenure(directory).args(["show", "--json", "x"]));
    serde_json::from_str(&stdout(&output)).unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)))
}

fn wait_for_waiters(directory: &Path, count: u64) {
    eventually("they wait", || (show(directory)["waiting"] == count).then_some(()));
}

#[test]
fn not_acquired_is_75_or_what_was_asked_for_and_names_the_holder() {
    let directory = directory();
    let holder = holder(directory.path(), &["--label", "the nightly job"]);
    for (options, code) in [
        (&["-n"][..], 75),
        (&["-w", "100ms"], 75),
        (&["-w", "0s"], 75),
        (&["-n", "-E", "9"], 9),
        (&["-n", "-E", "0"], 0),
    ] {
        let output = run(&mut command(directory.path(), options, "touch ran"));
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{options:?}: {said}");
        assert!(said.contains("the nightly job since 20") && said.contains(" left"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    assert!(!directory.path().join("ran").exists());
    end(directory.path());
    assert!(finished(holder).status.success());
    assert!(run(&mut command(directory.path(), &["-n"], "true")).status.success());
}

#[test]
fn who_waits_is_told_for_whom_and_then_gets_it() {
    let directory = directory();
    let holder = holder(directory.path(), &["--label", "first"]);
    let mut waiter =
        command(directory.path(), &["--label", "second"], "echo mine").spawn().expect("it starts");
    let mut line = String::new();
    let mut reader = BufReader::new(waiter.stderr.take().expect("a pipe"));
    reader.read_line(&mut line).expect("a line");
    for part in ["waiting for \"x\"", "first since 20", " left", "place 1 of 1", "leases.db"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    end(directory.path());
    assert!(finished(holder).status.success());
    let output = finished(waiter);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "mine\n"));
}

#[test]
fn who_is_told_to_end_while_waiting_leaves_the_queue_by_that_signal() {
    let directory = directory();
    let holder = holder(directory.path(), &[]);
    for signal in [Signal::TERM, Signal::INT] {
        let waiter = command(directory.path(), &[], "touch ran").spawn().expect("it starts");
        wait_for_waiters(directory.path(), 1);
        support::signal(waiter.id() as i32, signal);
        let output = finished(waiter);
        assert_eq!(output.status.signal(), Some(signal.as_raw()), "{}", stderr(&output));
        assert_eq!(show(directory.path())["waiting"], 0, "it left the queue before it ended");
    }
    end(directory.path());
    assert!(finished(holder).status.success());
    assert!(!directory.path().join("ran").exists());
}

/// Starts a holder that writes to a log until it dies and a waiter that then writes its
/// first line, does `harm`, and expects the waiter's line after the holder's last.
fn taken_over_in_order(ttl: &str, bound: Duration, harm: impl FnOnce(&Child, i32)) -> Child {
    let directory = directory();
    let file = directory.path().join("pids");
    let _leftovers = Leftovers(file.clone());
    let writes = "(setsid sh -c 'echo $$ >> pids; while :; do echo old >> log; done') & ";
    let old =
        command(directory.path(), &["--ttl", ttl], &format!("{writes}{FAMILY}")).spawn().expect("it starts");
    let family = pids(&file, FAMILY_SIZE + 1);
    let cmd = *family
        .iter()
        .find(|pid| {
            let (group, session) = support::group_and_session(**pid);
            group == **pid && session != **pid
        })
        .expect("CMD leads its group in our session");
    let script = "for i in 1 2 3 4 5; do echo new >> log; done";
    let new = command(directory.path(), &["--ttl", ttl], script).spawn().expect("it starts");
    wait_for_waiters(directory.path(), 1);

    let harmed = Instant::now();
    harm(&old, cmd);
    let output = finished(new);
    let took = harmed.elapsed();
    assert!(output.status.success(), "{}", stderr(&output));
    let log = fs::read_to_string(directory.path().join("log")).expect("a log");
    let first_new = log.find("new\n").expect("the new one wrote");
    assert!(!log[first_new..].contains("old"), "the old one wrote on");
    assert!(!family.iter().any(|pid| runs(*pid)), "{family:?}");
    assert!(took < bound, "it took {took:?}");
    old
}

#[test]
fn after_tenure_was_killed_the_next_starts_when_the_last_of_it_is_dead() {
    let mut old = taken_over_in_order("10s", Duration::from_secs(2), |old, _| {
        support::signal(old.id() as i32, Signal::KILL);
    });
    let _ = old.wait();
}

#[test]
fn after_the_guardian_was_killed_the_next_starts_when_the_last_of_it_is_dead() {
    let old = taken_over_in_order("10s", Duration::from_secs(2), |old, _| {
        let children = format!("/proc/{0}/task/{0}/children", old.id());
        let guardian = fs::read_to_string(children).expect("children");
        support::signal(guardian.trim().parse().expect("one child"), Signal::KILL);
    });
    assert_eq!(finished(old).status.code(), Some(70));
}

#[test]
fn after_tenure_was_stopped_the_next_starts_when_the_last_of_it_is_dead() {
    let old = taken_over_in_order("1s", Duration::from_secs(3), |old, _| {
        support::signal(old.id() as i32, Signal::STOP);
    });
    support::signal(old.id() as i32, Signal::CONT);
    let output = finished(old);
    assert_eq!(output.status.code(), Some(76), "{}", stderr(&output));
}

#[test]
fn after_the_commands_group_was_killed_the_next_starts() {
    let directory = directory();
    let file = directory.path().join("pids");
    let script = "echo $$ >> pids; sleep 1000 & echo $! >> pids; wait";
    let old = command(directory.path(), &[], script).spawn().expect("it starts");
    let family = pids(&file, 2);
    let new = command(directory.path(), &[], "true").spawn().expect("it starts");
    wait_for_waiters(directory.path(), 1);
    let group = rustix::process::Pid::from_raw(family[0]).expect("a group");
    rustix::process::kill_process_group(group, Signal::KILL).expect("it is there");
    assert_eq!(finished(old).status.signal(), Some(libc::SIGKILL));
    assert!(finished(new).status.success());
}

#[test]
fn a_shell_that_dies_leaves_the_lease_to_its_child() {
    let directory = directory();
    let file = directory.path().join("pids");
    let script = "(until [ -e end ]; do sleep 0.01; done) & echo $$ >> pids; wait";
    let old = command(directory.path(), &[], script).spawn().expect("it starts");
    let shell = pids(&file, 1)[0];
    support::signal(shell, Signal::KILL);
    eventually("the shell is dead", || (!runs(shell)).then_some(()));
    let refused = run(&mut command(directory.path(), &["-w", "300ms"], "true"));
    assert_eq!(refused.status.code(), Some(75), "its child still works");
    end(directory.path());
    assert_eq!(finished(old).status.signal(), Some(libc::SIGKILL));
}

#[test]
fn what_must_be_held_for_a_while_is_kept_back_after_its_end() {
    let directory = directory();
    assert!(run(&mut command(directory.path(), &["--hold-at-least", "1h"], "true")).status.success());
    let output = run(&mut command(directory.path(), &["-n"], "true"));
    assert_eq!(output.status.code(), Some(75));
    assert!(stderr(&output).contains("kept back for another 59m"), "{}", stderr(&output));
    assert!(show(directory.path())["kept_back_ms"].as_u64() > Some(3_500_000));
}

#[test]
fn show_and_ls_tell_who_holds_what() {
    let directory = directory();
    let holder = holder(directory.path(), &["--label", "first"]);
    let waiter = command(directory.path(), &["--label", "second"], "true").spawn().expect("it starts");
    wait_for_waiters(directory.path(), 1);

    let shown = show(directory.path());
    assert_eq!(shown["name"], "x");
    assert_eq!(shown["holder"]["label"], "first");
    assert!(shown["holder"]["owner"].as_str().is_some_and(|owner| owner.parse::<tenure::Owner>().is_ok()));
    assert!(shown["holder"]["token"].is_u64() && shown["holder"]["left_ms"].is_u64());
    let since = shown["holder"]["since"].as_str().expect("a time");
    assert!(humantime::parse_rfc3339(since).is_ok() && since.ends_with('Z'), "{since}");
    assert_eq!(shown["waiters"][0]["label"], "second");
    assert!(shown["revoked_ms"].is_null() && shown["kept_back_ms"].is_null());
    assert!(shown["store"].as_str().is_some_and(|store| store.contains("leases.db")));

    let text = stdout(&run(tenure(directory.path()).args(["show", "x"])));
    for part in ["holder     first", "1. second since 20", "leases.db"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let listed = stdout(&run(tenure(directory.path()).args(["ls", "--json"])));
    let listed: serde_json::Value = serde_json::from_str(listed.trim()).expect("one object");
    assert_eq!((&listed["name"], &listed["waiting"]), (&shown["name"], &shown["waiting"]));
    assert_eq!(listed["holder"]["token"], shown["holder"]["token"]);

    let table = stdout(&run(tenure(directory.path()).args(["ls"])));
    assert!(table.starts_with("NAME  HOLDER  TOKEN"), "{table}");
    assert!(table.lines().nth(1).is_some_and(|row| row.starts_with("x     first")), "{table}");
    assert_eq!(stdout(&run(tenure(directory.path()).args(["ls", "other"]))), "");

    end(directory.path());
    assert!(finished(holder).status.success() && finished(waiter).status.success());
    let nobody = run(tenure(directory.path()).args(["show", "x"]));
    assert_eq!(nobody.status.code(), Some(1));
    assert!(stdout(&nobody).contains("nobody"), "{}", stdout(&nobody));
}

#[test]
fn a_nested_run_has_its_own_name() {
    let directory = directory();
    let script =
        format!("{} run inner -- sh -c 'echo $TENURE_NAME'; echo $TENURE_NAME", env!("CARGO_BIN_EXE_tenure"));
    let output = run(&mut command(directory.path(), &[], &script));
    assert_eq!(stdout(&output), "inner\nx\n", "{}", stderr(&output));
}
