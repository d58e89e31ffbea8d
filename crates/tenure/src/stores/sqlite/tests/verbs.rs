//! The verbs, on a clock that stands still until it is moved.

use super::super::companions::Companions;
use super::*;
use crate::{Token, Why};
use std::sync::atomic::Ordering;

#[tokio::test]
async fn a_lease_is_granted_renewed_and_released() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client(), fixture.client());
    let (mine, other) = (claim("x"), claim("x"));
    let grant = granted(&a, ask(&mine, false)).await;
    assert_eq!(
        (grant.ttl, grant.trust.sent, grant.trust.validity),
        (TTL, fixture.clock.now(), trusted_part(TTL))
    );
    assert_eq!(granted(&a, ask(&mine, false)).await.token, grant.token);
    let refused = busy(&b, ask(&other, false)).await;
    assert!(
        matches!(&refused.why, Why::Held(holder) if holder.owner == mine.owner && holder.left == TTL),
        "{refused:?}"
    );
    assert_eq!(refused.place, None);
    fixture.clock.advance(TTL / 2);
    assert_eq!(renewed(&a, &mine).await.expect("kept").sent, fixture.clock.now());
    assert_eq!(renewed(&b, &other).await, Err(Reason::Taken));
    fixture.clock.advance(TTL * 3 / 4);
    assert!(renewed(&a, &mine).await.is_ok());
    assert_eq!(released(&a, &mine).await, Released::Released);
    assert_eq!(released(&a, &mine).await, Released::Gone(None));
    assert_eq!(renewed(&a, &mine).await, Err(Reason::Vanished));
    assert!(granted(&b, ask(&other, false)).await.token > grant.token);
}

#[tokio::test]
async fn a_lapsed_lease_is_taken_and_its_session_never_comes_back() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client(), fixture.client());
    let (one, two, other) = (claim("one"), claim("two"), claim("one"));
    let before = granted(&a, ask(&one, false)).await;
    granted(&a, ask(&two, false)).await;
    fixture.clock.advance(TTL);
    assert!(granted(&b, ask(&other, false)).await.token > before.token);
    assert_eq!(renewed(&a, &one).await, Err(Reason::Taken));
    // It hung on the session that the taker ended.
    assert_eq!(renewed(&a, &two).await, Err(Reason::Expired));
    let again = granted(&a, ask(&claim("three"), false)).await;
    assert_ne!(again.trust.session, before.trust.session);
}

/// C4: a token that somebody heard of must not come back after a crash of the machine. Nothing
/// else waits for the disk.
#[tokio::test]
async fn a_grant_is_told_of_when_it_is_on_the_disk() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client(), fixture.client());
    let syncs = || {
        let companions = Companions::find(&a.client.place, a.client.identity).expect("the same files");
        companions.map_or(0, |companions| companions.syncs.swap(0, Ordering::Relaxed))
    };
    let (first, second) = (claim("x"), claim("x"));
    granted(&a, ask(&first, true)).await;
    assert_eq!(syncs(), 1, "a new name");
    assert_eq!(renewed(&a, &first).await.map(drop), Ok(()));
    busy(&b, ask(&second, true)).await;
    assert!(matches!(attended(&b, &second).await, Attended::Waiting(_)));
    assert_eq!(syncs(), 0, "nothing was granted");
    granted(&a, ask(&first, true)).await;
    assert_eq!(syncs(), 1, "its own grant again, which may have been committed by a call that died");
    released(&a, &first).await;
    assert_eq!(syncs(), 1, "handed over");
    assert!(matches!(attended(&b, &second).await, Attended::Granted(_)));
    assert_eq!(syncs(), 1, "the releaser may have died before its sync");
    released(&b, &second).await;
    assert_eq!(syncs(), 0, "nobody waited");
    granted(&b, ask(&claim("x"), true)).await;
    assert_eq!(syncs(), 1, "a name that was plainly free");
    granted(&b, ask(&claim("x2"), false)).await;
    let (held, waits) = (claim("y"), claim("y"));
    let token = granted(&a, ask(&held, false)).await.token;
    busy(&b, ask(&waits, true)).await;
    syncs();
    a.revoke(held.name.clone(), token, true).await.expect("an answer");
    assert_eq!(syncs(), 1, "handed over by a revocation");
}

