//! Faults of `sqlite:` that an adversary found. Each test says what should hold.
#![cfg(feature = "sqlite")]
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    dead_code,
    unused_imports,
    reason = "a test that measures real time"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tenure::store::*;
use tenure::stores::sqlite::Sqlite;
use tenure::{Acquired, Claim, Client, Clock, ErrorKind, Label, Lease, Name, Why};

const MS: Duration = Duration::from_millis(1);

async fn pause(time: Duration) {
    Clock::system().sleep(time).await;
}

async fn client(path: &Path) -> Client {
    Client::connect(&format!("sqlite:{}", path.display())).await.unwrap()
}

async fn why(client: &Client, name: &str) -> Option<Why> {
    match client.lease(name).try_acquire().await.unwrap() {
        Acquired::Lease(_) => None,
        Acquired::Busy(busy) => Some(busy.why),
    }
}

async fn queued(client: &Client, name: &str) {
    let name = Name::new(name).unwrap();
    while client.inspect(&name).await.unwrap().waiting == 0 {
        pause(2 * MS).await;
    }
}

fn ask(name: &str, ttl: Duration, queue: bool) -> Ask {
    let claim = Claim::fresh(Name::new(name).unwrap());
    Ask { claim, label: Label::new("a").unwrap(), terms: Terms::of(ttl), queue }
}

/// C12: the ninth TTL is refused when it is asked for, not after it was granted.
#[tokio::test]
async fn a_waiter_with_a_ninth_ttl_is_refused_or_holds_what_it_was_given() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("leases.db");
    let (a, b) = (client(&path).await, client(&path).await);
    let mut held = Vec::new();
    for i in 0..8 {
        held.push(a.lease(format!("held {i}")).ttl(Duration::from_secs(20 + i)).acquire().await.unwrap());
    }
    let theirs = b.lease("x").acquire().await.unwrap();
    let request = a.lease("x").ttl(Duration::from_secs(40));
    let waiter = tokio::spawn(async move { request.acquire().await });
    pause(500 * MS).await;
    theirs.release().await.unwrap();
    match waiter.await.unwrap() {
        Err(error) => assert_eq!(error.kind(), ErrorKind::Invalid),
        Ok(lease) => {
            pause(Duration::from_secs(2)).await;
            lease.check().expect("it was granted with a TTL of 40 s two seconds ago");
        }
    }
}

/// ...and takes nobody else's lease with it.
#[tokio::test]
async fn a_hand_over_with_a_ninth_ttl_costs_no_other_lease() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("leases.db");
    let (a, b) = (client(&path).await, client(&path).await);
    let mut held = Vec::new();
    for i in 0..8 {
        held.push(a.lease(format!("held {i}")).ttl(Duration::from_secs(20 + i)).acquire().await.unwrap());
    }
    let mut theirs = Vec::new();
    let mut waiters = Vec::new();
    for (name, ttl) in [("x", 40), ("innocent", 20)] {
        theirs.push(b.lease(name).acquire().await.unwrap());
        let request = a.lease(name).ttl(Duration::from_secs(ttl));
        waiters.push(tokio::spawn(async move { request.acquire().await }));
        queued(&b, name).await;
    }
    for lease in theirs {
        lease.release().await.unwrap();
    }
    let innocent = waiters.remove(1).await.unwrap().unwrap();
    pause(Duration::from_secs(2)).await;
    innocent.check().expect("its TTL is one of the eight");
}

/// Asks for "x" in another process, for SQLite shares within one. Whether it got it.
fn another_process_gets(path: &Path) -> bool {
    let test = "role";
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env("ADVERSARY_ROLE", path);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    eprintln!("{}", text.lines().find(|line| line.contains("::")).unwrap_or(&text));
    text.contains("::held")
}

#[tokio::test]
async fn role() {
    let Some(path) = std::env::var_os("ADVERSARY_ROLE") else { return };
    let answer = match Client::connect(&format!("sqlite:{}", PathBuf::from(path).display())).await {
        Ok(client) => client.lease("x").ttl(Duration::from_secs(3)).try_acquire().await,
        Err(error) => Err(error),
    };
    match answer {
        Ok(Acquired::Lease(lease)) if lease.is_held() => println!("::held"),
        other => println!("::{other:?}"),
    }
}

/// C1, C14: two names of one file have two write-ahead logs.
#[tokio::test]
async fn a_database_with_two_hard_links_is_refused_or_excludes_through_both() {
    let directory = tempfile::tempdir().unwrap();
    let (path, link) = (directory.path().join("leases.db"), directory.path().join("link.db"));
    let a = client(&path).await;
    drop(a.lease("first").acquire().await.unwrap());
    std::fs::hard_link(&path, &link).unwrap();
    let Ok(held) = a.lease("x").acquire().await else { return };
    let second = another_process_gets(&link);
    assert!(!(second && held.is_held()), "two holders");
}

