//! The same for programs without an async runtime: each verb blocks its caller.
//!
//! Heartbeats run on the client's own thread, so nothing else has to be called
//! while a lease is held.
//!
//! ```
//! let client = tenure::blocking::Client::connect("memory:")?;
//! let lease = client.lease("nightly-report").acquire()?;
//! lease.check()?;
//! lease.release()?;
//! # Ok::<(), tenure::Error>(())
//! ```
//!
//! A verb must not be called from inside an async runtime: it panics there.

use crate::store::Released;
use crate::words::error::{Error, ErrorKind, Loss, Result};
use crate::words::name::Name;
use crate::words::owner::Label;
use crate::{Busy, hold};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// The runtime that verbs block on.
#[derive(Debug)]
struct Shared(Option<Runtime>);

impl Shared {
    fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.0.as_ref().expect("it is there until it is dropped").block_on(work)
    }
}

/// The last handle may be dropped inside an async runtime, where a runtime that is
/// dropped the plain way panics.
impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// See [`Client`](crate::Client).
#[derive(Debug, Clone)]
pub struct Client {
    runtime: Arc<Shared>,
    client: hold::client::Client,
}

/// See [`Request`](crate::Request), with the same settings.
#[derive(Debug, Clone)]
#[must_use = "a request does nothing until one of its verbs is called"]
pub struct Request {
    runtime: Arc<Shared>,
    request: hold::request::Request,
}

/// See [`Lease`](crate::Lease), whose quick questions it answers too.
#[derive(Debug)]
#[must_use = "a lease is released as soon as it is dropped"]
pub struct Lease {
    runtime: Arc<Shared>,
    lease: hold::lease::Lease,
}

/// A lease, or why there is none.
#[derive(Debug)]
#[must_use = "a lease is released as soon as it is dropped"]
pub enum Acquired {
    /// It is yours.
    Lease(Lease),
    /// It is not, and why.
    Busy(Busy),
}

impl Client {
    /// See [`Client::connect`](crate::Client::connect).
    ///
    /// # Errors
    /// As there.
    pub fn connect(url: &str) -> Result<Client> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
                Error::because(ErrorKind::Unavailable, "the blocking client cannot be started", error)
            })?;
        let client = runtime.block_on(crate::Client::connect(url))?;
        Ok(Client { runtime: Arc::new(Shared(Some(runtime))), client })
    }

    /// See [`Client::lease`](crate::Client::lease).
    pub fn lease(&self, name: impl AsRef<str>) -> Request {
        Request { runtime: self.runtime.clone(), request: self.client.lease(name) }
    }

    /// See [`Client::close`](crate::Client::close).
    pub fn close(&self) -> Vec<Name> {
        self.runtime.block_on(self.client.close())
    }
}

impl Request {
    fn with(self, set: impl FnOnce(hold::request::Request) -> hold::request::Request) -> Self {
        Request { request: set(self.request), ..self }
    }

    /// See [`Request::ttl`](crate::Request::ttl).
    pub fn ttl(self, ttl: Duration) -> Self {
        self.with(|request| request.ttl(ttl))
    }

    /// See [`Request::heartbeat`](crate::Request::heartbeat).
    pub fn heartbeat(self, every: Duration) -> Self {
        self.with(|request| request.heartbeat(every))
    }

    /// See [`Request::grace`](crate::Request::grace).
    pub fn grace(self, grace: Duration) -> Self {
        self.with(|request| request.grace(grace))
    }

    /// See [`Request::hold_at_least`](crate::Request::hold_at_least).
    pub fn hold_at_least(self, duration: Duration) -> Self {
        self.with(|request| request.hold_at_least(duration))
    }

    /// See [`Request::hold_at_most`](crate::Request::hold_at_most).
    pub fn hold_at_most(self, duration: Duration) -> Self {
        self.with(|request| request.hold_at_most(duration))
    }

    /// See [`Request::label`](crate::Request::label).
    pub fn label(self, label: Label) -> Self {
        self.with(|request| request.label(label))
    }

    /// See [`Request::try_acquire`](crate::Request::try_acquire).
    ///
    /// # Errors
    /// As there.
    pub fn try_acquire(&self) -> Result<Acquired> {
        self.acquired(self.runtime.block_on(self.request.try_acquire()))
    }

    /// See [`Request::acquire`](crate::Request::acquire).
    ///
    /// # Errors
    /// As there.
    pub fn acquire(&self) -> Result<Lease> {
        let lease = self.runtime.block_on(self.request.acquire())?;
        Ok(Lease { runtime: self.runtime.clone(), lease })
    }

    /// See [`Request::acquire_within`](crate::Request::acquire_within).
    ///
    /// # Errors
    /// As there.
    pub fn acquire_within(&self, limit: Duration) -> Result<Acquired> {
        self.acquired(self.runtime.block_on(self.request.acquire_within(limit)))
    }

    fn acquired(&self, acquired: Result<hold::request::Acquired>) -> Result<Acquired> {
        Ok(match acquired? {
            hold::request::Acquired::Lease(lease) => {
                Acquired::Lease(Lease { runtime: self.runtime.clone(), lease })
            }
            hold::request::Acquired::Busy(busy) => Acquired::Busy(busy),
        })
    }
}

impl Acquired {
    /// The lease, if there is one.
    pub fn lease(self) -> Option<Lease> {
        match self {
            Acquired::Lease(lease) => Some(lease),
            Acquired::Busy(_) => None,
        }
    }
}

impl Lease {
    /// Blocks until the lease is lost.
    pub fn wait_lost(&self) -> Loss {
        self.runtime.block_on(self.lease.lost())
    }

    /// See [`Lease::confirm`](crate::Lease::confirm).
    ///
    /// # Errors
    /// As there.
    pub fn confirm(&self) -> Result<()> {
        self.runtime.block_on(self.lease.confirm())
    }

    /// See [`Lease::release`](crate::Lease::release).
    ///
    /// # Errors
    /// As there.
    pub fn release(self) -> Result<Released> {
        self.runtime.block_on(self.lease.release())
    }
}

/// `is_held`, `check`, `token`, `remaining`, `state`... never block.
impl Deref for Lease {
    type Target = hold::lease::Lease;
    fn deref(&self) -> &Self::Target {
        &self.lease
    }
}
