//! The keeper: one background thread with a store handle of its own. It renews
//! what is held, announces what is lost, and finishes what callers began and
//! left (C3, C5, C7, C10).

use super::plan::Plan;
use super::record::{Record, Timing};
use super::thread::run;
use crate::store::{Answer, Ending, Pending, Released, Session, Store};
use crate::words::clock::{Clock, Instant};
use crate::words::error::{Error, ErrorKind, Reason, Result};
use crate::words::event::Events;
use crate::words::owner::{Claim, Owner};
use std::collections::{BTreeSet, HashMap};
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
    /// First, so that it is given up before the store is.
    _sole: Sole,
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
    /// Claims that are asked for or given up at the moment, so not strays (C5).
    unsettled: Mutex<HashMap<Owner, Asked>>,
    /// The plan changed so that the thread must look at it now.
    wake: Notify,
    /// A handle or a background job ended.
    quieter: Notify,
    /// The thread ended by a panic.
    broke: Notify,
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
        let sole = Sole::of(&store)?;
        let cannot = |error: std::io::Error| {
            Error::unavailable(format!("the keeper's thread cannot be started: {error}"))
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
        let keeper = Arc::new(Keeper {
            _sole: sole,
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
            broke: Notify::new(),
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
    /// its deadline watched. Not if it was undone while its caller did not fetch it.
    pub(crate) fn keep(self: &Arc<Self>, record: &Arc<Record>, soon: Option<Duration>) -> bool {
        let now = self.clock.now();
        let unsettled = self.lock_unsettled();
        if unsettled.get(&record.claim.owner).is_some_and(|asked| asked.forfeited) {
            return false;
        }
        let mut plan = self.plan();
        plan.insert(record.clone(), soon.map(|soon| now + soon), now);
        let is_sooner = plan.is_sooner();
        drop((plan, unsettled));
        if is_sooner {
            self.wake.notify_one();
        }
        if self.open().is_err() {
            let reason = if self.closing.load(Ordering::Acquire) { Reason::Closed } else { Reason::Broken };
            let (keeper, record) = (self.clone(), record.clone());
            // In a job: whoever calls this may hold a lock that an observer waits for.
            self.spawn(async move { record.lose(reason, now, &keeper.events) });
        }
        true
    }

    /// What is answered about this lease from now on is no loss.
    pub(crate) fn forget(&self, owner: Owner) {
        self.plan().remove(owner);
        self.quieter.notify_waiters();
        self.settle_down();
    }

    /// Asked for, given up at the moment, or held. A claim that is handed out is taken into
    /// the plan before it is settled, so in this order none is missed.
    pub(crate) fn knows(&self, owner: Owner) -> bool {
        self.lock_unsettled().contains_key(&owner) || self.keeps(owner)
    }

    /// How a claim ends that the store shows and nobody renews; `None` where it is
    /// somebody's. What a caller did not fetch for a TTL is no longer his: it would
    /// block its name for as long as other leases keep the session alive.
    pub(super) fn is_stray(&self, owner: Owner) -> Option<Ending> {
        let now = self.clock.now();
        let mut unsettled = self.lock_unsettled();
        if let Some(asked) = unsettled.get_mut(&owner) {
            asked.forfeited |= asked.until <= now;
            return asked.forfeited.then_some(Ending::Undone);
        }
        let plan = self.plan();
        match plan.contains(owner) {
            false => Some(Ending::Undone),
            true => plan.is_lost(owner).then_some(Ending::Released),
        }
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
        self.broke.notify_waiters();
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
            let mut broke = std::pin::pin!(self.broke.notified());
            broke.as_mut().enable();
            if self.broken.load(Ordering::Acquire) {
                return Error::new(
                    ErrorKind::Closed,
                    "the thread that renews ended: nothing is granted any more",
                );
            }
            broke.await;
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

    /// A claim that is asked for or given up; settled when the guard is dropped.
    pub(crate) fn unsettled(self: &Arc<Self>, owner: Owner, timing: &Timing) -> Unsettled {
        let until = self.clock.now() + timing.ttl;
        let fresh = Asked { guards: 0, until, forfeited: false, was_held: false };
        let mut unsettled = self.lock_unsettled();
        let asked = unsettled.entry(owner).or_insert(fresh);
        asked.guards += 1;
        asked.until = asked.until.max(until);
        Unsettled { keeper: self.clone(), owner }
    }

    /// The same for a claim that its holder gives back.
    pub(crate) fn given_back(self: &Arc<Self>, owner: Owner, timing: &Timing) -> Unsettled {
        let unsettled = self.unsettled(owner, timing);
        if let Some(asked) = self.lock_unsettled().get_mut(&owner) {
            asked.was_held = true;
        }
        unsettled
    }

    /// Finishes a call that its caller left, and undoes what it brought.
    pub(crate) fn adopt(self: &Arc<Self>, call: Pending<Answer>, claim: Claim, timing: Timing) {
        let keeper = self.clone();
        let Some(cleanup) = self.cleanup(&claim, &timing) else { return };
        self.spawn(async move {
            let _cleanup = cleanup;
            let session = match keeper.bounded(timing.call_limit(), call).await {
                Ok(Answer::Busy(busy)) if busy.place.is_none() => return,
                Ok(Answer::Granted(grant)) => grant.trust.session,
                _ => None,
            };
            keeper.clean_up(&claim, Ending::Undone, session, timing).await;
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
        let keeper = self.clone();
        let Some(cleanup) = self.cleanup(&claim, &timing) else { return self.retire(session) };
        // C13: a late answer about what its holder is giving back undoes nothing of it.
        let was_held = self.lock_unsettled().get(&claim.owner).is_some_and(|asked| asked.was_held);
        let ending = if was_held { Ending::Released } else { ending };
        self.spawn(async move {
            let _cleanup = cleanup;
            keeper.clean_up(&claim, ending, session, timing).await;
        });
    }

    /// `None`: too many are under way (C12).
    fn cleanup(self: &Arc<Self>, claim: &Claim, timing: &Timing) -> Option<Cleanup> {
        let under_way = self.cleanups.fetch_add(1, Ordering::AcqRel);
        let cleanup = Cleanup(self.unsettled(claim.owner, timing));
        (under_way < MAX_CLEANUPS && !self.forked()).then_some(cleanup)
    }

    async fn clean_up(&self, claim: &Claim, ending: Ending, session: Option<Session>, timing: Timing) {
        let until = self.clock.now() + timing.ttl;
        let mut pause = Duration::from_millis(50);
        loop {
            let call = guarded(|| self.waiting.release(claim.clone(), ending));
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
            let call = guarded(|| self.store.release(record.claim.clone(), Ending::Released));
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
        let quiet = async {
            loop {
                let mut quieter = std::pin::pin!(self.quieter.notified());
                quieter.as_mut().enable();
                if self.jobs.load(Ordering::Acquire) == 0 {
                    break;
                }
                quieter.await;
            }
        };
        // A release that its caller began and does not poll would never end.
        let _ = self.clock.timeout(MAX_CALL / 2, quiet).await;
        // What it would free is free or lapses by itself: no error matters here.
        let _ = self.bounded(MAX_CALL, guarded(|| self.store.close())).await;
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

    fn lock_unsettled(&self) -> MutexGuard<'_, HashMap<Owner, Asked>> {
        self.unsettled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A store call; one that panics as it is made is an error like any other.
pub(crate) fn guarded<T: Send + 'static>(call: impl FnOnce() -> Pending<T>) -> Pending<T> {
    let panicked =
        |_| Box::pin(std::future::ready(Err(Error::unavailable("the store panicked")))) as Pending<T>;
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(panicked)
}

/// The stores of this process that have a keeper, by their addresses.
static KEPT: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// A store has one keeper: a second one would take the leases of the first for strays.
#[derive(Debug)]
struct Sole(usize);

impl Sole {
    fn of(store: &Arc<dyn Store>) -> Result<Sole> {
        let address = Arc::as_ptr(store).cast::<()>() as usize;
        if KEPT.lock().unwrap_or_else(PoisonError::into_inner).insert(address) {
            return Ok(Sole(address));
        }
        Err(Error::invalid("this store has a client already: clone that client, or connect anew"))
    }
}

impl Drop for Sole {
    fn drop(&mut self) {
        KEPT.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

/// A claim on its way.
#[derive(Debug)]
struct Asked {
    guards: u32,
    /// Until when its caller may fetch what it asked for.
    until: Instant,
    /// The store was told that nobody wants it.
    forfeited: bool,
    /// It reached its caller.
    was_held: bool,
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
        let mut unsettled = self.keeper.lock_unsettled();
        if let Some(asked) = unsettled.get_mut(&self.owner) {
            asked.guards -= 1;
            if asked.guards == 0 {
                unsettled.remove(&self.owner);
            }
        }
    }
}

/// A clean-up under way.
struct Cleanup(Unsettled);

impl Drop for Cleanup {
    fn drop(&mut self) {
        self.0.keeper.cleanups.fetch_sub(1, Ordering::AcqRel);
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
