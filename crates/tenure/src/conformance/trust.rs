//! C2: the holder's certainty is arithmetic.

use super::kit::{Fixture, granted, kept, poll_once};
use crate::store::{Answer, Outcome, Renewal, Terms, trusted_part};
use std::task::Poll;
use std::time::Duration;

pub(super) async fn c2_sent_is_before_the_request(f: Fixture) {
    let ask = f.brief(&f.name("x"));
    let mut acquiring = f.a.acquire(ask.clone());
    // The request cannot leave later than the first poll.
    let first = poll_once(&mut acquiring).await;
    let polled = f.now();
    let answer = match first {
        Poll::Ready(answer) => answer,
        Poll::Pending => acquiring.await,
    };
    let Ok(Answer::Granted(grant)) = answer else { panic!("not granted: {answer:?}") };
    assert!(grant.trust.sent <= polled, "sent {:?} after the acquire left", grant.trust.sent - polled);

    let called = f.now();
    let mut renewing = f.a.renew(vec![Renewal { claim: ask.claim, ttl: f.ttl }]);
    let first = poll_once(&mut renewing).await;
    let polled = f.now();
    let renewed = match first {
        Poll::Ready(renewed) => renewed,
        Poll::Pending => renewing.await,
    };
    let outcomes = renewed.expect("renew is answered").outcomes;
    let [Outcome::Kept(trust)] = outcomes[..] else { panic!("not kept: {outcomes:?}") };
    assert!(trust.sent <= polled, "sent {:?} after the renewal left", trust.sent - polled);
    assert!(trust.sent >= called, "sent {:?} before the renewal was called", called - trust.sent);
}

pub(super) async fn c2_validity_is_less_than_the_ttl(f: Fixture) {
    for ttl in [f.ttl, f.long()] {
        let mut ask = f.ask(&f.name(&format!("{}", ttl.as_millis())));
        ask.terms = Terms::of(ttl);
        let grant = granted(&f.a, &ask).await;
        for trust in [grant.trust, kept(&f.a, &ask.claim, ttl).await] {
            let most = trusted_part(grant.ttl);
            assert!(trust.validity <= most, "{:?} of {:?}: at most {most:?}", trust.validity, grant.ttl);
            assert!(trust.validity >= grant.ttl / 3, "{:?} of {:?}", trust.validity, grant.ttl);
        }
    }
}

pub(super) async fn c2_the_granted_ttl_is_visible_and_rounded_up(f: Fixture) {
    let unit = f.a.about().ttl_unit;
    assert!(!unit.is_zero(), "the unit of TTLs");
    for more in [Duration::ZERO, Duration::from_nanos(1), unit / 2] {
        let mut ask = f.ask(&f.name(&format!("{}", more.as_nanos())));
        let asked = f.ttl + more;
        ask.terms = Terms::of(asked);
        let ttl = granted(&f.a, &ask).await.ttl;
        assert!(ttl >= asked && ttl - asked < unit, "asked for {asked:?}, granted {ttl:?}");
        assert_eq!(ttl.as_nanos() % unit.as_nanos(), 0, "{ttl:?} is no multiple of {unit:?}");
    }
}

/// A lease taken late in the life of its session lives no longer than that.
pub(super) async fn c2_a_lease_on_an_older_session_is_not_trusted_beyond_its_life(f: Fixture) {
    let (early, late) = (f.brief(&f.name("early")), f.brief(&f.name("late")));
    granted(&f.a, &early).await;
    f.clock.sleep(f.ttl / 3).await;
    let trust = granted(&f.a, &late).await.trust;
    let deadline = trust.deadline();
    assert!(deadline > f.now(), "a grant that is worth nothing: {trust:?}");
    f.after_lapse(&f.b, &f.brief(&late.claim.name)).await;
    assert!(f.now() >= deadline, "granted to another {:?} before the deadline", deadline - f.now());
}
