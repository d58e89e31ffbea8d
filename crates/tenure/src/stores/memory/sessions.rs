//! The clients, their sessions and what hangs on them.

use crate::store::{ENTRY_LIFE, Hint, Session, Trust, trusted_part};
use crate::words::clock::Instant;
use crate::words::name::Name;
use crate::words::owner::{Claim, Owner, random_bits};
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use tokio::sync::mpsc;

#[derive(Default)]
pub(super) struct Sessions {
    sessions: HashMap<Session, Record>,
    clients: HashMap<u64, Client>,
    last_client: u64,
    /// Revoked leases and their clients: nothing renews them, but `close` ends them.
    marked: HashMap<Owner, (u64, Name)>,
}

/// A session: alive until `sent` + `ttl`. One that ended is not in the map.
struct Record {
    /// `None`: a one-shot claim's, which is nobody's to end.
    client: Option<u64>,
    ttl: Duration,
    sent: Instant,
    retired: bool,
    compared: Instant,
    /// Its leases that may be renewed; or, on a wait session, its entries and the grants to them.
    claims: HashMap<Owner, Name>,
}

#[derive(Default)]
struct Client {
    shared: bool,
    mains: HashMap<Duration, Session>,
    wait: Option<Session>,
    sessions: HashSet<Session>,
    listeners: Vec<mpsc::Sender<Hint>>,
}

impl Sessions {
    pub(super) fn count(&self) -> (usize, usize) {
        (self.clients.len(), self.sessions.len())
    }

    #[cfg(test)]
    pub(super) fn marks(&self) -> usize {
        self.marked.len()
    }

    pub(super) fn connect(&mut self, shared: bool) -> u64 {
        self.last_client += 1;
        self.clients.insert(self.last_client, Client { shared, ..Client::default() });
        self.last_client
    }

    pub(super) fn is_connected(&self, client: u64) -> bool {
        self.clients.contains_key(&client)
    }

    /// Forgets a client; its sessions stay until they lapse.
    pub(super) fn disconnect(&mut self, client: u64) {
        let Some(gone) = self.clients.remove(&client) else { return };
        self.marked.retain(|_, (of, _)| *of != client);
        for id in gone.sessions {
            if self.sessions.get(&id).is_some_and(|session| session.claims.is_empty()) {
                self.sessions.remove(&id);
            }
        }
    }

    /// Ends a client and its sessions; what hung on them.
    pub(super) fn close(&mut self, client: u64) -> Vec<Claim> {
        let Some(gone) = self.clients.remove(&client) else { return Vec::new() };
        let marked = self.marked.extract_if(|_, (of, _)| *of == client);
        let mut claims: Vec<_> = marked.map(|(owner, (_, name))| Claim { name, owner }).collect();
        for id in gone.sessions {
            let Some(session) = self.sessions.remove(&id) else { continue };
            claims.extend(session.claims.into_iter().map(|(owner, name)| Claim { name, owner }));
        }
        claims
    }

    pub(super) fn listen(&mut self, client: u64, sender: mpsc::Sender<Hint>) {
        if let Some(client) = self.clients.get_mut(&client) {
            client.listeners.retain(|listener| !listener.is_closed());
            client.listeners.push(sender);
        }
    }

    pub(super) fn tell(&mut self, client: u64, hint: Hint) {
        let Some(client) = self.clients.get_mut(&client) else { return };
        client.listeners.retain(|listener| !listener.is_closed());
        for listener in &client.listeners {
            // A full channel loses a hint, which delays and never hangs (C8).
            let _ = listener.try_send(hint.clone());
        }
    }

