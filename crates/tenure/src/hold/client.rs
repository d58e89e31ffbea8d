//! One process's handle on one store.

use super::request::{DEFAULT_TTL, Request};
use super::waiting::Rooms;
use crate::keep::keeper::Keeper;
use crate::metrics;
use crate::store::{About, Page, Pending, Revoked, Standing, Store};
use crate::words::clock::Clock;
use crate::words::error::Result;
use crate::words::event::{Event, Events};
use crate::words::name::Name;
use crate::words::owner::Label;
use crate::words::token::Token;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// How long a question that no lease hangs on may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// One process's handle on one store. Cheap to clone; clones are the same client.
///
/// Make one per process and store and share it. Its methods need a tokio runtime
/// with time enabled; see [`blocking`](crate::blocking) for programs without one.
/// Heartbeats run on a thread of its own in either case.
#[derive(Clone)]
pub struct Client {
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) rooms: Arc<Rooms>,
    label: Label,
    _anchor: Arc<Anchor>,
}

/// Dropped with the last clone: then the keeper ends after the last lease.
struct Anchor(Arc<Rooms>);

impl Drop for Anchor {
    fn drop(&mut self) {
        if !self.0.keeper.forked() {
            self.0.abandon();
        }
    }
}

impl Client {
    /// A client of this store. Use [`Client::connect`] for a store by its URL.
    ///
    /// # Errors
    /// `Invalid` when the store has a client already: clone that one, or connect anew.
    /// `Unavailable` when the keeper's thread cannot be started.
    pub fn new(store: Arc<dyn Store>) -> Result<Client> {
        Client::builder().build(store)
    }

    /// A client with settings of its own.
    pub fn builder() -> ClientBuilder {
        ClientBuilder { label: None, clock: Clock::system(), events: Events::default() }
    }

    /// Starts a request for the lease `name`. An invalid name is reported by the
    /// verb that acquires.
    pub fn lease(&self, name: impl AsRef<str>) -> Request {
        Request {
            client: self.clone(),
            name: Name::new(name),
            label: self.label.clone(),
            ttl: DEFAULT_TTL,
            heartbeat: None,
            grace: Duration::ZERO,
            hold_at_least: Duration::ZERO,
            hold_at_most: None,
        }
    }

    /// Facts about the store that do not change.
    pub fn about(&self) -> About {
        self.keeper.store.about()
    }

    /// How a name stands. Good for people, never for safety.
    ///
    /// # Errors
    /// `Unavailable`, `Rejected`.
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub async fn inspect(&self, name: &Name) -> Result<Standing> {
        self.ask(self.keeper.store.inspect(name.clone())).await
    }

    /// Names that begin with `prefix`, after `after`, in byte order, a page at a time.
    ///
    /// # Errors
    /// `Unavailable`, `Rejected`, `Unsupported`.
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub async fn list(&self, prefix: &str, after: Option<&Name>) -> Result<Page> {
        self.ask(self.keeper.store.list(prefix.to_owned(), after.cloned())).await
    }

    /// Takes the lease from the holder with this token and no other (C13): it is
    /// free when the holder has stopped, at the latest when the TTL that runs now
    /// has passed; with `now` at once, while the holder may still be working.
    ///
    /// # Errors
    /// `Unavailable`, `Rejected`, `Unsupported`.
    ///
    /// # Cancel safety
    /// Dropped, it may or may not have been carried out.
    pub async fn revoke(&self, name: &Name, token: Token, now: bool) -> Result<Revoked> {
        self.ask(self.keeper.store.revoke(name.clone(), token, now)).await
    }

    /// A descriptor that keeps this client's leases from being taken before their
    /// TTL has passed while any copy of it is open, for a process that must end
    /// before the lease does; `None` where the store cannot see a process die.
    ///
    /// # Errors
    /// `Unavailable`, `Rejected`.
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub async fn liveness(&self) -> Result<Option<OwnedFd>> {
        self.ask(self.keeper.store.liveness()).await
    }

    /// C13: takes no new requests, announces [`Reason::Closed`](crate::Reason::Closed)
    /// to every lease, and returns when each handle is gone or its lease has
    /// lapsed; gives the names that were left to lapse.
    ///
    /// # Cancel safety
    /// Dropped, the client is closed for new requests, and its leases were told.
    pub async fn close(&self) -> Vec<Name> {
        // In this order: whoever sits down later finds the client shut.
        self.keeper.shut();
        self.rooms.close();
        let lapsed = self.keeper.close().await;
        lapsed.into_iter().map(|claim| claim.name).collect()
    }

    async fn ask<T>(&self, question: Pending<T>) -> Result<T> {
        self.keeper.open()?;
        self.keeper.bounded(PATIENCE, question).await
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({:?})", self.keeper.store)
    }
}

/// Settings of a client.
#[derive(Debug)]
#[must_use = "a builder does nothing until it builds or connects"]
pub struct ClientBuilder {
    label: Option<Label>,
    pub(crate) clock: Clock,
    events: Events,
}

impl ClientBuilder {
    /// What people call this client's acquisitions. Default: `host:pid`.
    pub fn label(mut self, label: Label) -> Self {
        self.label = Some(label);
        self
    }

    /// Told of every event, on the thread where it happens. It must neither block
    /// nor call into this client; what it panics with is swallowed.
    pub fn observe(mut self, observer: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.events.observe(observer);
        self
    }

    /// Another clock, for tests.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// A client of this store.
    ///
    /// # Errors
    /// `Invalid` when the store has a client already; `Unavailable` when the keeper's thread cannot be started.
    pub fn build(mut self, store: Arc<dyn Store>) -> Result<Client> {
        metrics::describe();
        self.events.observe(metrics::record);
        let keeper = Keeper::start(store, self.clock, self.events)?;
        let rooms = Rooms::new(keeper.clone());
        let label = self.label.unwrap_or_else(Label::of_this_process);
        Ok(Client { _anchor: Arc::new(Anchor(rooms.clone())), keeper, rooms, label })
    }
}
