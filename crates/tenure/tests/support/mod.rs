//! What the tests share. Each test binary uses a part of it.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::time::Duration;
use tenure::Clock;

/// How often a case runs: `few` in `make test`, `full` in `make soak`, and n
/// times where the variable ROUNDS is n.
pub(crate) fn rounds(few: usize, full: usize) -> usize {
    match std::env::var("ROUNDS").as_deref() {
        Err(_) | Ok("") => few,
        Ok("full") => full,
        Ok(count) => count
            .parse()
            .unwrap_or_else(|_| panic!("ROUNDS is \"{count}\": it may be a number or the word full")),
    }
}

/// The output of `work`; fails when it takes longer than a test may wait for anything.
pub(crate) async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(20);
    let output = Clock::system().timeout(limit, work).await;
    output.unwrap_or_else(|| panic!("{what} took longer than {limit:?}"))
}
