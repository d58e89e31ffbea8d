//! The keeper's thread: sends the beats that are due and takes their answers in.

use super::keeper::{Keeper, MAX_CALL, guarded};
use super::plan::Beat;
use super::record::Timing;
use crate::store::{Outcome, Renewed};
use crate::words::clock::{Clock, Instant};
use crate::words::error::{Error, Result};
use crate::words::event::Event;
use crate::words::owner::{Claim, Owner};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

/// Runs the thread until no handle is left and nothing is to do.
pub(super) fn run(keeper: &Arc<Keeper>, runtime: &Runtime) {
    let mut guard = Broken { keeper: keeper.clone(), ended_well: false };
    runtime.block_on(work(keeper));
    guard.ended_well = true;
}

async fn work(keeper: &Arc<Keeper>) {
    while !keeper.is_done() {
        let (due, next) = keeper.events.after(|events| {
            let mut plan = keeper.plan();
            (plan.advance(keeper.clock.now(), events), plan.await_next())
        });
        due.into_iter().for_each(|beat| keeper.send(beat, None));
        tokio::select! {
            () = keeper.woken() => {}
            () = sleep_until(&keeper.clock, next) => {}
        }
    }
    let _ = keeper.bounded(MAX_CALL, guarded(|| keeper.beats.close())).await;
}

impl Keeper {
    /// A renewal answered just now (C2).
    pub(crate) async fn confirm(self: &Arc<Self>, owner: Owner) -> Result<()> {
        let beat = self.plan().beat_now(owner);
        // Lost or closed meanwhile: the caller's own check tells.
        let Some(beat) = beat else { return Ok(()) };
        let (answer, answered) = oneshot::channel();
        self.send(beat, Some((owner, answer)));
        answered.await.unwrap_or_else(|_| Err(Error::closed()))
    }

    /// Sends a beat and takes its answer in, in a job of its own.
    fn send(self: &Arc<Self>, beat: Beat, confirm: Option<(Owner, oneshot::Sender<Result<()>>)>) {
        let keeper = self.clone();
        self.spawn(async move {
            let sent = keeper.clock.now();
            let call = guarded(|| keeper.beats.renew(beat.renewals.clone()));
            let answer = keeper.bounded(beat.limit, call).await;
            let confirmed = keeper.answered(&beat, answer, sent, confirm.as_ref().map(|(owner, _)| *owner));
            if let Some((_, answer)) = confirm {
                // Nobody listens any more: then nobody wants to know.
                let _ = answer.send(confirmed);
            }
        });
    }

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
        self.events.after(|events| self.plan().answered(beat, renewed.outcomes, now, events));
        self.wake();
        confirmed
    }

    /// C5: what the store shows under a session and nobody here wants is released.
    fn undo_strays(self: &Arc<Self>, strays: Vec<Claim>, beat: &Beat) {
        let Some(first) = beat.renewals.first() else { return };
        let timing = Timing { ttl: first.ttl, heartbeat: beat.limit, grace: Duration::ZERO, limit: None };
        for claim in strays {
            if let Some(ending) = self.is_stray(claim.owner) {
                self.discard(claim, ending, beat.session, timing);
            }
        }
    }
}

/// Dropped when the thread panics, nothing is renewed any more, and every holder and
/// waiter is told at once.
struct Broken {
    keeper: Arc<Keeper>,
    ended_well: bool,
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
