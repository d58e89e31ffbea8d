//! What can be seen of the keeper only from inside the crate.

use crate::stores::memory::Memory;
use crate::{Client, Clock, ErrorKind, Reason};
use std::sync::Arc;
use std::time::Duration;

async fn eventually(what: &str, is: impl Fn() -> bool) {
    let clock = Clock::system();
    let patience = clock.now() + Duration::from_secs(20);
    while !is() {
        assert!(clock.now() < patience, "{what}: waited in vain");
        clock.sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn when_the_thread_breaks_every_holder_and_waiter_is_told() {
    let clock = Clock::manual();
    let memory = Memory::new(clock.clone());
    let client = Client::builder().clock(clock.clone()).build(memory.client()).expect("a client");
    let rival = Client::builder().clock(clock).build(memory.client()).expect("a client");
    let lease = client.lease("x").acquire().await.expect("free");
    let theirs = rival.lease("y").acquire().await.expect("free");
    let request = client.lease("y");
    let waiter = tokio::spawn(async move { request.acquire().await });
    let name = theirs.name().clone();
    while rival.inspect(&name).await.expect("an answer").waiting == 0 {
        tokio::task::yield_now().await;
    }
    client.keeper.break_down();
    assert!(!lease.is_held());
    assert_eq!(lease.lost().await.reason, Reason::Broken);
    assert_eq!(waiter.await.expect("no panic").expect_err("broken").kind(), ErrorKind::Closed);
    assert_eq!(client.lease("z").try_acquire().await.expect_err("broken").kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn the_thread_ends_with_the_last_handle() {
    let client = Client::new(Memory::new(Clock::system()).client()).expect("a client");
    let keeper = Arc::downgrade(&client.keeper);
    let lease = client.lease("x").acquire().await.expect("free");
    drop(client);
    assert!(lease.is_held() && keeper.upgrade().is_some(), "a lease is a handle");
    drop(lease);
    eventually("the keeper to end", || keeper.upgrade().is_none()).await;
}

#[tokio::test]
async fn clean_ups_beyond_the_limit_lapse_and_retire_their_session() {
    let store = Memory::with_shared_sessions(Clock::system());
    let client = Client::new(store.client()).expect("a client");
    let lease = client.lease("x").acquire().await.expect("free");
    client.keeper.pretend_cleanups(10_000);
    let name = lease.name().clone();
    drop(lease);
    let next = client.lease("y").acquire().await.expect("free");
    assert!(client.inspect(&name).await.expect("an answer").holder.is_some(), "it lapses");
    client.keeper.pretend_cleanups(0);
    assert!(next.is_held());
}
