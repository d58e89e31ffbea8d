//! The waist: what a store must do, as one object-safe trait with a numbered
//! contract. Everything above works on any store that keeps it; the suite in
//! [`conformance`](crate::conformance) (feature `conformance`) asks whether one does.
//!
//! # The contract
//!
//! The clauses have the numbers of `docs/contract.md`, of the conformance cases
//! and of the error texts.
//!
//! - **C1 exclusion.** At any instant of the store's own clock at most one owner
//!   holds a name. Expiry and renewal are decided on the same record: whoever
//!   takes a name from a session that ran out first ends that session by a write
//!   to it, in the same transaction. The id of an ended session is never used again.
//! - **C2 arithmetic.** Each grant and each confirmed renewal states `sent`, the
//!   instant before the request was queued for sending, and `validity`: the
//!   granted TTL less what clock rates and late timers can cost
//!   ([`trusted_part`]). For a lease that hangs on a session, `sent` is the
//!   session's last confirmed renewal.
//! - **C4 tokens only grow** for a name, over release, expiry, revocation, crash
//!   and restart. A token is minted in the atomic step that grants.
//! - **C5 repeatable.** Each verb repeated with the same claim gives the same
//!   answer: an acquire by the present owner is granted again with the SAME token.
//! - **C6 gentle.** Renewing never acquires and never re-creates a record;
//!   releasing removes the claim's own record and no other.
//! - **C7 droppable.** A returned future may be dropped at every await point; its
//!   effect may or may not have happened, and the store stays usable. A handle
//!   that a forked child inherited does nothing.
//! - **C8 polite.** One queue per name, kept by the store, in the order in which
//!   the store registered the entries. Nobody overtakes an entry registered
//!   before, [`acquire`](Store::acquire) without an entry included. A release
//!   hands the name to the first live entry in the same atomic step. Who finds the name
//!   free with a live head grants it to that head. An entry that was not attended
//!   for [`ENTRY_LIFE`] is dead, and so is a grant to it.
//! - **C12 limits.** At most [`MAX_ENTRIES`] entries per name, [`PAGE`] names per page.
//! - **C13 exceptions.** `hold_at_least` keeps a name from everybody until grant +
//!   D, whatever happens; a marked claim (revoked) is renewed no more.
//! - **C14 hostile surroundings.** Names and labels reach a server as bound
//!   parameters only.

use crate::words::busy::{Busy, Holder};
use crate::words::clock::Instant;
use crate::words::error::{Error, Reason, Result};
use crate::words::name::Name;
use crate::words::owner::{Claim, Label, Owner};
use crate::words::token::Token;
use std::fmt;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc;

/// W: how long an entry lives after its client last attended to it (C8).
pub const ENTRY_LIFE: Duration = Duration::from_millis(1500);
/// The most entries in the queue of one name (C12).
pub const MAX_ENTRIES: u32 = 10_000;
/// The most names in one page of [`Store::list`] (C12).
pub const PAGE: usize = 1_000;

/// C2's validity of a granted `ttl`: less 2 %, at least 20 ms, for clock rate and late timers.
///
/// ```
/// use std::time::Duration;
/// let ten = Duration::from_secs(10);
/// assert_eq!(tenure::store::trusted_part(ten), Duration::from_millis(9_800));
/// ```
pub fn trusted_part(ttl: Duration) -> Duration {
    ttl.saturating_sub((ttl / 50).max(Duration::from_millis(20)))
}

/// What a store call returns: it owns all it needs, so it can outlive its caller.
pub type Pending<T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'static>>;

