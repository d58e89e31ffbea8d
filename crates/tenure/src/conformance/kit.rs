//! What cases are made of.

use crate::store::{
    Answer, Ask, Attended, ENTRY_LIFE, Ending, Grant, Outcome, Pending, Released, Renewal, Store, Terms,
    Trust,
};
use crate::words::busy::Busy;
use crate::words::clock::{Clock, Instant};
use crate::words::error::{Reason, Result};
use crate::words::name::Name;
use crate::words::owner::{Claim, Label, Owner};
use std::fmt;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

pub(super) type Client = Arc<dyn Store>;

/// Two independently connected clients of one store, and what a case needs beside them.
#[derive(Clone)]
pub struct Fixture {
    /// A client.
    pub a: Arc<dyn Store>,
    /// Another client.
    pub b: Arc<dyn Store>,
    /// The TTL of leases that are to lapse: as short as the store allows and a busy
    /// machine keeps.
    pub ttl: Duration,
    /// How much later than it should something may happen: 1 s, and the rounding
    /// of the store.
    pub slack: Duration,
    /// The clock that the clients were given.
    pub clock: Clock,
    connect: Arc<dyn Fn() -> Pending<Arc<dyn Store>> + Send + Sync>,
    unique: String,
}

impl fmt::Debug for Fixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fixture({:?}, {})", self.a, self.unique)
    }
}

impl Fixture {
    /// A fixture for one case; `connect` gives a client of its own with each call.
    ///
    /// # Panics
    /// When `connect` fails.
    pub async fn new(
        clock: Clock,
        ttl: Duration,
        connect: impl Fn() -> Pending<Arc<dyn Store>> + Send + Sync + 'static,
    ) -> Fixture {
        let a = connect().await.expect("the first client connects");
        let b = connect().await.expect("the second client connects");
        let unique = Owner::fresh().to_string();
        Fixture { a, b, ttl, slack: Duration::from_secs(1), clock, connect: Arc::new(connect), unique }
    }

    /// A client that nobody else has.
    ///
    /// # Panics
    /// When it cannot connect.
    pub async fn client(&self) -> Arc<dyn Store> {
        (self.connect)().await.expect("another client connects")
    }

    /// A name that ends with `tail` and that no other case has.
    ///
    /// # Panics
    /// When it would be no name.
    pub fn name(&self, tail: &str) -> Name {
        Name::new(format!("{}{tail}", self.prefix())).expect("a name")
    }

    /// What all names of this case begin with.
    pub fn prefix(&self) -> String {
        format!("{}/", self.unique)
    }

    /// A TTL that passes in no case.
    pub fn long(&self) -> Duration {
        self.ttl * 20
    }

    /// A question by a fresh owner for a lease that will not lapse.
    pub fn ask(&self, name: &Name) -> Ask {
        ask(name, self.long())
    }

    /// The same for a lease that lapses when nobody renews it.
    pub fn brief(&self, name: &Name) -> Ask {
        ask(name, self.ttl)
    }

    pub(super) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Waits for what `probe` looks for.
    pub(super) async fn until<T>(
        &self,
        limit: Duration,
        what: impl fmt::Display,
        mut probe: impl AsyncFnMut() -> Option<T>,
    ) -> T {
        let deadline = self.now() + limit;
        loop {
            if let Some(found) = probe().await {
                return found;
            }
            assert!(self.now() < deadline, "{what}: not within {limit:.1?}");
            self.clock.sleep(self.ttl / 50).await;
        }
    }

    /// Asks until it is granted.
    pub(super) async fn in_time(&self, client: &Client, ask: &Ask, limit: Duration) -> Grant {
        self.until(limit, format_args!("a grant of \"{}\"", ask.claim.name), async || {
            match acquire(client, ask).await {
                Answer::Granted(grant) => Some(grant),
                Answer::Busy(_) => None,
            }
        })
        .await
    }

    /// The same for a name whose holder was last heard of just now.
    pub(super) async fn after_lapse(&self, client: &Client, ask: &Ask) -> Grant {
        self.in_time(client, ask, self.ttl + self.slack).await
    }

    /// Attends until the entry is granted.
    pub(super) async fn attended(&self, client: &Client, claim: &Claim, limit: Duration) -> Grant {
        self.until(limit, format_args!("a hand-over of \"{}\"", claim.name), async || {
            match attend(client, claim).await {
                Attended::Granted(grant) => Some(grant),
                Attended::Waiting(_) => None,
                other => panic!("a waiter of \"{}\" was told {other:?}", claim.name),
            }
        })
        .await
    }

