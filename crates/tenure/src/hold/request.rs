//! A request for a lease: what is wanted, and the ways to get it.

use super::lease::Lease;
use super::waiting::{Rooms, Wants};
use crate::keep::keeper::{Unsettled, guarded};
use crate::keep::record::{Record, Timing};
use crate::store::{Answer, Ending, Pending, Terms, trusted_part};
use crate::words::busy::{Busy, Why};
use crate::words::error::{Error, ErrorKind, Result};
use crate::words::name::Name;
use crate::words::owner::{Claim, Label};
use std::sync::Arc;
use std::time::Duration;

/// C12: the longest `hold_at_least` and `hold_at_most`.
const LONGEST_HOLD: Duration = Duration::from_secs(31 * 24 * 3600);
/// What a lease lives by when nothing else is said (C10).
pub(crate) const DEFAULT_TTL: Duration = Duration::from_secs(10);

/// What is wanted. Cheap to clone; nothing happens until one of its verbs is called.
#[derive(Debug, Clone)]
#[must_use = "a request does nothing until one of its verbs is called"]
pub struct Request {
    pub(crate) client: super::client::Client,
    pub(crate) name: Result<Name>,
    pub(crate) label: Label,
    pub(crate) ttl: Duration,
    pub(crate) heartbeat: Option<Duration>,
    pub(crate) grace: Duration,
    pub(crate) hold_at_least: Duration,
    pub(crate) hold_at_most: Option<Duration>,
}

/// A lease, or why there is none (C11).
#[derive(Debug)]
#[must_use = "a lease is released as soon as it is dropped"]
pub enum Acquired {
    /// It is yours.
    Lease(Lease),
    /// It is not, and why.
    Busy(Busy),
}

impl Acquired {
    /// The lease, if there is one.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tenure::Result<()> {
    /// # let client = tenure::Client::connect("memory:").await?;
    /// let Some(lease) = client.lease("nightly").try_acquire().await?.lease() else { return Ok(()) };
    /// # drop(lease); Ok(())
    /// # }
    /// ```
    pub fn lease(self) -> Option<Lease> {
        match self {
            Acquired::Lease(lease) => Some(lease),
            Acquired::Busy(_) => None,
        }
    }
}

impl Request {
    /// How long the store keeps the lease after it last heard from us: 500 ms to
    /// 24 h, narrowed by the store and rounded up to its unit. Default 10 s.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How often the lease is renewed. Default: TTL / 3 (ZooKeeper: TTL / 6).
    pub fn heartbeat(mut self, every: Duration) -> Self {
        self.heartbeat = Some(every);
        self
    }

    /// The time before the deadline that is kept for stopping the work. Default 0.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// C13: from the grant on nobody else gets the name for this long, whatever
    /// happens; for short jobs that must not run twice although the clocks of
    /// their machines differ. At most 31 days.
    pub fn hold_at_least(mut self, duration: Duration) -> Self {
        self.hold_at_least = duration;
        self
    }

    /// Stop renewing and announce [`Reason::Exceeded`](crate::Reason::Exceeded)
    /// this long after the grant, so that a hung process cannot hold for ever. At
    /// most 31 days. Default: no such limit.
    pub fn hold_at_most(mut self, duration: Duration) -> Self {
        self.hold_at_most = Some(duration);
        self
    }

    /// What people call this acquisition. Default: the client's label.
    pub fn label(mut self, label: Label) -> Self {
        self.label = label;
        self
    }

    /// Asks once.
    ///
    /// # Errors
    /// `Invalid` for a name or times out of range; `Unavailable` when the store
    /// gives no answer; `Rejected`, `Closed`. Contention is no error.
    ///
    /// # Cancel safety
    /// Dropped at any point, what it brought is undone in the background.
    pub async fn try_acquire(&self) -> Result<Acquired> {
        let wants = self.wants()?;
        let keeper = &self.client.keeper;
        keeper.open()?;
        let began = keeper.clock.now();
        let claim = Claim::fresh(wants.name.clone());
        let unsettled = keeper.unsettled(claim.owner, &wants.timing);
        let call = guarded(|| keeper.store.acquire(wants.ask(claim.clone(), false)));
        let mut attempt = Attempt { unsettled, claim, timing: wants.timing, call: Some(call) };
        match attempt.answer(wants.timing.call_limit()).await? {
            Answer::Busy(busy) => Ok(Acquired::Busy(busy)),
            Answer::Granted(grant) => {
                let now = keeper.clock.now();
                let record = Arc::new(Record::new(attempt.claim.clone(), &grant, wants.timing, now));
                // What came too late, or was not fetched for so long that it was undone, is no lease.
                if grant.trust.deadline() <= now || !keeper.keep(&record, wants.first_renewal(&grant)) {
                    let (claim, session) = (record.claim.clone(), grant.trust.session);
                    keeper.discard(claim, Ending::Undone, session, wants.timing);
                    return Err(Error::unavailable(
                        "the store's answer came, or was fetched, after the lease that it gave had ended",
                    ));
                }
                Ok(Acquired::Lease(Lease::handed_out(keeper.clone(), record, began)))
            }
        }
    }

    /// Waits for the lease, for as long as it takes; an outage of the store is
    /// waited out like a holder. First come, first served (C8).
    ///
    /// # Errors
    /// As for [`try_acquire`](Request::try_acquire), without `Unavailable`.
    ///
    /// # Cancel safety
    /// Dropped at any point, it leaves the queue, and what it brought passes to
    /// the next task of this client or is undone in the background.
    pub async fn acquire(&self) -> Result<Lease> {
        let wants = self.wants()?;
        self.rooms().acquire(&mut None, &wants).await
    }

