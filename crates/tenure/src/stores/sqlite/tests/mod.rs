//! Shared by the tests: stores in a directory of their own, and what they say.

mod commits;
mod machine;
mod refusals;
mod verbs;

use super::host::Host;
use super::{Sqlite, open, place};
use crate::store::*;
use crate::{Claim, Clock, Label, Name, Reason};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

const TTL: Duration = Duration::from_secs(10);

/// A directory and a clock that every client of a test shares.
struct Fixture {
    directory: tempfile::TempDir,
    clock: Clock,
}

impl Fixture {
    fn new() -> Fixture {
        Fixture::on(Clock::manual())
    }

    fn on(clock: Clock) -> Fixture {
        Fixture { directory: tempfile::tempdir().expect("a directory"), clock }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("leases.db")
    }

    fn client(&self) -> Sqlite {
        self.client_of_boot("this boot")
    }

    fn client_of_boot(&self, boot: &str) -> Sqlite {
        self.try_client(boot).expect("a store")
    }

    fn try_client(&self, boot: &str) -> crate::Result<Sqlite> {
        let host = Host::new(self.clock.clone(), boot.to_owned(), 0);
        open(&self.path(), host, place::file_system_of).map(|client| Sqlite::new(Arc::new(client)))
    }

    /// One number out of the database, asked past tenure.
    fn number(&self, sql: &str) -> i64 {
        let connection = rusqlite::Connection::open(self.path()).expect("the database");
        connection.query_row(sql, [], |row| row.get(0)).expect("a number")
    }
}

fn claim(name: &str) -> Claim {
    Claim::fresh(Name::new(name).expect("a name"))
}

fn ask(claim: &Claim, queue: bool) -> Ask {
    let label = Label::new("a test").expect("a label");
    Ask { claim: claim.clone(), label, terms: Terms::of(TTL), queue }
}

async fn granted(store: &dyn Store, ask: Ask) -> Grant {
    match store.acquire(ask).await.expect("an answer") {
        Answer::Granted(grant) => grant,
        Answer::Busy(busy) => panic!("busy: {busy}"),
    }
}

async fn busy(store: &dyn Store, ask: Ask) -> crate::Busy {
    match store.acquire(ask).await.expect("an answer") {
        Answer::Granted(grant) => panic!("granted: {grant:?}"),
        Answer::Busy(busy) => busy,
    }
}

async fn renewed(store: &dyn Store, claim: &Claim) -> Result<Trust, Reason> {
    let renewal = Renewal { claim: claim.clone(), ttl: TTL };
    match store.renew(vec![renewal]).await.expect("an answer").outcomes.remove(0) {
        Outcome::Kept(trust) => Ok(trust),
        Outcome::Lost(reason) => Err(reason),
        Outcome::Unknown(error) => panic!("{error}"),
    }
}

async fn attended(store: &dyn Store, claim: &Claim) -> Attended {
    store.attend(vec![claim.clone()]).await.expect("an answer").remove(0)
}

async fn released(store: &dyn Store, claim: &Claim) -> Released {
    store.release(claim.clone(), Ending::Released).await.expect("an answer")
}

/// The next hint, whatever the clock of the test says.
async fn hint(hints: &mut mpsc::Receiver<Hint>) -> Hint {
    Clock::system()
        .timeout(Duration::from_secs(10), hints.recv())
        .await
        .expect("a hint in time")
        .expect("a bell")
}
