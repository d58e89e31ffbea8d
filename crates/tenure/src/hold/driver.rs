//! The driver of the waiting rooms: a job on the keeper's thread that attends to
//! the entries, listens for grants and asks again, for as long as anybody waits.

use super::waiting::{ATTEND, Question, Room, Rooms, Stage, State, Wants};
use crate::keep::keeper::guarded;
use crate::keep::record::Timing;
use crate::store::{Answer, Attended, ENTRY_LIFE, Ending, Hint};
use crate::words::clock::Instant;
use crate::words::error::{Error, ErrorKind, Result};
use crate::words::name::Name;
use crate::words::owner::Claim;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// How long the driver listens on after the last task left: who waits often does
/// not pay for listening anew each time.
const LINGER: Duration = Duration::from_secs(2);

/// The driver: attends to the entries, listens for grants, asks again. Ends when
/// nobody has waited for a while.
pub(super) async fn drive(rooms: Arc<Rooms>) {
    let keeper = rooms.keeper.clone();
    let mut hints: Option<mpsc::Receiver<Hint>> = None;
    let mut listen_at = keeper.clock.now();
    let mut busy_at = listen_at;
    loop {
        let now = keeper.clock.now();
        let work = rooms.work(now, busy_at + LINGER);
        for (claim, timing) in work.leave {
            keeper.discard(claim, Ending::Undone, None, timing);
        }
        for (wants, claim) in work.ask {
            let call = guarded(|| keeper.waiting.acquire(wants.ask(claim.clone(), true)));
            drop(Question::new(&rooms, wants, claim, call));
        }
        if !work.attend.is_empty() {
            rooms.attend(work.attend, true);
        }
        let Some(next) = work.next else { return };
        if work.waiting {
            busy_at = now;
        }
        if hints.is_none() && work.queued && listen_at <= now {
            hints = Some(keeper.waiting.events());
            // What was granted before anybody listened is found by looking.
            rooms.attend_now(now);
            continue;
        }
        tokio::select! {
            hint = next_hint(&mut hints) => match hint {
                Some(Hint::Granted(claim, grant)) => rooms.hinted(&claim, grant),
                Some(Hint::Look(name)) => {
                    let entries = rooms.entries_of(&name);
                    if !entries.is_empty() {
                        rooms.attend(entries, false);
                    }
                }
                Some(Hint::LookAll) => rooms.attend_now(keeper.clock.now()),
                // The store stopped listening: what it would have said is asked for.
                None => {
                    hints = None;
                    listen_at = keeper.clock.now() + ATTEND;
                    rooms.attend_now(keeper.clock.now());
                }
            },
            () = rooms.changed.notified() => {}
            () = keeper.clock.sleep_until(next) => {}
        }
    }
}

async fn next_hint(hints: &mut Option<mpsc::Receiver<Hint>>) -> Option<Hint> {
    match hints {
        Some(hints) => hints.recv().await,
        None => std::future::pending().await,
    }
}

/// What the driver is to do now.
struct Work {
    ask: Vec<(Wants, Claim)>,
    attend: Vec<Claim>,
    leave: Vec<(Claim, Timing)>,
    queued: bool,
    /// Somebody waits.
    waiting: bool,
    /// When to look again; `None`: the driver is off duty.
    next: Option<Instant>,
}

impl Rooms {
    /// `until`: how long the driver stays when nobody waits.
    fn work(&self, now: Instant, until: Instant) -> Work {
        let mut state = self.lock();
        let mut work =
            Work { ask: vec![], attend: vec![], leave: vec![], queued: false, waiting: false, next: None };
        let State { rooms, entries, attend_at, attending, .. } = &mut *state;
        rooms.retain(|wants, room| {
            if room.tickets.is_empty() && !matches!(room.stage, Stage::Asking(_)) {
                entries.remove(&room.claim.owner);
                work.leave.push((room.claim.clone(), wants.timing));
                return false;
            }
            match room.stage {
                Stage::Again(at) if at <= now => {
                    room.stage = Stage::Asking(now);
                    work.ask.push((wants.clone(), room.claim.clone()));
                }
                Stage::Again(at) => work.look_at(at),
                Stage::Asking(since) if !room.has_entry(now) => work.look_at(since + ATTEND),
                Stage::Asking(_) | Stage::Queued => {}
            }
            work.queued |= room.has_entry(now);
            true
        });
        if work.queued && !*attending {
            if attend_at.is_none_or(|at| at <= now) {
                *attending = true;
                *attend_at = Some(now + jittered(ATTEND));
                work.attend = entries_in(rooms, now).collect();
            }
            work.look_at(attend_at.unwrap_or(now));
        }
        work.waiting = !rooms.is_empty();
        if work.waiting {
            work.look_at(now + ENTRY_LIFE);
        } else if now < until && self.keeper.may_linger() {
            // Who begins to ask meanwhile does not wake it for that.
            work.look_at(until.min(now + ATTEND));
        } else {
            state.driven = false;
            state.attend_at = None;
        }
        work
    }

