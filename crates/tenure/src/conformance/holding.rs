//! A lease in the hands of a program: what its client makes of the store's answers.

use super::faulty::{Fault, Verb};
use super::kit::{Fixture, busy, granted, holder};
use crate::hold::lease::Lease;
use crate::keep::record::State;
use crate::store::{Released, Revoked};
use crate::words::error::{ErrorKind, Reason};
use std::sync::mpsc;

/// A silent store costs the lease, at the deadline that the last answer gave and no earlier.
pub(super) async fn c3_a_silent_store_costs_the_lease_at_its_deadline(f: Fixture) {
    let (desk, name) = (f.desk(&f.a), f.name("x"));
    let lease = desk.client.lease(&name).ttl(f.ttl).acquire().await.expect("granted");
    f.clock.sleep(f.ttl * 2).await;
    assert!(lease.is_held(), "it is renewed");
    busy(&f.b, &f.brief(&name)).await;
    desk.faults.set(Verb::Renew, Fault::Never);
    let loss = f.within(lease.ttl() + f.slack, "the loss", lease.lost()).await;
    assert_eq!(loss.reason, Reason::Expired);
    let late = loss.at - lease.deadline();
    assert!(loss.at >= lease.deadline() && late < f.slack, "{late:?} after the deadline");
    assert!(!lease.is_held() && matches!(lease.state(), State::Lost(_)));
    let token = f.after_lapse(&f.b, &f.brief(&name)).await.token;
    assert!(token > lease.token());
    desk.faults.clear();
    let again = lease.confirm().await.expect_err("what is lost does not come back");
    assert_eq!(again.loss().map(|loss| loss.reason), Some(Reason::Expired));
    f.until(f.slack, "the announcement", async || (desk.losses() > 0).then_some(())).await;
    f.clock.sleep(f.ttl / 10).await;
    assert_eq!(desk.losses(), 1, "it is announced once");
}

/// What a revocation says reaches whoever waits for the loss.
pub(super) async fn c3_a_revoked_holder_is_told_why(f: Fixture) {
    let (desk, name) = (f.desk(&f.a), f.name("x"));
    let lease = desk.client.lease(&name).ttl(f.ttl).acquire().await.expect("granted");
    let revoked = f.b.revoke(name.clone(), lease.token(), false).await.expect("revoke is answered");
    assert!(matches!(revoked, Revoked::Marked(_)), "{revoked:?}");
    let loss = f.within(f.ttl + f.slack, "the loss", lease.lost()).await;
    assert_eq!(loss.reason, Reason::Revoked);
    assert_eq!(lease.check().expect_err("lost").kind(), ErrorKind::Lost);
    f.until(f.slack, "the announcement", async || (desk.losses() > 0).then_some(())).await;
    f.clock.sleep(f.ttl / 10).await;
    assert_eq!(desk.losses(), 1, "it is announced once");
    lease.release().await.expect("release is answered");
    granted(&f.b, &f.ask(&name)).await;
}

/// Trouble that passes costs nothing.
pub(super) async fn c3_a_lease_at_risk_recovers(f: Fixture) {
    let (desk, name) = (f.desk(&f.a), f.name("x"));
    let ttl = f.ttl * 2;
    let lease = desk.client.lease(&name).ttl(ttl).acquire().await.expect("granted");
    desk.faults.set_next(1, Verb::Renew, Fault::Fail);
    let at_risk = async || matches!(lease.state(), State::AtRisk { last_error: Some(_), .. }).then_some(());
    f.until(ttl, "trouble", at_risk).await;
    assert!(lease.is_held(), "at risk is not lost");
    let calm = async || matches!(lease.state(), State::Held).then_some(());
    f.until(ttl, "calm", calm).await;
    f.clock.sleep(ttl).await;
    assert!(lease.is_held());
    busy(&f.b, &f.brief(&name)).await;
    assert_eq!(desk.losses(), 0);
}

/// `confirm` is an answer of the store, given just now.
pub(super) async fn c3_confirm_asks_the_store(f: Fixture) {
    let (desk, name) = (f.desk(&f.a), f.name("x"));
    let lease = desk.client.lease(&name).ttl(f.long()).acquire().await.expect("granted");
    let before = lease.deadline();
    lease.confirm().await.expect("held");
    assert!(lease.deadline() > before, "the deadline moved with the answer");
    desk.faults.set_next(1, Verb::Renew, Fault::Fail);
    let unknown = lease.confirm().await.expect_err("no answer");
    assert!(unknown.kind() == ErrorKind::Unavailable && lease.is_held(), "{unknown:?}");
    f.b.revoke(name, lease.token(), true).await.expect("revoke is answered");
    assert_eq!(lease.confirm().await.expect_err("revoked").kind(), ErrorKind::Lost);
}

