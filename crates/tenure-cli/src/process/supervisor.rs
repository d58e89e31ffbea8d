//! Between the lease and the guardian: who is told what, and when the work is over.

use super::jobs::Jobs;
use super::message::{Order, Report};
use super::signals::{self, Arrived, Signals, Stop};
use super::{Guarded, Terminal};
use crate::output::{say, text};
use rustix::process::Signal;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::pin::pin;
use std::process::ExitStatus;
use std::time::Duration;
use tenure::{Clock, Instant, Lease, State};

/// After CMD's end, how long its group may linger before a line says so.
const LINGER: Duration = Duration::from_secs(1);
/// How long after the deadline a guardian may take to kill; then tenure does it.
const OVERDUE: Duration = Duration::from_secs(1);

/// By these a command is asked to end.
const ASKS: [Signal; 4] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];

/// How the work ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// With CMD, which has this wait status.
    Command(i32),
    /// CMD could not be executed (errno).
    NotExecuted(i32),
    /// The lease was lost before CMD was started.
    NotStarted,
    /// This signal came before CMD was started.
    AskedToEnd(Signal),
    /// The guardian was killed, and so was all that it guarded.
    GuardianKilled,
}

/// What is known when it is over.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) ended: Ended,
    /// How the lease was lost, if it was as the end was seen.
    pub(crate) lost: Option<String>,
    /// The first signal that asked CMD to end and came through tenure.
    pub(crate) asked: Option<Signal>,
}

/// Starts what is held and stays with it until it is over.
pub(crate) async fn supervise(
    guarded: Guarded,
    lease: &Lease,
    signals: &mut Signals,
    terminal: Option<Terminal>,
    on_lost_ignore: bool,
) -> io::Result<Outcome> {
    let mut supervisor = Supervisor {
        guarded,
        jobs: Jobs::new(terminal),
        lease,
        signals,
        spare: on_lost_ignore,
        deadline: lease.deadline(),
        phase: Phase::Kept,
        ended: None,
        lost: None,
        asked: None,
    };
    let ended = supervisor.until_it_is_over().await;
    if ended.is_err() {
        // The lease is given back next: nothing may run on.
        supervisor.guarded.kill_guardian();
        supervisor.guarded.kill_all().await;
    }
    supervisor.jobs.end(&supervisor.guarded, has_exited(ended.as_ref().ok().copied()));
    Ok(Outcome { ended: ended?, lost: supervisor.lost, asked: supervisor.asked })
}

/// Whether CMD ended by itself, by its own wish.
fn has_exited(ended: Option<Ended>) -> bool {
    matches!(ended, Some(Ended::Command(status)) if ExitStatus::from_raw(status).code().is_some())
}

/// A lease that was handed over is only lent until its first renewal: no work is begun on
/// it that could not be ended properly.
pub(crate) fn is_lent(lease: &Lease) -> bool {
    !lease.is_confirmed()
}

struct Supervisor<'a> {
    guarded: Guarded,
    jobs: Jobs,
    lease: &'a Lease,
    signals: &'a mut Signals,
    spare: bool,
    /// What the guardian was told last.
    deadline: Instant,
    phase: Phase,
    ended: Option<Ended>,
    lost: Option<String>,
    asked: Option<Signal>,
}

/// Only ever goes forward.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Kept,
    Stopping,
    /// The deadline has passed and CMD's group was killed by tenure too.
    Overdue,
    /// The guardian did not do its work and was killed.
    TakenOver,
}

