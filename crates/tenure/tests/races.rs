//! Races and rare orders of events between callers, the keeper and the store. Each test
//! has seen the fault that its name excludes.
#![cfg(feature = "conformance")]
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test that measures real time")]

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tenure::conformance::{Fault, Faults, Faulty, Verb};
use tenure::store::*;
use tenure::stores::memory::Memory;
use tenure::{Acquired, Claim, Client, Clock, ErrorKind, Event, Lease, Name, State, Token, Why};
use tokio::sync::mpsc;

const MS: Duration = Duration::from_millis(1);

async fn pause(time: Duration) {
    Clock::system().sleep(time).await;
}

/// A client whose calls can fail, and an honest rival, on one store.
fn pair(memory: Memory) -> (Client, Faults, Client) {
    let faulty = Faulty::new(memory.client(), Clock::system());
    let faults = faulty.faults();
    (Client::new(Arc::new(faulty)).unwrap(), faults, Client::new(memory.client()).unwrap())
}

async fn why(client: &Client, name: &str) -> Option<Why> {
    match client.lease(name).try_acquire().await.unwrap() {
        Acquired::Lease(_) => None,
        Acquired::Busy(busy) => Some(busy.why),
    }
}

async fn queued(client: &Client, name: &str) {
    let name = Name::new(name).unwrap();
    while client.inspect(&name).await.unwrap().waiting == 0 {
        pause(2 * MS).await;
    }
}

fn poll_once<F: Future + Unpin>(future: &mut F) -> std::task::Poll<F::Output> {
    std::pin::Pin::new(future).poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
}

/// A store whose hints come late, and whose `attend` can panic as it is called.
#[derive(Debug)]
struct Odd {
    inner: Arc<dyn Store>,
    hints_late: Duration,
    attend_panics: Arc<AtomicBool>,
}

impl Store for Odd {
    fn about(&self) -> About {
        self.inner.about()
    }
    fn handle(&self) -> Arc<dyn Store> {
        Arc::new(Odd {
            inner: self.inner.handle(),
            hints_late: self.hints_late,
            attend_panics: self.attend_panics.clone(),
        })
    }
    fn acquire(&self, ask: Ask) -> Pending<Answer> {
        self.inner.acquire(ask)
    }
    fn attend(&self, entries: Vec<Claim>) -> Pending<Vec<Attended>> {
        assert!(!self.attend_panics.swap(false, Ordering::SeqCst), "told to panic");
        self.inner.attend(entries)
    }
    fn renew(&self, leases: Vec<Renewal>) -> Pending<Renewed> {
        self.inner.renew(leases)
    }
    fn release(&self, claim: Claim, ending: Ending) -> Pending<Released> {
        self.inner.release(claim, ending)
    }
    fn inspect(&self, name: Name) -> Pending<Standing> {
        self.inner.inspect(name)
    }
    fn list(&self, prefix: String, after: Option<Name>) -> Pending<Page> {
        self.inner.list(prefix, after)
    }
    fn revoke(&self, name: Name, token: Token, now: bool) -> Pending<Revoked> {
        self.inner.revoke(name, token, now)
    }
    fn events(&self) -> mpsc::Receiver<Hint> {
        let (send, receive) = mpsc::channel(1024);
        let (mut inner, late) = (self.inner.events(), self.hints_late);
        tokio::spawn(async move {
            while let Some(hint) = inner.recv().await {
                pause(late).await;
                if send.send(hint).await.is_err() {
                    return;
                }
            }
        });
        receive
    }
    fn retire(&self, session: Session) {
        self.inner.retire(session);
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
        self.inner.close()
    }
}

