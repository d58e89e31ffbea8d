//! One-shot claims through the library: the verbs of scripts.
#![allow(clippy::disallowed_methods, reason = "measures real time")]

use std::time::{Duration, Instant};
use tenure::store::{Answer, Released};
use tenure::{Client, ErrorKind, OneShot, Owner, Reason};

const TTL: Duration = Duration::from_secs(2);
const BOUND: Duration = Duration::from_secs(10);

/// Two clients of one store, for each store that has one-shot claims.
async fn stores(test: impl AsyncFn(Client, Client)) {
    let directory = tempfile::tempdir().expect("a directory");
    let file = format!("sqlite:{}", directory.path().join("leases.db").display());
    let memory = format!("memory:{}", Owner::fresh());
    let shared = format!("memory:{}?session=shared", Owner::fresh());
    for url in [file, memory, shared] {
        let connect = async || Client::connect(&url).await.expect("a store");
        test(connect().await, connect().await).await;
    }
}

fn claim(client: &Client, owner: Owner) -> OneShot {
    client.lease("x").ttl(TTL).one_shot(owner)
}

#[track_caller]
fn granted(answer: tenure::Result<Answer>) -> tenure::Token {
    match answer.expect("an answer") {
        Answer::Granted(grant) => {
            assert!(!grant.handed_over, "it stands on a TTL of its own");
            grant.token
        }
        Answer::Busy(busy) => panic!("busy: {busy}"),
    }
}

#[tokio::test]
async fn any_client_with_the_owner_repeats_renews_and_releases() {
    stores(async |one, other| {
        let owner = Owner::fresh();
        let token = granted(claim(&one, owner).try_acquire().await);
        one.close().await;
        assert_eq!(granted(claim(&other, owner).try_acquire().await), token);
        let trust = claim(&other, owner).renew().await.expect("it is held");
        assert!(trust.validity <= TTL && trust.validity > TTL / 2);
        assert!(matches!(claim(&other, Owner::fresh()).try_acquire().await, Ok(Answer::Busy(_))));
        let stranger = claim(&other, Owner::fresh());
        let error = stranger.renew().await.expect_err("it is another's");
        assert_eq!(error.kind(), ErrorKind::Lost);
        assert!(matches!(stranger.release().await, Ok(Released::Gone(None))));
        assert_eq!(claim(&other, owner).release().await.expect("an answer"), Released::Released);
        assert!(matches!(claim(&other, owner).release().await, Ok(Released::Gone(_))));
        // C6: not acquired again.
        assert!(claim(&other, owner).renew().await.is_err());
        assert!(granted(claim(&other, Owner::fresh()).try_acquire().await) > token);
    })
    .await;
}

#[tokio::test]
async fn a_waiter_is_granted_at_the_release_and_lives_on_without_its_client() {
    stores(async |one, other| {
        let lease = one.lease("x").acquire().await.expect("a lease");
        let owner = Owner::fresh();
        let waiting = claim(&other, owner);
        let waiter = tokio::spawn(async move { waiting.acquire().await });
        let began = Instant::now();
        while one.inspect(lease.name()).await.expect("an answer").waiting == 0 {
            assert!(began.elapsed() < BOUND, "nobody waits");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let token = lease.token();
        lease.release().await.expect("an answer");
        let grant = tokio::time::timeout(BOUND, waiter).await.expect("in time").expect("no panic");
        let grant = grant.expect("granted");
        assert!(grant.token > token && grant.trust.validity > TTL / 2, "{grant:?}");
        other.close().await;
        assert_eq!(granted(claim(&one, owner).try_acquire().await), grant.token, "it outlived its client");
    })
    .await;
}

#[tokio::test]
async fn who_stops_waiting_leaves_the_queue() {
    stores(async |one, other| {
        let lease = one.lease("x").acquire().await.expect("a lease");
        let busy = claim(&other, Owner::fresh()).acquire_within(Duration::from_millis(300)).await;
        let Ok(Answer::Busy(busy)) = busy else { panic!("{busy:?}") };
        assert_eq!(busy.place, Some(1), "{busy:?}");
        let dropped =
            tokio::time::timeout(Duration::from_millis(300), claim(&other, Owner::fresh()).acquire()).await;
        assert!(dropped.is_err());
        let began = Instant::now();
        while one.inspect(lease.name()).await.expect("an answer").waiting > 0 {
            // Sooner than its entry would die by itself.
            assert!(began.elapsed() < Duration::from_secs(1), "it still waits");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        lease.release().await.expect("an answer");
        granted(claim(&one, Owner::fresh()).try_acquire().await);
    })
    .await;
}

#[tokio::test]
async fn it_ends_with_its_ttl_and_by_revocation() {
    stores(async |one, other| {
        let owner = Owner::fresh();
        let short = one.lease("x").ttl(Duration::from_millis(500)).one_shot(owner);
        granted(short.try_acquire().await);
        let began = Instant::now();
        let next = claim(&other, Owner::fresh());
        granted(next.acquire_within(BOUND).await);
        assert!(
            began.elapsed() > Duration::from_millis(400) && began.elapsed() < BOUND,
            "{:?}",
            began.elapsed()
        );
        let loss = short.renew().await.expect_err("it ended");
        assert_eq!(loss.kind(), ErrorKind::Lost);

        let standing = one.inspect(&"x".parse().expect("a name")).await.expect("an answer");
        let holder = standing.holder.expect("a holder");
        one.revoke(&standing.name, holder.token, false).await.expect("an answer");
        let loss = next.renew().await.expect_err("it was revoked");
        assert_eq!(loss.loss().map(|loss| loss.reason), Some(Reason::Revoked));
    })
    .await;
}

#[tokio::test]
async fn what_does_not_fit_is_invalid() {
    stores(async |one, _| {
        for wrong in [
            one.lease("").one_shot(Owner::fresh()),
            one.lease("x").ttl(Duration::from_millis(1)).one_shot(Owner::fresh()),
            one.lease("x").hold_at_least(Duration::from_secs(40 * 86_400)).one_shot(Owner::fresh()),
        ] {
            for answer in [wrong.try_acquire().await, wrong.acquire_within(Duration::from_secs(1)).await] {
                assert_eq!(answer.expect_err("it does not fit").kind(), ErrorKind::Invalid);
            }
            assert_eq!(wrong.renew().await.expect_err("it does not fit").kind(), ErrorKind::Invalid);
        }
        assert!(one.setup(false).await.is_ok() && one.setup(true).await.is_ok());
        one.close().await;
        let closed = claim(&one, Owner::fresh()).try_acquire().await;
        assert_eq!(closed.expect_err("it was closed").kind(), ErrorKind::Closed);
    })
    .await;
}
