//! Where the database is, and whether leases can be kept there (C14).

use crate::words::address::{Address, decode};
use crate::words::error::{Error, Result};
use rustix::fs::{AtFlags, Mode, OFlags, StatxAttributes, StatxFlags, openat, statx};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io::ErrorKind::{NotADirectory, NotFound};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Made by `tenure init --system`; once it is there it is everybody's default.
const SYSTEM: &str = "/var/lib/tenure/leases.db";
/// What SQLite takes for the path of a database, less what is put behind it.
const MAX_PATH: usize = 500;
/// The same for its last part, by the file systems.
const MAX_FILE_NAME: usize = 255 - "-journal".len();

/// The magic number of the file system of a directory; a test gives another one.
pub(super) type FileSystemOf = fn(&Path) -> std::result::Result<u64, Errno>;

pub(super) fn file_system_of(path: &Path) -> std::result::Result<u64, Errno> {
    Ok(rustix::fs::statfs(path)?.f_type as u64)
}

/// What a process that ran into its limit, or the system into its own, can be told.
pub(super) const NO_DESCRIPTORS: &str = "too many files are open: raise the limit (ulimit -n), or close some";

/// Device and inode.
pub(super) type Identity = (u64, u64);

/// A file in a directory that was found fit.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) file: PathBuf,
    pub(super) file_system: &'static str,
    /// The directory belongs to a group (setgid): so do the files.
    is_shared: bool,
}

impl Place {
    /// The file that an address names.
    pub(super) fn named(address: Address) -> Result<PathBuf> {
        let rest = decode(&address.rest)?;
        address.finish(&[])?;
        let path = match rest.strip_prefix("//") {
            Some(path) if path.starts_with('/') => path,
            Some(_) => {
                return Err(Error::invalid("sqlite://… names a host: write sqlite:/path or sqlite:path"));
            }
            None => rest.as_str(),
        };
        match path {
            "" => default_file(|variable| std::env::var_os(variable), has_system(Path::new(SYSTEM))),
            path if path.contains('\0') || path.ends_with('/') => Err(Error::invalid(format!(
                "\"{}\" is not a file: write sqlite:/path/to/leases.db",
                crate::escaped(path)
            ))),
            path => Ok(path.into()),
        }
    }

    /// Checks the directory; makes it where it is the default one.
    pub(super) fn prepare(file: &Path, file_system_of: FileSystemOf) -> Result<Place> {
        let rejected = |text: String| Err(Error::rejected(text));
        too_long(file)?;
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let Some(name) = file.file_name() else {
            return Err(Error::invalid(format!("\"{}\" is not a file", file.display())));
        };
        if makes_directory(file) {
            // Fails below, with the reason, where it cannot be made.
            let _ = DirBuilder::new().recursive(true).mode(0o700).create(parent);
        }
        let directory = match parent.canonicalize() {
            Ok(directory) => directory,
            Err(error) if error.kind() == NotFound => {
                return rejected(format!(
                    "the directory {} does not exist: make it, or name another file",
                    parent.display()
                ));
            }
            Err(error) => {
                return rejected(format!("the directory {} cannot be entered: {error}", parent.display()));
            }
        };
        let told = |error: &dyn std::fmt::Display| {
            Error::rejected(format!("{} cannot be looked at: {error}", directory.display()))
        };
        let metadata = fs::metadata(&directory).map_err(|error| told(&error))?;
        let (mode, owner) = (metadata.mode(), metadata.uid());
        let is_shared = mode & 0o2020 == 0o2020;
        if mode & 0o002 != 0 || (mode & 0o020 != 0 && !is_shared) {
            return rejected(format!(
                "{} may be written by others (mode {:04o}): use a directory of your own, or one of a group with its setgid bit set",
                directory.display(),
                mode & 0o7777
            ));
        }
        // Its owner can replace every file in it.
        let user = rustix::process::geteuid().as_raw();
        if !is_shared && ![0, user].contains(&owner) {
            return rejected(format!(
                "{} belongs to another user (uid {owner}; this is uid {user}), who could replace the leases: use a \
                 directory of your own, or one of a group with its setgid bit set",
                directory.display()
            ));
        }
        let file_system = allowed(file_system_of(&directory).map_err(|error| told(&error))?, &directory)?;
        let file = directory.join(name);
        too_long(&file)?;
        if is_mounted(&file) {
            return rejected(format!(
                "{} is mounted by itself, and so not beside the files that others use with it: mount its directory",
                file.display()
            ));
        }
        Ok(Place { file, file_system, is_shared })
    }

