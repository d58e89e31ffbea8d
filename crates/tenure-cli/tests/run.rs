//! `tenure run` by itself: how it ends, signals, and the loss of the lease.
#![allow(clippy::disallowed_methods, reason = "measures real time")]

mod support;

use rustix::process::Signal;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use support::{
    FAMILY, FAMILY_SIZE, Leftovers, command, directory, eventually, finished, pids, run, runs, stderr,
    stdout, tenure,
};

fn start(directory: &Path, options: &[&str], script: &str) -> Child {
    command(directory, options, script).spawn().expect("it starts")
}

fn guardian_of(tenure: &Child) -> i32 {
    let children = format!("/proc/{0}/task/{0}/children", tenure.id());
    fs::read_to_string(children).expect("children").trim().parse().expect("one child")
}

fn end(directory: &Path) {
    fs::write(directory.join("end"), "").expect("a file");
}

/// Runs until the test says so.
const UNTIL_TOLD: &str = "echo $$ >> pids; until [ -e end ]; do sleep 0.01; done; echo told";

#[test]
fn the_exit_code_is_the_commands() {
    let directory = directory();
    for code in [0, 1, 64, 75, 76, 126, 255] {
        let output = run(&mut command(directory.path(), &[], &format!("exit {code}")));
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        assert_eq!(stderr(&output), "");
    }
}

#[test]
fn a_command_that_died_of_a_signal_takes_tenure_with_it() {
    let directory = directory();
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGKILL, libc::SIGSEGV, libc::SIGPIPE] {
        let output = run(&mut command(directory.path(), &[], &format!("kill -{signal} $$; sleep 1000")));
        assert_eq!(output.status.signal(), Some(signal), "{}", stderr(&output));
        assert!(!output.status.core_dumped());
    }
}

#[test]
fn a_script_without_its_interpreter_is_not_found() {
    use std::os::unix::fs::PermissionsExt;
    let directory = directory();
    let script = directory.path().join("script");
    fs::write(&script, "#!/no/such/interpreter\n").expect("a file");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("its mode");
    let output = run(tenure(directory.path()).args(["run", "x", "--"]).arg(&script));
    assert_eq!(output.status.code(), Some(127));
    assert!(stderr(&output).contains("script"), "{}", stderr(&output));
}

#[test]
fn signals_are_passed_on_to_the_whole_group() {
    let directory = directory();
    for (name, signal) in [
        ("TERM", Signal::TERM),
        ("INT", Signal::INT),
        ("HUP", Signal::HUP),
        ("QUIT", Signal::QUIT),
        ("USR1", Signal::USR1),
        ("USR2", Signal::USR2),
        ("WINCH", Signal::WINCH),
    ] {
        let _ = fs::remove_file(directory.path().join("pids"));
        // A shell lets what it starts in the background ignore INT and QUIT.
        let script = format!(
            "env --default-signal sh -c \"trap 'echo child; exit' {name}; echo 1 >> pids; \
             while :; do sleep 0.01; done\" & \
             trap 'wait; echo parent; exit 5' {name}; echo 2 >> pids; while :; do sleep 0.01; done"
        );
        let child = start(directory.path(), &[], &script);
        pids(&directory.path().join("pids"), 2);
        support::signal(child.id() as i32, signal);
        let output = finished(child);
        assert_eq!(output.status.code(), Some(5), "{name}: {}", stderr(&output));
        assert_eq!(stdout(&output), "child\nparent\n", "{name}");
    }
}

#[test]
fn an_ignored_signal_stays_ignored() {
    let directory = directory();
    let sh = tenure(directory.path());
    let tenure = sh.get_program().to_owned();
    let mut outer = Command::new("sh");
    outer.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]).arg(tenure);
    outer.args(["run", "x", "--", "sh", "-c", UNTIL_TOLD]).current_dir(directory.path());
    for (name, value) in sh.get_envs().filter_map(|(name, value)| Some((name, value?))) {
        outer.env(name, value);
    }
    outer.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = outer.spawn().expect("it starts");
    let cmd = pids(&directory.path().join("pids"), 1)[0];
    support::signal(child.id() as i32, Signal::HUP);
    support::signal(cmd, Signal::HUP);
    end(directory.path());
    assert_eq!(stdout(&finished(child)), "told\n");
}

