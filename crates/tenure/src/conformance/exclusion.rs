//! C1: at most one owner holds a name.

use super::kit::{Client, Fixture, acquire, all, busy, granted, kept, lost, released, renew};
use crate::store::{Answer, Ask, Outcome, Pending};
use std::time::Duration;

pub(super) async fn c1_one_of_64_racers_is_granted(f: Fixture) {
    for round in 0..3 {
        let name = f.name(&format!("race-{round}"));
        // On threads, since a store may answer without ever giving way to another task.
        let threads: Vec<_> = (0..8)
            .map(|number| {
                let client = if number % 2 == 0 { f.a.clone() } else { f.b.clone() };
                let asks: Vec<_> = (0..8).map(|_| f.ask(&name)).collect();
                std::thread::spawn(move || race(&client, asks))
            })
            .collect();
        let grants: usize = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .sum();
        assert_eq!(grants, 1, "grants among 64 racers");
    }
}

/// How many of the asks were granted.
fn race(client: &Client, asks: Vec<Ask>) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let questions = asks.into_iter().map(|ask| client.acquire(ask)).collect();
        let answers = all(questions).await;
        let granted = |answer: &crate::Result<Answer>| matches!(answer, Ok(Answer::Granted(_)));
        answers.iter().filter(|answer| granted(answer)).count()
    })
}

pub(super) async fn c1_names_do_not_interfere(f: Fixture) {
    let (one, other) = (f.ask(&f.name("one")), f.ask(&f.name("other")));
    granted(&f.a, &one).await;
    granted(&f.b, &other).await;
    busy(&f.b, &f.ask(&one.claim.name)).await;
    released(&f.a, &one.claim).await;
    busy(&f.a, &f.ask(&other.claim.name)).await;
}

pub(super) async fn c1_nobody_else_is_granted_before_the_ttl_has_passed(f: Fixture) {
    let (held, wanted) = (f.brief(&f.name("x")), f.brief(&f.name("x")));
    let grant = granted(&f.a, &held).await;
    f.after_lapse(&f.b, &wanted).await;
    let deadline = grant.trust.deadline();
    assert!(f.now() >= deadline, "granted to another {:?} before the deadline", deadline - f.now());
}

pub(super) async fn c1_renewals_keep_others_out(f: Fixture) {
    let name = f.name("x");
    let held = f.brief(&name);
    granted(&f.a, &held).await;
    let end = f.now() + f.ttl * 5 / 2;
    let trying = f.until(f.ttl * 3, "the end of the attempts", async || {
        busy(&f.b, &f.brief(&name)).await;
        (f.now() >= end).then_some(())
    });
    f.while_renewing(&f.a, &held.claim, f.ttl, trying).await;
}

/// The beat that was judged before expiry and written after it, with a takeover in between.
pub(super) async fn c1_renewal_and_takeover_never_both_succeed(f: Fixture) {
    // From 4 ms before the expiry to 3 ms after it, at the same time.
    let races = (0..8).map(|number| -> Pending<()> {
        let f = f.clone();
        Box::pin(async move {
            race_at_expiry(&f, number).await;
            Ok(())
        })
    });
    for raced in all(races.collect()).await {
        raced.expect("a race has no error");
    }
}

async fn race_at_expiry(f: &Fixture, number: u32) {
    let ms = Duration::from_millis;
    let name = f.name(&format!("edge-{number}"));
    let (held, wanted) = (f.brief(&name), f.brief(&name));
    let holder = f.client().await;
    let grant = granted(&holder, &held).await;
    let expiry = grant.trust.sent + grant.ttl;
    let renewing = async {
        f.clock.sleep_until(expiry - ms(4) + ms(1) * number).await;
        renew(&holder, &held.claim, f.ttl).await
    };
    let taking = async {
        f.clock.sleep_until(expiry - ms(5)).await;
        while f.now() < expiry + ms(20) {
            if let Answer::Granted(_) = acquire(&f.b, &wanted).await {
                return Some(f.now());
            }
            tokio::task::yield_now().await;
        }
        None
    };
    if let (Outcome::Kept(trust), Some(taken)) = tokio::join!(renewing, taking) {
        assert!(taken >= trust.deadline(), "renewed until {:?} and granted to another", trust.deadline());
    }
}

pub(super) async fn c1_a_session_that_ran_out_is_over_for_all_its_leases(f: Fixture) {
    let (one, other) = (f.brief(&f.name("one")), f.brief(&f.name("other")));
    let first = granted(&f.a, &one).await;
    let second = granted(&f.a, &other).await;
    let hang_together = first.trust.session.is_some() && first.trust.session == second.trust.session;
    let stranger = f.brief(&one.claim.name);
    if hang_together {
        f.after_lapse(&f.b, &stranger).await;
        lost(&f.a, &other.claim, f.ttl).await;
        let again = granted(&f.a, &f.brief(&f.name("third"))).await;
        assert_ne!(again.trust.session, first.trust.session, "an ended session is used again");
    } else {
        let taking = f.after_lapse(&f.b, &stranger);
        f.while_renewing(&f.a, &other.claim, f.ttl, taking).await;
        kept(&f.a, &other.claim, f.ttl).await;
        lost(&f.a, &one.claim, f.ttl).await;
    }
}
