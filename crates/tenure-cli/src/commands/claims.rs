//! `tenure acquire`, `renew` and `release`: for scripts whose steps are processes of their own.

use super::owner_file::{Held, OwnerFile};
use super::{Asked, connect, place, waiting};
use crate::args::{Acquire, Release, Renew, Whose};
use crate::exit::{Exit, Failure};
use crate::output::{answer, cannot_write, json, print, say, text};
use crate::process::signals::Signals;
use crate::store_choice::StoreChoice;
use serde_json::json;
use std::time::Duration;
use tenure::store::{Answer, Grant, Released};
use tenure::{Busy, Client, Clock, Error, ErrorKind, Event, Instant, Label, Name, OneShot, Owner, Reason};
use tokio::sync::watch;

/// What a claim lives by when nothing else is said.
const TTL: Duration = Duration::from_secs(10);
/// Between two attempts to open a store.
const RETRY: Duration = Duration::from_secs(1);
/// How often an outage is talked about.
const EVERY: Duration = Duration::from_secs(30);
/// The most that the end waits for the store.
const FAREWELL: Duration = Duration::from_secs(2);

/// Acquires, prints the claim, and leaves it to its TTL.
pub(crate) async fn acquire(args: Acquire, store: &StoreChoice, verbose: bool) -> Result<Exit, Failure> {
    let owner = args.owner.unwrap_or_else(Owner::fresh);
    let mut signals = Signals::listen().map_err(Failure::internal)?;
    let held = Held { name: args.name.clone(), owner, ttl: args.ttl };
    // Before the claim is: whoever is killed in between finds its owner there.
    let file = args.owner_file.as_ref().map(|path| OwnerFile::create(path, &held)).transpose()?;
    let mut acquiring = Acquiring::new(&args, owner, store, verbose);
    let acquired = tokio::select! {
        biased;
        signal = signals.asked_to_end() => {
            Err(signal.map(|signal| Exit::Signal(signal.as_raw())).map_err(Failure::internal))
        }
        acquired = acquiring.acquire() => acquired.map_err(Err),
    };
    let ended = match acquired {
        Ok(grant) => match print(&acquiring.told(&grant)) {
            Ok(()) => Ok(Exit::Success),
            // Nobody will ever know its owner, unless there is another way to it.
            Err(error) => Err(cannot_write(&error)),
        },
        Err(ended) => ended,
    };
    if !matches!(ended, Ok(Exit::Success)) {
        // With an owner of the caller's it may be an older claim, which is repeated.
        if args.owner.is_none() {
            acquiring.undo().await;
        }
        if let Some(file) = file {
            file.remove();
        }
    }
    if let Some(client) = acquiring.client {
        let _ = Clock::system().timeout(FAREWELL, client.close()).await;
    }
    ended
}

/// The way to a claim, with or without waiting, through outages.
struct Acquiring<'a> {
    args: &'a Acquire,
    owner: Owner,
    store: &'a StoreChoice,
    verbose: bool,
    until: Option<Instant>,
    client: Option<Client>,
    news: watch::Sender<Option<Busy>>,
}

impl<'a> Acquiring<'a> {
    fn new(args: &'a Acquire, owner: Owner, store: &'a StoreChoice, verbose: bool) -> Acquiring<'a> {
        let limit = if args.no_wait { Some(Duration::ZERO) } else { args.wait };
        let until = limit.map(|limit| Clock::system().now() + limit);
        Acquiring { args, owner, store, verbose, until, client: None, news: watch::Sender::new(None) }
    }

    async fn acquire(&mut self) -> Result<Grant, Failure> {
        let client = self.connect().await?;
        self.client = Some(client.clone());
        let claim = self.claim(&client);
        let asking = async {
            match self.until {
                Some(until) => claim.acquire_within(until - Clock::system().now()).await,
                None => claim.acquire().await.map(Answer::Granted),
            }
        };
        let place = place(&client);
        let answer = tokio::select! {
            biased;
            answer = asking => answer?,
            never = waiting::narrate(&self.args.name, &place, self.news.subscribe()) => match never {},
        };
        match answer {
            Answer::Granted(grant) => Ok(grant),
            Answer::Busy(Busy { last_error: Some(error), .. }) => Err(error.into()),
            Answer::Busy(busy) => Err(Failure::new(
                Exit::NotAcquired(Exit::NOT_ACQUIRED),
                format!("\"{}\" was not acquired: {}", self.args.name, text::busy(&busy)),
            )),
        }
    }

    async fn connect(&self) -> Result<Client, Error> {
        let clock = Clock::system();
        let mut told: Option<Instant> = None;
        loop {
            let news = self.news.clone();
            let builder = Client::builder().observe(move |event| {
                if let Event::Waiting { busy, .. } = event {
                    news.send_replace(Some(busy.clone()));
                }
            });
            let error = match builder.connect(&self.store.url).await {
                Ok(client) => {
                    if self.verbose {
                        say(format!("store {}", place(&client)));
                    }
                    return Ok(client);
                }
                Err(error) => error,
            };
            let left = self.until.map(|until| until - clock.now());
            if error.kind() != ErrorKind::Unavailable || left.is_some_and(|left| left.is_zero()) {
                return Err(error);
            }
            if told.is_none_or(|told| clock.now() - told >= EVERY) {
                say(format!("waiting for the store: {error}"));
                told = Some(clock.now());
            }
            clock.sleep(RETRY.min(left.unwrap_or(RETRY))).await;
        }
    }

    fn claim(&self, client: &Client) -> OneShot {
        let label = self.args.label.clone().unwrap_or_else(label_of_the_caller);
        let mut request = client.lease(self.args.name.as_str()).ttl(self.args.ttl).label(label);
        if let Some(least) = self.args.hold_at_least {
            request = request.hold_at_least(least);
        }
        request.one_shot(self.owner)
    }

    fn told(&self, grant: &Grant) -> String {
        if !self.args.json {
            return format!("{} {} {}\n", self.owner, grant.token, tenure::duration(grant.ttl));
        }
        let left = grant.trust.deadline() - Clock::system().now();
        json::document(&json!({
            "name": self.args.name.as_str(),
            "owner": self.owner.to_string(),
            "token": grant.token.as_u64(),
            "ttl_ms": json::milliseconds(grant.ttl),
            "left_ms": json::milliseconds(left),
            "store": self.client.as_ref().map(place),
        }))
    }

    /// What the answer did not reach is given back; unanswered, it lapses.
    async fn undo(&self) {
        if let Some(client) = &self.client {
            let _ = Clock::system().timeout(FAREWELL, self.claim(client).release()).await;
        }
    }
}

