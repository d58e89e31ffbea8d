//! Errors, by what the caller should do; and loss, by what happened (C3, C11).

use super::clock::Instant;
use std::fmt;
use std::sync::Arc;

/// `Result` with tenure's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What to do about an [`Error`]. Contention is not an error: see [`Busy`](crate::Busy).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Fix the program or the command line.
    Invalid,
    /// The store is unreachable, timed out, failing over or overloaded: wait.
    Unavailable,
    /// Credentials, permission, schema, role, read-only: call an operator.
    Rejected,
    /// This store cannot do this.
    Unsupported,
    /// Not yours, or not any more: stop working. See [`Error::loss`].
    Lost,
    /// The client was closed.
    Closed,
}

/// An error with a kind, a text for people and, where there is one, a cause.
///
/// The text never holds a secret. It costs one pointer and is cheap to clone.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    loss: Option<Loss>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of `kind` that says `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error(Arc::new(Inner { kind, message: message.into(), loss: None, source: None }))
    }

    /// The same with the error that caused it.
    pub fn because(
        kind: ErrorKind,
        message: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Error {
        Error(Arc::new(Inner { kind, message: message.into(), loss: None, source: Some(source.into()) }))
    }

    /// Fix the program or the command line.
    pub fn invalid(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Invalid, message)
    }

    /// Wait.
    pub fn unavailable(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Unavailable, message)
    }

    /// Call an operator.
    pub fn rejected(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Rejected, message)
    }

    /// This store cannot do this.
    pub fn unsupported(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Unsupported, message)
    }

    /// The client was closed.
    pub fn closed() -> Error {
        Error::new(ErrorKind::Closed, "the client was closed")
    }

    /// What to do.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// How the lease was lost, when the kind is [`ErrorKind::Lost`].
    pub fn loss(&self) -> Option<&Loss> {
        self.0.loss.as_ref()
    }
}

impl From<Loss> for Error {
    fn from(loss: Loss) -> Error {
        let message = loss.to_string();
        Error(Arc::new(Inner { kind: ErrorKind::Lost, message, loss: Some(loss), source: None }))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.0.kind, self.0.message)?;
        let mut cause = self.0.source.as_deref().map(|e| e as &dyn std::error::Error);
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|e| e as _)
    }
}

/// Why a lease ended without being released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The deadline passed without a confirmed renewal.
    Expired,
    /// An operator took it.
    Revoked,
    /// The store shows another owner.
    Taken,
    /// The record is gone.
    Vanished,
    /// `hold_at_most` passed.
    Exceeded,
    /// A fence at the resource saw a newer token.
    Fenced,
    /// The keeper, the thread that renews, ended or panicked.
    Broken,
    /// The client was closed.
    Closed,
}

impl Reason {
    /// One lower-case word, as in metrics and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Expired => "expired",
            Reason::Revoked => "revoked",
            Reason::Taken => "taken",
            Reason::Vanished => "vanished",
            Reason::Exceeded => "exceeded",
            Reason::Fenced => "fenced",
            Reason::Broken => "broken",
            Reason::Closed => "closed",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Expired => "its deadline passed without a confirmed renewal",
            Reason::Revoked => "it was revoked",
            Reason::Taken => "the store shows another owner",
            Reason::Vanished => "its record is gone from the store",
            Reason::Exceeded => "it was held for as long as hold_at_most allows",
            Reason::Fenced => "a fence has seen a newer token",
            Reason::Broken => "the thread that renews it ended",
            Reason::Closed => "the client was closed",
        })
    }
}

/// The end of a lease that was not a release.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Loss {
    /// Why.
    pub reason: Reason,
    /// When it was noticed, on the suspend-aware clock.
    pub at: Instant,
    /// The last error that the store gave, when renewals had been failing.
    pub last_error: Option<Error>,
}

impl Loss {
    /// A loss noticed at `at`.
    pub fn new(reason: Reason, at: Instant, last_error: Option<Error>) -> Loss {
        Loss { reason, at, last_error }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the lease is lost: {}", self.reason)?;
        match &self.last_error {
            Some(error) => write!(f, " (last error: {error})"),
            None => Ok(()),
        }
    }
}
