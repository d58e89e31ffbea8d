//! What the machine does to a store: reboots, deaths, forks of the file.

use super::verbs::wait_for_socket;
use super::*;
use crate::Why;
use std::os::unix::fs::PermissionsExt;

#[tokio::test]
async fn after_a_reboot_every_name_is_free_and_no_token_forgotten() {
    let fixture = Fixture::new();
    let a = fixture.client();
    let mut kept = ask(&claim("x"), false);
    kept.terms.hold_at_least = TTL * 100;
    let before = granted(&a, kept).await;
    let b = fixture.client_of_boot("another boot");
    let after = granted(&b, ask(&claim("x"), false)).await;
    assert!(after.token > before.token);
    fixture.clock.set_wall(std::time::UNIX_EPOCH);
    let c = fixture.client_of_boot("a third boot");
    assert!(granted(&c, ask(&claim("x"), false)).await.token > after.token, "whatever the wall clock says");
}

#[tokio::test]
async fn a_client_that_is_gone_is_dead_at_once_and_a_copy_of_its_descriptor_keeps_it_alive() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client(), fixture.client());
    let (first, second) = (claim("x"), claim("x"));
    granted(&a, ask(&first, false)).await;
    let copy = a.liveness().await.expect("an answer").expect("a descriptor");
    drop(a);
    for _ in 0..10 {
        assert!(matches!(busy(&b, ask(&second, false)).await.why, Why::Held(_)));
    }
    drop(copy);
    eventually(|| async { matches!(b.acquire(ask(&second, false)).await, Ok(Answer::Granted(_))) }).await;
}

#[tokio::test]
async fn death_is_concluded_from_the_very_file_alone() {
    for missing in [true, false] {
        let fixture = Fixture::new();
        let (a, b) = (fixture.client(), fixture.client());
        granted(&a, ask(&claim("x"), false)).await;
        let own = a.client.own().expect("a liveness file");
        let path = fixture.directory.path().join("leases.db-live").join(claim_file(own.process.id));
        std::fs::remove_file(&path).expect("removed");
        if !missing {
            std::fs::write(&path, "").expect("another file of that name");
        }
        drop(own);
        drop(a);
        assert!(matches!(busy(&b, ask(&claim("x"), false)).await.why, Why::Held(_)));
        fixture.clock.advance(TTL);
        granted(&b, ask(&claim("x"), false)).await;
    }
}

fn claim_file(id: [u8; 16]) -> String {
    super::super::liveness::Process::file_name(id)
}

#[tokio::test]
async fn what_the_dead_left_behind_is_swept_and_what_lives_is_not() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client(), fixture.client());
    let mut hints = a.events();
    wait_for_socket(&fixture).await;
    granted(&a, ask(&claim("x"), false)).await;
    granted(&b, ask(&claim("y"), false)).await;
    hints.close();
    drop((hints, a));
    let files =
        || std::fs::read_dir(fixture.directory.path().join("leases.db-live")).expect("a directory").count();
    assert_eq!(files(), 3, "two liveness files and a socket");
    eventually(|| async {
        fixture.clock.advance(Duration::from_secs(3_601));
        b.requests.call(super::super::Orphan::Run, |database| database.tidy()).await.expect("tidied");
        files() == 1
    })
    .await;
    assert!(b.client.own().expect("its own").is_intact());
}

#[tokio::test]
async fn a_socket_that_was_left_without_its_liveness_file_is_swept() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client(), fixture.client());
    let _hints = a.events();
    wait_for_socket(&fixture).await;
    let live = fixture.directory.path().join("leases.db-live");
    let orphan = format!("{}.sock", claim_file([7; 16]));
    for name in [orphan.as_str(), "readme.sock"] {
        std::fs::write(live.join(name), "").expect("written");
    }
    b.requests.call(super::super::Orphan::Run, |database| database.tidy()).await.expect("tidied");
    let own = a.client.own().expect("its own").process.id;
    for (name, is_kept) in [(orphan, false), ("readme.sock".into(), true), (claim_file(own) + ".sock", true)]
    {
        assert_eq!(live.join(&name).exists(), is_kept, "{name}");
    }
}

