//! Programs that wait: the tasks of a client share an entry, and clients share a name.

use super::desk::Desk;
use super::faulty::{Fault, Verb};
use super::kit::{Fixture, granted, holder, released};
use crate::hold::lease::Lease;
use crate::hold::request::Acquired;
use crate::store::ENTRY_LIFE;
use crate::words::busy::Why;
use crate::words::name::Name;
use crate::words::owner::Owner;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::task::JoinHandle;

/// A task that waits for the name.
fn waiter(desk: &Desk, name: &Name, ttl: Duration) -> JoinHandle<Lease> {
    let request = desk.client.lease(name).ttl(ttl);
    tokio::spawn(async move { request.acquire().await.expect("granted in the end") })
}

/// Who gives up waits no longer, and nobody waits for it.
pub(super) async fn c7_a_cancelled_waiter_leaves_the_queue_at_once(f: Fixture) {
    let (desk, name) = (f.desk(&f.a), f.name("x"));
    granted(&f.b, &f.ask(&name)).await;
    let waiter = waiter(&desk, &name, f.long());
    f.until_waiting(&name, 1, f.slack).await;
    waiter.abort();
    // Sooner than it would be by silence.
    f.until_waiting(&name, 0, ENTRY_LIFE / 2).await;
}

/// A grant for a task that has gone goes to the next one of its client.
pub(super) async fn c7_a_grant_passes_to_the_next_task(f: Fixture) {
    let (desk, name) = (f.desk(&f.a), f.name("x"));
    let ask = f.ask(&name);
    granted(&f.b, &ask).await;
    let first = waiter(&desk, &name, f.long());
    f.until_waiting(&name, 1, f.slack).await;
    let second = waiter(&desk, &name, f.long());
    tokio::task::yield_now().await;
    released(&f.b, &ask.claim).await;
    first.abort();
    // It may have been faster, and its handle has the lease then.
    drop(first);
    let lease = f.within(f.slack * 2, "the grant", second).await.expect("no panic");
    assert_eq!(holder(&f.b, &name).await, Some(lease.owner()));
    // Beyond the life of the entry that it came by.
    f.clock.sleep(ENTRY_LIFE + ENTRY_LIFE / 10).await;
    assert_eq!(holder(&f.b, &name).await, Some(lease.owner()));
    assert!(lease.is_held());
}

