//! One-shot claims (C13): for scripts whose steps are processes of their own. No process
//! keeps such a claim alive: it ends by its release, or when its TTL has passed.

use crate::hold::request::Request;
use crate::hold::waiting::Wants;
use crate::keep::keeper::{Keeper, Unsettled, guarded};
use crate::keep::record::Timing;
use crate::store::{
    Answer, Ask, Attended, ENTRY_LIFE, Ending, Grant, Hint, Outcome, Pending, Released, Renewal, Trust,
};
use crate::words::busy::{Busy, Why};
use crate::words::error::{Error, ErrorKind, Loss, Reason, Result};
use crate::words::event::Event;
use crate::words::owner::{Claim, Owner};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Between two attempts to reach a store that does not answer: at first, and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// How long a release is tried.
const FAREWELL: Duration = Duration::from_secs(5);

impl Request {
    /// The same request as a one-shot claim of `owner`, which nothing renews by itself: its
    /// TTL is all the time there is until [`OneShot::renew`]. Heartbeat, grace and
    /// `hold_at_most` mean nothing for it.
    ///
    /// `owner` is the identity of this acquisition and of no other: whoever knows it can
    /// renew and release the claim, from another process too.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tenure::Result<()> {
    /// use tenure::{Client, Owner, store::Answer};
    /// let client = Client::connect("memory:one-shot").await?;
    /// let claim = client.lease("migration").one_shot(Owner::fresh());
    /// let Answer::Granted(grant) = claim.try_acquire().await? else { return Ok(()) };
    /// println!("token {}", grant.token);
    /// claim.renew().await?; // before the TTL has passed
    /// claim.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn one_shot(self, owner: Owner) -> OneShot {
        OneShot { request: self, owner }
    }
}

/// A claim that lives without a process (C13). Made by [`Request::one_shot`].
///
/// Every verb may be repeated with the same owner, by another process too, and gives the
/// same answer (C5).
#[derive(Debug, Clone)]
#[must_use = "a claim does nothing until one of its verbs is called"]
pub struct OneShot {
    request: Request,
    owner: Owner,
}

impl OneShot {
    /// Asks once. The present holder of the claim is granted it again, with the same token
    /// and a whole TTL.
    ///
    /// # Errors
    /// `Invalid` for a name or times out of range, `Unsupported` where the store has no such
    /// claims, `Unavailable`, `Rejected`, `Closed`. Contention is no error.
    ///
    /// # Cancel safety
    /// Dropped, or without an answer, it may or may not have been granted: repeat it with the
    /// same owner, or release. It is not undone, since this owner may have held it before; left
    /// alone it lapses after its TTL.
    pub async fn try_acquire(&self) -> Result<Answer> {
        Asking::new(self)?.ask(false).await
    }

    /// Waits for it, first come, first served, through outages of the store too.
    ///
    /// A client is one waiter; use one for each claim that waits, as the command line does.
    ///
    /// # Errors
    /// As for [`try_acquire`](OneShot::try_acquire), without `Unavailable`.
    ///
    /// # Cancel safety
    /// Dropped, it leaves the queue, and what the wait brought is undone in the background.
    /// Before the store's first answer as for [`try_acquire`](OneShot::try_acquire).
    pub async fn acquire(&self) -> Result<Grant> {
        let mut asking = Asking::new(self)?;
        let grant = asking.wait().await?;
        asking.is_settled = true;
        Ok(grant)
    }

    /// Waits for it for at most `limit`.
    ///
    /// # Errors
    /// As for [`try_acquire`](OneShot::try_acquire); `Unavailable` only when the store gave
    /// no answer at all.
    ///
    /// # Cancel safety
    /// As for [`acquire`](OneShot::acquire).
    pub async fn acquire_within(&self, limit: Duration) -> Result<Answer> {
        if limit.is_zero() {
            return self.try_acquire().await;
        }
        let mut asking = Asking::new(self)?;
        let clock = asking.keeper().clock.clone();
        match clock.timeout(limit, asking.wait()).await {
            Some(grant) => {
                let grant = grant?;
                asking.is_settled = true;
                Ok(Answer::Granted(grant))
            }
            None => match asking.last.take() {
                Some(Busy { why: Why::Queued, waiting: 0, place: None, last_error: Some(error) }) => {
                    Err(error)
                }
                Some(busy) => Ok(Answer::Busy(busy)),
                None => Err(Error::unavailable(format!("the store gave no answer within {limit:.1?}"))),
            },
        }
    }

