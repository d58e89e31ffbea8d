//! C7, C9 and C10: dropped futures, sessions and the cost of a beat.

use super::kit::{Fixture, all, granted, kept, poll_once, queued, released};
use crate::store::{Ask, ENTRY_LIFE, Ending, Outcome, Pending, Renewal};
use crate::words::owner::Claim;
use std::task::Poll;

/// Futures polled once or never, and dropped.
pub(super) async fn c7_dropped_futures_leave_the_store_usable(f: Fixture) {
    for round in 0..200 {
        let ask = Ask { queue: true, ..f.brief(&f.name(&format!("{}", round % 5))) };
        let claim = ask.claim.clone();
        let renewal = Renewal { claim: claim.clone(), ttl: f.ttl };
        let is_polled = round % 3 != 0;
        forget(f.a.acquire(ask), is_polled).await;
        forget(f.a.attend(vec![claim.clone()]), is_polled).await;
        forget(f.a.renew(vec![renewal]), is_polled).await;
        forget(f.a.inspect(claim.name.clone()), is_polled).await;
        forget(f.a.list(f.prefix(), None), is_polled).await;
        if round % 2 == 0 {
            forget(f.a.release(claim, Ending::Undone), is_polled).await;
        }
    }
    // The store is usable, and what was granted or queued to nobody passes.
    granted(&f.a, &f.ask(&f.name("another"))).await;
    for number in 0..5 {
        let limit = f.ttl + ENTRY_LIFE + f.slack;
        f.in_time(&f.b, &f.ask(&f.name(&format!("{number}"))), limit).await;
    }
}

async fn forget<T>(mut question: Pending<T>, is_polled: bool) {
    if is_polled && let Poll::Ready(Err(error)) = poll_once(&mut question).await {
        panic!("a verb failed: {error:?}");
    }
}

pub(super) async fn c7_a_retired_session_gets_no_new_grants(f: Fixture) {
    let (one, other) = (f.ask(&f.name("one")), f.ask(&f.name("other")));
    let Some(session) = granted(&f.a, &one).await.trust.session else {
        // Each lease on its own: there is no session that could be used again.
        assert_eq!(granted(&f.a, &other).await.trust.session, None, "a store with and without sessions");
        return;
    };
    f.a.retire(session);
    let grant = granted(&f.a, &other).await;
    assert_ne!(grant.trust.session, Some(session), "a grant on a retired session");
    assert!(grant.trust.session.is_some(), "a store with and without sessions");
    let old = kept(&f.a, &one.claim, f.long()).await;
    assert_eq!(old.session, Some(session), "the session of the older lease");
    released(&f.a, &one.claim).await;
    kept(&f.a, &other.claim, f.long()).await;
}

pub(super) async fn c7_a_dropped_handle_harms_no_other(f: Fixture) {
    let handle = f.a.handle();
    let ask = f.ask(&f.name("x"));
    granted(&handle, &ask).await;
    drop(handle.events());
    drop(handle);
    kept(&f.a, &ask.claim, f.long()).await;
    released(&f.a, &ask.claim).await;
    granted(&f.b, &f.ask(&ask.claim.name)).await;
}

pub(super) async fn c9_close_frees_what_hung_on_the_sessions(f: Fixture) {
    let client = f.client().await;
    let probe = granted(&client, &f.brief(&f.name("probe"))).await;
    let has_session = probe.trust.session.is_some();
    // With a session it must not be the TTL that frees it.
    let held = if has_session { f.ask(&f.name("x")) } else { f.brief(&f.name("x")) };
    let wanted = f.ask(&held.claim.name);
    granted(&client, &held).await;
    queued(&f.b, &wanted).await;
    client.close().await.expect("close is answered");
    // A lease of its own lapses by its own TTL.
    let limit = if has_session { f.slack } else { f.ttl + f.slack };
    f.attended(&f.b, &wanted.claim, limit).await;
}

pub(super) async fn c10_512_renewals_have_each_its_own_outcome(f: Fixture) {
    let asks: Vec<_> = (0..64).map(|number| f.ask(&f.name(&format!("{number}")))).collect();
    for answer in all(asks.iter().map(|ask| f.a.acquire(ask.clone())).collect()).await {
        answer.expect("acquire is answered");
    }
    let stranger = f.ask(&f.name("foreign"));
    granted(&f.b, &stranger).await;
    let renewals: Vec<_> = (0..512)
        .map(|number| match number % 8 {
            0 => asks[number / 8].claim.clone(),
            1 => Claim::fresh(stranger.claim.name.clone()),
            _ => Claim::fresh(f.name(&format!("absent-{number}"))),
        })
        .map(|claim| Renewal { claim, ttl: f.long() })
        .collect();
    let outcomes = f.a.renew(renewals).await.expect("renew is answered").outcomes;
    assert_eq!(outcomes.len(), 512, "outcomes of 512 renewals");
    for (number, outcome) in outcomes.iter().enumerate() {
        let is_right = match outcome {
            Outcome::Kept(_) => number % 8 == 0,
            Outcome::Lost(_) => number % 8 != 0,
            Outcome::Unknown(_) => false,
        };
        assert!(is_right, "outcome {number}: {outcome:?}");
    }
}

pub(super) async fn c10_waiters_do_not_delay_a_renewal(f: Fixture) {
    let held = f.ask(&f.name("x"));
    granted(&f.a, &held).await;
    let beats = f.a.handle();
    let asks: Vec<_> = (0..200).map(|_| Ask { queue: true, ..f.ask(&held.claim.name) }).collect();
    let waiting = all(asks.into_iter().map(|ask| f.a.acquire(ask)).collect());
    let beating = async {
        for _ in 0..5 {
            let limit = f.ttl / 3;
            let beat = f.clock.timeout(limit, kept(&beats, &held.claim, f.long())).await;
            assert!(beat.is_some(), "a renewal beside 200 waiters: not within {limit:?}");
            tokio::task::yield_now().await;
        }
    };
    let (answers, ()) = tokio::join!(waiting, beating);
    for answer in answers {
        answer.expect("acquire is answered");
    }
}
