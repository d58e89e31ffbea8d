//! The waiting line.

use crate::output::{say, text};
use std::time::Duration;
use tenure::{Busy, Clock, Name, Owner, Why};
use tokio::sync::watch;

/// A short wait is not worth a line.
const FIRST: Duration = Duration::from_millis(500);
/// The most that a wait is talked about.
const EVERY: Duration = Duration::from_secs(30);

/// Says who has `name`, again when that changes. Never ends; cancel safe.
pub(super) async fn narrate(
    name: &Name,
    place: &str,
    mut news: watch::Receiver<Option<Busy>>,
) -> std::convert::Infallible {
    let clock = Clock::system();
    clock.sleep(FIRST).await;
    let mut told = None;
    loop {
        let busy = news.borrow_and_update().clone();
        if let Some(busy) = busy
            && told != Some(subject(&busy.why))
        {
            say(format!("waiting for \"{name}\": {} ({place})", text::busy(&busy)));
            told = Some(subject(&busy.why));
            clock.sleep(EVERY).await;
        } else if news.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// What a line is about: the remaining time alone is no news.
#[derive(PartialEq, Eq)]
enum Subject {
    Holder(Owner),
    Nobody,
}

fn subject(why: &Why) -> Subject {
    match why {
        Why::Held(holder) => Subject::Holder(holder.owner),
        _ => Subject::Nobody,
    }
}
