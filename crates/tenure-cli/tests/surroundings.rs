//! What else is around a run: pipes, nohup, containers, other tools, other users.
#![allow(clippy::disallowed_methods, reason = "measures real time")]

mod support;

use rustix::process::Signal;
use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::{
    Leftovers, by_shell, command, directory, eventually, finished, pids, run, runs, signal, stderr, stdout,
    tenure,
};

/// Whether nobody holds the name.
fn is_free(directory: &Path) -> bool {
    run(&mut command(directory, &["-n"], "true")).status.success()
}

#[test]
fn stdin_is_the_commands() {
    let directory = directory();
    let mut command = tenure(directory.path());
    let mut child = command.args(["run", "x", "--", "cat"]).stdin(Stdio::piped()).spawn().expect("it starts");
    let text = "all of it\n".repeat(20_000);
    let mut stdin = child.stdin.take().expect("a pipe");
    let typed = text.clone();
    let writer = std::thread::spawn(move || stdin.write_all(typed.as_bytes()));
    let output = child.wait_with_output().expect("a child");
    writer.join().expect("no panic").expect("CMD reads it all");
    assert_eq!(stdout(&output), text);
}

#[test]
fn a_reader_that_goes_away_ends_the_command_as_without_tenure() {
    let directory = directory();
    let script = "\"$@\" run x -- sh -c 'while echo y; do :; done' | head -n 2";
    let output = run(&mut by_shell(directory.path(), script));
    assert_eq!((stdout(&output).as_str(), stderr(&output).as_str()), ("y\ny\n", ""));
    eventually("it has ended", || is_free(directory.path()).then_some(()));
}

#[test]
fn two_names_are_nested_and_one_name_twice_is_refused() {
    let directory = directory();
    let script = "\"$@\" run a -- \"$@\" run b -- sh -c 'echo $TENURE_NAME; exit 5'";
    let output = run(&mut by_shell(directory.path(), script));
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(5), "b\n"), "{}", stderr(&output));
    let script = "\"$@\" run a -- \"$@\" run -n a -- true";
    let output = run(&mut by_shell(directory.path(), script));
    assert_eq!(output.status.code(), Some(75), "{}", stderr(&output));
    // A signal goes all the way down, and the end all the way up.
    let script = "exec \"$@\" run a -- \"$@\" run b -- sh -c 'echo $$ > pids; exec sleep 1000'";
    let outer = by_shell(directory.path(), script).spawn().expect("it starts");
    let cmd = pids(&directory.path().join("pids"), 1)[0];
    signal(outer.id() as i32, Signal::TERM);
    assert_eq!(finished(outer).status.signal(), Some(libc::SIGTERM));
    assert!(!runs(cmd));
}

#[test]
fn the_loss_of_the_outer_name_ends_the_inner_command() {
    let directory = directory();
    let file = directory.path().join("pids");
    let _leftovers = Leftovers(file.clone());
    let script = "exec \"$@\" run --ttl 1s --hold-at-most 1500ms a -- \"$@\" run b -- sh -c \"trap '' TERM; echo \\$\\$ > pids; while :; do sleep 0.1; done\"";
    let outer = by_shell(directory.path(), script).spawn().expect("it starts");
    let cmd = pids(&file, 1)[0];
    let output = finished(outer);
    assert_eq!(output.status.code(), Some(76), "{}", stderr(&output));
    assert!(!runs(cmd));
}

#[test]
fn nohup_keeps_a_run_alive() {
    let directory = directory();
    let script =
        "exec nohup \"$@\" run x -- sh -c 'echo $$ > pids; until [ -e end ]; do sleep 0.01; done; echo done'";
    let child = by_shell(directory.path(), script).spawn().expect("it starts");
    let cmd = pids(&directory.path().join("pids"), 1)[0];
    for pid in [child.id() as i32, cmd] {
        signal(pid, Signal::HUP);
    }
    fs::write(directory.path().join("end"), "").expect("a file");
    let output = finished(child);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "done\n"), "{}", stderr(&output));
}

