//! The gate: an flock in front of the database's own lock. The kernel lets those who
//! block on it through one after the other, where SQLite's writers only try again and again
//! (200 processes that did so collapsed to a few hand-overs per second).

use super::place::Place;
use crate::words::error::Result;
use rustix::fs::{FlockOperation, flock};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// The gate makes writers fair and is not what excludes them: whoever stands before it for
/// this long goes around it, for a stopped process may be in it.
const PATIENCE: Duration = Duration::from_secs(1);

pub(super) struct Gate {
    file: Arc<OwnedFd>,
    /// A thread still blocks on it, for somebody who went around.
    is_blocked: Arc<AtomicBool>,
}

/// Leaves the gate when it is dropped.
pub(super) struct Passed<'a>(&'a OwnedFd);

impl Gate {
    pub(super) fn new(place: &Place) -> Result<Gate> {
        Ok(Gate { file: Arc::new(place.open_file("-gate")?), is_blocked: Arc::default() })
    }

    pub(super) fn pass(&self) -> Option<Passed<'_>> {
        retry(|| flock(&*self.file, FlockOperation::LockExclusive)).then_some(Passed(&self.file))
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
