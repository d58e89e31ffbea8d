//! Which store: `--store`, `--store-file`, the environment, the machine's file, else the embedded one.

use crate::exit::{Exit, Failure};
use crate::output::{say, secrets};
use std::env;
use std::ffi::OsString;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tenure::escaped;
use tenure::stores::sqlite::Sqlite;

const URL_VARIABLE: &str = "TENURE_STORE";
const FILE_VARIABLE: &str = "TENURE_STORE_FILE";
const MACHINE_FILE: &str = "/etc/tenure/store";
const EMBEDDED: &str = "sqlite:";
/// A URL is short; what is longer is some other file.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// The store, and how a nested command finds it.
pub(crate) struct StoreChoice {
    pub(crate) url: String,
    file: Option<PathBuf>,
}

impl StoreChoice {
    /// The first that is set decides; set but empty is a mistake, never "not set".
    pub(crate) fn make(url: Option<String>, file: Option<OsString>) -> Result<StoreChoice, Failure> {
        let choice = if let Some(url) = url {
            warn_of_password(&url);
            StoreChoice::url("--store", url)?
        } else if let Some(file) = file {
            StoreChoice::file("--store-file", Path::new(&file))?
        } else if let Some(url) = env::var_os(URL_VARIABLE) {
            let url = url.into_string().map_err(|_| {
                Failure::usage(format!("{URL_VARIABLE} is not UTF-8: set it to a store URL, or unset it"))
            })?;
            StoreChoice::url(URL_VARIABLE, url)?
        } else if let Some(file) = env::var_os(FILE_VARIABLE) {
            StoreChoice::file(FILE_VARIABLE, Path::new(&file))?
        } else {
            match StoreChoice::file(MACHINE_FILE, Path::new(MACHINE_FILE)) {
                Err(failure) if failure.exit == Exit::NotFound => StoreChoice::url("", EMBEDDED.to_owned())?,
                other => other?,
            }
        };
        if choice.url.to_ascii_lowercase().starts_with("memory:") {
            return Err(Failure::usage(
                "the store memory: lives in one process and excludes nobody from another: \
                 choose one that processes share, such as sqlite:",
            ));
        }
        choice.made_absolute()
    }

    /// For what needs no store.
    pub(crate) fn none() -> StoreChoice {
        StoreChoice { url: String::new(), file: None }
    }

    /// CMD may change its directory and its home, and must still meet the same file.
    fn made_absolute(self) -> Result<StoreChoice, Failure> {
        let is_absolute = self.url.get("sqlite:".len()..).is_some_and(|path| path.starts_with('/'));
        if is_absolute {
            return Ok(self);
        }
        let Some(file) = Sqlite::file(&self.url)? else { return Ok(self) };
        let file = std::path::absolute(file).map_err(Failure::internal)?;
        let Some(path) = file.to_str() else {
            return Err(Failure::usage(
                "the path of the store is not UTF-8: name it by sqlite:/an/absolute/path",
            ));
        };
        let path = path.replace('%', "%25").replace('?', "%3f");
        Ok(StoreChoice { url: format!("sqlite:{path}"), file: None })
    }

    /// For people, before anything is known of it.
    pub(crate) fn shown(&self) -> String {
        escaped(&secrets::hidden(&self.url)).to_string()
    }

    /// Lets CMD's own tenure find the same store.
    pub(crate) fn hand_down(&self, command: &mut Command) {
        match &self.file {
            Some(file) => command.env(FILE_VARIABLE, file).env_remove(URL_VARIABLE),
            None => command.env(URL_VARIABLE, &self.url).env_remove(FILE_VARIABLE),
        };
    }

    fn url(origin: &str, url: String) -> Result<StoreChoice, Failure> {
        if url.is_empty() {
            return Err(Failure::usage(format!(
                "{origin} is set but empty: give a store URL such as sqlite:, or leave it out"
            )));
        }
        Ok(StoreChoice { url, file: None })
    }

    fn file(origin: &str, file: &Path) -> Result<StoreChoice, Failure> {
        if file.as_os_str().is_empty() {
            return Err(Failure::usage(format!(
                "{origin} is set but empty: give the path of a file that holds a store URL, or leave it out"
            )));
        }
        let shown = escaped(&file.to_string_lossy()).to_string();
        let text = read(file).map_err(|error| {
            let exit = match error.kind() {
                ErrorKind::PermissionDenied => Exit::Rejected,
                ErrorKind::NotFound if origin == MACHINE_FILE => Exit::NotFound,
                _ => Exit::Usage,
            };
            Failure::new(exit, format!("cannot read the store URL from {shown}: {error}"))
        })?;
        let url = text.trim();
        // The text itself is never shown: it may hold a password.
        if !url.contains(':') || url.contains(char::is_control) {
            return Err(Failure::usage(format!("{shown} must hold one line, a store URL")));
        }
        // CMD may change its directory.
        let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        Ok(StoreChoice { url: url.to_owned(), file: Some(absolute) })
    }
}

fn read(file: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let opened = std::fs::File::open(file)?;
    let metadata = opened.metadata()?;
    if metadata.is_file() && metadata.mode() & 0o002 != 0 {
        // Whoever may write it chooses the store of everybody who reads it.
        let why = format!("everybody may write it (mode {:04o})", metadata.mode() & 0o7777);
        return Err(std::io::Error::new(ErrorKind::PermissionDenied, why));
    }
    opened.take(MAX_FILE_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// Every user of the machine can read a command line.
fn warn_of_password(url: &str) {
    let authority = url.split_once("://").map(|(_, rest)| rest.split(['/', '?']).next().unwrap_or(""));
    let user = authority.and_then(|authority| authority.rsplit_once('@')).map(|(user, _)| user);
    if user.is_some_and(|user| user.contains(':')) {
        say("warning: a password in --store can be seen by every user of this machine: use --store-file");
    }
}