    /// Whether this user may write the file and make others beside it.
    pub(super) fn is_writable(&self) -> bool {
        let may_write = |path: &Path| rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok();
        may_write(&self.file) && may_write(self.directory())
    }

    pub(super) fn directory(&self) -> &Path {
        self.file.parent().unwrap_or(Path::new("/"))
    }

    /// The file beside the database with this suffix.
    pub(super) fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = OsString::from(&self.file);
        name.push(suffix);
        name.into()
    }

    pub(super) fn file_mode(&self) -> Mode {
        Mode::from_raw_mode(if self.is_shared { 0o660 } else { 0o600 })
    }

    /// Opens the file with this suffix, made with its definite mode where it is missing.
    pub(super) fn open_file(&self, suffix: &str) -> Result<OwnedFd> {
        let failed = |error| self.failed(suffix, error);
        let path = self.beside(suffix);
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        match openat(rustix::fs::CWD, &path, flags, Mode::empty()) {
            Err(Errno::NOENT) => {}
            other => return other.map_err(failed),
        }
        match openat(rustix::fs::CWD, &path, flags | OFlags::CREATE | OFlags::EXCL, self.file_mode()) {
            // Made by another process just now.
            Err(Errno::EXIST) => openat(rustix::fs::CWD, &path, flags, Mode::empty()).map_err(failed),
            Err(error) => Err(failed(error)),
            Ok(file) => {
                rustix::fs::fchmod(&file, self.file_mode()).map_err(failed)?;
                Ok(file)
            }
        }
    }

    /// Opens the directory of the liveness files.
    pub(super) fn open_live(&self) -> Result<OwnedFd> {
        let failed = |error| self.failed("-live", error);
        let path = self.beside("-live");
        let mode = Mode::from_raw_mode(if self.is_shared { 0o2770 } else { 0o700 });
        let made = match rustix::fs::mkdir(&path, mode) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(failed(error)),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let directory = openat(rustix::fs::CWD, &path, flags, Mode::empty()).map_err(failed)?;
        if made {
            rustix::fs::fchmod(&directory, mode).map_err(failed)?;
        }
        Ok(directory)
    }

    /// Which file stands behind the name of the database.
    pub(super) fn identity(&self) -> std::result::Result<Identity, Errno> {
        identity_of(&self.file)
    }

    /// An operation on the file with this suffix failed.
    pub(super) fn failed(&self, suffix: &str, error: Errno) -> Error {
        let (path, directory) = (self.beside(suffix), self.directory().display());
        let path = path.display();
        match error {
            Errno::ACCESS | Errno::PERM
                if matches!(identity_of(&self.beside(suffix)), Err(Errno::NOENT))
                    && rustix::fs::access(self.directory(), rustix::fs::Access::WRITE_OK).is_err() =>
            {
                Error::rejected(format!(
                    "the directory {directory} is not writable for this user, and {path} is to be made in it"
                ))
            }
            Errno::ACCESS | Errno::PERM if self.is_shared => Error::rejected(format!(
                "{path} is for the members of the group of {directory}: become one (usermod --append --groups, and log \
                 in again), or name a store of your own"
            )),
            Errno::ACCESS | Errno::PERM => Error::rejected(format!(
                "{path} is not readable and writable for this user (uid {}): name a store of your own, or share \
                     one with a group (tenure init --system)",
                rustix::process::geteuid().as_raw()
            )),
            Errno::MFILE | Errno::NFILE => Error::unavailable(NO_DESCRIPTORS),
            Errno::NAMETOOLONG => Error::invalid(format!("{path} is too long for this file system")),
            Errno::ROFS => Error::rejected(format!("{path} is on a read-only mount")),
            Errno::LOOP => Error::rejected(format!(
                "{path} is a symbolic link, which is not followed: name the file itself"
            )),
            Errno::MLINK => Error::rejected(format!(
                "{path} has another name (a hard link), and leases are shared by those alone who use the same one: remove the other"
            )),
            Errno::NOSPC | Errno::DQUOT => Error::unavailable(format!("the disk of {path} is full")),
            Errno::ISDIR | Errno::NOTDIR | Errno::NXIO => {
                Error::rejected(format!("{path} is not of the kind of file that it has to be"))
            }
            error => Error::unavailable(format!("{path} cannot be used: {error}")),
        }
    }
}

