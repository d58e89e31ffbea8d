//! tenure's side of the guardian: starts it, talks with it, and does its work when it dies.

use super::briefing::{self, Duties};
use super::inherited::Inherited;
use super::message::{Order, Report, SIZE};
use super::signals::Arrived;
use super::tree::{self, Crew};
use super::unsafe_calls;
use rustix::io::FdFlags;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use rustix::process::{Pid, Signal, WaitOptions};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;
use tenure::Clock;
use tokio::io::unix::AsyncFd;

/// A guardian and what it guards.
pub(crate) struct Guarded {
    guardian: Pid,
    guardian_reaped: bool,
    control: AsyncFd<OwnedFd>,
    /// Children that the caller had started before it became tenure: not ours to kill.
    strangers: Vec<Pid>,
    cmd: Option<Pid>,
    /// tenure's own group, if CMD is in it.
    shared: Option<i32>,
    /// While something of it may run.
    crew: Option<Crew>,
}

impl Guarded {
    /// Starts a guardian, which forks and holds `command`. `environment` is set for both.
    pub(crate) fn start(
        command: &[OsString],
        environment: impl FnOnce(&mut Command),
        duties: Duties,
        liveness: Option<BorrowedFd<'_>>,
        inherited: Inherited,
    ) -> io::Result<Guarded> {
        let strangers = tree::children();
        // Were the guardian killed, what it guards would otherwise be init's.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;

        let shared = duties.shared.then(|| tree::this_process().map_or(0, |process| process.group));
        let mut guardian = Command::new("/proc/self/exe");
        guardian.arg0("tenure");
        if shared.is_none() {
            guardian.process_group(0);
        }
        guardian.args(briefing::words(
            theirs.as_raw_fd(),
            liveness.map(|fd| fd.as_raw_fd()),
            duties,
            &inherited,
        ));
        guardian.args(command);
        environment(&mut guardian);
        // It starts nobody else meanwhile. With a hook in the child std would fork and copy the
        // page tables, which takes longer than all else here.
        let pass = |flags| {
            let mut passed = [Some(theirs.as_fd()), liveness].into_iter().flatten();
            passed.try_for_each(|fd| rustix::io::fcntl_setfd(fd, flags))
        };
        pass(FdFlags::empty())?;
        let child = guardian.spawn().map_err(|error| {
            io::Error::new(error.kind(), format!("cannot start the guardian from /proc/self/exe: {error}"))
        })?;
        pass(FdFlags::CLOEXEC)?;
        let guardian = Pid::from_raw(child.id() as i32).expect("a child's number is positive");
        Ok(Guarded {
            guardian,
            guardian_reaped: false,
            control: unsafe_calls::watch(ours)?,
            strangers,
            cmd: None,
            shared,
            crew: None,
        })
    }

    /// The guardian's next report; `None` when it has ended. Cancel safe.
    pub(crate) async fn report(&mut self) -> io::Result<Option<Report>> {
        let report = loop {
            let mut ready = self.control.readable().await?;
            let mut bytes = [0; SIZE];
            let received = ready.try_io(|control| Ok(recv(control, &mut bytes, RecvFlags::DONTWAIT)?));
            match received {
                Ok(Ok((_, 0))) => break None,
                Ok(Ok((_, length))) => break Report::decode(&bytes[..length.min(SIZE)]),
                // Reset: it ended with an order unread. What it had said comes after that.
                Ok(Err(error)) if may_have_more(&error) => {}
                Ok(Err(_)) => break None,
                Err(_not_ready) => {}
            }
        };
        match report {
            Some(Report::Held(cmd)) => {
                self.cmd = Pid::from_raw(cmd);
                self.crew = self.cmd.map(|cmd| match self.shared {
                    Some(group) => Crew::Below { root: self.guardian, group },
                    None => Crew::Group(cmd),
                });
            }
            Some(Report::Empty) => self.crew = None,
            _ => {}
        }
        Ok(report)
    }