/// C10, C13: `hold_at_most` is there so that a program that hangs cannot hold for ever.
#[tokio::test]
async fn a_lease_that_exceeded_its_limit_is_free_a_ttl_later_though_its_session_goes_on() {
    let (a, _, b) = pair(Memory::with_shared_sessions(Clock::system()));
    let _other = a.lease("other").ttl(500 * MS).acquire().await.unwrap();
    let hung = a.lease("x").ttl(500 * MS).hold_at_most(300 * MS).acquire().await.unwrap();
    hung.lost().await;
    pause(500 * MS + Duration::from_secs(1)).await;
    // The handle is still there, as in a program that hangs.
    assert!(hung.check().is_err());
    assert_eq!(why(&b, "x").await, None, "nobody holds it, and it is blocked for longer than a TTL");
}

/// C13: a release keeps the name back, also when a beat compares while it is under way.
#[tokio::test]
async fn a_comparison_during_a_slow_release_does_not_lift_hold_at_least() {
    let (a, faults, b) = pair(Memory::with_shared_sessions(Clock::system()));
    let other = a.lease("other").acquire().await.unwrap();
    let lease = a.lease("x").hold_at_least(Duration::from_secs(60)).acquire().await.unwrap();
    faults.set_next(1, Verb::Release, Fault::Slow(500 * MS));
    let release = tokio::spawn(lease.release());
    pause(50 * MS).await;
    other.confirm().await.unwrap();
    let released = release.await.unwrap().unwrap();
    assert!(matches!(why(&b, "x").await, Some(Why::KeptBack(_))), "hold_at_least was lifted");
    assert_eq!(released, Released::Released);
}

/// The same beat makes `run` report a loss of work that was done and released in time.
#[tokio::test]
async fn a_comparison_during_a_slow_release_is_no_loss() {
    let (a, faults, _) = pair(Memory::with_shared_sessions(Clock::system()));
    let other = a.lease("other").acquire().await.unwrap();
    faults.set_next(1, Verb::Release, Fault::Slow(500 * MS));
    let request = a.lease("x");
    let run = tokio::spawn(async move { request.run(async |_| 1).await });
    pause(50 * MS).await;
    other.confirm().await.unwrap();
    assert_eq!(run.await.unwrap().expect("the work was done under the lease"), 1);
}

/// C13: a grant is often told twice, by the attendance that brought it and by the hint.
#[tokio::test]
async fn a_grant_that_is_told_again_during_the_release_does_not_lift_hold_at_least() {
    let memory = Memory::new(Clock::system());
    let faulty = Faulty::new(memory.client(), Clock::system());
    let faults = faulty.faults();
    let odd = Odd {
        inner: Arc::new(faulty),
        hints_late: 100 * MS,
        attend_panics: Arc::new(AtomicBool::new(false)),
    };
    let a = Client::new(Arc::new(odd)).unwrap();
    let b = Client::new(memory.client()).unwrap();
    b.lease("x").hold_at_least(400 * MS).acquire().await.unwrap().release().await.unwrap();
    let lease = a.lease("x").hold_at_least(Duration::from_secs(60)).acquire().await.unwrap();
    faults.set_next(1, Verb::Release, Fault::Slow(600 * MS));
    let released = lease.release().await.unwrap();
    assert!(matches!(why(&b, "x").await, Some(Why::KeptBack(_))), "hold_at_least was lifted");
    assert_eq!(released, Released::Released);
}

/// C5: the grant of a caller that is not polled (its runtime is blocked, or it sits in a
/// `select!` whose other arm works) is nobody's; other leases keep its session alive.
#[tokio::test]
async fn a_grant_that_its_caller_does_not_fetch_blocks_the_name_for_a_ttl_at_most() {
    let (a, faults, b) = pair(Memory::with_shared_sessions(Clock::system()));
    let _other = a.lease("other").ttl(500 * MS).acquire().await.unwrap();
    faults.set_next(1, Verb::Acquire, Fault::ReplySlow(20 * MS));
    let request = a.lease("x").ttl(500 * MS);
    let mut asking = Box::pin(request.try_acquire());
    assert!(poll_once(&mut asking).is_pending());
    pause(500 * MS + Duration::from_secs(1)).await;
    assert_eq!(why(&b, "x").await, None, "blocked for three TTLs by a call that brings no lease");
    drop(asking);
}

