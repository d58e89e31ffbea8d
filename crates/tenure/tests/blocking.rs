//! The flavour without an async runtime.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tenure::blocking::{Acquired, Client};
use tenure::store::Released;
use tenure::{ErrorKind, Reason, Token, Why};

#[test]
fn verbs_block_and_threads_take_turns() {
    let client = Client::connect("memory:blocking").expect("a client");
    let (inside, turns) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let lease = client.lease("turn").acquire().expect("a lease");
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two inside");
                    lease.check().expect("held");
                    turns.fetch_add(1, Ordering::SeqCst);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    assert_eq!(lease.release().expect("an answer"), Released::Released);
                }
            });
        }
    });
    assert_eq!(turns.into_inner(), 160);
    assert_eq!(client.close(), []);
    assert_eq!(client.lease("x").try_acquire().expect_err("closed").kind(), ErrorKind::Closed);
}

#[test]
fn contention_loss_and_confirmation_are_told() {
    let client = Client::connect("memory:told").expect("a client");
    let other = Client::connect("memory:told").expect("a client");
    let lease = client.lease("x").ttl(Duration::from_millis(500)).acquire().expect("a lease");
    for busy in [other.lease("x").try_acquire(), other.lease("x").acquire_within(Duration::from_millis(50))] {
        let Acquired::Busy(busy) = busy.expect("an answer") else { panic!("two holders") };
        assert!(matches!(busy.why, Why::Held(holder) if holder.token == lease.token()));
    }
    lease.confirm().expect("held");
    assert!(lease.token() > Token::from_u64(0) && lease.is_held());
    // Another takes it away: the next beat tells.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let operator = runtime.block_on(tenure::Client::connect("memory:told")).expect("a client");
    runtime.block_on(operator.revoke(lease.name(), lease.token(), true)).expect("an answer");
    assert_eq!(lease.wait_lost().reason, Reason::Revoked);
    let next = other.lease("x").acquire().expect("free");
    drop(lease);
    assert!(next.is_held());
}
