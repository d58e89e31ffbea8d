//! What the handle of a lease and the keeper share: the deadline, and how it ends.
//!
//! Reading the deadline is one atomic load. Everything that changes it goes
//! through one mutex, so an observer that has once seen the lease end never sees
//! it come back: whoever notices first latches the end under the mutex, and a
//! confirmation that was under way finds it latched.

use crate::store::{Grant, Session, Trust};
use crate::words::clock::Instant;
use crate::words::error::{Error, Loss, Reason};
use crate::words::event::{Event, Events};
use crate::words::owner::Claim;
use crate::words::token::Token;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// The times that a lease lives by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Timing {
    /// How long the store keeps it after it last heard from us.
    pub(crate) ttl: Duration,
    /// How often it hears from us.
    pub(crate) heartbeat: Duration,
    /// Kept before the deadline for stopping the work.
    pub(crate) grace: Duration,
    /// `hold_at_most`.
    pub(crate) limit: Option<Duration>,
}

impl Timing {
    /// C12: the longest that one store call may take.
    pub(crate) fn call_limit(&self) -> Duration {
        self.heartbeat.min(Duration::from_secs(5))
    }
}

/// How a lease stands. `Stopping` and `Lost` are final.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum State {
    /// Held, and renewed in time.
    Held,
    /// A renewal failed or is overdue; the lease is still held.
    AtRisk {
        /// Until the deadline.
        left: Duration,
        /// The store's last error.
        last_error: Option<Error>,
    },
    /// deadline - grace has passed: stop the work. The lease is still held until
    /// the deadline.
    Stopping {
        /// Until the deadline.
        left: Duration,
    },
    /// Not held any more.
    Lost(Loss),
}

/// No instant of a lease: `deadline` holds it once the lease is lost.
const LOST: u64 = 0;

#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) claim: Claim,
    pub(crate) token: Token,
    pub(crate) timing: Timing,
    /// Nanoseconds of the suspend-aware clock, or `LOST`.
    deadline: AtomicU64,
    inner: Mutex<Inner>,
    /// Told at every change that somebody may wait for.
    changed: Notify,
}

#[derive(Debug)]
struct Inner {
    trust: Trust,
    /// Granted + `hold_at_most`.
    limit: Option<Instant>,
    /// C10: a handed-over grant that no renewal has confirmed yet.
    provisional: bool,
    stopping: bool,
    loss: Option<Loss>,
    trouble: Option<Error>,
}

impl Inner {
    fn deadline(&self) -> Instant {
        let trusted = self.trust.deadline();
        self.limit.map_or(trusted, |limit| limit.min(trusted))
    }

    fn stop_at(&self, timing: &Timing) -> Instant {
        let grace = match self.provisional {
            true => timing.grace.min(self.trust.validity / 5),
            false => timing.grace,
        };
        self.deadline() - grace
    }
}

/// What a passing of time did to a lease.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    /// Nothing; look again then.
    Until(Instant),
    /// It is lost, now or earlier.
    Lost,
}

