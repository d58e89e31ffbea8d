//! What tenure says: few lines on stderr for people, JSON and tables on stdout.

pub(crate) mod json;
pub(crate) mod secrets;
pub(crate) mod status;
pub(crate) mod table;
pub(crate) mod text;

use crate::exit::{Exit, Failure};
use std::io::{ErrorKind, Write};

/// One line on stderr. That nobody reads it ends nothing.
pub(crate) fn say(line: impl AsRef<str>) {
    say_as_it_is(&format!("tenure: {}\n", line.as_ref()));
}

/// Text on stderr, without secrets and without anything that steers a terminal, whatever
/// came into it.
pub(crate) fn say_as_it_is(text: &str) {
    let text = secrets::hidden(&text::inert(text)).into_owned();
    // In one write, so that lines of several processes do not mix.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Text on stdout, whole or with an error.
pub(crate) fn print(text: &str) -> std::io::Result<()> {
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
