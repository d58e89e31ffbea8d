//! Two hundred that want the same name at once.
#![allow(clippy::disallowed_methods, reason = "measures real time")]

mod support;

#[path = "support/queue.rs"]
mod queue;
#[path = "support/worker.rs"]
mod worker;

use queue::{Queue, served_in_order};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::{run, stderr, tenure};
use worker::{Line, Work, lines, work};

const CROWD: usize = 200;

#[test]
fn play() {
    worker::play();
}

#[test]
fn two_hundred_at_once_enter_one_by_one_in_the_order_of_the_queue() {
    let directory = tempfile::tempdir().expect("a directory");
    assert!(run(tenure(directory.path()).args(["run", "x", "--", "true"])).status.success());
    let queue = Queue::watch(directory.path());

    let flock_log = directory.path().join("flock");
    let flock = all_at_once(&flock_log, || {
        let mut command = Command::new("flock");
        command.arg(directory.path().join("lock"));
        command
    });
    let log = directory.path().join("log");
    let ours = all_at_once(&log, || {
        let mut command = tenure(directory.path());
        command.args(["run", "x", "--"]);
        command
    });
    println!("tenure {ours:?}, flock {flock:?}, ratio {:.2}", ours.as_secs_f64() / flock.as_secs_f64());

    one_at_a_time(&lines(&flock_log));
    let lines = lines(&log);
    one_at_a_time(&lines);
    let entered: Vec<&Line> = lines.iter().filter(|line| line.word == "in").collect();
    assert!(entered.windows(2).all(|pair| pair[0].token < pair[1].token), "tokens only grow");
    let (served, dropped) = served_in_order(&queue.history());
    let mut owners = entered.iter().map(|line| &line.owner).peekable();
    // Those who got it too late to begin queued again.
    let late = served.iter().filter(|owner| owners.next_if_eq(owner).is_none()).count();
    assert_eq!(owners.next(), None, "entered in the order in which they were served");
    println!("{dropped} entries lost their place, {late} grants came too late");
    let bound = 2 * flock + Duration::from_secs(5);
    assert!(ours <= bound, "{ours:?}, flock {flock:?}");
}

/// Starts them all and waits for all; how long that took. Each must succeed.
fn all_at_once(log: &Path, command: impl Fn() -> Command) -> Duration {
    let began = Instant::now();
    let crowd: Vec<_> = (0..CROWD)
        .map(|_| {
            let mut command = command();
            work(&mut command, log, Work::Once);
            // A pipe for each would be read by nobody until its turn comes.
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
            command.spawn().expect("it starts")
        })
        .collect();
    for child in crowd {
        let output = child.wait_with_output().expect("a child");
        assert!(output.status.success(), "{:?}: {}", output.status, stderr(&output));
    }
    began.elapsed()
}

/// Each goes out before the next goes in, in the file and by the clock.
#[track_caller]
fn one_at_a_time(lines: &[Line]) {
    assert_eq!(lines.len(), 2 * CROWD);
    assert!(lines.windows(2).all(|pair| pair[0].at <= pair[1].at), "the clock agrees with the file");
    for turn in lines.chunks(2) {
        let words = (turn[0].word.as_str(), turn[1].word.as_str());
        assert_eq!(words, ("in", "out"), "{turn:?}");
        assert_eq!((turn[0].token, &turn[0].owner), (turn[1].token, &turn[1].owner));
    }
}
