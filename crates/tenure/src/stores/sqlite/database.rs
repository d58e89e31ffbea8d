//! One connection: opened with care, written to in turn.

use super::classify::classify;
use super::client::Client;
use super::companions::{Companions, replaced};
use super::gate::Gate;
use super::place::{Identity, Place};
use super::transaction::{Grants, Transaction};
use crate::words::error::{Error, Result};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::io::Errno;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// "tenr", in the header of the file: whose it is.
const APPLICATION: i32 = 0x7465_6e72;
/// The format of the tables (C13).
const FORMAT: i32 = 1;
/// How often a locked database is tried again, with a pause of [`PAUSE`] in between: 4 s.
const TRIES: i32 = 8_000;
const PAUSE: Duration = Duration::from_micros(500);

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    /// The calls of a handle: they queue at the gate.
    Requests,
    /// Renewals: past the gate, so that nobody's queue delays them.
    Beats,
    /// Looking after the names that are waited for.
    Watch,
}

/// Why a transaction was broken off.
#[derive(Debug)]
pub(super) enum Fault {
    Sql(rusqlite::Error),
    Told(Error),
}

impl Lane {
    pub(super) fn name(self) -> &'static str {
        match self {
            Lane::Requests => "requests",
            Lane::Beats => "beats",
            Lane::Watch => "watch",
        }
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Fault {
        Fault::Sql(error)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::Told(error)
    }
}

/// A connection of a client, opened by the first thing that needs it.
pub(super) struct Database {
    pub(super) client: Arc<Client>,
    lane: Lane,
    open: Option<Open>,
    /// The last call met somebody else. Then the ways that are short without others are not
    /// tried first.
    pub(super) is_crowded: bool,
}

/// Closed in this order.
struct Open {
    connection: Connection,
    gate: Option<Gate>,
    companions: Arc<Companions>,
}

impl Database {
    pub(super) fn new(client: Arc<Client>, lane: Lane) -> Database {
        Database { client, lane, open: None, is_crowded: false }
    }

    /// Runs `work` in a snapshot.
    pub(super) fn read<T>(&mut self, work: impl FnOnce(&Transaction<'_>) -> Result<T, Fault>) -> Result<T> {
        let client = self.client.clone();
        let connection = &self.connected()?.connection;
        let run = |sql| connection.prepare_cached(sql)?.execute([]);
        let done = run("BEGIN").map_err(Fault::from).and_then(|_| {
            let done = work(&Transaction::new(connection, &client));
            run("ROLLBACK")?;
            done
        });
        self.leave();
        done.map_err(|fault| fault.told(&client.place))
    }

    /// Runs `work` as it is, each statement in a snapshot of its own.
    pub(super) fn glance<T>(&mut self, work: impl FnOnce(&Transaction<'_>) -> Result<T, Fault>) -> Result<T> {
        let client = self.client.clone();
        let done = work(&Transaction::new(&self.connected()?.connection, &client));
        self.leave();
        done.map_err(|fault| fault.told(&client.place))
    }

    /// Runs `work` in a write transaction. Who it granted to is told when that is on the disk.
    pub(super) fn write<T>(&mut self, work: impl FnOnce(&Transaction<'_>) -> Result<T, Fault>) -> Result<T> {
        self.write_and_learn(work, |_| {})
    }

    /// The same; `learn` takes in what was committed, whatever the disk says then: others see it.
    pub(super) fn write_and_learn<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, Fault>,
        learn: impl FnOnce(&T),
    ) -> Result<T> {
        self.in_turn(|open, client| open.write(client, work), learn)
    }

    /// The same for `work` that is one statement, which is a transaction by itself. Its instant
    /// is that of its beginning, and past when it had to wait for the lock.
    pub(super) fn execute<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, Fault>,
        learn: impl FnOnce(&T),
    ) -> Result<T> {
        let work = |open: &Open, client: &Client| {
            let transaction = Transaction::new(&open.connection, client);
            let done = work(&transaction)?;
            Ok((done, transaction.grants.into_inner()))
        };
        self.in_turn(work, learn)
    }

    fn in_turn<T>(
        &mut self,
        work: impl FnOnce(&Open, &Client) -> Result<(T, Grants), Fault>,
        learn: impl FnOnce(&T),
    ) -> Result<T> {
        let client = self.client.clone();
        if !client.is_writable() {
            return Err(client.read_only());
        }
        let open = self.connected()?;
        let passed = open.gate.as_ref().and_then(Gate::pass);
        let written = work(open, &client);
        // Nobody else waits for this one's disk.
        drop(passed);
        let done = written.map_err(|fault| fault.told(&client.place)).and_then(|(done, grants)| {
            learn(&done);
            if grants.is_any() {
                open.companions.sync(&client.place, &open.connection)?;
            }
            grants.handed_over.iter().for_each(|granted| client.tell(granted));
            Ok(done)
        });
        self.leave();
        done
    }

    /// A connection that could not leave its transaction would keep others out, and refuse
    /// every further one: the next call opens another.
    fn leave(&mut self) {
        if self.open.as_ref().is_some_and(|open| !open.connection.is_autocommit()) {
            self.open = None;
        }
    }

    /// The connection, as long as the file behind the name is the one that was opened:
    /// who goes on with another one shares nothing with those who open it now.
    fn connected(&mut self) -> Result<&Open> {
        let (place, identity) = (&self.client.place, self.client.identity);
        match place.identity() {
            Ok(found) if found == identity => {}
            Err(Errno::MLINK) => return Err(place.failed("", Errno::MLINK)),
            _ => return Err(replaced(place, "")),
        }
        match &self.open {
            Some(open) => open.companions.check(place)?,
            None => self.open = Some(self.open()?),
        }
        Ok(self.open.as_ref().expect("it was opened just now"))
    }

    fn open(&self) -> Result<Open> {
        let (place, identity) = (&self.client.place, self.client.identity);
        Companions::find(place, identity)?;
        let (connection, gate) = match (self.client.is_writable(), self.lane) {
            (false, _) | (_, Lane::Watch) => (look(place)?, None),
            (_, Lane::Requests) => (connect(place)?, Some(Gate::new(place)?)),
            (_, Lane::Beats) => (connect(place)?, None),
        };
        let prepared = || {
            if self.lane == Lane::Beats {
                // Checkpoints wait for the disk: left to the requests while there are any.
                connection.pragma_update(None, "wal_autocheckpoint", 4_000)?;
            }
            touch(&connection)
        };
        prepared().map_err(|error| classify(place, error))?;
        let companions = Companions::opened(place, identity)?;
        Ok(Open { connection, gate, companions })
    }
}

impl Open {
    /// Commits what `work` did, or nothing of it.
    fn write<T>(
        &self,
        client: &Client,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, Fault>,
    ) -> Result<(T, Grants), Fault> {
        let run = |sql| self.connection.prepare_cached(sql)?.execute([]);
        run("BEGIN IMMEDIATE")?;
        let transaction = Transaction::new(&self.connection, client);
        let done = work(&transaction).and_then(|done| {
            run("COMMIT")?;
            Ok(done)
        });
        if done.is_err() && !self.connection.is_autocommit() {
            let _ = run("ROLLBACK");
        }
        Ok((done?, transaction.grants.into_inner()))
    }
}

/// Opens the database, makes it where it is missing, and tells which file it is.
pub(super) fn create(place: &Place) -> Result<Identity> {
    // Nothing is left beside what cannot be a database.
    if let Err(error @ (Errno::LOOP | Errno::NXIO)) = place.identity() {
        return Err(place.failed("", error));
    }
    // The switch to WAL fails where two do it at a time: one after the other (C14: with
    // a definite mode, which SQLite gives to its companions as well).
    let gate = Gate::new(place)?;
    let _passed = gate.pass();
    match place.identity() {
        Ok(identity) => drop(Companions::find(place, identity)?),
        // Never opened while SQLite has it open: closing it would drop SQLite's locks.
        Err(Errno::NOENT) => drop(place.open_file("")?),
        Err(error) => return Err(place.failed("", error)),
    }
    let connection = connect(place)?;
    let found = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let set_up = || -> rusqlite::Result<Option<i32>> {
        let is_empty =
            connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0))? == 0;
        match (found("application_id")?, found("user_version")?) {
            (0, 0) if is_empty => {
                connection.pragma_update(None, "journal_mode", "WAL")?;
                connection.execute_batch(&format!(
                    "BEGIN IMMEDIATE; {} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {FORMAT}; COMMIT;",
                    include_str!("schema.sql")
                ))?;
                Ok(Some(FORMAT))
            }
            (APPLICATION, format) => Ok(Some(format)),
            _ => Ok(None),
        }
    };
    let path = place.file.display();
    match set_up().map_err(|error| classify(place, error))? {
        Some(FORMAT) => {}
        Some(newer) => {
            return Err(Error::rejected(format!(
                "{path}: database format {newer} is newer than this tenure knows ({FORMAT}): upgrade tenure"
            )));
        }
        None => {
            return Err(Error::rejected(format!(
                "{path} is the database of another application: name another file"
            )));
        }
    }
    place.identity().map_err(|error| place.failed("", error))
}

