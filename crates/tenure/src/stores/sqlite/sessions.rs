//! The sessions that leases and entries hang on.

use super::client::Hook;
use super::database::Fault;
use super::transaction::{Lease, Transaction, sql};
use crate::store::Session;
use crate::words::error::{Error, Result};
use crate::words::owner::random_bits;

impl Transaction<'_> {
    /// The session for grants of this TTL, opened where there is none. A grant that follows
    /// closely on a confirmed renewal stands on that and spares a write.
    pub(super) fn hook(&self, ttl: i64, sent: i64) -> Result<Hook, Fault> {
        // Else the grant hangs on a session that others may take for dead at any moment.
        self.client.liveness()?;
        let current = self.client.known().current(ttl);
        if let Some(hook) = current {
            let is_fresh = hook.is_fresh(self.now);
            let sent = if is_fresh { hook.sent } else { sent };
            let revision =
                if is_fresh { self.revision(hook.session)? } else { self.beat(hook.session, ttl)? };
            if let Some(revision) = revision {
                return Ok(Hook { sent, revision, ..hook });
            }
        }
        self.client.known().admit(ttl)?;
        Ok(Hook { session: self.open(ttl, true)?, ttl, sent, revision: 0, is_shared: true })
    }

    /// The same, if it takes no look into the database to tell.
    pub(super) fn fresh_hook(&self, ttl: i64) -> Result<Option<Hook>, Fault> {
        self.client.liveness()?;
        Ok(self.client.known().current(ttl).filter(|hook| hook.is_fresh(self.now)))
    }

    /// A session of its own, which only time ends (C13).
    pub(super) fn one_shot(&self, ttl: i64, sent: i64) -> Result<Hook, Fault> {
        Ok(Hook { session: self.open(ttl, false)?, ttl, sent, revision: 0, is_shared: false })
    }

    /// Renews a lease of the asker by itself, and hangs it where it belongs.
    pub(super) fn keep(&self, lease: &Lease, ttl: i64, sent: i64) -> Result<Hook, Fault> {
        let in_place = lease.session.filter(|_| lease.until.is_none()).and_then(|session| {
            let process = lease.life.and_then(|life| life.process);
            let known_ttl = self.client.known().sessions.get(&session).map(|beaten| beaten.ttl);
            match process {
                None => Some((session, ttl, false)),
                // Moved here it would end with this client, though its holder lives elsewhere.
                Some(_) if process != self.client.own().map(|own| own.process) => {
                    Some((session, lease.ttl, false))
                }
                Some(_) => known_ttl.map(|ttl| (session, ttl, true)),
            }
        });
        if let Some((session, ttl, is_shared)) = in_place {
            let revision =
                self.beat(session, ttl)?.ok_or_else(|| Error::unavailable("the session ended just now"))?;
            return Ok(Hook { session, ttl, sent, revision, is_shared });
        }
        let hook = if lease.one_shot { self.one_shot(ttl, sent)? } else { self.hook(ttl, sent)? };
        if let Some(session) = lease.session {
            self.run(sql!("raise"), &[&session.0])?;
        }
        self.run(sql!("move"), &[&lease.name.as_str(), &hook.session.0, &ttl])?;
        Ok(hook)
    }

    pub(super) fn open(&self, ttl: i64, with_process: bool) -> Result<Session, Fault> {
        let session = Session(random_bits());
        let process = if with_process { Some(self.client.liveness()?.process) } else { None };
        self.run(
            sql!("open"),
            &[
                &session.0,
                &self.client.host.boot,
                &(self.now.saturating_add(ttl)),
                &ttl,
                &process.map(|process| process.id),
                &process.map(|process| process.device),
                &process.map(|process| process.inode),
            ],
        )?;
        Ok(session)
    }

    /// Prolongs a session that has not ended; its revision.
    pub(super) fn beat(&self, session: Session, ttl: i64) -> Result<Option<i64>, Fault> {
        self.first(sql!("beat"), &[&session.0, &ttl], |row| row.get(0))
    }

    fn revision(&self, session: Session) -> Result<Option<i64>, Fault> {
        self.first(sql!("alive"), &[&session.0], |row| row.get(0))
    }
}
