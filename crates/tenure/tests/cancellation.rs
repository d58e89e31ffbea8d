//! C7 as a product: each verb of the library, each thing that can become of the
//! store call below it, and its caller dropped at every poll. Afterwards nothing is
//! held or queued, long before the TTL could have tidied up.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test")]

#[path = "support/rounds.rs"]
mod rounds;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tenure::conformance::{Fault, Faults, Faulty, Verb};
use tenure::stores::memory::Memory;
use tenure::{Client, Clock, Lease, Name};
use tokio::task::JoinSet;

/// Long, so that only a clean-up can free a name in time.
const TTL: Duration = Duration::from_secs(60);
const CALL_LIMIT: Duration = Duration::from_millis(100);
const IN_TIME: Duration = Duration::from_secs(15);

const FAULTS: [Fault; 7] = [
    Fault::Ok,
    Fault::Fail,
    Fault::Slow(Duration::from_millis(30)),
    Fault::ReplySlow(Duration::from_millis(30)),
    Fault::Never,
    Fault::ReplyLost,
    Fault::ReplyNever,
];

/// What a caller does; its last future is the one that is dropped.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Caller {
    TryAcquire,
    Acquire,
    /// While another client holds the name and releases it meanwhile.
    AcquireHeld,
    AcquireWithin,
    Confirm,
    Release,
    Run,
    Close,
}

const CALLERS: [(Caller, &[Verb]); 8] = [
    (Caller::TryAcquire, &[Verb::Acquire]),
    (Caller::Acquire, &[Verb::Acquire]),
    (Caller::AcquireHeld, &[Verb::Acquire, Verb::Attend]),
    (Caller::AcquireWithin, &[Verb::Acquire]),
    (Caller::Confirm, &[Verb::Renew]),
    (Caller::Release, &[Verb::Release]),
    (Caller::Run, &[Verb::Acquire, Verb::Renew, Verb::Release]),
    (Caller::Close, &[Verb::Release, Verb::Close]),
];

struct Scene {
    memory: Memory,
    client: Client,
    faults: Faults,
    name: Name,
}

impl Scene {
    fn new(memory: &Memory, name: &str) -> Scene {
        let faulty = Faulty::new(memory.client(), Clock::system());
        let faults = faulty.faults();
        let client = Client::new(Arc::new(faulty)).unwrap();
        Scene { memory: memory.clone(), client, faults, name: Name::new(name).unwrap() }
    }

    fn request(&self) -> tenure::Request {
        self.client.lease(&self.name).ttl(TTL).heartbeat(CALL_LIMIT)
    }