impl Supervisor<'_> {
    async fn until_it_is_over(&mut self) -> io::Result<Ended> {
        match self.start().await? {
            Some(ended) => Ok(ended),
            None => self.watch().await,
        }
    }

    /// Lets CMD start; how it ended when it does not.
    async fn start(&mut self) -> io::Result<Option<Ended>> {
        let mut stopping = pin!(self.lease.stopping());
        let (mut armed, clock) = (false, Clock::system());
        while !armed || is_lent(self.lease) {
            tokio::select! {
                report = self.guarded.report(), if !armed => match report? {
                    Some(_) => armed = true,
                    None => return Ok(Some(self.take_over().await)),
                },
                arrived = self.signals.next() => {
                    if let Some(signal) = self.hear_early(arrived?) {
                        return Ok(Some(Ended::AskedToEnd(signal)));
                    }
                }
                deadline = self.lease.renewed(self.deadline) => self.tell_deadline(deadline),
                // Under `--hold-at-most` a confirmation need not move the deadline.
                () = clock.sleep(Duration::from_millis(2)), if armed => {}
                () = &mut stopping => {
                    self.lost = Some(match self.lease.state() {
                        State::Lost(loss) => self.loss_line(&loss),
                        _ => format!("the lease on \"{}\" was not confirmed in time", self.lease.name()),
                    });
                    return Ok(Some(Ended::NotStarted));
                }
            }
        }
        self.jobs.begin(&self.guarded);
        while let Some(arrived) = self.signals.at_once() {
            if let Some(signal) = self.hear_early(arrived) {
                return Ok(Some(Ended::AskedToEnd(signal)));
            }
        }
        // The deadline travels along: tenure may be stopped between this line and the exec.
        self.deadline = self.lease.deadline();
        if let Err(error) = self.lease.check() {
            self.lost = Some(error.to_string());
            return Ok(Some(Ended::NotStarted));
        }
        self.guarded.order(Order::Go(self.deadline));
        Ok(None)
    }

    async fn watch(&mut self) -> io::Result<Ended> {
        let mut stopping = pin!(self.lease.stopping());
        let mut lost = pin!(self.lease.lost());
        let mut loss_seen = false;
        let mut linger: Option<Instant> = None;
        loop {
            let clock = Clock::system();
            let kept = self.phase == Phase::Kept;
            let late = if self.phase == Phase::Overdue { OVERDUE } else { Duration::ZERO };
            tokio::select! {
                report = self.guarded.report() => match report? {
                    Some(Report::Empty) => return Ok(self.ended.unwrap_or(Ended::GuardianKilled)),
                    Some(report) => {
                        self.hear(report);
                        linger = self.ended.map(|_| clock.now() + LINGER);
                    }
                    None => return Ok(self.take_over().await),
                },
                arrived = self.signals.next() => self.hear_signal(arrived?),
                deadline = self.lease.renewed(self.deadline), if kept => self.tell_deadline(deadline),
                () = &mut stopping, if kept => self.stop(),
                loss = &mut lost, if !loss_seen => {
                    loss_seen = true;
                    self.lose(&loss);
                }
                () = clock.sleep_until(self.deadline + late), if self.must_insist() => self.insist(),
                () = clock.sleep_until(linger.unwrap_or_default()), if linger.is_some() => {
                    linger = None;
                    self.tell_of_leftovers();
                }
            }
        }
    }

    fn tell_deadline(&mut self, deadline: Instant) {
        self.deadline = deadline;
        self.guarded.order(Order::Deadline(deadline));
    }

    fn hear(&mut self, report: Report) {
        match report {
            Report::Ended { status, killed } => {
                self.ended = Some(Ended::Command(status));
                self.jobs.end(&self.guarded, has_exited(self.ended));
                self.note_loss(killed);
            }
            Report::NotExecuted(errno) => self.ended = Some(Ended::NotExecuted(errno)),
            Report::TooLate => {
                self.ended = Some(Ended::NotStarted);
                self.note_loss(true);
            }
            Report::Stopped(signal) => self.jobs.suspend(&self.guarded, self.lease, self.spare, signal),
            Report::Held(_) | Report::Empty => {}
        }
    }

    /// While CMD is not started yet; the signal that asks for the end.
    fn hear_early(&mut self, arrived: Arrived) -> Option<Signal> {
        match arrived.signal {
            Signal::CHILD => _ = self.guarded.reap(),
            Signal::TSTP => signals::stop_by(Stop::Asked),
            signal if arrived.is_ending() => {
                self.asked = Some(signal);
                return Some(signal);
            }
            _ => {}
        }
        None
    }

    fn hear_signal(&mut self, arrived: Arrived) {
        if self.ended.is_none() && ASKS.contains(&arrived.signal) {
            self.asked = self.asked.or(Some(arrived.signal));
        }
        match arrived.signal {
            Signal::CHILD => _ = self.guarded.reap(),
            Signal::CONT => self.jobs.go_on(&self.guarded, self.lease, self.spare),
            Signal::TSTP if self.ended.is_some() => self.jobs.stop(&self.guarded, self.lease, self.spare),
            _ if self.guarded.has_got(&arrived) => {}
            Signal::TSTP => self.jobs.stop(&self.guarded, self.lease, self.spare),
            signal => {
                self.guarded.signal(signal);
                // What is stopped would not hear that it is asked to end.
                if ASKS.contains(&signal) && (signal != Signal::INT || self.ended.is_some()) {
                    self.guarded.signal(Signal::CONT);
                }
            }
        }
    }

    /// From here on there is no way back, also if the store answers again.
    fn stop(&mut self) {
        self.phase = self.phase.max(Phase::Stopping);
        if self.spare {
            return;
        }
        self.guarded.order(Order::Stopping);
        if self.ended.is_some() {
            return;
        }
        let left = text::duration(self.deadline - Clock::system().now());
        say(format!("the lease on \"{}\" ends in {left}: asking the command to end", self.lease.name()));
        self.guarded.terminate();
    }

    fn lose(&mut self, loss: &tenure::Loss) {
        if self.spare {
            if self.ended.is_none() {
                say(format!("{}; the command runs on without protection", self.loss_line(loss)));
            }
            return;
        }
        if self.phase == Phase::Kept {
            self.stop();
        }
        // Somebody else may hold it already: no more than the time kept for stopping.
        let soon = Clock::system().now() + self.lease.grace();
        if soon < self.deadline {
            self.tell_deadline(soon);
        }
    }

    /// False once there is no more to do: what is always ready would starve all else.
    fn must_insist(&self) -> bool {
        !self.spare && matches!(self.phase, Phase::Stopping | Phase::Overdue)
    }

    /// The guardian kills at the deadline. Should it be stopped, tenure does.
    fn insist(&mut self) {
        if self.phase < Phase::Overdue {
            self.phase = Phase::Overdue;
            self.guarded.signal(Signal::KILL);
        } else {
            self.phase = Phase::TakenOver;
            self.guarded.kill_guardian();
        }
    }

    async fn take_over(&mut self) -> Ended {
        self.guarded.kill_all().await;
        self.note_loss(false);
        Ended::GuardianKilled
    }

    fn note_loss(&mut self, killed: bool) {
        let name = self.lease.name();
        self.lost = match self.lease.state() {
            State::Lost(loss) => Some(self.loss_line(&loss)),
            State::Stopping { left } => Some(format!(
                "the lease on \"{name}\" was not renewed in time: the command ended {} before its deadline",
                text::duration(left)
            )),
            _ if killed => Some(format!("the lease on \"{name}\" reached its deadline")),
            _ => None,
        };
    }

    fn loss_line(&self, loss: &tenure::Loss) -> String {
        let at = text::time(text::wall(loss.at));
        let error = loss.last_error.as_ref().map(|error| format!(" (last error: {error})"));
        format!(
            "the lease on \"{}\" was lost at {at}: {}{}",
            self.lease.name(),
            loss.reason,
            error.unwrap_or_default()
        )
    }

    fn tell_of_leftovers(&self) {
        if let Some(running) = self.guarded.still_running() {
            say(format!("the command has ended; waiting for what runs on in its group: {running}"));
        }
    }
}