#[tokio::test]
async fn a_connection_that_is_stuck_in_a_transaction_is_replaced() {
    let fixture = Fixture::new();
    let a = fixture.client();
    granted(&a, ask(&claim("x"), false)).await;
    let stick = |database: &mut super::super::Database| {
        database.glance(|it| Ok(it.connection.execute_batch("BEGIN IMMEDIATE")?))
    };
    a.requests.call(super::super::Orphan::Run, stick).await.expect("begun");
    granted(&fixture.client(), ask(&claim("y"), false)).await;
    granted(&a, ask(&claim("z"), false)).await;
}

#[tokio::test]
async fn a_client_whose_liveness_descriptor_is_another_file_gets_nothing_more() {
    let fixture = Fixture::new();
    let a = fixture.client();
    let held = claim("x");
    granted(&a, ask(&held, false)).await;
    a.client.own().expect("its own").pretend_closed();
    for error in [
        a.acquire(ask(&claim("y"), false)).await.map(drop).expect_err("on a session that may be ended"),
        a.liveness().await.map(drop).expect_err("it keeps nothing alive"),
    ] {
        assert_eq!(error.kind(), crate::ErrorKind::Rejected, "{error}");
    }
    assert_eq!(renewed(&a, &held).await, Err(Reason::Vanished));
}

#[tokio::test]
async fn a_lease_that_cannot_be_renewed_costs_no_other_of_its_batch() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client(), fixture.client());
    let of = |name: &str, seconds: u64, queue| {
        let mut ask = ask(&claim(name), queue);
        ask.terms.ttl = Duration::from_secs(seconds);
        ask
    };
    let held = claim("x");
    granted(&b, ask(&held, false)).await;
    let ninth = of("x", 20, true);
    busy(&a, ninth.clone()).await;
    // As if all were asked for at the same instant.
    a.client.known().entries.clear();
    let mut leases = vec![ninth];
    for seconds in 1..=8 {
        let ask = of(&seconds.to_string(), seconds, false);
        granted(&a, ask.clone()).await;
        leases.push(ask);
    }
    released(&b, &held).await;
    let batch = leases.into_iter().map(|ask| Renewal { claim: ask.claim, ttl: ask.terms.ttl }).collect();
    let outcomes = a.renew(batch).await.expect("an answer").outcomes;
    assert!(matches!(outcomes[0], Outcome::Unknown(_)), "{outcomes:?}");
    assert!(outcomes[1..].iter().all(|outcome| matches!(outcome, Outcome::Kept(_))), "{outcomes:?}");
}

#[tokio::test]
async fn an_idle_name_is_forgotten_a_day_after_its_token() {
    let fixture = Fixture::new();
    let a = fixture.client();
    let (idle, waited) = (claim("idle"), claim("held"));
    granted(&a, ask(&idle, false)).await;
    released(&a, &idle).await;
    let tidy = || a.requests.call(super::super::Orphan::Run, |database| database.tidy());
    fixture.clock.advance(Duration::from_secs(23 * 3_600));
    tidy().await.expect("tidied");
    assert_eq!(fixture.number("SELECT count(*) FROM lease"), 1);
    granted(&a, ask(&waited, false)).await;
    fixture.clock.advance(Duration::from_secs(3_601));
    tidy().await.expect("tidied");
    assert_eq!(fixture.number("SELECT count(*) FROM lease WHERE name = 'idle'"), 0);
    assert_eq!(fixture.number("SELECT count(*) FROM lease"), 1);
}