/// C8: the keeper attends to the entries, whatever the callers do.
#[tokio::test]
async fn a_waiter_that_is_not_polled_as_its_first_question_is_answered_keeps_its_place() {
    for memory in [Memory::new(Clock::system()), Memory::with_shared_sessions(Clock::system())] {
        let (a, faults, b) = pair(memory);
        let held = b.lease("x").acquire().await.unwrap();
        let request = a.lease("x");
        faults.set_next(1, Verb::Acquire, Fault::ReplySlow(20 * MS));
        let mut first = Box::pin(request.acquire());
        assert!(poll_once(&mut first).is_pending());
        queued(&b, "x").await;
        let second = b.lease("x");
        let second = tokio::spawn(async move { second.acquire().await.unwrap().token() });
        // Twice the life of an entry that nobody attends to.
        pause(2 * ENTRY_LIFE).await;
        held.release().await.unwrap();
        pause(2 * ENTRY_LIFE).await;
        assert!(!second.is_finished(), "the one behind it was served");
        let first = first.await.unwrap();
        let token = first.token();
        first.release().await.unwrap();
        assert!(token < second.await.unwrap());
    }
}

/// C7: the name is not blocked by an `acquire` that nobody polls any more.
#[tokio::test]
async fn a_grant_of_acquire_that_its_caller_does_not_fetch_blocks_the_name_for_a_ttl_at_most() {
    let (a, faults, b) = pair(Memory::with_shared_sessions(Clock::system()));
    let _other = a.lease("other").ttl(500 * MS).acquire().await.unwrap();
    faults.set_next(1, Verb::Acquire, Fault::ReplySlow(20 * MS));
    let request = a.lease("x").ttl(500 * MS);
    let mut asking = Box::pin(request.acquire());
    assert!(poll_once(&mut asking).is_pending());
    pause(500 * MS + Duration::from_millis(1_500)).await;
    assert_eq!(why(&b, "x").await, None, "blocked by a call that brings no lease");
    drop(asking);
}

/// C13: "from a grant that reached its caller on, nobody else gets the name for this long,
/// whatever happens".
#[tokio::test]
async fn hold_at_least_stands_from_the_moment_that_the_caller_has_a_handed_over_lease() {
    let (a, faults, b) = pair(Memory::new(Clock::system()));
    let held = b.lease("x").acquire().await.unwrap();
    let request = a.lease("x").hold_at_least(Duration::from_secs(60));
    let waiter = tokio::spawn(async move { request.acquire().await });
    queued(&b, "x").await;
    faults.set(Verb::Renew, Fault::Fail);
    held.release().await.unwrap();
    // Bounded: to be given nothing is fine too.
    let Some(Ok(Ok(lease))) = Clock::system().timeout(Duration::from_secs(1), waiter).await else { return };
    assert!(lease.is_held());
    lease.lost().await;
    pause(200 * MS).await;
    assert!(why(&b, "x").await.is_some(), "its caller had it, and another has it within two seconds");
}

/// C11: `Unavailable` only when the store gave no answer at all.
#[tokio::test]
async fn a_waiter_that_was_told_busy_ends_with_busy_after_a_neighbour_was_served() {
    let (a, faults, b) = pair(Memory::new(Clock::system()));
    let held = b.lease("x").acquire().await.unwrap();
    let (one, two) = (a.lease("x"), a.lease("x"));
    let one = tokio::spawn(async move { one.acquire().await.unwrap() });
    queued(&b, "x").await;
    let two = tokio::spawn(async move { two.acquire_within(800 * MS).await });
    pause(300 * MS).await;
    faults.set(Verb::Acquire, Fault::Slow(Duration::from_secs(2)));
    held.release().await.unwrap();
    let _served = one.await.unwrap();
    let answer = two.await.unwrap();
    assert!(matches!(answer, Ok(Acquired::Busy(_))), "{answer:?}");
}

