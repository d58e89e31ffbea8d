//! Waiting (C7, C8). The tasks of a client that want one name on the same terms
//! sit in one room, and the room has one entry in the store's queue.
//!
//! A room is served by whoever brings an answer: the caller that asked first, a
//! job that finishes what a gone caller began, or the driver, a job on the
//! keeper's thread that runs for as long as somebody waits. All of them hand the
//! answer to [`Rooms::answered`], so a grant meets the tasks in one place.

use super::driver::{drive, jittered};
use super::lease::Lease;
use crate::keep::keeper::{Keeper, Unsettled, guarded};
use crate::keep::record::{Record, Timing};
use crate::store::{Answer, Ask, ENTRY_LIFE, Ending, Grant, Pending, Terms};
use crate::words::busy::{Busy, Why};
use crate::words::clock::Instant;
use crate::words::error::{Error, ErrorKind, Result};
use crate::words::event::Event;
use crate::words::name::Name;
use crate::words::owner::{Claim, Label, Owner};
use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// How often the entries of a client are attended to (C8).
pub(super) const ATTEND: Duration = ENTRY_LIFE.checked_div(3).expect("three is not zero");

/// How soon after an answer a waiter looks again of its own accord, at the earliest.
const SOON: Duration = Duration::from_millis(20);
/// How soon a handed-over grant is confirmed: a small part of the second that is
/// left of its entry's life.
const CONFIRM: Duration = Duration::from_millis(50);
/// By what a grant is undone that nobody asked for any more.
const LATE: Timing = Timing {
    ttl: Duration::from_secs(10),
    heartbeat: Duration::from_secs(3),
    grace: Duration::ZERO,
    limit: None,
};

/// Tasks with the same wants share a room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wants {
    pub(crate) name: Name,
    pub(crate) label: Label,
    pub(crate) terms: Terms,
    pub(crate) timing: Timing,
}

impl Hash for Wants {
    /// The rest of it rarely differs.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl Wants {
    pub(crate) fn ask(&self, claim: Claim, queue: bool) -> Ask {
        Ask { claim, label: self.label.clone(), terms: self.terms, queue }
    }

    /// When a grant is first renewed: a handed-over one soon (C8). What is held for
    /// a moment only is released before that and costs the store nothing more,
    /// except that `hold_at_least` counts from a grant that is known to have arrived.
    pub(crate) fn first_renewal(&self, grant: &Grant) -> Option<Duration> {
        let soon = if self.terms.hold_at_least.is_zero() { CONFIRM } else { Duration::ZERO };
        grant.handed_over.then_some(soon)
    }
}

/// Where the tasks of one client wait.
#[derive(Debug)]
pub(crate) struct Rooms {
    pub(super) keeper: Arc<Keeper>,
    state: Mutex<State>,
    /// For the driver: look again.
    pub(super) changed: Notify,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) rooms: HashMap<Wants, Room>,
    /// Which room an entry belongs to.
    pub(super) entries: HashMap<Owner, Wants>,
    pub(super) driven: bool,
    pub(super) attending: bool,
    pub(super) attend_at: Option<Instant>,
    tickets: u64,
}

#[derive(Debug)]
pub(super) struct Room {
    pub(super) claim: Claim,
    _unsettled: Unsettled,
    pub(super) stage: Stage,
    pub(super) tickets: Tickets,
    pub(super) last: Option<Busy>,
    failures: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// A question for the claim is under way since then.
    Asking(Instant),
    /// The store has an entry for the claim.
    Queued,
    /// To be asked at that instant.
    Again(Instant),
}

/// In the order in which they came. Who leaves takes his ticket along.
type Tickets = BTreeMap<u64, Ticket>;

#[derive(Debug)]
pub(super) struct Ticket {
    since: Instant,
    deliver: oneshot::Sender<Result<Delivery>>,
}

