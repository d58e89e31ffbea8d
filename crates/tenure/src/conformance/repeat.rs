//! C5 and C6: every verb can be repeated, and none does what it is not for.

use super::kit::{Fixture, all, attend, busy, end, granted, holder, kept, lost, queued, released};
use crate::store::{Answer, Attended, Ending, Released, Renewal};
use crate::words::error::Reason;
use crate::words::owner::Claim;

pub(super) async fn c5_acquire_again_gives_the_same_token(f: Fixture) {
    let ask = f.ask(&f.name("x"));
    let grant = granted(&f.a, &ask).await;
    for client in [f.a.clone(), f.a.handle()] {
        let again = granted(&client, &ask).await;
        assert_eq!(again.token, grant.token, "the token of the same claim");
        assert_eq!(again.ttl, grant.ttl, "the TTL of the same claim");
        assert_eq!(again.trust.session, grant.trust.session, "the session of the same claim");
    }
    kept(&f.a, &ask.claim, f.long()).await;
    released(&f.a, &ask.claim).await;
    granted(&f.b, &f.ask(&ask.claim.name)).await;
}

pub(super) async fn c5_racing_acquires_of_one_claim_agree(f: Fixture) {
    let ask = f.ask(&f.name("x"));
    let handle = f.a.handle();
    let questions = (0..16).map(|n| if n % 2 == 0 { &f.a } else { &handle }.acquire(ask.clone())).collect();
    let tokens = all(questions).await.into_iter().map(|answer| match answer {
        Ok(Answer::Granted(grant)) => grant.token,
        other => panic!("its own claim was answered {other:?}"),
    });
    let tokens: std::collections::BTreeSet<_> = tokens.collect();
    assert_eq!(tokens.len(), 1, "tokens of one claim: {tokens:?}");
}

pub(super) async fn c5_queueing_again_keeps_one_entry(f: Fixture) {
    let (held, wanted) = (f.ask(&f.name("x")), f.ask(&f.name("x")));
    granted(&f.a, &held).await;
    for _ in 0..3 {
        let busy = queued(&f.b, &wanted).await;
        assert_eq!((busy.waiting, busy.place), (1, Some(1)), "number and place of the only entry");
    }
    released(&f.b, &wanted.claim).await;
    let busy = busy(&f.b, &f.ask(&held.claim.name)).await;
    assert_eq!((busy.waiting, busy.place), (0, None), "number and place when it has left");
}

pub(super) async fn c5_release_again_is_harmless(f: Fixture) {
    let ask = f.ask(&f.name("x"));
    granted(&f.a, &ask).await;
    released(&f.a, &ask.claim).await;
    gone(end(&f.a, &ask.claim, Ending::Released).await);
    let successor = f.ask(&ask.claim.name);
    let grant = granted(&f.b, &successor).await;
    gone(end(&f.a, &ask.claim, Ending::Released).await);
    gone(end(&f.a, &ask.claim, Ending::Undone).await);
    assert_eq!(granted(&f.b, &successor).await.token, grant.token, "the successor's token");
}

pub(super) async fn c5_release_again_does_not_advance_the_queue_twice(f: Fixture) {
    let (held, first, second) = (f.ask(&f.name("x")), f.ask(&f.name("x")), f.ask(&f.name("x")));
    granted(&f.a, &held).await;
    queued(&f.b, &first).await;
    queued(&f.b, &second).await;
    released(&f.a, &held.claim).await;
    gone(end(&f.a, &held.claim, Ending::Released).await);
    f.attended(&f.b, &first.claim, f.slack).await;
    kept(&f.b, &first.claim, f.long()).await;
    match attend(&f.b, &second.claim).await {
        Attended::Waiting(_) => {}
        other => panic!("the second in the queue was told {other:?}"),
    }
}

/// After a release, nothing that reads as a loss.
fn gone(released: Released) {
    match released {
        Released::Gone(None | Some(Reason::Vanished | Reason::Expired)) => {}
        other => panic!("a claim that was released before is told {other:?}"),
    }
}

