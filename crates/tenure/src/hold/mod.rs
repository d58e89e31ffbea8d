//! Holding leases: the client, its requests, the handle, and waiting.

pub(crate) mod client;
mod driver;
pub(crate) mod lease;
pub(crate) mod request;
pub(crate) mod waiting;
