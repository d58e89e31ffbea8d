//! `tenure wait`: until the name is free.

use super::{place, show, waiting};
use crate::args::Wait;
use crate::exit::{Exit, Failure};
use crate::output::{answer, json, say, text};
use crate::store_choice::StoreChoice;
use std::time::Duration;
use tenure::store::Standing;
use tenure::stores::sqlite::Sqlite;
use tenure::{Busy, Client, Clock, Error, ErrorKind, Why};
use tokio::sync::watch;

/// Between two looks: who only looks has no place in the queue, and is told nothing.
const LOOK: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(250));
/// Between two looks for a store that does not answer.
const OUTAGE: Duration = Duration::from_secs(1);

/// Returns when nobody holds the name and nothing keeps it back. By then somebody may have it
/// again: it is no lease.
pub(crate) async fn wait(args: Wait, store: &StoreChoice, verbose: bool) -> Result<Exit, Failure> {
    let clock = Clock::system();
    let until = args.timeout.map(|limit| clock.now() + limit);
    let news = watch::Sender::new(None);
    let mut waiter = Waiter { args: &args, url: &store.url, verbose, client: None, place: store.shown() };
    let shown = waiter.place.clone();
    let looking = async {
        loop {
            let looked = waiter.look().await;
            let (standing, pause) = match &looked {
                Ok(standing) if standing.holder.is_none() && standing.kept_back.is_none() => {
                    return Ok((standing.clone(), Exit::Success));
                }
                Ok(standing) => {
                    news.send_replace(Some(busy(standing, None)));
                    let left = standing.holder.as_ref().map(|holder| holder.left).or(standing.kept_back);
                    (Some(standing), left.unwrap_or_default().clamp(LOOK.0, LOOK.1))
                }
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    let nobody = show::nobody(args.name.clone());
                    news.send_replace(Some(busy(&nobody, Some(error.clone()))));
                    (None, OUTAGE)
                }
                Err(error) => return Err(Failure::from(error.clone())),
            };
            let left = until.map(|until| until - clock.now());
            if left.is_some_and(|left| left.is_zero()) {
                let Some(standing) = standing else {
                    return Err(looked.err().unwrap_or_else(Error::closed).into());
                };
                return Ok((standing.clone(), Exit::NotAcquired(Exit::NOT_ACQUIRED)));
            }
            clock.sleep(pause.min(left.unwrap_or(pause))).await;
        }
    };
    let (standing, exit) = tokio::select! {
        biased;
        ended = looking => ended?,
        never = waiting::narrate(&args.name, &shown, news.subscribe()) => match never {},
    };
    if exit != Exit::Success {
        say(format!("\"{}\" is not free: {}", args.name, text::busy(&busy(&standing, None))));
    }
    let text = args.json.then(|| json::document(&json::standing_in_full(&standing, &waiter.place)));
    answer(&text.unwrap_or_default(), exit)
}

struct Waiter<'a> {
    args: &'a Wait,
    url: &'a str,
    verbose: bool,
    client: Option<Client>,
    place: String,
}

impl Waiter<'_> {
    async fn look(&mut self) -> Result<Standing, Error> {
        if self.client.is_none() {
            if Sqlite::missing(self.url)?.is_some() {
                return Ok(show::nobody(self.args.name.clone()));
            }
            let client = Client::connect(self.url).await?;
            self.place = place(&client);
            if self.verbose {
                say(format!("store {}", self.place));
            }
            self.client = Some(client);
        }
        self.client.as_ref().expect("set above").inspect(&self.args.name).await
    }
}

fn busy(standing: &Standing, last_error: Option<Error>) -> Busy {
    let why = match (&standing.holder, standing.kept_back) {
        (Some(holder), _) => Why::Held(holder.clone()),
        (None, Some(left)) => Why::KeptBack(left),
        (None, None) => Why::Queued,
    };
    Busy { why, waiting: standing.waiting, place: None, last_error }
}
