//! What the handles of one client share: who it is, and what it knows of its sessions.

use super::grant::rounded;
use super::host::Host;
use super::liveness::{Liveness, Process};
use super::place::{Identity, Place};
use super::transaction::HandOver;
use crate::store::{Ask, Session, Trust, trusted_part};
use crate::words::error::{Error, Result};
use crate::words::name::Name;
use crate::words::owner::{Claim, Owner};
use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// C12: how many different TTLs a client may keep alive at a time.
const MAX_TTLS: usize = 8;

#[derive(Debug)]
pub(super) struct Client {
    pub(super) host: Host,
    pub(super) place: Place,
    /// The directory of the liveness files; none where nothing can be written.
    live: Option<Mutex<Arc<OwnedFd>>>,
    /// The database as it was opened first.
    pub(super) identity: Identity,
    pid: AtomicU32,
    liveness: Mutex<Option<Arc<Liveness>>>,
    sender: OnceLock<Option<UnixDatagram>>,
    enqueueing: Mutex<()>,
    known: Mutex<Known>,
}

/// The database is the truth; this spares questions to it.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) is_closed: bool,
    /// The sessions that this client beats.
    pub(super) sessions: HashMap<Session, Beaten>,
    /// For each TTL the session that gets new grants.
    current: HashMap<i64, Session>,
    /// What was found under them when it was last compared, and what was granted since.
    pub(super) claims: HashMap<Owner, (Session, Name)>,
    /// The session of the entries.
    pub(super) wait: Option<Session>,
    pub(super) entries: HashMap<Owner, Waiting>,
    /// When what is left behind is looked for next.
    pub(super) tidy_due: i64,
}

/// An entry, until it is gone or its grant was confirmed.
#[derive(Debug)]
pub(super) struct Waiting {
    name: Name,
    /// None: a one-shot claim's, which needs no beats.
    ttl: Option<i64>,
    is_handed_over: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Beaten {
    pub(super) ttl: i64,
    /// The instant before its last confirmed renewal was queued.
    pub(super) sent: i64,
    pub(super) revision: i64,
    /// When the leases under it were last compared.
    pub(super) compared: i64,
}

/// The session that a grant hangs on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hook {
    pub(super) session: Session,
    pub(super) ttl: i64,
    pub(super) sent: i64,
    /// In the transaction that granted.
    pub(super) revision: i64,
    /// One that other claims of this client may hang on.
    pub(super) is_shared: bool,
}

impl Hook {
    /// Its last confirmed renewal is recent.
    pub(super) fn is_fresh(&self, now: i64) -> bool {
        now - self.sent <= self.ttl / 10
    }
}

impl Client {
    pub(super) fn new(host: Host, place: Place, live: Option<OwnedFd>, identity: Identity) -> Client {
        Client {
            host,
            place,
            live: live.map(|live| Mutex::new(Arc::new(live))),
            identity,
            pid: std::process::id().into(),
            liveness: Mutex::default(),
            sender: OnceLock::new(),
            enqueueing: Mutex::default(),
            known: Mutex::default(),
        }
    }

    /// This is a forked child: nothing of the parent's may be touched.
    pub(super) fn is_inherited(&self) -> bool {
        self.pid.load(Ordering::Relaxed) != std::process::id()
    }

    #[cfg(test)]
    pub(super) fn pretend_inherited(&self, is_inherited: bool) {
        let pid = if is_inherited { 0 } else { std::process::id() };
        self.pid.store(pid, Ordering::Relaxed);
    }

    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Held by the one handle that registers an entry.
    pub(super) fn enqueueing(&self) -> MutexGuard<'_, ()> {
        self.enqueueing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_writable(&self) -> bool {
        self.live.is_some()
    }

    /// The directory of the liveness files.
    pub(super) fn live(&self) -> Result<Arc<OwnedFd>> {
        self.directory().map(|live| live.clone()).ok_or_else(|| self.read_only())
    }