#[tokio::test]
async fn a_release_hands_over_to_the_first_in_the_queue() {
    let fixture = Fixture::new();
    let (a, b, c) = (fixture.client(), fixture.client(), fixture.client());
    let (held, second, third) = (claim("x"), claim("x"), claim("x"));
    let first = granted(&a, ask(&held, false)).await;
    let mut hints = b.events();
    assert_eq!(busy(&b, ask(&second, true)).await.place, Some(1));
    assert_eq!(busy(&c, ask(&third, true)).await.place, Some(2));
    assert_eq!(busy(&c, ask(&third, true)).await.waiting, 2);
    assert!(matches!(attended(&b, &second).await, Attended::Waiting(busy) if busy.place == Some(1)));
    // The socket is bound by a thread: only a grant sent after that arrives.
    wait_for_socket(&fixture).await;
    released(&a, &held).await;
    let Hint::Granted(told, grant) = hint(&mut hints).await else { panic!("another hint") };
    assert_eq!(told, second);
    assert!(grant.token > first.token && grant.handed_over && grant.ttl == TTL);
    assert_eq!(grant.trust.validity, trusted_part(ENTRY_LIFE));
    assert!(matches!(attended(&b, &second).await, Attended::Granted(same) if same == grant));
    let trust = renewed(&b, &second).await.expect("confirmed");
    assert_eq!(trust.validity, trusted_part(TTL));
    assert_ne!(trust.session, grant.trust.session);
    assert!(matches!(attended(&c, &third).await, Attended::Waiting(busy) if busy.place == Some(1)));
    fixture.clock.advance(ENTRY_LIFE);
    assert!(renewed(&b, &second).await.is_ok(), "it stands on its own now");
    assert!(matches!(attended(&c, &third).await, Attended::Gone), "not attended for its life");
}

pub(super) async fn wait_for_socket(fixture: &Fixture) {
    let live = fixture.directory.path().join("leases.db-live");
    let is_bound = || {
        std::fs::read_dir(&live).is_ok_and(|files| {
            files.flatten().any(|file| file.path().extension().is_some_and(|end| end == "sock"))
        })
    };
    for _ in 0..1_000 {
        if is_bound() {
            return;
        }
        Clock::system().sleep(Duration::from_millis(5)).await;
    }
    panic!("no socket within 5 s");
}

#[tokio::test]
async fn a_newcomer_does_not_overtake_and_grants_to_the_head() {
    let fixture = Fixture::new();
    let (a, b, c) = (fixture.client(), fixture.client(), fixture.client());
    let (held, waiting, late) = (claim("x"), claim("x"), claim("x"));
    granted(&a, ask(&held, false)).await;
    fixture.clock.advance(TTL - Duration::from_secs(1));
    busy(&b, ask(&waiting, true)).await;
    fixture.clock.advance(Duration::from_secs(1));
    let refused = busy(&c, ask(&late, false)).await;
    assert!(matches!(refused.why, Why::Held(holder) if holder.owner == waiting.owner));
    assert!(matches!(attended(&b, &waiting).await, Attended::Granted(grant) if grant.handed_over));
    // Not confirmed within the life of its entry.
    fixture.clock.advance(ENTRY_LIFE / 3);
    granted(&c, ask(&late, false)).await;
    assert_eq!(renewed(&b, &waiting).await, Err(Reason::Taken));
    assert!(matches!(attended(&b, &waiting).await, Attended::Gone));
}

#[tokio::test]
async fn a_name_that_is_kept_back_is_nobodys_until_it_is_revoked() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client(), fixture.client());
    let (held, other) = (claim("x"), claim("x"));
    let mut terms = ask(&held, false);
    terms.terms.hold_at_least = TTL * 3;
    let grant = granted(&a, terms.clone()).await;
    released(&a, &held).await;
    assert!(matches!(busy(&b, ask(&other, false)).await.why, Why::KeptBack(left) if left == TTL * 3));
    let standing = b.inspect(held.name.clone()).await.expect("a standing");
    assert_eq!((standing.kept_back, standing.holder), (Some(TTL * 3), None));
    assert!(matches!(b.revoke(held.name.clone(), grant.token, false).await, Ok(Revoked::Freed)));
    let next = granted(&b, ask(&other, false)).await;
    assert!(next.token > grant.token);
    released(&b, &other).await;
    // A grant that reached nobody is undone in full.
    granted(&a, terms).await;
    a.release(held.clone(), Ending::Undone).await.expect("an answer");
    granted(&b, ask(&other, false)).await;
}