    /// Sets the time left to the TTL of this request; tells until when the claim may be trusted.
    ///
    /// # Errors
    /// `Lost`, with the reason, when the claim is not held (any more), and nothing was
    /// changed then (C6); `Unavailable` when the store gave no answer; `Rejected`, `Closed`.
    ///
    /// # Cancel safety
    /// Dropped, it may or may not have been renewed.
    pub async fn renew(&self) -> Result<Trust> {
        let (wants, keeper) = (self.request.wants()?, &self.request.client.keeper);
        keeper.open()?;
        let renewal = Renewal { claim: self.claim(&wants), ttl: wants.terms.ttl };
        let call = guarded(|| keeper.waiting.renew(vec![renewal]));
        let renewed = keeper.bounded(wants.timing.call_limit(), call).await?;
        match renewed.outcomes.into_iter().next() {
            Some(Outcome::Kept(trust)) => Ok(trust),
            Some(Outcome::Lost(reason)) => Err(Loss::new(reason, keeper.clock.now(), None).into()),
            Some(Outcome::Unknown(error)) => Err(error),
            None => Err(Error::unavailable("the store gave no answer for this claim")),
        }
    }

    /// Gives the claim up, whether it holds or waits; tried for 5 s when the store does not
    /// answer. Twice is fine.
    ///
    /// # Errors
    /// `Unavailable` when the store gave no answer: the claim may be released, or lapses;
    /// `Rejected`, `Closed`.
    ///
    /// # Cancel safety
    /// Dropped, it may or may not have been released.
    pub async fn release(&self) -> Result<Released> {
        let (wants, keeper) = (self.request.wants()?, &self.request.client.keeper);
        keeper.open()?;
        let until = keeper.clock.now() + FAREWELL;
        let mut is_repeated = false;
        loop {
            let call = guarded(|| keeper.waiting.release(self.claim(&wants), Ending::Released));
            let error = match keeper.bounded(until - keeper.clock.now(), call).await {
                // C6: it ended by the attempt whose answer was lost.
                Ok(Released::Gone(None | Some(Reason::Vanished))) if is_repeated => {
                    return Ok(Released::Released);
                }
                Ok(released) => return Ok(released),
                Err(error) => error,
            };
            if error.kind() != ErrorKind::Unavailable || keeper.clock.now() + RETRY.1 >= until {
                return Err(error);
            }
            is_repeated = true;
            keeper.clock.sleep(RETRY.0).await;
        }
    }

    fn claim(&self, wants: &Wants) -> Claim {
        Claim { name: wants.name.clone(), owner: self.owner }
    }
}

/// A question that is under way. What a wait brought is undone when it is dropped before it is
/// settled (C7).
struct Asking {
    ask: Ask,
    timing: Timing,
    unsettled: Unsettled,
    call: Option<Pending<Answer>>,
    last: Option<Busy>,
    /// The store said that this owner does not hold it: what it holds later was brought by this wait.
    is_new: bool,
    is_settled: bool,
}

impl Asking {
    fn new(one_shot: &OneShot) -> Result<Asking> {
        let wants = one_shot.request.wants()?;
        let keeper = &one_shot.request.client.keeper;
        keeper.open()?;
        let mut ask = wants.ask(one_shot.claim(&wants), false);
        ask.terms.one_shot = true;
        let unsettled = keeper.unsettled(ask.claim.owner, &wants.timing);
        let (timing, call, last) = (wants.timing, None, None);
        Ok(Asking { ask, timing, unsettled, call, last, is_new: false, is_settled: false })
    }

    fn keeper(&self) -> &Arc<Keeper> {
        self.unsettled.keeper()
    }

    async fn ask(&mut self, queue: bool) -> Result<Answer> {
        let keeper = self.keeper().clone();
        self.call = Some(guarded(|| keeper.waiting.acquire(Ask { queue, ..self.ask.clone() })));
        keeper.bounded_in(self.timing.call_limit(), &mut self.call).await
    }