#[test]
fn timeout_kills_all_of_it() {
    let directory = directory();
    let file = directory.path().join("pids");
    let _leftovers = Leftovers(file.clone());
    for (options, code) in [("-s KILL", 137), ("", 124), ("-k 5", 124)] {
        let _ = fs::remove_file(&file);
        let script = format!(
            "timeout {options} 0.5 \"$@\" run x -- sh -c 'echo $$ >> pids; sleep 1000 & echo $! >> pids; wait'; echo code=$?"
        );
        let output = run(&mut by_shell(directory.path(), &script));
        assert!(stdout(&output).contains(&format!("code={code}")), "{}{}", stdout(&output), stderr(&output));
        let family = pids(&file, 2);
        eventually("all are dead", || (!family.iter().any(|pid| runs(*pid))).then_some(()));
        // Nothing is waited for: what held the name has ended.
        let began = Instant::now();
        assert!(run(&mut command(directory.path(), &["-w", "5s"], "true")).status.success());
        assert!(began.elapsed() < Duration::from_secs(2), "{options}: {:?}", began.elapsed());
    }
}

#[test]
fn a_daemon_outlives_a_normal_end_and_not_a_loss() {
    let directory = directory();
    let file = directory.path().join("pids");
    let _leftovers = Leftovers(file.clone());
    let daemon = "setsid sh -c 'echo $$ >> pids; exec sleep 1000' >/dev/null 2>&1 & until [ -s pids ]; do sleep 0.01; done";
    for options in [&[][..], &["--close"]] {
        let _ = fs::remove_file(&file);
        let output = run(&mut command(directory.path(), options, daemon));
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{options:?}");
        let pid = pids(&file, 1)[0];
        assert!(runs(pid), "it left the group, so it is not waited for");
        assert!(is_free(directory.path()));
        signal(pid, Signal::KILL);
    }
    let _ = fs::remove_file(&file);
    let deaf = daemon.replace("sh -c '", "sh -c 'trap \"\" TERM; ");
    // Also when the command itself ends as soon as it is asked to, long before the deadline.
    let polite = "trap 'exit 0' TERM; while :; do sleep 0.01; done";
    for script in [format!("{daemon}; exec sleep 1000"), format!("{deaf}; {polite}")] {
        let _ = fs::remove_file(&file);
        let output = run(&mut command(directory.path(), &["--ttl", "1s", "--hold-at-most", "1s"], &script));
        assert_eq!(output.status.code(), Some(76), "{}", stderr(&output));
        assert!(!runs(pids(&file, 1)[0]), "{script}");
    }
}

#[test]
fn in_tenures_own_group_the_work_is_what_came_of_the_command() {
    let directory = directory();
    let file = directory.path().join("pids");
    let script = "(echo 1 >> pids; until [ -e end ]; do sleep 0.01; done; echo late) & exit 3";
    let child = command(directory.path(), &["--foreground"], script).spawn().expect("it starts");
    pids(&file, 1);
    assert!(!is_free(directory.path()));
    fs::write(directory.path().join("end"), "").expect("a file");
    let output = finished(child);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(3), "late\n"), "{}", stderr(&output));

    // The guardian killed, and tenure: all that came of it dies, and no neighbour.
    for (whom, code) in [("guardian", Some(70)), ("tenure", None)] {
        let _ = fs::remove_file(&file);
        let script = "sleep 1000 & echo $! > neighbour; exec \"$@\" run --foreground x -- sh -c 'echo $$ >> pids; sleep 1000 & echo $! >> pids; wait'";
        let _neighbour = Leftovers(directory.path().join("neighbour"));
        let child = by_shell(directory.path(), script)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let family = pids(&file, 2);
        let tenure = child.id() as i32;
        let stat = fs::read_to_string(format!("/proc/{}/stat", family[0])).expect("it runs");
        let guardian = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse().ok());
        let guardian: i32 = guardian.expect("a parent");
        assert_eq!(support::group_and_session(family[0]).0, support::group_and_session(tenure).0);
        assert_eq!(support::group_and_session(guardian).0, guardian);
        signal(if whom == "guardian" { guardian } else { tenure }, Signal::KILL);
        assert_eq!(finished(child).status.code(), code, "{whom}");
        eventually("all are dead", || (!family.iter().any(|pid| runs(*pid))).then_some(()));
        assert!(runs(pids(&directory.path().join("neighbour"), 1)[0]), "{whom}");
    }
}

