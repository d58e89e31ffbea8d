//! The gate: an flock in front of the database's own lock. The kernel lets those who
//! block on it through one after the other, where SQLite's writers only try again and again
//! (200 processes that did so collapsed to a few hand-overs per second).

use super::place::Place;
use crate::words::error::Result;
use rustix::fs::{FlockOperation, flock};
use std::os::fd::OwnedFd;

pub(super) struct Gate(OwnedFd);

/// Leaves the gate when it is dropped.
pub(super) struct Passed<'a>(&'a OwnedFd);

impl Gate {
    pub(super) fn new(place: &Place) -> Result<Gate> {
        place.open_file("-gate").map(Gate)
    }

    /// Blocks until it is this caller's turn. A process that is stopped inside holds up
    /// the others, as it does with SQLite's own lock a moment later; beats go past.
    pub(super) fn pass(&self) -> Option<Passed<'_>> {
        retry(|| flock(&self.0, FlockOperation::LockExclusive)).then_some(Passed(&self.0))
    }
}

impl Drop for Passed<'_> {
    fn drop(&mut self) {
        let _ = flock(self.0, FlockOperation::Unlock);
    }
}

fn retry(mut lock: impl FnMut() -> rustix::io::Result<()>) -> bool {
    loop {
        match lock() {
            Err(rustix::io::Errno::INTR) => {}
            done => return done.is_ok(),
        }
    }
}
