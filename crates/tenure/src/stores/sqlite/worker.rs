//! The thread that owns a connection. SQLite blocks, so its calls run here, one after
//! the other, and nothing else of the process waits for them.

use super::client::Client;
use super::database::{Database, Lane};
use crate::store::Pending;
use crate::words::error::{Error, Result};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use tokio::sync::oneshot;

/// C12: how many calls may wait for the thread.
const QUEUE_LIMIT: usize = 20_000;
/// How many may wait when the last of them clean something up. Who makes clean-ups has a
/// limit of its own, but makes each again and again for as long as the gate is shut.
const CLEAN_UP_LIMIT: usize = 2 * QUEUE_LIMIT;

type Job = Box<dyn FnOnce(&mut Database) + Send>;

/// Started by its first call; it ends with the last handle, and closes its connection.
#[derive(Debug)]
pub(super) struct Worker {
    client: Arc<Client>,
    lane: Lane,
    thread: Mutex<Option<mpsc::Sender<Job>>>,
    waiting: Arc<AtomicUsize>,
}

/// What becomes of a call whose caller is gone before it began.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Orphan {
    /// It would only leave something behind.
    Skip,
    /// It cleans something up.
    Run,
}

/// Counts a call as long as it waits, whether it is run or dropped with its thread.
struct Waits(Arc<AtomicUsize>);

impl Waits {
    fn new(count: &Arc<AtomicUsize>) -> Waits {
        count.fetch_add(1, Ordering::Relaxed);
        Waits(count.clone())
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Worker {
    pub(super) fn new(client: Arc<Client>, lane: Lane) -> Worker {
        Worker { client, lane, thread: Mutex::default(), waiting: Arc::default() }
    }

    /// Sends `work` to the thread now, whether or not the future is ever polled.
    pub(super) fn call<T: Send + 'static>(
        &self,
        orphan: Orphan,
        work: impl FnOnce(&mut Database) -> Result<T> + Send + 'static,
    ) -> Pending<T> {
        if self.client.is_inherited() {
            let error = "this handle was made before fork: a child opens a client of its own";
            return failed(Error::unavailable(error));
        }
        let limit = if orphan == Orphan::Skip { QUEUE_LIMIT } else { CLEAN_UP_LIMIT };
        if self.waiting.load(Ordering::Relaxed) >= limit {
            return failed(Error::unavailable(format!("{limit} calls wait for the database already")));
        }
        let (reply, answer) = oneshot::channel();
        let waits = Waits::new(&self.waiting);
        let sent = self.send(Box::new(move |database| {
            drop(waits);
            if orphan == Orphan::Run || !reply.is_closed() {
                // Nobody listens any more: the caller was dropped meanwhile.
                let _ = reply.send(work(database));
            }
        }));
        Box::pin(async move {
            sent?;
            answer.await.unwrap_or_else(|_| Err(Error::unavailable("the thread of the database ended")))
        })
    }

    fn send(&self, job: Job) -> Result<()> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let job = match &*thread {
            // A job that panicked took the thread with it: the next one starts another.
            Some(jobs) => match jobs.send(job) {
                Ok(()) => return Ok(()),
                Err(mpsc::SendError(job)) => job,
            },
            None => job,
        };
        let (jobs, queue) = mpsc::channel::<Job>();
        let (client, lane) = (self.client.clone(), self.lane);
        let name = format!("tenure-sqlite-{}", lane.name());
        std::thread::Builder::new()
            .name(name)
            .spawn(move || {
                let mut database = Database::new(client, lane);
                queue.into_iter().for_each(|job| job(&mut database));
            })
            .map_err(|error| Error::unavailable(format!("no thread can be started: {error}")))?;
        jobs.send(job).map_err(|_| Error::unavailable("the thread of the database ended"))?;
        *thread = Some(jobs);
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.client.is_inherited() {
            // In a forked child the channel may be locked for ever by a thread that is not there.
            std::mem::forget(self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}

fn failed<T: Send + 'static>(error: Error) -> Pending<T> {
    Box::pin(std::future::ready(Err(error)))
}