    /// Stands in the queue. The owner stays the same when the entry has to be registered anew:
    /// a grant is believed when a renewal of it was confirmed, so an old one harms nobody.
    async fn wait(&mut self) -> Result<Grant> {
        let keeper = self.keeper().clone();
        let mut pause = RETRY.0;
        let mut hints = None;
        loop {
            let error = match self.ask(true).await {
                Ok(Answer::Granted(grant)) if !grant.handed_over => return Ok(grant),
                Ok(Answer::Granted(grant)) => match self.confirm(grant).await? {
                    Some(grant) => return Ok(grant),
                    None => continue,
                },
                Ok(Answer::Busy(busy)) => {
                    pause = RETRY.0;
                    self.is_new = true;
                    self.tell(busy);
                    match self.stand(&mut hints).await {
                        Ok(Some(grant)) => return Ok(grant),
                        Ok(None) => continue,
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
            if error.kind() != ErrorKind::Unavailable {
                return Err(error);
            }
            let silent = Busy { why: Why::Queued, waiting: 0, place: None, last_error: None };
            let last = self.last.take().unwrap_or(silent);
            self.tell(Busy { last_error: Some(error), ..last });
            keeper.clock.sleep(pause).await;
            pause = (pause * 2).min(RETRY.1);
        }
    }

    /// Attends to the entry until it is granted; `None` when it is gone.
    async fn stand(&mut self, hints: &mut Option<mpsc::Receiver<Hint>>) -> Result<Option<Grant>> {
        let keeper = self.keeper().clone();
        let claim = self.ask.claim.clone();
        if hints.is_none() {
            *hints = Some(keeper.waiting.events());
        }
        loop {
            // What was granted before anybody listened is found by looking.
            let call = guarded(|| keeper.waiting.attend(vec![claim.clone()]));
            let attended = keeper.bounded(self.timing.call_limit().min(ENTRY_LIFE), call).await?;
            match attended.into_iter().next() {
                Some(Attended::Waiting(busy)) => self.tell(busy),
                Some(Attended::Granted(grant)) => return self.confirm(grant).await,
                Some(Attended::Unknown(error)) => return Err(error),
                Some(Attended::Gone) | None => return Ok(None),
            }
            let hinted = async {
                while let Some(hint) = hints.as_mut()?.recv().await {
                    let is_ours = match &hint {
                        Hint::Granted(granted, _) => *granted == claim,
                        Hint::Look(name) => *name == claim.name,
                        Hint::LookAll => true,
                    };
                    if is_ours {
                        return Some(());
                    }
                }
                None
            };
            let heard = keeper.clock.timeout(ENTRY_LIFE / 3, hinted).await;
            if heard == Some(None) {
                // The store stopped listening; not again at once, lest it spin.
                *hints = None;
                keeper.clock.sleep(ENTRY_LIFE / 3).await;
                *hints = Some(keeper.waiting.events());
            }
        }
    }

    /// Moves a grant from the rest of the entry's life to a TTL of its own.
    async fn confirm(&mut self, grant: Grant) -> Result<Option<Grant>> {
        let keeper = self.keeper().clone();
        while keeper.clock.now() < grant.trust.deadline() {
            let renewal = Renewal { claim: self.ask.claim.clone(), ttl: self.ask.terms.ttl };
            let call = guarded(|| keeper.waiting.renew(vec![renewal]));
            let renewed = keeper.bounded(self.timing.call_limit(), call).await;
            match renewed.map(|renewed| renewed.outcomes.into_iter().next()) {
                Ok(Some(Outcome::Kept(trust))) => {
                    return Ok(Some(Grant { trust, ttl: self.ask.terms.ttl, handed_over: false, ..grant }));
                }
                Ok(Some(Outcome::Lost(_))) => return Ok(None),
                Err(error) if error.kind() != ErrorKind::Unavailable => return Err(error),
                Ok(_) | Err(_) => keeper.clock.sleep(RETRY.0).await,
            }
        }
        Ok(None)
    }

    fn tell(&mut self, busy: Busy) {
        let event = Event::Waiting { name: self.ask.claim.name.clone(), busy: busy.clone() };
        self.last = Some(busy);
        self.keeper().events.emit(&event);
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if self.is_settled || !self.is_new {
            return;
        }
        let (keeper, claim) = (self.unsettled.keeper(), self.ask.claim.clone());
        match self.call.take() {
            Some(call) => keeper.adopt(call, claim, self.timing),
            None => keeper.discard(claim, Ending::Undone, None, self.timing),
        }
    }
}
