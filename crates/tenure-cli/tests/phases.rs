//! Each signal in each phase: while tenure waits, while CMD runs, while it is asked to end, and
//! while what it left behind runs on.
#![allow(clippy::disallowed_methods, reason = "measures real time")]

mod support;

use rustix::process::Signal;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};
use support::{
    BOUND, by_shell, command, directory, eventually, finished, pids, run, signal, stderr, stdout, tenure,
};

/// Whose default action is the end of a process.
const ENDING: [(&str, Signal); 7] = [
    ("TERM", Signal::TERM),
    ("INT", Signal::INT),
    ("HUP", Signal::HUP),
    ("QUIT", Signal::QUIT),
    ("USR1", Signal::USR1),
    ("USR2", Signal::USR2),
    ("PIPE", Signal::PIPE),
];

/// Holds the name until there is a file `end`.
fn holder(directory: &Path) -> Child {
    let script = "echo $$ >> holder; until [ -e end ]; do sleep 0.01; done";
    let child = command(directory, &[], script).spawn().expect("it starts");
    pids(&directory.join("holder"), 1);
    child
}

fn end(directory: &Path) {
    fs::write(directory.join("end"), "").expect("a file");
}

fn entries(directory: &Path) -> i64 {
    let store = rusqlite::Connection::open(directory.join("leases.db")).expect("the store");
    store.busy_timeout(BOUND).expect("a timeout");
    store.query_row("SELECT count(*) FROM entry", [], |row| row.get(0)).expect("a count")
}

#[track_caller]
fn waits(directory: &Path) {
    eventually("it waits", || (entries(directory) == 1).then_some(()));
}

#[test]
fn who_waits_leaves_the_queue_and_ends_by_the_signal() {
    let directory = directory();
    let holder = holder(directory.path());
    for (name, what) in ENDING {
        let waiter = command(directory.path(), &[], "touch ran").spawn().expect("it starts");
        waits(directory.path());
        // These end nobody.
        signal(waiter.id() as i32, Signal::WINCH);
        signal(waiter.id() as i32, Signal::CONT);
        signal(waiter.id() as i32, what);
        let output = finished(waiter);
        assert_eq!(output.status.signal(), Some(what.as_raw()), "{name}: {}", stderr(&output));
        assert_eq!(entries(directory.path()), 0, "{name}");
    }
    end(directory.path());
    assert!(finished(holder).status.success());
    assert!(!directory.path().join("ran").exists());
}

#[test]
fn who_waits_ignores_what_its_caller_ignored() {
    let directory = directory();
    let holder = holder(directory.path());
    let script = "trap '' TERM INT HUP QUIT USR1 USR2 PIPE; exec \"$@\" run x -- echo mine";
    let waiter = by_shell(directory.path(), script).spawn().expect("it starts");
    waits(directory.path());
    for (_, what) in ENDING {
        signal(waiter.id() as i32, what);
    }
    end(directory.path());
    assert!(finished(holder).status.success());
    let output = finished(waiter);
    assert_eq!(stdout(&output), "mine\n", "{:?}", output.status);
}

#[test]
fn who_waits_ends_at_once_also_when_the_store_hangs() {
    let directory = directory();
    let holder = holder(directory.path());
    for (name, what) in [("TERM", Signal::TERM), ("INT", Signal::INT)] {
        let waiter = command(directory.path(), &[], "touch ran").spawn().expect("it starts");
        waits(directory.path());
        let store = rusqlite::Connection::open(directory.path().join("leases.db")).expect("the store");
        store.busy_timeout(BOUND).expect("a timeout");
        store.execute_batch("BEGIN IMMEDIATE").expect("nobody else has it for long");
        let asked = Instant::now();
        signal(waiter.id() as i32, what);
        let output = finished(waiter);
        let took = asked.elapsed();
        assert_eq!(output.status.signal(), Some(what.as_raw()), "{name}: {}", stderr(&output));
        assert!(took < Duration::from_secs(1), "{name}: {took:?}");
        store.execute_batch("ROLLBACK").expect("ours");
        // What is left of its entry is dead with it; who comes next clears it away.
        eventually("nobody waits", || live_entries(directory.path()).is_empty().then_some(()));
        let store = rusqlite::Connection::open(directory.path().join("leases.db")).expect("the store");
        store.busy_timeout(BOUND).expect("a timeout");
        store.execute_batch("DELETE FROM entry").expect("the store");
    }
    end(directory.path());
    assert!(finished(holder).status.success());
}

/// As `show` tells it.
fn live_entries(directory: &Path) -> Vec<serde_json::Value> {
    let output = run(tenure(directory).args(["show", "--json", "x"]));
    let shown: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("an object");
    shown["waiters"].as_array().expect("a list").clone()
}

#[test]
fn a_command_that_does_nothing_about_a_signal_ends_by_it_and_so_does_tenure() {
    let directory = directory();
    for (name, what) in ENDING {
        let _ = fs::remove_file(directory.path().join("pids"));
        let child =
            command(directory.path(), &[], "echo $$ > pids; exec sleep 1000").spawn().expect("it starts");
        pids(&directory.path().join("pids"), 1);
        signal(child.id() as i32, what);
        let output = finished(child);
        assert_eq!(output.status.signal(), Some(what.as_raw()), "{name}: {}", stderr(&output));
        // And nobody has to wait for it.
        assert!(run(&mut command(directory.path(), &["-n"], "true")).status.success(), "{name}");
    }
}

