//! `run -n` by fifty processes at a time, of which tenure, its guardian and CMD are killed at
//! random: nobody writes after somebody newer, and nothing stays behind.
#![allow(clippy::disallowed_methods, reason = "works and kills in real time")]

mod support;

#[path = "../../tenure/tests/support/rounds.rs"]
mod rounds;

use rounds::rounds;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use support::{BOUND, eventually, run, stderr, tenure};

const AT_ONCE: u32 = 50;
/// Only CMD has it: the file that it writes to.
const WITNESS: &str = "TENURE_TEST_WITNESS";

/// CMD: shows its token to a resource with a fence, several times.
#[test]
fn play() {
    let Some(path) = std::env::var_os(WITNESS) else { return };
    let variable = |name| std::env::var(name).expect("CMD has it");
    let (token, owner): (u64, _) =
        (variable("TENURE_TOKEN").parse().expect("a number"), variable("TENURE_OWNER"));
    for _ in 0..4 {
        write_fenced(Path::new(&path), token, &owner);
        std::thread::sleep(Duration::from_millis(3));
    }
}

/// The fence: accepts what is not older than what it saw last, and writes down either.
fn write_fenced(path: &Path, token: u64, owner: &str) {
    let mut file = File::options().read(true).append(true).create(true).open(path).expect("the witness");
    flock(&file, FlockOperation::LockExclusive).expect("a lock");
    let mut text = String::new();
    file.read_to_string(&mut text).expect("the witness");
    let last = text.lines().rfind(|line| line.starts_with("accepted")).and_then(Line::parse);
    let stale = last.is_some_and(|last| token < last.token || token == last.token && owner != last.owner);
    let verdict = if stale { "refused" } else { "accepted" };
    // In one write: a writer that is killed leaves a whole line or none.
    file.write_all(format!("{verdict} {token} {owner}\n").as_bytes()).expect("the witness");
}

struct Line<'a> {
    verdict: &'a str,
    token: u64,
    owner: &'a str,
}

impl Line<'_> {
    fn parse(line: &str) -> Option<Line<'_>> {
        let mut words = line.split(' ');
        Some(Line { verdict: words.next()?, token: words.next()?.parse().ok()?, owner: words.next()? })
    }
}

#[test]
fn nothing_is_left_and_nobody_is_late_when_all_are_killed_at_random() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path();
    assert!(run(tenure(place).args(["run", "x", "--", "true"])).status.success());
    let (rounds, started) = (rounds(600, 10_000), AtomicU32::new(0));
    let ends: Mutex<BTreeMap<String, u32>> = Mutex::default();
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(rounds) {
            scope.spawn(|| {
                // On a slow machine few get it before so many have been refused: then more are started.
                let enough = || holders(place) > rounds as usize / 100 || began.elapsed() > BOUND * 10;
                while started.fetch_add(1, Ordering::Relaxed) < rounds || !enough() {
                    let end = one(place);
                    *ends.lock().expect("no panic").entry(end).or_default() += 1;
                }
            });
        }
    });
    let ends = ends.into_inner().expect("no panic");
    println!("{} runs in {:.1?}: {ends:?}", ends.values().sum::<u32>(), began.elapsed());

    let text = fs::read_to_string(place.join("witness")).expect("somebody got it");
    let lines: Vec<Line<'_>> = text.lines().map(|line| Line::parse(line).expect("a line")).collect();
    let refused = lines.iter().filter(|line| line.verdict != "accepted").count();
    let holders: BTreeSet<&str> = lines.iter().map(|line| line.owner).collect();
    println!("{} lines by {} holders, {refused} refused", lines.len(), holders.len());
    assert!(lines.windows(2).all(|pair| pair[0].token <= pair[1].token), "an old one wrote after a new one");
    assert_eq!(refused, 0);
    assert!(holders.len() > rounds as usize / 100, "enough of them got it: {}", holders.len());

    eventually("nothing of it runs", || running(place).is_empty().then_some(()));
    let began = Instant::now();
    let last = run(tenure(place).args(["run", "x", "--", "true"]));
    assert!(last.status.success(), "{}", stderr(&last));
    assert!(began.elapsed() < Duration::from_secs(2), "free at once: {:?}", began.elapsed());
    let store = rusqlite::Connection::open(place.join("leases.db")).expect("the store");
    let count = |table: &str| -> i64 {
        store.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).expect("a count")
    };
    assert_eq!(count("entry"), 0, "nobody is left in the queue");
    // The hourly sweep, which takes what the killed could not take along, is due now.
    store.execute("UPDATE tidy SET due = 0", []).expect("the store");
    drop(store);
    let names = |place: &Path| -> BTreeSet<String> {
        let entries = fs::read_dir(place).expect("a directory").flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    let mut files = names(place);
    files.retain(|name| !["leases.db", "leases.db-wal", "leases.db-shm", "witness"].contains(&name.as_str()));
    assert_eq!(files, BTreeSet::from(["leases.db-gate".to_owned(), "leases.db-live".to_owned()]));
    eventually("the liveness files are swept", || {
        assert!(run(tenure(place).args(["run", "x", "--", "true"])).status.success());
        names(&place.join("leases.db-live")).is_empty().then_some(())
    });
}