/// C1: somebody cleans up beside the database while it is in use.
#[tokio::test]
async fn a_write_ahead_log_that_was_deleted_while_in_use_makes_no_second_holder() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("leases.db");
    let a = client(&path).await;
    let held = a.lease("x").ttl(1500 * MS).acquire().await.unwrap();
    // Every connection is open by the first renewal.
    pause(Duration::from_secs(1)).await;
    for suffix in ["-wal", "-shm"] {
        std::fs::remove_file(directory.path().join(format!("leases.db{suffix}"))).unwrap();
    }
    // Past the deadline of what was confirmed before: only renewals can keep it.
    pause(Duration::from_secs(2)).await;
    let second = another_process_gets(&path);
    assert!(!(second && held.is_held()), "two holders");
}

/// C12: every wait has a limit. A process is stopped at the gate, as with SIGSTOP.
#[tokio::test]
async fn connecting_ends_while_a_stopped_process_is_in_the_gate() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("leases.db");
    drop(client(&path).await);
    let gate = std::fs::File::open(directory.path().join("leases.db-gate")).unwrap();
    gate.lock().unwrap();
    let url = format!("sqlite:{}", path.display());
    let connected = Clock::system().timeout(Duration::from_secs(8), Client::connect(&url)).await;
    let connected = connected.expect("it hangs, and `tenure run -n` with it");
    assert_eq!(connected.expect_err("no answer").kind(), ErrorKind::Unavailable);
}

/// C4, C6: a clock that no token can be minted by is no reason to keep what is given back.
#[tokio::test]
async fn a_release_works_when_no_token_can_be_minted_for_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let clock = Clock::manual();
    let at = |name: &str| (directory.path().join(name), clock.clone());
    let ((path, one), (_, two)) = (at("leases.db"), at(""));
    let (a, b) = (Sqlite::at(&path, one).await.unwrap(), Sqlite::at(&path, two).await.unwrap());
    let held = ask("x", Duration::from_secs(10), false);
    a.acquire(held.clone()).await.unwrap();
    b.acquire(ask("x", Duration::from_secs(10), true)).await.unwrap();
    clock.set_wall(UNIX_EPOCH + Duration::from_micros(1 << 53));
    assert_eq!(a.release(held.claim, Ending::Released).await.unwrap(), Released::Released);
}

/// What needs a directory that somebody removed makes it again, or says what to do.
#[tokio::test]
async fn a_client_survives_that_its_directory_of_liveness_files_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("leases.db");
    let a = client(&path).await;
    std::fs::remove_dir_all(directory.path().join("leases.db-live")).unwrap();
    let answer = a.lease("x").acquire_within(Duration::from_secs(3)).await;
    match answer {
        Ok(Acquired::Lease(_)) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::Rejected, "waiting does not mend it: {error}"),
        Ok(Acquired::Busy(busy)) => panic!("nobody has it, and nobody will: {busy:?}"),
    }
}

/// C1, C2: the same as for `memory:`; the TTL is longer than the clock's 1000 s since boot.
#[tokio::test]
async fn a_revoked_hand_over_is_trusted_no_longer_than_the_store_keeps_it() {
    let directory = tempfile::tempdir().unwrap();
    let (path, clock) = (directory.path().join("leases.db"), Clock::manual());
    let a = Sqlite::at(&path, clock.clone()).await.unwrap();
    let b = Sqlite::at(&path, clock.clone()).await.unwrap();
    let hour = Duration::from_secs(3600);
    let (held, waits) = (ask("x", hour, false), ask("x", hour, true));
    b.acquire(held.clone()).await.unwrap();
    a.acquire(waits.clone()).await.unwrap();
    b.release(held.claim.clone(), Ending::Released).await.unwrap();
    let name = held.claim.name;
    let token = b.inspect(name.clone()).await.unwrap().holder.unwrap().token;
    let Revoked::Marked(left) = b.revoke(name, token, false).await.unwrap() else { panic!() };
    let Attended::Granted(grant) = a.attend(vec![waits.claim]).await.unwrap().remove(0) else { panic!() };
    clock.advance(left);
    let rival = b.acquire(ask("x", hour, false)).await.unwrap();
    assert!(matches!(rival, Answer::Granted(_)), "free by the store's clock");
    let trusted = grant.trust.deadline() - clock.now();
    assert!(trusted.is_zero(), "two holders for {trusted:?}");
}

/// C8: the entries of a client share a wait session, whichever of its handles asked first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_that_two_handles_register_at_once_keep_their_places() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("leases.db");
    let held = Sqlite::at(&path, Clock::system()).await.unwrap();
    let hour = Duration::from_secs(3600);
    for name in ["x", "y"] {
        held.acquire(ask(name, hour, false)).await.unwrap();
    }
    let mut apart = 0;
    for _ in 0..150 {
        let one = Sqlite::at(&path, Clock::system()).await.unwrap();
        let other = one.handle();
        let (x, y) = (ask("x", hour, true), ask("y", hour, true));
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
