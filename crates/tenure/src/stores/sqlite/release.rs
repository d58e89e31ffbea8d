//! Giving up, taking away, and cleaning up.

use super::database::{Database, Fault};
use super::liveness::{Dead, Process};
use super::transaction::{Transaction, nanos, sql};
use crate::store::{Ending, Released, Revoked, Session};
use crate::words::error::{Reason, Result};
use crate::words::name::Name;
use crate::words::owner::{Claim, Owner};
use crate::words::token::Token;

/// C4: a token may be forgotten when the wall clock is this far past it, in microseconds.
const TOKEN_LIFE: i64 = 24 * HOUR;
const HOUR: i64 = 3_600_000_000;
const SECOND: i64 = 1_000_000;

impl Database {
    pub(super) fn release(&mut self, claim: &Claim, ending: Ending) -> Result<Released> {
        let session = self.client.known().session_of(claim.owner).filter(|_| !self.is_crowded);
        let is_given_up = match session {
            Some(session) => self.execute(|it| it.give_up(claim, session, ending), |_| {})?,
            None => false,
        };
        let released = match is_given_up {
            true => Released::Released,
            false => self.write(|transaction| transaction.release(claim, ending))?,
        };
        self.client.known().forget(claim.owner);
        Ok(released)
    }

    pub(super) fn revoke(&mut self, name: &Name, token: Token, at_once: bool) -> Result<Revoked> {
        self.write(|transaction| transaction.revoke(name, token, at_once))
    }

    /// Ends the sessions of this client.
    pub(super) fn close(&mut self) -> Result<()> {
        let client = self.client.clone();
        if let (Some(own), Ok(live)) = (client.own(), client.live()) {
            let claims = client.known().all();
            self.write(|transaction| transaction.close(&own.process, &claims))?;
            own.remove(&live);
        }
        let mut known = client.known();
        *known = Default::default();
        known.is_closed = true;
        Ok(())
    }

    /// Removes what dead processes left behind, and names that nobody needs.
    pub(super) fn tidy(&mut self) -> Result<()> {
        let client = self.client.clone();
        let (due, after) = self
            .glance(|it| {
                it.first(sql!("tidy"), &[], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)))
            })?
            .unwrap_or_default();
        let wall = client.host.wall_us();
        let mut wait = due.saturating_sub(wall);
        // A due time beyond an hour was written by a clock that has been set back since.
        if wait <= 0 || wait > HOUR {
            let live = client.live()?;
            let dead = Dead::find(&live);
            wait = self.write(|transaction| {
                for process in dead.processes() {
                    transaction.forget_process(process)?;
                }
                transaction.tidy(&after, wall)
            })?;
            dead.remove(&live);
        }
        client.known().tidy_due = client.host.now().saturating_add(wait.saturating_mul(1_000));
        Ok(())
    }
}

