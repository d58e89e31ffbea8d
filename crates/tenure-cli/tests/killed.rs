//! kill -9, at what a run is made of, with somebody waiting: how soon the next one is in,
//! and that the old one had ended by then.
#![allow(clippy::disallowed_methods, reason = "measures real time")]

mod support;

#[path = "support/queue.rs"]
mod queue;
#[path = "../../tenure/tests/support/rounds.rs"]
mod rounds;
#[path = "support/worker.rs"]
mod worker;

use queue::Queue;
use rounds::rounds;
use rustix::process::{Pid, Signal, kill_process_group};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use support::{eventually, finished, signal, tenure};
use tenure::{Clock, Instant};
use worker::{Line, Work, lines, work};

/// One after the other: they measure.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn play() {
    worker::play();
}

#[test]
fn after_tenure_was_killed_the_next_is_in_at_once() {
    take_over(direct, |old, _| {
        let killed = now();
        signal(old.id() as i32, Signal::KILL);
        (killed, Exit::Signal(9))
    });
}

#[test]
fn after_the_whole_group_of_tenure_was_killed_the_next_is_in_at_once() {
    take_over(direct, |old, _| {
        let killed = now();
        let group = Pid::from_raw(old.id() as i32).expect("a group");
        kill_process_group(group, Signal::KILL).expect("it is there");
        (killed, Exit::Signal(9))
    });
}

#[test]
fn after_the_guardian_was_killed_the_next_is_in_at_once() {
    take_over(direct, |old, _| {
        let guardian = only_child(old.id() as i32);
        let killed = now();
        signal(guardian, Signal::KILL);
        (killed, Exit::Code(70))
    });
}

#[test]
fn after_the_shell_was_killed_the_next_is_in_when_its_child_has_ended() {
    take_over(below_a_shell, |old, log| {
        let shell = only_child(only_child(old.id() as i32));
        let child = only_child(shell);
        signal(shell, Signal::KILL);
        eventually("the shell is dead", || (!support::runs(shell)).then_some(()));
        let token = lines(log).last().expect("a line").token;
        let dead = now();
        eventually("its child works on", || {
            lines(log).last().filter(|line| line.at > dead + Duration::from_millis(20)).map(|_| ())
        });
        assert!(lines(log).iter().all(|line| line.token <= token), "nobody else was let in");
        let killed = now();
        signal(child, Signal::KILL);
        (killed, Exit::Signal(9))
    });
}

/// How the old tenure ends.
#[derive(Debug, PartialEq, Eq)]
enum Exit {
    Code(i32),
    Signal(i32),
}

/// In each round somebody holds and somebody waits, `kill` does harm to the first and tells
/// when the last of it was to end, and the second is the holder of the next round.
fn take_over(command: fn(&Path) -> Command, kill: fn(&Child, &Path) -> (Instant, Exit)) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    judge(each_takes(command, kill));
}

fn each_takes(command: fn(&Path) -> Command, kill: fn(&Child, &Path) -> (Instant, Exit)) -> Vec<Duration> {
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("log");
    let mut holder = Running::start(command(directory.path()));
    entered(&log, 0);
    let queue = Queue::open(directory.path());
    let mut took: Vec<Duration> = Vec::new();
    for _ in 0..rounds(12, 100) {
        let waiter = Running::start(command(directory.path()));
        eventually("the next one waits", || (queue.length() == 1).then_some(()));
        let old = lines(&log).last().expect("a line").token;
        let (killed, expected) = kill(&holder.0, &log);
        let first = entered(&log, old);
        took.push(first.at - killed);
        let status = holder.finish();
        let exit = match status.signal() {
            Some(signal) => Exit::Signal(signal),
            None => Exit::Code(status.code().expect("a code")),
        };
        assert_eq!(exit, expected);
        holder = waiter;
    }
    drop(holder);
    none_wrote_on(&lines(&log));
    took
}

/// The old one's last line comes before the new one's first, in the file and by the clock.
fn none_wrote_on(lines: &[Line]) {
    for pair in lines.windows(2) {
        assert!(pair[0].at <= pair[1].at && pair[0].token <= pair[1].token, "{pair:?}");
        assert_eq!(pair[0].token != pair[1].token, pair[1].word == "in", "{pair:?}");
    }
}

/// A machine that does other things as well delays some; that they are few is what is judged.
fn judge(mut took: Vec<Duration>) {
    took.sort();
    let (median, most) = (took[took.len() / 2], took[took.len() - 1]);
    let in_95 = took[took.len() * 95 / 100];
    let times = format!("{} rounds: median {median:?}, 95 % {in_95:?}, most {most:?}", took.len());
    println!("{times}");
    assert!(median <= Duration::from_millis(40), "{times}");
    assert!(took.len() < 100 || in_95 <= Duration::from_millis(150), "{times}");
    assert!(most <= Duration::from_secs(1), "{times}");
}

fn direct(directory: &Path) -> Command {
    let mut command = tenure(directory);
    command.args(["run", "x", "--"]);
    work(&mut command, &directory.join("log"), Work::Always);
    command
}

fn below_a_shell(directory: &Path) -> Command {
    let mut command = tenure(directory);
    command.args(["run", "x", "--", "sh", "-c", "\"$@\" & wait", "sh"]);
    work(&mut command, &directory.join("log"), Work::Always);
    command
}

/// The first line of whoever comes after the one with this token.
fn entered(log: &Path, after: u64) -> Line {
    eventually("the next one is in", || lines(log).into_iter().find(|line| line.token > after))
}

fn only_child(pid: i32) -> i32 {
    let children = PathBuf::from(format!("/proc/{pid}/task/{pid}/children"));
    let text = std::fs::read_to_string(children).expect("children");
    text.trim().parse().expect("one child")
}

fn now() -> Instant {
    Clock::system().now()
}

/// A tenure that leads a group; killed with all that is its own when the test fails.
struct Running(Child);

impl Running {
    fn start(mut command: Command) -> Running {
        command.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        Running(command.spawn().expect("it starts"))
    }

    fn finish(&mut self) -> std::process::ExitStatus {
        let child = std::mem::replace(&mut self.0, Command::new("true").spawn().expect("it starts"));
        finished(child).status
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
