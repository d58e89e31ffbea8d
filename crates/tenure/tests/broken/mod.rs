//! A store around the memory store that is broken in one way.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;
use tenure::store::*;
use tenure::{Busy, Claim, Clock, Error, Holder, Instant, Label, Name, Owner, Result, Token, Why};
use tokio::sync::mpsc;

/// What is wrong with a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Nothing,
    BusyIsGranted,
    HalfTheTtl,
    RenewIsNotWritten,
    SentIsTheReply,
    SentIsTheAcquire,
    NoMargin,
    TtlAsAsked,
    TokensGoBack,
    TokensPerClient,
    TokenOfEachAnswer,
    OwnClaimIsBusy,
    EntryOfEachAsk,
    StraysAreSilent,
    ReleaseAgainHitsTheNext,
    RenewRevives,
    RenewOfAnyOwner,
    ReleaseOfAnyOwner,
    RenewAdds,
    ReleaseIsIgnored,
    DroppedCallLocks,
    DroppedHandleCloses,
    RetireIsIgnored,
    WaitersBarge,
    EntriesLiveForEver,
    HandOverIsFirm,
    HandOverIsTrustedFromTheAnswer,
    HandOverIsSlow,
    HandOverIsNeverFirm,
    HintsAreMixedUp,
    UndoIsIgnored,
    GoneStillWaits,
    CloseKeepsSessions,
    OutcomesOutOfOrder,
    RenewQueuesBehindWaiters,
    HolderIsNameless,
    PlaceIsUnknown,
    WaitersAreReversed,
    LapsedIsShown,
    PagesWithoutEnd,
    HoldAtLeastIsIgnored,
    UndoKeepsBack,
    MarkFrees,
    MarkIsIgnored,
    AnyTokenRevokes,
    OneShotOnTheSession,
    NamesAreCut,
    NamesAreFolded,
    PrefixIsAPattern,
    PrefixEndsAtNul,
    LabelsAreCut,
}

/// One client of a broken store.
#[derive(Debug, Clone)]
pub(crate) struct Broken {
    inner: Arc<dyn Store>,
    fault: Fault,
    grants: Arc<AtomicU64>,
    world: Arc<World>,
    _closing: Option<Arc<Closing>>,
}

/// Closes the client when it is dropped.
#[derive(Debug)]
struct Closing(Arc<dyn Store>);

impl Drop for Closing {
    fn drop(&mut self) {
        // The memory store closes at the first poll.
        let _ = self.0.close().as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
}

/// What the clients of a broken store share.
#[derive(Debug, Default)]
pub(crate) struct World {
    state: Mutex<State>,
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    answers: u64,
    is_locked: bool,
    entries: Vec<Claim>,
    waiting: HashMap<Owner, Ask>,
    handed: HashMap<Owner, Instant>,
    holders: HashMap<Name, Holder>,
}

impl World {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn now() -> Instant {
    Clock::system().now()
}

impl Broken {
    pub(crate) fn new(inner: Arc<dyn Store>, fault: Fault, world: Arc<World>) -> Broken {
        Broken { inner, fault, grants: Arc::default(), world, _closing: None }
    }

    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    fn name(&self, name: &Name) -> Name {
        let text = name.as_str();
        let changed = match self.fault {
            Fault::NamesAreCut => text.chars().take(100).collect(),
            Fault::NamesAreFolded => text.to_lowercase(),
            _ => text.to_owned(),
        };
        Name::new(changed).expect("a name")
    }

    async fn holder(&self, name: &Name) -> Option<Holder> {
        self.inner.inspect(name.clone()).await.ok().and_then(|standing| standing.holder)
    }

    fn trust(&self, mut trust: Trust, ttl: Duration) -> Trust {
        match self.fault {
            Fault::SentIsTheReply => trust.sent = now(),
            Fault::NoMargin => trust.validity = ttl,
            _ => {}
        }
        trust
    }

    fn granted(&self, ask: &Ask, mut grant: Grant) -> Grant {
        grant.trust = self.trust(grant.trust, grant.ttl);
        let mut state = self.world.state();
        state.answers += 1;
        match self.fault {
            Fault::HalfTheTtl => {
                grant.ttl = ask.terms.ttl;
                grant.trust.validity = trusted_part(grant.ttl);
            }
            Fault::TtlAsAsked => grant.ttl = ask.terms.ttl,
            Fault::SentIsTheAcquire => grant.trust.sent = now(),
            Fault::TokensGoBack => grant.token = Token::from_u64(Token::LIMIT - grant.token.as_u64()),
            Fault::TokensPerClient => {
                grant.token = Token::from_u64(self.grants.fetch_add(1, Ordering::Relaxed));
            }
            Fault::TokenOfEachAnswer => grant.token = Token::from_u64(grant.token.as_u64() + state.answers),
            _ => {}
        }
        grant
    }

