//! What happens to leases. One enum, emitted in one place (the client's
//! [`Events`]); status lines, metrics and tracing consume it.

use super::busy::Busy;
use super::error::{Error, Loss};
use super::name::Name;
use super::owner::Claim;
use super::token::Token;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Something that happened to a lease or to the heartbeat.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// A task waits; said again whenever the store's answer is news.
    Waiting {
        /// For what.
        name: Name,
        /// Why.
        busy: Busy,
    },
    /// A lease was granted and handed to its caller.
    Acquired {
        /// Which.
        claim: Claim,
        /// Its fencing token.
        token: Token,
        /// From the call to the grant.
        waited: Duration,
    },
    /// A beat was answered: one request to the store, however many leases it renewed.
    Heartbeat {
        /// From sending to the answer.
        latency: Duration,
        /// Leases renewed by it.
        leases: usize,
    },
    /// A beat failed or got no answer; it is tried again inside the time left.
    HeartbeatFailed {
        /// What the store said.
        error: Error,
        /// Leases that it was to renew.
        leases: usize,
    },
    /// A lease reached its stopping time; see [`State::Stopping`](crate::State::Stopping).
    Stopping {
        /// Which.
        claim: Claim,
    },
    /// A lease ended without a release.
    Lost {
        /// Which.
        claim: Claim,
        /// Its fencing token.
        token: Token,
        /// Why and when.
        loss: Loss,
    },
    /// The holder gave a lease back; the store may not know it yet.
    Released {
        /// Which.
        claim: Claim,
        /// Its fencing token.
        token: Token,
    },
}

type Observer = Arc<dyn Fn(&Event) + Send + Sync>;

/// The one place that emits.
#[derive(Clone, Default)]
pub(crate) struct Events(Vec<Observer>);

impl Events {
    pub(crate) fn observe(&mut self, observer: impl Fn(&Event) + Send + Sync + 'static) {
        self.0.push(Arc::new(observer));
    }

    /// Runs `work`, which may hold locks, and emits after it what it emitted: an
    /// observer may wait for somebody who waits for such a lock.
    pub(crate) fn after<T>(&self, work: impl FnOnce(&Events) -> T) -> T {
        let emitted = Arc::<Mutex<Vec<Event>>>::default();
        let mut events = Events::default();
        let keep = emitted.clone();
        events.observe(move |event| lock(&keep).push(event.clone()));
        let done = work(&events);
        let emitted = std::mem::take(&mut *lock(&emitted));
        emitted.iter().for_each(|event| self.emit(event));
        done
    }

    pub(crate) fn emit(&self, event: &Event) {
        for observer in &self.0 {
            // An observer's fault must not end the thread that renews.
            let _ = catch_unwind(AssertUnwindSafe(|| observer(event)));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Events({} observers)", self.0.len())
    }
}
