//! What tenure says: few lines on stderr for people, JSON and tables on stdout.

pub(crate) mod json;
pub(crate) mod secrets;
pub(crate) mod status;
pub(crate) mod table;
pub(crate) mod text;

use crate::exit::{Exit, Failure};
use crate::process::stdout_was_closed;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::time::Duration;
use tenure::Clock;

/// One line on stderr. That nobody reads it ends nothing.
pub(crate) fn say(line: impl AsRef<str>) {
    say_as_it_is(&format!("tenure: {}\n", line.as_ref()));
}

/// Text on stderr, without secrets and without anything that steers a terminal, whatever
/// came into it.
pub(crate) fn say_as_it_is(text: &str) {
    let text = secrets::hidden(&text::inert(text)).into_owned();
    // In one write, so that lines of several processes do not mix. A part that a pipe has room
    // for when it has any.
    for part in text.as_bytes().chunks(PIPE_ROOM) {
        if !has_room(std::io::stderr()) || std::io::stderr().write_all(part).is_err() {
            return;
        }
    }
}

/// What a pipe takes without waiting when it is said to be writable.
const PIPE_ROOM: usize = 4096;
/// How long a reader who is slow is waited for.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// A pipe that nobody empties, or a terminal that was told to pause, must not keep a lease from
/// being given back, or a command from being started.
fn has_room(stream: impl AsFd) -> bool {
    let began = Clock::system().now();
    loop {
        let mut room = [PollFd::new(&stream, PollFlags::OUT)];
        match poll(&mut room, Some(&PATIENCE)) {
            Ok(ready) => return ready > 0,
            Err(Errno::INTR) if Clock::system().now() < began + Duration::from_millis(100) => {}
            Err(_) => return false,
        }
    }
}

/// Text on stdout, whole or with an error.
pub(crate) fn print(text: &str) -> std::io::Result<()> {
    if stdout_was_closed() {
        // What stands in its place leads nowhere.
        return Err(Errno::BADF.into());
    }
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Answers on stdout. That the reader has gone (`| head`) is not our failure; that an answer
/// is not where it was sent (`> /dev/full`) is.
pub(crate) fn answer(text: &str, exit: Exit) -> Result<Exit, Failure> {
    match print(text) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(exit),
        Err(error) => Err(cannot_write(&error)),
        Ok(()) => Ok(exit),
    }
}

pub(crate) fn cannot_write(error: &std::io::Error) -> Failure {
    Failure::new(Exit::Internal, format!("cannot write to stdout: {error}"))
}