/// This process is gone at once, and whoever looks for the holder must not look for it.
fn label_of_the_caller() -> Label {
    let own = Label::of_this_process();
    let host = own.as_str().rsplit_once(':').map_or("", |(host, _)| host);
    let parent = rustix::process::getppid().map_or(0, |parent| parent.as_raw_nonzero().get());
    Label::new(format!("{host}:{parent}")).unwrap_or(own)
}

/// Sets the time left to the TTL.
pub(crate) async fn renew(args: Renew, store: &StoreChoice, verbose: bool) -> Result<Exit, Failure> {
    let (held, _) = whose(&args.whose)?;
    let Asked::Store(client) = connect(store, verbose).await? else {
        return not_held(&held, "nobody has used this store yet", args.json, "renewed");
    };
    let is_inside = std::env::var("TENURE_OWNER").is_ok_and(|owner| owner == held.owner.to_string());
    if is_inside {
        return Err(Failure::usage("this is the lease of the run around it, which renews it by itself"));
    }
    let ttl = match args.ttl {
        Some(ttl) => ttl,
        None if args.whose.owner_file.is_some() => held.ttl,
        None => {
            longer_than_the_default(&client, &held).await?;
            TTL
        }
    };
    let claim = client.lease(held.name.as_str()).ttl(ttl).one_shot(held.owner);
    let trust = match claim.renew().await {
        Ok(trust) => trust,
        Err(error) => match error.loss() {
            Some(loss) => return not_held(&held, &why(Some(loss.reason)), args.json, "renewed"),
            None => return Err(error.into()),
        },
    };
    let left = trust.deadline() - Clock::system().now();
    let text = if args.json {
        json::document(&json!({
            "name": held.name.as_str(),
            "owner": held.owner.to_string(),
            "renewed": true,
            "left_ms": json::milliseconds(left),
        }))
    } else {
        format!("{}\n", text::duration(left))
    };
    answer(&text, Exit::Success)
}

/// A renewal that was to prolong must not cut short what was acquired for longer.
async fn longer_than_the_default(client: &Client, held: &Held) -> Result<(), Failure> {
    let holder = client.inspect(&held.name).await?.holder;
    match holder.filter(|holder| holder.owner == held.owner && holder.left > TTL) {
        None => Ok(()),
        Some(holder) => Err(Failure::usage(format!(
            "it has {} left, and 10s is what a renewal sets when nothing else is said: name the time with --ttl",
            text::duration(holder.left)
        ))),
    }
}

/// Gives the claim up, and removes its file.
pub(crate) async fn release(args: Release, store: &StoreChoice, verbose: bool) -> Result<Exit, Failure> {
    let (held, file) = whose(&args.whose)?;
    let Asked::Store(client) = connect(store, verbose).await? else {
        return not_held(&held, "nobody has used this store yet", args.json, "released");
    };
    let released = client.lease(held.name.as_str()).one_shot(held.owner).release().await?;
    if let Some(file) = file {
        file.remove();
    }
    match released {
        Released::Released if args.json => answer(&not_or(&held, "released", None), Exit::Success),
        Released::Released => Ok(Exit::Success),
        Released::Gone(reason) => not_held(&held, &why(reason), args.json, "released"),
    }
}

fn why(reason: Option<Reason>) -> String {
    match reason {
        None | Some(Reason::Vanished) => "the store does not know it (any more)".to_owned(),
        Some(Reason::Expired) => "its time has passed".to_owned(),
        Some(reason) => reason.to_string(),
    }
}

fn not_held(held: &Held, why: &str, json: bool, verb: &str) -> Result<Exit, Failure> {
    say(format!("\"{}\" is not held by this owner: {why}", held.name));
    if json { answer(&not_or(held, verb, Some(why)), Exit::NotHeld) } else { Ok(Exit::NotHeld) }
}

/// How `verb` went: well, or not and why.
fn not_or(held: &Held, verb: &str, why: Option<&str>) -> String {
    let mut value = json!({ "name": held.name.as_str(), "owner": held.owner.to_string() });
    value[verb] = why.is_none().into();
    value["why"] = why.into();
    json::document(&value)
}

/// The claim that is meant.
fn whose(whose: &Whose) -> Result<(Held, Option<OwnerFile>), Failure> {
    if let Some(path) = &whose.owner_file {
        let (file, held) = OwnerFile::read(path)?;
        return match &whose.name {
            Some(name) if *name != held.name => {
                Err(Failure::usage(format!("the owner file holds \"{}\", and not \"{name}\"", held.name)))
            }
            _ => Ok((held, Some(file))),
        };
    }
    let missing = || Failure::usage("a name and its --owner are needed, or --owner-file");
    let name: Name = whose.name.clone().ok_or_else(missing)?;
    let owner = whose.owner.ok_or_else(missing)?;
    Ok((Held { name, owner, ttl: TTL }, None))
}
