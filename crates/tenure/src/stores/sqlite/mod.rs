//! `sqlite:`, leases for the processes of one host, in one file and without a server.
//!
//! One SQLite database in WAL mode. A lease hangs on a session row of its client and TTL, so
//! a heartbeat is one write however many leases there are. Expiry is judged by
//! `CLOCK_BOOTTIME`; a row from another boot has no holder. Each client holds an flock on a
//! file of its own, and its leases are free the moment the kernel drops that lock. A release
//! grants to the next waiter in its own transaction and tells it by a datagram.
//!
//! Two threads per handle own a connection each: one for requests, one for renewals.

mod bell;
mod classify;
mod client;
mod companions;
mod database;
mod gate;
mod grant;
mod host;
mod liveness;
mod look;
mod place;
mod release;
mod renew;
mod sessions;
#[cfg(test)]
mod tests;
mod transaction;
mod worker;

use crate::store::{
    About, Answer, Ask, Attended, Ending, Fact, Hint, Page, Pending, Released, Renewal, Renewed, Revoked,
    Session, Standing, Store,
};
use crate::words::address::Address;
use crate::words::clock::Clock;
use crate::words::error::{Error, Result};
use crate::words::name::Name;
use crate::words::owner::Claim;
use crate::words::token::Token;
use client::Client;
use database::{Database, Lane};
use host::Host;
use place::Place;
use std::fmt;
use std::io::ErrorKind::NotFound;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use worker::{Orphan, Worker};

/// Leases in a file on this host.
pub struct Sqlite {
    client: Arc<Client>,
    requests: Worker,
    beats: Worker,
}

impl Sqlite {
    /// Opens the store that an address names, and makes it where it is missing.
    ///
    /// # Errors
    /// `Invalid` for an address that names no file, `Rejected` for a place that cannot keep
    /// leases, `Unavailable` when the disk is full or the database busy.
    ///
    /// # Cancel safety
    /// Dropping it at most leaves an empty database.
    pub(crate) async fn open(address: Address, clock: Clock) -> Result<Arc<dyn Store>> {
        let path = Place::named(address)?;
        Ok(Arc::new(Sqlite::at(path, clock).await?))
    }

    /// Opens the store in this file, and makes it where it is missing.
    ///
    /// # Errors
    /// `Rejected` for a place that cannot keep leases, `Unavailable` when the disk is full
    /// or the database busy.
    ///
    /// # Cancel safety
    /// Dropping it at most leaves an empty database.
    pub async fn at(path: impl AsRef<Path>, clock: Clock) -> Result<Sqlite> {
        let path = path.as_ref().to_owned();
        let (reply, opened) = oneshot::channel();
        std::thread::Builder::new()
            .name("tenure-sqlite-open".to_owned())
            .spawn(move || {
                let opened =
                    Host::of_this_machine(clock).and_then(|host| open(&path, host, place::file_system_of));
                // The caller is gone.
                let _ = reply.send(opened);
            })
            .map_err(|error| Error::unavailable(format!("no thread can be started: {error}")))?;
        let client =
            opened.await.unwrap_or_else(|_| Err(Error::unavailable("the database could not be opened")))?;
        Ok(Sqlite::new(Arc::new(client)))
    }

    /// The file that a `sqlite:` URL names here and now; `None` for every other URL. Elsewhere,
    /// in another directory or for another user, the same URL may name another file.
    ///
    /// # Errors
    /// `Invalid` for a URL that names no file.
    pub fn file(url: &str) -> Result<Option<PathBuf>> {
        let address = Address::parse(url)?;
        (address.scheme == "sqlite").then(|| Place::named(address)).transpose()
    }

    /// The file of a `sqlite:` URL if opening it would make it: nobody holds anything there.
    /// `None` for every other URL.
    ///
    /// # Errors
    /// `Invalid` for a URL that names no file.
    pub fn missing(url: &str) -> Result<Option<PathBuf>> {
        let Some(file) = Sqlite::file(url)? else { return Ok(None) };
        let would_be_made = file.parent().is_some_and(Path::is_dir) || place::makes_directory(&file);
        let is_missing = file.symlink_metadata().is_err_and(|error| error.kind() == NotFound);
        Ok((is_missing && would_be_made).then_some(file))
    }

    fn new(client: Arc<Client>) -> Sqlite {
        let worker = |lane| Worker::new(client.clone(), lane);
        Sqlite { requests: worker(Lane::Requests), beats: worker(Lane::Beats), client }
    }