impl Record {
    pub(crate) fn new(claim: Claim, grant: &Grant, timing: Timing, now: Instant) -> Record {
        let inner = Inner {
            trust: grant.trust,
            limit: timing.limit.map(|limit| now + limit),
            provisional: grant.handed_over,
            stopping: false,
            loss: None,
            trouble: None,
        };
        Record {
            claim,
            token: grant.token,
            timing: Timing { ttl: grant.ttl, ..timing },
            deadline: AtomicU64::new(inner.deadline().as_nanos()),
            inner: Mutex::new(inner),
            changed: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// C2: exact, also when every other thread of tenure is dead.
    pub(crate) fn check(&self, now: Instant, events: &Events) -> Result<(), Loss> {
        if now.as_nanos() < self.deadline.load(Ordering::Acquire) || self.pass(now, events) != Passed::Lost {
            return Ok(());
        }
        Err(self.loss().unwrap_or_else(|| Loss::new(Reason::Expired, now, None)))
    }

    pub(crate) fn loss(&self) -> Option<Loss> {
        self.lock().loss.clone()
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.lock().deadline()
    }

    pub(crate) fn session(&self) -> Option<Session> {
        self.lock().trust.session
    }

    pub(crate) fn trust(&self) -> Trust {
        self.lock().trust
    }

    pub(crate) fn state(&self, now: Instant, events: &Events) -> State {
        if let Err(loss) = self.check(now, events) {
            return State::Lost(loss);
        }
        let inner = self.lock();
        let left = inner.deadline() - now;
        let overdue = now > inner.trust.sent + self.timing.heartbeat * 2;
        if inner.stopping {
            State::Stopping { left }
        } else if overdue || inner.trouble.is_some() {
            State::AtRisk { left, last_error: inner.trouble.clone() }
        } else {
            State::Held
        }
    }

    /// Latches what the clock has decided, and tells when it decides next.
    pub(crate) fn pass(&self, now: Instant, events: &Events) -> Passed {
        let mut inner = self.lock();
        if inner.loss.is_some() {
            return Passed::Lost;
        }
        let deadline = inner.deadline();
        if now >= deadline {
            let exceeded = inner.limit.is_some_and(|limit| limit <= inner.trust.deadline());
            let reason = if exceeded { Reason::Exceeded } else { Reason::Expired };
            self.latch(inner, reason, now, events);
            return Passed::Lost;
        }
        let stop_at = inner.stop_at(&self.timing);
        if now < stop_at {
            return Passed::Until(stop_at);
        }
        if !inner.stopping {
            inner.stopping = true;
            drop(inner);
            events.emit(&Event::Stopping { claim: self.claim.clone() });
            self.changed.notify_waiters();
        }
        Passed::Until(deadline)
    }

    /// When the clock decides next, without deciding anything.
    pub(crate) fn passes_next(&self, now: Instant) -> Instant {
        let inner = self.lock();
        let stop_at = inner.stop_at(&self.timing);
        if now < stop_at { stop_at } else { inner.deadline() }
    }

    /// A renewal was confirmed. What is stopping or lost stays so (C3), and an
    /// answer that came after the deadline it gives counts for nothing (C2).
    pub(crate) fn confirmed(&self, trust: Trust, now: Instant, events: &Events) {
        if self.pass(now, events) == Passed::Lost {
            return;
        }
        let mut inner = self.lock();
        if inner.loss.is_some() || trust.deadline() <= now {
            return;
        }
        if inner.stopping {
            // The session may have changed; the time left may not.
            inner.trust.session = trust.session;
            return;
        }
        // Two renewals can be under way at once (a beat and a `confirm`) and be
        // answered in either order: the deadline never moves back.
        if trust.deadline() >= inner.trust.deadline() || inner.provisional {
            inner.trust = trust;
        }
        inner.provisional = false;
        inner.trouble = None;
        self.deadline.store(inner.deadline().as_nanos(), Ordering::Release);
        drop(inner);
        self.changed.notify_waiters();
    }

    /// A renewal failed or got no answer: at risk, not lost.
    pub(crate) fn troubled(&self, error: Error) {
        self.lock().trouble = Some(error);
        self.changed.notify_waiters();
    }

    /// Ends it now, unless it has ended.
    pub(crate) fn lose(&self, reason: Reason, now: Instant, events: &Events) {
        if self.pass(now, events) != Passed::Lost {
            self.latch(self.lock(), reason, now, events);
        }
    }

    fn latch(&self, mut inner: MutexGuard<'_, Inner>, reason: Reason, now: Instant, events: &Events) {
        if inner.loss.is_some() {
            return;
        }
        let loss = Loss::new(reason, now, inner.trouble.take());
        inner.loss = Some(loss.clone());
        inner.stopping = true;
        self.deadline.store(LOST, Ordering::Release);
        drop(inner);
        events.emit(&Event::Lost { claim: self.claim.clone(), token: self.token, loss });
        self.changed.notify_waiters();
    }

    /// Waits until `look` finds what it looks for; looks again at every change.
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub(crate) async fn wait_until<T>(&self, look: impl Fn(&Record) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            if let Some(found) = look(self) {
                return found;
            }
            changed.await;
        }
    }

    /// Granted directly, or renewed since it was handed over.
    pub(crate) fn is_confirmed(&self) -> bool {
        !self.lock().provisional
    }

    /// Whether it was told to stop, or is lost.
    pub(crate) fn is_stopping(&self) -> bool {
        self.lock().stopping
    }
}
