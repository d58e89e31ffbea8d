//! `make bench`: tenure beside the floor on the embedded store, and hand-over
//! across processes. Prints raw samples and ratios; exits with 1 when a stated
//! ratio is missed.
//!
//! The floor is the same SQLite, file system and durability with nothing around it:
//! one `BEGIN IMMEDIATE` transaction that is synced for a grant, one that is not
//! for a release, on the thread that measures.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::unwrap_used, reason = "a measurement")]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Short rounds, and many: a disk and a machine that are shared change from second to second, and
/// what is compared has to meet the same ones.
const ROUNDS: usize = 101;
const ROUND: Duration = Duration::from_millis(60);
const ROLE: &str = "TENURE_BENCH_WORKER";

fn main() -> ExitCode {
    if let Ok(seconds) = std::env::var(ROLE) {
        worker(Duration::from_secs_f64(seconds.parse().unwrap()));
        return ExitCode::SUCCESS;
    }
    let verdicts = [uncontended(), handover(8), handover(200)];
    if verdicts.iter().all(|met| *met) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Acquire + release pairs a second, tenure against the floor, interleaved.
fn uncontended() -> bool {
    let dir = scratch();
    let mut floor = Floor::open(&dir.path().join("floor.db"));
    let url = format!("sqlite:{}", dir.path().join("leases.db").display());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = runtime.block_on(tenure::Client::connect(&url)).unwrap();
    let request = client.lease("bench");
    let mut off = OffThread::start(Floor::open(&dir.path().join("off.db")));
    let (mut bare, mut aside, mut ours) = (Vec::new(), Vec::new(), Vec::new());
    // The first round warms the file system and the processors, and does not count.
    for _ in 0..=ROUNDS {
        bare.push(per_second(|| floor.pair()));
        aside.push(runtime.block_on(off.pairs_per_second()));
        ours.push(runtime.block_on(async {
            let (began, mut pairs) = (Instant::now(), 0);
            while began.elapsed() < ROUND {
                request.acquire().await.unwrap().release().await.unwrap();
                pairs += 1;
            }
            f64::from(pairs) / began.elapsed().as_secs_f64()
        }));
    }
    for samples in [&mut bare, &mut aside, &mut ours] {
        samples.remove(0);
    }
    let ratio = |to: &[f64]| median(&mut ours.iter().zip(to).map(|(ours, to)| ours / to).collect::<Vec<_>>());
    let (to_bare, to_aside) = (ratio(&bare), ratio(&aside));
    println!("uncontended acquire + release, 1 task, pairs/s in {ROUNDS} rounds: p10, p50, p90");
    for (what, samples) in [
        ("floor, on the measuring thread", &mut bare),
        ("the same on a thread aside", &mut aside),
        ("tenure", &mut ours),
    ] {
        let p50 = median(samples);
        println!("  {what:32}{:6.0} {p50:6.0} {:6.0}", samples[ROUNDS / 10], samples[ROUNDS * 9 / 10]);
    }
    println!("  tenure / the same on a thread aside, median of the rounds: {to_aside:.2}");
    verdict("tenure / floor, median of the rounds", to_bare, |ratio| ratio >= 0.8, "at least 0.8")
}

/// From the release of one holder to the entry of the next, across processes in a
/// closed loop with no hold time.
fn handover(processes: usize) -> bool {
    let dir = scratch();
    let seconds = if processes > 50 { 6.0 } else { 3.0 };
    let mut workers: Vec<Child> = (0..processes)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .env(ROLE, seconds.to_string())
                .env("TENURE_BENCH_DB", dir.path().join("leases.db"))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    // All are up before any begins.
    let mut outputs: Vec<_> =
        workers.iter_mut().map(|child| BufReader::new(child.stdout.take().unwrap())).collect();
    for output in &mut outputs {
        output.read_line(&mut String::new()).unwrap();
    }
    for worker in &mut workers {
        worker.stdin.take().unwrap().write_all(b"go\n").unwrap();
    }
    let mut turns = Vec::new();
    let mut counts = Vec::new();
    for (process, (worker, mut output)) in workers.iter_mut().zip(outputs).enumerate() {
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        assert!(worker.wait().unwrap().success());
        let before = turns.len();
        turns.extend(text.lines().map(|line| {
            let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
            (numbers[0], numbers[1], numbers[2], process)
        }));
        counts.push(turns.len() - before);
    }
    turns.sort_unstable();
    let mut overlaps = 0;
    let mut gaps: Vec<f64> = Vec::new();
    for pair in turns.windows(2) {
        let ((_, _, left, a), (_, entered, _, b)) = (pair[0], pair[1]);
        overlaps += usize::from(entered < left);
        if a != b {
            gaps.push(entered.saturating_sub(left) as f64 / 1e6);
        }
    }
    let hand_overs = gaps.len() as f64 / seconds;
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    println!("hand-over across {processes} processes, hold 0");
    println!("  {hand_overs:.0}/s, {least} to {most} turns per process, {overlaps} overlaps");
    let p50 = median(&mut gaps);
    println!(
        "  gap ms: p50 {p50:.2}, p95 {:.2}, max {:.2}",
        gaps[gaps.len() * 95 / 100],
        gaps[gaps.len() - 1]
    );
    let met = verdict("median gap in ms", p50, |gap| gap <= 2.0, "at most 2");
    met & verdict("least turns of a process", *least as f64, |turns| turns >= 1.0, "none starved")
        & verdict("overlaps", overlaps as f64, |overlaps| overlaps == 0.0, "none")
}

fn worker(duration: Duration) {
    let url = format!("sqlite:{}", std::env::var("TENURE_BENCH_DB").unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let clock = tenure::Clock::system();
    let turns = runtime.block_on(async {
        let client = tenure::Client::connect(&url).await.unwrap();
        let request = client.lease("bench");
        println!("ready");
        std::io::stdin().read_line(&mut String::new()).unwrap();
        let (began, mut turns) = (Instant::now(), Vec::new());
        while began.elapsed() < duration {
            let lease = request.acquire().await.unwrap();
            let entered = clock.now();
            let token = lease.token();
            let left = clock.now();
            lease.release().await.unwrap();
            turns.push((token, entered.as_nanos(), left.as_nanos()));
        }
        client.close().await;
        turns
    });
    let mut output = String::new();
    for (token, entered, left) in turns {
        output += &format!("{token} {entered} {left}\n");
    }
    print!("{output}");
}

/// Bare SQLite with the durability that a lease needs.
struct Floor(rusqlite::Connection);

impl Floor {
    fn open(path: &Path) -> Floor {
        let db = rusqlite::Connection::open(path).unwrap();
        db.pragma_update(None, "journal_mode", "WAL").unwrap();
        db.execute_batch(
            "CREATE TABLE lease (name TEXT PRIMARY KEY, token INTEGER NOT NULL, owner BLOB) WITHOUT ROWID",
        )
        .unwrap();
        Floor(db)
    }

    fn pair(&mut self) {
        self.transaction(true);
        self.transaction(false);
    }

    fn transaction(&mut self, grant: bool) {
        let upsert = "INSERT INTO lease (name, token, owner) VALUES ('bench', 1, x'00112233445566778899aabbccddeeff') \
                      ON CONFLICT (name) DO UPDATE SET token = token + 1, owner = excluded.owner";
        let free = "UPDATE lease SET owner = NULL WHERE name = 'bench'";
        let (synchronous, statement) = if grant { ("FULL", upsert) } else { ("NORMAL", free) };
        self.0.pragma_update(None, "synchronous", synchronous).unwrap();
        for sql in ["BEGIN IMMEDIATE", statement, "COMMIT"] {
            self.0.prepare_cached(sql).unwrap().execute([]).unwrap();
        }
    }
}

/// The floor as an async program must use it: its blocking calls on another thread.
struct OffThread(std::sync::mpsc::Sender<(bool, tokio::sync::oneshot::Sender<()>)>);

impl OffThread {
    fn start(mut floor: Floor) -> OffThread {
        let (jobs, queue) = std::sync::mpsc::channel::<(bool, tokio::sync::oneshot::Sender<()>)>();
        std::thread::spawn(move || {
            for (grant, reply) in queue {
                floor.transaction(grant);
                reply.send(()).unwrap();
            }
        });
        OffThread(jobs)
    }

    async fn pairs_per_second(&mut self) -> f64 {
        let (began, mut pairs) = (Instant::now(), 0);
        while began.elapsed() < ROUND {
            for grant in [true, false] {
                let (reply, answer) = tokio::sync::oneshot::channel();
                self.0.send((grant, reply)).unwrap();
                answer.await.unwrap();
            }
            pairs += 1;
        }
        f64::from(pairs) / began.elapsed().as_secs_f64()
    }
}

fn per_second(mut work: impl FnMut()) -> f64 {
    let (began, mut count) = (Instant::now(), 0);
    while began.elapsed() < ROUND {
        work();
        count += 1;
    }
    f64::from(count) / began.elapsed().as_secs_f64()
}

fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn verdict(what: &str, value: f64, met: impl Fn(f64) -> bool, want: &str) -> bool {
    let met = met(value);
    println!("  {what}: {value:.2} ({want}): {}", if met { "met" } else { "MISSED" });
    met
}

/// On a real disk: syncing is what is measured.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}
