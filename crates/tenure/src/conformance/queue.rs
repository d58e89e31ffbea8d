//! C8 and C9: waiting is polite, and hand-overs are quick.

use super::kit::{Fixture, acquire, attend, busy, end, granted, holder, kept, lost, queued, released};
use crate::store::{Answer, Ask, Attended, ENTRY_LIFE, Ending, Hint, Released, trusted_part};
use crate::words::owner::Claim;
use std::time::Duration;

pub(super) async fn c8_first_come_first_served_across_clients(f: Fixture) {
    let name = f.name("x");
    let mut holder = (f.a.clone(), f.ask(&name));
    granted(&holder.0, &holder.1).await;
    let mut line = Vec::new();
    for number in 0..6 {
        let client = if number % 3 == 0 { &f.a } else { &f.b };
        let ask = f.ask(&name);
        let place = queued(client, &ask).await.place;
        assert_eq!(place, Some(number + 1), "the place in the queue");
        line.push((client.clone(), ask));
    }
    for next in line {
        released(&holder.0, &holder.1.claim).await;
        f.attended(&next.0, &next.1.claim, f.slack).await;
        kept(&next.0, &next.1.claim, f.long()).await;
        holder = next;
    }
}

pub(super) async fn c8_a_newcomer_does_not_overtake(f: Fixture) {
    let (held, first) = (f.ask(&f.name("x")), f.ask(&f.name("x")));
    let name = &held.claim.name;
    granted(&f.a, &held).await;
    queued(&f.b, &first).await;
    released(&f.a, &held.claim).await;
    busy(&f.a, &f.ask(name)).await;
    queued(&f.a, &f.ask(name)).await;
    f.attended(&f.b, &first.claim, f.slack).await;
}

/// The name falls free by time, and the first to ask is not the first in the queue.
pub(super) async fn c8_a_newcomer_does_not_overtake_after_a_crash(f: Fixture) {
    let (held, first) = (f.brief(&f.name("x")), f.ask(&f.name("x")));
    granted(&f.a, &held).await;
    queued(&f.b, &first).await;
    // A client that asks far more often than the waiter attends.
    let trying = f.until(f.ttl + f.slack, "the grant to the first in the queue", async || {
        busy(&f.a, &f.ask(&held.claim.name)).await;
        let now = holder(&f.a, &held.claim.name).await;
        (now == Some(first.claim.owner)).then_some(())
    });
    f.while_attending(&f.b, &first.claim, trying).await;
}

pub(super) async fn c8_a_release_hands_over_in_the_same_step(f: Fixture) {
    let (held, first) = (f.ask(&f.name("x")), f.ask(&f.name("x")));
    let token = granted(&f.a, &held).await.token;
    queued(&f.b, &first).await;
    let asked = f.now();
    released(&f.a, &held.claim).await;
    // Nobody has asked since.
    let now = holder(&f.a, &held.claim.name).await;
    assert_eq!(now, Some(first.claim.owner), "the holder right after the release");
    let Attended::Granted(grant) = attend(&f.b, &first.claim).await else { panic!("not granted") };
    assert!(grant.handed_over, "a grant to a waiter is handed over: {grant:?}");
    assert!(grant.token > token, "token {} after {token}", grant.token);
    assert_eq!(grant.ttl, f.long(), "the TTL that was asked for");
    let most = trusted_part(ENTRY_LIFE);
    assert!(grant.trust.validity <= most, "{:?} of an entry's life", grant.trust.validity);
    // On a session it is the session's last renewal, which attending may be.
    let stands_on_the_ask = grant.trust.session.is_some() || grant.trust.sent <= asked;
    assert!(stands_on_the_ask, "sent {:?} after the ask that it answers", grant.trust.sent - asked);
}

pub(super) async fn c8_a_hint_says_what_attending_says(f: Fixture) {
    let (held, first) = (f.ask(&f.name("x")), f.ask(&f.name("x")));
    granted(&f.a, &held).await;
    let mut hints = f.b.events();
    let mut strangers_hints = f.a.events();
    queued(&f.b, &first).await;
    released(&f.a, &held.claim).await;
    let attended = f.attended(&f.b, &first.claim, f.slack).await;
    // A hint may be lost; one that comes says the same, and to nobody else.
    let hinted = f.clock.timeout(Duration::from_millis(100), async {
        loop {
            match hints.recv().await {
                Some(Hint::Granted(claim, grant)) => return Some((claim, grant)),
                Some(_) => {}
                None => return None,
            }
        }
    });
    if let Some(Some((claim, grant))) = hinted.await {
        assert_eq!(claim, first.claim, "the claim in the hint");
        assert_eq!(grant.token, attended.token, "the token in the hint");
        assert_eq!(grant.trust.session, attended.trust.session, "the session in the hint");
        assert!(grant.handed_over, "a grant to a waiter is handed over: {grant:?}");
        assert!(grant.trust.deadline() <= f.now() + ENTRY_LIFE, "the trust in the hint: {:?}", grant.trust);
    }
    while let Ok(hint) = strangers_hints.try_recv() {
        assert!(!matches!(hint, Hint::Granted(..)), "told to a stranger: {hint:?}");
    }
}

pub(super) async fn c8_a_dead_entry_is_skipped(f: Fixture) {
    let (held, dead, live) = (f.ask(&f.name("x")), f.ask(&f.name("x")), f.ask(&f.name("x")));
    granted(&f.a, &held).await;
    queued(&f.b, &dead).await;
    let died = f.now() + ENTRY_LIFE;
    let other = f.client().await;
    queued(&other, &live).await;
    let work = async {
        f.clock.sleep_until(died).await;
        released(&f.a, &held.claim).await;
        f.attended(&other, &live.claim, Duration::from_secs(2)).await;
    };
    f.while_attending(&other, &live.claim, work).await;
    match attend(&f.b, &dead.claim).await {
        Attended::Gone => {}
        told => panic!("an entry that was not attended was told {told:?}"),
    }
}

