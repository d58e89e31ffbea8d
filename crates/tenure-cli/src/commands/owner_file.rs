//! The file that `acquire --owner-file` makes: whoever can read it can renew and release.

use crate::exit::{Exit, Failure};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawMode, Stat, fchmod, fstat, linkat, openat, unlinkat};
use rustix::io::Errno;
use serde_json::{Value, json};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tenure::{Name, Owner};

/// What is longer is some other file.
const MAX_BYTES: u64 = 8 * 1024;

/// What the file holds: one JSON object.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) name: Name,
    pub(super) owner: Owner,
    pub(super) ttl: Duration,
}

/// A file in a directory where nobody else may write.
#[derive(Debug)]
pub(super) struct OwnerFile {
    path: PathBuf,
    directory: OwnedFd,
    file_name: OsString,
}

impl OwnerFile {
    /// Makes the file. It appears whole or not at all, and replaces nothing.
    pub(super) fn create(path: &Path, held: &Held) -> Result<OwnerFile, Failure> {
        let file = OwnerFile::at(path)?;
        let mut hidden = OsString::from(".");
        hidden.push(Owner::fresh().to_string());
        let made = file.make(&hidden, held);
        let _ = unlinkat(&file.directory, &hidden, AtFlags::empty());
        match made {
            Ok(()) => Ok(file),
            Err(Errno::EXIST) => Err(Failure::usage(format!(
                "the owner file {} exists: what it holds ends by tenure release --owner-file, which removes it too",
                file.shown()
            ))),
            Err(error) => Err(file.failed("made", error)),
        }
    }

    fn make(&self, hidden: &OsStr, held: &Held) -> Result<(), Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = openat(&self.directory, hidden, flags, mode)?;
        // Whatever the umask is.
        fchmod(&file, mode)?;
        let ttl_ms = held.ttl.as_millis() as u64;
        let text = json!({ "name": held.name.as_str(), "owner": held.owner.to_string(), "ttl_ms": ttl_ms });
        let written = File::from(file).write_all(format!("{text}\n").as_bytes());
        written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        // Unlike a rename it fails where something is already.
        linkat(&self.directory, hidden, &self.directory, &self.file_name, AtFlags::empty())
    }

    /// Reads what is held.
    pub(super) fn read(path: &Path) -> Result<(OwnerFile, Held), Failure> {
        let file = OwnerFile::at(path)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let opened = openat(&file.directory, &file.file_name, flags, Mode::empty())
            .and_then(|opened| Ok((fstat(&opened)?, opened)));
        let (stat, opened) = opened.map_err(|error| file.failed("read", error))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Failure::usage(format!("{} is no file", file.shown())));
        }
        if is_foreign(&stat) || stat.st_mode & 0o022 != 0 {
            return Err(Failure::usage(format!("the owner file {} may be written by others", file.shown())));
        }
        let mut text = String::new();
        let read = File::from(opened).take(MAX_BYTES).read_to_string(&mut text);
        let held = read.ok().and_then(|_| parsed(&text));
        match held {
            Some(held) => Ok((file, held)),
            None => Err(Failure::usage(format!("{} was not made by tenure acquire", file.shown()))),
        }
    }

    /// What it held has ended.
    pub(super) fn remove(&self) {
        // Already gone is as good; what else fails is found by the next acquire.
        let _ = unlinkat(&self.directory, &self.file_name, AtFlags::empty());
    }

    fn at(path: &Path) -> Result<OwnerFile, Failure> {
        let shown = shown(path);
        let Some(file_name) = path.file_name().filter(|_| !path.as_os_str().is_empty()) else {
            return Err(Failure::usage(format!("the owner file \"{shown}\" is not the path of a file")));
        };
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // Links on the way there are the user's own affair: what counts is where it leads.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = openat(rustix::fs::CWD, parent, flags, Mode::empty())
            .and_then(|directory| Ok((fstat(&directory)?, directory)));
        let (stat, directory) = opened.map_err(|error| {
            Failure::usage(format!("the directory of the owner file {shown} cannot be used: {}", told(error)))
        })?;
        if is_foreign(&stat) || may_be_written_by_others(stat.st_mode) {
            return Err(Failure::usage(format!(
                "the directory of the owner file {shown} may be written by others (mode {:04o}, uid {}): use one of your \
                 own, such as $XDG_RUNTIME_DIR or what mktemp -d makes",
                stat.st_mode & 0o7777,
                stat.st_uid
            )));
        }
        Ok(OwnerFile { path: path.to_owned(), directory, file_name: file_name.to_owned() })
    }

    fn shown(&self) -> String {
        shown(&self.path)
    }

    fn failed(&self, what: &str, error: Errno) -> Failure {
        let exit = match error {
            Errno::NOSPC | Errno::DQUOT | Errno::IO | Errno::MFILE | Errno::NFILE => Exit::Internal,
            _ => Exit::Usage,
        };
        Failure::new(exit, format!("the owner file {} cannot be {what}: {}", self.shown(), told(error)))
    }
}

fn told(error: Errno) -> String {
    match error {
        Errno::LOOP => "it is a symbolic link, which is not followed".to_owned(),
        error => std::io::Error::from(error).to_string(),
    }
}

fn shown(path: &Path) -> String {
    tenure::escaped(&path.to_string_lossy()).to_string()
}

fn is_foreign(stat: &Stat) -> bool {
    ![0, rustix::process::geteuid().as_raw()].contains(&stat.st_uid)
}

fn may_be_written_by_others(mode: RawMode) -> bool {
    mode & 0o022 != 0
}

fn parsed(text: &str) -> Option<Held> {
    let value: Value = serde_json::from_str(text).ok()?;
    let name = Name::new(value.get("name")?.as_str()?).ok()?;
    let owner = value.get("owner")?.as_str()?.parse().ok()?;
    Some(Held { name, owner, ttl: Duration::from_millis(value.get("ttl_ms")?.as_u64()?) })
}
