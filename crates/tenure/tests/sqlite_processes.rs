//! `sqlite:` between processes: what only the kernel can tell.
#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "support/child.rs"]
mod child;

use child::{Player, listen, say};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::Duration;
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

/// The roles of the other process.
#[tokio::test]
async fn play() {
    let Some(words) = child::role() else { return };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [role, directory] = words[..] else { panic!("no such role: {words:?}") };
    let waiter = Waiter::new(Path::new(directory)).await;
    match role {
        "hold" => hold(waiter).await,
        "wait" => wait(waiter).await,
        "work" => work(waiter, Path::new(directory)).await,
        _ => panic!("no such role: {words:?}"),
    }
}

async fn hold(mut waiter: Waiter) {
    waiter.acquire().await;
    say("held");
    std::future::pending().await
}

async fn wait(mut waiter: Waiter) {
    let ask = Waiter::ask();
    let claim = ask.claim.clone();
    assert!(matches!(waiter.store.acquire(ask).await, Ok(Answer::Busy(_))));
    say("waits");
    waiter.wait(&claim).await;
    std::future::pending().await
}

/// Takes turns and writes down each token while it holds the name.
async fn work(mut waiter: Waiter, directory: &Path) {
    say("ready");
    assert_eq!(listen(), "go");
    let until = waiter.clock.now() + Duration::from_secs(2);
    let mut turns = 0;
    while waiter.clock.now() < until || turns == 0 {
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
    say(turns);
}

fn player(role: &str, directory: &Path) -> Player {
    Player::start("play", &[role, directory.to_str().expect("UTF-8")])
}

#[tokio::test]
async fn a_killed_holder_is_replaced_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut waiter = Waiter::new(directory.path()).await;
    let mut times = Vec::new();
    for _ in 0..9 {
        let mut holder = player("hold", directory.path());
        assert_eq!(holder.hear(), "held");
        let ask = Waiter::ask();
        let claim = ask.claim.clone();
        assert!(matches!(waiter.store.acquire(ask).await, Ok(Answer::Busy(_))));
        waiter.store.attend(vec![claim.clone()]).await.expect("an answer");
        while waiter.hints.try_recv().is_ok() {}
        let killed = waiter.clock.now();
        holder.process.kill().expect("killed");
        waiter.wait(&claim).await.expect("granted");
        times.push(waiter.clock.now() - killed);
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
    let stopped = player("wait", directory.path());
    assert_eq!(stopped.hear(), "waits");
    let mut next = Waiter::new(directory.path()).await;
    let ask = Waiter::ask();
    let claim = ask.claim.clone();
    assert!(matches!(next.store.acquire(ask).await, Ok(Answer::Busy(busy)) if busy.place == Some(2)));
    stopped.signal("STOP");
    let released = next.clock.now();
    holder.store.release(held, Ending::Released).await.expect("released");
    next.wait(&claim).await.expect("granted");
    let took = next.clock.now() - released;
    println!("passed on after {took:?}");
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn processes_take_turns_and_never_hold_together() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut workers: Vec<_> = (0..8).map(|_| player("work", directory.path())).collect();
    for worker in &workers {
        assert_eq!(worker.hear(), "ready");
    }
    // Those that were started first have no lead.
    workers.iter_mut().for_each(|worker| worker.say("go"));
    let turns: Vec<usize> = workers.iter().map(|worker| worker.hear().parse().expect("a number")).collect();
    let tokens = std::fs::read_to_string(directory.path().join("tokens")).expect("the log");
    let tokens: Vec<u64> = tokens.lines().map(|line| line.parse().expect("a token")).collect();
    assert!(tokens.is_sorted_by(|a, b| a < b), "tokens only grow");
    assert_eq!(tokens.len(), turns.iter().sum::<usize>());
    println!("{} turns in 2 s: {turns:?}", tokens.len());
    let (least, most) = (turns.iter().min().expect("eight"), turns.iter().max().expect("eight"));
    assert!(*least * 4 >= *most || *most < 20, "nobody starves: {turns:?}");
}
