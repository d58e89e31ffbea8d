//! The verbs, on one state under one lock.

use super::queue::EntryLife;
use super::record::{Hold, Life, Record, wall};
use super::sessions::Sessions;
use crate::store::{
    Answer, Ask, Attended, Ending, Fact, Grant, Hint, MAX_ENTRIES, Outcome, PAGE, Page, Released, Renewal,
    Renewed, Revoked, Session, Standing, Terms, Trust, Waiter,
};
use crate::words::busy::{Busy, Why};
use crate::words::clock::Instant;
use crate::words::error::{Error, Reason, Result};
use crate::words::name::Name;
use crate::words::owner::{Claim, Owner};
use crate::words::token::Token;
use std::cell::LazyCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::time::Duration;
use tokio::sync::mpsc;

/// C4: a token may be forgotten when the wall clock is this far past it.
const TOKEN_LIFE: Duration = Duration::from_secs(24 * 60 * 60);
/// C12: how many different TTLs a client may keep alive at a time.
const MAX_TTLS: usize = 8;
/// How many names each acquire looks at, in turn, for what can be forgotten:
/// more than one, so that the sweep is faster than what grows.
const SWEPT_PER_ACQUIRE: usize = 2;

#[derive(Default)]
pub(super) struct State {
    /// The instant of the verb that has the lock.
    pub(super) now: Instant,
    pub(super) wall_us: u64,
    names: BTreeMap<Name, Record>,
    sessions: Sessions,
    swept: Option<Name>,
}

impl State {
    pub(super) fn connect(&mut self, shared_sessions: bool) -> u64 {
        self.sessions.connect(shared_sessions)
    }

    #[cfg(test)]
    pub(super) fn marks(&self) -> usize {
        self.sessions.marks()
    }

    pub(super) fn is_connected(&self, client: u64) -> bool {
        self.sessions.is_connected(client)
    }

    pub(super) fn disconnect(&mut self, client: u64) {
        self.sessions.disconnect(client);
    }

    pub(super) fn listen(&mut self, client: u64, sender: mpsc::Sender<Hint>) {
        self.sessions.listen(client, sender);
    }

    pub(super) fn retire(&mut self, session: Session) {
        self.sessions.retire(session);
    }

    pub(super) fn acquire(&mut self, client: u64, ask: Ask) -> Result<Answer> {
        self.sweep();
        let claim = ask.claim.clone();
        self.refresh_entry(&claim, client);
        self.advance(&claim.name)?;
        if let Some(grant) = self.acquire_again(&claim, client) {
            return Ok(Answer::Granted(grant));
        }
        let known = self.names.get_mut(&claim.name);
        let token = match known {
            None => Token::after(None, self.wall_us)?,
            Some(record) => {
                if let Some(why) = busy(record, &self.sessions, self.now) {
                    return self.enqueue_or_leave(client, ask, why);
                }
                Token::after(Some(record.token), self.wall_us)?
            }
        };
        self.admit(client, &ask.terms)?;
        let mut hold = Hold {
            owner: claim.owner,
            label: ask.label,
            since_us: self.wall_us,
            ttl: ask.terms.ttl,
            life: Life::Until(self.now),
            kept_until: kept_until(self.now, ask.terms.hold_at_least),
            one_shot: ask.terms.one_shot,
            marked: false,
        };
        let record = self.names.entry(claim.name.clone()).or_insert_with(|| Record::new(token));
        hold.settle(&claim, client, &mut self.sessions, self.now);
        record.seat(token, hold, &mut self.sessions);
        let granted = self.acquire_again(&claim, client);
        granted.map(Answer::Granted).ok_or_else(Error::closed)
    }

    /// C5: the same grant for whoever holds already. It asks in person, so a
    /// hand-over is confirmed by it.
    fn acquire_again(&mut self, claim: &Claim, client: u64) -> Option<Grant> {
        let record = self.names.get_mut(&claim.name)?;
        let hold = record.hold.as_deref_mut().filter(|hold| hold.owner == claim.owner)?;
        hold.left(&self.sessions, self.now)?;
        match hold.life {
            Life::Entry(..) => hold.settle(claim, client, &mut self.sessions, self.now),
            Life::Until(_) if !hold.marked => hold.life = Life::Until(self.now + hold.ttl),
            _ => {}
        }
        let trust = hold.trust(&self.sessions)?;
        Some(Grant { token: record.token, ttl: hold.ttl, trust, handed_over: false })
    }

