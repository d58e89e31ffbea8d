//! One transaction: statements by their headings, rows as values.

use super::client::Client;
use super::database::Fault;
use super::liveness::Process;
use crate::store::{Session, Terms, Waiter};
use crate::words::busy::Holder;
use crate::words::error::Result;
use crate::words::name::Name;
use crate::words::owner::{Label, Owner};
use crate::words::token::Token;
use rusqlite::{CachedStatement, Connection, Row, ToSql};
use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The statement with this heading in `statements.sql`.
macro_rules! sql {
    ($heading:literal) => {{
        const TEXT: &str = $crate::stores::sqlite::transaction::statement(concat!("-- @", $heading, "\n"));
        TEXT
    }};
}
pub(super) use sql;

/// What runs inside `BEGIN IMMEDIATE`, or a snapshot for reading.
pub(super) struct Transaction<'a> {
    pub(super) connection: &'a Connection,
    pub(super) client: &'a Client,
    /// The instant of the transaction.
    pub(super) now: i64,
    pub(super) grants: RefCell<Grants>,
}

/// What a transaction granted. It counts once it would survive a crash of the machine (C4).
#[derive(Debug, Default)]
pub(super) struct Grants {
    /// The call is answered with one.
    pub(super) is_answered: bool,
    /// These are to be told of theirs.
    pub(super) handed_over: Vec<HandOver>,
}

impl Grants {
    pub(super) fn is_any(&self) -> bool {
        self.is_answered || !self.handed_over.is_empty()
    }
}

/// A grant to a waiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HandOver {
    pub(super) name: Name,
    pub(super) owner: Owner,
    pub(super) token: Token,
    pub(super) ttl: i64,
    /// The wait session that it hangs on.
    pub(super) session: Session,
    /// It lapses then, unless it is renewed before.
    pub(super) until: i64,
    pub(super) process: Option<Process>,
}

/// What keeps something alive.
#[derive(Debug, Clone, Copy)]
pub(super) struct Life {
    pub(super) expires: i64,
    pub(super) process: Option<Process>,
}

/// The row of a name, whoever holds it or held it last.
#[derive(Debug, Clone)]
pub(super) struct Lease {
    pub(super) name: Name,
    pub(super) token: Token,
    pub(super) owner: Option<Owner>,
    pub(super) label: Label,
    pub(super) since: SystemTime,
    pub(super) until: Option<i64>,
    pub(super) marked: bool,
    pub(super) keep: Option<i64>,
    pub(super) lost: Option<Owner>,
    pub(super) revoked: bool,
    pub(super) session: Option<Session>,
    /// As it was asked for.
    pub(super) ttl: i64,
    pub(super) one_shot: bool,
    pub(super) life: Option<Life>,
    /// There are entries, of the living or the dead.
    pub(super) is_queued: bool,
}

/// An entry of a queue.
pub(super) struct Entry {
    pub(super) owner: Owner,
    pub(super) label: Label,
    pub(super) session: Session,
    pub(super) terms: Terms,
    pub(super) life: Option<Life>,
}

impl Lease {
    /// When it ends if nobody renews it.
    pub(super) fn ends(&self) -> i64 {
        let expires = self.life.map_or(i64::MIN, |life| life.expires);
        self.until.map_or(expires, |until| until.min(expires))
    }

    /// It was handed over and its owner has not confirmed it.
    pub(super) fn is_unconfirmed(&self) -> bool {
        self.until.is_some() && !self.marked
    }

    /// How `owner`, who does not hold it, lost it, where that is known.
    pub(super) fn how_lost(&self, owner: Owner) -> Option<crate::Reason> {
        let reason = if self.revoked { crate::Reason::Revoked } else { crate::Reason::Taken };
        (self.lost == Some(owner)).then_some(reason)
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Lease> {
        Ok(Lease {
            name: checked(0, row.get::<_, String>(0)?, Name::new)?,
            token: Token::from_u64(row.get::<_, i64>(1)? as u64),
            owner: row.get::<_, Option<[u8; 16]>>(2)?.map(Owner::from_bytes),
            label: checked(3, row.get::<_, String>(3)?, Label::new)?,
            since: wall(row.get(4)?),
            until: row.get(5)?,
            marked: row.get(6)?,
            keep: row.get(7)?,
            lost: row.get::<_, Option<[u8; 16]>>(8)?.map(Owner::from_bytes),
            revoked: row.get(9)?,
            session: row.get::<_, Option<[u8; 16]>>(10)?.map(Session),
            ttl: row.get(11)?,
            one_shot: row.get(12)?,
            life: life(row, 13)?,
            is_queued: row.get(17)?,
        })
    }
}

impl<'a> Transaction<'a> {
    pub(super) fn new(connection: &'a Connection, client: &'a Client) -> Transaction<'a> {
        Transaction { connection, client, now: client.host.now(), grants: RefCell::default() }
    }
}