/// A connection that writes.
fn connect(place: &Place) -> Result<Connection> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    opened(&place.file, flags)
        .and_then(|connection| {
            connection.pragma_update(None, "journal_size_limit", 4 << 20)?;
            // A commit survives a crash of the process. What has to survive one of the machine
            // is synced by `write`, when the lock is given up: forgetting anything but a grant
            // harms nobody, for the reboot ends every lease.
            connection.pragma_update(None, "synchronous", "NORMAL")?;
            Ok(connection)
        })
        .map_err(|error| classify(place, error))
}

/// A connection that only reads.
pub(super) fn look(place: &Place) -> Result<Connection> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let looked = opened(&place.file, flags).and_then(|connection| {
        touch(&connection)?;
        Ok(connection)
    });
    looked.map_err(|error| match error.sqlite_error_code() {
        Some(ErrorCode::CannotOpen) if !place.beside("-shm").exists() => Error::rejected(format!(
            "{} cannot be read without the right to write while nobody uses it, since its -shm file is missing",
            place.file.display()
        )),
        _ => classify(place, error),
    })
}

/// Reads something, for SQLite opens nothing before.
fn touch(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))
}

fn opened(file: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let mut connection = Connection::open_with_flags(file, flags)?;
    connection.busy_handler(Some(|tries| {
        pause(PAUSE);
        tries < TRIES
    }))?;
    connection.set_prepared_statement_cache_capacity(64);
    // In KiB: what is asked for again and again fits, and the rest is in the system's cache.
    connection.pragma_update(None, "cache_size", -512)?;
    // Else statements are planned anew for each value that is bound to them.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // Else the last of many short processes waits for the disk when it has done its work.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(connection)
}

/// SQLite's own handler sleeps ever longer, and the one that came last gets in first.
fn pause(time: Duration) {
    let never = Mutex::new(());
    let guard = never.lock().unwrap_or_else(PoisonError::into_inner);
    // Waking early only tries once more.
    drop(Condvar::new().wait_timeout(guard, time));
}

impl Fault {
    fn told(self, place: &Place) -> Error {
        match self {
            Fault::Sql(error) => classify(place, error),
            Fault::Told(error) => error,
        }
    }
}
