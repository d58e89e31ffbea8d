//! From a URL to a store. The only place that knows the stores by name.

use crate::hold::client::{Client, ClientBuilder, PATIENCE};
use crate::store::Store;
use crate::stores;
use crate::words::address::Address;
use crate::words::clock::Clock;
use crate::words::error::{Error, Result};
use crate::words::text::escaped;
use std::sync::Arc;

/// The URL schemes of the stores that this build has.
pub fn schemes() -> &'static [&'static str] {
    &[
        "memory",
        #[cfg(feature = "sqlite")]
        "sqlite",
    ]
}

/// Schemes that some build has, and the feature that brings each.
const KNOWN: [(&str, &str); 2] = [("memory", "none"), ("sqlite", "sqlite")];

impl Client {
    /// Opens the store that `url` names and makes a client of it:
    /// `memory:`, `sqlite:` (the default file), `sqlite:/path/leases.db`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tenure::Result<()> {
    /// let client = tenure::Client::connect("memory:").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Invalid` for a URL that says nothing to this build, `Rejected` when the store
    /// refuses, `Unavailable` when it cannot be reached.
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub async fn connect(url: &str) -> Result<Client> {
        Client::builder().connect(url).await
    }

    /// What the store needs before its first use, as a text that an operator can read and
    /// run; with `apply` it is run.
    ///
    /// # Errors
    /// `Unavailable`, `Rejected` where the right to do it is missing.
    ///
    /// # Cancel safety
    /// Dropped, it may or may not have been carried out; it can be repeated.
    pub async fn setup(&self, apply: bool) -> Result<String> {
        self.keeper.open()?;
        self.keeper.bounded(PATIENCE, self.keeper.store.setup(apply)).await
    }
}

impl ClientBuilder {
    /// Opens the store that `url` names and makes a client of it.
    ///
    /// # Errors
    /// As for [`Client::connect`].
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub async fn connect(self, url: &str) -> Result<Client> {
        // A store may block on what a stopped process holds.
        let opened = Clock::system().timeout(PATIENCE, open(url, self.clock.clone())).await;
        let late = || Err(Error::unavailable("the store could not be opened within 5s"));
        self.build(opened.unwrap_or_else(late)?)
    }
}

async fn open(url: &str, clock: Clock) -> Result<Arc<dyn Store>> {
    let address = Address::parse(url)?;
    match address.scheme.as_str() {
        "memory" => stores::memory::open(address, clock).await,
        #[cfg(feature = "sqlite")]
        "sqlite" => stores::sqlite::Sqlite::open(address, clock).await,
        scheme => Err(unknown(scheme)),
    }
}

fn unknown(scheme: &str) -> Error {
    let built_in: Vec<String> = schemes().iter().map(|scheme| format!("{scheme}:")).collect();
    let built_in = built_in.join(", ");
    match KNOWN.iter().find(|(known, _)| *known == scheme) {
        Some((known, feature)) => Error::invalid(format!(
            "{known}: is not built in: build tenure with the feature \"{feature}\"; this build has {built_in}"
        )),
        None => Error::invalid(format!(
            "there is no store with the scheme \"{}\": this build has {built_in}",
            escaped(scheme)
        )),
    }
}