impl Rooms {
    pub(crate) fn new(keeper: Arc<Keeper>) -> Arc<Rooms> {
        Arc::new(Rooms { keeper, state: Mutex::default(), changed: Notify::new() })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the name is granted.
    ///
    /// # Cancel safety
    /// Dropped at any point, it leaves the queue; what it had asked for passes to
    /// the next task or is undone.
    pub(crate) async fn acquire(self: &Arc<Self>, seat: &mut Option<Seat>, wants: &Wants) -> Result<Lease> {
        loop {
            let first = self.sit(seat, wants)?;
            if let Some(claim) = first {
                let call = guarded(|| self.keeper.store.acquire(wants.ask(claim.clone(), true)));
                Question::new(self, wants.clone(), claim, call).await_answer().await;
            }
            let Some(Seat { ticket, .. }) = seat.as_mut() else { return Err(Error::closed()) };
            let delivered = tokio::select! {
                biased;
                delivered = ticket => delivered.unwrap_or_else(|_| Err(Error::closed())),
                error = self.keeper.broken() => Err(error),
            };
            *seat = None;
            // What ran out between the delivery and this poll is no lease (C2).
            if let Some(lease) = delivered?.take() {
                return Ok(lease);
            }
        }
    }

    /// Takes a seat; for the first one in a room, the claim to ask for.
    fn sit(self: &Arc<Self>, seat: &mut Option<Seat>, wants: &Wants) -> Result<Option<Claim>> {
        let (deliver, ticket) = oneshot::channel();
        let mut state = self.lock();
        self.keeper.open()?;
        state.tickets += 1;
        let number = state.tickets;
        let now = self.keeper.clock.now();
        let ticket_of = Ticket { since: now, deliver };
        *seat = Some(Seat { rooms: self.clone(), wants: wants.clone(), number, ticket });
        if let Some(room) = state.rooms.get_mut(wants) {
            room.tickets.insert(number, ticket_of);
            return Ok(None);
        }
        let tickets = BTreeMap::from([(number, ticket_of)]);
        let claim = self.open_room(&mut state, wants, tickets, Stage::Asking(now), None);
        // It sees to an entry whose caller does not come to read of it.
        self.start_driver(state);
        Ok(Some(claim))
    }

    /// A room with a claim that was never used before.
    pub(super) fn open_room(
        &self,
        state: &mut State,
        wants: &Wants,
        tickets: Tickets,
        stage: Stage,
        last: Option<Busy>,
    ) -> Claim {
        let claim = Claim::fresh(wants.name.clone());
        let unsettled = self.keeper.unsettled(claim.owner, &wants.timing);
        state.entries.insert(claim.owner, wants.clone());
        let room = Room { claim: claim.clone(), _unsettled: unsettled, stage, tickets, last, failures: 0 };
        state.rooms.insert(wants.clone(), room);
        claim
    }

    /// Takes the store's answer for a claim in. The one place where a grant meets
    /// the tasks.
    pub(super) fn answered(self: &Arc<Self>, claim: &Claim, answer: Result<Answer>) {
        self.take_in(claim, answer, false);
    }

    /// Takes a hint in. It may repeat what an attendance told before, and come when that
    /// lease is in its holder's hands or is being given back.
    pub(super) fn hinted(self: &Arc<Self>, claim: &Claim, grant: Grant) {
        self.take_in(claim, Ok(Answer::Granted(grant)), true);
    }

    fn take_in(self: &Arc<Self>, claim: &Claim, answer: Result<Answer>, is_hint: bool) {
        let mut state = self.lock();
        let room = state.entries.get(&claim.owner).cloned();
        let Some((wants, room)) = room.and_then(|wants| Some((wants.clone(), state.rooms.get_mut(&wants)?)))
        else {
            drop(state);
            // Its room is gone, or on another claim by now.
            let owner = claim.owner;
            let is_known = if is_hint { self.keeper.knows(owner) } else { self.keeper.keeps(owner) };
            if !is_known {
                self.keeper.discard(claim.clone(), Ending::Undone, None, LATE);
            }
            return;
        };
        match answer {
            Ok(Answer::Granted(grant)) => self.granted(state, &wants, grant),
            Ok(Answer::Busy(busy)) => {
                room.failures = 0;
                room.stage = Stage::Queued;
                let look = busy.left().map(|left| self.keeper.clock.now() + left.max(SOON));
                let news = room.learn(busy);
                let attend = self.keeper.clock.now() + jittered(ATTEND);
                let at = look.map_or(attend, |look| look.min(attend));
                state.attend_at = Some(state.attend_at.map_or(at, |old| old.min(at)));
                self.go_on(state);
                self.tell(wants, news);
            }
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                // Granted or not: unknown. Asking again for the same claim tells.
                room.failures += 1;
                let pause = Duration::from_millis(50 << room.failures.min(4)).min(Duration::from_secs(1));
                room.stage = Stage::Again(self.keeper.clock.now() + jittered(pause));
                let news = room.fail(error);
                self.go_on(state);
                self.tell(wants, news);
            }
            Err(error) => {
                let room = state.rooms.remove(&wants);
                state.entries.remove(&claim.owner);
                drop(state);
                for ticket in room.into_iter().flat_map(|room| room.tickets.into_values()) {
                    // A task that left does not mind.
                    let _ = ticket.deliver.send(Err(error.clone()));
                }
            }
        }
    }