#[tokio::test]
async fn a_mark_ends_a_lease_within_its_ttl_and_now_at_once() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client(), fixture.client());
    let (marked, beside, other) = (claim("x"), claim("y"), claim("x"));
    let grant = granted(&a, ask(&marked, false)).await;
    let token = granted(&a, ask(&beside, false)).await.token;
    assert!(matches!(
        b.revoke(marked.name.clone(), Token::from_u64(1), true).await,
        Ok(Revoked::NotHeld(Some(_)))
    ));
    fixture.clock.advance(TTL / 2);
    assert!(
        matches!(b.revoke(marked.name.clone(), grant.token, false).await, Ok(Revoked::Marked(left)) if left == TTL / 2)
    );
    assert_eq!(renewed(&a, &marked).await, Err(Reason::Revoked));
    assert!(renewed(&a, &beside).await.is_ok(), "its neighbour is renewed");
    assert!(matches!(busy(&b, ask(&other, false)).await.why, Why::Held(_)));
    fixture.clock.advance(TTL / 2);
    granted(&b, ask(&other, false)).await;
    assert_eq!(released(&a, &marked).await, Released::Gone(Some(Reason::Revoked)));
    assert!(renewed(&a, &beside).await.is_ok(), "a mark that ran out ends one lease and not its session");
    assert!(matches!(b.revoke(beside.name.clone(), token, true).await, Ok(Revoked::Freed)));
    granted(&b, ask(&claim("y"), false)).await;
    assert_eq!(renewed(&a, &beside).await, Err(Reason::Revoked));
}

#[tokio::test]
async fn a_one_shot_claim_is_renewed_and_released_by_another_client() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client(), fixture.client());
    let mine = claim("x");
    let mut once = ask(&mine, false);
    once.terms.one_shot = true;
    granted(&a, once).await;
    a.close().await.expect("closed");
    drop(a);
    assert!(matches!(busy(&b, ask(&claim("x"), false)).await.why, Why::Held(_)), "only its TTL ends it");
    fixture.clock.advance(TTL / 2);
    assert!(renewed(&b, &mine).await.is_ok());
    fixture.clock.advance(TTL * 3 / 4);
    let c = fixture.client();
    assert!(renewed(&c, &mine).await.is_ok());
    assert_eq!(released(&c, &mine).await, Released::Released);
    assert_eq!(fixture.number("SELECT count(*) FROM session"), 0);
}

#[tokio::test]
async fn a_thousand_leases_are_one_write_a_beat() {
    let fixture = Fixture::new();
    let a = fixture.client();
    let claims: Vec<_> = (0..1_000).map(|i| claim(&format!("name {i}"))).collect();
    futures_in_order(claims.iter().map(|claim| a.acquire(ask(claim, false)))).await;
    let batch: Vec<_> = claims.iter().map(|claim| Renewal { claim: claim.clone(), ttl: TTL }).collect();
    let changes =
        |database: &mut super::super::Database| database.glance(|it| Ok(it.connection.total_changes()));
    let before = a.beats.call(super::super::Orphan::Skip, changes).await.expect("a number");
    fixture.clock.advance(TTL / 3);
    let renewed = a.renew(batch[1..].to_vec()).await.expect("an answer");
    assert!(renewed.outcomes.iter().all(|outcome| matches!(outcome, Outcome::Kept(_))));
    let after = a.beats.call(super::super::Orphan::Skip, changes).await.expect("a number");
    assert_eq!(after - before, 1);
    assert!(renewed.strays.is_empty());
    // Once per TTL what is under the session is compared.
    fixture.clock.advance(TTL / 3);
    let renewed = a.renew(batch[1..].to_vec()).await.expect("an answer");
    assert_eq!(renewed.strays, claims[..1]);
}

async fn futures_in_order(answers: impl Iterator<Item = Pending<Answer>>) {
    for answer in answers.collect::<Vec<_>>() {
        assert!(matches!(answer.await, Ok(Answer::Granted(_))));
    }
}

#[tokio::test]
async fn a_record_that_vanished_is_noticed_within_a_ttl() {
    let fixture = Fixture::new();
    let a = fixture.client();
    let (gone, kept) = (claim("gone"), claim("kept"));
    granted(&a, ask(&gone, false)).await;
    granted(&a, ask(&kept, false)).await;
    rusqlite::Connection::open(fixture.path())
        .expect("opened")
        .execute("DELETE FROM lease WHERE name = 'gone'", [])
        .expect("done");
    let mut outcomes = Vec::new();
    for _ in 0..4 {
        fixture.clock.advance(TTL / 3);
        let batch = [&gone, &kept].map(|claim| Renewal { claim: claim.clone(), ttl: TTL });
        outcomes = a.renew(batch.to_vec()).await.expect("an answer").outcomes;
    }
    assert!(matches!(outcomes[..], [Outcome::Lost(Reason::Vanished), Outcome::Kept(_)]), "{outcomes:?}");
}