/// How many have held it so far.
fn holders(place: &Path) -> usize {
    let text = fs::read_to_string(place.join("witness")).unwrap_or_default();
    text.lines().filter_map(|line| Some(Line::parse(line)?.owner)).collect::<BTreeSet<_>>().len()
}

/// A run, with a murder in every second one; how it ended.
fn one(place: &Path) -> String {
    let mut command = tenure(place);
    let program = std::env::current_exe().expect("this program");
    command.env(WITNESS, place.join("witness")).args(["run", "-n", "x", "--"]).arg(program);
    command.args(["--exact", "play", "--test-threads=1"]).stdout(Stdio::null());
    let mut child = command.spawn().expect("it starts");
    let dice = random();
    let victim = if dice.is_multiple_of(2) { murder(&mut child, dice) } else { None };
    let output = child.wait_with_output().expect("a child");
    let end = match (output.status.code(), output.status.signal()) {
        (Some(code), _) => format!("{code}"),
        (_, signal) => format!("signal {}", signal.expect("or a code")),
    };
    let expected: &[&str] = match victim {
        // It may have been over, or the victim about to end, as it was killed.
        Some("tenure") => &["0", "75", "signal 9"],
        Some("guardian") => &["0", "75", "70"],
        Some(_) => &["0", "75", "signal 9"],
        None => &["0", "75"],
    };
    assert!(expected.contains(&end.as_str()), "{victim:?} killed, {end}: {}", stderr(&output));
    format!("{} {end}", victim.unwrap_or("nobody"))
}

/// Kills one of the three at some instant; which, if it was there.
fn murder(child: &mut Child, dice: u64) -> Option<&'static str> {
    // Not waited for yet, so its number is nobody else's.
    let tenure = Pid::from_child(child);
    let guardian = || only_child(tenure);
    if !(dice / 8).is_multiple_of(4) {
        // Mostly one that got it, if it does.
        while guardian().is_none() && support::runs(child.id() as i32) {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    std::thread::sleep(Duration::from_micros(dice / 32 % 30_000));
    let (who, pid) = match dice / 2 % 4 {
        0 => ("tenure", tenure),
        1 => ("guardian", guardian()?),
        _ => ("CMD", only_child(guardian()?)?),
    };
    // Held by a descriptor first: a number can be given to somebody else meanwhile.
    let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    let is_ours = match who {
        "tenure" => true,
        "guardian" => guardian() == Some(pid),
        _ => guardian().and_then(only_child) == Some(pid),
    };
    (is_ours && pidfd_send_signal(process, Signal::KILL).is_ok()).then_some(who)
}

fn only_child(pid: Pid) -> Option<Pid> {
    let number = pid.as_raw_nonzero();
    let text = fs::read_to_string(format!("/proc/{number}/task/{number}/children")).ok()?;
    Pid::from_raw(text.split_whitespace().next()?.parse().ok()?)
}

/// What has this directory in its environment, which all of a run have.
fn running(place: &Path) -> Vec<String> {
    let place = place.to_string_lossy().into_owned();
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    let ours = processes.filter(|process| {
        let environment = fs::read(process.path().join("environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(&place)
    });
    ours.map(|process| process.file_name().to_string_lossy().into_owned()).collect()
}

fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