/// C7: dropping a lease never blocks. The program keeps its leases under a lock that its
/// observer takes for a moment too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_a_lease_waits_for_no_observer() {
    let leases = Arc::<Mutex<HashMap<&str, Lease>>>::default();
    let seen = leases.clone();
    let losing = Arc::new(AtomicBool::new(false));
    let is_losing = losing.clone();
    let clock = Clock::manual();
    let a = Client::builder()
        .clock(clock.clone())
        .observe(move |event| {
            if matches!(event, Event::Lost { .. }) {
                is_losing.store(true, Ordering::SeqCst);
                drop(seen.lock());
            }
        })
        .build(Memory::new(clock.clone()).client())
        .unwrap();
    for name in ["x", "y"] {
        let lease =
            a.lease(name).hold_at_most(Duration::from_secs(if name == "x" { 1 } else { 99 })).acquire().await;
        leases.lock().unwrap().insert(name, lease.unwrap());
    }
    let (done, dropped) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut leases = leases.lock().unwrap();
        clock.advance(Duration::from_secs(1));
        while !losing.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        drop(leases.remove("y"));
        done.send(()).unwrap();
    });
    assert!(
        dropped.recv_timeout(Duration::from_secs(5)).is_ok(),
        "deadlock: the keeper's thread is gone as well"
    );
}

/// C7: dropping a lease never panics and needs no runtime, inside one or not.
#[tokio::test]
async fn a_blocking_lease_may_be_dropped_inside_a_runtime() {
    let lease = std::thread::spawn(|| {
        tenure::blocking::Client::connect("memory:dropped-inside").unwrap().lease("x").acquire().unwrap()
    })
    .join()
    .unwrap();
    drop(lease);
}

/// C10, C11: times that do not fit are `Invalid`, however long.
#[tokio::test]
async fn a_grace_or_heartbeat_beyond_all_bounds_is_refused_without_a_panic() {
    let (a, ..) = pair(Memory::new(Clock::system()));
    for request in [a.lease("x").grace(Duration::MAX), a.lease("x").heartbeat(Duration::MAX)] {
        let answer = tokio::spawn(async move { request.try_acquire().await }).await;
        assert_eq!(answer.expect("no panic").expect_err("it does not fit").kind(), ErrorKind::Invalid);
    }
}

/// C11: no secret appears in an error.
#[tokio::test]
async fn an_option_that_is_wrongly_encoded_is_not_repeated() {
    let error =
        Client::connect("redis://host?password=hunter2%zz").await.expect_err("not encoded").to_string();
    assert!(!error.contains("hunter2"), "{error}");
}

/// C12: 10,000 clean-ups under way.
#[tokio::test]
async fn attempts_that_were_dropped_count_as_clean_ups() {
    let (a, faults, _) = pair(Memory::new(Clock::system()));
    for verb in [Verb::Acquire, Verb::Release] {
        faults.set(verb, Fault::Never);
    }
    let request = a.lease("x").ttl(6000 * MS).heartbeat(2000 * MS);
    for _ in 0..12_000 {
        assert!(poll_once(&mut Box::pin(request.try_acquire())).is_pending());
    }
    // Each release takes two seconds to be given up: all that were sent are under way.
    pause(Duration::from_secs(3)).await;
    assert!(faults.count(Verb::Release) <= 10_000, "{} clean-ups", faults.count(Verb::Release));
}

/// A panic of the store is an `Unavailable`, and the wait goes on.
#[tokio::test]
async fn a_store_that_panics_once_while_it_is_attended_does_not_hang_the_waiters() {
    let memory = Memory::new(Clock::system());
    let panics = Arc::new(AtomicBool::new(false));
    let odd = Odd { inner: memory.client(), hints_late: Duration::ZERO, attend_panics: panics.clone() };
    let (a, b) = (Client::new(Arc::new(odd)).unwrap(), Client::new(memory.client()).unwrap());
    let held = b.lease("x").acquire().await.unwrap();
    let request = a.lease("x");
    let waiter = tokio::spawn(async move { request.acquire().await });
    queued(&b, "x").await;
    panics.store(true, Ordering::SeqCst);
    pause(Duration::from_secs(1)).await;
    held.release().await.unwrap();
    let served = Clock::system().timeout(Duration::from_secs(5), waiter).await;
    assert!(served.is_some(), "nobody attends to the entries any more, for ever");
}