    fn enqueue_or_leave(&mut self, client: u64, ask: Ask, why: Why) -> Result<Answer> {
        let Claim { name, owner } = &ask.claim;
        let queue = self.names.get(name).and_then(|record| record.queue.as_ref());
        let is_new = ask.queue && queue.is_none_or(|queue| queue.place(*owner).is_none());
        if is_new {
            self.admit(client, &ask.terms)?;
        }
        let record = self.names.get_mut(name).expect("a busy name has a record");
        let queue = record.queue.get_or_insert_default();
        if is_new {
            if queue.len() >= MAX_ENTRIES as usize {
                queue.drop_dead(&mut self.sessions, self.now);
            }
            if queue.len() >= MAX_ENTRIES as usize {
                return Err(Error::unavailable(format!(
                    "the queue of \"{name}\" is full: {MAX_ENTRIES} entries wait; try again later"
                )));
            }
            let life = match self.sessions.wait(client, self.now) {
                None => EntryLife::Asked(self.now),
                Some(session) => {
                    self.sessions.hang(session, &ask.claim);
                    EntryLife::On(session)
                }
            };
            queue.push(*owner, ask.label, ask.terms, client, self.wall_us, life);
        }
        let answer = busy_answer(record, *owner, why);
        if record.waiting() == 0 {
            record.queue = None;
        }
        Ok(Answer::Busy(answer))
    }

    /// C12: in the shared face another TTL means another session to beat.
    fn admit(&self, client: u64, terms: &Terms) -> Result<()> {
        if terms.one_shot || self.sessions.beats(client, terms.ttl) {
            return Ok(());
        }
        let ttl_of = |owner: &Owner, name: &Name| {
            let record = self.names.get(name)?;
            let held = record.hold.as_deref().filter(|hold| hold.owner == *owner);
            let held = held.map(|hold| (hold.ttl, hold.one_shot));
            let waits =
                || record.queue.as_ref()?.get(*owner).map(|entry| (entry.terms.ttl, entry.terms.one_shot));
            let (ttl, one_shot) = held.or_else(waits)?;
            (!one_shot).then_some(ttl)
        };
        let Some(used) = self.sessions.ttls(client, ttl_of) else { return Ok(()) };
        if used.len() >= MAX_TTLS && !used.contains(&terms.ttl) {
            return Err(Error::invalid(format!(
                "this client holds or waits for leases with {MAX_TTLS} different TTLs already: use one of them"
            )));
        }
        Ok(())
    }

    pub(super) fn attend(&mut self, client: u64, entries: &[Claim]) -> Vec<Attended> {
        self.sessions.keep_waiting(client, self.now);
        entries.iter().map(|claim| self.attend_to(claim, client)).collect()
    }

    fn attend_to(&mut self, claim: &Claim, client: u64) -> Attended {
        self.refresh_entry(claim, client);
        if let Err(error) = self.advance(&claim.name) {
            return Attended::Unknown(error);
        }
        let Some(record) = self.names.get(&claim.name) else { return Attended::Gone };
        if let Some((hold, _)) = record.held(&self.sessions, self.now)
            && hold.owner == claim.owner
        {
            return match hold.trust(&self.sessions) {
                Some(trust) => Attended::Granted(grant(record.token, hold, trust)),
                None => Attended::Gone,
            };
        }
        let is_queued = record.queue.as_ref().is_some_and(|queue| queue.place(claim.owner).is_some());
        match busy(record, &self.sessions, self.now) {
            Some(why) if is_queued => Attended::Waiting(busy_answer(record, claim.owner, why)),
            _ => Attended::Gone,
        }
    }

    /// Counts a question as attendance, unless the entry is dead already.
    fn refresh_entry(&mut self, claim: &Claim, client: u64) {
        let Some(record) = self.names.get_mut(&claim.name) else { return };
        let Some(entry) = record.queue.as_mut().and_then(|queue| queue.get_mut(claim.owner)) else { return };
        match entry.attended(&self.sessions, self.now) {
            None => {
                record.queue.as_mut().and_then(|queue| queue.remove(claim.owner, &mut self.sessions));
            }
            Some(_) => match entry.life {
                EntryLife::Asked(_) => entry.life = EntryLife::Asked(self.now),
                EntryLife::On(_) => self.sessions.keep_waiting(client, self.now),
            },
        }
    }

