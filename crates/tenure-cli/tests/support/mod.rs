//! What the tests of the command line share. Every wait has a bound.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::disallowed_methods, reason = "waits for events, with a bound")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Once;
use std::time::{Duration, Instant};

/// Long enough for a busy machine; only failing tests wait so long.
pub(crate) const BOUND: Duration = Duration::from_secs(20);

/// Away from the terminal that the tests may have been started at, where a run has another
/// shape. Not possible, and not done, for a program that a shell started as a job of its own.
fn leave_terminal() {
    static LEFT: Once = Once::new();
    LEFT.call_once(|| _ = rustix::process::setsid());
}

/// A `tenure` that meets only those of the same directory.
pub(crate) fn tenure(directory: &Path) -> Command {
    leave_terminal();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.env_remove("TENURE_STORE_FILE");
    command.env("TENURE_STORE", format!("sqlite:{}", directory.join("leases.db").display()));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A `tenure` that meets only those of the same directory, started by a shell's script, in
/// which it is `"$@"`.
pub(crate) fn by_shell(directory: &Path, script: &str) -> Command {
    leave_terminal();
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_tenure")]).current_dir(directory);
    command.env_remove("TENURE_STORE_FILE");
    command.env("TENURE_STORE", format!("sqlite:{}", directory.join("leases.db").display()));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Where the store of a test is, and its files.
pub(crate) fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

/// `tenure run OPTIONS x -- sh -c script`, in the directory.
pub(crate) fn command(directory: &Path, options: &[&str], script: &str) -> Command {
    let mut command = tenure(directory);
    command.current_dir(directory).arg("run").args(options).args(["x", "--", "sh", "-c", script]);
    command
}

/// Runs a line to the end, expects this exit code, and gives what came.
#[track_caller]
pub(crate) fn ends(directory: &Path, line: &str, code: i32) -> Output {
    let output = run(words(&mut tenure(directory), line));
    assert_eq!(output.status.code(), Some(code), "{line}: {}{}", stdout(&output), stderr(&output));
    output
}

#[track_caller]
pub(crate) fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", stdout(output)))
}

/// The same command by a user whom permissions bind: root without its powers is one.
pub(crate) fn unprivileged(command: Command) -> Command {
    if !rustix::process::geteuid().is_root() {
        return command;
    }
    let mut dropped = Command::new("setpriv");
    dropped.args(["--bounding-set=-all", "--inh-caps=-all"]).arg(command.get_program());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => dropped.env(name, value),
            None => dropped.env_remove(name),
        };
    }
    dropped.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    dropped
}

/// The words of a line, as a shell without quotes would give them.
pub(crate) fn words<'a>(command: &'a mut Command, line: &str) -> &'a mut Command {
    command.args(line.split_whitespace())
}

/// Runs it with this many descriptors at most.
#[track_caller]
pub(crate) fn run_with_descriptors(limit: u32, command: &Command) -> Output {
    let mut short = Command::new("sh");
    let script = format!("ulimit -n {limit}; exec \"$@\"");
    short.args(["-c", &script, "sh"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => short.env(name, value),
            None => short.env_remove(name),
        };
    }
    run(short.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))
}

/// Of ever more descriptors there comes a number with which it is the store that cannot be opened.
#[track_caller]
pub(crate) fn is_69_short_of_descriptors(command: &Command) {
    let found = (4..24).map(|limit| run_with_descriptors(limit, command)).find(|output| {
        assert_ne!(output.status.code(), Some(77), "{}", stderr(output));
        output.status.code() == Some(69)
    });
    let said = found.map(|output| stderr(&output)).expect("at some limit");
    assert!(said.contains("ulimit -n"), "{said}");
}

/// Until `condition` gives something.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(began.elapsed() < BOUND, "not within {BOUND:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The end of a child, which is killed and reported when it does not come.
#[track_caller]
pub(crate) fn finished(mut child: Child) -> Output {
    let began = Instant::now();
    while child.try_wait().expect("a child of this process").is_none() {
        if began.elapsed() > BOUND {
            let _ = child.kill();
            // Its output is not waited for: who else writes to it may live on.
            panic!("process {} still ran after {BOUND:?}", child.id());
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    // Whoever it left behind may hold its pipes open: that is a failure, not a wait without end.
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    let output = receiver.recv_timeout(BOUND).expect("nobody holds its pipes any more");
    output.expect("its output")
}

/// Runs to the end.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> Output {
    finished(command.spawn().expect("it starts"))
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Whether this process runs: a zombie does not.
pub(crate) fn runs(pid: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next());
    !matches!(state, Some('Z' | 'X') | None)
}

/// As /proc tells it: 0 for one that began outside of our PID namespace, where the calls of
/// rustix do not expect it.
pub(crate) fn group_and_session(pid: i32) -> (i32, i32) {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let mut fields = stat.rsplit(')').next().expect("a line of fields").split_whitespace().skip(2);
    let mut number = || fields.next().and_then(|field| field.parse().ok()).expect("a number");
    (number(), number())
}

/// The numbers that a script wrote to a file, one per line, once there are `count`.
#[track_caller]
pub(crate) fn pids(file: &Path, count: usize) -> Vec<i32> {
    eventually(&format!("{count} processes in {}", file.display()), || {
        let text = fs::read_to_string(file).ok()?;
        let complete = text.ends_with('\n');
        let pids: Vec<i32> = text.lines().filter_map(|line| line.trim().parse().ok()).collect();
        (complete && pids.len() == count).then_some(pids)
    })
}

pub(crate) fn signal(pid: i32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a process");
    rustix::process::kill_process(pid, signal).expect("it is there");
}

/// Kills what a failed test left behind.
pub(crate) struct Leftovers(pub(crate) PathBuf);

impl Drop for Leftovers {
    fn drop(&mut self) {
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        for pid in text.lines().filter_map(|line| line.trim().parse().ok()) {
            if let (true, Some(pid)) = (runs(pid), rustix::process::Pid::from_raw(pid)) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

/// CMD with a family that is hard to end: it ignores TERM, and has a stopped child,
/// a child in a session of its own, and one whose parent has gone. Their numbers, its own
/// first, are in the file `pids` of the directory.
pub(crate) const FAMILY: &str = r#"
trap '' TERM
echo $$ >> pids
sleep 1000 & echo $! >> pids; kill -STOP $!
setsid sleep 1000 & echo $! >> pids
sh -c 'setsid sleep 1000 & echo $! >> pids'
while :; do sleep 1000; done
"#;
/// How many [`FAMILY`] writes down.
pub(crate) const FAMILY_SIZE: usize = 4;
