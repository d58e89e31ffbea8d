//! The keeper: one background thread with a store handle of its own. It renews
//! what is held, announces what is lost, and finishes what callers began and
//! left (C3, C5, C7, C10).

use super::plan::Plan;
use super::record::{Record, Timing};
use super::thread::run;
use crate::store::{Answer, Ending, Pending, Released, Session, Store};
use crate::words::clock::Clock;
use crate::words::error::{Error, ErrorKind, Reason, Result};
use crate::words::event::Events;
use crate::words::owner::{Claim, Owner};
use std::collections::HashSet;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// C12: the longest that a store call may take.
pub(super) const MAX_CALL: Duration = Duration::from_secs(5);
/// C12: the most clean-ups under way; what is beyond them lapses.
const MAX_CLEANUPS: usize = 10_000;

/// What the handles, the waiters and the keeper's thread share.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) clock: Clock,
    pub(crate) events: Events,
    /// The connection of the callers.
    pub(crate) store: Arc<dyn Store>,
    /// The connection of the waiters and the clean-ups.
    pub(crate) waiting: Arc<dyn Store>,
    /// The connection of the heartbeats (C10).
    pub(super) beats: Arc<dyn Store>,
    runtime: Handle,
    plan: Mutex<Plan>,
    /// Claims that are asked for or cleaned up, so not strays (C5).
    unsettled: Mutex<HashSet<Owner>>,
    /// The plan changed so that the thread must look at it now.
    wake: Notify,
    /// A handle or a background job ended.
    quieter: Notify,
    jobs: AtomicUsize,
    cleanups: AtomicUsize,
    abandoned: AtomicBool,
    closing: AtomicBool,
    broken: AtomicBool,
    /// C7: a forked child's handles are inert.
    process: u32,
}

