//! CMD as the tests need it: the test binary itself, which writes lines with the time that
//! counts suspend. A shell can tell neither so exactly nor so often.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::disallowed_methods, reason = "a worker works for real")]

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tenure::{Clock, Instant};

/// The file that a worker writes to; only a worker has it.
const LOG: &str = "TENURE_TEST_LOG";
/// How it works; see [`play`].
const WORK: &str = "TENURE_TEST_WORK";

/// What a worker does.
#[derive(Clone, Copy)]
pub(crate) enum Work {
    /// A line, 20 ms, a line.
    Once,
    /// A line each millisecond until it is killed.
    Always,
}

/// What a worker wrote: `WORD TOKEN OWNER NANOSECONDS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// `in` comes first, then `on`, and last `out`.
    pub(crate) word: String,
    pub(crate) token: u64,
    pub(crate) owner: String,
    pub(crate) at: Instant,
}

/// Adds the words of a worker to a command, and what it needs in its environment.
///
/// The test file has a test `play` that calls [`play`].
pub(crate) fn work(command: &mut Command, log: &Path, work: Work) {
    let word = match work {
        Work::Once => "once",
        Work::Always => "always",
    };
    command.env(LOG, log).env(WORK, word).args(words());
}

/// How a worker is called.
pub(crate) fn words() -> [String; 5] {
    let program = std::env::current_exe().expect("this program").display().to_string();
    [program, "--exact".into(), "play".into(), "--nocapture".into(), "--test-threads=1".into()]
}

/// Works, if this process is a worker.
pub(crate) fn play() {
    let Some(log) = std::env::var_os(LOG) else { return };
    let mut log = OpenOptions::new().append(true).create(true).open(PathBuf::from(log)).expect("the log");
    write(&mut log, "in");
    match std::env::var(WORK).as_deref() {
        Ok("once") => std::thread::sleep(Duration::from_millis(20)),
        _ => loop {
            std::thread::sleep(Duration::from_millis(1));
            write(&mut log, "on");
        },
    }
    write(&mut log, "out");
}

/// In one write, which appends whole.
fn write(log: &mut File, word: &str) {
    let variable = |name| std::env::var(name).unwrap_or_else(|_| "0".to_owned());
    let (token, owner) = (variable("TENURE_TOKEN"), variable("TENURE_OWNER"));
    let line = format!("{word} {token} {owner} {}\n", Clock::system().now().as_nanos());
    log.write_all(line.as_bytes()).expect("the log can be written");
}

/// The whole lines of a log so far, in the order of the file.
pub(crate) fn lines(log: &Path) -> Vec<Line> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(line).collect()
}

fn line(text: &str) -> Line {
    let parts: Vec<&str> = text.split(' ').collect();
    let [word, token, owner, at] = parts[..] else { panic!("a line of four words: {text}") };
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("a number: {text}"));
    Line {
        word: word.to_owned(),
        token: number(token),
        owner: owner.to_owned(),
        at: Instant::from_nanos(number(at)),
    }
}