    fn directory(&self) -> Option<MutexGuard<'_, Arc<OwnedFd>>> {
        Some(self.live.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn read_only(&self) -> Error {
        Error::rejected(format!("{} can be read by this user and not written", self.place.file.display()))
    }

    /// This client's liveness file, made when it is first needed.
    pub(super) fn liveness(&self) -> Result<Arc<Liveness>> {
        let mut liveness = self.liveness.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(liveness) = &*liveness {
            if !liveness.is_intact() {
                return Err(Error::rejected(
                    "something in this process closed a descriptor of this client that others know it is alive by: open another client",
                ));
            }
            return Ok(liveness.clone());
        }
        let Some(mut directory) = self.directory() else { return Err(self.read_only()) };
        // Opened anew, for somebody may have removed it since.
        *directory = Arc::new(self.place.open_live()?);
        let begun = Arc::new(Liveness::begin(&self.place, &directory)?);
        *liveness = Some(begun.clone());
        Ok(begun)
    }

    /// The liveness file, if there is one yet.
    pub(super) fn own(&self) -> Option<Arc<Liveness>> {
        self.liveness.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn is_dead(&self, process: Option<Process>) -> bool {
        let Some(process) = process else { return false };
        self.own().is_none_or(|own| own.process.id != process.id)
            && self.live().is_ok_and(|live| process.is_dead(&live))
    }

    pub(super) fn trust(&self, hook: Hook) -> Trust {
        Trust {
            session: Some(hook.session),
            sent: self.host.local(hook.sent),
            validity: trusted_part(super::transaction::nanos(hook.ttl)),
        }
    }

    /// Sends the grant to the socket of its client. It is a hint: lost, it delays.
    pub(super) fn tell(&self, granted: &HandOver) {
        if let Some(process) = granted.process {
            self.send(process.id, &granted.encode());
        }
    }

    /// This client waits for one more name: its bell, if it listens, looks at it now.
    pub(super) fn nudge(&self) {
        if let Some(own) = self.own() {
            self.send(own.process.id, &[]);
        }
    }

    fn send(&self, process: [u8; 16], message: &[u8]) {
        let Ok(live) = self.live() else { return };
        let sender = self.sender.get_or_init(|| {
            let sender = UnixDatagram::unbound().ok()?;
            sender.set_nonblocking(true).ok()?;
            Some(sender)
        });
        if let Some(sender) = sender {
            let _ = sender.send_to(message, super::bell::socket_path(&live, process));
        }
    }
}

impl Known {
    /// The session for grants of this TTL, if it has one.
    pub(super) fn current(&self, ttl: i64) -> Option<Hook> {
        let session = *self.current.get(&ttl)?;
        let Beaten { sent, revision, .. } = *self.sessions.get(&session)?;
        Some(Hook { session, ttl, sent, revision, is_shared: true })
    }

    /// C12: another TTL means another session to beat.
    pub(super) fn admit(&self, ttl: i64) -> Result<()> {
        let held = self.claims.values().filter_map(|(session, _)| Some(self.sessions.get(session)?.ttl));
        let waiting = self.entries.values().filter_map(|entry| entry.ttl);
        let used: HashSet<i64> = held.chain(waiting).collect();
        if used.len() >= MAX_TTLS && !used.contains(&ttl) {
            return Err(Error::invalid(format!(
                "this client holds or waits for leases with {MAX_TTLS} different TTLs already: use one of them"
            )));
        }
        Ok(())
    }

    /// An entry was committed.
    pub(super) fn waits(&mut self, ask: &Ask) {
        let ttl = (!ask.terms.one_shot).then(|| rounded(ask.terms.ttl));
        let entry = Waiting { name: ask.claim.name.clone(), ttl, is_handed_over: false };
        self.entries.insert(ask.claim.owner, entry);
    }

    /// The name was granted to an entry, whose TTL stays taken until that is confirmed.
    pub(super) fn handed_over(&mut self, owner: Owner) {
        if let Some(entry) = self.entries.get_mut(&owner) {
            entry.is_handed_over = true;
        }
    }

    /// The entries that wait, and for what.
    pub(super) fn waiting(&self) -> Vec<(Owner, Name)> {
        let waiting = self.entries.iter().filter(|(_, entry)| !entry.is_handed_over);
        waiting.map(|(owner, entry)| (*owner, entry.name.clone())).collect()
    }

    /// A grant on this session was committed, or its renewal.
    pub(super) fn confirmed(&mut self, claim: &Claim, hook: Hook) {
        self.entries.remove(&claim.owner);
        if !hook.is_shared {
            return;
        }
        if !self.sessions.contains_key(&hook.session) {
            // What ran out without being asked about; its claims are looked up one by one.
            self.sessions.retain(|_, beaten| beaten.sent + beaten.ttl > hook.sent);
            self.current.retain(|_, session| self.sessions.contains_key(session));
            self.claims.retain(|_, (session, _)| self.sessions.contains_key(session));
            self.current.insert(hook.ttl, hook.session);
        }
        let Hook { session, ttl, sent, revision, .. } = hook;
        let new = Beaten { ttl, sent, revision, compared: sent };
        let beaten = self.sessions.entry(session).or_insert(new);
        beaten.sent = beaten.sent.max(sent);
        // A comparison since then may have missed it, just because it was taken away again.
        if beaten.revision <= revision {
            self.claims.insert(claim.owner, (session, claim.name.clone()));
        }
    }

    /// The session that this claim was granted on, if it is known.
    pub(super) fn session_of(&self, owner: Owner) -> Option<Session> {
        self.claims.get(&owner).map(|(session, _)| *session)
    }

    /// The claim ended.
    pub(super) fn forget(&mut self, owner: Owner) {
        self.entries.remove(&owner);
        let Some((session, _)) = self.claims.remove(&owner) else { return };
        let is_current = self.current.values().any(|current| *current == session);
        if !is_current && !self.claims.values().any(|(on, _)| *on == session) {
            self.sessions.remove(&session);
        }
    }

    pub(super) fn retire(&mut self, session: Session) {
        self.current.retain(|_, current| *current != session);
    }

    /// The claims that should hang on a session.
    pub(super) fn on(&self, session: Session) -> Vec<Claim> {
        let on = self.claims.iter().filter(|(_, (on, _))| *on == session);
        on.map(|(owner, (_, name))| Claim { name: name.clone(), owner: *owner }).collect()
    }

    /// Every claim, held or waiting.
    pub(super) fn all(&self) -> Vec<Claim> {
        let held = self.claims.iter().map(|(owner, (_, name))| (owner, name));
        let waiting = self.entries.iter().map(|(owner, entry)| (owner, &entry.name));
        held.chain(waiting).map(|(owner, name)| Claim { name: name.clone(), owner: *owner }).collect()
    }

    /// The session ended.
    pub(super) fn ended(&mut self, session: Session) {
        self.retire(session);
        self.sessions.remove(&session);
        self.claims.retain(|_, (on, _)| *on != session);
        if self.wait == Some(session) {
            (self.wait, self.entries) = (None, HashMap::new());
        }
    }
}
