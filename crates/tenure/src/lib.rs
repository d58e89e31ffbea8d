//! A *distributed lease*: a named lock in an external store with a time-to-live,
//! a unique owner, a heartbeat, safe release, a fencing token, and a loss that is
//! announced in time.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod words {
    pub(crate) mod address;
    pub mod busy;
    pub mod clock;
    pub mod error;
    pub mod event;
    pub mod name;
    pub mod owner;
    pub mod text;
    pub mod token;
}

mod api_stub;
pub use api_stub::*;
pub mod store;
pub mod stores;

pub use words::busy::{Busy, Holder, Why};
pub use words::clock::{Clock, Instant};
pub use words::error::{Error, ErrorKind, Loss, Reason, Result};
pub use words::event::Event;
pub use words::name::Name;
pub use words::owner::{Claim, Label, Owner};
pub use words::text::{Escaped, escaped, shortened};
pub use words::token::Token;
