//! Not granted, and why (C11). Contention is an outcome, not an error.

use super::error::Error;
use super::owner::{Label, Owner};
use super::token::Token;
use std::fmt;
use std::time::{Duration, SystemTime};

/// Who has a name, as the store tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Which acquisition.
    pub owner: Owner,
    /// What people call it.
    pub label: Label,
    /// Its fencing token.
    pub token: Token,
    /// When it was granted, by the store's wall clock: for people.
    pub since: SystemTime,
    /// What is left of its TTL if it is not renewed.
    pub left: Duration,
}

/// Why a name was not granted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// Another owner holds it.
    Held(Holder),
    /// It is free or about to be, and others were there before.
    Queued,
    /// Nobody holds it, but `hold_at_least` keeps it back for this long.
    KeptBack(Duration),
    /// The store restarted a moment ago and grants nothing for this long.
    Guarded(Duration),
}

/// Not granted, with the reason.
#[derive(Debug, Clone)]
pub struct Busy {
    /// Why.
    pub why: Why,
    /// How many clients wait in the queue of the name.
    pub waiting: u32,
    /// This client's place in the queue, from 1; `None` when it has no entry.
    pub place: Option<u32>,
    /// The last error of the store, when the last question got no answer.
    pub last_error: Option<Error>,
}

impl Busy {
    /// When it makes sense to ask again without being told: what is left of
    /// the holder's TTL or of the time that the name is kept back.
    pub fn left(&self) -> Option<Duration> {
        match &self.why {
            Why::Held(holder) => Some(holder.left),
            Why::KeptBack(left) | Why::Guarded(left) => Some(*left),
            Why::Queued => None,
        }
    }
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            Why::Held(holder) => write!(f, "held by {} with token {}", holder.label, holder.token)?,
            Why::Queued => f.write_str("others wait for it")?,
            Why::KeptBack(left) => write!(f, "kept back for another {left:.1?} (hold_at_least)")?,
            Why::Guarded(left) => write!(f, "the store restarted and grants nothing for {left:.1?}")?,
        }
        match &self.last_error {
            Some(error) => write!(f, "; last error: {error}"),
            None => Ok(()),
        }
    }
}
