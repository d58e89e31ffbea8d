//! The queue of one name (C8).

use super::sessions::Sessions;
use crate::store::{ENTRY_LIFE, Session, Terms};
use crate::words::clock::Instant;
use crate::words::owner::{Label, Owner};
use std::collections::{HashMap, VecDeque};

/// A client's place in the queue of a name.
pub(super) struct Entry {
    pub(super) owner: Owner,
    pub(super) label: Label,
    pub(super) terms: Terms,
    pub(super) client: u64,
    pub(super) since_us: u64,
    pub(super) life: EntryLife,
    number: u64,
}

/// What keeps an entry alive.
#[derive(Clone, Copy)]
pub(super) enum EntryLife {
    /// Its own last ask.
    Asked(Instant),
    /// Its client's wait session.
    On(Session),
}

impl Entry {
    /// The ask that keeps it alive, unless that is too long ago.
    pub(super) fn attended(&self, sessions: &Sessions, now: Instant) -> Option<Instant> {
        let sent = match self.life {
            EntryLife::Asked(sent) => sent,
            EntryLife::On(session) => sessions.sent(session)?,
        };
        (sent + ENTRY_LIFE > now).then_some(sent)
    }
}

/// Entries in the order in which they were registered.
#[derive(Default)]
pub(super) struct Queue {
    entries: VecDeque<Entry>,
    numbers: HashMap<Owner, u64>,
    last: u64,
    tidied: Option<Instant>,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    pub(super) fn push(
        &mut self,
        owner: Owner,
        label: Label,
        terms: Terms,
        client: u64,
        since_us: u64,
        life: EntryLife,
    ) {
        self.last += 1;
        self.numbers.insert(owner, self.last);
        self.entries.push_back(Entry { owner, label, terms, client, since_us, life, number: self.last });
    }

    /// The place from 0, by the order of registration.
    pub(super) fn place(&self, owner: Owner) -> Option<usize> {
        let number = self.numbers.get(&owner)?;
        self.entries.binary_search_by_key(number, |entry| entry.number).ok()
    }

    pub(super) fn get(&self, owner: Owner) -> Option<&Entry> {
        self.entries.get(self.place(owner)?)
    }

    pub(super) fn get_mut(&mut self, owner: Owner) -> Option<&mut Entry> {
        let at = self.place(owner)?;
        self.entries.get_mut(at)
    }

    pub(super) fn remove(&mut self, owner: Owner, sessions: &mut Sessions) -> Option<Entry> {
        let at = self.place(owner)?;
        self.take(at, sessions)
    }

    pub(super) fn take_head(&mut self, sessions: &mut Sessions) -> Option<Entry> {
        self.take(0, sessions)
    }

    fn take(&mut self, at: usize, sessions: &mut Sessions) -> Option<Entry> {
        let entry = self.entries.remove(at)?;
        self.numbers.remove(&entry.owner);
        if let EntryLife::On(session) = entry.life {
            sessions.unhang(session, entry.owner);
        }
        Some(entry)
    }

    /// Drops the dead at the head; those behind a live one only once in
    /// [`ENTRY_LIFE`], so that no verb's cost grows with the queue.
    pub(super) fn tidy(&mut self, sessions: &mut Sessions, now: Instant) {
        if self.tidied.is_none_or(|tidied| tidied + ENTRY_LIFE <= now) {
            self.drop_dead(sessions, now);
        }
        while self.entries.front().is_some_and(|head| head.attended(sessions, now).is_none()) {
            self.take_head(sessions);
        }
    }

    /// Drops all that are dead.
    pub(super) fn drop_dead(&mut self, sessions: &mut Sessions, now: Instant) {
        self.tidied = Some(now);
        let (live, dead) =
            std::mem::take(&mut self.entries).into_iter().partition(|e| e.attended(sessions, now).is_some());
        self.entries = live;
        let dead: VecDeque<Entry> = dead;
        for entry in dead {
            self.numbers.remove(&entry.owner);
            if let EntryLife::On(session) = entry.life {
                sessions.unhang(session, entry.owner);
            }
        }
    }
}
