//! Heartbeats: one row per session, however many leases hang on it.

use super::client::{Beaten, Hook};
use super::database::{Database, Fault};
use super::grant::rounded;
use super::transaction::{Transaction, sql};
use crate::store::{Outcome, Renewal, Renewed, Session};
use crate::words::error::{Error, Reason, Result};
use crate::words::name::Name;
use crate::words::owner::{Claim, Owner};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

/// What the client knew as the batch was sent.
struct Plan {
    on: Vec<Option<Session>>,
    sessions: HashMap<Session, Beaten>,
}

/// One session's renewal, and which claims the store showed under it if they were compared.
struct Beat {
    hook: Hook,
    shown: Option<HashMap<Owner, Name>>,
}

/// How one lease of a batch stands.
enum Stands {
    Kept(Hook),
    Lost(Reason),
    Unknown(Error),
}

/// A batch as it was committed.
struct Batch {
    outcomes: Vec<Stands>,
    /// `None`: it ended.
    beats: HashMap<Session, Option<Beat>>,
    now: i64,
}

impl Database {
    pub(super) fn renew(&mut self, leases: &[Renewal], sent: i64) -> Result<Renewed> {
        if leases.is_empty() {
            return Ok(Renewed::default());
        }
        let client = self.client.clone();
        if client.own().is_some_and(|own| !own.is_intact()) {
            // Others may take this process for dead at any moment.
            let outcomes = leases.iter().map(|_| Outcome::Lost(Reason::Vanished)).collect();
            return Ok(Renewed { outcomes, strays: Vec::new() });
        }
        let plan = {
            let known = client.known();
            let on: Vec<_> =
                leases.iter().map(|lease| Some(known.claims.get(&lease.claim.owner)?.0)).collect();
            Plan { on, sessions: known.sessions.clone() }
        };
        let batch = self.write(|transaction| transaction.renew(leases, &plan, sent))?;
        let strays = batch.strays(leases);
        let mut known = client.known();
        for (session, beat) in &batch.beats {
            let Some(beat) = beat else {
                known.ended(*session);
                continue;
            };
            if let Some(beaten) = known.sessions.get_mut(session) {
                beaten.sent = beaten.sent.max(sent);
                if beat.shown.is_some() {
                    (beaten.revision, beaten.compared) = (beat.hook.revision, batch.now);
                }
            }
            if let Some(shown) = &beat.shown {
                known.claims.retain(|owner, (on, _)| on != session || shown.contains_key(owner));
            }
        }
        let outcomes =
            leases.iter().zip(&plan.on).zip(batch.outcomes).map(|((lease, on), outcome)| match outcome {
                Stands::Kept(hook) => {
                    if *on != Some(hook.session) {
                        known.confirmed(&lease.claim, hook);
                    }
                    Outcome::Kept(client.trust(hook))
                }
                Stands::Unknown(error) => Outcome::Unknown(error),
                Stands::Lost(reason) => {
                    known.forget(lease.claim.owner);
                    Outcome::Lost(reason)
                }
            });
        Ok(Renewed { outcomes: outcomes.collect(), strays })
    }
}

impl Batch {
    /// C5: what hangs on the sessions and was not asked for.
    fn strays(&self, leases: &[Renewal]) -> Vec<Claim> {
        let shown = self.beats.values().flatten().filter_map(|beat| beat.shown.as_ref());
        let mut shown = shown.flatten().peekable();
        if shown.peek().is_none() {
            return Vec::new();
        }
        let asked: HashSet<Owner> = leases.iter().map(|lease| lease.claim.owner).collect();
        let strays = shown.filter(|(owner, _)| !asked.contains(owner));
        strays.map(|(owner, name)| Claim { name: name.clone(), owner: *owner }).collect()
    }
}

impl Transaction<'_> {
    fn renew(&self, leases: &[Renewal], plan: &Plan, sent: i64) -> Result<Batch, Fault> {
        let mut batch =
            Batch { outcomes: Vec::with_capacity(leases.len()), beats: HashMap::new(), now: self.now };
        for (lease, on) in leases.iter().zip(&plan.on) {
            let known = on.and_then(|session| Some((session, plan.sessions.get(&session)?)));
            if let Some((session, beaten)) = known {
                let beat = match batch.beats.entry(session) {
                    Entry::Occupied(beat) => beat.into_mut(),
                    Entry::Vacant(beat) => beat.insert(self.beat_all(session, beaten, sent)?),
                };
                let stands = |beat: &&mut Beat| {
                    beat.shown.as_ref().is_none_or(|shown| shown.contains_key(&lease.claim.owner))
                };
                if let Some(beat) = beat.as_mut().filter(stands) {
                    batch.outcomes.push(Stands::Kept(beat.hook));
                    continue;
                }
            }
            batch.outcomes.push(match self.renew_one(lease, sent) {
                // It wrote nothing, and is no reason to keep the others from their renewals.
                Err(Fault::Told(error)) => Stands::Unknown(error),
                stands => stands?,
            });
        }
        Ok(batch)
    }

    /// Renews a session, and compares what is under it when something was taken from under it
    /// or it is time (C5: once per TTL).
    fn beat_all(&self, session: Session, beaten: &Beaten, sent: i64) -> Result<Option<Beat>, Fault> {
        let Some(revision) = self.beat(session, beaten.ttl)? else { return Ok(None) };
        // At every second beat, so that a late one still comes within a TTL.
        let is_due = revision != beaten.revision || self.now - beaten.compared >= beaten.ttl / 5 * 3;
        let shown = if is_due { Some(self.shown(session)?) } else { None };
        let hook = Hook { session, ttl: beaten.ttl, sent, revision, is_shared: true };
        Ok(Some(Beat { hook, shown }))
    }

    /// Only this client hangs leases on its sessions, so what it does not know is not there.
    fn shown(&self, session: Session) -> Result<HashMap<Owner, Name>, Fault> {
        let claims = self.client.known().on(session);
        let mut shown = HashMap::with_capacity(claims.len());
        for Claim { name, owner } in claims {
            let params: [&dyn rusqlite::ToSql; 3] = [&name.as_str(), &owner.to_bytes(), &session.0];
            if self.first(sql!("stands"), &params, |row| row.get(0))? == Some(true) {
                shown.insert(owner, name);
            }
        }
        Ok(shown)
    }

    /// Renews what is not known to hang on a session of this client: a grant that was
    /// handed over, a one-shot claim, or one that was lost; and tells how it was lost.
    fn renew_one(&self, lease: &Renewal, sent: i64) -> Result<Stands, Fault> {
        let Claim { name, owner } = &lease.claim;
        let Some(row) = self.lease(name)? else { return Ok(Stands::Lost(Reason::Vanished)) };
        let is_held = self.is_held(&row);
        if row.owner != Some(*owner) {
            let unknown = if is_held { Reason::Taken } else { Reason::Vanished };
            return Ok(Stands::Lost(row.how_lost(*owner).unwrap_or(unknown)));
        }
        match (row.marked, is_held) {
            (true, _) => Ok(Stands::Lost(Reason::Revoked)),
            (_, false) => Ok(Stands::Lost(Reason::Expired)),
            _ => self.keep(&row, rounded(lease.ttl), sent).map(Stands::Kept),
        }
    }
}
