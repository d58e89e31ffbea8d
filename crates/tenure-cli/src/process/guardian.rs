//! The guardian: CMD's parent, which sees to it that CMD and all that came of
//! it are dead by the deadline, also when tenure is stopped, wedged or killed.
//!
//! A process of one thread that waits for nothing but its three descriptors. It
//! opens no store and reads no file, so that nothing can delay it.

use super::briefing::{Briefing, Duties};
use super::held::{Held, NotStarted};
use super::message::{Order, Report, SIZE};
use super::tree::{self, Crew};
use super::unsafe_calls::{self, Mask};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::process::{Signal, WaitStatus};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use tenure::Clock;

/// How often /proc is asked whether only zombies are left in CMD's group.
const LOOK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// How often what does not die at once is killed again.
const AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// Runs as the guardian that `words` describe. An error means that CMD did not start.
pub(crate) fn guard(words: impl IntoIterator<Item = OsString>) -> io::Result<()> {
    // Deaf to everything but SIGKILL; the dispositions stay, for CMD.
    Mask::all().set();
    let briefing = Briefing::parse(words).ok_or(io::ErrorKind::InvalidInput)?;
    for fd in [Some(&briefing.control), briefing.liveness.as_ref()].into_iter().flatten() {
        rustix::io::ioctl_fioclex(fd)?;
    }
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let children = unsafe_calls::signalfd(&Mask::of([libc::SIGCHLD]))?;
    let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
    // People would see the name of the link that it was started by.
    let _ = rustix::thread::set_name(c"tenure");
    let held = Held::fork(briefing.command, briefing.duties.shared, &briefing.inherited)?;
    let crew = if briefing.duties.shared {
        let shared = tree::this_process().ok_or(io::ErrorKind::NotFound)?.group;
        // Only now: CMD was to be born into tenure's group.
        rustix::process::setpgid(None, None)?;
        Crew::Below { root: rustix::process::getpid(), group: shared }
    } else {
        Crew::Group(held.pid)
    };
    let mut guardian = Guardian {
        control: Some(briefing.control),
        children,
        timer,
        held,
        crew,
        duties: briefing.duties,
        ended: None,
        stopping: false,
        killed: false,
    };
    guardian.report(Report::Held(guardian.held.pid.as_raw_nonzero().get()));
    guardian.watch()
}

struct Guardian {
    /// `None` once tenure is gone.
    control: Option<OwnedFd>,
    children: OwnedFd,
    timer: OwnedFd,
    held: Held,
    crew: Crew,
    duties: Duties,
    ended: Option<WaitStatus>,
    stopping: bool,
    killed: bool,
}

impl Guardian {
    /// Until the work is over or all is dead.
    fn watch(&mut self) -> io::Result<()> {
        loop {
            self.set_timer()?;
            self.wait(self.ended.is_some().then_some(&LOOK))?;
            self.obey();
            let has_children = self.reap();
            // First: whoever ended the group at the deadline has not ended what left it.
            let late = Clock::system().now() >= self.duties.deadline;
            if (late || self.control.is_none()) && !self.duties.spare && !self.is_done() {
                return self.kill_all();
            }
            if self.is_over() && !(self.stopping && has_children && !self.duties.close) {
                self.report(Report::Empty);
                return Ok(());
            }
        }
    }

    /// With `--close`, whatever runs on.
    fn is_done(&self) -> bool {
        self.ended.is_some() && self.duties.close
    }

    fn is_over(&self) -> bool {
        self.ended.is_some() && (self.duties.close || self.crew.is_over())
    }

    /// Returns when none is left; until then the liveness lock is held.
    fn kill_all(&mut self) -> io::Result<()> {
        self.held.forbid();
        self.killed |= self.ended.is_none();
        loop {
            // Once it was seen empty its number may belong to strangers.
            if let Crew::Group(group) = self.crew
                && (self.ended.is_none() || !tree::is_empty(group))
            {
                tree::signal_group(group, Signal::KILL);
            }
            tree::kill_descendants(&[]);
            if !self.reap() {
                self.report(Report::Empty);
                return Ok(());
            }
            self.wait(Some(&AGAIN))?;
        }
    }

    /// Until something can be read, or for `limit`.
    fn wait(&self, limit: Option<&Timespec>) -> io::Result<()> {
        let mut sources =
            vec![PollFd::new(&self.children, PollFlags::IN), PollFd::new(&self.timer, PollFlags::IN)];
        // While killing nobody reads the orders, and they would end each wait at once.
        if let (Some(control), false) = (&self.control, self.killed) {
            sources.push(PollFd::new(control, PollFlags::IN));
        }
        match poll(&mut sources, limit) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut drained = [0; 128];
        let _ = rustix::io::read(&self.children, &mut drained);
        let _ = rustix::io::read(&self.timer, &mut drained);
        Ok(())
    }

    /// Wakes at the deadline by the clock that counts suspend.
    fn set_timer(&self) -> io::Result<()> {
        let nanos = if self.duties.spare { 0 } else { self.duties.deadline.as_nanos().max(1) };
        let deadline =
            Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as _ };
        let once = Itimerspec { it_interval: Timespec::default(), it_value: deadline };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once)?;
        Ok(())
    }

    /// Reads all orders that have come.
    fn obey(&mut self) {
        while let Some(control) = &self.control {
            let mut bytes = [0; SIZE];
            match recv(control, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((_, length)) if length > 0 => match Order::decode(&bytes[..length.min(SIZE)]) {
                    Some(Order::Go(deadline)) => {
                        self.duties.deadline = deadline;
                        self.held.go(deadline);
                    }
                    Some(Order::Deadline(deadline)) => self.duties.deadline = deadline,
                    Some(Order::Stopping) => self.stopping = true,
                    None => {}
                },
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // Closed: tenure has ended, however it did.
                Ok(_) | Err(_) => {
                    self.held.forbid();
                    self.control = None;
                }
            }
        }
    }

    /// Reaps, and reports CMD's end; whether children are left.
    fn reap(&mut self) -> bool {
        let (mut ended, mut stopped) = (None, None);
        let cmd = self.held.pid;
        let left = tree::reap(|pid, status| match status.stopping_signal() {
            _ if pid != cmd => {}
            Some(signal) => stopped = Some(signal),
            None => ended = Some(status),
        });
        if let Some(signal) = stopped {
            self.report(Report::Stopped(signal));
        }
        if let Some(status) = ended {
            self.ended = ended;
            self.report(match self.held.not_started() {
                Some(NotStarted::TooLate) => Report::TooLate,
                Some(NotStarted::Errno(errno)) => Report::NotExecuted(errno),
                // Killed by somebody else it is a command that was killed.
                None if self.held.is_untold() && self.killed => Report::TooLate,
                None => Report::Ended { status: status.as_raw(), killed: self.killed },
            });
        }
        left
    }

    /// Tells tenure, if it is there.
    fn report(&self, report: Report) {
        if let Some(control) = &self.control {
            let _ = send(control, &report.encode(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        }
    }
}