#[tokio::test]
async fn a_stale_message_is_void() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client(), fixture.client());
    let (held, waiting) = (claim("x"), claim("x"));
    granted(&a, ask(&held, false)).await;
    busy(&b, ask(&waiting, true)).await;
    released(&a, &held).await;
    // The message could not be sent, since nobody listened yet: here it comes, twice.
    let granted = |until| super::super::transaction::HandOver {
        name: waiting.name.clone(),
        owner: waiting.owner,
        token: crate::Token::from_u64(7),
        ttl: 1,
        session: b.client.known().wait.expect("a wait session"),
        until,
        process: b.client.own().map(|own| own.process),
    };
    let now = b.client.host.now();
    let mut hints = b.events();
    wait_for_socket(&fixture).await;
    let foreign =
        super::super::transaction::HandOver { session: Session([9; 16]), ..granted(now + 1_000_000_000) };
    a.client.tell(&foreign);
    a.client.tell(&granted(now));
    a.client.tell(&granted(now + 1_000_000_000));
    let Hint::Granted(_, grant) = next_grant(&mut hints).await else { panic!("another hint") };
    assert_eq!(
        grant.trust.deadline(),
        fixture.clock.now() + Duration::from_secs(1) - (ENTRY_LIFE - trusted_part(ENTRY_LIFE))
    );
}

/// Looks are said as well.
async fn next_grant(hints: &mut mpsc::Receiver<Hint>) -> Hint {
    loop {
        match hint(hints).await {
            Hint::Look(_) => {}
            hint => return hint,
        }
    }
}

#[tokio::test]
async fn the_bell_rings_in_a_directory_whose_path_is_too_long_for_a_socket() {
    let outer = Fixture::new();
    let deep = outer.directory.path().join("d".repeat(120));
    std::fs::create_dir(&deep).expect("a directory");
    let inner = tempfile::tempdir_in(deep).expect("a directory");
    let fixture = Fixture { directory: inner, clock: Clock::manual() };
    let (a, b) = (fixture.client(), fixture.client());
    let (held, waiting) = (claim("x"), claim("x"));
    granted(&a, ask(&held, false)).await;
    busy(&b, ask(&waiting, true)).await;
    let mut hints = b.events();
    wait_for_socket(&fixture).await;
    released(&a, &held).await;
    assert!(matches!(next_grant(&mut hints).await, Hint::Granted(told, _) if told == waiting));
}

#[tokio::test]
async fn a_waiter_is_told_to_look_when_the_holder_dies() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client(), fixture.client());
    granted(&a, ask(&claim("x"), false)).await;
    let waiting = claim("x");
    busy(&b, ask(&waiting, true)).await;
    let mut hints = b.events();
    drop(a);
    assert!(matches!(hint(&mut hints).await, Hint::Look(name) if name == waiting.name));
    assert!(matches!(attended(&b, &waiting).await, Attended::Granted(_)));
}

#[tokio::test]
async fn close_frees_what_is_held_and_hands_it_over() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.client(), fixture.client());
    let waiting = claim("x");
    granted(&a, ask(&claim("x"), false)).await;
    granted(&a, ask(&claim("y"), false)).await;
    busy(&b, ask(&waiting, true)).await;
    a.close().await.expect("closed");
    assert!(matches!(attended(&b, &waiting).await, Attended::Granted(_)));
    granted(&b, ask(&claim("y"), false)).await;
    let error = a.acquire(ask(&claim("z"), false)).await.expect_err("closed");
    assert_eq!(error.kind(), crate::ErrorKind::Closed);
    a.close().await.expect("closed twice");
    assert_eq!(std::fs::read_dir(fixture.directory.path().join("leases.db-live")).expect("files").count(), 1);
}

#[tokio::test]
async fn a_database_that_was_replaced_or_deleted_is_used_no_more() {
    for replaced in [true, false] {
        let fixture = Fixture::new();
        let a = fixture.client();
        let held = claim("x");
        granted(&a, ask(&held, false)).await;
        std::fs::rename(fixture.path(), fixture.path().with_extension("old")).expect("moved");
        if replaced {
            std::fs::write(fixture.path(), "").expect("another file");
        }
        for error in [
            a.acquire(ask(&claim("y"), false)).await.map(drop).expect_err("refused"),
            a.renew(vec![Renewal { claim: held.clone(), ttl: TTL }]).await.map(drop).expect_err("refused"),
        ] {
            assert!(
                error
                    .to_string()
                    .ends_with("was replaced or deleted while it was in use: start what uses it anew"),
                "{error}"
            );
            assert_eq!(error.kind(), crate::ErrorKind::Rejected);
        }
    }
}

