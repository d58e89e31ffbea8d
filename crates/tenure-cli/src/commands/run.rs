//! `tenure run`: CMD under a lease.

use super::acquire::Acquirer;
use crate::args::{OnLost, Run};
use crate::exit::{Exit, Failure};
use crate::output::say;
use crate::output::status::Status;
use crate::process::signals::{self, Signals};
use crate::process::supervisor::{Ended, Outcome, is_lent, supervise};
use crate::process::{Duties, Guarded, Inherited, find, place};
use crate::store_choice::StoreChoice;
use rustix::process::Signal;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::time::Duration;
use tenure::store::Released;
use tenure::{Client, Clock, Lease, Reason};

/// The most that the end of a run waits for the store.
const FAREWELL: Duration = Duration::from_secs(5);

/// The most that the end of a wait does: an entry that could not leave is dead soon by itself.
const LEAVE: Duration = Duration::from_millis(250);

/// The pause before a lease that was lost before CMD was started is waited for again.
const AGAIN: Duration = Duration::from_millis(200);

/// Waits for the lease, runs CMD while it is held, releases, and ends as CMD did.
pub(crate) async fn run(
    args: Run,
    store: &StoreChoice,
    verbose: bool,
    inherited: Inherited,
    status: Option<OwnedFd>,
) -> Result<Exit, Failure> {
    // First, so that no thread is without it.
    let mut signals = Signals::listen().map_err(Failure::internal)?;
    let status = Status::new(status, &args.name);
    let mut asked = None;
    let ended = match find(&args.command[0]) {
        Ok(()) => {
            let acquirer = Acquirer::new(&args, store, verbose, status.clone());
            under_lease(&args, acquirer, &mut signals, inherited, &mut asked).await
        }
        Err(failure) => Err(failure),
    };
    status.end(&ended, asked.map(signals::name));
    ended
}

/// A lease that is lost before CMD was started, as when this process was stopped while it
/// was given its turn, has done no harm: the wait goes on.
async fn under_lease(
    args: &Run,
    mut acquirer: Acquirer<'_>,
    signals: &mut Signals,
    inherited: Inherited,
    asked: &mut Option<Signal>,
) -> Result<Exit, Failure> {
    let (client, worked, taken) = loop {
        let acquired = tokio::select! {
            biased;
            signal = signals.asked_to_end() => {
                *asked = signal.as_ref().ok().copied();
                Err(signal.map(|signal| Exit::Signal(signal.as_raw())).map_err(Failure::internal))
            }
            acquired = acquirer.acquire() => acquired.map_err(Err),
        };
        let (client, lease) = match (acquirer.client.clone(), acquired) {
            (Some(client), Ok(lease)) => (client, lease),
            (client, acquired) => {
                leave(client, signals).await;
                return acquired.err().unwrap_or(Ok(Exit::Internal));
            }
        };
        let worked = work(args, acquirer.store, &client, &lease, signals, inherited).await;
        acquirer.status.settle(&lease.state());
        let taken = release(lease, signals).await;
        match &worked {
            Ok(Outcome { ended: Ended::NotStarted, lost, .. }) if acquirer.is_patient() => {
                say(format!("{}; waiting again", lost.as_deref().unwrap_or("the lease was lost")));
                // Whatever the cause, it must not spin, nor leave its guardians behind.
                Clock::system().sleep(AGAIN).await;
            }
            _ => break (client, worked, taken),
        }
    };
    let _ = patiently(FAREWELL, signals, client.close()).await;
    let outcome = worked?;
    *asked = outcome.asked;
    Ok(judge(args, outcome, taken))
}

/// Gives up waiting: the queue forgets us, at once when the store answers.
async fn leave(client: Option<Client>, signals: &mut Signals) {
    if let Some(client) = client {
        patiently(LEAVE, signals, client.close()).await;
    }
}

/// What the store says within `limit`, unless somebody asks for the end once more.
async fn patiently<T>(limit: Duration, signals: &mut Signals, answer: impl Future<Output = T>) -> Option<T> {
    let clock = Clock::system();
    tokio::select! {
        biased;
        answer = clock.timeout(limit, answer) => answer,
        _ = signals.asked_to_end() => None,
    }
}

async fn work(
    args: &Run,
    store: &StoreChoice,
    client: &Client,
    lease: &Lease,
    signals: &mut Signals,
    inherited: Inherited,
) -> Result<Outcome, Failure> {
    if is_lent(lease) {
        // The keeper would do it soon, but CMD waits for it. Sent by the first poll, and
        // answered while the guardian starts.
        tokio::select! {
            biased;
            _ = lease.confirm() => {}
            () = std::future::ready(()) => {}
        }
    }
    let liveness = client.liveness().await?;
    let spare = args.on_lost == OnLost::Ignore;
    let (shared, terminal) = place(args.foreground);
    let duties = Duties { deadline: lease.deadline(), spare, close: args.close, shared };
    let environment = |command: &mut Command| {
        store.hand_down(command);
        command
            .env("TENURE_NAME", lease.name().as_str())
            .env("TENURE_OWNER", lease.owner().to_string())
            .env("TENURE_TOKEN", lease.token().to_string())
            .env("TENURE_STORE_KIND", client.about().kind)
            .env("TENURE_TTL_MS", lease.ttl().as_millis().to_string());
    };
    let liveness = liveness.as_ref().map(|fd| fd.as_fd());
    let guarded =
        Guarded::start(&args.command, environment, duties, liveness, inherited).map_err(Failure::internal)?;
    supervise(guarded, lease, signals, terminal, spare).await.map_err(Failure::internal)
}

/// Whether the store says that somebody took it. No answer changes nothing.
async fn release(lease: Lease, signals: &mut Signals) -> bool {
    let answer = patiently(FAREWELL, signals, lease.release()).await;
    matches!(answer, Some(Ok(Released::Gone(Some(Reason::Taken | Reason::Revoked)))))
}

fn judge(args: &Run, outcome: Outcome, taken: bool) -> Exit {
    let command = tenure::escaped(&args.command[0].to_string_lossy()).to_string();
    if let Ended::NotExecuted(errno) = outcome.ended {
        let error = std::io::Error::from_raw_os_error(errno);
        say(format!("{command}: cannot be executed: {error}"));
        let missing = error.kind() == std::io::ErrorKind::NotFound;
        return if missing { Exit::NotFound } else { Exit::NotExecutable };
    }
    if let Some(lost) = outcome.lost {
        let started = if outcome.ended == Ended::NotStarted { "; the command was not started" } else { "" };
        say(format!("{lost}{started}"));
        return Exit::Lost;
    }
    if taken {
        say(format!("the lease on \"{}\" was no longer ours as it was released", args.name));
        return Exit::Lost;
    }
    match outcome.ended {
        Ended::Command(status) => {
            let status = ExitStatus::from_raw(status);
            match status.signal() {
                Some(signal) => Exit::Signal(signal),
                None => Exit::Command(status.code().map_or(u8::MAX, |code| code as u8)),
            }
        }
        Ended::AskedToEnd(signal) => Exit::Signal(signal.as_raw()),
        _ => {
            say("the guardian was killed, and the command with it");
            Exit::Internal
        }
    }
}