    pub(super) fn renew(&mut self, client: u64, leases: &[Renewal]) -> Renewed {
        // Per session: its trust from one beat, and how many of the batch hang on it.
        let mut beats: HashMap<Session, (Option<Trust>, usize)> = HashMap::new();
        let outcomes = leases.iter().map(|lease| self.renew_one(client, lease, &mut beats)).collect();
        let asked = LazyCell::new(|| leases.iter().map(|lease| lease.claim.owner).collect::<HashSet<_>>());
        let is_asked = |owner: &Owner| asked.contains(owner);
        let strays = beats
            .into_iter()
            .flat_map(|(session, (_, matched))| self.sessions.strays(session, matched, is_asked, self.now));
        Renewed { strays: strays.collect(), outcomes }
    }

    fn renew_one(
        &mut self,
        client: u64,
        lease: &Renewal,
        beats: &mut HashMap<Session, (Option<Trust>, usize)>,
    ) -> Outcome {
        let session = match self.sessions.on_main(client, lease.ttl, &lease.claim) {
            Some(session) => session,
            None => match self.renew_record(client, lease) {
                Ok(session) => session,
                Err(outcome) => return outcome,
            },
        };
        let (now, sessions) = (self.now, &mut self.sessions);
        let (trust, matched) = beats.entry(session).or_insert_with(|| (sessions.beat(session, now), 0));
        *matched += 1;
        trust.map_or(Outcome::Lost(Reason::Expired), Outcome::Kept)
    }

    /// Renews what stands on itself; `Ok` is the session to beat instead.
    fn renew_record(&mut self, client: u64, lease: &Renewal) -> std::result::Result<Session, Outcome> {
        let (claim, lost) = (&lease.claim, |reason| Err(Outcome::Lost(reason)));
        let Some(record) = self.names.get_mut(&claim.name) else { return lost(Reason::Vanished) };
        if record.hold.as_ref().is_none_or(|hold| hold.owner != claim.owner) {
            let is_foreign = record.held(&self.sessions, self.now).is_some();
            let reason = if is_foreign { Reason::Taken } else { Reason::Vanished };
            return lost(record.how_lost(claim.owner).unwrap_or(reason));
        }
        let Some(hold) = record.hold.as_deref_mut() else { return lost(Reason::Vanished) };
        if hold.marked {
            return lost(Reason::Revoked);
        }
        if hold.left(&self.sessions, self.now).is_none() {
            return lost(Reason::Expired);
        }
        match hold.life {
            Life::Entry(..) => hold.settle(claim, client, &mut self.sessions, self.now),
            Life::Until(_) => {
                hold.ttl = lease.ttl;
                hold.life = Life::Until(self.now + lease.ttl);
            }
            Life::On(_) => {}
        }
        match (hold.life, hold.trust(&self.sessions)) {
            (Life::On(session), _) => Ok(session),
            (_, Some(trust)) => Err(Outcome::Kept(trust)),
            (_, None) => lost(Reason::Expired),
        }
    }

    pub(super) fn release(&mut self, claim: &Claim, ending: Ending) -> Released {
        let Some(record) = self.names.get_mut(&claim.name) else { return Released::Gone(None) };
        let released = if let Some(hold) = record.hold.take_if(|hold| hold.owner == claim.owner) {
            let was_held = hold.left(&self.sessions, self.now).is_some();
            hold.unhang(&mut self.sessions);
            record.kept_until = hold.kept_until.filter(|_| ending == Ending::Released);
            match (was_held, hold.marked) {
                (true, _) => Released::Released,
                (false, true) => Released::Gone(Some(Reason::Revoked)),
                (false, false) => Released::Gone(Some(Reason::Expired)),
            }
        } else {
            let entry = record.queue.as_mut().and_then(|queue| queue.remove(claim.owner, &mut self.sessions));
            match entry {
                Some(_) => Released::Released,
                None => Released::Gone(record.how_lost(claim.owner)),
            }
        };
        self.advance_or_hint(&claim.name);
        released
    }

