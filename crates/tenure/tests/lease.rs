//! The life of a lease, on the memory store.

use std::sync::Arc;
use std::time::Duration;
use tenure::stores::memory::Memory;
use tenure::{Acquired, Client, Clock, ErrorKind, Event, Reason, State, Why};

const TTL: Duration = Duration::from_secs(10);

/// Two clients of one store on one clock that the test moves.
struct Pair {
    clock: Clock,
    a: Client,
    b: Client,
}

impl Pair {
    fn new() -> Pair {
        let clock = Clock::manual();
        let memory = Memory::new(clock.clone());
        let client = || Client::builder().clock(clock.clone()).build(memory.client()).expect("a client");
        Pair { a: client(), b: client(), clock }
    }
}

async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(20), work).await {
        Ok(output) => output,
        Err(_) => panic!("{what} took too long"),
    }
}

#[tokio::test]
async fn a_lease_is_held_until_it_is_released() {
    let Pair { a, b, .. } = Pair::new();
    let lease = a.lease("x").acquire().await.expect("free");
    assert!(lease.is_held());
    match b.lease("x").try_acquire().await.expect("an answer") {
        Acquired::Busy(busy) => {
            let Why::Held(holder) = busy.why else { panic!("{busy:?}") };
            assert_eq!((holder.owner, holder.token), (lease.owner(), lease.token()));
        }
        Acquired::Lease(lease) => panic!("two holders: {lease:?}"),
    }
    let first = lease.token();
    lease.release().await.expect("released");
    let lease = b.lease("x").try_acquire().await.expect("an answer").lease().expect("free");
    assert!(lease.token() > first);
}

#[tokio::test]
async fn a_waiter_is_handed_the_lease_when_it_is_dropped() {
    let Pair { a, b, .. } = Pair::new();
    let lease = a.lease("x").acquire().await.expect("free");
    let request = b.lease("x");
    let waiter = tokio::spawn(async move { request.acquire().await });
    within("the entry", async {
        while a.inspect(lease.name()).await.expect("an answer").waiting == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    drop(lease);
    let lease = within("the hand-over", waiter).await.expect("no panic").expect("granted");
    assert!(lease.is_held());
}
