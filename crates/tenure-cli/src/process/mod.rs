//! The processes of `run`: tenure -> guardian -> CMD.

mod briefing;
mod guarded;
mod guardian;
mod held;
mod inherited;
mod jobs;
mod lookup;
mod message;
pub(crate) mod signals;
pub(crate) mod supervisor;
mod terminal;
mod tree;
mod unsafe_calls;

pub(crate) use briefing::{Duties, GUARDIAN};
pub(crate) use guarded::Guarded;
pub(crate) use guardian::guard;
pub(crate) use inherited::{Inherited, stdout_was_closed, take_for_writing};
pub(crate) use lookup::find;
pub(crate) use terminal::{Terminal, place};
