//! `make bench`: what `tenure run` costs on the embedded store beside `flock(1)` around the
//! same command, alone and two hundred at once. Prints raw samples; exits with 1 when a
//! stated figure is missed.
#![allow(clippy::disallowed_methods, reason = "a measurement")]

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const ROUNDS: usize = 101;
const CROWD: usize = 200;
const CROWD_ROUNDS: usize = 3;

fn main() -> ExitCode {
    // On a real disk: a grant is synced.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let verdicts = [alone(directory.path()), crowd(directory.path())];
    if verdicts.iter().all(|met| *met) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// One after the other, interleaved.
fn alone(directory: &Path) -> bool {
    let (mut ours, mut flocks, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    // The first round makes the store, and does not count.
    for _ in 0..=ROUNDS {
        ours.push(time(|| succeed(tenure(directory).arg("true"))));
        flocks.push(time(|| succeed(flock(directory).arg("true"))));
        bare.push(time(|| succeed(&mut Command::new("true"))));
    }
    println!("around `true`, milliseconds, median of {ROUNDS} and raw");
    let medians =
        [("nothing", bare), ("flock(1)", flocks), ("tenure run", ours)].map(|(what, mut samples)| {
            samples.remove(0);
            let raw: Vec<String> = samples.iter().map(|sample| format!("{:.1}", ms(*sample))).collect();
            let median = median(&mut samples);
            println!("  {what:<10} {:6.2}   {}", ms(median), raw.join(" "));
            median
        });
    let more = ms(medians[2].saturating_sub(medians[1]));
    verdict("tenure run over flock(1), ms", more, 10.0)
}

/// All at once on one name; each holds it for 20 ms.
fn crowd(directory: &Path) -> bool {
    let (mut ours, mut flocks) = (Vec::new(), Vec::new());
    for _ in 0..CROWD_ROUNDS {
        ours.push(time(|| all_at_once(|| tenure(directory))));
        flocks.push(time(|| all_at_once(|| flock(directory))));
    }
    println!("{CROWD} at once around `sleep 0.02`, seconds");
    println!("  flock(1)   {flocks:.2?}");
    println!("  tenure run {ours:.2?}");
    let (ours, flocks) = (median(&mut ours).as_secs_f64(), median(&mut flocks).as_secs_f64());
    println!("  tenure / flock: {:.2}", ours / flocks);
    verdict("seconds over twice flock(1)", ours - 2.0 * flocks, 5.0)
}

fn all_at_once(command: impl Fn() -> Command) {
    let start = |_| command().args(["sleep", "0.02"]).stderr(Stdio::null()).spawn().expect("it starts");
    let crowd: Vec<_> = (0..CROWD).map(start).collect();
    for mut child in crowd {
        assert!(child.wait().expect("a child").success());
    }
}

/// With the command to come.
fn tenure(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.env_remove("TENURE_STORE_FILE");
    command.env("TENURE_STORE", format!("sqlite:{}", directory.join("leases.db").display()));
    command.args(["run", "x", "--"]);
    command
}

fn flock(directory: &Path) -> Command {
    let mut command = Command::new("flock");
    command.arg(directory.join("lock"));
    command
}

fn succeed(command: &mut Command) {
    assert!(command.stdin(Stdio::null()).status().expect("it starts").success());
}

fn time(work: impl FnOnce()) -> Duration {
    let began = Instant::now();
    work();
    began.elapsed()
}

fn median(samples: &mut [Duration]) -> Duration {
    samples.sort();
    samples[samples.len() / 2]
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn verdict(what: &str, value: f64, most: f64) -> bool {
    let met = value <= most;
    println!("  {what}: {value:.2} (at most {most}): {}", if met { "met" } else { "MISSED" });
    met
}
