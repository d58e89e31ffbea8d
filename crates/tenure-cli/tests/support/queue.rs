//! The queue of the embedded store, written down by its own database: to ask now and then
//! would miss what happens in between.
#![allow(dead_code, reason = "each test file uses its own part")]

use rusqlite::Connection;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// What happened to the entries and leases of one name, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Happened {
    /// An entry got its place.
    Queued(String, i64),
    /// An entry is gone: granted, left or dead.
    Gone(String),
    /// The name has a new owner.
    Granted(String),
}

/// A database with triggers that write down what happens. The store must have made it.
pub(crate) struct Queue(Connection);

impl Queue {
    pub(crate) fn watch(directory: &Path) -> Queue {
        let queue = Queue::open(directory);
        let triggers = "
            CREATE TABLE happened(n INTEGER PRIMARY KEY, what TEXT, owner TEXT, place INTEGER);
            CREATE TRIGGER queued AFTER INSERT ON entry BEGIN
              INSERT INTO happened(what, owner, place) VALUES ('queued', lower(hex(new.owner)), new.seq); END;
            CREATE TRIGGER gone AFTER DELETE ON entry BEGIN
              INSERT INTO happened(what, owner) VALUES ('gone', lower(hex(old.owner))); END;
            CREATE TRIGGER granted AFTER UPDATE ON lease
              WHEN new.owner IS NOT NULL AND new.owner IS NOT old.owner BEGIN
              INSERT INTO happened(what, owner) VALUES ('granted', lower(hex(new.owner))); END;";
        queue.0.execute_batch(triggers).expect("the database takes triggers");
        queue
    }

    /// Only looks.
    pub(crate) fn open(directory: &Path) -> Queue {
        let connection = Connection::open(directory.join("leases.db")).expect("the database");
        connection.busy_timeout(Duration::from_secs(20)).expect("a timeout");
        Queue(connection)
    }

    /// How many entries there are.
    pub(crate) fn length(&self) -> usize {
        let count = self.0.query_row("SELECT count(*) FROM entry", [], |row| row.get::<_, i64>(0));
        count.expect("a count") as usize
    }

    pub(crate) fn history(&self) -> Vec<Happened> {
        let mut rows = self.0.prepare("SELECT what, owner, place FROM happened ORDER BY n").expect("a table");
        let happened = rows.query_map([], |row| {
            let (what, owner): (String, String) = (row.get(0)?, row.get(1)?);
            Ok(match what.as_str() {
                "queued" => Happened::Queued(owner, row.get(2)?),
                "gone" => Happened::Gone(owner),
                _ => Happened::Granted(owner),
            })
        });
        happened.expect("rows").collect::<Result<_, _>>().expect("rows")
    }
}

/// The owners in the order of their grants. Fails when one was granted while another had
/// an earlier place; also counts entries that went without a grant.
#[track_caller]
pub(crate) fn served_in_order(history: &[Happened]) -> (Vec<String>, usize) {
    let mut waiting: BTreeMap<&str, i64> = BTreeMap::new();
    // A grant takes the entry away just before or just after.
    let mut gone: BTreeMap<&str, i64> = BTreeMap::new();
    let mut served = Vec::new();
    for happened in history {
        match happened {
            Happened::Queued(owner, place) => _ = waiting.insert(owner, *place),
            Happened::Gone(owner) => {
                let place = waiting.remove(owner.as_str()).expect("it was there");
                gone.insert(owner, place);
            }
            Happened::Granted(owner) => {
                let place = waiting.get(owner.as_str()).or(gone.get(owner.as_str()));
                let place = *place.unwrap_or(&i64::MAX);
                let ahead: Vec<_> = waiting.iter().filter(|(_, other)| **other < place).collect();
                assert!(ahead.is_empty(), "{owner} at {place} overtook {ahead:?}");
                served.push(owner.clone());
            }
        }
    }
    assert!(waiting.is_empty(), "left in the queue: {waiting:?}");
    let dropped = gone.keys().filter(|owner| !served.iter().any(|one| one == *owner)).count();
    (served, dropped)
}
