//! Getting the lease: with or without waiting, through outages.

use super::{place, waiting};
use crate::args::Run;
use crate::exit::{Exit, Failure};
use crate::output::status::Status;
use crate::output::{say, text};
use crate::store_choice::StoreChoice;
use std::time::Duration;
use tenure::{Acquired, Busy, Client, Clock, Error, ErrorKind, Event, Lease, Request};
use tokio::sync::watch;

/// Between two attempts to reach a store that does not answer.
const RETRY: Duration = Duration::from_secs(1);
/// How often an outage is talked about.
const EVERY: Duration = Duration::from_secs(30);

/// Without waiting, how long the store may take for all that it is asked.
const AT_ONCE: Duration = Duration::from_secs(5);
/// After the end of a wait, how long its answer may take: who is next, who has it.
const SLACK: Duration = Duration::from_millis(100);

/// How long to wait for the lease.
#[derive(Clone, Copy)]
enum Patience {
    None,
    Until(tenure::Instant),
    Endless,
}

/// The way to a lease. Its client outlives a wait that is broken off, so that
/// it can leave the queue.
pub(super) struct Acquirer<'a> {
    args: &'a Run,
    pub(super) store: &'a StoreChoice,
    verbose: bool,
    patience: Patience,
    pub(super) client: Option<Client>,
    news: watch::Sender<Option<Busy>>,
    pub(super) status: Status,
}

impl<'a> Acquirer<'a> {
    pub(super) fn new(args: &'a Run, store: &'a StoreChoice, verbose: bool, status: Status) -> Acquirer<'a> {
        let patience = match args.wait {
            _ if args.no_wait || args.wait == Some(Duration::ZERO) => Patience::None,
            Some(limit) => Patience::Until(Clock::system().now() + limit),
            None => Patience::Endless,
        };
        Acquirer { args, store, verbose, patience, client: None, news: watch::Sender::new(None), status }
    }

    /// Waits for the lease. An outage is waited out like a holder. Ends in time also when the
    /// store hangs.
    pub(super) async fn acquire(&mut self) -> Result<Lease, Failure> {
        let clock = Clock::system();
        let limit = match self.patience {
            Patience::None => AT_ONCE,
            Patience::Until(limit) => limit - clock.now() + SLACK,
            Patience::Endless => return self.wait().await,
        };
        let late = || Failure::new(Exit::Unavailable, "the store gave no answer in time");
        clock.timeout(limit, self.wait()).await.unwrap_or_else(|| Err(late()))
    }

    async fn wait(&mut self) -> Result<Lease, Failure> {
        let clock = Clock::system();
        let mut told: Option<tenure::Instant> = None;
        loop {
            let error = match self.attempt().await {
                Ok(Acquired::Lease(lease)) => return Ok(lease),
                Ok(Acquired::Busy(busy)) => return Err(self.not_acquired(&busy)),
                Err(error) => error,
            };
            if error.kind() != ErrorKind::Unavailable || !self.is_patient() {
                return Err(error.into());
            }
            if told.is_none_or(|told| clock.now() - told >= EVERY) {
                say(format!("waiting for the store: {error}"));
                told = Some(clock.now());
            }
            let pause = match self.patience {
                Patience::Until(limit) => RETRY.min(limit - clock.now()),
                _ => RETRY,
            };
            clock.sleep(pause).await;
        }
    }

    /// Whether the lease may still be waited for.
    pub(super) fn is_patient(&self) -> bool {
        match self.patience {
            Patience::None => false,
            Patience::Until(limit) => Clock::system().now() < limit,
            Patience::Endless => true,
        }
    }

    async fn attempt(&mut self) -> Result<Acquired, Error> {
        if self.client.is_none() {
            self.client = Some(self.connect().await?);
        }
        let client = self.client.as_ref().expect("set above");
        let request = self.request(client);
        let asking = async {
            match self.patience {
                Patience::None => request.try_acquire().await,
                Patience::Until(limit) => request.acquire_within(limit - Clock::system().now()).await,
                Patience::Endless => request.acquire().await.map(Acquired::Lease),
            }
        };
        let place = place(client);
        tokio::select! {
            biased;
            answer = asking => answer,
            never = waiting::narrate(&self.args.name, &place, self.news.subscribe()) => match never {},
        }
    }

    async fn connect(&self) -> Result<Client, Error> {
        let (news, status) = (self.news.clone(), self.status.clone());
        let mut builder = Client::builder().observe(move |event| {
            status.follow(event);
            if let Event::Waiting { busy, .. } = event {
                news.send_replace(Some(busy.clone()));
            }
        });
        if let Some(label) = &self.args.label {
            builder = builder.label(label.clone());
        }
        let client = builder.connect(&self.store.url).await?;
        if self.verbose {
            say(format!("store {}", place(&client)));
        }
        Ok(client)
    }

    fn request(&self, client: &Client) -> Request {
        let args = self.args;
        let mut request = client.lease(args.name.as_str()).ttl(args.ttl);
        // The library's own default is no grace at all: it has nothing to stop.
        // A fifth of the time that there is, be it the lease's or the limit's.
        let time = tenure::store::trusted_part(args.ttl).min(args.hold_at_most.unwrap_or(Duration::MAX));
        let grace = args.grace.unwrap_or(time / 5);
        request = request.grace(grace);
        if let Some(heartbeat) = args.heartbeat {
            request = request.heartbeat(heartbeat);
        }
        if let Some(least) = args.hold_at_least {
            request = request.hold_at_least(least);
        }
        if let Some(most) = args.hold_at_most {
            request = request.hold_at_most(most);
        }
        request
    }

    fn not_acquired(&self, busy: &Busy) -> Failure {
        if let Some(error) = &busy.last_error {
            return error.clone().into();
        }
        let exit = Exit::NotAcquired(self.args.conflict_exit_code);
        Failure::new(exit, format!("\"{}\" was not acquired: {}", self.args.name, text::busy(busy)))
    }
}