pub(super) async fn c8_a_grant_to_a_silent_waiter_is_void(f: Fixture) {
    let (held, silent, live) = (f.ask(&f.name("x")), f.ask(&f.name("x")), f.ask(&f.name("x")));
    granted(&f.a, &held).await;
    queued(&f.b, &silent).await;
    let other = f.client().await;
    queued(&other, &live).await;
    released(&f.a, &held.claim).await;
    let Attended::Granted(void) = attend(&f.b, &silent.claim).await else { panic!("not granted") };
    f.attended(&other, &live.claim, Duration::from_secs(2)).await;
    let deadline = void.trust.deadline();
    assert!(f.now() >= deadline, "passed on {:?} before the deadline", deadline - f.now());
    kept(&other, &live.claim, f.long()).await;
    lost(&f.b, &silent.claim, f.long()).await;
    match attend(&f.b, &silent.claim).await {
        Attended::Gone => {}
        told => panic!("a waiter whose grant is void was told {told:?}"),
    }
}

pub(super) async fn c8_the_first_renewal_makes_a_hand_over_firm(f: Fixture) {
    let (held, first) = (f.ask(&f.name("x")), f.ask(&f.name("x")));
    granted(&f.a, &held).await;
    queued(&f.b, &first).await;
    released(&f.a, &held.claim).await;
    let grant = f.attended(&f.b, &first.claim, f.slack).await;
    let trust = kept(&f.b, &first.claim, f.long()).await;
    assert!(trust.deadline() > grant.trust.deadline(), "{trust:?} after {:?}", grant.trust);
    assert!(trust.validity >= f.long() / 3, "the trust of a renewed lease of {:?}: {trust:?}", f.long());
    // The entry's life has no say in it any more.
    let end = f.now() + ENTRY_LIFE + Duration::from_millis(100);
    f.until(ENTRY_LIFE * 2, "the end of the entry's life", async || {
        busy(&f.a, &f.ask(&held.claim.name)).await;
        (f.now() > end).then_some(())
    })
    .await;
    assert_eq!(granted(&f.b, &first).await.token, grant.token, "the token after the first renewal");
}

pub(super) async fn c8_a_waiter_that_left_is_skipped(f: Fixture) {
    let (held, left, next) = (f.ask(&f.name("x")), f.ask(&f.name("x")), f.ask(&f.name("x")));
    granted(&f.a, &held).await;
    queued(&f.b, &left).await;
    queued(&f.a, &next).await;
    let told = end(&f.b, &left.claim, Ending::Undone).await;
    assert_eq!(told, Released::Released, "a waiter that leaves");
    released(&f.a, &held.claim).await;
    f.attended(&f.a, &next.claim, f.slack).await;
}

pub(super) async fn c8_an_undone_grant_passes_to_the_next(f: Fixture) {
    let (held, first, next) = (f.ask(&f.name("x")), f.ask(&f.name("x")), f.ask(&f.name("x")));
    granted(&f.a, &held).await;
    queued(&f.b, &first).await;
    queued(&f.a, &next).await;
    released(&f.a, &held.claim).await;
    end(&f.b, &first.claim, Ending::Undone).await;
    f.attended(&f.a, &next.claim, f.slack).await;
}

pub(super) async fn c8_an_entry_that_is_not_there_is_gone(f: Fixture) {
    let held = f.ask(&f.name("x"));
    for _ in 0..2 {
        for stranger in [Claim::fresh(held.claim.name.clone()), Claim::fresh(f.name("unknown"))] {
            match attend(&f.b, &stranger).await {
                Attended::Gone => {}
                told => panic!("an entry that never was is told {told:?}"),
            }
        }
        granted(&f.a, &held).await;
    }
    let (queued_here, stranger) = (f.ask(&held.claim.name), Claim::fresh(held.claim.name.clone()));
    queued(&f.b, &queued_here).await;
    let both = f.b.attend(vec![stranger, queued_here.claim]).await.expect("attend is answered");
    assert!(matches!(both[..], [Attended::Gone, Attended::Waiting(_)]), "in the order asked: {both:?}");
}

pub(super) async fn c9_a_release_hands_over_within_a_second(f: Fixture) {
    let (held, first) = (f.ask(&f.name("x")), f.ask(&f.name("x")));
    granted(&f.a, &held).await;
    queued(&f.b, &first).await;
    let work = f.clock.sleep(ENTRY_LIFE);
    f.while_attending(&f.b, &first.claim, work).await;
    released(&f.a, &held.claim).await;
    f.attended(&f.b, &first.claim, Duration::from_secs(1)).await;
}

pub(super) async fn c9_a_crash_hands_over_within_the_ttl_and_a_second(f: Fixture) {
    let (held, first) = (f.brief(&f.name("x")), f.ask(&f.name("x")));
    let crashing = f.client().await;
    granted(&crashing, &held).await;
    drop(crashing);
    match acquire(&f.b, &Ask { queue: true, ..first.clone() }).await {
        // A store that sees a client die need not wait.
        Answer::Granted(grant) => assert!(!grant.handed_over, "nobody handed it over: {grant:?}"),
        Answer::Busy(_) => {
            f.attended(&f.b, &first.claim, f.ttl + f.slack).await;
        }
    }
}
