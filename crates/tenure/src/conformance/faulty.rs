//! A store that fails on demand.

use super::kit::Client;
use crate::store::{
    About, Answer, Ask, Attended, Ending, Fact, Hint, Page, Pending, Released, Renewal, Renewed, Revoked,
    Session, Standing, Store,
};
use crate::words::clock::{Clock, Instant};
use crate::words::error::{Error, Result};
use crate::words::name::Name;
use crate::words::owner::Claim;
use crate::words::token::Token;
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;

/// A wrapper around a store with a [`Fault`] per [`Verb`]; its handles share them.
///
/// ```
/// use tenure::conformance::{Fault, Faulty, Verb};
/// use tenure::{Clock, stores::memory::Memory};
/// let store = Faulty::new(Memory::new(Clock::system()).client(), Clock::system());
/// store.faults().set_next(1, Verb::Renew, Fault::ReplyLost);
/// assert_eq!(store.faults().count(Verb::Renew), 0);
/// ```
#[derive(Clone, Debug)]
pub struct Faulty {
    inner: Client,
    faults: Faults,
}

/// What a call of a verb meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: it works.
    Ok,
    /// An error of kind `Unavailable` before anything was applied.
    Fail,
    /// It works, after this time.
    Slow(Duration),
    /// It hangs and is not applied.
    Never,
    /// It is applied, and the answer is an error of kind `Unavailable`.
    ReplyLost,
    /// It is applied at once, and the answer comes after this time.
    ReplySlow(Duration),
    /// It is applied, and the answer never comes.
    ReplyNever,
    /// It panics before anything was applied.
    Panic,
}

/// The methods of [`Store`] that can meet a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is the method of that name")]
pub enum Verb {
    Acquire,
    Attend,
    Renew,
    Release,
    Inspect,
    List,
    Revoke,
    Liveness,
    Setup,
    Examine,
    Close,
    /// Only counted: it has no answer that could be lost.
    Events,
    /// Only counted.
    Retire,
}

/// A call that was polled.
#[derive(Debug, Clone)]
pub struct Call {
    /// Of which method.
    pub verb: Verb,
    /// When.
    pub at: Instant,
    /// About which claims, where it is about claims.
    pub claims: Vec<Claim>,
    /// What it met.
    pub fault: Fault,
}

/// The faults of a [`Faulty`] store and the record of its calls. Clones are the same.
#[derive(Clone, Debug)]
pub struct Faults {
    clock: Clock,
    state: Arc<Mutex<State>>,
}

/// The longest record of calls; the oldest are dropped.
const MAX_CALLS: usize = 10_000;

#[derive(Debug, Default)]
struct State {
    always: HashMap<Verb, Fault>,
    next: HashMap<Verb, VecDeque<Fault>>,
    counts: HashMap<Verb, usize>,
    calls: VecDeque<Call>,
}

impl Faults {
    /// Each call of `verb` meets `fault` from now on.
    pub fn set(&self, verb: Verb, fault: Fault) {
        self.state().always.insert(verb, fault);
    }

    /// The next `calls` of `verb` meet `fault`, after those that were set so before.
    pub fn set_next(&self, calls: usize, verb: Verb, fault: Fault) {
        self.state().next.entry(verb).or_default().extend(std::iter::repeat_n(fault, calls));
    }

    /// Everything works from now on.
    pub fn clear(&self) {
        let mut state = self.state();
        state.always.clear();
        state.next.clear();
    }

    /// How often `verb` was called; a future that was never polled does not count.
    pub fn count(&self, verb: Verb) -> usize {
        self.state().counts.get(&verb).copied().unwrap_or_default()
    }

    /// The calls since the last time that this was asked, at most the last 10,000.
    pub fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.state().calls).into()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn meet(&self, verb: Verb, claims: Vec<Claim>) -> Fault {
        let at = self.clock.now();
        let mut state = self.state();
        let always = state.always.get(&verb).copied().unwrap_or(Fault::Ok);
        let fault = state.next.get_mut(&verb).and_then(VecDeque::pop_front).unwrap_or(always);
        *state.counts.entry(verb).or_default() += 1;
        if state.calls.len() == MAX_CALLS {
            state.calls.pop_front();
        }
        state.calls.push_back(Call { verb, at, claims, fault });
        fault
    }
}

