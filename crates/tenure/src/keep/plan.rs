//! When to renew what, and when to look at which deadline. Pure: no clock, no
//! I/O; the keeper asks it what to do now and tells it what came of it.
//!
//! A lease without a session has a beat of its own. Leases on one session share
//! the session's beat, so its cost does not grow with their number (C10).

use super::record::{Passed, Record};
use crate::store::{Outcome, Renewal, Session};
use crate::words::clock::Instant;
use crate::words::event::Events;
use crate::words::owner::Owner;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// C10: the most leases of their own in one request.
const BATCH: usize = 512;

/// The leases that one client holds, and when each wants attention.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    leases: HashMap<Owner, Planned>,
    sessions: HashMap<Session, Shared>,
    /// One entry per lease that is not lost, one per session.
    wheel: BTreeSet<(Instant, Key)>,
    /// When whoever advances it will do so next in any case.
    awaited: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Session(Session),
    Lease(Owner),
}

#[derive(Debug)]
struct Planned {
    record: Arc<Record>,
    /// What it hangs on; `None`: its own beat.
    session: Option<Session>,
    /// Its own beat: when, and `None` while one is under way or the session has it.
    due: Option<Instant>,
    /// Its place on the wheel; `None` once it is lost.
    look: Option<Instant>,
}

/// A session's beat.
#[derive(Debug)]
struct Shared {
    members: HashSet<Owner>,
    heartbeat: Duration,
    /// `None` while one is under way.
    due: Option<Instant>,
    /// The earliest beat that those need who joined while one was under way.
    joined: Option<Instant>,
}

/// One request of renewals.
#[derive(Debug)]
pub(crate) struct Beat {
    pub(crate) session: Option<Session>,
    pub(crate) renewals: Vec<Renewal>,
    /// How long its answer may take.
    pub(crate) limit: Duration,
}

impl Plan {
    pub(crate) fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    pub(crate) fn contains(&self, owner: Owner) -> bool {
        self.leases.contains_key(&owner)
    }

