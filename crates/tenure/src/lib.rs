//! A *distributed lease*: a named lock in an external store with a time-to-live,
//! a unique owner, a heartbeat, safe release, a fencing token, and a loss that is
//! announced in time.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

/// The vocabulary; imports nothing.
mod words {
    pub(crate) mod address;
    pub(crate) mod busy;
    pub(crate) mod clock;
    pub(crate) mod error;
    pub(crate) mod event;
    pub(crate) mod name;
    pub(crate) mod owner;
    pub(crate) mod text;
    pub(crate) mod token;
}

pub mod blocking;
#[cfg(feature = "conformance")]
pub mod conformance;
mod connect;
mod hold;
mod keep;
pub mod metrics;
pub mod store;
pub mod stores;

pub use connect::schemes;
pub use hold::client::{Client, ClientBuilder};
pub use hold::lease::{Fence, Lease};
pub use hold::request::{Acquired, Request};
pub use keep::record::State;
pub use words::busy::{Busy, Holder, Why};
pub use words::clock::{Clock, Instant};
pub use words::error::{Error, ErrorKind, Loss, Reason, Result};
pub use words::event::Event;
pub use words::name::Name;
pub use words::owner::{Claim, Label, Owner};
pub use words::text::{Escaped, duration, escaped, shortened};
pub use words::token::Token;