/// A caller that goes away at any of its polls leaves nothing behind.
pub(super) async fn c7_what_a_dropped_attempt_brought_is_undone(f: Fixture) {
    let desk = f.desk(&f.a);
    // A store may answer at once: then only the second kind is dropped half-way.
    for (number, fault) in [Fault::Ok, Fault::ReplySlow(f.ttl / 10)].repeat(3).into_iter().enumerate() {
        let polls = number / 2;
        desk.faults.set(Verb::Acquire, fault);
        let name = f.name(&number.to_string());
        let request = desk.client.lease(&name).ttl(f.long());
        {
            let mut attempt = pin!(request.try_acquire());
            for _ in 0..polls {
                if attempt.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        f.in_time(&f.b, &f.ask(&name), f.slack).await;
    }
}

/// A thousand tasks are one entry, served in order, and gone when they all are.
pub(super) async fn c8_a_thousand_tasks_of_a_client_are_one_entry(f: Fixture) {
    let (desk, name) = (f.desk(&f.a), f.name("x"));
    let ask = f.ask(&name);
    granted(&f.b, &ask).await;
    let served = Arc::<Mutex<Vec<usize>>>::default();
    let tasks: Vec<_> = (0..1_000)
        .map(|number| {
            let (request, served) = (desk.client.lease(&name).ttl(f.long()), served.clone());
            tokio::spawn(async move {
                let lease = request.acquire().await.expect("granted in the end");
                served.lock().expect("no panic").push(number);
                drop(lease);
            })
        })
        .collect();
    f.until_waiting(&name, 1, f.slack).await;
    f.clock.sleep(ENTRY_LIFE / 3).await;
    f.until_waiting(&name, 1, f.slack).await;
    released(&f.b, &ask.claim).await;
    // A thousand grants on a slow disk would only keep the other cases from it.
    let some = async || (served.lock().expect("no panic").len() >= 20).then_some(());
    f.until(f.slack * 10, "twenty turns", some).await;
    tasks.iter().for_each(JoinHandle::abort);
    f.in_time(&f.b, &f.ask(&name), f.slack).await;
    f.until_waiting(&name, 0, f.slack).await;
    assert!(served.lock().expect("no panic").is_sorted(), "within a client in order");
}

/// A client with many waiting tasks registers again at the tail, so that none starves.
pub(super) async fn c8_clients_take_turns(f: Fixture) {
    let (a, b, name) = (f.desk(&f.a), f.desk(&f.client().await), f.name("x"));
    let ask = f.ask(&name);
    granted(&f.b, &ask).await;
    let turns = Arc::<Mutex<Vec<(char, Owner)>>>::default();
    let mut tasks = Vec::new();
    let (pass, passed) = tokio::sync::watch::channel(0);
    for (of, desk, count) in [('a', &a, 1), ('b', &b, 2)] {
        for _ in 0..3 {
            let (request, turns) = (desk.client.lease(&name).ttl(f.long()), turns.clone());
            let mut passed = passed.clone();
            tasks.push(tokio::spawn(async move {
                let lease = request.acquire().await.expect("granted in the end");
                let turn = {
                    let mut turns = turns.lock().expect("no panic");
                    turns.push((of, lease.owner()));
                    turns.len()
                };
                passed.wait_for(|passed| *passed >= turn).await.expect("the case goes on");
                lease.release().await.expect("released");
            }));
        }
        f.until_waiting(&name, count, f.slack).await;
    }
    released(&f.b, &ask.claim).await;
    for turn in 1..=6_usize {
        let taken = async || (turns.lock().expect("no panic").len() == turn).then_some(());
        f.until(f.slack * 2, format_args!("turn {turn}"), taken).await;
        // Whoever has more tasks has registered them again by now.
        let left = (6 - turn).min(2) as u32;
        f.until_waiting(&name, left, f.slack).await;
        pass.send_replace(turn);
    }
    for task in tasks {
        task.await.expect("no panic");
    }
    let order: String = turns.lock().expect("no panic").iter().map(|(of, _)| of).collect();
    assert_eq!(order, "ababab");
}

/// What a client gives up is with the next one in no time.
pub(super) async fn c9_a_closed_client_hands_over(f: Fixture) {
    let (a, b, name) = (f.desk(&f.a), f.desk(&f.b), f.name("x"));
    let lease = a.client.lease(&name).ttl(f.long()).acquire().await.expect("granted");
    let waiter = waiter(&b, &name, f.long());
    f.until_waiting(&name, 1, f.slack).await;
    let work = tokio::spawn(async move {
        // A program that stops when it is told to.
        lease.lost().await;
        drop(lease);
    });
    let client = a.client.clone();
    let closing = tokio::spawn(async move { client.close().await });
    let next = f.within(f.slack, "the hand-over", waiter).await.expect("no panic");
    assert!(next.is_held());
    work.await.expect("no panic");
    assert!(f.within(f.slack * 2, "the end", closing).await.expect("no panic").is_empty());
}

/// Waiting in vain is an answer, with all that is known.
pub(super) async fn c11_waiting_in_vain_says_who_holds_it(f: Fixture) {
    let (desk, name) = (f.desk(&f.a), f.name("x"));
    let ask = f.ask(&name);
    let grant = granted(&f.b, &ask).await;
    let acquired = desk.client.lease(&name).acquire_within(f.slack).await.expect("an answer");
    let Acquired::Busy(busy) = acquired else { panic!("it is held elsewhere: {acquired:?}") };
    let Why::Held(holder) = &busy.why else { panic!("it is held: {busy:?}") };
    assert_eq!((holder.owner, holder.token), (ask.claim.owner, grant.token));
    assert_eq!(holder.label, ask.label);
    assert_eq!((busy.waiting, busy.place), (1, Some(1)));
    f.until_waiting(&name, 0, ENTRY_LIFE / 2).await;
}
