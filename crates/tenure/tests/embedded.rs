//! What a lease on the embedded store survives, with real processes, signals and
//! clocks; and how much of it fits into one process.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test that measures real time")]

#[path = "support/child.rs"]
mod child;
#[path = "support/rounds.rs"]
mod rounds;

use child::{Player, listen, say};
use rounds::rounds;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tenure::{Acquired, Client, Clock, ErrorKind, Lease, Reason};
use tokio::runtime::{Builder, Runtime};

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn url(directory: &Path) -> String {
    format!("sqlite:{}", directory.join("leases.db").display())
}

fn runtime(threads: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap()
}

fn millis(text: &str) -> Duration {
    Duration::from_millis(text.parse().unwrap())
}

/// The roles of the other process.
#[test]
fn play() {
    let Some(words) = child::role() else { return };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["try", url, ttl] => keep_trying(url, millis(ttl)),
        ["hold", url, ttl] => hold_and_answer(url, millis(ttl)),
        ["hold-many", url, count, ttl] => hold_many(url, count.parse().unwrap(), millis(ttl)),
        ["token", url] => runtime(1).block_on(async {
            let lease = Client::connect(url).await.unwrap().lease("x").acquire().await.unwrap();
            say(lease.token());
            lease.release().await.unwrap();
        }),
        _ => panic!("no such role: {words:?}"),
    }
}

/// Tries until it is told to stop, and says how often it was refused and granted.
fn keep_trying(url: &str, ttl: Duration) {
    static STOP: AtomicBool = AtomicBool::new(false);
    std::thread::spawn(|| {
        listen();
        STOP.store(true, Ordering::Relaxed);
    });
    runtime(1).block_on(async {
        let request = Client::connect(url).await.unwrap().lease("x").ttl(ttl);
        let (mut refused, mut granted) = (0, 0);
        say("ready");
        while !STOP.load(Ordering::Relaxed) {
            match request.try_acquire().await {
                Ok(Acquired::Busy(_)) => refused += 1,
                Ok(Acquired::Lease(_)) => granted += 1,
                // The other process spins on every processor: what is late was not granted.
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
            }
        }
        say(format!("{refused} {granted}"));
    });
}

#[test]
fn a_lease_is_held_while_every_worker_of_the_runtime_spins() {
    let (directory, ttl) = (scratch(), Duration::from_millis(500));
    let runtime = runtime(2);
    let client = runtime.block_on(Client::connect(&url(directory.path()))).unwrap();
    let lease = runtime.block_on(client.lease("x").ttl(ttl).acquire()).unwrap();
    let mut rival = Player::start("play", &["try", &url(directory.path()), "500"]);
    assert_eq!(rival.hear(), "ready");
    let spinners: Vec<_> = (0..2)
        .map(|_| {
            runtime.spawn(async move {
                let began = Instant::now();
                while began.elapsed() < ttl * 3 {
                    std::hint::spin_loop();
                }
            })
        })
        .collect();
    let began = Instant::now();
    while began.elapsed() < ttl * 3 {
        assert!(lease.is_held());
        std::thread::sleep(Duration::from_millis(1));
    }
    rival.say("stop");
    let tried = rival.hear();
    let (refused, granted) = tried.split_once(' ').unwrap();
    println!("refused {refused} times in {:?}", ttl * 3);
    assert!(refused.parse::<u32>().unwrap() > 50, "it tried all the time: {tried}");
    assert_eq!(granted, "0");
    runtime.block_on(async {
        for spinner in spinners {
            spinner.await.unwrap();
        }
        lease.release().await.unwrap();
    });
}

/// Holds, and says before it would write whether it still does; releases, and
/// holds again when it is told to.
fn hold_and_answer(url: &str, ttl: Duration) {
    let runtime = runtime(1);
    let client = runtime.block_on(Client::connect(url)).unwrap();
    let request = client.lease("x").ttl(ttl);
    loop {
        let lease = runtime.block_on(request.acquire()).unwrap();
        say(lease.token());
        assert_eq!(listen(), "write");
        let answer = match lease.check() {
            Ok(()) => "Held".to_owned(),
            Err(error) => format!("{:?}", error.loss().unwrap().reason),
        };
        runtime.block_on(lease.release()).unwrap();
        say(answer);
        if listen() == "end" {
            return;
        }
    }
}

#[test]
fn a_process_stopped_beyond_its_ttl_learns_it_before_its_first_write() {
    let directory = scratch();
    let clock = Clock::system();
    let ttl = Duration::from_millis(500);
    let runtime = runtime(1);
    let client = runtime.block_on(Client::connect(&url(directory.path()))).unwrap();
    let mut holder = Player::start("play", &["hold", &url(directory.path()), "500"]);
    for round in 0..rounds(5, 100) {
        let theirs: u64 = holder.hear().parse().unwrap();
        holder.signal("STOP");
        let stopped = clock.now();
        let lease = runtime.block_on(client.lease("x").ttl(ttl).acquire()).unwrap();
        let waited = clock.now() - stopped;
        assert!(lease.token().as_u64() > theirs);
        // Its first beat may have been the last thing it did; others wait for the TTL.
        assert!(
            waited > ttl - ttl / 3 - Duration::from_millis(100) && waited < ttl + Duration::from_secs(1),
            "{waited:?}"
        );
        holder.say("write");
        holder.signal("CONT");
        assert_eq!(holder.hear(), "Expired", "round {round}");
        runtime.block_on(lease.release()).unwrap();
        holder.say("again");
    }
}

