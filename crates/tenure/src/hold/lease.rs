//! The handle of a lease.

use crate::keep::keeper::{Job, Keeper, Unsettled};
use crate::keep::record::{Record, State};
use crate::store::{Ending, Released};
use crate::words::clock::Instant;
use crate::words::error::{Loss, Reason, Result};
use crate::words::event::Event;
use crate::words::name::Name;
use crate::words::owner::Owner;
use crate::words::token::Token;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A lease that is held, until it is released, dropped or lost.
///
/// It is renewed in the background. Ask [`check`](Lease::check) before every
/// side effect, send [`token`](Lease::token) along with every write, and stop
/// when [`lost`](Lease::lost) is ready.
///
/// Dropping it releases it in the background; [`release`](Lease::release) says
/// what became of it. In a forked child a lease is inert.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tenure::Result<()> {
/// let client = tenure::Client::connect("memory:").await?;
/// let lease = client.lease("nightly-report").acquire().await?;
/// lease.check()?;
/// println!("token {}", lease.token());
/// lease.release().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a lease is released as soon as it is dropped"]
pub struct Lease {
    keeper: Arc<Keeper>,
    record: Arc<Record>,
    released: bool,
}

/// What a fence at the resource compares: the token AND the owner, of one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// The name of the lease.
    pub name: Name,
    /// Its fencing token.
    pub token: Token,
    /// The acquisition that it was minted for.
    pub owner: Owner,
}

impl Lease {
    /// Reaches the caller now; the keeper has had the record since the grant.
    pub(crate) fn handed_out(keeper: Arc<Keeper>, record: Arc<Record>, since: Instant) -> Lease {
        let waited = keeper.clock.now() - since;
        keeper.events.emit(&Event::Acquired { claim: record.claim.clone(), token: record.token, waited });
        Lease { keeper, record, released: false }
    }

    /// What is leased.
    pub fn name(&self) -> &Name {
        &self.record.claim.name
    }

    /// The identity of this acquisition.
    pub fn owner(&self) -> Owner {
        self.record.claim.owner
    }

    /// The fencing token, fixed for the life of the lease (C4).
    pub fn token(&self) -> Token {
        self.record.token
    }

    /// What to hand to a fence at the resource.
    pub fn fence(&self) -> Fence {
        Fence { name: self.name().clone(), token: self.token(), owner: self.owner() }
    }

    /// The TTL that the store granted: what was asked for, rounded up to its unit.
    pub fn ttl(&self) -> Duration {
        self.record.timing.ttl
    }

    /// The time before the deadline that is kept for stopping the work.
    pub fn grace(&self) -> Duration {
        self.record.timing.grace
    }

    /// Whether it is held at this instant: a comparison of the suspend-aware
    /// clock with the deadline, so the answer is right when the heartbeat is
    /// dead, the process was stopped, or the machine slept. Never blocks.
    pub fn is_held(&self) -> bool {
        self.check().is_ok()
    }

    /// The same as a `Result`, for use before every side effect.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost), with the [`Loss`], when it is not held.
    pub fn check(&self) -> Result<()> {
        let now = self.keeper.clock.now();
        if self.keeper.forked() {
            return Err(Loss::new(Reason::Closed, now, None).into());
        }
        self.record.check(now, &self.keeper.events).map_err(Into::into)
    }

    /// A renewal that the store answers just now, then [`check`](Lease::check):
    /// for the moment after something that no clock of this machine counts, such
    /// as a migration of the virtual machine.
    ///
    /// # Errors
    /// `Lost` when it is not held, `Unavailable` when the store gives no answer:
    /// the lease may still be held then.
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub async fn confirm(&self) -> Result<()> {
        self.check()?;
        let answered = self.keeper.confirm(self.owner()).await;
        self.check()?;
        answered
    }

    /// The time until the deadline; zero once lost.
    pub fn remaining(&self) -> Duration {
        if self.is_held() { self.deadline() - self.keeper.clock.now() } else { Duration::ZERO }
    }