    /// Waits for the lease for at most `limit`.
    ///
    /// # Errors
    /// As for [`try_acquire`](Request::try_acquire); `Unavailable` only when the
    /// store gave no answer at all.
    ///
    /// # Cancel safety
    /// As for [`acquire`](Request::acquire).
    pub async fn acquire_within(&self, limit: Duration) -> Result<Acquired> {
        if limit.is_zero() {
            return self.try_acquire().await;
        }
        let wants = self.wants()?;
        let mut seat = None;
        let waited = self.client.keeper.clock.timeout(limit, self.rooms().acquire(&mut seat, &wants)).await;
        match waited {
            Some(lease) => lease.map(Acquired::Lease),
            None => match seat.as_ref().and_then(|seat| seat.last()) {
                Some(Busy { why: Why::Queued, waiting: 0, place: None, last_error: Some(error) }) => {
                    Err(error)
                }
                Some(busy) => Ok(Acquired::Busy(busy)),
                None => Err(Error::unavailable(format!("the store gave no answer within {limit:.1?}"))),
            },
        }
    }

    /// Waits for the lease, runs `work` while it is held, and releases it. On
    /// loss `work` is dropped where it stands.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tenure::Result<()> {
    /// # let client = tenure::Client::connect("memory:").await?;
    /// let sum = client.lease("sum").run(async |lease| {
    ///     lease.check()?;
    ///     Ok::<_, tenure::Error>(1 + 1)
    /// }).await??;
    /// assert_eq!(sum, 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`acquire`](Request::acquire); `Lost` when the lease was lost before
    /// `work` had ended, or the release showed that it had been taken or revoked.
    /// A release that got no answer is no error: the lease lapses.
    ///
    /// # Cancel safety
    /// Dropped, it drops `work` and releases.
    pub async fn run<T>(&self, work: impl AsyncFnOnce(&Lease) -> T) -> Result<T> {
        let lease = self.acquire().await?;
        let lost = lease.lost();
        let output = tokio::select! {
            biased;
            loss = lost => return Err(loss.into()),
            output = work(&lease) => output,
        };
        lease.check()?;
        lease.finish().await.map(|()| output)
    }

    fn rooms(&self) -> &Arc<Rooms> {
        &self.client.rooms
    }

    /// What is wanted, checked.
    pub(crate) fn wants(&self) -> Result<Wants> {
        let about = self.client.keeper.store.about();
        let ttl = rounded_up(self.ttl, about.ttl_unit);
        if ttl < about.min_ttl || ttl > about.max_ttl {
            return Err(Error::invalid(format!(
                "the TTL {} is out of range: {} allows {} to {}",
                text(self.ttl),
                about.kind,
                text(about.min_ttl),
                text(about.max_ttl)
            )));
        }
        for (what, duration) in
            [("hold_at_least", self.hold_at_least), ("hold_at_most", self.hold_at_most.unwrap_or_default())]
        {
            if duration > LONGEST_HOLD {
                return Err(Error::invalid(format!(
                    "{what} {} is out of range: at most 31d",
                    text(duration)
                )));
            }
        }
        if let Some(limit) = self.hold_at_most.filter(|limit| *limit <= self.grace) {
            return Err(Error::invalid(format!(
                "hold_at_most {} leaves no time to work before the grace of {} begins: give more, or a shorter grace",
                text(limit),
                text(self.grace)
            )));
        }
        let heartbeat = self.heartbeat.unwrap_or(ttl / about.beats_per_ttl);
        let validity = trusted_part(ttl);
        if heartbeat < Duration::from_millis(10)
            || validity < self.grace.saturating_add(heartbeat.saturating_mul(2))
        {
            return Err(Error::invalid(format!(
                "a heartbeat of {} and a grace of {} do not fit a TTL of {}: 10ms is the shortest heartbeat, and two \
                 heartbeats and the grace must fit into {}, the part of the TTL that can be trusted",
                text(heartbeat),
                text(self.grace),
                text(ttl),
                text(validity)
            )));
        }
        Ok(Wants {
            name: self.name.clone()?,
            label: self.label.clone(),
            terms: Terms { ttl, hold_at_least: self.hold_at_least, one_shot: false },
            timing: Timing { ttl, heartbeat, grace: self.grace, limit: self.hold_at_most },
        })
    }
}

/// Durations as people write them: `10s`, `1m30s`, `250ms`.
fn text(duration: Duration) -> String {
    crate::words::text::duration(duration)
}

fn rounded_up(ttl: Duration, unit: Duration) -> Duration {
    let (ttl, unit) = (ttl.as_nanos(), unit.as_nanos().max(1));
    let rounded = ttl.div_ceil(unit) * unit;
    Duration::from_nanos(rounded.try_into().unwrap_or(u64::MAX))
}

/// One question whose grant cannot be lost: dropped while it is under way, it is
/// finished and undone in the background (C7).
struct Attempt {
    claim: Claim,
    timing: Timing,
    call: Option<Pending<Answer>>,
    /// Until the keeper has the lease, its claim is no stray.
    unsettled: Unsettled,
}

impl Attempt {
    async fn answer(&mut self, limit: Duration) -> Result<Answer> {
        let answer = self.unsettled.keeper().bounded_in(limit, &mut self.call).await;
        let unknown = answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unavailable);
        if unknown && self.call.is_none() {
            self.unsettled.keeper().discard(self.claim.clone(), Ending::Undone, None, self.timing);
        }
        answer
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.unsettled.keeper().adopt(call, self.claim.clone(), self.timing);
        }
    }
}