/// Shifts CLOCK_REALTIME as the C library tells it by the seconds in SHIFT.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, time);
    const char *shift = getenv("SHIFT");
    if (id == CLOCK_REALTIME && shift) time->tv_sec += atol(shift);
    return result;
}
"#;

fn shim(directory: &Path) -> String {
    let (source, library) = (directory.join("shim.c"), directory.join("shim.so"));
    std::fs::write(&source, SHIM).unwrap();
    let mut compiler = Command::new("cc");
    let status = compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl").status();
    let status = status.expect("a C compiler, from the Debian package gcc");
    assert!(status.success());
    library.display().to_string()
}

#[test]
fn a_wall_clock_that_is_an_hour_off_changes_nothing() {
    for shift in ["3600", "-3600"] {
        let directory = scratch();
        let shim = shim(directory.path());
        let url = url(directory.path());
        let (preload, shift_by) = (format!("LD_PRELOAD={shim}"), format!("SHIFT={shift}"));
        let shifted = ["env", &preload, &shift_by];
        let runtime = runtime(1);
        let ours = runtime.block_on(Client::connect(&url)).unwrap();
        // The control: the other process does see another hour, for its tokens are
        // minted from it where they can be.
        let other = scratch();
        let control = Player::start_under(&shifted, "play", &["token", &self::url(other.path())]);
        let token: i64 = control.hear().parse().unwrap();
        let off = token / 1_000_000 - (Clock::system().wall_us() / 1_000_000) as i64;
        assert!((off - shift.parse::<i64>().unwrap()).abs() < 60, "the control is off by {off} s");

        // A holder whose clock is off is not taken from, and takes from nobody.
        let mut theirs = Player::start_under(&shifted, "play", &["hold", &url, "500"]);
        let mut last: u64 = theirs.hear().parse().unwrap();
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(1500) {
            assert!(runtime.block_on(ours.lease("x").try_acquire()).unwrap().lease().is_none(), "{shift}");
        }
        theirs.say("write");
        assert_eq!(theirs.hear(), "Held");
        for _ in 0..3 {
            let lease = runtime.block_on(ours.lease("x").ttl(Duration::from_millis(500)).acquire()).unwrap();
            assert!(lease.token().as_u64() > last, "tokens grow whatever the clocks say");
            last = lease.token().as_u64();
            theirs.say("again");
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(600) {
                assert!(lease.is_held());
            }
            runtime.block_on(lease.release()).unwrap();
            let token: u64 = theirs.hear().parse().unwrap();
            assert!(token > last, "tokens grow whatever the clocks say");
            last = token;
            theirs.say("write");
            assert_eq!(theirs.hear(), "Held");
        }
    }
}

/// Resident memory and used processor time of this process.
fn usage() -> (usize, Duration) {
    let pages: usize =
        std::fs::read_to_string("/proc/self/statm").unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split(' ').collect();
    let ticks: u64 = fields[12].parse::<u64>().unwrap() + fields[13].parse::<u64>().unwrap();
    (pages * 4096, Duration::from_millis(ticks * 10))
}

async fn acquire_many(client: &Client, count: usize, ttl: Duration) -> Vec<Lease> {
    let mut leases = Vec::with_capacity(count);
    for i in 0..count {
        leases.push(client.lease(format!("many-{i}")).ttl(ttl).acquire().await.unwrap());
    }
    leases
}

/// Spread over all of them, so that each batch has some.
fn sample(count: usize) -> impl Iterator<Item = usize> {
    (0..100).map(move |i| i * count / 100 + i % 7)
}

