//! `--status-fd`: what is said, and that nobody has to listen.
#![allow(clippy::disallowed_methods, reason = "measures real time")]

mod support;

use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use support::{by_shell, directory, eventually, finished, pids, run, runs, signal, stderr, stdout, tenure};

/// The objects so far; each has the name, a time and a state.
#[track_caller]
fn lines(directory: &Path) -> Vec<Value> {
    let text = fs::read_to_string(directory.join("status")).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let parsed: Vec<Value> =
        whole.lines().map(|line| serde_json::from_str(line).expect("an object on each line")).collect();
    for line in &parsed {
        assert_eq!(line["name"], "x", "{line}");
        assert!(humantime::parse_rfc3339(line["at"].as_str().expect("a time")).is_ok(), "{line}");
    }
    parsed
}

fn states(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["state"].as_str().expect("a state")).collect()
}

#[test]
fn each_change_of_state_is_a_line_and_the_last_says_who_ended_the_run() {
    let directory = directory();
    let script = "\"$@\" run --status-fd 9 x -- sh -c 'ls /proc/self/fd; exit 5' 9>status";
    let output = run(&mut by_shell(directory.path(), script));
    assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
    assert!(!stdout(&output).lines().any(|fd| fd == "9"), "CMD does not get it: {}", stdout(&output));
    let lines = lines(directory.path());
    assert_eq!(states(&lines), ["held", "released", "ended"]);
    assert!(lines[0]["token"].is_u64() && lines[0]["waited_ms"].is_u64(), "{}", lines[0]);
    assert!(lines[0]["owner"].as_str().is_some_and(|owner| owner.parse::<tenure::Owner>().is_ok()));
    assert_eq!((&lines[2]["by"], &lines[2]["exit_code"]), (&"command".into(), &5.into()));
}

#[test]
fn who_waits_says_for_whom_and_who_asked_it_to_end() {
    let directory = directory();
    let held = "echo $$ > pids; until [ -e end ]; do sleep 0.01; done";
    let mut holder = tenure(directory.path());
    let holder =
        holder.current_dir(directory.path()).args(["run", "--label", "first", "x", "--", "sh", "-c", held]);
    let holder = holder.spawn().expect("it starts");
    pids(&directory.path().join("pids"), 1);

    let mut command = by_shell(directory.path(), "exec \"$@\" run --status-fd 9 x -- touch ran 9>status");
    let waiter = command.spawn().expect("it starts");
    eventually("it says that it waits", || {
        states(&lines(directory.path())).contains(&"waiting").then_some(())
    });
    signal(waiter.id() as i32, Signal::TERM);
    finished(waiter);
    let waited = lines(directory.path());
    assert_eq!(states(&waited), ["waiting", "ended"]);
    assert_eq!((&waited[0]["why"], &waited[0]["holder"]["label"]), (&"held".into(), &"first".into()));
    assert_eq!((&waited[0]["place"], &waited[0]["waiting"]), (&1.into(), &1.into()));
    assert!(waited[0]["left_ms"].is_u64());
    assert_eq!((&waited[1]["by"], &waited[1]["asked"]), (&"signal".into(), &"TERM".into()));
    assert_eq!(waited[1]["exit_code"], 143);

    let refused = by_shell(directory.path(), "\"$@\" run -n --status-fd 9 x -- touch ran 9>status");
    assert_eq!(run(&mut { refused }).status.code(), Some(75));
    let refused = lines(directory.path());
    assert_eq!(states(&refused), ["ended"]);
    assert_eq!(refused[0]["by"], "conflict");
    assert!(refused[0]["message"].as_str().is_some_and(|text| text.contains("first")), "{}", refused[0]);
    fs::write(directory.path().join("end"), "").expect("a file");
    assert!(finished(holder).status.success());
}

#[test]
fn a_loss_is_told_with_its_reason() {
    let directory = directory();
    let script = "\"$@\" run --ttl 1s --hold-at-most 700ms --status-fd 9 x -- sleep 1000 9>status";
    assert_eq!(run(&mut by_shell(directory.path(), script)).status.code(), Some(76));
    let lines = lines(directory.path());
    assert_eq!(states(&lines)[..2], ["held", "stopping"]);
    let last = lines.last().expect("lines");
    assert_eq!(
        (&last["state"], &last["by"], &last["exit_code"]),
        (&"ended".into(), &"lease".into(), &76.into())
    );
    let lost = "\"$@\" run --ttl 1s --hold-at-most 500ms --status-fd 9 x -- sh -c \"trap '' TERM; while :; do sleep 0.1; done\" 9>status";
    assert_eq!(run(&mut by_shell(directory.path(), lost)).status.code(), Some(76));
    let lines = self::lines(directory.path());
    let loss = lines.iter().find(|line| line["state"] == "lost").expect("a loss");
    assert_eq!(loss["reason"], "exceeded");
}

#[test]
fn a_store_that_does_not_answer_is_a_risk_that_passes() {
    let directory = directory();
    let script =
        "exec \"$@\" run --ttl 2s --status-fd 9 x -- sh -c 'until [ -e end ]; do sleep 0.01; done' 9>status";
    let child = by_shell(directory.path(), script).spawn().expect("it starts");
    let said = |state: &str, count: usize| {
        let lines = lines(directory.path());
        states(&lines).iter().filter(|said| **said == state).count() >= count
    };
    eventually("it holds", || said("held", 1).then_some(()));
    let store = rusqlite::Connection::open(directory.path().join("leases.db")).expect("the store");
    store.execute_batch("BEGIN IMMEDIATE").expect("nobody else has it");
    eventually("it is at risk", || said("at_risk", 1).then_some(()));
    store.execute_batch("ROLLBACK").expect("ours");
    eventually("it holds again", || said("held", 2).then_some(()));
    fs::write(directory.path().join("end"), "").expect("a file");
    let output = finished(child);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn nobody_has_to_listen() {
    let directory = directory();
    // Closed by its reader, never open, and one that cannot be written to.
    for redirection in ["9>&1 | true", "9>&-", "9</dev/null"] {
        let _ = fs::remove_file(directory.path().join("pids"));
        let script = format!(
            "{{ \"$@\" run --status-fd 9 x -- sh -c 'sleep 0.1; exit 4'; echo $? > code; }} {redirection}"
        );
        let output = run(&mut by_shell(directory.path(), &script));
        let code = fs::read_to_string(directory.path().join("code")).expect("a code");
        assert_eq!(code.trim(), "4", "{redirection}: {}", stderr(&output));
    }
    // Of which only the last two are worth a line; a number of CMD's own is a mistake.
    let refused = run(tenure(directory.path()).args(["run", "--status-fd", "2", "x", "--", "true"]));
    assert_eq!(refused.status.code(), Some(64));
}

#[test]
fn a_full_pipe_holds_nothing_up() {
    let directory = directory();
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let full = std::thread::spawn({
        let mut writer = writer.try_clone().expect("a descriptor");
        move || while std::io::Write::write(&mut writer, &[b' '; 4096]).is_ok() {}
    });
    let mut command = by_shell(
        directory.path(),
        "exec 9>&1 >out; exec \"$@\" run --status-fd 9 x -- sh -c 'echo $$ > pids; exit 4'",
    );
    let began = Instant::now();
    let child = command.stdout(writer).spawn().expect("it starts");
    // Dropped with the command, and so is its copy of the pipe.
    drop(command);
    let output = finished(child);
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert!(!runs(pids(&directory.path().join("pids"), 1)[0]));
    drop(reader);
    full.join().expect("the pipe is closed");
}
