//! Keeping leases: the one background thread, what it must do when, and what it
//! shares with the handles.

pub(crate) mod keeper;
pub(crate) mod plan;
pub(crate) mod record;
