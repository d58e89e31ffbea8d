//! A test that needs a second process is that process too: the binary runs itself
//! again with one role to play.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

const ROLE: &str = "TENURE_TEST_ROLE";

/// The role that this process has, if it is one of the children, with its arguments.
pub(crate) fn role() -> Option<Vec<String>> {
    std::env::var(ROLE).ok().map(|role| role.split('\u{1f}').map(str::to_owned).collect())
}

/// A process that plays a role; killed when it is dropped.
pub(crate) struct Player {
    pub(crate) process: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

#[allow(dead_code, reason = "a test that shares this file need not use all of it")]
impl Player {
    /// Starts `test`, which looks for its [`role`], with these words.
    pub(crate) fn start(test: &str, words: &[&str]) -> Player {
        Player::start_under(&[], test, words)
    }

    /// The same as the command of `wrapper`: `env`, `unshare` and the like.
    pub(crate) fn start_under(wrapper: &[&str], test: &str, words: &[&str]) -> Player {
        let binary = std::env::current_exe().unwrap();
        let mut whole = wrapper.iter().map(|word| OsStr::new(*word)).chain([binary.as_os_str()]);
        let program = whole.next().expect("the binary at least");
        let mut command = Command::new(program);
        command.args(whole).args(["--exact", test, "--nocapture", "--test-threads=1"]);
        command.env(ROLE, words.join("\u{1f}")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let output = BufReader::new(process.stdout.take().unwrap());
        let (send, lines) = channel();
        std::thread::spawn(move || {
            // What a role says begins with a colon; the rest is the test harness.
            for line in output.lines().map_while(Result::ok) {
                if let Some(word) = line.rsplit_once("::").map(|(_, word)| word.to_owned()) {
                    let _ = send.send(word);
                }
            }
        });
        let input = process.stdin.take().unwrap();
        Player { process, input, lines }
    }

    /// The next thing that it says.
    pub(crate) fn hear(&self) -> String {
        match self.lines.recv_timeout(Duration::from_secs(60)) {
            Ok(word) => word,
            Err(RecvTimeoutError::Timeout) => panic!("the other process says nothing for a minute"),
            Err(RecvTimeoutError::Disconnected) => panic!("the other process ended: above is why"),
        }
    }

    pub(crate) fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// STOP, CONT, KILL...
    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What a role says to the test.
pub(crate) fn say(word: impl std::fmt::Display) {
    println!("::{word}");
}

#[allow(dead_code, reason = "a test that shares this file need not use all of it")]
/// What the test says to a role.
pub(crate) fn listen() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.trim().to_owned()
}