    fn call<T: Send + 'static>(
        &self,
        orphan: Orphan,
        work: impl FnOnce(&mut Database) -> Result<T> + Send + 'static,
    ) -> Pending<T> {
        self.requests.call(orphan, move |database| {
            if database.client.known().is_closed {
                return Err(Error::closed());
            }
            work(database)
        })
    }

    /// Once in a while a call brings some cleaning with it, behind it.
    fn tidy(&self) {
        let now = self.client.host.now();
        let mut known = self.client.known();
        if known.tidy_due <= now && self.client.is_writable() {
            known.tidy_due = now.saturating_add(60_000_000_000);
            drop(known);
            // Nobody waits for it; what fails is tried again in a minute.
            drop(self.call(Orphan::Run, |database| database.tidy()));
        }
    }
}

fn open(path: &Path, host: Host, file_system_of: place::FileSystemOf) -> Result<Client> {
    let place = Place::prepare(path, file_system_of)?;
    match database::create(&place) {
        Ok(identity) => {
            let live = place.open_live()?;
            Ok(Client::new(host, place, Some(live), identity))
        }
        // Who may only read can still look.
        Err(error) if error.kind() == crate::ErrorKind::Rejected && !place.is_writable() => {
            match place.identity() {
                Ok(identity) if database::look(&place).is_ok() => {
                    Ok(Client::new(host, place, None, identity))
                }
                _ => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}

impl Store for Sqlite {
    fn about(&self) -> About {
        About {
            kind: "sqlite",
            place: self.client.place.file.display().to_string(),
            min_ttl: Duration::from_millis(500),
            max_ttl: Duration::from_secs(24 * 60 * 60),
            ttl_unit: Duration::from_millis(1),
            beats_per_ttl: 3,
        }
    }

    fn handle(&self) -> Arc<dyn Store> {
        Arc::new(Sqlite::new(self.client.clone()))
    }

    fn acquire(&self, ask: Ask) -> Pending<Answer> {
        let sent = self.client.host.now();
        let answer = self.call(Orphan::Skip, move |database| database.acquire(&ask, sent));
        self.tidy();
        answer
    }

    fn attend(&self, entries: Vec<Claim>) -> Pending<Vec<Attended>> {
        self.call(Orphan::Skip, move |database| database.attend(&entries))
    }

    fn renew(&self, leases: Vec<Renewal>) -> Pending<Renewed> {
        let sent = self.client.host.now();
        self.beats.call(Orphan::Skip, move |database| {
            if database.client.known().is_closed {
                return Err(Error::closed());
            }
            database.renew(&leases, sent)
        })
    }

    fn release(&self, claim: Claim, ending: Ending) -> Pending<Released> {
        self.call(Orphan::Run, move |database| database.release(&claim, ending))
    }

    fn inspect(&self, name: Name) -> Pending<Standing> {
        self.call(Orphan::Skip, move |database| database.inspect(&name))
    }

    fn list(&self, prefix: String, after: Option<Name>) -> Pending<Page> {
        self.call(Orphan::Skip, move |database| database.list(&prefix, after.as_ref()))
    }

    fn revoke(&self, name: Name, token: Token, now: bool) -> Pending<Revoked> {
        self.call(Orphan::Skip, move |database| database.revoke(&name, token, now))
    }

    fn events(&self) -> mpsc::Receiver<Hint> {
        bell::listen(self.client.clone())
    }

    fn retire(&self, session: Session) {
        if !self.client.is_inherited() {
            self.client.known().retire(session);
        }
    }

    fn liveness(&self) -> Pending<Option<OwnedFd>> {
        self.call(Orphan::Skip, |database| database.client.liveness()?.copy().map(Some))
    }

    fn setup(&self, _apply: bool) -> Pending<String> {
        let path = self.client.place.file.display().to_string();
        self.call(Orphan::Skip, move |_| {
            Ok(format!("{path} is ready: a database is made by its first use\n"))
        })
    }

    fn examine(&self) -> Pending<Vec<Fact>> {
        self.call(Orphan::Skip, |database| database.examine())
    }

    fn close(&self) -> Pending<()> {
        // A second time it finds nothing to do.
        self.requests.call(Orphan::Run, |database| database.close())
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sqlite({})", self.client.place.file.display())
    }
}