    /// The instant until which it may be trusted, on the suspend-aware clock: sent +
    /// validity of the last confirmed renewal (C2). It moves forward with each one.
    pub fn deadline(&self) -> Instant {
        self.record.deadline()
    }

    /// How it stands.
    pub fn state(&self) -> State {
        if self.keeper.forked() {
            return State::Lost(Loss::new(Reason::Closed, self.keeper.clock.now(), None));
        }
        self.record.state(self.keeper.clock.now(), &self.keeper.events)
    }

    /// Whether it has its whole TTL. One that was handed over to a waiter stands on the rest
    /// of its entry's life, a second or so, until its first renewal some 50 ms later.
    pub fn is_confirmed(&self) -> bool {
        self.record.is_confirmed()
    }

    /// Ready when the lease is lost: at its deadline, or right after the store
    /// said that it is not ours. Owned, so it can be moved to another task; never
    /// ready after a release.
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + 'static + use<> {
        let record = self.record.clone();
        async move { record.wait_until(Record::loss).await }
    }

    /// Ready when the work should stop: at deadline - grace, or when the lease is lost.
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub fn stopping(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let record = self.record.clone();
        async move { record.wait_until(|record| record.is_stopping().then_some(())).await }
    }

    /// Ready when the deadline is another than `seen`; gives the new one. Never
    /// ready after a loss.
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub fn renewed(&self, seen: Instant) -> impl Future<Output = Instant> + Send + 'static + use<> {
        let record = self.record.clone();
        async move {
            let moved = |record: &Record| Some(record.deadline()).filter(|deadline| *deadline != seen);
            record.wait_until(moved).await
        }
    }

    /// Gives it back and says what became of it. A lost lease is released too:
    /// then its record, if it is still there, does not wait for its TTL.
    ///
    /// # Errors
    /// `Unavailable` when the store gave no answer: whether it was released is
    /// unknown, the background goes on trying, and at worst it lapses.
    ///
    /// # Cancel safety
    /// Dropped, it goes on in the background.
    pub async fn release(mut self) -> Result<Released> {
        if self.keeper.forked() {
            self.released = true;
            return Ok(Released::Gone(None));
        }
        let _under_way = self.giving_up();
        let known = self.record.loss().map(|loss| loss.reason);
        self.keeper.forget(self.owner());
        self.emit_released();
        let released = self.keeper.release(&self.record).await?;
        self.released = true;
        Ok(match (released, known) {
            // What the holder was told is what it is told again.
            (Released::Gone(None), Some(reason)) => Released::Gone(Some(reason)),
            (released, _) => released,
        })
    }

    /// Releases it after its work has ended: whoever had it meanwhile is a loss, an
    /// answer that never came is not.
    pub(crate) async fn finish(self) -> Result<()> {
        let (keeper, record) = (self.keeper.clone(), self.record.clone());
        match self.release().await {
            Ok(Released::Gone(reason)) => {
                let reason = reason.unwrap_or(Reason::Vanished);
                let loss = Loss::new(reason, keeper.clock.now(), None);
                Err(record.loss().unwrap_or(loss).into())
            }
            _ => Ok(()),
        }
    }

    /// Until the store has answered, the keeper stays and the claim is no stray.
    fn giving_up(&self) -> (Job, Unsettled) {
        (self.keeper.begin(), self.keeper.given_back(self.owner(), &self.record.timing))
    }

    fn emit_released(&self) {
        if self.record.loss().is_none() {
            let (claim, token) = (self.record.claim.clone(), self.record.token);
            self.keeper.events.emit(&Event::Released { claim, token });
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.released || self.keeper.forked() {
            return;
        }
        let _under_way = self.giving_up();
        if self.keeper.keeps(self.owner()) {
            self.keeper.forget(self.owner());
            self.emit_released();
        }
        let (claim, session) = (self.record.claim.clone(), self.record.session());
        self.keeper.discard(claim, Ending::Released, session, self.record.timing);
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("name", self.name())
            .field("owner", &self.owner())
            .field("token", &self.token())
            .field("state", &self.state())
            .finish()
    }
}
