//! Stores that refuse, or do not answer.
#![allow(clippy::disallowed_methods, reason = "measures real time")]

mod support;

use rusqlite::Connection;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use support::{directory, eventually, finished, pids, run, stderr, stdout, tenure, unprivileged};

fn words<'a>(command: &'a mut Command, options: &[&str]) -> &'a mut Command {
    command.arg("run").args(options).args(["x", "--", "sh", "-c", "echo ran"])
}

/// Refused with 77 and one line, which is given.
#[track_caller]
fn rejected(output: &Output) -> String {
    let said = stderr(output);
    assert_eq!((output.status.code(), stdout(output).as_str()), (Some(77), ""), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

/// A database that exists and that this process keeps locked.
fn locked(directory: &Path) -> Connection {
    assert!(run(words(&mut tenure(directory), &[])).status.success());
    let connection = Connection::open(directory.join("leases.db")).expect("the database");
    connection.execute_batch("BEGIN IMMEDIATE").expect("nobody else has it");
    connection
}

#[test]
fn what_is_not_a_database_is_rejected_and_left_as_it_is() {
    let directory = directory();
    let file = directory.path().join("leases.db");
    let text = "this is a diary, and no database. ".repeat(100);
    fs::write(&file, &text).expect("a file");
    for options in [&[][..], &["-n"]] {
        let said = rejected(&run(words(&mut tenure(directory.path()), options)));
        assert!(said.contains("leases.db"), "{said}");
    }
    rejected(&run(tenure(directory.path()).args(["ls"])));
    assert_eq!(fs::read_to_string(&file).expect("the file"), text);
}

#[test]
fn a_directory_that_cannot_be_written_is_rejected() {
    let directory = directory();
    let mode = |mode| fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode));
    mode(0o500).expect("its mode");
    let output = run(words(&mut unprivileged(tenure(directory.path())), &[]));
    mode(0o700).expect("its mode");
    let said = rejected(&output);
    assert!(said.contains("not writable"), "{said}");
    assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 0);
}

#[test]
fn a_database_that_may_only_be_read_shows_and_leases_nothing() {
    let directory = directory();
    let holder = words(&mut tenure(directory.path()), &[]).spawn().expect("it starts");
    assert!(finished(holder).status.success());
    fs::set_permissions(directory.path().join("leases.db"), fs::Permissions::from_mode(0o400)).expect("it");
    let unprivileged = || unprivileged(tenure(directory.path()));
    let said = rejected(&run(words(&mut unprivileged(), &[])));
    assert!(said.contains("not writ"), "{said}");
    let listed = run(unprivileged().arg("ls"));
    assert!(listed.status.success(), "{}", stderr(&listed));
}

#[test]
fn a_database_that_is_locked_is_unavailable_when_nobody_waits() {
    let directory = directory();
    let lock = locked(directory.path());
    for options in [&["-n"][..], &["-w", "100ms"]] {
        let output = run(words(&mut tenure(directory.path()), options));
        let said = stderr(&output);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(69), ""), "{options:?}: {said}");
        assert!(said.lines().all(|line| line.starts_with("tenure: ")), "{said}");
    }
    drop(lock);
}

/// Neither what holds the database nor what holds the gate before it makes a wait longer.
#[test]
fn a_limit_is_kept_also_when_the_store_hangs() {
    use rustix::fs::{FlockOperation, flock};
    let places = [directory(), directory()];
    let _database = locked(places[0].path());
    drop(locked(places[1].path()));
    let gate = places[1].path().join("leases.db-gate");
    let gate = fs::File::options().write(true).open(gate).expect("a gate");
    flock(&gate, FlockOperation::LockExclusive).expect("nobody has it for long");

    let limits: [(&[&str], u64); 4] =
        [(&["-w", "0s"], 5000), (&["-w", "300ms"], 300), (&["-w", "1s"], 1000), (&["-n"], 5000)];
    std::thread::scope(|scope| {
        for (place, (options, limit)) in places.iter().flat_map(|place| limits.map(|limit| (place, limit))) {
            scope.spawn(move || {
                let began = std::time::Instant::now();
                let output = run(words(&mut tenure(place.path()), options));
                let (took, said) = (began.elapsed(), stderr(&output));
                let ended = (output.status.code(), stdout(&output));
                assert_eq!(ended, (Some(69), String::new()), "{options:?}: {said}");
                let limit = std::time::Duration::from_millis(limit + 1000);
                assert!(took < limit, "{options:?}: {took:?}");
            });
        }
    });
}

