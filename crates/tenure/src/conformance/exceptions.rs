//! C13: the deliberate exceptions.

use super::kit::{Fixture, acquire, busy, end, granted, holder, kept, lost, queued, released};
use crate::store::{Answer, Ask, Ending, Outcome, Released, Renewal, Revoked, Terms};
use crate::words::busy::Why;
use crate::words::clock::Instant;
use crate::words::error::{ErrorKind, Reason};
use crate::words::name::Name;
use crate::words::token::Token;
use std::time::Duration;

pub(super) async fn c13_hold_at_least_outlives_release(f: Fixture) {
    let (ask, at_least) = kept_for(f.ask(&f.name("x")), f.ttl);
    let asked = f.now();
    granted(&f.a, &ask).await;
    released(&f.a, &ask.claim).await;
    is_kept_back(&f, &ask, asked + at_least).await;
}

pub(super) async fn c13_hold_at_least_outlives_a_lapse(f: Fixture) {
    let (ask, at_least) = kept_for(f.brief(&f.name("x")), f.ttl * 2);
    let asked = f.now();
    granted(&f.a, &ask).await;
    f.until(f.ttl + f.slack, "the lapse", async || {
        holder(&f.b, &ask.claim.name).await.is_none().then_some(())
    })
    .await;
    lost(&f.a, &ask.claim, f.ttl).await;
    is_kept_back(&f, &ask, asked + at_least).await;
}

fn kept_for(mut ask: Ask, at_least: Duration) -> (Ask, Duration) {
    ask.terms.hold_at_least = at_least;
    (ask, at_least)
}

/// Nobody holds it and nobody gets it before `until`; then somebody does.
async fn is_kept_back(f: &Fixture, ask: &Ask, until: Instant) {
    let name = &ask.claim.name;
    for again in [f.brief(name), Ask { queue: false, ..ask.clone() }] {
        let told = acquire(&f.b, &again).await;
        match told {
            Answer::Busy(busy) if f.now() < until => {
                let Why::KeptBack(left) = busy.why else { panic!("kept back is {:?}", busy.why) };
                assert!(left <= ask.terms.hold_at_least, "kept back for {left:?}");
            }
            Answer::Busy(_) => {}
            Answer::Granted(_) => {
                assert!(f.now() >= until, "granted {:?} too early", until - f.now());
                return;
            }
        }
    }
    let standing = f.b.inspect(name.clone()).await.expect("inspect is answered");
    assert!(standing.holder.is_none(), "held by nobody: {standing:?}");
    assert!(standing.kept_back.is_some() || f.now() >= until, "kept back: {standing:?}");
    f.in_time(&f.b, &f.ask(name), ask.terms.hold_at_least + f.slack).await;
    assert!(f.now() >= until, "granted {:?} too early", until - f.now());
}

pub(super) async fn c13_an_undone_grant_is_not_kept_back(f: Fixture) {
    let (ask, _) = kept_for(f.ask(&f.name("x")), f.long());
    granted(&f.a, &ask).await;
    assert_eq!(end(&f.a, &ask.claim, Ending::Undone).await, Released::Released, "an undo");
    granted(&f.b, &f.ask(&ask.claim.name)).await;
}

pub(super) async fn c13_a_waiter_gets_what_was_kept_back(f: Fixture) {
    let (ask, at_least) = kept_for(f.ask(&f.name("x")), f.ttl);
    let wanted = f.ask(&ask.claim.name);
    let until = f.now() + at_least;
    granted(&f.a, &ask).await;
    queued(&f.b, &wanted).await;
    released(&f.a, &ask.claim).await;
    f.attended(&f.b, &wanted.claim, at_least + f.slack).await;
    assert!(f.now() >= until, "granted {:?} too early", until - f.now());
}

pub(super) async fn c13_revoke_lifts_hold_at_least(f: Fixture) {
    for at_once in [true, false] {
        let (ask, _) = kept_for(f.ask(&f.name(if at_once { "now" } else { "mark" })), f.long());
        let token = granted(&f.a, &ask).await.token;
        revoke(&f, &ask.claim.name, token, at_once).await;
        if !at_once {
            released(&f.a, &ask.claim).await;
        }
        granted(&f.b, &f.ask(&ask.claim.name)).await;
    }
}

pub(super) async fn c13_a_marked_holder_is_told_and_frees_by_release(f: Fixture) {
    let (held, wanted) = (f.ask(&f.name("x")), f.ask(&f.name("x")));
    let token = granted(&f.a, &held).await.token;
    for _ in 0..2 {
        match revoke(&f, &held.claim.name, token, false).await {
            Revoked::Marked(left) => assert!(left <= f.long(), "free after {left:?} of {:?}", f.long()),
            other => panic!("a mark is answered {other:?}"),
        }
    }
    let standing = f.b.inspect(held.claim.name.clone()).await.expect("inspect is answered");
    assert!(standing.revoked.is_some_and(|left| left <= f.long()), "it is marked: {standing:?}");
    busy(&f.b, &f.ask(&held.claim.name)).await;
    queued(&f.b, &wanted).await;
    assert_eq!(lost(&f.a, &held.claim, f.long()).await, Reason::Revoked, "the marked holder is told");
    released(&f.a, &held.claim).await;
    f.attended(&f.b, &wanted.claim, f.slack).await;
}