impl Transaction<'_> {
    fn prepare(&self, sql: &str, params: &[&dyn ToSql]) -> rusqlite::Result<CachedStatement<'_>> {
        let mut statement = self.connection.prepare_cached(sql)?;
        for (i, value) in params.iter().enumerate() {
            statement.raw_bind_parameter(i + 1, value)?;
        }
        if statement.parameter_count() >= 20 {
            statement.raw_bind_parameter(20, self.now)?;
        }
        if statement.parameter_count() >= 21 {
            statement.raw_bind_parameter(21, &self.client.host.boot)?;
        }
        Ok(statement)
    }

    /// Runs a statement; how many rows it changed.
    pub(super) fn run(&self, sql: &str, params: &[&dyn ToSql]) -> Result<usize, Fault> {
        Ok(self.prepare(sql, params)?.raw_execute()?)
    }

    /// The first row, if there is one.
    pub(super) fn first<T>(
        &self,
        sql: &str,
        params: &[&dyn ToSql],
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, Fault> {
        let mut statement = self.prepare(sql, params)?;
        let mut rows = statement.raw_query();
        Ok(rows.next()?.map(read).transpose()?)
    }

    /// Every row until `read` has enough and says so by `None`.
    pub(super) fn each<T>(
        &self,
        sql: &str,
        params: &[&dyn ToSql],
        mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<Option<T>>,
    ) -> Result<Vec<T>, Fault> {
        let mut statement = self.prepare(sql, params)?;
        let mut rows = statement.raw_query();
        let mut values = Vec::new();
        while let Some(row) = rows.next()? {
            match read(row)? {
                Some(value) => values.push(value),
                None => break,
            }
        }
        Ok(values)
    }

    pub(super) fn lease(&self, name: &Name) -> Result<Option<Lease>, Fault> {
        self.first(sql!("lease"), &[&name.as_str()], Lease::read)
    }

    /// The rows of names from `prefix` on, after `after`, with the length of their queues.
    pub(super) fn leases(
        &self,
        prefix: &str,
        after: &str,
        mut wanted: impl FnMut(&Lease, u32) -> Option<bool>,
    ) -> Result<Vec<(Lease, u32)>, Fault> {
        let rows = self.each(sql!("list"), &[&prefix, &after], |row| {
            let (lease, waiting) = (Lease::read(row)?, row.get(17)?);
            Ok(wanted(&lease, waiting).map(|wanted| wanted.then_some((lease, waiting))))
        })?;
        Ok(rows.into_iter().flatten().collect())
    }

    /// The entry at the head, dead or alive.
    pub(super) fn head(&self, name: &Name) -> Result<Option<Entry>, Fault> {
        self.first(sql!("head"), &[&name.as_str()], |row| {
            Ok(Entry {
                owner: Owner::from_bytes(row.get(0)?),
                label: checked(1, row.get::<_, String>(1)?, Label::new)?,
                session: Session(row.get(2)?),
                terms: Terms {
                    ttl: nanos(row.get(3)?),
                    hold_at_least: nanos(row.get(4)?),
                    one_shot: row.get(5)?,
                },
                life: life(row, 6)?,
            })
        })
    }

    pub(super) fn waiters(&self, name: &Name) -> Result<Vec<Waiter>, Fault> {
        self.each(sql!("waiters"), &[&name.as_str()], |row| {
            let owner = Owner::from_bytes(row.get(0)?);
            let label = checked(1, row.get::<_, String>(1)?, Label::new)?;
            Ok(Some(Waiter { owner, label, since: wall(row.get(2)?) }))
        })
    }

    /// Its time has not passed and its process is not known to be dead.
    pub(super) fn is_alive(&self, life: Option<Life>) -> bool {
        life.is_some_and(|life| life.expires > self.now && !self.client.is_dead(life.process))
    }

    /// Somebody holds it.
    pub(super) fn is_held(&self, lease: &Lease) -> bool {
        lease.owner.is_some() && lease.ends() > self.now && self.is_alive(lease.life)
    }

    /// Who holds it, as people are told.
    pub(super) fn holder(&self, lease: &Lease) -> Option<Holder> {
        let owner = lease.owner.filter(|_| self.is_held(lease))?;
        let left = nanos(lease.ends() - self.now);
        Some(Holder { owner, label: lease.label.clone(), token: lease.token, since: lease.since, left })
    }

    /// For how long nobody gets it, now that nobody holds it. A hand-over that was
    /// never confirmed reached nobody, and keeps nothing.
    pub(super) fn kept_back(&self, lease: &Lease) -> Option<Duration> {
        let keep = lease.keep.filter(|keep| *keep > self.now && !lease.is_unconfirmed())?;
        Some(nanos(keep - self.now))
    }
}

/// What was stored passed the same check; what did not was not stored by tenure.
fn checked<T>(column: usize, text: String, check: impl FnOnce(String) -> Result<T>) -> rusqlite::Result<T> {
    check(text).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, Box::new(error))
    })
}

/// Four columns, all NULL where there is no session.
fn life(row: &Row<'_>, from: usize) -> rusqlite::Result<Option<Life>> {
    let Some(expires) = row.get(from)? else { return Ok(None) };
    let process = match row.get(from + 1)? {
        None => None,
        Some(id) => Some(Process { id, device: row.get(from + 2)?, inode: row.get(from + 3)? }),
    };
    Ok(Some(Life { expires, process }))
}

pub(super) fn nanos(nanos: i64) -> Duration {
    Duration::from_nanos(nanos.max(0) as u64)
}

fn wall(us: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(us.max(0) as u64)
}

/// Cuts a statement out at compile time, so that a heading without one does not compile.
pub(super) const fn statement(heading: &str) -> &'static str {
    let all = include_str!("statements.sql");
    let mut from = 0;
    while !begins_with(all.as_bytes(), from, heading.as_bytes()) {
        from += 1;
    }
    from += heading.len();
    let mut to = from;
    while to < all.len() && !begins_with(all.as_bytes(), to, b"-- @") {
        to += 1;
    }
    all.split_at(to).0.split_at(from).1
}

const fn begins_with(text: &[u8], at: usize, what: &[u8]) -> bool {
    let mut i = 0;
    while i < what.len() {
        if text[at + i] != what[i] {
            return false;
        }
        i += 1;
    }
    true
}