impl Keeper {
    /// Starts the thread.
    pub(crate) fn start(store: Arc<dyn Store>, clock: Clock, events: Events) -> Result<Arc<Keeper>> {
        let cannot = |error: std::io::Error| {
            Error::because(ErrorKind::Unavailable, "the keeper's thread cannot be started", error)
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
        let keeper = Arc::new(Keeper {
            clock,
            events,
            waiting: store.handle(),
            beats: store.handle(),
            store,
            runtime: runtime.handle().clone(),
            plan: Mutex::default(),
            unsettled: Mutex::default(),
            wake: Notify::new(),
            quieter: Notify::new(),
            jobs: AtomicUsize::new(0),
            cleanups: AtomicUsize::new(0),
            abandoned: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            process: std::process::id(),
        });
        let thread = keeper.clone();
        std::thread::Builder::new()
            .name("tenure-keeper".into())
            .spawn(move || run(&thread, &runtime))
            .map_err(cannot)?;
        Ok(keeper)
    }

    /// Whether requests are taken.
    pub(crate) fn open(&self) -> Result<()> {
        if self.forked() {
            Err(Error::new(ErrorKind::Closed, "a forked child cannot use its parent's client: connect anew"))
        } else if self.broken.load(Ordering::Acquire) {
            Err(Error::new(ErrorKind::Closed, "the thread that renews ended: nothing is granted any more"))
        } else if self.closing.load(Ordering::Acquire) {
            Err(Error::closed())
        } else {
            Ok(())
        }
    }

    pub(crate) fn forked(&self) -> bool {
        std::process::id() != self.process
    }

    /// Whether a background job may stay without work to do.
    pub(crate) fn may_linger(&self) -> bool {
        !self.abandoned.load(Ordering::Acquire) && self.open().is_ok()
    }

    /// From now on the lease is renewed, first after `soon` if that is given, and
    /// its deadline watched.
    pub(crate) fn keep(&self, record: Arc<Record>, soon: Option<Duration>) {
        let now = self.clock.now();
        let mut plan = self.plan();
        plan.insert(record.clone(), soon.map(|soon| now + soon), now);
        let is_sooner = plan.is_sooner();
        drop(plan);
        if is_sooner {
            self.wake.notify_one();
        }
        if self.open().is_err() {
            let reason = if self.closing.load(Ordering::Acquire) { Reason::Closed } else { Reason::Broken };
            record.lose(reason, now, &self.events);
        }
    }

    /// What is answered about this lease from now on is no loss.
    pub(crate) fn forget(&self, owner: Owner) {
        self.plan().remove(owner);
        self.quieter.notify_waiters();
        self.settle_down();
    }

    /// Asked for, cleaned up or held. A claim that is handed out is taken into the plan before it
    /// is settled, so in this order none is missed.
    pub(super) fn knows(&self, owner: Owner) -> bool {
        self.lock_unsettled().contains(&owner) || self.keeps(owner)
    }

    /// No handle is left and nothing is to do.
    pub(super) fn is_done(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
            && self.jobs.load(Ordering::Acquire) == 0
            && self.plan().is_empty()
    }

    /// The thread ended by a panic.
    pub(crate) fn break_down(&self) {
        self.broken.store(true, Ordering::Release);
        let now = self.clock.now();
        self.each_record(|record| record.lose(Reason::Broken, now, &self.events));
        self.quieter.notify_waiters();
    }

    /// The thread is to look at the plan now.
    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    pub(crate) fn keeps(&self, owner: Owner) -> bool {
        self.plan().contains(owner)
    }

    /// Ready, with what to say, when the thread has ended by a panic.
    pub(crate) async fn broken(&self) -> Error {
        loop {
            let mut quieter = std::pin::pin!(self.quieter.notified());
            quieter.as_mut().enable();
            if self.broken.load(Ordering::Acquire) {
                return Error::new(
                    ErrorKind::Closed,
                    "the thread that renews ended: nothing is granted any more",
                );
            }
            quieter.await;
        }
    }

    /// Runs a job of the waiters on the keeper's thread; it goes on when its caller is gone.
    pub(crate) fn spawn(self: &Arc<Self>, job: impl Future<Output = ()> + Send + 'static) {
        if self.forked() {
            return;
        }
        let under_way = self.begin();
        self.runtime.spawn(async move {
            let _under_way = under_way;
            job.await;
        });
    }

    /// While something is under way the keeper neither ends nor closes the store.
    pub(crate) fn begin(self: &Arc<Self>) -> Job {
        self.jobs.fetch_add(1, Ordering::AcqRel);
        Job(self.clone())
    }

    /// A claim that is asked for; settled when the guard is dropped.
    pub(crate) fn unsettled(self: &Arc<Self>, owner: Owner) -> Unsettled {
        self.lock_unsettled().insert(owner);
        Unsettled { keeper: self.clone(), owner }
    }

    /// Finishes a call that its caller left, and undoes what it brought.
    pub(crate) fn adopt(self: &Arc<Self>, call: Pending<Answer>, claim: Claim, timing: Timing) {
        let keeper = self.clone();
        let unsettled = self.unsettled(claim.owner);
        self.spawn(async move {
            let session = match keeper.bounded(timing.call_limit(), call).await {
                Ok(Answer::Busy(busy)) if busy.place.is_none() => return,
                Ok(Answer::Granted(grant)) => grant.trust.session,
                _ => None,
            };
            keeper.clean_up(&claim, Ending::Undone, session, timing).await;
            drop(unsettled);
        });
    }

    /// Releases a claim in the background, for as long as it could be held (C7).
    pub(crate) fn discard(
        self: &Arc<Self>,
        claim: Claim,
        ending: Ending,
        session: Option<Session>,
        timing: Timing,
    ) {
        if self.forked() {
            return;
        }
        let keeper = self.clone();
        let unsettled = self.unsettled(claim.owner);
        if self.cleanups.fetch_add(1, Ordering::AcqRel) >= MAX_CLEANUPS {
            self.cleanups.fetch_sub(1, Ordering::AcqRel);
            return self.retire(session);
        }
        self.spawn(async move {
            keeper.clean_up(&claim, ending, session, timing).await;
            keeper.cleanups.fetch_sub(1, Ordering::AcqRel);
            drop(unsettled);
        });
    }

    async fn clean_up(&self, claim: &Claim, ending: Ending, session: Option<Session>, timing: Timing) {
        let until = self.clock.now() + timing.ttl;
        let mut pause = Duration::from_millis(50);
        loop {
            let call = self.waiting.release(claim.clone(), ending);
            let Err(error) = self.bounded(timing.call_limit(), call).await else { return };
            if self.clock.now() >= until || error.kind() == ErrorKind::Closed {
                return self.retire(session);
            }
            self.clock.sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    /// What hangs on the session and could not be cleaned up would block its name
    /// for as long as other leases keep the session alive.
    fn retire(&self, session: Option<Session>) {
        if let Some(session) = session {
            self.waiting.retire(session);
        }
    }

    /// Releases a claim now, and says what became of it (C6).
    pub(crate) async fn release(&self, record: &Record) -> Result<Released> {
        let limit = record.timing.call_limit();
        let until = self.clock.now() + limit;
        let mut sent_in_time = false;
        loop {
            let now = self.clock.now();
            let call = self.store.release(record.claim.clone(), Ending::Released);
            match self.bounded((until - now).max(limit / 4), call).await {
                Ok(Released::Gone(reason))
                    if sent_in_time && !matches!(reason, Some(Reason::Revoked | Reason::Taken)) =>
                {
                    return Ok(Released::Released);
                }
                Ok(released) => return Ok(released),
                Err(error) if error.kind() != ErrorKind::Unavailable => return Err(error),
                Err(error) if self.clock.now() + limit / 4 >= until => return Err(error),
                Err(_) => sent_in_time |= now < record.trust().deadline(),
            }
            self.clock.sleep(limit / 20).await;
        }
    }

    /// A store call's answer, or `Unavailable` when it takes too long or panics.
    pub(crate) async fn bounded<T>(&self, limit: Duration, call: Pending<T>) -> Result<T> {
        self.bounded_in(limit, &mut Some(call)).await
    }

    /// The same for a call in a slot: empty once answered, so that whoever drops
    /// this knows whether anything is still under way.
    pub(crate) async fn bounded_in<T>(&self, limit: Duration, slot: &mut Option<Pending<T>>) -> Result<T> {
        let answer = poll_fn(|cx| {
            let Some(call) = slot.as_mut() else { return Poll::Ready(Err(Error::closed())) };
            let answer = match catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(cx))) {
                Ok(Poll::Pending) => return Poll::Pending,
                Ok(Poll::Ready(answer)) => answer,
                Err(_) => Err(Error::unavailable("the store panicked")),
            };
            *slot = None;
            Poll::Ready(answer)
        });
        let late = || Err(Error::unavailable(format!("the store gave no answer within {limit:.1?}")));
        self.clock.timeout(limit, answer).await.unwrap_or_else(late)
    }

    /// No handle of the client is left.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// Takes no requests any more.
    pub(crate) fn shut(&self) {
        self.closing.store(true, Ordering::Release);
    }

    /// C13: announces `Closed`, waits until each lease is released or has lapsed,
    /// and gives the claims that lapsed.
    pub(crate) async fn close(&self) -> Vec<Claim> {
        self.shut();
        let now = self.clock.now();
        self.each_record(|record| record.lose(Reason::Closed, now, &self.events));
        let lapsed = loop {
            let mut quieter = std::pin::pin!(self.quieter.notified());
            quieter.as_mut().enable();
            let now = self.clock.now();
            let mut until = now;
            let mut working = Vec::new();
            self.each_record(|record| {
                // Until the store itself has let go, so that ending the session
                // below takes nothing from a holder that still works.
                until = until.max(record.trust().sent + record.timing.ttl);
                working.push(record.claim.clone());
            });
            if until <= now {
                break working;
            }
            tokio::select! {
                () = quieter => {}
                () = self.clock.sleep_until(until) => {}
            }
        };
        while self.jobs.load(Ordering::Acquire) > 0 {
            let mut quieter = std::pin::pin!(self.quieter.notified());
            quieter.as_mut().enable();
            if self.jobs.load(Ordering::Acquire) > 0 {
                quieter.await;
            }
        }
        // What it would free is free or lapses by itself: no error matters here.
        let _ = self.bounded(MAX_CALL, self.store.close()).await;
        lapsed
    }

    fn each_record(&self, mut visit: impl FnMut(&Arc<Record>)) {
        let records: Vec<_> = self.plan().records().cloned().collect();
        records.iter().for_each(&mut visit);
    }

    fn settle_down(&self) {
        if self.abandoned.load(Ordering::Acquire) {
            self.wake.notify_one();
        }
    }

    pub(super) fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_unsettled(&self) -> MutexGuard<'_, HashSet<Owner>> {
        self.unsettled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See [`Keeper::unsettled`].
#[derive(Debug)]
pub(crate) struct Unsettled {
    keeper: Arc<Keeper>,
    owner: Owner,
}

impl Unsettled {
    pub(crate) fn keeper(&self) -> &Arc<Keeper> {
        &self.keeper
    }
}

impl Drop for Unsettled {
    fn drop(&mut self) {
        self.keeper.lock_unsettled().remove(&self.owner);
    }
}

/// See [`Keeper::begin`].
#[derive(Debug)]
pub(crate) struct Job(Arc<Keeper>);

impl Drop for Job {
    fn drop(&mut self) {
        self.0.jobs.fetch_sub(1, Ordering::AcqRel);
        self.0.quieter.notify_waiters();
        self.0.settle_down();
    }
}

#[cfg(test)]
impl Keeper {
    /// As if so many clean-ups were under way.
    pub(crate) fn pretend_cleanups(&self, count: usize) {
        self.cleanups.store(count, Ordering::Release);
    }
}