#[test]
fn the_guardian_is_called_tenure() {
    let directory = directory();
    let file = directory.path().join("pids");
    let child =
        command(directory.path(), &[], "echo $$ > pids; until [ -e end ]; do sleep 0.01; done").spawn();
    let child = child.expect("it starts");
    pids(&file, 1);
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).expect("children");
    let name = fs::read_to_string(format!("/proc/{}/comm", children.trim())).expect("it runs");
    assert_eq!(name, "tenure\n");
    fs::write(directory.path().join("end"), "").expect("a file");
    assert!(finished(child).status.success());
}

/// `unshare` with a PID namespace of its own: as root, or where users may make namespaces.
fn first_process(directory: &Path, script: &str) -> Command {
    let unshare = "unshare --user --map-root-user --pid --fork --mount-proc --kill-child=KILL";
    let script = script.replace("TENURE", "\"$@\"");
    by_shell(directory, &format!("exec {unshare} {script}"))
}

#[test]
fn as_the_first_process_it_reaps_and_passes_signals_on() {
    let directory = directory();
    // Orphans come to it while the command runs; at the end only it and CMD are there.
    let script = "for i in 1 2 3 4 5; do setsid sh -c 'sleep 0.05 & exit'; done; \
        until [ \"$(cat /proc/[0-9]*/stat | grep -c ') Z ')\" = 0 ] && ! pgrep -x sleep; do sleep 0.02; done; \
        echo $PPID; exit 3";
    fs::write(directory.path().join("script"), script).expect("a file");
    let output = run(&mut first_process(directory.path(), "TENURE run x -- sh script"));
    assert_eq!(output.status.code(), Some(3), "{}{}", stdout(&output), stderr(&output));

    // It cannot die of a signal: 128 + n it is.
    let script = "sh -c 'echo $$ > ready; exec sleep 1000'";
    let child =
        first_process(directory.path(), &format!("TENURE run x -- {script}")).spawn().expect("it starts");
    eventually("it runs", || directory.path().join("ready").exists().then_some(()));
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let inside: i32 = fs::read_to_string(children).expect("children").trim().parse().expect("one");
    signal(inside, Signal::TERM);
    assert_eq!(finished(child).status.code(), Some(143));

    // And while it waits, reaping as well.
    let holder = command(directory.path(), &[], "echo $$ > holder; until [ -e end ]; do sleep 0.01; done");
    let holder = { holder }.spawn().expect("it starts");
    pids(&directory.path().join("holder"), 1);
    let child = first_process(directory.path(), "TENURE run x -- touch ran").spawn().expect("it starts");
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let inside: i32 = eventually("it is there", || fs::read_to_string(&children).ok()?.trim().parse().ok());
    let waits = || {
        let shown = run(tenure(directory.path()).args(["show", "--json", "x"]));
        stdout(&shown).contains("\"waiting\": 1").then_some(())
    };
    eventually("it waits", waits);
    signal(inside, Signal::TERM);
    assert_eq!(finished(child).status.code(), Some(143));
    assert!(!directory.path().join("ran").exists());
    fs::write(directory.path().join("end"), "").expect("a file");
    assert!(finished(holder).status.success());
}

