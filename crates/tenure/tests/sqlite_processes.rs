//! `sqlite:` between processes: what only the kernel can tell.
//!
//! A child is this test binary again, with one role as its only test.
#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tenure::store::*;
use tenure::stores::sqlite::Sqlite;
use tenure::{Claim, Clock, Label, Token};
use tokio::sync::mpsc;

const TTL: Duration = Duration::from_secs(10);

struct Waiter {
    store: Sqlite,
    hints: mpsc::Receiver<Hint>,
    clock: Clock,
}

impl Waiter {
    async fn new(directory: &Path) -> Waiter {
        let clock = Clock::system();
        let store = Sqlite::at(directory.join("leases.db"), clock.clone()).await.expect("a store");
        let hints = store.events();
        Waiter { store, hints, clock }
    }

    fn ask() -> Ask {
        let claim = Claim::fresh("x".parse().expect("a name"));
        let label = Label::new("a process").expect("a label");
        Ask { claim, label, terms: Terms::of(TTL), queue: true }
    }

    /// Waits for the name as the keeper does.
    async fn acquire(&mut self) -> (Claim, Token) {
        loop {
            let ask = Waiter::ask();
            let claim = ask.claim.clone();
            if let Answer::Granted(grant) = self.store.acquire(ask).await.expect("an answer") {
                return (claim, grant.token);
            }
            if let Some(token) = self.wait(&claim).await {
                return (claim, token);
            }
        }
    }

    /// `None`: its entry is gone.
    async fn wait(&mut self, claim: &Claim) -> Option<Token> {
        loop {
            let hint = self.clock.timeout(ENTRY_LIFE / 3, self.hints.recv()).await;
            let grant = match hint {
                Some(Some(Hint::Granted(told, grant))) if told == *claim => grant,
                Some(None) => panic!("the bell ended"),
                _ => match self.store.attend(vec![claim.clone()]).await.expect("an answer").remove(0) {
                    Attended::Granted(grant) => grant,
                    Attended::Waiting(_) => continue,
                    Attended::Gone => return None,
                    Attended::Unknown(error) => panic!("{error}"),
                },
            };
            let renewal = Renewal { claim: claim.clone(), ttl: TTL };
            let outcome = self.store.renew(vec![renewal]).await.expect("an answer").outcomes.remove(0);
            match outcome {
                Outcome::Kept(_) => return Some(grant.token),
                Outcome::Lost(_) => return None,
                Outcome::Unknown(error) => panic!("{error}"),
            }
        }
    }
}

fn child(role: &str, directory: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", role, "--ignored", "--nocapture"])
        .env("TENURE_TEST_DIRECTORY", directory)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child")
}

fn said(child: &mut Child, word: &str) {
    let output = child.stdout.as_mut().expect("its output");
    let said = BufReader::new(output).lines().any(|line| line.expect("a line").ends_with(word));
    assert!(said, "the child ended without saying {word}");
}

fn directory() -> std::path::PathBuf {
    std::env::var_os("TENURE_TEST_DIRECTORY").expect("a child gets it").into()
}

#[tokio::test]
#[ignore = "a role for children of the other tests"]
async fn role_holder() {
    let mut waiter = Waiter::new(&directory()).await;
    waiter.acquire().await;
    println!("\nheld");
    std::future::pending().await
}

#[tokio::test]
#[ignore = "a role for children of the other tests"]
async fn role_waiter() {
    let mut waiter = Waiter::new(&directory()).await;
    let ask = Waiter::ask();
    let claim = ask.claim.clone();
    assert!(matches!(waiter.store.acquire(ask).await, Ok(Answer::Busy(_))));
    println!("\nwaits");
    waiter.wait(&claim).await;
    std::future::pending().await
}

