//! The stores. Each imports the waist and the words, and nothing else of the crate.

pub mod memory;
#[cfg(feature = "sqlite")]
pub mod sqlite;
