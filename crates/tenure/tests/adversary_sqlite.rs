//! Faults of `sqlite:` that an adversary found. Each test says what should hold.
#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, reason = "a test that measures real time")]

use std::path::Path;
use std::time::Duration;
use tenure::{Client, Clock, ErrorKind};

async fn client(path: &Path) -> Client {
    Client::connect(&format!("sqlite:{}", path.display())).await.unwrap()
}

/// C12: every wait has a limit. A process is stopped at the gate, as with SIGSTOP.
#[tokio::test]
async fn connecting_ends_while_a_stopped_process_is_in_the_gate() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("leases.db");
    drop(client(&path).await);
    let gate = std::fs::File::open(directory.path().join("leases.db-gate")).unwrap();
    gate.lock().unwrap();
    let url = format!("sqlite:{}", path.display());
    let connected = Clock::system().timeout(Duration::from_secs(8), Client::connect(&url)).await;
    let connected = connected.expect("it hangs, and `tenure run -n` with it");
    assert_eq!(connected.expect_err("no answer").kind(), ErrorKind::Unavailable);
}
