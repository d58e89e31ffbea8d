//! SIGSTOP, for longer than the lease lasts, with somebody waiting.
#![allow(clippy::disallowed_methods, reason = "measures real time")]

mod support;

#[path = "support/queue.rs"]
mod queue;
#[path = "support/worker.rs"]
mod worker;

use queue::Queue;
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use support::{eventually, finished, runs, signal, stderr, tenure};
use tenure::{Clock, Instant};
use worker::{Line, Work, lines, work};

const TTL: Duration = Duration::from_secs(1);
/// How much later than due may be on a busy machine.
const LATE: Duration = Duration::from_secs(1);

#[test]
fn play() {
    worker::play();
}

#[test]
fn when_tenure_alone_is_stopped_its_command_is_dead_before_the_next_begins() {
    let scene = Scene::new();
    let old = scene.start(Work::Always);
    let token = scene.entered(0).token;
    let new = scene.start(Work::Once);
    scene.waiting(1);

    let stopped = now();
    signal(old.pid(), Signal::STOP);
    let first = scene.entered(token);
    assert!(first.at - stopped < TTL + LATE, "in after {:?}", first.at - stopped);
    until(stopped + 2 * TTL);
    let written = lines(&scene.log);
    let last = written.iter().rfind(|line| line.token == token).expect("lines of the old one");
    assert!(last.at < first.at && last.at < stopped + TTL, "{last:?} {first:?}");
    assert!(written.windows(2).all(|pair| pair[0].token <= pair[1].token), "in this order in the file");

    signal(old.pid(), Signal::CONT);
    assert_eq!(old.exit(), 76);
    assert_eq!(new.exit(), 0);
}

#[test]
fn when_all_is_stopped_the_next_waits_for_the_ttl_and_what_resumes_is_killed() {
    let scene = Scene::new();
    let old = scene.start(Work::Always);
    let token = scene.entered(0).token;
    let guardian = only_child(old.pid());
    let cmd = only_child(guardian);
    let new = scene.start(Work::Always);
    scene.waiting(1);

    let stopped = now();
    for pid in [old.pid(), guardian, -cmd] {
        signal_all(pid, Signal::STOP);
    }
    let first = scene.entered(token);
    let took = first.at - stopped;
    // The last renewal before was at most a third of the TTL and a bit ago.
    assert!(took > TTL / 2 && took < TTL + LATE, "in after {took:?}");
    until(stopped + 2 * TTL);
    let resumed = now();
    for pid in [-cmd, guardian, old.pid()] {
        signal_all(pid, Signal::CONT);
    }
    eventually("the command is dead", || (!runs(cmd)).then_some(()));
    let took = now() - resumed;
    assert!(took < LATE, "dead after {took:?}");
    assert_eq!(old.exit(), 76);
    // Only what was under way as it resumed: nobody can prevent that without a fence.
    let late =
        lines(&scene.log).iter().filter(|line| line.token == token && line.at > resumed + LATE).count();
    assert_eq!(late, 0);
    drop(new);
}

#[test]
fn when_the_head_waiter_is_stopped_the_next_is_in_and_the_stopped_one_gets_its_turn_later() {
    let scene = Scene::new();
    let holder = scene.start(Work::Always);
    let mut token = scene.entered(0).token;
    let head = scene.start(Work::Once);
    scene.waiting(1);
    let second = scene.start(Work::Always);
    scene.waiting(2);

    signal(head.pid(), Signal::STOP);
    // The holder's end is its command's: a release.
    let cmd = only_child(only_child(holder.pid()));
    let released = now();
    signal(cmd, Signal::KILL);
    let first = scene.entered(token);
    token = first.token;
    assert!(first.at - released < Duration::from_secs(2), "in after {:?}", first.at - released);

    signal(head.pid(), Signal::CONT);
    scene.waiting(1);
    signal(only_child(only_child(second.pid())), Signal::KILL);
    assert!(scene.entered(token).at > first.at);
    assert_eq!(head.exit(), 0);
    let written = lines(&scene.log);
    assert!(written.windows(2).all(|pair| pair[0].token <= pair[1].token), "one after the other");
}

/// Some that want the same name.
struct Scene {
    directory: tempfile::TempDir,
    log: PathBuf,
}

impl Scene {
    fn new() -> Scene {
        let directory = tempfile::tempdir().expect("a directory");
        let log = directory.path().join("log");
        Scene { directory, log }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn start(&self, what: Work) -> Running {
        let mut command = tenure(self.path());
        command.args(["run", "--ttl", "1s", "x", "--"]);
        work(&mut command, &self.log, what);
        command.stdout(Stdio::null());
        Running(Some(command.spawn().expect("it starts")))
    }

    /// The first line of whoever comes after the one with this token.
    #[track_caller]
    fn entered(&self, after: u64) -> Line {
        eventually("the next one is in", || lines(&self.log).into_iter().find(|line| line.token > after))
    }

    #[track_caller]
    fn waiting(&self, count: usize) {
        let queue = Queue::open(self.path());
        eventually("they wait", || (queue.length() == count).then_some(()));
    }
}

/// A tenure; ended with all that is its own when the test fails, also if it was stopped.
struct Running(Option<Child>);

impl Running {
    fn pid(&self) -> i32 {
        self.0.as_ref().expect("it runs").id() as i32
    }

    #[track_caller]
    fn exit(mut self) -> i32 {
        let output = finished(self.0.take().expect("it runs"));
        output.status.code().unwrap_or_else(|| panic!("{:?}: {}", output.status, stderr(&output)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// To a process, or to a group by its negative number.
fn signal_all(pid: i32, what: Signal) {
    let word = format!("-{}", what.as_raw());
    let sent = Command::new("kill").args([&word, "--", &pid.to_string()]).status().expect("kill");
    assert!(sent.success());
}

fn until(then: Instant) {
    eventually("it is time", || (now() >= then).then_some(()));
}

fn only_child(pid: i32) -> i32 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("children");
    text.trim().parse().expect("one child")
}

fn now() -> Instant {
    Clock::system().now()
}
