//! Whether a command can be found, as `execvp` would look for it.

use crate::exit::{Exit, Failure};
use rustix::fs::{Access, access};
use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where `execvp` of the GNU C library looks when PATH is not set.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Refuses a command that the exec would refuse, before anything is acquired for it.
/// The exec has the last word.
pub(crate) fn find(command: &OsStr) -> Result<(), Failure> {
    if command.is_empty() {
        return Err(Failure::usage("the command is empty: write it after --, as in: tenure run NAME -- CMD"));
    }
    let shown = tenure::escaped(&command.to_string_lossy()).to_string();
    let places: Vec<PathBuf> = if command.as_bytes().contains(&b'/') {
        vec![command.into()]
    } else {
        let path = env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
        env::split_paths(&path).map(|directory| directory.join(command)).collect()
    };
    if places.iter().any(|place| is_executable(place)) {
        return Ok(());
    }
    if places.iter().any(|place| place.exists()) {
        return Err(Failure::new(Exit::NotExecutable, format!("{shown}: is not executable")));
    }
    Err(Failure::new(Exit::NotFound, format!("{shown}: command not found")))
}

fn is_executable(place: &Path) -> bool {
    place.is_file() && access(place, Access::EXEC_OK).is_ok()
}
