//! Granting: to who asks, and to who waits.

use super::client::{Client, Hook};
use super::database::{Database, Fault};
use super::transaction::{Entry, HandOver, Lease, Transaction, nanos, sql};
use crate::store::{
    Answer, Ask, Attended, ENTRY_LIFE, Grant, MAX_ENTRIES, Session, Terms, Trust, trusted_part,
};
use crate::words::busy::{Busy, Why};
use crate::words::clock::Instant;
use crate::words::error::{Error, Result};
use crate::words::name::Name;
use crate::words::owner::{Claim, Label, Owner};
use crate::words::token::Token;
use std::time::Duration;

/// How a name stands once everything that is due has been done.
pub(super) enum Settled {
    Held(Lease),
    KeptBack(Duration),
    Free {
        /// The row of who held it last.
        before: Option<Lease>,
        /// The asker's own entry is at the head.
        is_queued: bool,
    },
}

/// What the client learns when an ask is committed.
enum Learnt {
    Nothing,
    Holds(Hook),
    Waits(Session),
}

impl Database {
    pub(super) fn acquire(&mut self, ask: &Ask, sent: i64) -> Result<Answer> {
        // Who would not wait must not write, so it looks first. Who would is registered by
        // a write in any case.
        if !ask.queue
            && let Some(busy) = self.glance(|transaction| transaction.cannot_win(ask))?
        {
            return Ok(Answer::Busy(busy));
        }
        // Two handles would open a wait session each, and only one of them is kept alive.
        let client = self.client.clone();
        let _alone = ask.queue.then(|| client.enqueueing());
        let learn = |(_, learnt): &(Answer, Learnt)| client.learn(ask, learnt);
        let taken = match self.is_crowded {
            true => None,
            false => self.execute(|it| it.take(ask), |taken| taken.iter().for_each(learn))?,
        };
        let (answer, _) = match taken {
            Some(granted) => granted,
            None => self.write_and_learn(|transaction| transaction.acquire(ask, sent), learn)?,
        };
        self.is_crowded = matches!(answer, Answer::Busy(_));
        Ok(answer)
    }

    pub(super) fn attend(&mut self, entries: &[Claim]) -> Result<Vec<Attended>> {
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let wait = self.client.known().wait;
        let (is_alive, answers) = self.write(|transaction| {
            let is_alive = match wait {
                Some(wait) => transaction.beat(wait, ENTRY_LIFE.as_nanos() as i64)?.is_some(),
                None => false,
            };
            let answers = entries.iter().map(|claim| transaction.attend(claim)).collect::<Result<_, _>>()?;
            Ok((is_alive, answers))
        })?;
        let answers: Vec<Attended> = answers;
        let mut known = self.client.known();
        if let (false, Some(wait)) = (is_alive, wait) {
            known.ended(wait);
        }
        for (claim, answer) in entries.iter().zip(&answers) {
            match answer {
                Attended::Granted(_) => known.handed_over(claim.owner),
                Attended::Gone => drop(known.entries.remove(&claim.owner)),
                Attended::Waiting(_) | Attended::Unknown(_) => {}
            }
        }
        Ok(answers)
    }
}

impl Client {
    fn learn(&self, ask: &Ask, learnt: &Learnt) {
        let mut known = self.known();
        match *learnt {
            Learnt::Nothing => {}
            Learnt::Holds(hook) => known.confirmed(&ask.claim, hook),
            Learnt::Waits(session) => {
                known.wait = Some(session);
                known.waits(ask);
                drop(known);
                self.nudge();
            }
        }
    }
}

