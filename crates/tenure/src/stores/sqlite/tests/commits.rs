//! What is committed when something around the commit goes wrong, or takes its time.

use super::super::companions::Companions;
use super::*;
use crate::{ErrorKind, Why};
use std::sync::atomic::Ordering;
use std::time::UNIX_EPOCH;

const SECOND: Duration = Duration::from_secs(1);

/// The next sync of this client is refused by the disk.
fn fail_a_sync(client: &Sqlite) {
    let companions = Companions::find(&client.client.place, client.client.identity).expect("the same files");
    companions.expect("it is open").refusals.store(1, Ordering::Relaxed);
}

async fn unavailable(store: &dyn Store, ask: Ask) {
    let error = store.acquire(ask).await.expect_err("not on the disk");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

/// C5: "what it does not know and is not asking for it releases", or the name stays blocked
/// for as long as the session lives.
#[tokio::test]
async fn a_grant_that_the_disk_refused_is_found_under_its_session() {
    let fixture = Fixture::new();
    let client = fixture.client();
    let (other, before) = (claim("other"), claim("free"));
    granted(&client, ask(&other, false)).await;
    granted(&client, ask(&before, false)).await;
    released(&client, &before).await;
    // The free one is granted by one statement, the new one is not.
    for name in ["free", "new"] {
        fixture.clock.advance(SECOND / 10);
        fail_a_sync(&client);
        let x = claim(name);
        unavailable(&client, ask(&x, false)).await;
        fixture.clock.advance(TTL / 5 * 3);
        let renewal = Renewal { claim: other.clone(), ttl: TTL };
        let strays = client.renew(vec![renewal]).await.expect("an answer").strays;
        assert_eq!(strays, std::slice::from_ref(&x), "{name}");
        released(&client, &x).await;
    }
}

/// C4: Linux reports a failed sync once, and a second one succeeds although nothing was written.
#[tokio::test]
async fn what_the_disk_refused_once_is_written_anew_before_it_is_answered() {
    let fixture = Fixture::new();
    let client = fixture.client();
    let log = || std::fs::metadata(fixture.path().with_extension("db-wal")).expect("the log").len();
    let x = claim("x");
    granted(&client, ask(&claim("other"), false)).await;
    fail_a_sync(&client);
    unavailable(&client, ask(&x, false)).await;
    assert!(log() > 0);
    granted(&client, ask(&x, false)).await;
    assert_eq!(log(), 0, "written into the database, and the log begun anew");
    // And only then.
    granted(&client, ask(&claim("y"), false)).await;
    assert!(log() > 0);
}

/// C8: the entry that came with a grant to somebody else is kept alive.
#[tokio::test]
async fn an_entry_whose_commit_the_disk_refused_is_kept_alive() {
    let fixture = Fixture::new();
    let (holder, first, client) = (fixture.client(), fixture.client(), fixture.client());
    granted(&client, ask(&claim("another"), false)).await;
    granted(&holder, ask(&claim("x"), false)).await;
    fixture.clock.advance(TTL - SECOND / 2);
    let next = claim("x");
    busy(&first, ask(&next, true)).await;
    fixture.clock.advance(SECOND);
    fail_a_sync(&client);
    let x = claim("x");
    unavailable(&client, ask(&x, true)).await;
    assert!(renewed(&first, &next).await.is_ok(), "handed over");
    // As who waits does: the same is asked again.
    busy(&client, ask(&x, true)).await;
    for _ in 0..4 {
        fixture.clock.advance(SECOND / 2);
        let attended = attended(&client, &x).await;
        assert!(matches!(attended, Attended::Waiting(_)), "{attended:?}");
    }
}

/// C5: "acquire by the present owner is granted again with the SAME token", and a waiter
/// waits, also where no new token could be minted.
#[tokio::test]
async fn a_clock_beyond_the_last_token_refuses_new_grants_alone() {
    let fixture = Fixture::new();
    let client = fixture.client();
    let held = claim("x");
    let token = granted(&client, ask(&held, false)).await.token;
    fixture.clock.set_wall(UNIX_EPOCH + Duration::from_micros(1 << 53));
    assert_eq!(granted(&client, ask(&held, false)).await.token, token);
    busy(&client, ask(&claim("x"), true)).await;
    let error = client.acquire(ask(&claim("y"), false)).await.expect_err("no token");
    assert_eq!(error.kind(), ErrorKind::Rejected, "{error}");
}

/// C13: "the name is taken until grant + D by the store's clock", and the grant comes when the
/// lock does.
#[tokio::test]
async fn hold_at_least_counts_from_the_grant_and_not_from_the_wait_for_the_lock() {
    let fixture = Fixture::new();
    let client = fixture.client();
    let held = claim("x");
    granted(&client, ask(&claim("other"), false)).await;
    granted(&client, ask(&held, false)).await;
    released(&client, &held).await;
    // On the same instant the token is not the clock's.
    fixture.clock.advance(SECOND / 10);
    let connection = rusqlite::Connection::open(fixture.path()).expect("the database");
    connection.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let x = claim("x");
    let terms = Terms { hold_at_least: 5 * SECOND, ..Terms::of(TTL) };
    let asked = client.acquire(Ask { terms, ..ask(&x, false) });
    // Until it stands before the lock.
    let gate = std::fs::File::open(fixture.path().with_extension("db-gate")).expect("the gate");
    while gate.try_lock().is_ok() {
        gate.unlock().expect("unlocked");
        tokio::task::yield_now().await;
    }
    Clock::system().sleep(SECOND / 10).await;
    fixture.clock.advance(3 * SECOND);
    connection.execute_batch("COMMIT").expect("let go");
    assert!(matches!(asked.await.expect("an answer"), Answer::Granted(_)));
    released(&client, &x).await;
    let why = busy(&client, ask(&claim("x"), false)).await.why;
    assert!(matches!(why, Why::KeptBack(left) if left == 5 * SECOND), "{why:?}");
}