    /// Plays it with the caller dropped after `polls` polls; tells whether it
    /// would have needed more.
    async fn play(&self, caller: Caller, verb: Verb, fault: Fault, polls: usize) -> bool {
        let rival = Client::new(self.memory.client()).unwrap();
        let held = match caller {
            Caller::AcquireHeld => Some(rival.lease(&self.name).ttl(TTL).acquire().await.unwrap()),
            _ => None,
        };
        let lease = match caller {
            Caller::Confirm | Caller::Release | Caller::Close => {
                Some(self.request().acquire().await.unwrap())
            }
            _ => None,
        };
        self.faults.set(verb, fault);
        let request = self.request();
        let releases = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(40)).await;
            drop(held);
        });
        let unfinished = {
            let mut work: Pin<Box<dyn Future<Output = Option<Lease>> + '_>> = match caller {
                Caller::TryAcquire => {
                    Box::pin(async { request.try_acquire().await.ok().and_then(|acquired| acquired.lease()) })
                }
                Caller::Acquire | Caller::AcquireHeld => Box::pin(async { request.acquire().await.ok() }),
                Caller::AcquireWithin => Box::pin(async {
                    request.acquire_within(CALL_LIMIT * 3).await.ok().and_then(|acquired| acquired.lease())
                }),
                Caller::Confirm => Box::pin(async {
                    let lease = lease.unwrap();
                    let _ = lease.confirm().await;
                    Some(lease)
                }),
                Caller::Release => Box::pin(async {
                    let _ = lease.unwrap().release().await;
                    None
                }),
                Caller::Run => Box::pin(async {
                    let _ = request.run(async |lease| lease.confirm().await).await;
                    None
                }),
                Caller::Close => Box::pin(async {
                    drop(lease);
                    self.client.close().await;
                    None
                }),
            };
            poll_times(&mut work, polls).await
        };
        self.faults.clear();
        releases.await.unwrap();
        unfinished
    }

    /// Nothing is held and nothing waits.
    async fn is_tidy(&self, what: &str) {
        let rival = Client::new(self.memory.client()).unwrap();
        let began = std::time::Instant::now();
        loop {
            let standing = rival.inspect(&self.name).await.unwrap();
            if standing.holder.is_none() && standing.waiting == 0 {
                return;
            }
            assert!(began.elapsed() < IN_TIME, "{what}: {standing:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Polls at most `times`, each time after a wake-up; drops an output at once. Gives
/// up where a caller would hang for ever.
async fn poll_times<T>(work: &mut Pin<Box<dyn Future<Output = T> + '_>>, times: usize) -> bool {
    let limit = tokio::time::sleep(Duration::from_secs(2));
    let mut limit = std::pin::pin!(limit);
    let mut polls = 0;
    std::future::poll_fn(|cx: &mut Context<'_>| {
        if polls == times {
            return Poll::Ready(true);
        }
        polls += 1;
        if work.as_mut().poll(cx).is_ready() {
            return Poll::Ready(false);
        }
        if limit.as_mut().poll(cx).is_ready() { Poll::Ready(false) } else { Poll::Pending }
    })
    .await
}

async fn product(memory: Memory, kind: &'static str) {
    let mut plays = JoinSet::new();
    for (caller, verbs) in CALLERS {
        for verb in verbs {
            for fault in FAULTS {
                let memory = memory.clone();
                // Futures of one play are polled by hand and need not be Send.
                plays.spawn_local(async move {
                    let mut count = 0;
                    for polls in 0.. {
                        let what =
                            format!("{kind}: {caller:?}, {verb:?} {fault:?}, dropped after {polls} polls");
                        let scene = Scene::new(&memory, &what.replace(' ', "-"));
                        let unfinished = scene.play(caller, *verb, fault, polls).await;
                        scene.is_tidy(&what).await;
                        count += 1;
                        if !unfinished || polls == 12 {
                            return count;
                        }
                    }
                    count
                });
            }
        }
    }
    let combinations = plays.len();
    let drops: usize = plays.join_all().await.into_iter().sum();
    println!("{kind}: {combinations} combinations, {drops} drops");
    assert!(drops >= 3 * combinations, "callers were dropped at several polls each");
}

#[test]
fn whoever_is_dropped_leaves_nothing_held_or_queued() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        tokio::join!(
            product(Memory::new(Clock::system()), "memory"),
            product(Memory::with_shared_sessions(Clock::system()), "shared"),
        );
    });
}

/// An acquire raced with a timer at random instants: never a lease without an owner.
#[test]
fn acquire_raced_with_a_timer_leaves_nothing_behind() {
    let rounds = rounds::rounds(300, 1_000);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        for memory in [Memory::new(Clock::system()), Memory::with_shared_sessions(Clock::system())] {
            let (a, b) = (Scene::new(&memory, "raced"), Scene::new(&memory, "raced"));
            let mut granted = 0;
            for round in 0..rounds {
                let holder = a.request().acquire().await.unwrap();
                let (request, patience) = (b.request(), Duration::from_micros(u64::from(round % 50) * 40));
                let waiter =
                    tokio::spawn(async move { tokio::time::timeout(patience, request.acquire()).await });
                tokio::time::sleep(patience / 2).await;
                drop(holder);
                granted += u32::from(waiter.await.unwrap().is_ok_and(|lease| lease.is_ok()));
                a.is_tidy("after a race").await;
            }
            println!("{granted} of {rounds} were granted in time");
            assert!(granted > 0 && granted < rounds, "the timer must win some and lose some");
        }
    });
}
