//! The life of a lease, on the memory store with a clock that the test moves and
//! faults that it sets.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::{Arc, Mutex};
use std::time::Duration;
use tenure::conformance::{Fault, Faults, Faulty, Verb};
use tenure::store::Released;
use tenure::stores::memory::Memory;
use tenure::{Acquired, Client, Clock, ErrorKind, Event, Lease, Name, Reason, State, Why};

/// Two clients of one store; the first one's calls can be made to fail.
struct Pair {
    clock: Clock,
    a: Client,
    faults: Faults,
    b: Client,
    /// What happened to the leases of the first.
    events: Arc<Mutex<Vec<Event>>>,
}

impl Pair {
    fn on(clock: Clock, memory: Memory) -> Pair {
        let faulty = Faulty::new(memory.client(), clock.clone());
        let (faults, events) = (faulty.faults(), Arc::<Mutex<Vec<Event>>>::default());
        let seen = events.clone();
        let a = Client::builder()
            .clock(clock.clone())
            .observe(move |event| seen.lock().unwrap().push(event.clone()))
            .build(Arc::new(faulty))
            .unwrap();
        let b = Client::builder().clock(clock.clone()).build(memory.client()).unwrap();
        Pair { clock, a, faults, b, events }
    }

    /// Each lease on its own, and all on one session.
    fn both() -> [Pair; 2] {
        let clock = Clock::manual();
        let each = Pair::on(clock.clone(), Memory::new(clock));
        let clock = Clock::manual();
        [each, Pair::on(clock.clone(), Memory::with_shared_sessions(clock))]
    }

    fn beats(&self) -> usize {
        let events = self.events.lock().unwrap();
        let beat = |event: &&Event| matches!(event, Event::Heartbeat { .. } | Event::HeartbeatFailed { .. });
        events.iter().filter(beat).count()
    }

    fn count(&self, wanted: impl Fn(&Event) -> bool) -> usize {
        self.events.lock().unwrap().iter().filter(|event| wanted(event)).count()
    }

    /// Moves the clock and waits for the beat that this brings.
    async fn beat_after(&self, duration: Duration) {
        let before = self.beats();
        self.clock.advance(duration);
        until("a beat", || self.beats() > before).await;
    }

    async fn refused(&self, name: &str) -> Why {
        match self.b.lease(name).try_acquire().await.unwrap() {
            Acquired::Busy(busy) => busy.why,
            Acquired::Lease(lease) => panic!("a second holder: {lease:?}"),
        }
    }

    async fn waits(&self, name: &str) {
        let name = Name::new(name).unwrap();
        until_async("an entry", async || self.b.inspect(&name).await.unwrap().waiting > 0).await;
    }

    async fn free(&self, name: &str) {
        let name = Name::new(name).unwrap();
        until_async("the name to be free", async || {
            let standing = self.b.inspect(&name).await.unwrap();
            standing.holder.is_none() && standing.waiting == 0
        })
        .await;
    }
}

/// Real time that no healthy run needs.
const PATIENCE: Duration = Duration::from_secs(20);

async fn until(what: &str, is: impl Fn() -> bool) {
    until_async(what, async || is()).await;
}

