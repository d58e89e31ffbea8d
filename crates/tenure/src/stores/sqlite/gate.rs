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
        let passed = flock(&*self.file, FlockOperation::NonBlockingLockExclusive).is_ok() || self.wait();
        passed.then_some(Passed(&self.file))
    }

    /// Blocks on another thread, since flock knows no time limit.
    fn wait(&self) -> bool {
        if self.is_blocked.swap(true, Ordering::AcqRel) {
            return false;
        }
        let (file, is_blocked) = (self.file.clone(), self.is_blocked.clone());
        let (passed, waiting) = mpsc::sync_channel(0);
        let blocked = std::thread::Builder::new().name("tenure-sqlite-gate".to_owned()).spawn(move || {
            let locked = retry(|| flock(&*file, FlockOperation::LockExclusive));
            is_blocked.store(false, Ordering::Release);
            if passed.send(locked).is_err() {
                // Whoever waited for it went around.
                let _ = flock(&*file, FlockOperation::Unlock);
            }
        });
        blocked.is_ok() && waiting.recv_timeout(PATIENCE).unwrap_or(false)
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