impl Transaction<'_> {
    /// Frees what plainly hangs on this client's session: the common case of
    /// [`release`](Self::release) in one statement.
    fn give_up(&self, claim: &Claim, session: Session, ending: Ending) -> Result<bool, Fault> {
        let keeps_back = ending == Ending::Released;
        let Claim { name, owner } = claim;
        let freed =
            self.run(sql!("give_up"), &[&name.as_str(), &owner.to_bytes(), &session.0, &keeps_back])?;
        Ok(freed > 0)
    }

    fn release(&self, claim: &Claim, ending: Ending) -> Result<Released, Fault> {
        let Claim { name, owner } = claim;
        let lease = self.lease(name)?;
        let is_queued = lease.as_ref().is_none_or(|lease| lease.is_queued);
        let released = match &lease {
            Some(lease) if lease.owner == Some(*owner) => {
                let is_held = self.is_held(lease);
                self.free(name, ending == Ending::Released, None)?;
                if let Some(session) = lease.session {
                    let process = lease.life.and_then(|life| life.process);
                    let own = self.client.own().map(|own| own.process);
                    match process {
                        None => self.run(sql!("end"), &[&session.0])?,
                        Some(_) if process != own => self.run(sql!("raise"), &[&session.0])?,
                        Some(_) => 0,
                    };
                }
                match (is_held, lease.marked) {
                    (true, _) => Released::Released,
                    (false, true) => Released::Gone(Some(Reason::Revoked)),
                    (false, false) => Released::Gone(Some(Reason::Expired)),
                }
            }
            _ if self.run(sql!("leave"), &[&name.as_str(), &owner.to_bytes()])? > 0 => Released::Released,
            lease => Released::Gone(lease.as_ref().and_then(|lease| lease.how_lost(*owner))),
        };
        if is_queued {
            self.hand_on(name)?;
        }
        Ok(released)
    }

    fn revoke(&self, name: &Name, token: Token, at_once: bool) -> Result<Revoked, Fault> {
        let Some(lease) = self.lease(name)? else { return Ok(Revoked::NotHeld(None)) };
        let holder = self.holder(&lease);
        if holder.is_none() && lease.token == token && self.kept_back(&lease).is_some() {
            self.end(&lease)?;
            self.free(name, false, None)?;
            self.hand_on(name)?;
            return Ok(Revoked::Freed);
        }
        let Some(holder) = holder.filter(|_| lease.token == token) else {
            return Ok(Revoked::NotHeld(self.holder(&lease)));
        };
        if at_once {
            self.free(name, false, Some(holder.owner))?;
        } else if !lease.marked {
            self.run(sql!("mark"), &[&name.as_str(), &lease.ends()])?;
        }
        if let Some(session) = lease.session {
            self.run(sql!("raise"), &[&session.0])?;
        }
        if !at_once {
            return Ok(Revoked::Marked(nanos(lease.ends() - self.now)));
        }
        self.hand_on(name)?;
        Ok(Revoked::Freed)
    }

    /// Nobody holds it any more; `revoked` was the owner it was taken from.
    fn free(&self, name: &Name, keeps_back: bool, revoked: Option<Owner>) -> Result<(), Fault> {
        self.run(
            sql!("free"),
            &[&name.as_str(), &keeps_back, &revoked.map(Owner::to_bytes), &revoked.is_some()],
        )?;
        Ok(())
    }

    fn close(&self, process: &Process, claims: &[Claim]) -> Result<(), Fault> {
        for claim in claims {
            // A grant whose renewal was never confirmed reached nobody.
            let row = self.lease(&claim.name)?;
            let is_confirmed = row.is_none_or(|row| !row.is_unconfirmed());
            self.release(claim, if is_confirmed { Ending::Released } else { Ending::Undone })?;
        }
        self.forget_process(process)?;
        self.run(sql!("orphaned_entries"), &[])?;
        Ok(())
    }

    fn forget_process(&self, process: &Process) -> Result<(), Fault> {
        self.run(sql!("end_process"), &[&process.id, &process.device, &process.inode])?;
        Ok(())
    }

    /// How long until it is due again, in microseconds.
    fn tidy(&self, after: &str, wall: i64) -> Result<i64, Fault> {
        self.run(sql!("dead_sessions"), &[])?;
        self.run(sql!("orphaned_entries"), &[])?;
        let next = self.first(sql!("next_names"), &[&after], |row| {
            Ok((row.get::<_, Option<String>>(0)?, row.get::<_, i64>(1)?))
        })?;
        let (last, count) = next.unwrap_or_default();
        if let Some(last) = &last {
            self.run(sql!("forget"), &[&after, last, &(wall - TOKEN_LIFE)])?;
        }
        // A few names at a time, so that nobody waits for it; hourly once all were looked at.
        let (wait, after) =
            if count == 1_000 { (SECOND, last.unwrap_or_default()) } else { (HOUR, String::new()) };
        self.run(sql!("tidied"), &[&(wall + wait), &after])?;
        Ok(wait)
    }
}
