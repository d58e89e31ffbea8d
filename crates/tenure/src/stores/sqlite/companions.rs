//! The files that SQLite keeps beside a database while it is open.

use super::place::{Identity, Place};
use crate::words::error::{Error, Result};
use std::sync::{Arc, Mutex, PoisonError, Weak};

const SUFFIXES: [&str; 2] = ["-wal", "-shm"];

/// Which files they are: whoever opens the database after one of them was deleted makes
/// another, and shares nothing with who goes on with the old one.
#[derive(Debug)]
pub(super) struct Companions([Identity; 2]);

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
        let [Ok(log), Ok(index)] = SUFFIXES.map(|suffix| place.identity_of(suffix)) else {
            return Err(replaced(place, "-wal"));
        };
        let companions = Arc::new(Companions([log, index]));
        open.push((database, Arc::downgrade(&companions)));
        Ok(companions)
    }

    pub(super) fn check(&self, place: &Place) -> Result<()> {
        let changed = SUFFIXES.into_iter().zip(self.0);
        match changed.into_iter().find(|(suffix, known)| place.identity_of(suffix).ok() != Some(*known)) {
            Some((suffix, _)) => Err(replaced(place, suffix)),
            None => Ok(()),
        }
    }
}

/// A file that was in use is no longer behind its name.
pub(super) fn replaced(place: &Place, suffix: &str) -> Error {
    Error::rejected(format!(
        "{} was replaced or deleted while it was in use: start what uses it anew",
        place.beside(suffix).display()
    ))
}