#[test]
fn the_run_ends_when_the_group_is_empty_and_says_what_it_waits_for() {
    let directory = directory();
    let file = directory.path().join("pids");
    let script = "(echo 1 >> pids; until [ -e end ]; do sleep 0.01; done; echo late) & exit 3";
    let mut child = start(directory.path(), &[], script);
    pids(&file, 1);
    let mut line = String::new();
    let mut reader = std::io::BufReader::new(child.stderr.take().expect("a pipe"));
    std::io::BufRead::read_line(&mut reader, &mut line).expect("a line");
    assert!(line.contains("waiting for what runs on in its group: sh ("), "{line}");
    end(directory.path());
    let output = finished(child);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(3), "late\n"));
}

#[test]
fn with_close_the_run_ends_with_the_command() {
    let directory = directory();
    let file = directory.path().join("pids");
    let _leftovers = Leftovers(file.clone());
    let script = "sleep 1000 >/dev/null 2>&1 & echo $! >> pids; exit 3";
    let output = run(&mut command(directory.path(), &["--close"], script));
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(runs(pids(&file, 1)[0]), "leftovers run on");
}

#[test]
fn a_command_that_holds_too_long_is_asked_to_end() {
    let directory = directory();
    let script = "trap 'echo asked; exit 0' TERM; while :; do sleep 0.01; done";
    let output = run(&mut command(directory.path(), &["--hold-at-most", "700ms", "--ttl", "1s"], script));
    assert_eq!(output.status.code(), Some(76), "{}", stderr(&output));
    assert_eq!(stdout(&output), "asked\n");
    assert!(stderr(&output).contains("asking the command to end"), "{}", stderr(&output));
}

#[test]
fn what_does_not_end_when_asked_is_killed() {
    let directory = directory();
    let file = directory.path().join("pids");
    let _leftovers = Leftovers(file.clone());
    let child = start(directory.path(), &["--hold-at-most", "1500ms", "--ttl", "1s"], FAMILY);
    let family = pids(&file, FAMILY_SIZE);
    let output = finished(child);
    assert_eq!(family.iter().filter(|pid| runs(**pid)).count(), 0, "{family:?}");
    assert_eq!(output.status.code(), Some(76), "{}", stderr(&output));
    assert!(stderr(&output).contains("hold_at_most"), "with the reason: {}", stderr(&output));
}

#[test]
fn a_loss_that_is_ignored_ends_nothing_and_is_76_all_the_same() {
    let directory = directory();
    let options = ["--hold-at-most", "300ms", "--ttl", "1s", "--grace", "0s", "--on-lost", "ignore"];
    let mut child = start(directory.path(), &options, UNTIL_TOLD);
    let mut line = String::new();
    let mut reader = std::io::BufReader::new(child.stderr.take().expect("a pipe"));
    std::io::BufRead::read_line(&mut reader, &mut line).expect("a line");
    assert!(line.contains("runs on without protection"), "{line}");
    end(directory.path());
    let output = finished(child);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(76), "told\n"));
}

#[test]
fn a_tenure_that_is_stopped_loses_and_its_command_is_dead_by_the_deadline() {
    let directory = directory();
    let file = directory.path().join("pids");
    let _leftovers = Leftovers(file.clone());
    let child = start(directory.path(), &["--ttl", "1s"], FAMILY);
    let family = pids(&file, FAMILY_SIZE);
    let stopped = std::time::Instant::now();
    support::signal(child.id() as i32, Signal::STOP);
    eventually("all are dead", || (!family.iter().any(|pid| runs(*pid))).then_some(()));
    let took = stopped.elapsed();
    assert!(took < Duration::from_millis(1200), "within the TTL: {took:?}");
    eventually("twice the TTL has passed", || (stopped.elapsed() > Duration::from_secs(2)).then_some(()));
    support::signal(child.id() as i32, Signal::CONT);
    let output = finished(child);
    assert_eq!(output.status.code(), Some(76), "{}", stderr(&output));
}