impl Faulty {
    /// Wraps a client's store; everything works until a fault is set.
    pub fn new(inner: Arc<dyn Store>, clock: Clock) -> Faulty {
        Faulty { inner, faults: Faults { clock, state: Arc::default() } }
    }

    /// What to set and to count.
    pub fn faults(&self) -> Faults {
        self.faults.clone()
    }

    /// Meets the fault at the first poll, as the call itself does.
    fn call<T: Send + 'static>(
        &self,
        verb: Verb,
        claims: Vec<Claim>,
        work: impl FnOnce(&dyn Store) -> Pending<T> + Send + 'static,
    ) -> Pending<T> {
        let Faulty { inner, faults } = self.clone();
        Box::pin(async move {
            match faults.meet(verb, claims) {
                Fault::Ok => work(&*inner).await,
                Fault::Fail => Err(Error::unavailable(format!("{verb:?} was told to fail"))),
                Fault::Slow(time) => {
                    faults.clock.sleep(time).await;
                    work(&*inner).await
                }
                Fault::Never => never().await,
                Fault::ReplyLost => {
                    let _lost: Result<T> = work(&*inner).await;
                    Err(Error::unavailable(format!("the reply to {verb:?} was told to get lost")))
                }
                Fault::ReplySlow(time) => {
                    let answer = work(&*inner).await;
                    faults.clock.sleep(time).await;
                    answer
                }
                Fault::ReplyNever => {
                    let _lost: Result<T> = work(&*inner).await;
                    never().await
                }
                Fault::Panic => panic!("{verb:?} was told to panic"),
            }
        })
    }
}

async fn never<T>() -> T {
    std::future::pending().await
}

// Each method is written out, so that a new one cannot slip past the faults.
impl Store for Faulty {
    fn about(&self) -> About {
        self.inner.about()
    }

    fn handle(&self) -> Arc<dyn Store> {
        Arc::new(Faulty { inner: self.inner.handle(), faults: self.faults.clone() })
    }

    fn acquire(&self, ask: Ask) -> Pending<Answer> {
        self.call(Verb::Acquire, vec![ask.claim.clone()], |store| store.acquire(ask))
    }

    fn attend(&self, entries: Vec<Claim>) -> Pending<Vec<Attended>> {
        self.call(Verb::Attend, entries.clone(), |store| store.attend(entries))
    }

    fn renew(&self, leases: Vec<Renewal>) -> Pending<Renewed> {
        let claims = leases.iter().map(|lease| lease.claim.clone()).collect();
        self.call(Verb::Renew, claims, |store| store.renew(leases))
    }

    fn release(&self, claim: Claim, ending: Ending) -> Pending<Released> {
        self.call(Verb::Release, vec![claim.clone()], move |store| store.release(claim, ending))
    }

    fn inspect(&self, name: Name) -> Pending<Standing> {
        self.call(Verb::Inspect, Vec::new(), |store| store.inspect(name))
    }

    fn list(&self, prefix: String, after: Option<Name>) -> Pending<Page> {
        self.call(Verb::List, Vec::new(), |store| store.list(prefix, after))
    }

    fn revoke(&self, name: Name, token: Token, now: bool) -> Pending<Revoked> {
        self.call(Verb::Revoke, Vec::new(), move |store| store.revoke(name, token, now))
    }

    fn events(&self) -> mpsc::Receiver<Hint> {
        self.faults.meet(Verb::Events, Vec::new());
        self.inner.events()
    }

    fn retire(&self, session: Session) {
        self.faults.meet(Verb::Retire, Vec::new());
        self.inner.retire(session);
    }

    fn liveness(&self) -> Pending<Option<OwnedFd>> {
        self.call(Verb::Liveness, Vec::new(), |store| store.liveness())
    }

    fn setup(&self, apply: bool) -> Pending<String> {
        self.call(Verb::Setup, Vec::new(), move |store| store.setup(apply))
    }

    fn examine(&self) -> Pending<Vec<Fact>> {
        self.call(Verb::Examine, Vec::new(), |store| store.examine())
    }

    fn close(&self) -> Pending<()> {
        self.call(Verb::Close, Vec::new(), |store| store.close())
    }
}
