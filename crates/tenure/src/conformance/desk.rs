//! A client of the fixture, as programs use it, whose store can be made to fail.

use super::faulty::{Faults, Faulty};
use super::kit::{Client as Handle, Fixture};
use crate::Client;
use crate::words::event::Event;
use crate::words::name::Name;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub(super) struct Desk {
    pub(super) client: Client,
    pub(super) faults: Faults,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Fixture {
    /// Through this handle.
    pub(super) fn desk(&self, store: &Handle) -> Desk {
        let faulty = Faulty::new(store.clone(), self.clock.clone());
        let (faults, events) = (faulty.faults(), Arc::<Mutex<Vec<Event>>>::default());
        let seen = events.clone();
        let client = Client::builder()
            .clock(self.clock.clone())
            .observe(move |event| seen.lock().unwrap_or_else(PoisonError::into_inner).push(event.clone()))
            .build(Arc::new(faulty))
            .expect("a client");
        Desk { client, faults, events }
    }

    /// What does not come costs the case, not the whole run.
    pub(super) async fn within<T>(
        &self,
        limit: Duration,
        what: impl fmt::Display,
        work: impl Future<Output = T>,
    ) -> T {
        let output = self.clock.timeout(limit, work).await;
        output.unwrap_or_else(|| panic!("{what}: not within {limit:.1?}"))
    }

    /// Until so many clients wait.
    pub(super) async fn until_waiting(&self, name: &Name, count: u32, limit: Duration) {
        self.until(limit, format_args!("{count} in the queue of \"{name}\""), async || {
            let standing = self.b.inspect(name.clone()).await.expect("inspect is answered");
            (standing.waiting == count).then_some(())
        })
        .await;
    }
}

impl Desk {
    pub(super) fn losses(&self) -> usize {
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.iter().filter(|event| matches!(event, Event::Lost { .. })).count()
    }
}