#[test]
fn when_tenure_is_killed_so_is_all_that_came_of_the_command() {
    let directory = directory();
    let file = directory.path().join("pids");
    let _leftovers = Leftovers(file.clone());
    let mut child = start(directory.path(), &[], FAMILY);
    let family = pids(&file, FAMILY_SIZE);
    child.kill().expect("it runs");
    eventually("all are dead", || (!family.iter().any(|pid| runs(*pid))).then_some(()));
    let _ = child.wait();
}

#[test]
fn when_the_guardian_is_killed_so_is_all_that_came_of_the_command() {
    let directory = directory();
    let file = directory.path().join("pids");
    let _leftovers = Leftovers(file.clone());
    let child = start(directory.path(), &[], FAMILY);
    let family = pids(&file, FAMILY_SIZE);
    support::signal(guardian_of(&child), Signal::KILL);
    let output = finished(child);
    assert_eq!(output.status.code(), Some(70), "{}", stderr(&output));
    assert_eq!(family.iter().filter(|pid| runs(**pid)).count(), 0, "{family:?}");
    assert!(stderr(&output).contains("guardian"), "{}", stderr(&output));
}

#[test]
fn when_the_guardian_is_stopped_tenure_does_its_work() {
    let directory = directory();
    let file = directory.path().join("pids");
    let _leftovers = Leftovers(file.clone());
    let child = start(directory.path(), &["--hold-at-most", "1500ms", "--ttl", "1s"], FAMILY);
    let family = pids(&file, FAMILY_SIZE);
    support::signal(guardian_of(&child), Signal::STOP);
    let output = finished(child);
    assert_eq!(output.status.code(), Some(76), "{}", stderr(&output));
    assert_eq!(family.iter().filter(|pid| runs(**pid)).count(), 0, "{family:?}");
}

#[test]
fn what_the_caller_had_started_before_is_not_killed() {
    let directory = directory();
    let file = directory.path().join("pids");
    let _leftovers = Leftovers(file.clone());
    let tenure = command(directory.path(), &[], UNTIL_TOLD);
    let mut outer = Command::new("sh");
    outer.args(["-c", "sleep 1000 >/dev/null 2>&1 & echo $! >> pids; exec \"$@\"", "sh"]);
    outer.arg(tenure.get_program()).args(tenure.get_args()).current_dir(directory.path());
    for (name, value) in tenure.get_envs().filter_map(|(name, value)| Some((name, value?))) {
        outer.env(name, value);
    }
    outer.stderr(Stdio::piped());
    let child = outer.spawn().expect("it starts");
    let [stranger, cmd] = pids(&file, 2)[..] else { unreachable!("two") };
    let guardian = fs::read_to_string(format!("/proc/{cmd}/stat")).expect("CMD runs");
    let guardian = guardian.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse().ok());
    support::signal(guardian.expect("a parent"), Signal::KILL);
    assert_eq!(finished(child).status.code(), Some(70));
    assert!(runs(stranger) && !runs(cmd));
}

#[test]
fn a_closed_stderr_ends_no_run() {
    let directory = directory();
    let mut command = command(directory.path(), &["-v"], "echo out; exit 4");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = run(command.stderr(writer));
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(4), "out\n"));
}

#[test]
fn a_limit_shorter_than_the_default_grace_is_held_for_all_the_same() {
    let home = tempfile::tempdir().unwrap();
    let began = tenure::Clock::system().now();
    let ended = Command::new(env!("CARGO_BIN_EXE_tenure"))
        .env("HOME", home.path())
        .args(["run", "--hold-at-most", "1s", "limited", "--", "sleep", "30"])
        .output()
        .unwrap();
    let took = tenure::Clock::system().now() - began;
    assert_eq!(ended.status.code(), Some(76), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(took < Duration::from_secs(3), "{took:?}");
    let refused = Command::new(env!("CARGO_BIN_EXE_tenure"))
        .env("HOME", home.path())
        .args(["run", "--hold-at-most", "1s", "--grace", "2s", "limited", "--", "true"])
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(64), "{}", String::from_utf8_lossy(&refused.stderr));
}