    /// Tells the guardian. One that has died, or was stopped for hundreds of orders, hears nothing.
    pub(crate) fn order(&self, order: Order) {
        let _ = send(&self.control, &order.encode(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }

    /// Sends `signal` to CMD and what runs along with it.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(crew) = self.crew {
            crew.signal(signal);
        }
    }

    /// Asks CMD, what runs along with it, and what left it, to end; also what is stopped.
    pub(crate) fn terminate(&self) {
        if let Some(crew) = self.crew {
            crew.signal_all(self.guardian, Signal::TERM);
            crew.signal_all(self.guardian, Signal::CONT);
        }
    }

    /// CMD's own group, which can be given the terminal.
    pub(crate) fn own_group(&self) -> Option<Pid> {
        self.cmd.filter(|_| self.shared.is_none())
    }

    /// Whether anything that runs along with CMD is stopped.
    pub(crate) fn has_stopped(&self) -> bool {
        self.crew.is_some_and(|crew| crew.members().iter().any(|member| member.is_stopped))
    }

    /// Whether somebody could continue tenure if it were stopped.
    pub(crate) fn is_watched_over(&self) -> bool {
        tree::is_watched_over(self.guardian)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.cmd.is_some_and(tree::is_stopped)
    }

    /// Whether a signal that came to tenure reached CMD as well, since it was sent to the group
    /// that both are in. From outside it cannot be told from one to tenure alone.
    pub(crate) fn has_got(&self, arrived: &Arrived) -> bool {
        let Some(sender) = self.shared.map(|_| arrived.sender) else { return false };
        match sender.map(Pid::from_raw) {
            // A terminal that hangs up tells only its session's leader.
            None => !(arrived.signal == Signal::HUP && leads_session()),
            Some(pid) => pid.is_some_and(|pid| tree::descends(pid, self.guardian)),
        }
    }

    /// What runs in CMD's group, as `program (pid), ...`.
    pub(crate) fn still_running(&self) -> Option<String> {
        let members = self.crew?.members();
        let mut names: Vec<String> = members
            .iter()
            .take(5)
            .map(|process| {
                format!("{} ({})", tenure::escaped(&process.program), process.pid.as_raw_nonzero())
            })
            .collect();
        if members.len() > names.len() {
            names.push(format!("{} more", members.len() - names.len()));
        }
        (!names.is_empty()).then(|| names.join(", "))
    }

    /// Reaps what has ended. As PID 1, or once the guardian is dead, tenure inherits.
    pub(crate) fn reap(&mut self) -> bool {
        tree::reap(|pid, status| {
            if !status.stopped() {
                self.guardian_reaped |= pid == self.guardian;
                self.strangers.retain(|stranger| *stranger != pid);
            }
        })
    }

    /// Ends a guardian that does not do its work.
    pub(crate) fn kill_guardian(&self) {
        if !self.guardian_reaped {
            let _ = rustix::process::kill_process(self.guardian, Signal::KILL);
        }
    }

    /// After the guardian's death: kills CMD's group and everything that came to this process
    /// with it. Returns when nothing is left.
    pub(crate) async fn kill_all(&mut self) {
        if !self.guardian_reaped {
            // Its children are ours only when it is a zombie; it is about to be one.
            let wait = || rustix::process::waitpid(Some(self.guardian), WaitOptions::empty());
            let _ = rustix::io::retry_on_intr(wait);
            self.guardian_reaped = true;
        }
        loop {
            let group = match self.crew {
                Some(group @ Crew::Group(_)) => Some(group),
                // Its members are descendants of this process now.
                _ => None,
            };
            if let Some(group) = group {
                group.signal(Signal::KILL);
            }
            tree::kill_descendants(&self.strangers);
            let children = self.reap();
            if group.is_none_or(Crew::is_over) {
                self.crew = None;
            }
            let ours = children && tree::children().iter().any(|pid| !self.strangers.contains(pid));
            if !ours && self.crew.is_none() {
                return;
            }
            Clock::system().sleep(Duration::from_millis(5)).await;
        }
    }
}

fn leads_session() -> bool {
    tree::this_process().is_some_and(|process| process.session == process.pid.as_raw_nonzero().get())
}

fn may_have_more(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionReset)
}