    pub(super) fn revoke(&mut self, name: &Name, token: Token, at_once: bool) -> Revoked {
        let Some(record) = self.names.get_mut(name) else { return Revoked::NotHeld(None) };
        if record.token != token || record.held(&self.sessions, self.now).is_none() {
            let is_kept_back = record.token == token && record.kept_back(self.now).is_some();
            if !is_kept_back {
                return Revoked::NotHeld(record.holder(&self.sessions, self.now));
            }
            // Nobody holds it: only the time that it is kept back is lifted.
            (record.hold, record.kept_until) = (None, None);
            self.advance_or_hint(name);
            return Revoked::Freed;
        }
        let Some(hold) = record.hold.as_deref_mut() else { return Revoked::NotHeld(None) };
        hold.kept_until = None;
        if at_once {
            hold.unhang(&mut self.sessions);
            record.lost = Some(Box::new((hold.owner, Reason::Revoked)));
            record.hold = None;
            self.advance_or_hint(name);
            return Revoked::Freed;
        }
        let left = hold.left(&self.sessions, self.now).unwrap_or_default();
        if !hold.marked {
            let claim = Claim { name: name.clone(), owner: hold.owner };
            match hold.life {
                Life::On(session) => self.sessions.mark(session, &claim),
                _ => hold.unhang(&mut self.sessions),
            }
            (hold.marked, hold.life) = (true, Life::Until(self.now + left));
        }
        Revoked::Marked(left)
    }

    pub(super) fn inspect(&self, name: &Name) -> Standing {
        let record = self.names.get(name);
        let mut standing = record.map_or_else(|| nobody(name), |record| self.standing(name, record));
        let live = record.and_then(|record| record.queue.as_ref()).into_iter().flat_map(|queue| queue.iter());
        let live = live.filter(|entry| entry.attended(&self.sessions, self.now).is_some());
        let shown = |entry: &super::queue::Entry| Waiter {
            owner: entry.owner,
            label: entry.label.clone(),
            since: wall(entry.since_us),
        };
        standing.waiters = live.take(PAGE).map(shown).collect();
        standing
    }

    pub(super) fn list(&self, prefix: &str, after: Option<&Name>) -> Page {
        let first = match (Name::new(prefix), after) {
            // A prefix that cannot begin a name: no name begins with it.
            (Err(_), _) if !prefix.is_empty() => return Page::default(),
            (Ok(prefix), Some(after)) if *after < prefix => Bound::Included(prefix),
            (_, Some(after)) => Bound::Excluded(after.clone()),
            (Ok(prefix), None) => Bound::Included(prefix),
            (Err(_), None) => Bound::Unbounded,
        };
        let mut names = self
            .names
            .range((first, Bound::Unbounded))
            .take_while(|(name, _)| name.as_str().starts_with(prefix))
            .map(|(name, record)| self.standing(name, record))
            .filter(|it| it.holder.is_some() || it.kept_back.is_some() || it.waiting > 0);
        let page = names.by_ref().take(PAGE).collect();
        Page { names: page, more: names.next().is_some() }
    }

    fn standing(&self, name: &Name, record: &Record) -> Standing {
        let held = record.held(&self.sessions, self.now);
        let queue = record.queue.as_ref().into_iter().flat_map(|queue| queue.iter());
        let waiting = queue.filter(|entry| entry.attended(&self.sessions, self.now).is_some()).count();
        Standing {
            holder: record.holder(&self.sessions, self.now),
            revoked: held.filter(|(hold, _)| hold.marked).map(|(_, left)| left),
            kept_back: record.kept_back(self.now).filter(|_| held.is_none()),
            waiting: waiting.try_into().unwrap_or(u32::MAX),
            ..nobody(name)
        }
    }

    pub(super) fn examine(&self) -> Vec<Fact> {
        let (clients, sessions) = self.sessions.count();
        let fact = |key, count: usize| Fact { key, value: count.to_string() };
        vec![fact("names", self.names.len()), fact("clients", clients), fact("sessions", sessions)]
    }

    pub(super) fn close(&mut self, client: u64) {
        for claim in self.sessions.close(client) {
            self.release(&claim, Ending::Released);
        }
    }