/// Nothing that blocks the caller's threads keeps a lease from being renewed.
pub(super) async fn c10_a_blocked_caller_keeps_its_lease(f: Fixture) {
    let (desk, name) = (f.desk(&f.a), f.name("x"));
    let lease = desk.client.lease(&name).ttl(f.ttl).acquire().await.expect("granted");
    let (_never, blocked) = mpsc::channel::<()>();
    // The case's runtime has this thread alone.
    let _nothing = blocked.recv_timeout(f.ttl * 2);
    assert!(lease.is_held());
    busy(&f.b, &f.brief(&name)).await;
}

/// A hung program holds no longer than it said.
pub(super) async fn c13_hold_at_most_ends_a_lease(f: Fixture) {
    let (desk, name) = (f.desk(&f.a), f.name("x"));
    let most = f.ttl * 2;
    let began = f.now();
    let request = desk.client.lease(&name).ttl(f.ttl).hold_at_most(most);
    let lease = request.acquire().await.expect("granted");
    f.clock.sleep(most - f.ttl / 4).await;
    busy(&f.b, &f.brief(&name)).await;
    let loss = f.within(f.ttl, "the end", lease.lost()).await;
    assert_eq!(loss.reason, Reason::Exceeded);
    assert!(loss.at >= began + most && loss.at < began + most + f.slack);
    // Nobody renews it any more, whether or not its holder lets go.
    f.after_lapse(&f.b, &f.brief(&name)).await;
    drop(lease);
}

/// Closing tells holders and waiters, and returns when the work has stopped.
pub(super) async fn c13_close_tells_holders_and_waiters(f: Fixture) {
    let (desk, held, awaited) = (f.desk(&f.a), f.name("held"), f.name("awaited"));
    let lease = desk.client.lease(&held).ttl(f.long()).acquire().await.expect("granted");
    let elsewhere = f.ask(&awaited);
    granted(&f.b, &elsewhere).await;
    let request = desk.client.lease(&awaited);
    let waiter = tokio::spawn(async move { request.acquire().await });
    f.until_waiting(&awaited, 1, f.slack).await;
    let (client, lost) = (desk.client.clone(), lease.lost());
    let closing = tokio::spawn(async move { client.close().await });
    let refused = f.within(f.slack, "the waiter's end", waiter).await.expect("no panic");
    assert_eq!(refused.map(drop).expect_err("closed").kind(), ErrorKind::Closed);
    assert_eq!(f.within(f.slack, "the word", lost).await.reason, Reason::Closed);
    f.until_waiting(&awaited, 0, f.slack / 2).await;
    assert!(!closing.is_finished(), "it waits for the holder");
    assert_eq!(holder(&f.b, &held).await, Some(lease.owner()), "a holder that stops is not robbed");
    drop(lease);
    let lapsed = f.within(f.slack, "the end", closing).await.expect("no panic");
    assert!(lapsed.is_empty(), "{lapsed:?}");
    granted(&f.b, &f.ask(&held)).await;
    assert_eq!(holder(&f.b, &awaited).await, Some(elsewhere.claim.owner));
    let late = desk.client.lease(&held).try_acquire().await.map(drop);
    assert_eq!(late.expect_err("closed").kind(), ErrorKind::Closed);
}

/// What ends with a release is no loss.
pub(super) async fn c3_a_release_is_no_loss(f: Fixture) {
    let (desk, name) = (f.desk(&f.a), f.name("x"));
    let lease: Lease = desk.client.lease(&name).ttl(f.ttl).acquire().await.expect("granted");
    let lost = lease.lost();
    // Its last beat is under way as it is released.
    desk.faults.set(Verb::Renew, Fault::Slow(f.ttl / 10));
    f.clock.sleep(f.ttl / 3).await;
    assert_eq!(lease.release().await.expect("release is answered"), Released::Released);
    granted(&f.b, &f.ask(&name)).await;
    let silent = f.clock.timeout(f.ttl, lost).await;
    assert!(silent.is_none() && desk.losses() == 0, "{silent:?}");
}