    /// Gives a grant to the first task that still waits; undoes it when there is none.
    fn granted(self: &Arc<Self>, mut state: MutexGuard<'_, State>, wants: &Wants, grant: Grant) {
        let Some(room) = state.rooms.remove(wants) else { return };
        state.entries.remove(&room.claim.owner);
        let now = self.keeper.clock.now();
        let record = Arc::new(Record::new(room.claim.clone(), &grant, wants.timing, now));
        // What came too late, or was not fetched for so long that it was undone, gives
        // nothing (C2); the wait goes on.
        let is_void =
            grant.trust.deadline() <= now || !self.keeper.keep(&record, wants.first_renewal(&grant));
        // C13: until it is confirmed the store keeps nothing back for it.
        let is_lent = grant.handed_over && !wants.terms.hold_at_least.is_zero();
        let delivery = Delivery { rooms: self.clone(), wants: wants.clone(), record, since: now, open: true };
        let mut tickets = room.tickets;
        let mut ask_at = now;
        let undelivered = if is_void {
            Some(delivery)
        } else if is_lent {
            ask_at = now + ATTEND;
            self.keeper.spawn(delivery.confirmed());
            None
        } else {
            deliver(&mut tickets, delivery)
        };
        if !tickets.is_empty() {
            // Clients take turns: the rest registers again, at the tail (C8).
            self.open_room(&mut state, wants, tickets, Stage::Again(ask_at), room.last);
        }
        self.go_on(state);
        if let Some(mut delivery) = undelivered {
            delivery.undo();
        }
    }

    /// Sees to it that the driver runs if anybody waits.
    pub(super) fn go_on(self: &Arc<Self>, state: MutexGuard<'_, State>) {
        match (state.rooms.is_empty(), state.driven) {
            (true, _) => {}
            (false, true) => self.changed.notify_one(),
            (false, false) => self.start_driver(state),
        }
    }

    /// Does not wake one that is on duty.
    fn start_driver(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        if !std::mem::replace(&mut state.driven, true) {
            drop(state);
            self.keeper.clone().spawn(drive(self.clone()));
        }
    }

    pub(super) fn tell(&self, wants: Wants, news: Option<Busy>) {
        if let Some(busy) = news {
            self.keeper.events.emit(&Event::Waiting { name: wants.name, busy });
        }
    }

    /// No handle of the client is left: a driver that lingers need not.
    pub(crate) fn abandon(&self) {
        self.keeper.abandon();
        self.changed.notify_one();
    }

    /// C13: no task waits any longer.
    pub(crate) fn close(&self) {
        let rooms: Vec<_> = {
            let mut state = self.lock();
            state.entries.clear();
            state.rooms.drain().collect()
        };
        self.changed.notify_one();
        for (wants, room) in rooms {
            self.keeper.clone().discard(room.claim, Ending::Undone, None, wants.timing);
            for ticket in room.tickets.into_values() {
                let _ = ticket.deliver.send(Err(Error::closed()));
            }
        }
    }
}

/// Offers a delivery to each task in turn; gives it back when all are gone.
fn deliver(tickets: &mut Tickets, mut delivery: Delivery) -> Option<Delivery> {
    while let Some((_, ticket)) = tickets.pop_first() {
        delivery.since = ticket.since;
        match ticket.deliver.send(Ok(delivery)) {
            Ok(()) => return None,
            Err(Ok(back)) => delivery = back,
            Err(Err(_)) => return None,
        }
    }
    Some(delivery)
}

impl Room {
    /// Keeps what the store said; gives it back when it is news.
    fn learn(&mut self, busy: Busy) -> Option<Busy> {
        let same = |old: &Busy| {
            let holder = |why: &Why| match why {
                Why::Held(holder) => Some(holder.owner),
                _ => None,
            };
            std::mem::discriminant(&old.why) == std::mem::discriminant(&busy.why)
                && holder(&old.why) == holder(&busy.why)
                && old.place == busy.place
                && old.last_error.is_none()
        };
        let news = !self.last.as_ref().is_some_and(same);
        self.last = Some(busy.clone());
        news.then_some(busy)
    }

