//! `memory:`: a store inside this process, for examples and tests, complete in every clause.
//!
//! It has two faces. By default each lease expires on its own, as on Redis;
//! with `?session=shared` all leases of a client with one TTL hang on one
//! session, as on PostgreSQL and SQLite. Clients of both faces may use one server.
//!
//! Every verb takes effect at the first poll of its future, all at once: a
//! future that was never polled did nothing, one that was is done.

mod queue;
mod record;
mod sessions;
mod state;
#[cfg(test)]
mod tests;

use self::state::State;
use crate::store::{
    About, Answer, Ask, Attended, Ending, Fact, Hint, Page, Pending, Released, Renewal, Renewed, Revoked,
    Session, Standing, Store,
};
use crate::words::address::{Address, decode};
use crate::words::clock::Clock;
use crate::words::error::{Error, Result};
use crate::words::name::Name;
use crate::words::owner::Claim;
use crate::words::text::escaped;
use crate::words::token::Token;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;

/// A server inside this process; each [`client`](Memory::client) is one client of it.
///
/// ```
/// use tenure::{Clock, Name, store::Store, stores::memory::Memory};
/// let server = Memory::new(Clock::system());
/// let (one, other) = (server.client(), server.client());
/// assert_eq!(one.about().kind, other.about().kind);
/// ```
#[derive(Clone, Debug)]
pub struct Memory {
    server: Arc<Server>,
    shared_sessions: bool,
}

impl Memory {
    /// A server whose leases expire each on its own.
    pub fn new(clock: Clock) -> Memory {
        Memory::named("", clock)
    }

    /// A server where the leases of a client with one TTL hang on one session.
    pub fn with_shared_sessions(clock: Clock) -> Memory {
        Memory { shared_sessions: true, ..Memory::new(clock) }
    }

    /// A client with sessions of its own; its [`handle`](Store::handle)s share them.
    pub fn client(&self) -> Arc<dyn Store> {
        let id = self.server.lock().connect(self.shared_sessions);
        Arc::new(Client(Arc::new(Connection { server: self.server.clone(), id })))
    }

    fn named(name: &str, clock: Clock) -> Memory {
        let place = match name {
            "" => "this process".to_owned(),
            name => format!("this process, \"{}\"", escaped(name)),
        };
        let server = Server { clock, place, process: std::process::id(), state: Mutex::default() };
        Memory { server: Arc::new(server), shared_sessions: false }
    }
}

/// A client of the server that this process has under that name, one per clock.
pub(crate) async fn open(mut address: Address, clock: Clock) -> Result<Arc<dyn Store>> {
    static SERVERS: Mutex<Vec<(String, Memory)>> = Mutex::new(Vec::new());
    let name = decode(&address.rest)?;
    let shared_sessions = match address.take("session").as_deref() {
        None | Some("each") => false,
        Some("shared") => true,
        Some(other) => {
            return Err(Error::invalid(format!(
                "memory: session is \"{}\": it may be each or shared",
                escaped(other)
            )));
        }
    };
    address.finish(&["session"])?;
    let mut servers = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
    let known = servers.iter().find(|(known, memory)| *known == name && memory.server.clock.is(&clock));
    let memory = match known {
        Some((_, memory)) => memory.clone(),
        None => {
            let memory = Memory::named(&name, clock);
            servers.push((name, memory.clone()));
            memory
        }
    };
    Ok(Memory { shared_sessions, ..memory }.client())
}

struct Server {
    clock: Clock,
    place: String,
    /// A forked child has a copy of the state that nobody else sees, and
    /// perhaps a lock that a thread held which it does not have (C7).
    process: u32,
    state: Mutex<State>,
}

impl Server {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Only a bug of this module can poison it; a store that stays locked would hide it.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock, so the store's clock never runs backwards. It is
        // `sent` as well: nothing was decided before it.
        state.now = self.clock.now();
        state.wall_us = self.clock.wall_us();
        state
    }

    fn is_inherited(&self) -> bool {
        std::process::id() != self.process
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Server({})", self.place)
    }
}