    async fn acquired(self, mut ask: Ask) -> Result<Answer> {
        let asked = ask.clone();
        ask.claim.name = self.name(&ask.claim.name);
        let holder = self.holder(&ask.claim.name).await.filter(|holder| holder.owner == ask.claim.owner);
        match self.fault {
            Fault::HalfTheTtl => ask.terms.ttl /= 2,
            Fault::HoldAtLeastIsIgnored => ask.terms.hold_at_least = Duration::ZERO,
            Fault::OneShotOnTheSession => ask.terms.one_shot = false,
            Fault::LabelsAreCut => {
                let label: String = ask.label.as_str().chars().take(100).collect();
                ask.label = Label::new(label)?;
            }
            Fault::OwnClaimIsBusy => {
                if let Some(holder) = holder {
                    let why = Why::Held(holder);
                    return Ok(Answer::Busy(Busy { why, waiting: 0, place: None, last_error: None }));
                }
            }
            Fault::EntryOfEachAsk if ask.queue => ask.claim.owner = Owner::fresh(),
            Fault::WaitersBarge if ask.queue => {
                ask.queue = false;
                self.world.state().waiting.insert(ask.claim.owner, ask.clone());
            }
            Fault::EntriesLiveForEver if ask.queue => self.world.state().entries.push(ask.claim.clone()),
            _ => {}
        }
        Ok(match self.inner.acquire(ask).await? {
            Answer::Granted(grant) => Answer::Granted(self.granted(&asked, grant)),
            Answer::Busy(Busy { why: Why::Held(holder), .. }) if self.is(Fault::BusyIsGranted) => {
                let trust = Trust { session: None, sent: now(), validity: trusted_part(asked.terms.ttl) };
                let token = holder.token;
                Answer::Granted(Grant { token, ttl: asked.terms.ttl, trust, handed_over: false })
            }
            Answer::Busy(mut busy) => {
                if let (Fault::HolderIsNameless, Why::Held(holder)) = (self.fault, &mut busy.why) {
                    holder.label = Label::new("")?;
                }
                if self.is(Fault::PlaceIsUnknown) {
                    busy.place = None;
                }
                Answer::Busy(busy)
            }
        })
    }

    async fn attended(self, entries: Vec<Claim>) -> Result<Vec<Attended>> {
        let mut answers = self.inner.attend(entries.clone()).await?;
        for (claim, answer) in entries.iter().zip(&mut answers) {
            let waits = self.world.state().waiting.get(&claim.owner).cloned();
            if let Some(ask) = waits {
                *answer = match self.inner.acquire(ask).await? {
                    Answer::Granted(grant) => Attended::Granted(Grant { handed_over: true, ..grant }),
                    Answer::Busy(busy) => Attended::Waiting(busy),
                };
            }
            if let (Fault::HolderIsNameless, Attended::Waiting(Busy { why: Why::Held(holder), .. })) =
                (self.fault, &mut *answer)
            {
                holder.label = Label::new("")?;
            }
            if let (Fault::GoneStillWaits, Attended::Gone) = (self.fault, &answer) {
                let busy = Busy { why: Why::Queued, waiting: 1, place: Some(1), last_error: None };
                *answer = Attended::Waiting(busy);
            }
            if let Attended::Granted(grant) = answer {
                let first = *self.world.state().handed.entry(claim.owner).or_insert_with(now);
                match self.fault {
                    Fault::HandOverIsFirm => {
                        self.inner.renew(vec![Renewal { claim: claim.clone(), ttl: grant.ttl }]).await?;
                    }
                    Fault::HandOverIsTrustedFromTheAnswer => grant.trust.sent = now(),
                    Fault::HandOverIsSlow if now() - first < Duration::from_millis(1_200) => {
                        let why = Why::Queued;
                        *answer =
                            Attended::Waiting(Busy { why, waiting: 1, place: Some(1), last_error: None });
                    }
                    _ => {}
                }
            }
        }
        Ok(answers)
    }

