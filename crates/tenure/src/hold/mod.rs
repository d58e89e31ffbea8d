//! Holding leases: the client, its requests, the handle, and waiting.

pub(crate) mod client;
pub(crate) mod lease;
pub(crate) mod request;
pub(crate) mod waiting;