async fn until_async(what: &str, is: impl AsyncFn() -> bool) {
    within(what, async {
        while !is().await {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    let output = Clock::system().timeout(PATIENCE, work).await;
    output.unwrap_or_else(|| panic!("{what}: waited {PATIENCE:?} in vain"))
}

fn secs(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn reason(lease: &Lease) -> Reason {
    lease.check().unwrap_err().loss().unwrap().reason
}

#[tokio::test]
async fn a_lease_is_held_until_it_is_released() {
    for pair in Pair::both() {
        let lease = pair.a.lease("x").acquire().await.unwrap();
        assert!(lease.is_held());
        assert_eq!(lease.remaining(), secs(9.8));
        let Why::Held(holder) = pair.refused("x").await else { panic!("not held") };
        assert_eq!((holder.owner, holder.token), (lease.owner(), lease.token()));
        let first = lease.token();
        assert_eq!(lease.release().await.unwrap(), Released::Released);
        let lease = pair.b.lease("x").try_acquire().await.unwrap().lease().unwrap();
        assert!(lease.token() > first);
    }
}

#[tokio::test]
async fn a_lease_may_outlive_its_client() {
    for _ in 0..50 {
        for pair in Pair::both() {
            let lease = pair.a.lease("x").acquire().await.unwrap();
            drop(pair.a);
            assert!(lease.is_held());
            // Slow enough that a keeper that ended with the client would close the store first.
            pair.faults.set(Verb::Release, Fault::Slow(Duration::ZERO));
            assert_eq!(within("an answer", lease.release()).await.unwrap(), Released::Released);
        }
    }
}

#[tokio::test]
async fn it_is_renewed_for_as_long_as_it_is_held() {
    for pair in Pair::both() {
        let lease = pair.a.lease("x").acquire().await.unwrap();
        for _ in 0..10 {
            pair.beat_after(secs(3.4)).await;
            assert!(lease.is_held());
            assert!(matches!(pair.refused("x").await, Why::Held(_)));
        }
        assert!(matches!(lease.state(), State::Held));
        assert_eq!(pair.count(|event| matches!(event, Event::Lost { .. })), 0);
    }
}

#[tokio::test]
async fn a_dropped_lease_goes_to_the_next_waiter() {
    for pair in Pair::both() {
        let lease = pair.a.lease("x").acquire().await.unwrap();
        let request = pair.b.lease("x");
        let waiter = tokio::spawn(async move { request.acquire().await });
        pair.waits("x").await;
        assert!(matches!(pair.a.lease("x").try_acquire().await.unwrap(), Acquired::Busy(_)));
        drop(lease);
        let lease = within("the hand-over", waiter).await.unwrap().unwrap();
        assert!(lease.is_held());
    }
}

#[tokio::test]
async fn it_is_lost_at_its_deadline_when_the_store_is_silent() {
    for pair in Pair::both() {
        let lease = pair.a.lease("x").acquire().await.unwrap();
        let lost = tokio::spawn(lease.lost());
        pair.faults.set(Verb::Renew, Fault::Never);
        pair.clock.advance(secs(9.7));
        assert!(lease.is_held());
        assert!(matches!(lease.state(), State::AtRisk { .. }));
        assert!(!lost.is_finished());
        pair.clock.advance(secs(0.1));
        assert!(!lease.is_held(), "the deadline is exact, whatever the keeper does");
        assert_eq!(within("the announcement", lost).await.unwrap().reason, Reason::Expired);
        assert_eq!(pair.count(|event| matches!(event, Event::Lost { .. })), 1, "once");
        // The store keeps others out for a moment longer, then no more.
        assert!(matches!(pair.refused("x").await, Why::Held(_)));
        pair.clock.advance(secs(0.3));
        assert!(pair.b.lease("x").try_acquire().await.unwrap().lease().is_some());
    }
}

#[tokio::test]
async fn a_failed_renewal_is_tried_again_and_costs_nothing() {
    for pair in Pair::both() {
        let lease = pair.a.lease("x").acquire().await.unwrap();
        pair.faults.set_next(2, Verb::Renew, Fault::Fail);
        pair.beat_after(secs(3.4)).await;
        until("trouble", || matches!(lease.state(), State::AtRisk { last_error: Some(_), .. })).await;
        pair.beat_after(secs(0.6)).await;
        pair.beat_after(secs(0.6)).await;
        until("calm", || matches!(lease.state(), State::Held)).await;
        assert_eq!(lease.remaining(), secs(9.8));
    }
}

#[tokio::test]
async fn a_lost_answer_to_a_renewal_costs_nothing() {
    for pair in Pair::both() {
        let lease = pair.a.lease("x").acquire().await.unwrap();
        pair.faults.set_next(1, Verb::Renew, Fault::ReplyLost);
        pair.beat_after(secs(3.4)).await;
        pair.beat_after(secs(0.6)).await;
        until("calm", || matches!(lease.state(), State::Held)).await;
    }
}

#[tokio::test]
async fn a_confirmation_does_not_give_back_what_was_told_to_stop() {
    for pair in Pair::both() {
        let lease = pair.a.lease("x").grace(secs(2.0)).acquire().await.unwrap();
        let stopping = tokio::spawn(lease.stopping());
        pair.faults.set(Verb::Renew, Fault::Fail);
        pair.beat_after(secs(7.9)).await;
        within("the word", stopping).await.unwrap();
        assert!(matches!(lease.state(), State::Stopping { .. }));
        assert!(lease.is_held(), "until the deadline");
        pair.faults.clear();
        let deadline = lease.deadline();
        pair.beat_after(secs(0.6)).await;
        until("the store to know", || pair.count(|event| matches!(event, Event::Heartbeat { .. })) > 0).await;
        assert_eq!(lease.deadline(), deadline);
        pair.clock.advance(secs(1.4));
        assert!(!lease.is_held());
        assert_eq!(reason(&lease), Reason::Expired);
    }
}

#[tokio::test]
async fn what_the_store_says_is_lost_is_lost_at_once() {
    for pair in Pair::both() {
        let lease = pair.a.lease("x").acquire().await.unwrap();
        let lost = tokio::spawn(lease.lost());
        pair.b.revoke(lease.name(), lease.token(), true).await.unwrap();
        assert!(lease.is_held(), "until its next beat");
        pair.clock.advance(secs(3.4));
        assert_eq!(within("the loss", lost).await.unwrap().reason, Reason::Revoked);
        assert_eq!(reason(&lease), Reason::Revoked);
        assert!(matches!(lease.release().await.unwrap(), Released::Gone(Some(Reason::Revoked))));
    }
}

#[tokio::test]
async fn confirm_asks_the_store_now() {
    for pair in Pair::both() {
        let lease = pair.a.lease("x").acquire().await.unwrap();
        pair.clock.advance(secs(1.0));
        within("an answer", lease.confirm()).await.unwrap();
        assert_eq!(lease.remaining(), secs(9.8));
        pair.faults.set_next(1, Verb::Renew, Fault::Fail);
        assert_eq!(within("an answer", lease.confirm()).await.unwrap_err().kind(), ErrorKind::Unavailable);
        assert!(lease.is_held());
        pair.b.revoke(lease.name(), lease.token(), true).await.unwrap();
        assert_eq!(within("an answer", lease.confirm()).await.unwrap_err().kind(), ErrorKind::Lost);
    }
}

#[tokio::test]
async fn hold_at_most_ends_it() {
    for pair in Pair::both() {
        let lease = pair.a.lease("x").hold_at_most(secs(12.0)).acquire().await.unwrap();
        for _ in 0..3 {
            pair.beat_after(secs(3.4)).await;
        }
        assert!(lease.is_held());
        until("the cap to show", || lease.remaining() <= secs(1.8)).await;
        pair.clock.advance(secs(1.8));
        assert_eq!(reason(&lease), Reason::Exceeded);
        drop(lease);
        pair.free("x").await;
    }
}

#[tokio::test]
async fn hold_at_least_keeps_the_name_back_after_the_release() {
    for pair in Pair::both() {
        let lease = pair.a.lease("x").hold_at_least(secs(30.0)).acquire().await.unwrap();
        lease.release().await.unwrap();
        assert!(matches!(pair.refused("x").await, Why::KeptBack(left) if left > secs(29.0)));
        pair.clock.advance(secs(30.1));
        assert!(pair.b.lease("x").try_acquire().await.unwrap().lease().is_some());
    }
}

#[tokio::test]
async fn a_release_whose_answer_is_lost_is_a_release() {
    for pair in Pair::both() {
        let clock = Clock::system();
        drop(pair);
        let pair = Pair::on(clock.clone(), Memory::new(clock));
        let lease = pair.a.lease("x").acquire().await.unwrap();
        pair.faults.set_next(1, Verb::Release, Fault::ReplyLost);
        assert_eq!(within("an answer", lease.release()).await.unwrap(), Released::Released);
        pair.free("x").await;
    }
}

#[tokio::test]
async fn a_lost_answer_to_an_acquire_blocks_nobody() {
    for fault in [Fault::ReplyLost, Fault::Fail, Fault::Panic] {
        for pair in Pair::both() {
            pair.faults.set_next(1, Verb::Acquire, fault);
            let error = pair.a.lease("x").try_acquire().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{fault:?}");
            pair.free("x").await;
        }
    }
}

#[tokio::test]
async fn an_outage_is_waited_out() {
    let clock = Clock::system();
    let pair = Pair::on(clock.clone(), Memory::new(clock));
    pair.faults.set_next(3, Verb::Acquire, Fault::Fail);
    let lease = within("the lease", pair.a.lease("x").acquire()).await.unwrap();
    assert!(lease.is_held());
    assert!(
        pair.count(|event| matches!(event, Event::Waiting { busy, .. } if busy.last_error.is_some())) > 0
    );
}

#[tokio::test]
async fn acquire_within_says_what_it_knows() {
    let clock = Clock::system();
    let pair = Pair::on(clock.clone(), Memory::new(clock));
    let lease = pair.b.lease("x").acquire().await.unwrap();
    let waited = pair.a.lease("x").acquire_within(secs(0.2)).await.unwrap();
    let Acquired::Busy(busy) = waited else { panic!("two holders") };
    assert!(matches!(busy.why, Why::Held(holder) if holder.owner == lease.owner()));
    assert_eq!(busy.place, Some(1));
    pair.faults.set(Verb::Acquire, Fault::Fail);
    let error = pair.a.lease("y").acquire_within(secs(0.2)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    pair.faults.clear();
    lease.release().await.unwrap();
    pair.free("x").await;
}

#[tokio::test]
async fn an_answer_after_the_deadline_that_it_gives_counts_for_nothing() {
    for pair in Pair::both() {
        pair.faults.set_next(1, Verb::Acquire, Fault::ReplySlow(secs(3.0)));
        let request = pair.a.lease("x").ttl(secs(0.5)).heartbeat(secs(0.2));
        let attempt = tokio::spawn(async move { request.try_acquire().await });
        until("the call", || pair.faults.count(Verb::Acquire) > 0).await;
        pair.clock.advance(secs(3.1));
        assert_eq!(within("an answer", attempt).await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
        pair.free("x").await;
    }
}

#[tokio::test]
async fn closing_tells_every_holder_and_waits_for_them() {
    for pair in Pair::both() {
        let lease = pair.a.lease("x").acquire().await.unwrap();
        let stays = pair.a.lease("y").acquire().await.unwrap();
        let (lost, client) = (tokio::spawn(lease.lost()), pair.a.clone());
        let closing = tokio::spawn(async move { client.close().await });
        assert_eq!(within("the word", lost).await.unwrap().reason, Reason::Closed);
        assert!(!lease.is_held());
        assert!(!closing.is_finished());
        assert_eq!(pair.a.lease("z").try_acquire().await.unwrap_err().kind(), ErrorKind::Closed);
        drop(lease);
        pair.free("x").await;
        assert!(matches!(pair.refused("y").await, Why::Held(_)), "not released: it lapses");
        pair.clock.advance(secs(10.0));
        let lapsed = within("the close", closing).await.unwrap();
        assert_eq!(lapsed, [Name::new("y").unwrap()]);
        drop(stays);
        pair.free("y").await;
    }
}

#[tokio::test]
async fn run_stops_the_work_on_loss() {
    for pair in Pair::both() {
        let (clock, request) = (pair.clock.clone(), pair.a.lease("x"));
        pair.faults.set(Verb::Renew, Fault::Fail);
        let stopped = Arc::new(Mutex::new(false));
        let guard = Flag(stopped.clone());
        let run = tokio::spawn(async move {
            request
                .run(async move |lease| {
                    let _guard = guard;
                    assert!(lease.is_held());
                    std::future::pending::<()>().await;
                })
                .await
        });
        let name = Name::new("x").unwrap();
        until_async("the lease", async || pair.b.inspect(&name).await.unwrap().holder.is_some()).await;
        clock.advance(secs(9.8));
        let error = within("the loss", run).await.unwrap().unwrap_err();
        assert_eq!(error.loss().unwrap().reason, Reason::Expired);
        assert!(*stopped.lock().unwrap(), "the work was dropped");
        assert_eq!(pair.a.lease("y").run(async |_| 7).await.unwrap(), 7);
    }
}

struct Flag(Arc<Mutex<bool>>);

impl Drop for Flag {
    fn drop(&mut self) {
        *self.0.lock().unwrap() = true;
    }
}

#[tokio::test]
async fn an_observer_that_panics_harms_nobody() {
    let clock = Clock::manual();
    let memory = Memory::new(clock.clone());
    let a = Client::builder()
        .clock(clock.clone())
        .observe(|_| panic!("an observer's fault"))
        .build(memory.client())
        .unwrap();
    let lease = a.lease("x").acquire().await.unwrap();
    for _ in 0..10 {
        clock.advance(secs(3.4));
        until("a renewal", || lease.remaining() > secs(9.0)).await;
    }
    assert!(lease.is_held());
}

#[tokio::test]
async fn what_is_asked_for_is_checked() {
    let client = Client::connect("memory:").await.unwrap();
    let request = client.lease("x");
    let long = "n".repeat(513);
    for (what, wrong) in [
        ("name", client.lease("")),
        ("name", client.lease(&long)),
        ("U+000A", client.lease("a\nb")),
        ("TTL", request.clone().ttl(Duration::ZERO)),
        ("TTL", request.clone().ttl(Duration::from_millis(1))),
        ("TTL", request.clone().ttl(secs(86_401.0))),
        ("heartbeat", request.clone().heartbeat(secs(5.0))),
        ("heartbeat", request.clone().heartbeat(Duration::ZERO)),
        ("grace", request.clone().grace(secs(4.0))),
        ("hold_at_least", request.clone().hold_at_least(secs(32.0 * 86_400.0))),
        ("hold_at_most", request.clone().hold_at_most(secs(32.0 * 86_400.0))),
        ("hold_at_most", request.clone().hold_at_most(Duration::ZERO)),
    ] {
        let error = wrong.try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(what) && !error.to_string().contains('\n'), "{error}");
        assert_eq!(wrong.acquire().await.unwrap_err().kind(), ErrorKind::Invalid);
    }
    for url in ["", "leases.db", "carrier-pigeon:", "memory:?colour=red"] {
        assert_eq!(Client::connect(url).await.unwrap_err().kind(), ErrorKind::Invalid, "{url}");
    }
    let error = Client::connect("carrier-pigeon:").await.unwrap_err().to_string();
    assert!(error.contains("memory:") && error.contains("carrier-pigeon"), "{error}");
}

#[tokio::test]
async fn a_client_that_is_gone_leaves_nothing_of_its_store_behind() {
    let store = Memory::new(Clock::system()).client();
    let (handle, client) = (Arc::downgrade(&store), Client::new(store).unwrap());
    let lease = client.lease("x").acquire().await.unwrap();
    drop(client);
    assert!(lease.is_held(), "its leases outlive it");
    drop(lease);
    until("the keeper to end", || handle.upgrade().is_none()).await;
}