    async fn renewed(self, mut leases: Vec<Renewal>) -> Result<Renewed> {
        for lease in &mut leases {
            lease.claim.name = self.name(&lease.claim.name);
            match self.fault {
                Fault::RenewAdds => lease.ttl *= 2,
                Fault::RenewOfAnyOwner => {
                    if let Some(holder) = self.holder(&lease.claim.name).await {
                        lease.claim.owner = holder.owner;
                    }
                }
                _ => {}
            }
        }
        let holder = match leases.first() {
            Some(lease) => self.holder(&lease.claim.name).await.map(|holder| holder.owner),
            None => None,
        };
        let is_held = leases.first().is_some_and(|lease| holder == Some(lease.claim.owner));
        let is_handed_over = |lease: &Renewal| self.world.state().handed.contains_key(&lease.claim.owner);
        let is_unwritten = match self.fault {
            Fault::HandOverIsNeverFirm => leases.iter().all(is_handed_over),
            Fault::RenewIsNotWritten => is_held,
            _ => false,
        };
        if is_unwritten {
            let trust = |ttl| Trust { session: None, sent: now(), validity: trusted_part(ttl) };
            let outcomes = leases.iter().map(|lease| Outcome::Kept(trust(lease.ttl))).collect();
            return Ok(Renewed { outcomes, strays: Vec::new() });
        }
        let mut renewed = self.inner.renew(leases.clone()).await?;
        for (lease, outcome) in leases.iter().zip(&mut renewed.outcomes) {
            match outcome {
                Outcome::Kept(trust) => *trust = self.trust(*trust, lease.ttl),
                Outcome::Lost(_) if self.is(Fault::RenewRevives) => {
                    let label = Label::new("")?;
                    let ask =
                        Ask { claim: lease.claim.clone(), label, terms: Terms::of(lease.ttl), queue: false };
                    if let Answer::Granted(grant) = self.inner.acquire(ask).await? {
                        *outcome = Outcome::Kept(grant.trust);
                    }
                }
                _ => {}
            }
        }
        match self.fault {
            Fault::OutcomesOutOfOrder => renewed.outcomes.reverse(),
            Fault::StraysAreSilent => renewed.strays.clear(),
            _ => {}
        }
        Ok(renewed)
    }

    async fn released(self, mut claim: Claim, mut ending: Ending) -> Result<Released> {
        claim.name = self.name(&claim.name);
        let holder = self.holder(&claim.name).await;
        match (self.fault, holder) {
            (Fault::ReleaseOfAnyOwner, Some(holder)) => claim.owner = holder.owner,
            (Fault::ReleaseIsIgnored, _) if ending == Ending::Released => return Ok(Released::Released),
            (Fault::UndoIsIgnored, Some(_)) if ending == Ending::Undone => return Ok(Released::Released),
            (Fault::UndoKeepsBack, _) => ending = Ending::Released,
            (Fault::ReleaseAgainHitsTheNext, Some(holder)) => {
                let first = self.inner.release(claim.clone(), ending).await?;
                if let Released::Gone(_) = first {
                    self.inner.release(Claim { name: claim.name, owner: holder.owner }, ending).await?;
                }
                return Ok(first);
            }
            _ => {}
        }
        self.inner.release(claim, ending).await
    }

    async fn inspected(self, name: Name) -> Result<Standing> {
        let mut standing = self.inner.inspect(self.name(&name)).await?;
        if self.is(Fault::WaitersAreReversed) {
            standing.waiters.reverse();
        }
        if self.is(Fault::LapsedIsShown) {
            let mut state = self.world.state();
            match &standing.holder {
                Some(holder) => drop(state.holders.insert(name, holder.clone())),
                None => standing.holder = state.holders.get(&name).cloned(),
            }
        }
        Ok(standing)
    }

    async fn listed(self, prefix: String, after: Option<Name>) -> Result<Page> {
        let literal = match self.fault {
            Fault::PrefixIsAPattern => prefix.split('%').next().unwrap_or_default().to_owned(),
            Fault::PrefixEndsAtNul => prefix.split('\0').next().unwrap_or_default().to_owned(),
            _ => prefix.clone(),
        };
        let mut page = self.inner.list(literal, after).await?;
        while page.more && self.is(Fault::PagesWithoutEnd) {
            let last = page.names.last().map(|standing| standing.name.clone());
            let next = self.inner.list(prefix.clone(), last).await?;
            page.names.extend(next.names);
            page.more = next.more;
        }
        Ok(page)
    }

