//! What the store knows of one name.

use super::queue::Queue;
use super::sessions::Sessions;
use crate::store::{ENTRY_LIFE, Session, Trust, trusted_part};
use crate::words::busy::Holder;
use crate::words::clock::Instant;
use crate::words::error::Reason;
use crate::words::owner::{Claim, Label, Owner};
use crate::words::token::Token;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Small, since there may be very many: what is rare is boxed.
pub(super) struct Record {
    /// The last token; the present holder's, when there is one.
    pub(super) token: Token,
    /// The present holder, or one that lapsed and that nobody replaced yet.
    pub(super) hold: Option<Box<Hold>>,
    /// C13, when there is no hold.
    pub(super) kept_until: Option<Instant>,
    pub(super) queue: Option<Box<Queue>>,
    /// The last owner that lost it to somebody, and how: it may still ask.
    pub(super) lost: Option<Box<(Owner, Reason)>>,
}

pub(super) struct Hold {
    pub(super) owner: Owner,
    pub(super) label: Label,
    pub(super) since_us: u64,
    pub(super) ttl: Duration,
    pub(super) life: Life,
    /// C13: grant + `hold_at_least`.
    pub(super) kept_until: Option<Instant>,
    pub(super) one_shot: bool,
    /// Revoked: renewed no more.
    pub(super) marked: bool,
}

/// What a hold stands on.
#[derive(Clone, Copy)]
pub(super) enum Life {
    /// Itself.
    Until(Instant),
    /// A session.
    On(Session),
    /// The entry that it was handed to, until the first renewal: the ask
    /// that kept the entry alive, and the wait session in the shared face (C8).
    Entry(Instant, Option<Session>),
}

impl Hold {
    pub(super) fn expires(&self, sessions: &Sessions) -> Option<Instant> {
        match self.life {
            Life::Until(expires) => Some(expires),
            Life::On(session) => sessions.expires(session),
            Life::Entry(sent, _) => Some(sent + ENTRY_LIFE),
        }
    }

    pub(super) fn left(&self, sessions: &Sessions, now: Instant) -> Option<Duration> {
        self.expires(sessions).map(|expires| expires - now).filter(|left| !left.is_zero())
    }

    pub(super) fn trust(&self, sessions: &Sessions) -> Option<Trust> {
        match self.life {
            Life::On(session) => sessions.trust(session),
            Life::Until(expires) => {
                // A mark may end it sooner after boot than its TTL is long: counted from boot then.
                let sent = expires - self.ttl;
                Some(Trust { session: None, sent, validity: trusted_part(expires - sent) })
            }
            Life::Entry(sent, session) => Some(Trust { session, sent, validity: trusted_part(ENTRY_LIFE) }),
        }
    }

    /// Hangs it where a grant to `client` belongs, for a full TTL.
    pub(super) fn settle(&mut self, claim: &Claim, client: u64, sessions: &mut Sessions, now: Instant) {
        self.unhang(sessions);
        let session = match self.one_shot {
            true => sessions.one_shot(client, self.ttl, now),
            false => sessions.main(client, self.ttl, now),
        };
        self.life = match session {
            None => Life::Until(now + self.ttl),
            Some(session) => {
                sessions.hang(session, claim);
                Life::On(session)
            }
        };
    }

    /// Takes it off its session.
    pub(super) fn unhang(&self, sessions: &mut Sessions) {
        if let Life::On(session) | Life::Entry(_, Some(session)) = self.life {
            sessions.unhang(session, self.owner);
        }
        if self.marked {
            sessions.forget_mark(self.owner);
        }
    }
}

impl Record {
    pub(super) fn new(token: Token) -> Record {
        Record { token, hold: None, kept_until: None, queue: None, lost: None }
    }

    /// The holder and what is left of its time.
    pub(super) fn held(&self, sessions: &Sessions, now: Instant) -> Option<(&Hold, Duration)> {
        let hold = self.hold.as_deref()?;
        Some((hold, hold.left(sessions, now)?))
    }

    pub(super) fn holder(&self, sessions: &Sessions, now: Instant) -> Option<Holder> {
        let (hold, left) = self.held(sessions, now)?;
        let (owner, label) = (hold.owner, hold.label.clone());
        Some(Holder { owner, label, token: self.token, since: wall(hold.since_us), left })
    }

    /// For how long it is kept from everybody, now that nobody holds it.
    pub(super) fn kept_back(&self, now: Instant) -> Option<Duration> {
        let until = match self.hold.as_deref() {
            None => self.kept_until,
            // A hand-over that was never confirmed reached nobody.
            Some(Hold { life: Life::Entry(..), .. }) => None,
            Some(lapsed) => lapsed.kept_until,
        };
        until.map(|until| until - now).filter(|left| !left.is_zero())
    }

    /// Puts a new holder where nobody holds, and ends what its lapsed
    /// predecessor stood on, in the same step (C1).
    pub(super) fn seat(&mut self, token: Token, hold: Hold, sessions: &mut Sessions) {
        if let Some(lapsed) = self.hold.take() {
            match lapsed.life {
                Life::On(session) => sessions.end(session),
                _ => lapsed.unhang(sessions),
            }
            if lapsed.owner != hold.owner {
                let how = if lapsed.marked { Reason::Revoked } else { Reason::Taken };
                self.lost = Some(Box::new((lapsed.owner, how)));
            }
        }
        self.token = token;
        self.kept_until = None;
        self.hold = Some(Box::new(hold));
    }

    /// How `owner`, who does not hold it, lost it, where that is known.
    pub(super) fn how_lost(&self, owner: Owner) -> Option<Reason> {
        self.lost.as_deref().filter(|(lost, _)| *lost == owner).map(|(_, how)| *how)
    }

    pub(super) fn waiting(&self) -> u32 {
        self.queue.as_ref().map_or(0, |queue| queue.len().try_into().unwrap_or(u32::MAX))
    }
}

/// The wall clock's microseconds as people's time.
pub(super) fn wall(us: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(us)
}