impl Transaction<'_> {
    /// Why the asker cannot win at the moment, by a look that writes nothing.
    fn cannot_win(&self, ask: &Ask) -> Result<Option<Busy>, Fault> {
        let Claim { name, owner } = &ask.claim;
        let Some(lease) = self.lease(name)? else { return Ok(None) };
        match (self.holder(&lease), self.kept_back(&lease)) {
            (Some(holder), _) if holder.owner == *owner => Ok(None),
            (Some(holder), _) => self.busy(name, *owner, Why::Held(holder)).map(Some),
            (None, Some(left)) => self.busy(name, *owner, Why::KeptBack(left)).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Grants a name that is plainly free: the common case of [`acquire`](Self::acquire) in
    /// one statement.
    fn take(&self, ask: &Ask) -> Result<Option<(Answer, Learnt)>, Fault> {
        let Claim { name, owner } = &ask.claim;
        // What counts from the grant cannot count from before the wait for the lock.
        if ask.terms.one_shot || !ask.terms.hold_at_least.is_zero() {
            return Ok(None);
        }
        let ttl = rounded(ask.terms.ttl);
        let wall = self.client.host.wall_us();
        // Without a token there is no grant, but perhaps another answer.
        let (Some(hook), Ok(token)) = (self.fresh_hook(ttl)?, Token::after(None, wall as u64)) else {
            return Ok(None);
        };
        let taken = self.run(
            sql!("take"),
            &[
                &name.as_str(),
                &wall,
                &owner.to_bytes(),
                &ask.label.as_str(),
                &hook.session.0,
                &ttl,
                &hook.revision,
            ],
        )?;
        Ok((taken > 0).then(|| (self.granted(token, hook), Learnt::Holds(hook))))
    }

    fn acquire(&self, ask: &Ask, sent: i64) -> Result<(Answer, Learnt), Fault> {
        let Claim { name, owner } = &ask.claim;
        let ttl = rounded(ask.terms.ttl);
        let why = match self.settle(name, Some(*owner))? {
            Settled::Held(lease) if lease.owner == Some(*owner) => {
                if lease.marked {
                    return Ok((Answer::Granted(self.grant_of(&lease)), Learnt::Nothing));
                }
                let hook = self.keep(&lease, ttl, sent)?;
                return Ok((self.granted(lease.token, hook), Learnt::Holds(hook)));
            }
            Settled::Held(lease) => self.holder(&lease).map_or(Why::Queued, Why::Held),
            Settled::KeptBack(left) => Why::KeptBack(left),
            Settled::Free { before, is_queued } => {
                let hook = if ask.terms.one_shot { self.one_shot(ttl, sent)? } else { self.hook(ttl, sent)? };
                let seat = Seat {
                    owner: *owner,
                    label: &ask.label,
                    terms: ask.terms,
                    session: hook.session,
                    until: None,
                };
                let token = self.seat(name, before.as_ref(), seat)?;
                if is_queued {
                    self.run(sql!("leave"), &[&name.as_str(), &owner.to_bytes()])?;
                }
                return Ok((self.granted(token, hook), Learnt::Holds(hook)));
            }
        };
        let mut busy = self.busy(name, *owner, why)?;
        if !ask.queue || busy.place.is_some() {
            return Ok((Answer::Busy(busy), Learnt::Nothing));
        }
        let session = self.enqueue(ask)?;
        busy = self.busy(name, *owner, busy.why)?;
        Ok((Answer::Busy(busy), Learnt::Waits(session)))
    }

    fn attend(&self, claim: &Claim) -> Result<Attended, Fault> {
        let why = match self.settle(&claim.name, None) {
            Ok(Settled::Held(lease)) if lease.owner == Some(claim.owner) => {
                return Ok(Attended::Granted(self.grant_of(&lease)));
            }
            Ok(Settled::Held(lease)) => self.holder(&lease).map_or(Why::Queued, Why::Held),
            Ok(Settled::KeptBack(left)) => Why::KeptBack(left),
            // A live entry would have got it.
            Ok(Settled::Free { .. }) => return Ok(Attended::Gone),
            Err(Fault::Told(error)) => return Ok(Attended::Unknown(error)),
            Err(fault) => return Err(fault),
        };
        let busy = self.busy(&claim.name, claim.owner, why)?;
        Ok(if busy.place.is_some() { Attended::Waiting(busy) } else { Attended::Gone })
    }

    /// Gives a name that nobody has to the first live entry, unless that is `asker`'s.
    pub(super) fn settle(&self, name: &Name, asker: Option<Owner>) -> Result<Settled, Fault> {
        let before = self.lease(name)?;
        if let Some(lease) = &before {
            if self.is_held(lease) {
                return Ok(Settled::Held(lease.clone()));
            }
            if let Some(left) = self.kept_back(lease) {
                return Ok(Settled::KeptBack(left));
            }
            if !lease.is_queued {
                return Ok(Settled::Free { before, is_queued: false });
            }
        }
        while let Some(entry) = self.head(name)? {
            if asker == Some(entry.owner) {
                return Ok(Settled::Free { before, is_queued: true });
            }
            if self.is_alive(entry.life) {
                self.hand_over(name, before.as_ref(), &entry)?;
                let seated = self.lease(name)?;
                return Ok(Settled::Held(seated.ok_or(rusqlite::Error::QueryReturnedNoRows)?));
            }
            self.run(sql!("leave"), &[&name.as_str(), &entry.owner.to_bytes()])?;
        }
        Ok(Settled::Free { before, is_queued: false })
    }

    /// Hands a name on that was given up. That no token can be minted is no reason to keep it:
    /// the waiters stay, and hear so when they attend.
    pub(super) fn hand_on(&self, name: &Name) -> Result<(), Fault> {
        match self.settle(name, None) {
            Ok(_) | Err(Fault::Told(_)) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// The grant stands on the rest of the entry's life as it is now: what its client
    /// does for its other entries does not prolong it.
    fn hand_over(&self, name: &Name, before: Option<&Lease>, entry: &Entry) -> Result<(), Fault> {
        let Entry { owner, ref label, session, terms, life } = *entry;
        // Nor longer than its TTL: a holder that dies unconfirmed is not waited for longer.
        let until = life.map_or(self.now, |life| life.expires.min(self.now + rounded(terms.ttl)));
        let token = self.seat(name, before, Seat { owner, label, terms, session, until: Some(until) })?;
        self.run(sql!("leave"), &[&name.as_str(), &owner.to_bytes()])?;
        let (ttl, process) = (rounded(terms.ttl), life.and_then(|life| life.process));
        self.grants.borrow_mut().handed_over.push(HandOver {
            name: name.clone(),
            owner,
            token,
            ttl,
            session,
            until,
            process,
        });
        Ok(())
    }

    /// Puts an owner where nobody is. What its lapsed predecessor stood on is ended by a
    /// write to it, here and now, so that no renewal under way can bring it back (C1).
    fn seat(&self, name: &Name, before: Option<&Lease>, seat: Seat<'_>) -> Result<Token, Fault> {
        let wall = self.client.host.wall_us();
        let token = Token::after(before.map(|lease| lease.token), wall as u64)?;
        let lapsed = before.filter(|lease| lease.owner.is_some());
        lapsed.map(|lease| self.end(lease)).transpose()?;
        let lost =
            lapsed.and_then(|lease| lease.owner).filter(|lost| *lost != seat.owner).map(Owner::to_bytes);
        let keep = seat.terms.hold_at_least;
        let keep = (!keep.is_zero()).then(|| self.now.saturating_add(keep.as_nanos() as i64));
        self.run(
            sql!("put"),
            &[
                &name.as_str(),
                &(token.as_u64() as i64),
                &seat.owner.to_bytes(),
                &seat.label.as_str(),
                &seat.session.0,
                &wall,
                &rounded(seat.terms.ttl),
                &seat.terms.one_shot,
                &seat.until,
                &keep,
                &lost,
                &lapsed.is_some_and(|lease| lease.marked),
            ],
        )?;
        Ok(token)
    }

    /// Writes to what a lapsed lease stood on.
    pub(super) fn end(&self, lapsed: &Lease) -> Result<(), Fault> {
        if let Some(session) = lapsed.session {
            // A mark or an unconfirmed hand-over ran out alone; its session goes on.
            let end = if self.is_alive(lapsed.life) { sql!("raise") } else { sql!("end") };
            self.run(end, &[&session.0])?;
        }
        Ok(())
    }

    fn enqueue(&self, ask: &Ask) -> Result<Session, Fault> {
        let Claim { name, owner } = &ask.claim;
        if !ask.terms.one_shot {
            self.client.known().admit(rounded(ask.terms.ttl))?;
        }
        let length = || {
            Ok::<_, Fault>(self.first(sql!("length"), &[&name.as_str()], |row| row.get(0))?.unwrap_or(0u32))
        };
        if length()? >= MAX_ENTRIES {
            self.run(sql!("dead_entries"), &[&name.as_str()])?;
            if length()? >= MAX_ENTRIES {
                return Err(Fault::Told(Error::unavailable(format!(
                    "the queue of \"{name}\" is full: {MAX_ENTRIES} entries wait; try again later"
                ))));
            }
        }
        let life = ENTRY_LIFE.as_nanos() as i64;
        let wait = self.client.known().wait;
        let session = match wait {
            Some(wait) if self.beat(wait, life)?.is_some() => wait,
            _ => self.open(life, true)?,
        };
        // One of an earlier wait session that ran out.
        self.run(sql!("leave"), &[&name.as_str(), &owner.to_bytes()])?;
        let (terms, wall) = (ask.terms, self.client.host.wall_us());
        let keep = terms.hold_at_least.as_nanos() as i64;
        self.run(
            sql!("enqueue"),
            &[
                &name.as_str(),
                &owner.to_bytes(),
                &ask.label.as_str(),
                &session.0,
                &rounded(terms.ttl),
                &terms.one_shot,
                &keep,
                &wall,
            ],
        )?;
        Ok(session)
    }

    pub(super) fn busy(&self, name: &Name, owner: Owner, why: Why) -> Result<Busy, Fault> {
        // Entries of the dead count until somebody clears them away: these are for people.
        let places = self.first(sql!("places"), &[&name.as_str(), &owner.to_bytes()], |row| {
            let (waiting, place): (u32, u32) = (row.get(0)?, row.get(1)?);
            Ok((waiting, (place > 0).then_some(place)))
        })?;
        let (waiting, place) = places.unwrap_or_default();
        Ok(Busy { why, waiting, place, last_error: None })
    }

    fn granted(&self, token: Token, hook: Hook) -> Answer {
        self.grants.borrow_mut().is_answered = true;
        let (ttl, trust) = (nanos(hook.ttl), self.client.trust(hook));
        Answer::Granted(Grant { token, ttl, trust, handed_over: false })
    }

    /// The grant that a row shows. Its times are the store's own, which are this process's.
    fn grant_of(&self, lease: &Lease) -> Grant {
        // Who committed it may not have synced it yet, or have died before.
        self.grants.borrow_mut().is_answered = true;
        let handed_over = lease.is_unconfirmed();
        let life = if handed_over { ENTRY_LIFE } else { nanos(lease.ttl) };
        let trust = until(lease.session, self.client.host.local(lease.ends()), life);
        Grant { token: lease.token, ttl: nanos(lease.ttl), trust, handed_over }
    }
}

impl HandOver {
    /// The same grant as [`Transaction::grant_of`] reads from the row.
    pub(super) fn grant(&self, host: &super::host::Host) -> Grant {
        let trust = until(Some(self.session), host.local(self.until), ENTRY_LIFE);
        Grant { token: self.token, ttl: nanos(self.ttl), trust, handed_over: true }
    }
}

/// What ends then and was given for `life` at most. A mark may end it sooner after boot
/// than its TTL is long: it is counted from boot then.
fn until(session: Option<Session>, ends: Instant, life: Duration) -> Trust {
    let sent = ends - life;
    Trust { session, sent, validity: trusted_part(ends - sent) }
}

struct Seat<'a> {
    owner: Owner,
    label: &'a Label,
    terms: Terms,
    session: Session,
    until: Option<i64>,
}

/// A TTL in nanoseconds, rounded up to the store's unit.
pub(super) fn rounded(ttl: Duration) -> i64 {
    (ttl.as_nanos().div_ceil(1_000_000) as i64).saturating_mul(1_000_000)
}