#[tokio::test]
async fn a_ninth_ttl_is_refused() {
    let fixture = Fixture::new();
    let a = fixture.client();
    for seconds in 1..=8 {
        let mut ask = ask(&claim(&format!("{seconds}")), false);
        ask.terms.ttl = Duration::from_secs(seconds);
        granted(&a, ask).await;
    }
    let mut ninth = ask(&claim("9"), false);
    ninth.terms.ttl = Duration::from_secs(9);
    assert_eq!(a.acquire(ninth).await.map(drop).expect_err("refused").kind(), crate::ErrorKind::Invalid);
    a.retire(Session([0; 16]));
    fixture.client();
}

#[tokio::test]
async fn files_get_their_mode_whatever_the_umask_and_the_group_gets_them_where_it_owns_the_directory() {
    for (directory, file, live) in [(0o755, 0o600, 0o700), (0o2770, 0o660, 0o2770)] {
        let fixture = Fixture::new();
        std::fs::set_permissions(fixture.directory.path(), std::fs::Permissions::from_mode(directory))
            .expect("set");
        let a = fixture.client();
        granted(&a, ask(&claim("x"), false)).await;
        let mode = |name: &str| {
            let path = fixture.directory.path().join(name);
            std::fs::metadata(path).expect("a file").permissions().mode() & 0o7777
        };
        for name in ["leases.db", "leases.db-gate", "leases.db-wal", "leases.db-shm"] {
            assert_eq!(mode(name), file, "{name}");
        }
        assert_eq!(mode("leases.db-live"), live);
        let own = a.client.own().expect("a liveness file").process.id;
        assert_eq!(mode(&format!("leases.db-live/{}", claim_file(own))), file);
    }
}

/// Asks until it is so, for at most 10 s.
async fn eventually<F: Future<Output = bool>>(mut is_so: impl FnMut() -> F) {
    for _ in 0..1_000 {
        if is_so().await {
            return;
        }
        Clock::system().sleep(Duration::from_millis(10)).await;
    }
    panic!("not so within 10 s");
}

#[tokio::test]
async fn a_forked_child_does_nothing_with_what_it_inherited() {
    let fixture = Fixture::new();
    let a = fixture.client();
    let held = claim("x");
    granted(&a, ask(&held, false)).await;
    let files = || std::fs::read_dir(fixture.directory.path().join("leases.db-live")).expect("files").count();
    a.client.pretend_inherited(true);
    for error in [
        a.acquire(ask(&held, false)).await.map(drop).expect_err("inert"),
        a.renew(vec![Renewal { claim: held.clone(), ttl: TTL }]).await.map(drop).expect_err("inert"),
        a.release(held.clone(), Ending::Released).await.map(drop).expect_err("inert"),
        a.close().await.expect_err("inert"),
    ] {
        assert_eq!(error.kind(), crate::ErrorKind::Unavailable);
    }
    assert!(a.events().recv().await.is_none());
    assert_eq!(files(), 1);
    a.client.pretend_inherited(false);
    assert!(renewed(&a, &held).await.is_ok());
}

#[test]
fn the_first_calls_of_a_client_may_come_at_once() {
    let fixture = Fixture::new();
    for _ in 0..50 {
        let (client, barrier) = (fixture.client(), std::sync::Barrier::new(8));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    barrier.wait();
                    drop(client.inspect(claim("x").name));
                });
            }
        });
        // The calls of which nobody waits for the answer count no longer.
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(client.inspect(claim("x").name)).expect("a standing");
        runtime.block_on(client.inspect(claim("x").name)).expect("the same");
    }
}