/// An undo that came before its own late original leaves a grant that nobody knows.
pub(super) async fn c5_a_forgotten_grant_is_told_or_lapses(f: Fixture) {
    let (known, forgotten) = (f.brief(&f.name("known")), f.brief(&f.name("forgotten")));
    let session = granted(&f.a, &known).await.trust.session;
    let other = granted(&f.a, &forgotten).await.trust.session;
    if session.is_none() || session != other {
        let successor = f.brief(&forgotten.claim.name);
        let taking = f.after_lapse(&f.b, &successor);
        f.while_renewing(&f.a, &known.claim, f.ttl, taking).await;
        return;
    }
    let strays = f.until(f.ttl + f.slack, "the stray", async || {
        let renewal = Renewal { claim: known.claim.clone(), ttl: f.ttl };
        let renewed = f.a.renew(vec![renewal]).await.expect("renew is answered");
        Some(renewed.strays).filter(|strays| !strays.is_empty())
    });
    assert_eq!(strays.await, vec![forgotten.claim.clone()], "the claims that nobody asked for");
    released(&f.a, &forgotten.claim).await;
    granted(&f.b, &f.ask(&forgotten.claim.name)).await;
}

pub(super) async fn c6_renew_does_not_revive(f: Fixture) {
    let ask = f.brief(&f.name("x"));
    granted(&f.a, &ask).await;
    f.until(f.ttl + f.slack, "the lapse", async || {
        holder(&f.b, &ask.claim.name).await.is_none().then_some(())
    })
    .await;
    lost(&f.a, &ask.claim, f.ttl).await;
    assert_eq!(holder(&f.b, &ask.claim.name).await, None, "the holder after a renewal that was lost");
    granted(&f.b, &f.ask(&ask.claim.name)).await;
}

pub(super) async fn c6_renew_never_acquires(f: Fixture) {
    let name = f.name("x");
    lost(&f.a, &Claim::fresh(name.clone()), f.long()).await;
    assert_eq!(holder(&f.b, &name).await, None, "the holder after a renewal of nothing");
    granted(&f.b, &f.ask(&name)).await;
}

pub(super) async fn c6_renew_by_a_stranger_changes_nothing(f: Fixture) {
    let held = f.ask(&f.name("x"));
    let grant = granted(&f.a, &held).await;
    for client in [&f.a, &f.b] {
        lost(client, &Claim::fresh(held.claim.name.clone()), f.long()).await;
    }
    assert_eq!(holder(&f.b, &held.claim.name).await, Some(held.claim.owner), "the holder");
    kept(&f.a, &held.claim, f.long()).await;
    assert_eq!(granted(&f.a, &held).await.token, grant.token, "the holder's token");
}

pub(super) async fn c6_renew_after_release_is_lost(f: Fixture) {
    let ask = f.ask(&f.name("x"));
    granted(&f.a, &ask).await;
    released(&f.a, &ask.claim).await;
    lost(&f.a, &ask.claim, f.long()).await;
    granted(&f.b, &f.ask(&ask.claim.name)).await;
    lost(&f.a, &ask.claim, f.long()).await;
}

pub(super) async fn c6_renew_never_adds(f: Fixture) {
    let ask = f.brief(&f.name("x"));
    granted(&f.a, &ask).await;
    for _ in 0..10 {
        kept(&f.a, &ask.claim, f.ttl).await;
    }
    let standing = f.b.inspect(ask.claim.name.clone()).await.expect("inspect is answered");
    let left = standing.holder.map(|holder| holder.left);
    assert!(left.is_some_and(|left| left <= f.ttl), "{left:?} left of {:?} after ten renewals", f.ttl);
    f.after_lapse(&f.b, &f.ask(&ask.claim.name)).await;
}

pub(super) async fn c6_release_by_a_stranger_changes_nothing(f: Fixture) {
    let held = f.ask(&f.name("x"));
    granted(&f.a, &held).await;
    for ending in [Ending::Released, Ending::Undone] {
        for client in [&f.a, &f.b] {
            let released = end(client, &Claim::fresh(held.claim.name.clone()), ending).await;
            assert!(matches!(released, Released::Gone(_)), "a stranger's release: {released:?}");
        }
    }
    kept(&f.a, &held.claim, f.long()).await;
    busy(&f.b, &f.ask(&held.claim.name)).await;
}

pub(super) async fn c6_late_release_spares_the_successor(f: Fixture) {
    let late = f.brief(&f.name("x"));
    granted(&f.a, &late).await;
    let successor = f.ask(&late.claim.name);
    let grant = f.after_lapse(&f.b, &successor).await;
    for ending in [Ending::Released, Ending::Undone] {
        let released = end(&f.a, &late.claim, ending).await;
        assert!(matches!(released, Released::Gone(_)), "release of a lapsed claim: {released:?}");
    }
    kept(&f.b, &successor.claim, f.long()).await;
    assert_eq!(granted(&f.b, &successor).await.token, grant.token, "the successor's token");
}