/// Takes turns and writes down each token while it holds the name.
#[tokio::test]
#[ignore = "a role for children of the other tests"]
async fn role_worker() {
    let directory = directory();
    let mut waiter = Waiter::new(&directory).await;
    let until = Instant::now() + Duration::from_secs(2);
    let mut turns = 0;
    while Instant::now() < until || turns == 0 {
        let (claim, token) = waiter.acquire().await;
        let witness = directory.join("witness");
        OpenOptions::new().write(true).create_new(true).open(&witness).expect("nobody else holds it");
        let log = directory.join("tokens");
        let mut log = OpenOptions::new().append(true).create(true).open(log).expect("a log");
        writeln!(log, "{token}").expect("written");
        std::fs::remove_file(&witness).expect("the witness is ours");
        waiter.store.release(claim, Ending::Released).await.expect("released");
        turns += 1;
    }
    println!("\nturns {turns}");
}

#[tokio::test]
async fn a_killed_holder_is_replaced_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut waiter = Waiter::new(directory.path()).await;
    let mut times = Vec::new();
    for _ in 0..9 {
        let mut holder = child("role_holder", directory.path());
        said(&mut holder, "held");
        let ask = Waiter::ask();
        let claim = ask.claim.clone();
        assert!(matches!(waiter.store.acquire(ask).await, Ok(Answer::Busy(_))));
        // Whoever is next notices that within a quarter of a second.
        waiter.clock.sleep(Duration::from_millis(300)).await;
        waiter.store.attend(vec![claim.clone()]).await.expect("an answer");
        while waiter.hints.try_recv().is_ok() {}
        let killed = Instant::now();
        holder.kill().expect("killed");
        waiter.wait(&claim).await.expect("granted");
        times.push(killed.elapsed());
        holder.wait().expect("dead");
        waiter.store.release(claim, Ending::Released).await.expect("released");
    }
    times.sort();
    println!("taken over after {times:?}");
    assert!(times[4] < Duration::from_millis(40), "{times:?}");
}

#[tokio::test]
async fn a_stopped_waiter_at_the_head_costs_the_others_two_seconds_at_most() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut holder = Waiter::new(directory.path()).await;
    let (held, _) = holder.acquire().await;
    let mut stopped = child("role_waiter", directory.path());
    said(&mut stopped, "waits");
    let pid = rustix::process::Pid::from_child(&stopped);
    let mut next = Waiter::new(directory.path()).await;
    let ask = Waiter::ask();
    let claim = ask.claim.clone();
    assert!(matches!(next.store.acquire(ask).await, Ok(Answer::Busy(busy)) if busy.place == Some(2)));
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("stopped");
    let released = Instant::now();
    holder.store.release(held, Ending::Released).await.expect("released");
    next.wait(&claim).await.expect("granted");
    let took = released.elapsed();
    stopped.kill().expect("killed");
    stopped.wait().expect("dead");
    println!("passed on after {took:?}");
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn processes_take_turns_and_never_hold_together() {
    let directory = tempfile::tempdir().expect("a directory");
    let workers: Vec<_> = (0..8).map(|_| child("role_worker", directory.path())).collect();
    let mut turns = Vec::new();
    for worker in workers {
        let output = worker.wait_with_output().expect("ended");
        let output = String::from_utf8(output.stdout).expect("text");
        assert!(output.contains("test result: ok"), "{output}");
        let count = output.lines().find_map(|line| line.strip_prefix("turns ")?.parse::<usize>().ok());
        turns.push(count.expect("a number"));
    }
    let tokens = std::fs::read_to_string(directory.path().join("tokens")).expect("the log");
    let tokens: Vec<u64> = tokens.lines().map(|line| line.parse().expect("a token")).collect();
    assert!(tokens.is_sorted_by(|a, b| a < b), "tokens only grow");
    assert_eq!(tokens.len(), turns.iter().sum::<usize>());
    println!("{} turns in 2 s: {turns:?}", tokens.len());
    let (least, most) = (turns.iter().min().expect("eight"), turns.iter().max().expect("eight"));
    assert!(*least * 4 >= *most || *most < 20, "nobody starves: {turns:?}");
}