#[test]
fn a_second_signal_is_passed_on_like_the_first() {
    let directory = directory();
    let script = "n=0; trap 'n=$((n+1)); echo $n >> count; [ $n = 2 ] && exit 9' TERM; echo $$ > pids; \
                  while :; do sleep 0.01; done";
    let child = command(directory.path(), &[], script).spawn().expect("it starts");
    pids(&directory.path().join("pids"), 1);
    for count in 1..=2 {
        signal(child.id() as i32, Signal::TERM);
        pids(&directory.path().join("count"), count);
    }
    assert_eq!(finished(child).status.code(), Some(9));
}

#[test]
fn a_command_that_ignores_term_runs_on_and_is_killed_only_for_its_lease() {
    let directory = directory();
    let script = "trap '' TERM; echo $$ > pids; until [ -e end ]; do sleep 0.01; done; echo done";
    let child = command(directory.path(), &["--ttl", "1s"], script).spawn().expect("it starts");
    let cmd = pids(&directory.path().join("pids"), 1)[0];
    let asked = Instant::now();
    signal(child.id() as i32, Signal::TERM);
    eventually("the first deadline has passed", || {
        (asked.elapsed() > Duration::from_millis(1200)).then_some(())
    });
    assert!(support::runs(cmd), "it is kept alive: its lease is renewed");
    end(directory.path());
    let output = finished(child);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "done\n"));
}

#[test]
fn signals_are_passed_on_while_the_command_is_asked_to_end() {
    let directory = directory();
    for (name, what) in ENDING.into_iter().chain([("WINCH", Signal::WINCH)]) {
        for file in ["pids", "asked"] {
            let _ = fs::remove_file(directory.path().join(file));
        }
        // The time that a lease of 1 s leaves for stopping is short: it comes from its limit.
        let script = format!(
            "trap 'echo $$ > asked' TERM; [ {name} = TERM ] || trap 'echo {name}; exit 7' {name}; \
             echo $$ > pids; while :; do sleep 0.01; done"
        );
        let options = ["--ttl", "10s", "--hold-at-most", "3s", "--grace", "2700ms"];
        let child = command(directory.path(), &options, &script).spawn().expect("it starts");
        pids(&directory.path().join("asked"), 1);
        if name == "TERM" {
            let _ = fs::remove_file(directory.path().join("asked"));
            signal(child.id() as i32, what);
            pids(&directory.path().join("asked"), 1);
            signal(child.id() as i32, Signal::USR1);
        } else {
            signal(child.id() as i32, what);
        }
        let output = finished(child);
        assert_eq!(output.status.code(), Some(76), "{name}: {}", stderr(&output));
        let said = if name == "TERM" { String::new() } else { format!("{name}\n") };
        assert_eq!(stdout(&output), said);
    }
}

#[test]
fn what_runs_on_after_the_command_gets_them_too() {
    let directory = directory();
    let script = "(trap 'echo asked; exit' TERM; echo $$ > pids; while :; do sleep 0.01; done) & \
                  until [ -e pids ]; do sleep 0.01; done; exit 6";
    let mut child = command(directory.path(), &[], script).spawn().expect("it starts");
    let mut line = String::new();
    let mut reader = std::io::BufReader::new(child.stderr.take().expect("a pipe"));
    std::io::BufRead::read_line(&mut reader, &mut line).expect("a line");
    assert!(line.contains("waiting for what runs on"), "{line}");
    signal(child.id() as i32, Signal::TERM);
    let output = finished(child);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(6), "asked\n"));
}

#[test]
fn a_stopped_command_hears_that_it_is_asked_to_end_and_keeps_its_lease_until_then() {
    let directory = directory();
    let script = "trap 'echo asked; exit 5' TERM; echo $$ > pids; while :; do sleep 0.01; done";
    let child = command(directory.path(), &["--ttl", "1s"], script).spawn().expect("it starts");
    let cmd = pids(&directory.path().join("pids"), 1)[0];
    // Without a terminal nobody waits for it: tenure is not stopped, and renews.
    signal(child.id() as i32, Signal::TSTP);
    let stopped = Instant::now();
    let state = |pid: i32| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    eventually("it is stopped", || state(cmd).contains(") T ").then_some(()));
    eventually("the first deadline has passed", || {
        (stopped.elapsed() > Duration::from_millis(1200)).then_some(())
    });
    assert!(state(cmd).contains(") T "));
    signal(child.id() as i32, Signal::TERM);
    let output = finished(child);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(5), "asked\n"), "{}", stderr(&output));
}

#[test]
fn a_signal_before_the_command_starts_keeps_it_from_starting() {
    let directory = directory();
    // At any instant of the start: it is begun or it is not, and in either case tenure ends by it.
    for delay in (0..20).map(Duration::from_millis) {
        let child = command(directory.path(), &[], "exec sleep 1000").spawn().expect("it starts");
        let until = Instant::now() + delay;
        eventually("it is time", || (Instant::now() >= until).then_some(()));
        signal(child.id() as i32, Signal::TERM);
        let output = finished(child);
        assert_eq!(output.status.signal(), Some(libc::SIGTERM), "{delay:?}: {}", stderr(&output));
        assert_eq!(stderr(&output), "", "{delay:?}");
    }
    assert!(run(&mut command(directory.path(), &["-n"], "true")).status.success());
}