/// Refused here by what is wrong: SQLite would say only that it cannot open the file.
fn too_long(file: &Path) -> Result<()> {
    let length = |part: &std::ffi::OsStr| part.len();
    let longest = file.iter().map(length).max().unwrap_or_default();
    let name = file.file_name().map_or(0, length);
    if length(file.as_os_str()) > MAX_PATH || name > MAX_FILE_NAME || longest > 255 {
        return Err(Error::invalid(format!(
            "the path of the database is too long: it has {} bytes, its longest part {longest}; at most {MAX_PATH} are \
             allowed, and {MAX_FILE_NAME} for the file's own name",
            length(file.as_os_str())
        )));
    }
    Ok(())
}

/// That this user may not look is no sign that it is missing: a silent file of one's own would
/// exclude nobody.
fn has_system(file: &Path) -> bool {
    !matches!(file.symlink_metadata(), Err(error) if matches!(error.kind(), NotFound | NotADirectory))
}

/// Which file stands behind a name, links not followed.
pub(super) fn identity_of(file: &Path) -> std::result::Result<Identity, Errno> {
    // Not the times: who asks for them makes the kernel keep finer ones (Linux 6.13), and
    // each later sync of the file writes its inode too. It made a grant a third slower.
    let wanted = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::NLINK;
    let stat = statx(rustix::fs::CWD, file, AtFlags::SYMLINK_NOFOLLOW, wanted)?;
    match rustix::fs::FileType::from_raw_mode(stat.stx_mode.into()) {
        rustix::fs::FileType::RegularFile => {}
        rustix::fs::FileType::Symlink => return Err(Errno::LOOP),
        _ => return Err(Errno::NXIO),
    }
    // Each name has a write-ahead log of its own.
    if stat.stx_nlink > 1 {
        return Err(Errno::MLINK);
    }
    Ok((rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino))
}

/// Whether the directory of this file is made where it is missing: of the default one.
pub(super) fn makes_directory(file: &Path) -> bool {
    file.ends_with("tenure/leases.db")
}

/// A mount ends at this very file. Kernels before 5.8 do not tell.
fn is_mounted(file: &Path) -> bool {
    statx(rustix::fs::CWD, file, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty())
        .is_ok_and(|stat| stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// `$XDG_STATE_HOME/tenure/leases.db`. By its specification a variable that is empty or
/// relative counts as not set.
pub(super) fn default_file(variable: impl Fn(&str) -> Option<OsString>, has_system: bool) -> Result<PathBuf> {
    if has_system {
        return Ok(SYSTEM.into());
    }
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_STATE_HOME")
        .or_else(|| Some(absolute("HOME")?.join(".local/state")))
        .map(|state| state.join("tenure/leases.db"))
        .ok_or_else(|| {
            let home = match variable("HOME") {
                None => "is not set",
                Some(home) if home.is_empty() => "is empty",
                Some(_) => "is not an absolute path",
            };
            Error::invalid(format!(
                "sqlite: has no default file, since HOME {home}: write sqlite:/path/to/leases.db"
            ))
        })
}

/// File systems on which locks and shared memory are known to work between all processes
/// of a host.
const ALLOWED: [(u64, &str); 8] = [
    (0xEF53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683E, "btrfs"),
    (0xF2F5_2010, "f2fs"),
    (0x2FC1_2FC1, "zfs"),
    (0xCA45_1A4E, "bcachefs"),
    (0x0102_1994, "tmpfs"),
    (0x794C_7630, "overlay"),
];

/// Others, so that the refusal can name them.
const REFUSED: [(u64, &str); 16] = [
    (0x6969, "nfs"),
    (0x517B, "smb"),
    (0xFF53_4D42, "cifs"),
    (0xFE53_4D42, "smb2"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "fuse or virtiofs"),
    (0x00C3_6400, "ceph"),
    (0x0BD0_0BD0, "lustre"),
    (0x786F_4256, "vboxsf"),
    (0x5346_414F, "afs"),
    (0x0116_1970, "gfs2"),
    (0x7461_636F, "ocfs2"),
    (0x4750_4653, "gpfs"),
    (0x4D44, "vfat"),
    (0x2011_BAB0, "exfat"),
    (0xF15F, "ecryptfs"),
];

fn allowed(magic: u64, directory: &Path) -> Result<&'static str> {
    let find =
        |list: &[(u64, &'static str)]| list.iter().find(|(known, _)| *known == magic).map(|(_, name)| *name);
    find(&ALLOWED).ok_or_else(|| {
        let name = find(&REFUSED).map_or_else(|| format!("of type {magic:#x}"), str::to_owned);
        Error::rejected(format!(
            "{} is on a file system ({name}) on which leases cannot be kept safely: use a local one ({})",
            directory.display(),
            ALLOWED.map(|(_, name)| name).join(", ")
        ))
    })
}
