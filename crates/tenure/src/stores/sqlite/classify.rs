//! Errors of SQLite, by what to do about them.

use super::place::{NO_DESCRIPTORS, Place};
use crate::words::error::{Error, ErrorKind};
use rusqlite::{ErrorCode, ffi};

/// What an error of SQLite means to whoever asked (C11).
pub(super) fn classify(place: &Place, error: rusqlite::Error) -> Error {
    let path = place.file.display();
    let rejected = |text: String, error| Error::because(ErrorKind::Rejected, text, error);
    let unavailable = |text: String, error| Error::because(ErrorKind::Unavailable, text, error);
    let rusqlite::Error::SqliteFailure(failure, _) = &error else {
        return rejected(format!("{path} holds what tenure did not write: {error}"), error);
    };
    let directory = place.directory().display();
    match (failure.code, failure.extended_code) {
        (ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed, _) => {
            unavailable(format!("{path} is locked by another process for too long"), error)
        }
        // The second: no room for the index of the log, on a file system that gives room as it is written.
        (ErrorCode::DiskFull, _) | (_, ffi::SQLITE_IOERR_SHMSIZE) => {
            unavailable(format!("the disk of {path} is full"), error)
        }
        (ErrorCode::OutOfMemory, _) => unavailable("there is no memory left".to_owned(), error),
        (ErrorCode::SystemIoFailure | ErrorCode::OperationInterrupted, _) => {
            unavailable(format!("{path} cannot be read or written: {error}"), error)
        }
        (ErrorCode::ReadOnly, ffi::SQLITE_READONLY_DBMOVED) => rejected(
            format!("{path} was replaced or deleted while it was in use: start what uses it anew"),
            error,
        ),
        (ErrorCode::ReadOnly, ffi::SQLITE_READONLY_DIRECTORY) => {
            rejected(format!("the directory {directory} is not writable for this user"), error)
        }
        (ErrorCode::ReadOnly | ErrorCode::PermissionDenied, _) => {
            rejected(format!("{path} is not writable for this user, or on a read-only mount"), error)
        }
        (ErrorCode::CannotOpen, ffi::SQLITE_CANTOPEN_SYMLINK) => {
            rejected(format!("{path} is a symbolic link, which is not followed: name the file itself"), error)
        }
        (ErrorCode::CannotOpen, _) if lacks_descriptors() => unavailable(NO_DESCRIPTORS.to_owned(), error),
        (ErrorCode::CannotOpen, _) => {
            rejected(format!("{path} or a file beside it cannot be opened by this user"), error)
        }
        (ErrorCode::NotADatabase, _) => {
            rejected(format!("{path} is not a database: name another file"), error)
        }
        (ErrorCode::DatabaseCorrupt, _) => rejected(
            format!("{path} is damaged: move it and its companions away, and a new one is made"),
            error,
        ),
        _ => rejected(format!("{path} does not do as it should: {error}"), error),
    }
}

/// SQLite does not tell the cause, and has closed by now what it had opened: whether there
/// are as many descriptors as it takes.
fn lacks_descriptors() -> bool {
    use rustix::fs::{Mode, OFlags};
    use rustix::io::Errno;
    let open = || rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let opened: [_; 6] = std::array::from_fn(|_| open());
    opened.iter().any(|opened| matches!(opened, Err(Errno::MFILE | Errno::NFILE)))
}