/// tenure may not signal it any more: the lease is kept for as long as it runs. Needs root, or
/// `sudo` without a password.
#[test]
fn a_command_that_changed_its_user_keeps_the_lease_until_it_ends() {
    let directory = directory();
    let file = directory.path().join("pids");
    let _leftovers = Leftovers(file.clone());
    let sudo = if rustix::process::geteuid().is_root() { "" } else { "sudo -n -E" };
    // tenure without the power over others, CMD with another user's number.
    let start = |options: &str| {
        let _ = fs::remove_file(&file);
        let script = format!(
            "exec {sudo} setpriv --inh-caps=-kill --bounding-set=-kill \"$@\" run --ttl 500ms {options} x -- \
             sh -c 'exec setpriv --reuid=65534 --clear-groups sh -c \"echo \\$\\$; exec sleep 1000\" > pids'"
        );
        let child = by_shell(directory.path(), &script).spawn().expect("it starts");
        (child, pids(&file, 1)[0], Instant::now())
    };
    let (child, cmd, began) = start("");
    signal(child.id() as i32, Signal::TERM);
    eventually("its first deadline has long passed", || {
        (began.elapsed() > Duration::from_secs(1)).then_some(())
    });
    assert!(runs(cmd), "the signal could not be passed on");
    assert_eq!(run(&mut command(directory.path(), &["-n"], "true")).status.code(), Some(75));
    signal(cmd, Signal::KILL);
    let output = finished(child);
    assert_eq!(output.status.signal(), Some(libc::SIGKILL), "{}", stderr(&output));
    assert!(is_free(directory.path()));

    // A loss is told when the command has ended, which nobody could make it do.
    let (child, cmd, began) = start("--hold-at-most 400ms");
    eventually("its deadline has long passed", || (began.elapsed() > Duration::from_secs(2)).then_some(()));
    assert!(runs(cmd));
    signal(cmd, Signal::KILL);
    let output = finished(child);
    assert_eq!(output.status.code(), Some(76), "{}", stderr(&output));
}

fn waiting(directory: &Path) -> u64 {
    let output = run(tenure(directory).args(["show", "--json", "x"]));
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    shown["waiting"].as_u64().expect("a number")
}

/// A log collector that hangs: its pipe is full and nobody reads.
fn full_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    rustix::pipe::fcntl_setpipe_size(&writer, 4096).expect("a small one");
    rustix::io::write(&writer, &[b'x'; 4096]).expect("room for that");
    (reader, writer)
}

#[test]
fn a_stderr_that_nobody_reads_holds_up_nothing() {
    let directory = directory();
    let at = directory.path();
    let holder = command(at, &[], "until [ -e end ]; do sleep 0.01; done").spawn().expect("it starts");
    eventually("it holds", || (!is_free(at)).then_some(()));
    let (_reader, writer) = full_pipe();
    let stderr_of = |writer: &std::io::PipeWriter| writer.try_clone().expect("another descriptor");
    let output = run(command(at, &["-n"], "true").stderr(stderr_of(&writer)));
    assert_eq!(output.status.code(), Some(75));
    let waiter = command(at, &[], "echo ran").stderr(writer).spawn().expect("it starts");
    eventually("it waits", || (waiting(at) == 1).then_some(()));
    // Until it has had something to say.
    std::thread::sleep(Duration::from_millis(700));
    fs::write(at.join("end"), "").expect("a file");
    assert_eq!(finished(holder).status.code(), Some(0));
    let output = finished(waiter);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "ran\n"));
}

#[test]
fn an_answer_that_has_nowhere_to_go_is_no_success() {
    let directory = directory();
    let script =
        r#"$TENURE acquire -n x >&-; echo $?; $TENURE show --json x >&-; echo $?; $TENURE ls >&-; echo $?"#;
    let store = format!("sqlite:{}", directory.path().join("leases.db").display());
    let output = run(Command::new("sh")
        .args(["-c", script])
        .env("TENURE", env!("CARGO_BIN_EXE_tenure"))
        .env("TENURE_STORE", store)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped()));
    assert_eq!(stdout(&output), "70\n70\n70\n", "{}", stderr(&output));
    assert!(is_free(directory.path()), "nobody could have released it");
}
