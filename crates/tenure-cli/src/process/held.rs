//! CMD, forked and held: it waits for the word to start.

use super::inherited::Inherited;
use super::unsafe_calls;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal};
use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use tenure::{Clock, Instant};

/// The guardian's side of a CMD that was not executed yet.
pub(super) struct Held {
    pub(super) pid: Pid,
    /// Takes the deadline, which is the word to start. Closed: CMD never starts.
    start: Option<OwnedFd>,
    told: bool,
    /// Says why the exec failed; at its end when it did not.
    failure: OwnedFd,
}

/// Why CMD did not start.
pub(super) enum NotStarted {
    TooLate,
    Errno(i32),
}

impl Held {
    /// Forks CMD, into a group of its own or `shared` with this process; with the guardian it dies.
    pub(super) fn fork(command: Vec<OsString>, shared: bool, inherited: &Inherited) -> io::Result<Held> {
        let argv = command
            .into_iter()
            .map(|word| CString::new(word.into_vec()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(io::Error::from)?;
        let (start_read, start) = pipe_with(PipeFlags::CLOEXEC)?;
        let (failure, failure_write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let guardian = rustix::process::getpid();
        let Some(pid) = unsafe_calls::fork()? else {
            drop(start);
            let reason = start_when_told(guardian, &argv, shared, inherited, &start_read);
            let _ = rustix::io::write(&failure_write, &reason.to_ne_bytes());
            unsafe_calls::exit_now(127);
        };
        // By both, so that the group is there whoever runs first.
        if !shared {
            let _ = rustix::process::setpgid(Some(pid), Some(pid));
        }
        Ok(Held { pid, start: Some(start), told: false, failure })
    }

    /// Lets CMD start if this deadline has not passed by then.
    pub(super) fn go(&mut self, deadline: Instant) {
        if let Some(start) = self.start.take() {
            self.told = true;
            let _ = rustix::io::write(start, &deadline.as_nanos().to_ne_bytes());
        }
    }

    /// CMD never starts, unless it was told to before.
    pub(super) fn forbid(&mut self) {
        self.start = None;
    }

    /// Whether CMD never got the word to start.
    pub(super) fn is_untold(&self) -> bool {
        !self.told
    }

    /// Why CMD did not start, as far as is known now.
    pub(super) fn not_started(&self) -> Option<NotStarted> {
        let mut bytes = [0; 4];
        match rustix::io::read(&self.failure, &mut bytes) {
            Ok(4) => Some(match i32::from_ne_bytes(bytes) {
                LATE => NotStarted::TooLate,
                errno => NotStarted::Errno(errno),
            }),
            _ => None,
        }
    }
}

const LATE: i32 = libc::ETIME;

/// In the child. Returns why CMD was not executed.
fn start_when_told(
    guardian: Pid,
    argv: &[CString],
    shared: bool,
    inherited: &Inherited,
    start: &OwnedFd,
) -> i32 {
    let prepare = || -> rustix::io::Result<()> {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The guardian may have died before the line above: no signal comes then.
        if rustix::process::getppid() != Some(guardian) {
            return Err(Errno::SRCH);
        }
        if shared { Ok(()) } else { rustix::process::setpgid(None, None) }
    };
    if let Err(error) = prepare() {
        return error.raw_os_error();
    }
    let mut deadline = [0; 8];
    if rustix::io::read(start, &mut deadline) != Ok(8) {
        return LATE;
    }
    let deadline = Instant::from_nanos(u64::from_ne_bytes(deadline));
    inherited.give_back();
    // Last, since this process or those that sent the word may have been stopped on the way.
    if Clock::system().now() >= deadline {
        return LATE;
    }
    unsafe_calls::exec(argv).raw_os_error().unwrap_or(libc::EIO)
}
