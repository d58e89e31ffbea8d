//! Whether a process lives, told by the kernel: each client holds an flock on a file of
//! its own, and the lock falls when the last copy of its descriptor is closed.

use super::place::Place;
use crate::words::error::{Error, Result};
use crate::words::owner::{Owner, random_bits};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, fstat, openat, statat, unlinkat};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};

/// Names a liveness file: by its name, and by what is behind the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pub(super) id: [u8; 16],
    pub(super) device: i64,
    pub(super) inode: i64,
}

const SOCKET: &str = ".sock";

impl Process {
    pub(super) fn file_name(id: [u8; 16]) -> String {
        Owner::from_bytes(id).to_string()
    }

    pub(super) fn socket_name(id: [u8; 16]) -> String {
        Process::file_name(id) + SOCKET
    }

    /// Its file, if it is the very one that was stored. A missing file says nothing
    /// (somebody cleaned up), and seen through another overlay mount the same name is
    /// another file that nobody locks.
    pub(super) fn file(&self, directory: &OwnedFd) -> Option<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = openat(directory, Process::file_name(self.id), flags, Mode::empty()).ok()?;
        self.is_behind(&file).then_some(file)
    }

    /// Death is concluded only from a lock on that file.
    pub(super) fn is_dead(&self, directory: &OwnedFd) -> bool {
        self.file(directory).is_some_and(|file| is_unlocked(&file))
    }

    fn is_behind(&self, file: impl AsFd) -> bool {
        fstat(file).is_ok_and(|stat| (stat.st_dev as i64, stat.st_ino as i64) == (self.device, self.inode))
    }
}

/// This client's own liveness file. It is never unlocked, only closed: a lock that a
/// copy elsewhere still needs must not fall with it.
#[derive(Debug)]
pub(super) struct Liveness {
    pub(super) process: Process,
    file: OwnedFd,
    #[cfg(test)]
    is_closed: std::sync::atomic::AtomicBool,
}

impl Liveness {
    pub(super) fn begin(place: &Place, directory: &OwnedFd) -> Result<Liveness> {
        // A sweeper may lock and remove the file between its creation and its lock.
        for _ in 0..3 {
            if let Some(liveness) = Liveness::try_begin(place, directory)? {
                return Ok(liveness);
            }
        }
        Err(Error::unavailable(format!(
            "the liveness file of this process in {}-live is removed each time it is created",
            place.file.display()
        )))
    }

    fn try_begin(place: &Place, directory: &OwnedFd) -> Result<Option<Liveness>> {
        let id = random_bits();
        let name = Process::file_name(id);
        let failed = |error: Errno| place.failed("-live", error);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = openat(directory, &name, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
        rustix::fs::fchmod(&file, place.file_mode()).map_err(failed)?;
        let is_locked = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        let stat = fstat(&file).map_err(failed)?;
        let process = Process { id, device: stat.st_dev as i64, inode: stat.st_ino as i64 };
        let is_mine = is_locked && names(directory, &name, &process);
        Ok(is_mine.then_some(Liveness {
            process,
            file,
            #[cfg(test)]
            is_closed: Default::default(),
        }))
    }

    /// Whoever closes every descriptor of its process closed this one as well, and others
    /// may take this process for dead.
    pub(super) fn is_intact(&self) -> bool {
        #[cfg(test)]
        if self.is_closed.load(std::sync::atomic::Ordering::Relaxed) {
            return false;
        }
        self.process.is_behind(&self.file)
    }

    #[cfg(test)]
    pub(super) fn pretend_closed(&self) {
        self.is_closed.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    pub(super) fn copy(&self) -> Result<OwnedFd> {
        self.file.try_clone().map_err(|error| {
            Error::unavailable(format!("the liveness descriptor cannot be duplicated: {error}"))
        })
    }

    /// Removes the file while its lock is held, so nobody concludes anything from it.
    pub(super) fn remove(&self, directory: &OwnedFd) {
        if names(directory, &Process::file_name(self.process.id), &self.process) {
            remove(directory, self.process.id);
        }
    }
}

/// Files of processes that died, each locked for as long as it is kept here.
pub(super) struct Dead(Vec<(Process, OwnedFd)>);

impl Dead {
    /// At most this many in one go.
    const LIMIT: usize = 256;

    pub(super) fn find(directory: &OwnedFd) -> Dead {
        let mut dead = Vec::new();
        let files = rustix::fs::Dir::read_from(directory).into_iter().flatten().flatten();
        for name in files.filter_map(|entry| entry.file_name().to_str().map(str::to_owned).ok()) {
            if let Some(Ok(orphan)) = name.strip_suffix(SOCKET).map(str::parse::<Owner>) {
                // A socket is bound after its liveness file was made: without one it is nobody's.
                if !is_there(directory, &orphan.to_string()) {
                    let _ = unlinkat(directory, name, AtFlags::empty());
                }
                continue;
            }
            let Ok(name) = name.parse::<Owner>() else { continue };
            let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
            let Ok(file) = openat(directory, name.to_string(), flags, Mode::empty()) else { continue };
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                continue;
            }
            let Ok(stat) = fstat(&file) else { continue };
            let process =
                Process { id: name.to_bytes(), device: stat.st_dev as i64, inode: stat.st_ino as i64 };
            if names(directory, &name.to_string(), &process) {
                dead.push((process, file));
            }
            if dead.len() >= Dead::LIMIT {
                break;
            }
        }
        Dead(dead)
    }

    pub(super) fn processes(&self) -> impl Iterator<Item = &Process> {
        self.0.iter().map(|(process, _)| process)
    }

    /// To be called after their sessions ended: without its file a process counts as alive.
    pub(super) fn remove(self, directory: &OwnedFd) {
        self.processes().for_each(|process| remove(directory, process.id));
    }
}

/// The socket first, so that a liveness file tells of it. What cannot be removed now is swept later.
fn remove(directory: &OwnedFd, id: [u8; 16]) {
    let _ = unlinkat(directory, Process::socket_name(id), AtFlags::empty());
    let _ = unlinkat(directory, Process::file_name(id), AtFlags::empty());
}

fn is_there(directory: &OwnedFd, name: &str) -> bool {
    // Whatever else may be wrong says nothing.
    !matches!(statat(directory, name, AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT))
}

/// Nobody holds its lock. On success this descriptor shares it until it is closed.
pub(super) fn is_unlocked(file: &OwnedFd) -> bool {
    flock(file, FlockOperation::NonBlockingLockShared).is_ok()
}

/// Whether the name still stands for this file.
fn names(directory: &OwnedFd, name: &str, process: &Process) -> bool {
    statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| (stat.st_dev as i64, stat.st_ino as i64) == (process.device, process.inode))
}
