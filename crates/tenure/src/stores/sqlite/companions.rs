//! The files that SQLite keeps beside a database while it is open.

use super::classify::classify;
use super::place::{Identity, Place, identity_of};
use crate::words::error::{Error, Result};
use rusqlite::Connection;
use rustix::fs::{Mode, OFlags, openat};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

const SUFFIXES: [&str; 2] = ["-wal", "-shm"];

/// Which files they are: whoever opens the database after one of them was deleted makes
/// another, and shares nothing with who goes on with the old one.
#[derive(Debug)]
pub(super) struct Companions {
    files: [(PathBuf, Identity); 2],
    /// The write-ahead log. No lock is ever on it, so its descriptor may come and go.
    log: OwnedFd,
    /// A sync failed. Linux says so once, and takes for written what was not.
    is_doubtful: AtomicBool,
    #[cfg(test)]
    pub(super) syncs: std::sync::atomic::AtomicUsize,
    /// How many of the next syncs fail.
    #[cfg(test)]
    pub(super) refusals: std::sync::atomic::AtomicUsize,
}

/// Per database and for the whole process, for all connections of a process share them.
static OPEN: Mutex<Vec<(Identity, Weak<Companions>)>> = Mutex::new(Vec::new());

impl Companions {
    /// Those that a connection of this process has open, if they still are what stands there.
    pub(super) fn find(place: &Place, database: Identity) -> Result<Option<Arc<Companions>>> {
        let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let found = open.iter().find(|(of, _)| *of == database).and_then(|(_, it)| it.upgrade());
        drop(open);
        found.as_ref().map_or(Ok(()), |companions| companions.check(place))?;
        Ok(found)
    }

    /// To be called when a connection has read something, and dropped after it.
    pub(super) fn opened(place: &Place, database: Identity) -> Result<Arc<Companions>> {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, companions)| companions.strong_count() > 0);
        let found = open.iter().find(|(of, _)| *of == database).and_then(|(_, it)| it.upgrade());
        if let Some(companions) = found {
            companions.check(place)?;
            return Ok(companions);
        }
        let [Ok(log), Ok(index)] = SUFFIXES.map(|suffix| identity_of(&place.beside(suffix))) else {
            return Err(replaced(place, "-wal"));
        };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let opened = openat(rustix::fs::CWD, place.beside("-wal"), flags, Mode::empty())
            .map_err(|error| place.failed("-wal", error))?;
        let companions = Arc::new(Companions {
            files: [(place.beside("-wal"), log), (place.beside("-shm"), index)],
            log: opened,
            is_doubtful: AtomicBool::new(false),
            #[cfg(test)]
            syncs: Default::default(),
            #[cfg(test)]
            refusals: Default::default(),
        });
        // What was opened is what was looked at.
        companions.check(place)?;
        open.push((database, Arc::downgrade(&companions)));
        Ok(companions)
    }

    pub(super) fn check(&self, place: &Place) -> Result<()> {
        for ((file, known), suffix) in self.files.iter().zip(SUFFIXES) {
            if identity_of(file).ok() != Some(*known) {
                return Err(replaced(place, suffix));
            }
        }
        Ok(())
    }

    /// Waits until what `connection` committed is on the disk.
    pub(super) fn sync(&self, place: &Place, connection: &Connection) -> Result<()> {
        if self.is_doubtful.load(Ordering::Acquire) {
            checkpoint(place, connection)?;
        }
        let synced = self.sync_log();
        self.is_doubtful.store(synced.is_err(), Ordering::Release);
        synced.map_err(|error| place.failed("-wal", error))
    }

    fn sync_log(&self) -> rustix::io::Result<()> {
        #[cfg(test)]
        {
            self.syncs.fetch_add(1, Ordering::Relaxed);
            let refused =
                self.refusals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            if refused.is_ok() {
                return Err(rustix::io::Errno::IO);
            }
        }
        rustix::fs::fdatasync(&self.log)
    }
}

/// Writes what the log holds into the database, and begins another log.
fn checkpoint(place: &Place, connection: &Connection) -> Result<()> {
    let is_busy = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0));
    match is_busy.map_err(|error| classify(place, error))? {
        false => Ok(()),
        true => Err(Error::unavailable(format!(
            "the disk of {} refused what was written, and others use the database so that it cannot be written anew",
            place.file.display()
        ))),
    }
}

/// A file that was in use is no longer behind its name.
pub(super) fn replaced(place: &Place, suffix: &str) -> Error {
    Error::rejected(format!(
        "{} was replaced or deleted while it was in use: start what uses it anew",
        place.beside(suffix).display()
    ))
}