    /// It is here and lost: its handle lives on, and nobody renews it.
    pub(crate) fn is_lost(&self, owner: Owner) -> bool {
        self.leases.get(&owner).is_some_and(|planned| planned.look.is_none())
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = &Arc<Record>> {
        self.leases.values().map(|planned| &planned.record)
    }

    /// The next instant at which [`advance`](Plan::advance) has something to do; the
    /// caller promises to come back by then.
    pub(crate) fn await_next(&mut self) -> Option<Instant> {
        self.awaited = self.wheel.first().map(|(at, _)| *at);
        self.awaited
    }

    /// Whether something is to be done before the promised instant. One that came
    /// and went, as when a lease is taken and given back, wakes nobody.
    pub(crate) fn is_sooner(&self) -> bool {
        let next = self.wheel.first().map(|(at, _)| *at);
        next.is_some_and(|next| self.awaited.is_none_or(|awaited| next < awaited))
    }

    /// Takes a lease in. `first`: when its first renewal goes out, if not after a
    /// heartbeat.
    pub(crate) fn insert(&mut self, record: Arc<Record>, first: Option<Instant>, now: Instant) {
        let owner = record.claim.owner;
        let trust = record.trust();
        let due = first.unwrap_or(trust.sent + record.timing.heartbeat);
        let heartbeat = record.timing.heartbeat;
        self.leases.insert(owner, Planned { record, session: None, due: None, look: None });
        self.hang(owner, trust.session, heartbeat, due);
        self.look(owner, now);
    }

    /// Forgets a lease: what is answered about it from now on means nothing.
    pub(crate) fn remove(&mut self, owner: Owner) -> Option<Arc<Record>> {
        self.quiet(owner);
        self.leases.remove(&owner).map(|planned| planned.record)
    }

    /// What is due. Latches the deadlines that have passed, as a side effect on
    /// the records.
    pub(crate) fn advance(&mut self, now: Instant, events: &Events) -> Vec<Beat> {
        let mut beats = Vec::new();
        let mut own = Vec::new();
        let mut looked = Vec::new();
        let mut horizon = now;
        while let Some(&(at, key)) = self.wheel.first() {
            if at > horizon {
                break;
            }
            self.wheel.pop_first();
            match key {
                Key::Session(session) => beats.extend(self.session_beat(session, now, events)),
                Key::Lease(owner) => {
                    let Some(planned) = self.leases.get_mut(&owner) else { continue };
                    planned.look = None;
                    let ahead = planned.record.timing.heartbeat / 8;
                    if planned.record.pass(now, events) == Passed::Lost {
                        self.quiet(owner);
                        continue;
                    }
                    if planned.due.is_some_and(|due| due <= now + ahead) {
                        planned.due = None;
                        own.push(owner);
                        // What is due soon travels along.
                        horizon = horizon.max(now + ahead);
                    }
                    looked.push(owner);
                }
            }
        }
        // Only now, or one that stops inside the horizon would come round for ever.
        looked.into_iter().for_each(|owner| self.look(owner, now));
        beats.extend(own.chunks(BATCH).map(|owners| self.beat(None, owners)));
        beats
    }

    /// The beat that renews this lease, now, whether or not one is under way.
    pub(crate) fn beat_now(&mut self, owner: Owner) -> Option<Beat> {
        let session = self.leases.get(&owner)?.session;
        let owners: Vec<Owner> = match session.and_then(|session| self.sessions.get(&session)) {
            Some(shared) => shared.members.iter().copied().collect(),
            None => vec![owner],
        };
        Some(self.beat(session, &owners))
    }

    /// What came of a beat, one outcome per renewal.
    pub(crate) fn answered(&mut self, beat: &Beat, outcomes: Vec<Outcome>, now: Instant, events: &Events) {
        let mut next = None;
        for (renewal, outcome) in beat.renewals.iter().zip(outcomes) {
            let owner = renewal.claim.owner;
            let Some(planned) = self.leases.get_mut(&owner) else { continue };
            let record = planned.record.clone();
            let heartbeat = record.timing.heartbeat;
            let (session, due) = match outcome {
                Outcome::Kept(trust) => {
                    record.confirmed(trust, now, events);
                    (trust.session, trust.sent + heartbeat)
                }
                Outcome::Unknown(error) => {
                    record.troubled(error);
                    (planned.session, now + again_after(heartbeat))
                }
                Outcome::Lost(reason) => {
                    record.lose(reason, now, events);
                    self.quiet(owner);
                    continue;
                }
            };
            if planned.look.is_none() {
                continue; // lost meanwhile: after the deadline nothing is renewed
            }
            if session.is_none() || session != planned.session {
                self.hang(owner, session, heartbeat, due);
                self.look(owner, now);
            } else {
                next = Some(next.map_or(due, |next: Instant| next.min(due)));
            }
        }
        // Also when none of the beat's own leases is left on the session: others
        // may have joined it while the beat was under way.
        let session = beat.session.and_then(|session| Some((session, self.sessions.get_mut(&session)?)));
        if let Some((session, shared)) = session {
            let next = next.into_iter().chain(shared.joined.take()).min();
            let next = next.unwrap_or(now + again_after(shared.heartbeat));
            self.set_due(session, next);
        }
    }

    /// Puts a lease on its beat: the session's or its own.
    fn hang(&mut self, owner: Owner, session: Option<Session>, heartbeat: Duration, due: Instant) {
        self.leave_session(owner);
        let Some(planned) = self.leases.get_mut(&owner) else { return };
        planned.session = session;
        planned.due = session.is_none().then_some(due);
        let Some(session) = session else { return };
        match self.sessions.get_mut(&session) {
            Some(shared) => {
                shared.members.insert(owner);
                shared.heartbeat = shared.heartbeat.min(heartbeat);
                match shared.due {
                    None => shared.joined = Some(shared.joined.map_or(due, |joined| joined.min(due))),
                    Some(at) if due < at => self.set_due(session, due),
                    Some(_) => {}
                }
            }
            None => {
                let members = HashSet::from([owner]);
                self.sessions.insert(session, Shared { members, heartbeat, due: None, joined: None });
                self.set_due(session, due);
            }
        }
    }

    fn set_due(&mut self, session: Session, due: Instant) {
        let Some(shared) = self.sessions.get_mut(&session) else { return };
        if let Some(old) = shared.due.replace(due) {
            self.wheel.remove(&(old, Key::Session(session)));
        }
        self.wheel.insert((due, Key::Session(session)));
    }

    /// Takes a lease off every beat: it is lost or gone.
    fn quiet(&mut self, owner: Owner) {
        self.leave_session(owner);
        let Some(planned) = self.leases.get_mut(&owner) else { return };
        planned.session = None;
        planned.due = None;
        if let Some(at) = planned.look.take() {
            self.wheel.remove(&(at, Key::Lease(owner)));
        }
    }

    fn leave_session(&mut self, owner: Owner) {
        let Some(session) = self.leases.get(&owner).and_then(|planned| planned.session) else { return };
        let Some(shared) = self.sessions.get_mut(&session) else { return };
        shared.members.remove(&owner);
        if shared.members.is_empty() {
            if let Some(due) = shared.due {
                self.wheel.remove(&(due, Key::Session(session)));
            }
            self.sessions.remove(&session);
        }
    }

    /// Sets a lease's place on the wheel: its own beat, its stopping time or its
    /// deadline, whichever comes first.
    fn look(&mut self, owner: Owner, now: Instant) {
        let Some(planned) = self.leases.get_mut(&owner) else { return };
        if let Some(old) = planned.look.take() {
            self.wheel.remove(&(old, Key::Lease(owner)));
        }
        let passes = planned.record.passes_next(now);
        let at = planned.due.map_or(passes, |due| due.min(passes));
        planned.look = Some(at);
        self.wheel.insert((at, Key::Lease(owner)));
    }

    fn session_beat(&mut self, session: Session, now: Instant, events: &Events) -> Option<Beat> {
        let shared = self.sessions.get_mut(&session)?;
        shared.due = None;
        let members: Vec<Owner> = shared.members.iter().copied().collect();
        let (kept, lost): (Vec<Owner>, Vec<Owner>) = members.into_iter().partition(|owner| {
            self.leases.get(owner).is_some_and(|planned| planned.record.pass(now, events) != Passed::Lost)
        });
        lost.into_iter().for_each(|owner| self.quiet(owner));
        (!kept.is_empty()).then(|| self.beat(Some(session), &kept))
    }

    fn beat(&self, session: Option<Session>, owners: &[Owner]) -> Beat {
        let records = owners.iter().filter_map(|owner| self.leases.get(owner)).map(|planned| &planned.record);
        let mut limit = Duration::MAX;
        let renewals = records
            .map(|record| {
                limit = limit.min(record.timing.call_limit());
                Renewal { claim: record.claim.clone(), ttl: record.timing.ttl }
            })
            .collect();
        Beat { session, renewals, limit }
    }
}

/// How long after a failed renewal the next one goes out.
fn again_after(heartbeat: Duration) -> Duration {
    (heartbeat / 5).clamp(Duration::from_millis(20), Duration::from_millis(500))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keep::record::Timing;
    use crate::store::{Grant, Trust};
    use crate::words::error::{Error, Reason};
    use crate::words::name::Name;
    use crate::words::owner::Claim;
    use crate::words::token::Token;
    use proptest::prelude::*;

    const TTL: Duration = Duration::from_secs(9);
    const VALIDITY: Duration = Duration::from_millis(8_820);

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn record(session: Option<Session>, sent: Instant) -> Arc<Record> {
        let claim = Claim::fresh(Name::new("x").expect("a name"));
        let trust = Trust { session, sent, validity: VALIDITY };
        let grant = Grant { token: Token::from_u64(1), ttl: TTL, trust, handed_over: false };
        let timing = Timing { ttl: TTL, heartbeat: TTL / 3, grace: Duration::from_secs(1), limit: None };
        Arc::new(Record::new(claim, &grant, timing, sent))
    }

    fn kept(beat: &Beat, session: Option<Session>, sent: Instant) -> Vec<Outcome> {
        vec![Outcome::Kept(Trust { session, sent, validity: VALIDITY }); beat.renewals.len()]
    }

    #[test]
    fn ten_thousand_leases_on_a_session_are_one_beat() {
        let (mut plan, events) = (Plan::default(), Events::default());
        let session = Some(Session([1; 16]));
        for _ in 0..10_000 {
            plan.insert(record(session, at(0)), None, at(0));
        }
        assert!(plan.advance(at(2_900), &events).is_empty());
        let beats = plan.advance(at(3_000), &events);
        assert_eq!(beats.iter().map(|beat| beat.renewals.len()).collect::<Vec<_>>(), [10_000]);
        assert!(plan.advance(at(3_500), &events).is_empty(), "one is under way");
        plan.answered(&beats[0], kept(&beats[0], session, at(3_000)), at(3_501), &events);
        assert_eq!(plan.advance(at(6_000), &events).len(), 1);
    }

    #[test]
    fn leases_of_their_own_travel_together_in_batches() {
        let (mut plan, events) = (Plan::default(), Events::default());
        for i in 0..1_000 {
            plan.insert(record(None, at(i / 10)), None, at(100));
        }
        let beats = plan.advance(at(3_000), &events);
        assert_eq!(beats.iter().map(|beat| beat.renewals.len()).collect::<Vec<_>>(), [512, 488]);
    }

    #[test]
    fn who_joins_a_session_while_its_beat_is_lost_is_renewed_all_the_same() {
        let (mut plan, events) = (Plan::default(), Events::default());
        let session = Some(Session([1; 16]));
        plan.insert(record(session, at(0)), None, at(0));
        let beats = plan.advance(at(3_000), &events);
        let late = record(session, at(3_100));
        plan.insert(late.clone(), None, at(3_100));
        plan.answered(&beats[0], vec![Outcome::Lost(Reason::Taken)], at(3_200), &events);
        let beats = plan.advance(at(6_200), &events);
        assert_eq!(beats.len(), 1);
        assert_eq!(beats[0].renewals[0].claim, late.claim);
    }

    #[test]
    fn a_handed_over_lease_moves_to_the_session_that_its_first_renewal_names() {
        let (mut plan, events) = (Plan::default(), Events::default());
        let (wait, main) = (Some(Session([1; 16])), Some(Session([2; 16])));
        plan.insert(record(wait, at(0)), Some(at(0)), at(0));
        let beats = plan.advance(at(0), &events);
        assert_eq!(beats[0].session, wait);
        plan.answered(&beats[0], kept(&beats[0], main, at(1)), at(2), &events);
        assert_eq!(plan.sessions.keys().copied().collect::<Vec<_>>(), [main.expect("named")]);
        assert_eq!(plan.advance(at(3_001), &events)[0].session, main);
    }

    proptest! {
        /// Whatever the store answers and whenever: a lease that is not lost is
        /// under way or has its beat before its deadline, and is lost by then if
        /// nothing was confirmed.
        #[test]
        fn nothing_is_forgotten(steps in proptest::collection::vec((0u8..6, 1u64..2_500, any::<bool>()), 1..60)) {
            let (mut plan, events) = (Plan::default(), Events::default());
            let mut flying: Vec<Beat> = Vec::new();
            let mut known: Vec<Arc<Record>> = Vec::new();
            let mut now = at(10);
            for (step, millis, shared) in steps {
                let session = shared.then_some(Session([7; 16]));
                match step {
                    0 | 1 => {
                        let record = record(session, now);
                        plan.insert(record.clone(), (step == 1).then_some(now), now);
                        known.push(record);
                    }
                    2 => if let Some(record) = known.pop() { plan.remove(record.claim.owner); },
                    3 => now = now + Duration::from_millis(millis),
                    _ => if let Some(beat) = flying.pop() {
                        let outcomes = match step {
                            4 => kept(&beat, beat.session, now - Duration::from_millis(millis / 10)),
                            _ => vec![Outcome::Unknown(Error::unavailable("out")); beat.renewals.len()],
                        };
                        plan.answered(&beat, outcomes, now, &events);
                    },
                }
                flying.extend(plan.advance(now, &events));
                for record in &known {
                    let owner = record.claim.owner;
                    let planned = &plan.leases[&owner];
                    let in_flight = flying.iter().any(|beat| {
                        beat.renewals.iter().any(|renewal| renewal.claim.owner == owner)
                    });
                    let session_due = planned.session.and_then(|session| plan.sessions[&session].due);
                    let session_flies = planned.session.is_some_and(|session| {
                        flying.iter().any(|beat| beat.session == Some(session))
                    });
                    if record.loss().is_some() {
                        prop_assert!(planned.look.is_none() && planned.due.is_none());
                        continue;
                    }
                    prop_assert!(now < record.deadline());
                    prop_assert!(planned.look.is_some_and(|look| look > now && look <= record.deadline()));
                    let due = planned.due.or(session_due);
                    // What is stopping keeps its deadline whatever is confirmed.
                    let ends = record.is_stopping();
                    prop_assert!(ends || in_flight || session_flies || due.is_some_and(|due| due < record.deadline()));
                }
                let on_wheel = plan.leases.values().filter(|planned| planned.look.is_some()).count()
                    + plan.sessions.values().filter(|shared| shared.due.is_some()).count();
                prop_assert_eq!(plan.wheel.len(), on_wheel);
            }
        }
    }
}
