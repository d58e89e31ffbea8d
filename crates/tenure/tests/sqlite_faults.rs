//! `sqlite:` when somebody interferes with its files, its clock or its limits.
#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "support/child.rs"]
mod child;

use child::{Player, say};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};
use tenure::store::{Answer, Ask, Attended, Ending, Released, Revoked, Store, Terms};
use tenure::stores::sqlite::Sqlite;
use tenure::{Acquired, Claim, Client, Clock, Error, ErrorKind, Label, Name, Reason, Result};

const HOUR: Duration = Duration::from_secs(3600);

async fn connect(path: &Path) -> Result<Client> {
    Client::connect(&format!("sqlite:{}", path.display())).await
}

fn ask(name: &str, ttl: Duration, queue: bool) -> Ask {
    let claim = Claim::fresh(Name::new(name).unwrap());
    Ask { claim, label: Label::new("a test").unwrap(), terms: Terms::of(ttl), queue }
}

/// Takes "x" for a while, or says why not.
#[tokio::test]
async fn play() {
    let Some(words) = child::role() else { return };
    let [path] = &words[..] else { panic!("no such role: {words:?}") };
    let acquired = match connect(Path::new(path)).await {
        Ok(client) => client.lease("x").ttl(Duration::from_secs(3)).try_acquire().await,
        Err(error) => Err(error),
    };
    match acquired {
        Ok(Acquired::Lease(lease)) => say(if lease.is_held() { "held" } else { "lost" }),
        Ok(Acquired::Busy(_)) => say("busy"),
        Err(error) => say(error),
    }
}

/// What another process is told that asks for "x": SQLite shares within one.
fn another_process(path: &Path) -> String {
    Player::start("play", &[path.to_str().unwrap()]).hear()
}

fn is_rejected(error: &Error, because: &str) {
    assert!(error.kind() == ErrorKind::Rejected && error.to_string().contains(because), "{error:?}");
}

/// C1, C14: each name of a file has a write-ahead log of its own.
#[tokio::test]
async fn a_database_with_two_names_is_refused_by_both() {
    let directory = tempfile::tempdir().unwrap();
    let (path, link) = (directory.path().join("leases.db"), directory.path().join("link.db"));
    let client = connect(&path).await.unwrap();
    let held = client.lease("first").ttl(Duration::from_secs(1)).acquire().await.unwrap();
    std::fs::hard_link(&path, &link).unwrap();
    let because = "has another name (a hard link)";
    is_rejected(&client.lease("x").try_acquire().await.expect_err("refused"), because);
    is_rejected(&connect(&link).await.expect_err("refused"), because);
    assert!(another_process(&link).contains(because));
    assert_eq!(held.lost().await.reason, Reason::Expired);
    std::fs::remove_file(&link).unwrap();
    drop(client.lease("x").acquire().await.unwrap());
}

/// C1: whoever comes after the deletion shares nothing with who was there before.
#[tokio::test]
async fn a_log_or_index_that_was_deleted_while_in_use_costs_the_lease_at_its_deadline() {
    for suffixes in [&["-wal", "-shm"][..], &["-wal"], &["-shm"]] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("leases.db");
        let client = connect(&path).await.unwrap();
        let held = client.lease("x").ttl(Duration::from_secs(1)).acquire().await.unwrap();
        held.confirm().await.unwrap();
        for suffix in suffixes {
            std::fs::remove_file(directory.path().join(format!("leases.db{suffix}"))).unwrap();
        }
        let deadline = held.deadline();
        let because = format!("leases.db{} was replaced or deleted while it was in use", suffixes[0]);
        is_rejected(&client.lease("y").try_acquire().await.expect_err("refused"), &because);
        is_rejected(&connect(&path).await.expect_err("it would share the old index"), &because);
        let loss =
            Clock::system().timeout(3 * Duration::from_secs(1), held.lost()).await.expect("a loss in time");
        assert!(loss.at >= deadline && !held.is_held());
        is_rejected(&loss.last_error.expect("what the store said"), &because);
        if suffixes.len() == 2 {
            assert_eq!(another_process(&path), "held");
        }
    }
}

/// C12: the TTL of an entry is one of the eight.
#[tokio::test]
async fn a_ninth_ttl_is_refused_when_it_is_asked_for_and_costs_no_other_lease() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("leases.db");
    let (a, b) = (connect(&path).await.unwrap(), connect(&path).await.unwrap());
    let mut held = Vec::new();
    for i in 0..7 {
        held.push(a.lease(format!("held {i}")).ttl(Duration::from_secs(20 + i)).acquire().await.unwrap());
    }
    let theirs = b.lease("eighth").acquire().await.unwrap();
    let taken = b.lease("ninth").acquire().await.unwrap();
    let request = a.lease("eighth").ttl(Duration::from_secs(27));
    let waiter = tokio::spawn(async move { request.acquire().await });
    let name = Name::new("eighth").unwrap();
    while b.inspect(&name).await.unwrap().waiting == 0 {
        Clock::system().sleep(Duration::from_millis(2)).await;
    }
    for name in ["ninth", "free"] {
        let refused = a.lease(name).ttl(Duration::from_secs(40)).acquire().await.expect_err("refused");
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    }
    theirs.release().await.unwrap();
    let eighth = waiter.await.unwrap().unwrap();
    eighth.confirm().await.expect("its TTL is one of the eight");
    drop(taken);
}