    async fn revoked(self, name: Name, mut token: Token, at_once: bool) -> Result<Revoked> {
        let holder = self.holder(&name).await;
        match (self.fault, holder) {
            (Fault::AnyTokenRevokes, Some(holder)) => token = holder.token,
            (Fault::MarkIsIgnored, Some(holder)) if !at_once => return Ok(Revoked::Marked(holder.left)),
            (Fault::MarkFrees, Some(holder)) if !at_once => {
                self.inner.revoke(name, token, true).await?;
                return Ok(Revoked::Marked(holder.left));
            }
            _ => {}
        }
        self.inner.revoke(name, token, at_once).await
    }

    /// What happens around every call.
    fn call<T: Send + 'static>(
        &self,
        is_renewal: bool,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Pending<T> {
        let broken = self.clone();
        Box::pin(async move {
            match broken.fault {
                Fault::DroppedCallLocks => {
                    if std::mem::replace(&mut broken.world.state().is_locked, true) {
                        return Err(Error::unavailable("a call that was dropped locked it"));
                    }
                    tokio::task::yield_now().await;
                    let answer = work.await;
                    broken.world.state().is_locked = false;
                    answer
                }
                Fault::SentIsTheReply => {
                    Clock::system().sleep(Duration::from_millis(1)).await;
                    work.await
                }
                Fault::RenewQueuesBehindWaiters => {
                    let _turn = broken.world.turn.lock().await;
                    if !is_renewal {
                        Clock::system().sleep(Duration::from_millis(5)).await;
                    }
                    work.await
                }
                Fault::EntriesLiveForEver => {
                    let entries = broken.world.state().entries.clone();
                    broken.inner.attend(entries).await?;
                    work.await
                }
                _ => work.await,
            }
        })
    }
}

impl Store for Broken {
    fn about(&self) -> About {
        self.inner.about()
    }

    fn handle(&self) -> Arc<dyn Store> {
        let closing = self.is(Fault::DroppedHandleCloses).then(|| Arc::new(Closing(self.inner.clone())));
        Arc::new(Broken { inner: self.inner.handle(), _closing: closing, ..self.clone() })
    }

    fn acquire(&self, ask: Ask) -> Pending<Answer> {
        self.call(false, self.clone().acquired(ask))
    }

    fn attend(&self, entries: Vec<Claim>) -> Pending<Vec<Attended>> {
        self.call(false, self.clone().attended(entries))
    }

    fn renew(&self, leases: Vec<Renewal>) -> Pending<Renewed> {
        self.call(true, self.clone().renewed(leases))
    }

    fn release(&self, claim: Claim, ending: Ending) -> Pending<Released> {
        self.call(false, self.clone().released(claim, ending))
    }

    fn inspect(&self, name: Name) -> Pending<Standing> {
        self.call(false, self.clone().inspected(name))
    }

    fn list(&self, prefix: String, after: Option<Name>) -> Pending<Page> {
        self.call(false, self.clone().listed(prefix, after))
    }

    fn revoke(&self, name: Name, token: Token, now: bool) -> Pending<Revoked> {
        self.call(false, self.clone().revoked(name, token, now))
    }

    fn events(&self) -> mpsc::Receiver<Hint> {
        let mut hints = self.inner.events();
        if !matches!(self.fault, Fault::HintsAreMixedUp | Fault::HandOverIsNeverFirm | Fault::HandOverIsSlow)
        {
            return hints;
        }
        let broken = self.clone();
        let (sender, receiver) = mpsc::channel(16);
        tokio::spawn(async move {
            while let Some(hint) = hints.recv().await {
                let told = match hint {
                    Hint::Granted(claim, grant) if broken.is(Fault::HintsAreMixedUp) => {
                        Hint::Granted(Claim::fresh(claim.name), grant)
                    }
                    Hint::Granted(..) if broken.is(Fault::HandOverIsSlow) => continue,
                    Hint::Granted(claim, grant) => {
                        broken.world.state().handed.insert(claim.owner, now());
                        Hint::Granted(claim, grant)
                    }
                    other => other,
                };
                if sender.send(told).await.is_err() {
                    return;
                }
            }
        });
        receiver
    }

    fn retire(&self, session: Session) {
        if !self.is(Fault::RetireIsIgnored) {
            self.inner.retire(session);
        }
    }

    fn liveness(&self) -> Pending<Option<OwnedFd>> {
        self.inner.liveness()
    }

    fn setup(&self, apply: bool) -> Pending<String> {
        self.inner.setup(apply)
    }

    fn examine(&self) -> Pending<Vec<Fact>> {
        self.inner.examine()
    }

    fn close(&self) -> Pending<()> {
        match self.fault {
            Fault::CloseKeepsSessions => Box::pin(async { Ok(()) }),
            _ => self.inner.close(),
        }
    }
}