    /// Does `work` while the claim is renewed.
    pub(super) async fn while_renewing<T>(
        &self,
        client: &Client,
        claim: &Claim,
        ttl: Duration,
        work: impl Future<Output = T>,
    ) -> T {
        let renewing = async {
            loop {
                kept(client, claim, ttl).await;
                self.clock.sleep(ttl / 5).await;
            }
        };
        tokio::select! {
            biased;
            output = work => output,
            () = renewing => unreachable!("it renews for ever"),
        }
    }

    /// Does `work` while the entry is attended to.
    pub(super) async fn while_attending<T>(
        &self,
        client: &Client,
        claim: &Claim,
        work: impl Future<Output = T>,
    ) -> T {
        let attending = async {
            loop {
                attend(client, claim).await;
                self.clock.sleep(ENTRY_LIFE / 5).await;
            }
        };
        tokio::select! {
            biased;
            output = work => output,
            () = attending => unreachable!("it attends for ever"),
        }
    }
}

fn ask(name: &Name, ttl: Duration) -> Ask {
    let label = Label::new("a conformance case").expect("a label");
    Ask { claim: Claim::fresh(name.clone()), label, terms: Terms::of(ttl), queue: false }
}

pub(super) async fn acquire(client: &Client, ask: &Ask) -> Answer {
    let answer = client.acquire(ask.clone()).await;
    answer.unwrap_or_else(|error| panic!("acquire of \"{}\" failed: {error:?}", ask.claim.name))
}

pub(super) async fn granted(client: &Client, ask: &Ask) -> Grant {
    match acquire(client, ask).await {
        Answer::Granted(grant) => grant,
        Answer::Busy(busy) => panic!("\"{}\" was to be granted and is busy: {busy:?}", ask.claim.name),
    }
}

pub(super) async fn busy(client: &Client, ask: &Ask) -> Busy {
    match acquire(client, ask).await {
        Answer::Busy(busy) => busy,
        Answer::Granted(grant) => panic!("\"{}\" was to be busy and is granted: {grant:?}", ask.claim.name),
    }
}

/// Registers an entry.
pub(super) async fn queued(client: &Client, ask: &Ask) -> Busy {
    busy(client, &Ask { queue: true, ..ask.clone() }).await
}

pub(super) async fn attend(client: &Client, claim: &Claim) -> Attended {
    let mut answers = client.attend(vec![claim.clone()]).await.expect("attend is answered");
    assert_eq!(answers.len(), 1, "attend answers each entry that was asked for");
    answers.remove(0)
}

pub(super) async fn renew(client: &Client, claim: &Claim, ttl: Duration) -> Outcome {
    let renewal = Renewal { claim: claim.clone(), ttl };
    let mut renewed = client.renew(vec![renewal]).await.expect("renew is answered");
    assert_eq!(renewed.outcomes.len(), 1, "renew answers each lease that was asked for");
    renewed.outcomes.remove(0)
}

pub(super) async fn kept(client: &Client, claim: &Claim, ttl: Duration) -> Trust {
    match renew(client, claim, ttl).await {
        Outcome::Kept(trust) => trust,
        other => panic!("\"{}\" was to be kept: {other:?}", claim.name),
    }
}

pub(super) async fn lost(client: &Client, claim: &Claim, ttl: Duration) -> Reason {
    match renew(client, claim, ttl).await {
        Outcome::Lost(reason) => reason,
        other => panic!("\"{}\" was to be lost: {other:?}", claim.name),
    }
}

pub(super) async fn end(client: &Client, claim: &Claim, ending: Ending) -> Released {
    client.release(claim.clone(), ending).await.expect("release is answered")
}

/// Releases what is held or waits.
pub(super) async fn released(client: &Client, claim: &Claim) {
    let released = end(client, claim, Ending::Released).await;
    assert_eq!(released, Released::Released, "release of \"{}\"", claim.name);
}

/// Who holds the name, as the store tells it.
pub(super) async fn holder(client: &Client, name: &Name) -> Option<Owner> {
    let standing = client.inspect(name.clone()).await.expect("inspect is answered");
    standing.holder.map(|holder| holder.owner)
}

/// Asks all at once and gives the answers in the order of the questions.
pub(super) async fn all<T: Send + 'static>(questions: Vec<Pending<T>>) -> Vec<Result<T>> {
    let tasks: Vec<_> = questions.into_iter().map(tokio::spawn).collect();
    let mut answers = Vec::with_capacity(tasks.len());
    for task in tasks {
        let answer = task.await;
        answers.push(answer.unwrap_or_else(|stopped| std::panic::resume_unwind(stopped.into_panic())));
    }
    answers
}

pub(super) async fn poll_once<T>(question: &mut Pending<T>) -> Poll<Result<T>> {
    std::future::poll_fn(|context| Poll::Ready(question.as_mut().poll(context))).await
}