/// C4, C6: what is given back is no longer held, and the next one is told why it does not get it.
#[tokio::test]
async fn a_release_works_when_no_token_can_be_minted_for_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let (path, clock) = (directory.path().join("leases.db"), Clock::manual());
    let a = Sqlite::at(&path, clock.clone()).await.unwrap();
    let b = Sqlite::at(&path, clock.clone()).await.unwrap();
    let (held, waits) = (ask("x", HOUR, false), ask("x", HOUR, true));
    a.acquire(held.clone()).await.unwrap();
    b.acquire(waits.clone()).await.unwrap();
    let wall = clock.wall();
    clock.set_wall(UNIX_EPOCH + Duration::from_micros(1 << 53));
    assert_eq!(a.release(held.claim, Ending::Released).await.unwrap(), Released::Released);
    match b.attend(vec![waits.claim.clone()]).await.unwrap().remove(0) {
        Attended::Unknown(error) => is_rejected(&error, "no token can be minted"),
        other => panic!("{other:?}"),
    }
    clock.set_wall(wall);
    let attended = b.attend(vec![waits.claim]).await.unwrap().remove(0);
    assert!(matches!(attended, Attended::Granted(_)), "it kept its place: {attended:?}");
}

#[tokio::test]
async fn a_directory_of_liveness_files_that_was_removed_is_made_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("leases.db");
    let client = connect(&path).await.unwrap();
    let live = directory.path().join("leases.db-live");
    std::fs::remove_dir_all(&live).unwrap();
    let _held = client.lease("x").acquire().await.unwrap();
    assert_eq!(std::fs::read_dir(live).unwrap().count(), 1);
}

/// C1, C2: the clock reads 1000 s since boot, and the TTL is longer than that.
#[tokio::test]
async fn a_revoked_hand_over_is_trusted_no_longer_than_the_store_keeps_it() {
    let directory = tempfile::tempdir().unwrap();
    let (path, clock) = (directory.path().join("leases.db"), Clock::manual());
    let a = Sqlite::at(&path, clock.clone()).await.unwrap();
    let b = Sqlite::at(&path, clock.clone()).await.unwrap();
    let (held, waits) = (ask("x", HOUR, false), ask("x", HOUR, true));
    b.acquire(held.clone()).await.unwrap();
    a.acquire(waits.clone()).await.unwrap();
    b.release(held.claim.clone(), Ending::Released).await.unwrap();
    let name = held.claim.name;
    let token = b.inspect(name.clone()).await.unwrap().holder.unwrap().token;
    let Revoked::Marked(left) = b.revoke(name, token, false).await.unwrap() else { panic!("not marked") };
    let attended = a.attend(vec![waits.claim]).await.unwrap().remove(0);
    let Attended::Granted(grant) = attended else { panic!("{attended:?}") };
    clock.advance(left);
    let rival = b.acquire(ask("x", HOUR, false)).await.unwrap();
    assert!(matches!(rival, Answer::Granted(_)), "free by the store's clock");
    assert!(grant.trust.deadline() <= clock.now(), "two holders: {grant:?}");
}

/// C8: the entries of a client share a wait session, whichever of its handles asked first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_that_two_handles_register_at_once_keep_their_places() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("leases.db");
    let held = Sqlite::at(&path, Clock::system()).await.unwrap();
    for name in ["x", "y"] {
        held.acquire(ask(name, HOUR, false)).await.unwrap();
    }
    let mut apart = 0;
    for _ in 0..150 {
        let one = Sqlite::at(&path, Clock::system()).await.unwrap();
        let other = one.handle();
        let (x, y) = (ask("x", HOUR, true), ask("y", HOUR, true));
        let (first, second) = (one.acquire(x.clone()), other.acquire(y.clone()));
        first.await.unwrap();
        second.await.unwrap();
        let database = rusqlite::Connection::open(&path).unwrap();
        let sql = "SELECT count(DISTINCT session) FROM entry WHERE owner IN (?1, ?2)";
        let owners = [x.claim.owner.to_bytes(), y.claim.owner.to_bytes()];
        apart += database.query_row(sql, owners, |row| row.get::<_, i64>(0)).unwrap() - 1;
        drop(database);
        one.close().await.unwrap();
    }
    assert_eq!(apart, 0, "rounds in which one of the two sessions is beaten by nobody, and its entry dies");
}

/// C12: every wait has a limit. A process is stopped at the gate, as with SIGSTOP.
#[tokio::test]
async fn connecting_ends_while_a_stopped_process_is_in_the_gate() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("leases.db");
    drop(Client::connect(&format!("sqlite:{}", path.display())).await.unwrap());
    let gate = std::fs::File::open(directory.path().join("leases.db-gate")).unwrap();
    gate.lock().unwrap();
    let url = format!("sqlite:{}", path.display());
    let connected = Clock::system().timeout(Duration::from_secs(8), Client::connect(&url)).await;
    let connected = connected.expect("it hangs, and `tenure run -n` with it");
    assert_eq!(connected.expect_err("no answer").kind(), ErrorKind::Unavailable);
}
