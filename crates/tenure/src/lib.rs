//! A *distributed lease*: a named lock in an external store with a time-to-live,
//! a unique owner, a heartbeat, safe release, a fencing token, and a loss that is
//! announced in time.
//!
//! ```
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> tenure::Result<()> {
//!     let client = tenure::Client::connect("memory:").await?;
//!     let lease = client.lease("nightly-report").acquire().await?;
//!     lease.check()?; // before every side effect: is it still ours?
//!     println!("token {}", lease.token()); // goes along with every write
//!     lease.release().await?;
//!     Ok(())
//! }
//! ```
//!
//! - [`Client`]: one process's handle on one store; make one and share it. Programs
//!   without async use [`blocking`].
//! - [`Request`]: what is wanted (TTL, grace, limits), and the ways to get it. That
//!   somebody else has it is an outcome, [`Busy`], not an error.
//! - [`Lease`]: what is held. It is renewed on a thread of the client's own.
//! - [`OneShot`]: a claim without a process, for scripts.
//! - [`Fence`]: what a resource compares, to refuse the late write of a paused holder.
//!   No lease can prevent that write by itself.
//! - [`Error`]: its [`kind`](Error::kind) says what to do; [`Loss`] says what happened.
//! - [`store::Store`]: what a store must do. `memory:` is always there, the others are
//!   cargo features of their name: `sqlite`.
//!
//! The contract that the clauses C1 to C14 in these pages refer to is `docs/contract.md`
//! in the repository; `docs/guide.md` tells how to choose the times and what to do on loss.

#![forbid(unsafe_code)]
#![warn(missing_docs, clippy::print_stdout, clippy::print_stderr)]

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
/// Holding leases: the client, its requests, the handle, and waiting.
mod hold {
    pub(crate) mod client;
    mod driver;
    pub(crate) mod lease;
    pub(crate) mod request;
    pub(crate) mod waiting;
}

/// Keeping them: the one background thread, what it must do when, and what it shares
/// with the handles.
mod keep {
    pub(crate) mod keeper;
    pub(crate) mod plan;
    pub(crate) mod record;
    mod thread;
}

pub mod metrics;
mod one_shot;
pub mod store;
pub mod stores;
#[cfg(test)]
mod tests;

pub use connect::schemes;
pub use hold::client::{Client, ClientBuilder};
pub use hold::lease::{Fence, Lease};
pub use hold::request::{Acquired, Request};
pub use keep::record::State;
pub use one_shot::OneShot;
pub use words::busy::{Busy, Holder, Why};
pub use words::clock::{Clock, Instant};
pub use words::error::{Error, ErrorKind, Loss, Reason, Result};
pub use words::event::Event;
pub use words::name::Name;
pub use words::owner::{Claim, Label, Owner};
pub use words::text::{Escaped, duration, escaped, shortened};
pub use words::token::Token;

/// The examples of the pages are tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../CONTRIBUTING.md")]
    struct Contributing;
    #[doc = include_str!("../../../docs/contract.md")]
    struct Contract;
    #[doc = include_str!("../../../docs/cli.md")]
    struct CommandLine;
    #[doc = include_str!("../../../docs/guide.md")]
    struct Guide;
    #[doc = include_str!("../../../docs/stores.md")]
    struct Stores;
}