pub(super) async fn c13_a_marked_claim_ends_with_its_ttl(f: Fixture) {
    let (held, other) = (f.brief(&f.name("x")), f.brief(&f.name("other")));
    let grant = granted(&f.a, &held).await;
    granted(&f.a, &other).await;
    revoke(&f, &held.claim.name, grant.token, false).await;
    // Neither the holder's verbs nor the beats of its session extend it.
    let taking = f.until(f.ttl + f.slack, "the end of a marked claim", async || {
        let again = acquire(&f.b, &f.ask(&held.claim.name)).await;
        if matches!(again, Answer::Granted(_)) {
            return Some(());
        }
        lost(&f.a, &held.claim, f.ttl).await;
        None
    });
    f.while_renewing(&f.a, &other.claim, f.ttl, taking).await;
    assert!(f.now() >= grant.trust.deadline(), "a marked claim ended before its TTL");
}

pub(super) async fn c13_revoke_now_frees_at_once(f: Fixture) {
    let held = f.ask(&f.name("x"));
    let token = granted(&f.a, &held).await.token;
    match revoke(&f, &held.claim.name, token, true).await {
        Revoked::Freed => {}
        other => panic!("a revocation at once is answered {other:?}"),
    }
    let successor = f.ask(&held.claim.name);
    let grant = granted(&f.b, &successor).await;
    let reason = lost(&f.a, &held.claim, f.long()).await;
    assert!(matches!(reason, Reason::Revoked | Reason::Taken), "the old holder is told {reason:?}");
    end(&f.a, &held.claim, Ending::Released).await;
    // Said again, it must not hit the successor.
    match revoke(&f, &held.claim.name, token, true).await {
        Revoked::NotHeld(Some(holder)) => assert_eq!(holder.token, grant.token, "who holds it"),
        other => panic!("a revocation with an old token is answered {other:?}"),
    }
    kept(&f.b, &successor.claim, f.long()).await;
}

pub(super) async fn c13_revoke_with_another_token_does_nothing(f: Fixture) {
    let held = f.ask(&f.name("x"));
    let token = granted(&f.a, &held).await.token;
    for wrong in [token.as_u64() - 1, token.as_u64() + 1, 0] {
        for at_once in [true, false] {
            match revoke(&f, &held.claim.name, Token::from_u64(wrong), at_once).await {
                Revoked::NotHeld(Some(holder)) => assert_eq!(holder.owner, held.claim.owner, "who holds it"),
                other => panic!("a revocation with another token is answered {other:?}"),
            }
        }
    }
    kept(&f.a, &held.claim, f.long()).await;
    match revoke(&f, &f.name("unknown"), token, true).await {
        Revoked::NotHeld(None) => {}
        other => panic!("a revocation of a free name is answered {other:?}"),
    }
}

async fn revoke(f: &Fixture, name: &Name, token: Token, at_once: bool) -> Revoked {
    f.b.revoke(name.clone(), token, at_once).await.expect("revoke is answered")
}

/// What `tenure acquire` leaves behind: its process is gone, another one renews and releases.
pub(super) async fn c13_a_one_shot_claim_needs_no_client(f: Fixture) {
    let ask = one_shot(f.ask(&f.name("x")));
    let client = f.client().await;
    let Some(token) = granted_or_unsupported(&client, &ask).await else { return };
    client.close().await.expect("close is answered");
    drop(client);
    busy(&f.b, &f.ask(&ask.claim.name)).await;
    kept(&f.b, &ask.claim, ask.terms.ttl).await;
    assert_eq!(granted_or_unsupported(&f.a, &ask).await, Some(token), "the token of the same claim");
    released(&f.b, &ask.claim).await;
    granted(&f.b, &f.ask(&ask.claim.name)).await;
}

pub(super) async fn c13_a_one_shot_claim_ends_with_its_ttl(f: Fixture) {
    let (alone, beside) = (one_shot(f.brief(&f.name("x"))), f.brief(&f.name("beside")));
    granted(&f.a, &beside).await;
    if granted_or_unsupported(&f.a, &alone).await.is_none() {
        return;
    }
    // The client's heartbeat keeps its other lease, and not this one.
    let taking = f.until(f.ttl + f.slack, "the end of a one-shot claim", async || {
        let renewal = Renewal { claim: beside.claim.clone(), ttl: f.ttl };
        let renewed = f.a.renew(vec![renewal]).await.expect("renew is answered");
        assert!(matches!(renewed.outcomes[..], [Outcome::Kept(_)]), "{:?}", renewed.outcomes);
        assert!(renewed.strays.is_empty(), "a one-shot claim is nobody's stray: {:?}", renewed.strays);
        matches!(acquire(&f.b, &f.ask(&alone.claim.name)).await, Answer::Granted(_)).then_some(())
    });
    taking.await;
}

fn one_shot(ask: Ask) -> Ask {
    Ask { terms: Terms { one_shot: true, ..ask.terms }, ..ask }
}

/// The token, or `None` where the store says that it has no one-shot claims.
async fn granted_or_unsupported(client: &super::kit::Client, ask: &Ask) -> Option<Token> {
    match client.acquire(ask.clone()).await {
        Ok(Answer::Granted(grant)) => Some(grant.token),
        Err(error) if error.kind() == ErrorKind::Unsupported => None,
        other => panic!("a one-shot acquire is answered {other:?}"),
    }
}