    pub(super) fn retire(&mut self, id: Session) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.retired = true;
        if session.claims.is_empty() {
            self.end(id);
        }
    }

    /// The session for a client's next grants of `ttl`; `None` in the plain face.
    ///
    /// One that is overdue for renewal gets no grants: they would be worth
    /// little, and nothing at all when its client is cut off (C2).
    pub(super) fn main(&mut self, client: u64, ttl: Duration, now: Instant) -> Option<Session> {
        let known = self.clients.get(&client).filter(|client| client.shared)?.mains.get(&ttl).copied();
        if let Some((id, session)) = known.and_then(|id| Some((id, self.sessions.get(&id)?))) {
            if !session.retired && now - session.sent <= ttl / 2 {
                return Some(id);
            }
            self.retire(id);
        }
        let id = self.open(Some(client), ttl, now);
        self.clients.get_mut(&client)?.mains.insert(ttl, id);
        Some(id)
    }

    /// Whether a client has leases of this TTL on its main session.
    pub(super) fn beats(&self, client: u64, ttl: Duration) -> bool {
        let main = self.clients.get(&client).and_then(|client| client.mains.get(&ttl));
        main.and_then(|id| self.sessions.get(id)).is_some_and(|session| !session.claims.is_empty())
    }

    /// The TTLs of a client's leases and, by `ttl_of`, of its entries; `None` in the plain face.
    pub(super) fn ttls(
        &self,
        client: u64,
        ttl_of: impl Fn(&Owner, &Name) -> Option<Duration>,
    ) -> Option<HashSet<Duration>> {
        let client = self.clients.get(&client).filter(|client| client.shared)?;
        let mut ttls = HashSet::new();
        for (id, session) in client.sessions.iter().filter_map(|id| Some((id, self.sessions.get(id)?))) {
            if client.wait == Some(*id) {
                ttls.extend(session.claims.iter().filter_map(|(owner, name)| ttl_of(owner, name)));
            } else if !session.claims.is_empty() {
                ttls.insert(session.ttl);
            }
        }
        Some(ttls)
    }

    /// The session that a client's entries hang on, with its liveness renewed by
    /// this ask; `None` in the plain face.
    pub(super) fn wait(&mut self, client: u64, now: Instant) -> Option<Session> {
        let known = self.clients.get(&client).filter(|client| client.shared)?.wait;
        if let Some(id) = known {
            if self.beat(id, now).is_some() {
                return Some(id);
            }
            self.end(id);
        }
        let id = self.open(Some(client), ENTRY_LIFE, now);
        self.clients.get_mut(&client)?.wait = Some(id);
        Some(id)
    }

    /// Renews the wait session that there is; a dead one stays dead.
    pub(super) fn keep_waiting(&mut self, client: u64, now: Instant) {
        if let Some(id) = self.clients.get(&client).and_then(|client| client.wait) {
            self.beat(id, now);
        }
    }

    pub(super) fn one_shot(&mut self, client: u64, ttl: Duration, now: Instant) -> Option<Session> {
        self.clients.get(&client).filter(|client| client.shared)?;
        Some(self.open(None, ttl, now))
    }

    fn open(&mut self, client: Option<u64>, ttl: Duration, now: Instant) -> Session {
        let id = Session(random_bits());
        let claims = HashMap::new();
        self.sessions.insert(id, Record { client, ttl, sent: now, retired: false, compared: now, claims });
        if let Some(client) = client.and_then(|client| self.clients.get_mut(&client)) {
            client.sessions.insert(id);
        }
        id
    }

    /// Ends a session. Its id is never used again: whatever still names it has lapsed (C1).
    pub(super) fn end(&mut self, id: Session) {
        let Some(session) = self.sessions.remove(&id) else { return };
        if let Some(client) = session.client.and_then(|client| self.clients.get_mut(&client)) {
            client.sessions.remove(&id);
            if client.mains.get(&session.ttl) == Some(&id) {
                client.mains.remove(&session.ttl);
            }
        }
    }

    pub(super) fn hang(&mut self, id: Session, claim: &Claim) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.claims.insert(claim.owner, claim.name.clone());
        }
    }

    /// Takes a claim off; a session that gets no new ones ends with its last.
    pub(super) fn unhang(&mut self, id: Session, owner: Owner) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.claims.remove(&owner);
        if session.claims.is_empty() && (session.retired || session.client.is_none()) {
            self.end(id);
        }
    }

    /// Takes a revoked claim off: no beat of the session keeps it from now on.
    pub(super) fn mark(&mut self, id: Session, claim: &Claim) {
        let client = self.sessions.get(&id).and_then(|session| session.client);
        if let Some(client) = client.filter(|client| self.clients.contains_key(client)) {
            self.marked.insert(claim.owner, (client, claim.name.clone()));
        }
        self.unhang(id, claim.owner);
    }

    pub(super) fn forget_mark(&mut self, owner: Owner) {
        self.marked.remove(&owner);
    }

    pub(super) fn sent(&self, id: Session) -> Option<Instant> {
        self.sessions.get(&id).map(|session| session.sent)
    }

    pub(super) fn expires(&self, id: Session) -> Option<Instant> {
        self.sessions.get(&id).map(|session| session.sent + session.ttl)
    }

    pub(super) fn trust(&self, id: Session) -> Option<Trust> {
        let session = self.sessions.get(&id)?;
        Some(Trust { session: Some(id), sent: session.sent, validity: trusted_part(session.ttl) })
    }

    /// Whether it hangs on the client's main session for `ttl`: the common case of a
    /// renewal, which need not look at the name.
    pub(super) fn on_main(&self, client: u64, ttl: Duration, claim: &Claim) -> Option<Session> {
        let id = self.clients.get(&client)?.mains.get(&ttl)?;
        (self.sessions.get(id)?.claims.get(&claim.owner)? == &claim.name).then_some(*id)
    }

    /// Renews a session that is alive.
    pub(super) fn beat(&mut self, id: Session, now: Instant) -> Option<Trust> {
        let session = self.sessions.get_mut(&id).filter(|session| session.sent + session.ttl > now)?;
        session.sent = now;
        self.trust(id)
    }

    /// C5: what hangs on the session and was not asked for, when `matched` of
    /// what was do. Compared one by one when the numbers differ, and once per TTL.
    pub(super) fn strays(
        &mut self,
        id: Session,
        matched: usize,
        is_asked: impl Fn(&Owner) -> bool,
        now: Instant,
    ) -> Vec<Claim> {
        let Some(session) = self.sessions.get_mut(&id).filter(|session| session.client.is_some()) else {
            return Vec::new();
        };
        if matched == session.claims.len() && session.compared + session.ttl > now {
            return Vec::new();
        }
        session.compared = now;
        let unknown = session.claims.iter().filter(|(owner, _)| !is_asked(owner));
        unknown.map(|(owner, name)| Claim { name: name.clone(), owner: *owner }).collect()
    }
}