/// C1: a second client on one store object would take the leases of the first for strays.
#[tokio::test]
async fn a_store_object_has_one_client() {
    let memory = Memory::with_shared_sessions(Clock::system());
    let store = memory.client();
    let client = Client::new(store.clone()).unwrap();
    assert_eq!(Client::new(store.clone()).unwrap_err().kind(), ErrorKind::Invalid);
    client.close().await;
    drop(client);
    while Client::new(store.clone()).is_err() {
        pause(MS).await;
    }
}

/// C7: in a forked child a lease is not held, whoever is asked.
#[test]
#[allow(unsafe_code, reason = "a child between fork and exec")]
fn in_a_forked_child_the_state_of_a_lease_is_not_held() {
    use std::os::unix::process::CommandExt;
    let lease = tenure::blocking::Client::connect("memory:fork").unwrap().lease("x").acquire().unwrap();
    let lease = Arc::new(lease);
    let inherited = lease.clone();
    let mut command = std::process::Command::new("true");
    let told = move || match inherited.state() {
        State::Lost(_) => Ok(()),
        _ => Err(std::io::ErrorKind::Other.into()),
    };
    // SAFETY: the child reads a clock and a mutex that nobody holds.
    unsafe { command.pre_exec(told) };
    command.status().expect("the child says that it holds the lease");
}

/// What a hand-over inside a client costs does not grow with the tasks that wait there.
#[tokio::test]
async fn a_hand_over_inside_a_client_costs_the_same_however_many_wait() {
    let mut times = Vec::new();
    for tasks in [500_u32, 4_000] {
        let memory = Memory::new(Clock::system());
        let (a, b) = (Client::new(memory.client()).unwrap(), Client::new(memory.client()).unwrap());
        let held = b.lease("x").acquire().await.unwrap();
        let waiters: Vec<_> = (0..tasks)
            .map(|_| {
                let request = a.lease("x");
                tokio::spawn(async move { request.acquire().await.unwrap().release().await.unwrap() })
            })
            .collect();
        queued(&b, "x").await;
        let began = Instant::now();
        held.release().await.unwrap();
        for waiter in waiters {
            waiter.await.unwrap();
        }
        times.push(began.elapsed() / tasks);
    }
    assert!(times[1] < times[0] * 3, "per hand-over: {times:?} for 500 and 4,000 tasks");
}

/// C13: `close()` returns when what still works has lapsed, whatever became of a release.
#[tokio::test]
async fn closing_does_not_wait_for_a_release_that_nobody_polls() {
    let (a, faults, _) = pair(Memory::new(Clock::system()));
    let lease = a.lease("x").ttl(500 * MS).acquire().await.unwrap();
    faults.set(Verb::Release, Fault::Never);
    let mut release = Box::pin(lease.release());
    assert!(poll_once(&mut release).is_pending());
    let closed = Clock::system().timeout(Duration::from_secs(4), a.close()).await;
    assert!(closed.is_some(), "the lease lapsed seconds ago");
}

/// C7: nobody can wait any more, so nothing listens on: on this clock it would for ever.
#[tokio::test]
async fn a_client_that_was_dropped_leaves_its_store() {
    let clock = Clock::manual();
    let store: Arc<dyn Store> = Memory::new(clock.clone()).client();
    let client = Client::builder().clock(clock.clone()).build(store.clone()).unwrap();
    client.lease("x").acquire().await.unwrap().release().await.unwrap();
    // By then the driver has nothing to do.
    pause(50 * MS).await;
    drop(client);
    let ends = async {
        while Client::new(store.clone()).is_err() {
            pause(2 * MS).await;
        }
    };
    Clock::system().timeout(Duration::from_secs(10), ends).await.expect("it ends");
}