/// A store, as one client sees it: two handles on it share the client's sessions.
///
/// All methods are required. None blocks the thread that calls it or polls its
/// future. A store bounds no call by time: its caller does.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Facts that do not change.
    fn about(&self) -> About;

    /// Another handle with a connection of its own on the same sessions. The
    /// keeper takes one, so no traffic of the callers delays a heartbeat (C10).
    fn handle(&self) -> Arc<dyn Store>;

    /// Grants the name, or says why not; with [`Ask::queue`] also registers an
    /// entry, once per claim. C1, C2, C4, C5, C8, C13.
    fn acquire(&self, ask: Ask) -> Pending<Answer>;

    /// Keeps entries alive and tells how each stands, in the order asked: one
    /// request per client and beat of [`ENTRY_LIFE`] / 3. A waiter that cannot
    /// win writes nothing but its client's liveness. C8.
    fn attend(&self, entries: Vec<Claim>) -> Pending<Vec<Attended>>;

    /// Sets the remaining time of each lease to its TTL and tells how each
    /// stands, in the order asked. All leases of one session come in one call,
    /// so that its cost does not grow with their number. C1, C2, C6, C10.
    fn renew(&self, leases: Vec<Renewal>) -> Pending<Renewed>;

    /// Gives the claim up, whether it holds or waits, and hands the name to the
    /// first live entry. C5, C6, C8, C13.
    fn release(&self, claim: Claim, ending: Ending) -> Pending<Released>;

    /// How a name stands: good for people, never for safety. A lapsed holder is
    /// not shown.
    fn inspect(&self, name: Name) -> Pending<Standing>;

    /// Names in byte order that begin with `prefix`, after `after`, at most [`PAGE`]:
    /// those that are held, kept back or waited for.
    fn list(&self, prefix: String, after: Option<Name>) -> Pending<Page>;

    /// Takes the lease from the holder with this token and no other (C13).
    fn revoke(&self, name: Name, token: Token, now: bool) -> Pending<Revoked>;

    /// Starts to listen for grants and hints; ends when the receiver is dropped.
    /// Called by the keeper, and only while somebody waits. Everything it says is a hint but
    /// [`Hint::Granted`], and any of it may be lost (C8).
    fn events(&self) -> mpsc::Receiver<Hint>;

    /// A session gets no new grants: a clean-up on it was refused or unanswered
    /// for one TTL (C7). The next grant opens another one.
    fn retire(&self, session: Session);

    /// A descriptor that keeps this client's leases from being taken before
    /// their TTL has passed for as long as any copy of it is open; `None` where
    /// the store cannot see a process die.
    fn liveness(&self) -> Pending<Option<OwnedFd>>;

    /// What the store needs before its first use, as a text that an operator
    /// can read and run; with `apply` it is run.
    fn setup(&self, apply: bool) -> Pending<String>;

    /// Facts for people who must judge this deployment.
    fn examine(&self) -> Pending<Vec<Fact>>;

    /// Ends the client's sessions and removes what only it needed. Leases still
    /// on them are free from then on.
    fn close(&self) -> Pending<()>;
}

/// Facts about a store that do not change.
#[derive(Debug, Clone)]
pub struct About {
    /// The scheme of its URL: `sqlite`, `redis`...
    pub kind: &'static str,
    /// Where it is, for people, without secrets.
    pub place: String,
    /// The shortest TTL it can keep.
    pub min_ttl: Duration,
    /// The longest.
    pub max_ttl: Duration,
    /// TTLs are rounded up to a multiple of this.
    pub ttl_unit: Duration,
    /// The default heartbeat is the TTL divided by this (C10: 3; ZooKeeper 6).
    pub beats_per_ttl: u32,
}

/// What hangs several leases of a client on one record (or nothing does: Redis).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session(pub [u8; 16]);

/// A question for a name.
#[derive(Debug, Clone)]
pub struct Ask {
    /// Who asks for what.
    pub claim: Claim,
    /// What people call it.
    pub label: Label,
    /// On what terms.
    pub terms: Terms,
    /// Whether to register an entry when it is not granted.
    pub queue: bool,
}

/// The terms of a lease that the store must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Terms {
    /// How long the store keeps a grant after it last heard from the holder.
    pub ttl: Duration,
    /// C13: from the grant on nobody else gets the name for this long. Zero: no such time.
    pub hold_at_least: Duration,
    /// C13: a session of its own, without heartbeat, kept by nothing but its TTL.
    pub one_shot: bool,
}

impl Terms {
    /// A lease of `ttl` without further terms.
    pub fn of(ttl: Duration) -> Terms {
        Terms { ttl, hold_at_least: Duration::ZERO, one_shot: false }
    }
}