    /// Keeps an error beside what was known.
    pub(super) fn fail(&mut self, error: Error) -> Option<Busy> {
        let known =
            self.last.get_or_insert(Busy { why: Why::Queued, waiting: 0, place: None, last_error: None });
        let news = known.last_error.is_none();
        known.last_error = Some(error);
        news.then(|| known.clone())
    }
}

/// A grant on its way to a task. Dropped before it was taken, it passes to the
/// next one or is undone.
#[derive(Debug)]
pub(super) struct Delivery {
    rooms: Arc<Rooms>,
    wants: Wants,
    record: Arc<Record>,
    since: Instant,
    open: bool,
}

impl Delivery {
    /// The lease, unless it has run out meanwhile.
    fn take(mut self) -> Option<Lease> {
        let keeper = &self.rooms.keeper;
        if self.record.check(keeper.clock.now(), &keeper.events).is_err() {
            self.undo();
            return None;
        }
        self.open = false;
        Some(Lease::handed_out(keeper.clone(), self.record.clone(), self.since))
    }

    /// Goes to the first task once the store has confirmed it.
    async fn confirmed(self) {
        let keeper = self.rooms.keeper.clone();
        let owner = self.record.claim.owner;
        while self.record.check(keeper.clock.now(), &keeper.events).is_ok() {
            if keeper.confirm(owner).await.is_ok() {
                break;
            }
            keeper.clock.sleep(CONFIRM).await;
        }
        // Dropped, it goes to the first task that waits.
    }

    fn undo(&mut self) {
        self.open = false;
        let (keeper, record) = (&self.rooms.keeper, &self.record);
        let _under_way = keeper.begin();
        keeper.forget(record.claim.owner);
        keeper.discard(record.claim.clone(), Ending::Undone, record.session(), self.wants.timing);
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        let next = Delivery {
            rooms: self.rooms.clone(),
            wants: self.wants.clone(),
            record: self.record.clone(),
            since: self.since,
            open: true,
        };
        let rooms = self.rooms.clone();
        let undelivered = {
            let mut state = rooms.lock();
            match state.rooms.get_mut(&self.wants) {
                Some(room) => deliver(&mut room.tickets, next),
                None => Some(next),
            }
        };
        rooms.changed.notify_one();
        if let Some(mut delivery) = undelivered {
            delivery.undo();
        }
    }
}

/// A task's seat in a room.
#[derive(Debug)]
pub(crate) struct Seat {
    rooms: Arc<Rooms>,
    wants: Wants,
    number: u64,
    ticket: oneshot::Receiver<Result<Delivery>>,
}

impl Seat {
    /// What the store said last.
    pub(crate) fn last(&self) -> Option<Busy> {
        self.rooms.lock().rooms.get(&self.wants)?.last.clone()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.ticket.close();
        let mut state = self.rooms.lock();
        let Some(room) = state.rooms.get_mut(&self.wants) else { return };
        if room.tickets.remove(&self.number).is_some() && room.tickets.is_empty() {
            // The driver gives the entry up; while a question is under way
            // whoever takes its answer does.
            self.rooms.go_on(state);
        }
    }
}

/// A question for a claim under way. Dropped, it is finished in the background.
pub(super) struct Question {
    rooms: Arc<Rooms>,
    wants: Wants,
    claim: Claim,
    call: Option<Pending<Answer>>,
    /// While it is asked for it is no stray.
    _unsettled: Unsettled,
}

impl Question {
    pub(super) fn new(rooms: &Arc<Rooms>, wants: Wants, claim: Claim, call: Pending<Answer>) -> Question {
        let unsettled = rooms.keeper.unsettled(claim.owner, &wants.timing);
        Question { rooms: rooms.clone(), wants, claim, call: Some(call), _unsettled: unsettled }
    }

    async fn await_answer(mut self) {
        let keeper = self.rooms.keeper.clone();
        let limit = self.wants.timing.call_limit();
        let answer = keeper.bounded_in(limit, &mut self.call).await;
        // What is late is asked for again, for the same claim.
        self.call = None;
        self.rooms.answered(&self.claim, answer);
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        let (rooms, claim, limit) = (self.rooms.clone(), self.claim.clone(), self.wants.timing.call_limit());
        self.rooms.keeper.clone().spawn(async move {
            let answer = rooms.keeper.bounded(limit, call).await;
            rooms.answered(&claim, answer);
        });
    }
}