/// What the handles of one client share; without the last of them it is gone
/// as if it had crashed, and its leases lapse.
#[derive(Debug)]
struct Connection {
    server: Arc<Server>,
    id: u64,
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.server.is_inherited() {
            self.server.lock().disconnect(self.id);
        }
    }
}

#[derive(Debug)]
struct Client(Arc<Connection>);

impl Client {
    fn answer<T: Send + 'static>(
        &self,
        verb: impl FnOnce(&mut State, u64) -> Result<T> + Send + 'static,
    ) -> Pending<T> {
        let connection = self.0.clone();
        Box::pin(async move {
            if connection.server.is_inherited() {
                return Err(Error::closed());
            }
            let mut state = connection.server.lock();
            if !state.is_connected(connection.id) {
                return Err(Error::closed());
            }
            verb(&mut state, connection.id)
        })
    }
}

impl Store for Client {
    fn about(&self) -> About {
        About {
            kind: "memory",
            place: self.0.server.place.clone(),
            min_ttl: Duration::from_millis(500),
            max_ttl: Duration::from_secs(24 * 60 * 60),
            ttl_unit: Duration::from_millis(1),
            beats_per_ttl: 3,
        }
    }

    fn handle(&self) -> Arc<dyn Store> {
        Arc::new(Client(self.0.clone()))
    }

    fn acquire(&self, mut ask: Ask) -> Pending<Answer> {
        let unit = self.about().ttl_unit.as_nanos();
        let nanos = ask.terms.ttl.as_nanos().div_ceil(unit) * unit;
        ask.terms.ttl = Duration::from_nanos(nanos.try_into().unwrap_or(u64::MAX));
        self.answer(move |state, client| state.acquire(client, ask))
    }

    fn attend(&self, entries: Vec<Claim>) -> Pending<Vec<Attended>> {
        self.answer(move |state, client| Ok(state.attend(client, &entries)))
    }

    fn renew(&self, leases: Vec<Renewal>) -> Pending<Renewed> {
        self.answer(move |state, client| Ok(state.renew(client, &leases)))
    }

    fn release(&self, claim: Claim, ending: Ending) -> Pending<Released> {
        self.answer(move |state, _| Ok(state.release(&claim, ending)))
    }

    fn inspect(&self, name: Name) -> Pending<Standing> {
        self.answer(move |state, _| Ok(state.inspect(&name)))
    }

    fn list(&self, prefix: String, after: Option<Name>) -> Pending<Page> {
        self.answer(move |state, _| Ok(state.list(&prefix, after.as_ref())))
    }

    fn revoke(&self, name: Name, token: Token, now: bool) -> Pending<Revoked> {
        self.answer(move |state, _| Ok(state.revoke(&name, token, now)))
    }

    fn events(&self) -> mpsc::Receiver<Hint> {
        // Whoever does not read for this many hints attends to its entries anyway.
        let (sender, receiver) = mpsc::channel(1024);
        if !self.0.server.is_inherited() {
            self.0.server.lock().listen(self.0.id, sender);
        }
        receiver
    }

    fn retire(&self, session: Session) {
        if !self.0.server.is_inherited() {
            self.0.server.lock().retire(session);
        }
    }

    fn liveness(&self) -> Pending<Option<OwnedFd>> {
        self.answer(|_, _| Ok(None))
    }

    fn setup(&self, _apply: bool) -> Pending<String> {
        self.answer(|_, _| Ok(String::new()))
    }

    fn examine(&self) -> Pending<Vec<Fact>> {
        self.answer(|state, _| Ok(state.examine()))
    }

    fn close(&self) -> Pending<()> {
        let connection = self.0.clone();
        Box::pin(async move {
            if !connection.server.is_inherited() {
                connection.server.lock().close(connection.id);
            }
            Ok(())
        })
    }
}