/// The store's answer to an [`Ask`].
#[derive(Debug, Clone)]
pub enum Answer {
    /// It is yours.
    Granted(Grant),
    /// It is not, and why; `place` is set when an entry is registered.
    Busy(Busy),
}

/// A grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// The fencing token.
    pub token: Token,
    /// The TTL that the store really granted, rounded up to its unit.
    pub ttl: Duration,
    /// Until when it may be trusted.
    pub trust: Trust,
    /// It came to a waiter and stands on the rest of its entry's life: it is to
    /// be renewed at once, and given back when its trust has run out (C8).
    pub handed_over: bool,
}

/// How long an answer may be trusted (C2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trust {
    /// The session that the lease hangs on, where there is one.
    pub session: Option<Session>,
    /// The instant before the confirmed request was queued for sending.
    pub sent: Instant,
    /// How long after that instant.
    pub validity: Duration,
}

impl Trust {
    /// sent + validity.
    pub fn deadline(&self) -> Instant {
        self.sent + self.validity
    }
}

/// How an entry stands.
#[derive(Debug, Clone)]
pub enum Attended {
    /// It waits.
    Waiting(Busy),
    /// It was granted meanwhile; the same grant that the hint carried.
    Granted(Grant),
    /// It is not there (any more): queue again with a fresh owner.
    Gone,
    /// No answer for this one.
    Unknown(Error),
}

/// A lease to renew.
#[derive(Debug, Clone)]
pub struct Renewal {
    /// Whose.
    pub claim: Claim,
    /// Its TTL.
    pub ttl: Duration,
}

/// The answer to a batch of renewals.
#[derive(Debug, Clone, Default)]
pub struct Renewed {
    /// One per lease, in the order asked.
    pub outcomes: Vec<Outcome>,
    /// C5: claims that the store shows under the sessions of this batch and that
    /// were not in it; looked for at least once per TTL.
    pub strays: Vec<Claim>,
}

/// What became of one lease in a batch.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// Renewed.
    Kept(Trust),
    /// Not yours (any more).
    Lost(Reason),
    /// No answer for this one: neither kept nor lost.
    Unknown(Error),
}

/// How a claim ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// By its holder: `hold_at_least` stands.
    Released,
    /// The grant or entry reached nobody: it is undone in full.
    Undone,
}

/// The answer to a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// The claim held or waited, and ended now.
    Released,
    /// It had ended before, with what is known.
    Gone(Option<Reason>),
}

/// How a name stands.
#[derive(Debug, Clone)]
pub struct Standing {
    /// Which.
    pub name: Name,
    /// Who holds it.
    pub holder: Option<Holder>,
    /// The holder was revoked and may work on for at most this long.
    pub revoked: Option<Duration>,
    /// Nobody holds it, but it is kept back for this long.
    pub kept_back: Option<Duration>,
    /// The queue in its order, its first [`PAGE`] live entries ([`Store::list`]: left empty).
    pub waiters: Vec<Waiter>,
    /// How many wait.
    pub waiting: u32,
}

/// Who waits.
#[derive(Debug, Clone)]
pub struct Waiter {
    /// Which acquisition.
    pub owner: Owner,
    /// What people call it.
    pub label: Label,
    /// Since when, by the store's wall clock.
    pub since: SystemTime,
}

/// A page of names.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// In byte order of the names.
    pub names: Vec<Standing>,
    /// Whether there are more after the last one.
    pub more: bool,
}

/// The answer to a revocation.
#[derive(Debug, Clone)]
pub enum Revoked {
    /// Marked: free when the holder has stopped, at the latest after this long.
    Marked(Duration),
    /// Freed at once; the holder may still be working.
    Freed,
    /// Nobody holds it with that token; who does, if anybody.
    NotHeld(Option<Holder>),
}

/// What a store says without being asked.
#[derive(Debug, Clone)]
pub enum Hint {
    /// An entry was granted.
    Granted(Claim, Grant),
    /// The name may be free, or the queue moved: attend to it now.
    Look(Name),
    /// Something was missed: attend to everything.
    LookAll,
}

/// Something that an operator may want to know about a deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// A stable key such as `file_system`.
    pub key: &'static str,
    /// Its value, for people and for rules.
    pub value: String,
}