#[test]
fn a_hundred_thousand_leases_fit_into_one_process_in_memory() {
    if child::role().is_some() {
        return;
    }
    let (count, ttl) = (100_000, Duration::from_secs(10));
    let held = Duration::from_secs(rounds(12, 60).into());
    runtime(2).block_on(async {
        let memory = tenure::stores::memory::Memory::new(Clock::system());
        let faulty = tenure::conformance::Faulty::new(memory.client(), Clock::system());
        let faults = faulty.faults();
        let client = Client::new(std::sync::Arc::new(faulty)).unwrap();
        let rival = Client::new(memory.client()).unwrap();
        let (before, _) = usage();
        let leases = acquire_many(&client, count, ttl).await;
        let (after, cpu) = usage();
        let each = (after - before) / count;
        println!("{each} bytes of resident memory per lease");
        assert!(each <= 1024, "{each} bytes per lease");
        let began = Instant::now();
        let mut tries = 0;
        while began.elapsed() < held {
            for i in sample(count) {
                let acquired = rival.lease(format!("many-{i}")).try_acquire().await.unwrap();
                assert!(acquired.lease().is_none(), "many-{i} has two holders");
                assert!(leases[i].is_held());
                tries += 1;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let (_, later) = usage();
        let cores = (later - cpu).as_secs_f64() / began.elapsed().as_secs_f64();
        println!("{cores:.2} cores over {held:?}, {tries} tries refused");
        assert!(cores < 1.0, "{cores:.2} cores");
        // The store falls silent: each is lost at its deadline, no earlier, no later.
        faults.set(tenure::conformance::Verb::Renew, tenure::conformance::Fault::Never);
        lost_at_their_deadlines(&leases).await;
        drop(leases);
    });
}

async fn lost_at_their_deadlines(leases: &[Lease]) {
    let clock = Clock::system();
    let watched: Vec<_> = sample(leases.len()).map(|i| tokio::spawn(leases[i].lost())).collect();
    for (i, lost) in sample(leases.len()).zip(watched) {
        let loss = tokio::time::timeout(Duration::from_secs(30), lost).await.unwrap().unwrap();
        assert_eq!(loss.reason, Reason::Expired);
        let (deadline, late) = (leases[i].deadline(), loss.at - leases[i].deadline());
        assert!(loss.at >= deadline && late < Duration::from_secs(1), "{late:?} late");
        assert!(clock.now() - loss.at < Duration::from_secs(5) && !leases[i].is_held());
    }
}

/// Holds many until it is killed; says what they cost.
fn hold_many(url: &str, count: usize, ttl: Duration) {
    runtime(2).block_on(async {
        let client = Client::connect(url).await.unwrap();
        // Threads, connections and their caches are there before it is measured.
        let first = client.lease("first").ttl(ttl).acquire().await.unwrap();
        first.confirm().await.unwrap();
        let (before, _) = usage();
        let leases = acquire_many(&client, count, ttl).await;
        let (after, cpu) = usage();
        say((after - before) / count);
        let began = Instant::now();
        loop {
            match tokio::task::spawn_blocking(listen).await.unwrap().as_str() {
                "cost" => {
                    assert!(leases.iter().all(Lease::is_held));
                    say((usage().1 - cpu).as_secs_f64() / began.elapsed().as_secs_f64());
                }
                "lose" => {
                    lost_at_their_deadlines(&leases).await;
                    say("lost");
                }
                word => panic!("{word}?"),
            }
        }
    });
}

/// Write transactions that the database has seen: SQLite counts them in the index
/// of its log (the third word of its header).
fn transactions(database: &Path) -> u32 {
    let index = std::fs::read(database.with_extension("db-shm")).unwrap();
    u32::from_ne_bytes(index[8..12].try_into().unwrap())
}

#[test]
fn ten_thousand_leases_on_sqlite_are_one_beat() {
    let (count, ttl) = (10_000, "10000");
    let held = Duration::from_secs(rounds(12, 60).into());
    let directory = scratch();
    let (url, database) = (url(directory.path()), directory.path().join("leases.db"));
    let mut holder = Player::start("play", &["hold-many", &url, &count.to_string(), ttl]);
    let each: usize = holder.hear().parse().unwrap();
    println!("{each} bytes of resident memory per lease");
    assert!(each <= 1024);
    runtime(1).block_on(async {
        let rival = Client::connect(&url).await.unwrap();
        let (began, before) = (Instant::now(), transactions(&database));
        while began.elapsed() < held {
            for i in sample(count) {
                let acquired = rival.lease(format!("many-{i}")).try_acquire().await.unwrap();
                assert!(acquired.lease().is_none(), "many-{i} has two holders");
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        // A beat every third of the TTL.
        let beats = began.elapsed().as_secs_f64() / (10.0 / 3.0);
        let per_beat = f64::from(transactions(&database) - before) / beats.floor();
        println!("{per_beat:.2} write transactions per beat");
        assert!(per_beat <= 2.0);
        holder.say("cost");
        let cores: f64 = holder.hear().parse().unwrap();
        println!("{cores:.3} cores");
        assert!(cores < 1.0);

        // Killed: another process gets each of them, at once.
        holder.signal("KILL");
        holder.process.wait().unwrap();
        let killed = Instant::now();
        for i in sample(count) {
            let lease = rival.lease(format!("many-{i}")).acquire().await.unwrap();
            lease.release().await.unwrap();
        }
        println!("a sample of 100 taken over within {:?}", killed.elapsed());
        assert!(killed.elapsed() < Duration::from_secs(3), "{:?}", killed.elapsed());
    });

    // The database is locked by somebody: each is lost at its deadline.
    let count = rounds(1_000, 10_000);
    let mut holder = Player::start("play", &["hold-many", &url, &count.to_string(), ttl]);
    holder.hear();
    let blocker = rusqlite::Connection::open(&database).unwrap();
    blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
    holder.say("lose");
    assert_eq!(holder.hear(), "lost");
    blocker.execute_batch("ROLLBACK").unwrap();
}
