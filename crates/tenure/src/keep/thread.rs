//! The keeper's thread: sends the beats that are due and takes their answers in.

use super::keeper::{Keeper, MAX_CALL};
use super::plan::Beat;
use super::record::Timing;
use crate::store::{Ending, Outcome, Renewed, Store};
use crate::words::clock::{Clock, Instant};
use crate::words::error::{Error, Result};
use crate::words::event::Event;
use crate::words::owner::{Claim, Owner};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};

/// What the thread has for itself.
pub(super) struct Thread {
    pub(super) keeper: Arc<Keeper>,
    /// The connection of the heartbeats.
    pub(super) beats: Arc<dyn Store>,
    pub(super) inbox: mpsc::UnboundedReceiver<(Owner, oneshot::Sender<Result<()>>)>,
}

impl Thread {
    pub(super) fn run(self, runtime: &Runtime) {
        let mut guard = Broken::new(self.keeper.clone());
        runtime.block_on(self.work());
        guard.ended_well = true;
    }

    async fn work(mut self) {
        let keeper = self.keeper.clone();
        loop {
            let now = keeper.clock.now();
            let (due, next) = {
                let mut plan = keeper.plan();
                (plan.advance(now, &keeper.events), plan.await_next())
            };
            due.into_iter().for_each(|beat| self.send(beat, None));
            if keeper.is_done() {
                break;
            }
            tokio::select! {
                () = keeper.woken() => {}
                Some((owner, answer)) = self.inbox.recv() => self.confirm(owner, answer),
                () = sleep_until(&keeper.clock, next) => {}
            }
        }
        let _ = keeper.bounded(MAX_CALL, self.beats.close()).await;
    }

    fn confirm(&self, owner: Owner, answer: oneshot::Sender<Result<()>>) {
        let beat = self.keeper.plan().beat_now(owner);
        match beat {
            Some(beat) => self.send(beat, Some((owner, answer))),
            // Released or closed meanwhile: the caller's own check tells.
            None => drop(answer.send(Ok(()))),
        }
    }

    /// Sends a beat and takes its answer in, beside the loop.
    fn send(&self, beat: Beat, confirm: Option<(Owner, oneshot::Sender<Result<()>>)>) {
        let keeper = self.keeper.clone();
        let store = self.beats.clone();
        keeper.clone().spawn(async move {
            let sent = keeper.clock.now();
            let answer = match catch_unwind(AssertUnwindSafe(|| store.renew(beat.renewals.clone()))) {
                Ok(call) => keeper.bounded(beat.limit, call).await,
                Err(_) => Err(Error::unavailable("the store panicked")),
            };
            let confirmed = keeper.answered(&beat, answer, sent, confirm.as_ref().map(|(owner, _)| *owner));
            if let Some((_, answer)) = confirm {
                // Nobody listens any more: then nobody wants to know.
                let _ = answer.send(confirmed);
            }
        });
    }
}

impl Keeper {
    fn answered(
        self: &Arc<Self>,
        beat: &Beat,
        answer: Result<Renewed>,
        sent: Instant,
        confirm: Option<Owner>,
    ) -> Result<()> {
        let now = self.clock.now();
        let leases = beat.renewals.len();
        let renewed = match answer {
            Ok(renewed) => {
                self.events.emit(&Event::Heartbeat { latency: now - sent, leases });
                renewed
            }
            Err(error) => {
                self.events.emit(&Event::HeartbeatFailed { error: error.clone(), leases });
                Renewed { outcomes: vec![Outcome::Unknown(error); leases], strays: Vec::new() }
            }
        };
        let asked = beat.renewals.iter().zip(&renewed.outcomes);
        let confirmed = match asked.clone().find(|(renewal, _)| Some(renewal.claim.owner) == confirm) {
            Some((_, Outcome::Unknown(error))) => Err(error.clone()),
            // Kept or lost: the caller's check says which.
            _ => Ok(()),
        };
        self.undo_strays(renewed.strays, beat);
        self.plan().answered(beat, renewed.outcomes, now, &self.events);
        self.wake();
        confirmed
    }

    /// C5: what the store shows under a session and nobody here knows is undone.
    fn undo_strays(self: &Arc<Self>, strays: Vec<Claim>, beat: &Beat) {
        let Some(first) = beat.renewals.first() else { return };
        let timing = Timing { ttl: first.ttl, heartbeat: beat.limit, grace: Duration::ZERO, limit: None };
        for claim in strays {
            if !self.knows(claim.owner) {
                self.discard(claim, Ending::Undone, beat.session, timing);
            }
        }
    }
}

/// Dropped when the thread panics, nothing is renewed any more, and every holder and
/// waiter is told at once.
pub(super) struct Broken {
    keeper: Arc<Keeper>,
    ended_well: bool,
}

impl Broken {
    pub(super) fn new(keeper: Arc<Keeper>) -> Broken {
        Broken { keeper, ended_well: false }
    }
}

impl Drop for Broken {
    fn drop(&mut self) {
        if !self.ended_well {
            self.keeper.break_down();
        }
    }
}

async fn sleep_until(clock: &Clock, at: Option<Instant>) {
    match at {
        Some(at) => clock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}