    /// Grants a free name to the first live entry (C8).
    fn advance(&mut self, name: &Name) -> Result<()> {
        let Some(record) = self.names.get_mut(name) else { return Ok(()) };
        let Some(queue) = record.queue.as_mut() else { return Ok(()) };
        queue.tidy(&mut self.sessions, self.now);
        if queue.len() == 0 {
            record.queue = None;
            return Ok(());
        }
        if busy(record, &self.sessions, self.now).is_some() {
            return Ok(());
        }
        let token = Token::after(Some(record.token), self.wall_us)?;
        let head = record.queue.as_mut().and_then(|queue| {
            let sent = queue.iter().next()?.attended(&self.sessions, self.now)?;
            Some((queue.take_head(&mut self.sessions)?, sent))
        });
        let Some((entry, sent)) = head else { return Ok(()) };
        let claim = Claim { name: name.clone(), owner: entry.owner };
        let session = match entry.life {
            EntryLife::Asked(_) => None,
            EntryLife::On(session) => {
                self.sessions.hang(session, &claim);
                Some(session)
            }
        };
        let hold = Hold {
            owner: entry.owner,
            label: entry.label,
            since_us: self.wall_us,
            ttl: entry.terms.ttl,
            life: Life::Entry(sent, session),
            kept_until: kept_until(self.now, entry.terms.hold_at_least),
            one_shot: entry.terms.one_shot,
            marked: false,
        };
        let hint = hold.trust(&self.sessions).map(|trust| Hint::Granted(claim, grant(token, &hold, trust)));
        record.seat(token, hold, &mut self.sessions);
        if let Some(hint) = hint {
            self.sessions.tell(entry.client, hint);
        }
        Ok(())
    }

    /// Grants it on, or tells the head that the name stands otherwise than it thinks.
    fn advance_or_hint(&mut self, name: &Name) {
        // No token can be minted: the head hears so when it attends.
        let _ = self.advance(name);
        let Some(record) = self.names.get(name) else { return };
        let head = record.queue.as_ref().and_then(|queue| queue.iter().next()).map(|entry| entry.client);
        if let (None, Some(head)) = (record.held(&self.sessions, self.now), head) {
            self.sessions.tell(head, Hint::Look(name.clone()));
        }
    }

    /// Looks at the next few names and forgets what may be forgotten.
    fn sweep(&mut self) {
        for _ in 0..SWEPT_PER_ACQUIRE {
            let from = self.swept.take().map_or(Bound::Unbounded, Bound::Excluded);
            let Some((name, _)) = self.names.range((from, Bound::Unbounded)).next() else { return };
            let name = name.clone();
            // A token that cannot be minted is told to whoever asks for this name.
            let _ = self.advance(&name);
            if self.names.get(&name).is_some_and(|record| self.is_idle(record)) {
                let forgotten = self.names.remove(&name).and_then(|record| record.hold);
                forgotten.inspect(|hold| hold.unhang(&mut self.sessions));
            } else if let Some(record) = self.names.get_mut(&name)
                && record.held(&self.sessions, self.now).is_none()
                && record.kept_back(self.now).is_none()
                && let Some(Hold { life: Life::On(session), .. }) = record.hold.as_deref()
            {
                // What lapsed with a dead client: nobody else might ever ask for it.
                self.sessions.end(*session);
            }
            self.swept = Some(name);
        }
    }

    fn is_idle(&self, record: &Record) -> bool {
        let token_is_old =
            u128::from(self.wall_us) >= u128::from(record.token.as_u64()) + TOKEN_LIFE.as_micros();
        token_is_old && record.queue.is_none() && busy(record, &self.sessions, self.now).is_none()
    }
}

fn busy(record: &Record, sessions: &Sessions, now: Instant) -> Option<Why> {
    match record.holder(sessions, now) {
        Some(holder) => Some(Why::Held(holder)),
        None => record.kept_back(now).map(Why::KeptBack),
    }
}

fn busy_answer(record: &Record, owner: Owner, why: Why) -> Busy {
    let place = record.queue.as_ref().and_then(|queue| queue.place(owner));
    let place = place.and_then(|place| u32::try_from(place + 1).ok());
    Busy { why, waiting: record.waiting(), place, last_error: None }
}

fn grant(token: Token, hold: &Hold, trust: Trust) -> Grant {
    Grant { token, ttl: hold.ttl, trust, handed_over: matches!(hold.life, Life::Entry(..)) }
}

fn kept_until(now: Instant, hold_at_least: Duration) -> Option<Instant> {
    (!hold_at_least.is_zero()).then(|| now + hold_at_least)
}

fn nobody(name: &Name) -> Standing {
    Standing {
        name: name.clone(),
        holder: None,
        revoked: None,
        kept_back: None,
        waiters: Vec::new(),
        waiting: 0,
    }
}