#[test]
fn a_store_that_was_deleted_ends_the_wait_with_a_clear_line() {
    let directory = directory();
    let place = directory.path().join("place");
    fs::create_dir(&place).expect("a directory");
    let script = "echo $$ >> pids; until [ -e end ]; do sleep 0.01; done";
    let mut command = tenure(&place);
    command.current_dir(directory.path()).args(["run", "--ttl", "2s", "x", "--", "sh", "-c", script]);
    let holder = command.spawn().expect("it starts");
    pids(&directory.path().join("pids"), 1);
    let waiting = || words(&mut tenure(&place), &["--ttl", "2s"]).spawn().expect("it starts");
    let limited = || words(&mut tenure(&place), &["--ttl", "2s", "-w", "10s"]).spawn().expect("it starts");
    let waiters = [waiting(), limited()];
    eventually("they wait", || {
        let shown = run(tenure(&place).args(["show", "--json", "x"]));
        stdout(&shown).contains("\"waiting\": 2").then_some(())
    });
    fs::remove_dir_all(&place).expect("it is there");
    for waiter in waiters {
        let output = finished(waiter);
        let said = stderr(&output);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(77), ""), "{said}");
        assert!(said.lines().any(|line| line.contains("deleted while it was in use")), "{said}");
    }
    // The holder's renewals are refused: it is asked to end in time.
    let output = finished(holder);
    assert_eq!(output.status.code(), Some(76), "{}", stderr(&output));
}

#[test]
fn an_outage_is_waited_out() {
    let directory = directory();
    let lock = locked(directory.path());
    // Its heartbeat bounds a call: it notices sooner.
    let mut waiter = words(&mut tenure(directory.path()), &["--ttl", "1s"]).spawn().expect("it starts");
    let mut line = String::new();
    let mut reader = BufReader::new(waiter.stderr.take().expect("a pipe"));
    reader.read_line(&mut line).expect("a line");
    assert!(line.contains("the store does not answer"), "{line}");
    assert!(waiter.try_wait().expect("a child").is_none());
    drop(lock);
    let output = finished(waiter);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "ran\n"));
}

#[test]
fn an_outage_while_the_command_runs_is_survived_when_it_is_short() {
    let directory = directory();
    let script = "echo $$ >> pids; until [ -e end ]; do sleep 0.01; done";
    let mut command = tenure(directory.path());
    command.current_dir(directory.path()).args(["run", "--ttl", "2s", "x", "--", "sh", "-c", script]);
    let holder = command.spawn().expect("it starts");
    pids(&directory.path().join("pids"), 1);
    let lock = Connection::open(directory.path().join("leases.db")).expect("the database");
    lock.execute_batch("BEGIN IMMEDIATE").expect("nobody else has it");
    let until = std::time::Instant::now() + std::time::Duration::from_millis(900);
    eventually("a beat has failed", || (std::time::Instant::now() >= until).then_some(()));
    drop(lock);
    let until = std::time::Instant::now() + std::time::Duration::from_millis(1500);
    eventually("the first deadline has passed", || (std::time::Instant::now() >= until).then_some(()));
    fs::write(directory.path().join("end"), "").expect("a file");
    let output = finished(holder);
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
}

#[test]
fn a_lease_that_is_revoked_ends_the_command_and_is_76() {
    let directory = directory();
    for at_once in [false, true] {
        let _ = fs::remove_file(directory.path().join("pids"));
        let script = "trap 'echo asked; exit 0' TERM; echo $$ >> pids; while :; do sleep 0.01; done";
        let mut command = tenure(directory.path());
        command.current_dir(directory.path()).args(["run", "--ttl", "1s", "x", "--", "sh", "-c", script]);
        let holder = command.spawn().expect("it starts");
        let cmd = pids(&directory.path().join("pids"), 1)[0];
        revoke(directory.path(), at_once);
        let output = finished(holder);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(76), "asked\n"));
        assert!(stderr(&output).contains("revoked"), "{}", stderr(&output));
        assert!(!support::runs(cmd));
    }
}

/// There is no command for it yet.
fn revoke(directory: &Path, now: bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let url = format!("sqlite:{}", directory.join("leases.db").display());
        let client = tenure::Client::connect(&url).await.expect("a store");
        let name: tenure::Name = "x".parse().expect("a name");
        let held = client.inspect(&name).await.expect("an answer").holder.expect("a holder");
        client.revoke(&name, held.token, now).await.expect("it is revoked");
        client.close().await;
    });
}

#[test]
fn questions_make_no_store() {
    let directory = directory();
    let listed = run(tenure(directory.path()).arg("ls"));
    assert_eq!((listed.status.code(), stdout(&listed).as_str()), (Some(0), ""), "{}", stderr(&listed));
    let shown = run(tenure(directory.path()).args(["show", "x"]));
    assert_eq!(shown.status.code(), Some(1), "{}", stderr(&shown));
    for part in ["nobody", "leases.db"] {
        assert!(stdout(&shown).contains(part), "{part}: {}", stdout(&shown));
    }
    assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 0);

    // The default file, whose directory is made by the first run.
    let home = directory.path().join("home");
    let at_home = |words: &[&str]| {
        let mut command = tenure(directory.path());
        command.env_remove("TENURE_STORE").env_remove("XDG_STATE_HOME").env("HOME", &home);
        run(command.args(words))
    };
    assert_eq!(at_home(&["ls"]).status.code(), Some(0));
    assert_eq!(at_home(&["show", "--json", "x"]).status.code(), Some(1));
    assert!(!home.exists());

    // A directory that is not there is a mistake all the same.
    let missing = format!("sqlite:{}", directory.path().join("missing/leases.db").display());
    let said = rejected(&run(tenure(directory.path()).args(["--store", &missing, "ls"])));
    assert!(said.contains("does not exist"), "{said}");
}
