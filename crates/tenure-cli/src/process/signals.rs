//! The signals that tenure hears instead of being ended or stopped by them.
//!
//! They are blocked and read from a descriptor, which tells who sent each: what the terminal
//! sends to a whole group must not reach CMD a second time.

use super::tree;
use super::unsafe_calls::{self, Mask};
use rustix::process::Signal;
use std::io;
use std::os::fd::OwnedFd;
use tokio::io::unix::AsyncFd;

/// They would end tenure; CMD gets them.
const ENDING: [i32; 7] =
    [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2, libc::SIGPIPE];
/// They would not.
const OTHERS: [i32; 2] = [libc::SIGWINCH, libc::SIGTSTP];
/// Heard even if they are ignored: tenure's own work hangs on them.
const ALWAYS: [i32; 2] = [libc::SIGCHLD, libc::SIGCONT];
/// Neither a message to a terminal that is another's nor a question about one may stop tenure:
/// a process that is stopped renews nothing.
const DEAF_TO: [i32; 2] = [libc::SIGTTOU, libc::SIGTTIN];

/// A signal that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrived {
    pub(crate) signal: Signal,
    /// `None`: the kernel, to everybody in a group, as at a key of the terminal.
    pub(crate) sender: Option<i32>,
}

impl Arrived {
    /// Whether it is one that ends a process which does nothing about it.
    pub(crate) fn is_ending(&self) -> bool {
        ENDING.contains(&self.signal.as_raw())
    }
}

/// Hears from its creation on: what comes before it is asked for is not lost.
pub(crate) struct Signals(AsyncFd<OwnedFd>);

impl Signals {
    /// Before any other thread is started. Signals that the caller ignores stay ignored.
    pub(crate) fn listen() -> io::Result<Signals> {
        let is_ignored = |signal: &i32| match *signal {
            libc::SIGPIPE => unsafe_calls::pipe_was_ignored(),
            other => unsafe_calls::is_ignored(other),
        };
        let heard = ENDING.into_iter().chain(OTHERS).filter(|signal| !is_ignored(signal)).chain(ALWAYS);
        let heard = Mask::of(heard);
        heard.block();
        Mask::of(DEAF_TO).block();
        Ok(Signals(unsafe_calls::watch(unsafe_calls::signalfd(&heard)?)?))
    }

    /// The next one. Cancel safe.
    pub(crate) async fn next(&mut self) -> io::Result<Arrived> {
        loop {
            let mut ready = self.0.readable().await?;
            match ready.try_io(|fd| read(fd.get_ref())) {
                Ok(Ok(Some(arrived))) => return Ok(arrived),
                Ok(Ok(None)) => {}
                Ok(Err(error)) => return Err(error),
                Err(_not_ready) => {}
            }
        }
    }

    /// One that has come already.
    pub(crate) fn at_once(&mut self) -> Option<Arrived> {
        loop {
            match read(self.0.get_ref()) {
                Ok(None) => {}
                answer => return answer.ok().flatten(),
            }
        }
    }

    /// The next one that asks tenure itself to end: while it waits there is no CMD to end.
    /// Also stops when it is told to, and buries orphans, as PID 1 must.
    pub(crate) async fn asked_to_end(&mut self) -> io::Result<Signal> {
        loop {
            let arrived = self.next().await?;
            match arrived.signal {
                Signal::TSTP => stop_by(Stop::Asked),
                Signal::CHILD => _ = tree::reap(|_, _| {}),
                signal if arrived.is_ending() => return Ok(signal),
                _ => {}
            }
        }
    }
}

/// `None`: nothing of interest.
fn read(fd: &OwnedFd) -> io::Result<Option<Arrived>> {
    // The kernel's `signalfd_siginfo`: the signal's number, an error, where from, who.
    let mut bytes = [0; 128];
    rustix::io::read(fd, &mut bytes)?;
    let number = |at: usize| bytes[at..].first_chunk().map(|bytes| i32::from_ne_bytes(*bytes));
    let (number, code, pid) = (number(0), number(8), number(12));
    let sender = pid.filter(|_| code != Some(libc::SI_KERNEL));
    // Our own writing to a pipe without a reader.
    let is_own = sender == Some(rustix::process::getpid().as_raw_nonzero().get());
    let signal = number.and_then(Signal::from_named_raw).filter(|_| !is_own);
    Ok(signal.map(|signal| Arrived { signal, sender }))
}

/// Why a process is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// It was asked to, as by Ctrl-Z.
    Asked,
    /// It wanted to read from the terminal while others have it.
    Reading,
    /// It wanted to write to it or change it.
    Writing,
}

impl Stop {
    pub(super) fn by(signal: i32) -> Stop {
        match signal {
            libc::SIGTTIN => Stop::Reading,
            libc::SIGTTOU => Stop::Writing,
            _ => Stop::Asked,
        }
    }

    /// In the background, where the report of an earlier stop may come late: what the kernel
    /// has told the whole group since then counts.
    pub(super) fn in_background(signal: i32) -> Stop {
        match signal {
            _ if unsafe_calls::is_pending(&[libc::SIGTTIN]) => Stop::Reading,
            _ if unsafe_calls::is_pending(&[libc::SIGTTOU]) => Stop::Writing,
            signal => Stop::by(signal),
        }
    }

    pub(super) fn wants_terminal(self) -> bool {
        self != Stop::Asked
    }
}

/// Whether the group was told to stop just now, so that who is found stopped is so anew.
pub(super) fn is_stopping() -> bool {
    unsafe_calls::is_pending(&[libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU])
}

/// Stops this process, whose shell is told why, and returns when it was continued.
pub(super) fn stop_by(stop: Stop) {
    unsafe_calls::stop_by(match stop {
        Stop::Asked => libc::SIGTSTP,
        Stop::Reading => libc::SIGTTIN,
        Stop::Writing => libc::SIGTTOU,
    });
}

/// What people call it.
pub(crate) fn name(signal: Signal) -> &'static str {
    match signal {
        Signal::TERM => "TERM",
        Signal::INT => "INT",
        Signal::HUP => "HUP",
        Signal::QUIT => "QUIT",
        Signal::USR1 => "USR1",
        Signal::USR2 => "USR2",
        Signal::PIPE => "PIPE",
        _ => "another",
    }
}

/// Ends this process by `signal`, so that whoever waits for it sees the same
/// end as without tenure. Without a core: the crash was CMD's.
///
/// Returns where that is impossible, as for PID 1.
pub(crate) fn die_of(signal: i32) {
    let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
    unsafe_calls::raise_default(signal);
}
