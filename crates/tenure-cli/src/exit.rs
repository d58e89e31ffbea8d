//! Exit codes: a contract with scripts.

use crate::process::signals;
use tenure::{Error, ErrorKind};

/// How tenure ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All went well.
    Success,
    /// 1: `show` and its like: not held, not found.
    NotHeld,
    /// 64: the command line or the environment is wrong.
    Usage,
    /// 69: the store is unavailable.
    Unavailable,
    /// 70: an internal error, or the guardian was killed.
    Internal,
    /// 75, or what `-E` says: not acquired.
    NotAcquired(u8),
    /// 76: the lease was lost.
    Lost,
    /// 77: the store rejected us.
    Rejected,
    /// 126: CMD is not executable.
    NotExecutable,
    /// 127: CMD was not found.
    NotFound,
    /// CMD's own code.
    Command(u8),
    /// CMD, or tenure while it waited, was ended by this signal.
    Signal(i32),
}

impl Exit {
    /// The code of [`Exit::NotAcquired`] unless `-E` changes it.
    pub(crate) const NOT_ACQUIRED: u8 = 75;

    /// As shells show it.
    pub(crate) fn code(self) -> u8 {
        match self {
            Exit::Success => 0,
            Exit::NotHeld => 1,
            Exit::Usage => 64,
            Exit::Unavailable => 69,
            Exit::Internal => 70,
            Exit::Lost => 76,
            Exit::Rejected => 77,
            Exit::NotExecutable => 126,
            Exit::NotFound => 127,
            Exit::NotAcquired(code) | Exit::Command(code) => code,
            Exit::Signal(signal) => 128u8.saturating_add(signal as u8),
        }
    }

    /// Ends the process.
    pub(crate) fn now(self) -> ! {
        if let Exit::Signal(signal) = self {
            signals::die_of(signal);
        }
        std::process::exit(self.code().into())
    }
}

impl From<&Error> for Exit {
    fn from(error: &Error) -> Exit {
        match error.kind() {
            ErrorKind::Invalid | ErrorKind::Unsupported => Exit::Usage,
            ErrorKind::Unavailable => Exit::Unavailable,
            ErrorKind::Rejected => Exit::Rejected,
            ErrorKind::Lost => Exit::Lost,
            _ => Exit::Internal,
        }
    }
}

/// An end with the line that explains it.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Failure {
        Failure { exit, message: message.into() }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Usage, message)
    }

    /// What the system refused and nobody could foresee.
    pub(crate) fn internal(error: std::io::Error) -> Failure {
        let limit = error.raw_os_error() == Some(libc::EMFILE) || error.raw_os_error() == Some(libc::ENFILE);
        let hint = if limit { ": raise the limit (ulimit -n), or close some" } else { "" };
        Failure::new(Exit::Internal, format!("{error}{hint}"))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::new(Exit::from(&error), error.to_string())
    }
}