    fn entries_of(&self, name: &Name) -> Vec<Claim> {
        let now = self.keeper.clock.now();
        entries_in(&self.lock().rooms, now).filter(|claim| claim.name == *name).collect()
    }

    fn attend_now(&self, now: Instant) {
        self.lock().attend_at = Some(now);
    }

    /// Attends to entries, in a job of its own: a slow answer does not hold up the hints.
    fn attend(self: &Arc<Self>, entries: Vec<Claim>, all: bool) {
        let rooms = self.clone();
        let call = guarded(|| rooms.keeper.waiting.attend(entries.clone()));
        self.keeper.clone().spawn(async move {
            let answer = rooms.keeper.bounded(ENTRY_LIFE, call).await;
            if all {
                rooms.lock().attending = false;
                rooms.changed.notify_one();
            }
            let attended = match answer {
                Ok(attended) => attended,
                // Waiting does not mend it, as when the store was deleted: an operator must (C11).
                Err(error) if error.kind() != ErrorKind::Unavailable => {
                    entries.iter().for_each(|claim| rooms.answered_if_waiting(claim, Err(error.clone())));
                    return;
                }
                Err(error) => vec![Attended::Unknown(error); entries.len()],
            };
            for (claim, attended) in entries.iter().zip(attended) {
                match attended {
                    Attended::Waiting(busy) => rooms.answered_if_waiting(claim, Ok(Answer::Busy(busy))),
                    Attended::Granted(grant) => rooms.answered_if_waiting(claim, Ok(Answer::Granted(grant))),
                    Attended::Gone => rooms.requeue(claim),
                    Attended::Unknown(error) => rooms.note(claim, error),
                }
            }
        });
    }

    /// What is attended may have been answered, or left, meanwhile by another way.
    fn answered_if_waiting(self: &Arc<Self>, claim: &Claim, answer: Result<Answer>) {
        let is_waited_for = match self.lock().stage_of(claim) {
            Some(Stage::Queued) => true,
            // What was granted at once is for the caller alone to fetch: nothing renews it till then.
            Some(Stage::Asking(_)) => !matches!(&answer, Ok(Answer::Granted(grant)) if !grant.handed_over),
            Some(Stage::Again(_)) | None => false,
        };
        if is_waited_for {
            self.answered(claim, answer);
        }
    }

    /// C8: a waiter whose own registration is gone notices and queues again. While it is
    /// asked for it may just not be there yet.
    fn requeue(self: &Arc<Self>, claim: &Claim) {
        let mut state = self.lock();
        if state.stage_of(claim) != Some(Stage::Queued) {
            return;
        }
        let Some(wants) = state.entries.remove(&claim.owner) else { return };
        let Some(room) = state.rooms.remove(&wants) else { return };
        let now = self.keeper.clock.now();
        self.open_room(&mut state, &wants, room.tickets, Stage::Again(now), room.last);
        self.go_on(state);
    }

    fn note(&self, claim: &Claim, error: Error) {
        let mut state = self.lock();
        let Some(wants) = state.entries.get(&claim.owner).cloned() else { return };
        let news = state.rooms.get_mut(&wants).and_then(|room| room.fail(error));
        drop(state);
        self.tell(wants, news);
    }
}

impl State {
    fn stage_of(&self, claim: &Claim) -> Option<Stage> {
        Some(self.rooms.get(self.entries.get(&claim.owner)?)?.stage)
    }
}

impl Work {
    fn look_at(&mut self, at: Instant) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }
}

impl Room {
    /// The store has an entry, or may have one whose caller has not read of it (C8).
    fn has_entry(&self, now: Instant) -> bool {
        match self.stage {
            Stage::Queued => true,
            Stage::Asking(since) => now - since >= ATTEND,
            Stage::Again(_) => false,
        }
    }
}

fn entries_in(rooms: &HashMap<Wants, Room>, now: Instant) -> impl Iterator<Item = Claim> {
    rooms.values().filter(move |room| room.has_entry(now)).map(|room| room.claim.clone())
}

/// Between 80 and 100 % of `duration`, so that clients do not march in step.
pub(super) fn jittered(duration: Duration) -> Duration {
    let [random, ..] = crate::words::owner::random_bits();
    duration * (800 + u32::from(random) * 200 / 255) / 1000
}
