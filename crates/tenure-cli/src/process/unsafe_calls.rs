//! The only unsafe code: what the system offers and neither std nor rustix does.
//!
//! Each function says why it is sound. Signals are plain numbers here.
#![allow(unsafe_code, reason = "the one file that owns it")]

use rustix::process::Pid;
use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::unix::AsyncFd;

static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);
static CLOSED: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

/// Rust's runtime ignores SIGPIPE and opens /dev/null on closed standard
/// streams before `main`; CMD must get what the caller gave, so it is noted
/// before that.
///
/// Sound: the loader runs it once, alone, after libc is ready; it only asks the
/// kernel and stores into atomics.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE_BEFORE_MAIN: extern "C" fn() = {
    extern "C" fn note() {
        PIPE_IGNORED.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
        for (fd, closed) in CLOSED.iter().enumerate() {
            let flags = unsafe { libc::fcntl(fd as RawFd, libc::F_GETFD) };
            closed.store(flags == -1, Ordering::Relaxed);
        }
    }
    note
};

/// Whether the caller ignored SIGPIPE.
pub(super) fn pipe_was_ignored() -> bool {
    PIPE_IGNORED.load(Ordering::Relaxed)
}

/// Which standard streams the caller had closed.
pub(super) fn streams_were_closed() -> [bool; 3] {
    [0, 1, 2].map(|fd: usize| CLOSED[fd].load(Ordering::Relaxed))
}

/// Closes a standard stream. Only right before an exec.
///
/// Sound there: what owns it is gone with the program's image.
pub(super) fn close_stream(fd: RawFd) {
    unsafe { libc::close(fd) };
}

/// Whether this process ignores `signal`. Sound: only asks.
pub(super) fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    unsafe {
        libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Ignores `signal`, or gives it its default action. Sound: installs no code.
pub(super) fn set_ignored(signal: i32, ignored: bool) {
    let action = if ignored { libc::SIG_IGN } else { libc::SIG_DFL };
    unsafe { libc::signal(signal, action) };
}

/// A set of blocked signals.
#[derive(Clone, Copy)]
pub(super) struct Mask(libc::sigset_t);

impl Mask {
    /// Every signal. Sound: `sigfillset` writes the whole set.
    pub(super) fn all() -> Mask {
        let mut set = MaybeUninit::uninit();
        unsafe {
            libc::sigfillset(set.as_mut_ptr());
            Mask(set.assume_init())
        }
    }

    /// Only these. Sound as above; a number that libc keeps to itself is left out.
    pub(super) fn of(signals: impl IntoIterator<Item = i32>) -> Mask {
        let mut set = MaybeUninit::uninit();
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in signals {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            Mask(set.assume_init())
        }
    }

    /// Those whose bits are set, of which SIGHUP's is the lowest.
    pub(super) fn from_bits(bits: u64) -> Mask {
        Mask::of((1..=64).filter(|signal| bits >> (signal - 1) & 1 == 1))
    }

    /// The same the other way round. Sound: only asks.
    pub(super) fn bits(&self) -> u64 {
        let has = |signal| unsafe { libc::sigismember(&self.0, signal) } == 1;
        (1..=64).filter(|signal| has(*signal)).fold(0, |bits, signal| bits | 1 << (signal - 1))
    }

    /// What this thread blocks. Sound: only asks.
    pub(super) fn current() -> Mask {
        let mut set = MaybeUninit::zeroed();
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, ptr::null(), set.as_mut_ptr());
            Mask(set.assume_init())
        }
    }

    /// Makes this what the thread blocks. Sound: a valid set.
    pub(super) fn set(&self) {
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, ptr::null_mut()) };
    }

    /// Blocks these too, also for threads that this one starts.
    pub(super) fn block(&self) {
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &self.0, ptr::null_mut()) };
    }

    fn unblock(&self) {
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &self.0, ptr::null_mut()) };
    }
}

/// A descriptor that is readable when a blocked signal of `mask` is pending.
///
/// Sound: the kernel gave it to us alone.
pub(super) fn signalfd(mask: &Mask) -> io::Result<OwnedFd> {
    let fd = unsafe { libc::signalfd(-1, &mask.0, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    if fd == -1 { Err(io::Error::last_os_error()) } else { Ok(unsafe { OwnedFd::from_raw_fd(fd) }) }
}

/// Takes over a descriptor that this process was given by number.
///
/// Sound when called once for each number that the command line names, before anything else
/// is opened: nothing else knows them.
pub(super) fn adopt(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 3 || unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Waits for a descriptor with the runtime. Sound: an `OwnedFd` names the same file while it lives.
pub(super) fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    Ok(unsafe { AsyncFd::register(fd) }?)
}

/// Forks; `None` in the child.
///
/// Sound in a process of one thread, which the guardian is: the child's memory,
/// the allocator's locks included, is whole.
pub(super) fn fork() -> io::Result<Option<Pid>> {
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(Pid::from_raw(pid)),
    }
}

/// Becomes the program `argv[0]`, found on PATH; returns only the reason why not.
///
/// Sound: the pointers live through the call and end with a null; nothing else
/// runs that could change the environment.
pub(super) fn exec(argv: &[CString]) -> io::Error {
    let mut pointers: Vec<_> = argv.iter().map(|word: &CString| CStr::as_ptr(word)).collect();
    pointers.push(ptr::null());
    unsafe { libc::execvp(pointers[0], pointers.as_ptr()) };
    io::Error::last_os_error()
}

/// Ends a forked child without running what the parent registered for its own end.
pub(super) fn exit_now(code: i32) -> ! {
    unsafe { libc::_exit(code) }
}

/// Stops this process by `signal`, which is blocked but has its default action; returns when
/// it was continued, or at once where the system does not stop it.
///
/// Sound: no code is installed. Raised first: what is pending already stops it the same once,
/// and is gone when it goes on. The signal that continued it is taken: read later it would
/// seem to undo a stop that came after it.
pub(super) fn stop_by(signal: i32) {
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe {
        libc::raise(signal);
        Mask::of([signal]).unblock();
        Mask::of([signal]).block();
        libc::sigtimedwait(&Mask::of([libc::SIGCONT]).0, ptr::null_mut(), &at_once);
    }
}

/// Whether one of these blocked signals has come and was not read. Sound: only asks.
pub(super) fn is_pending(signals: &[i32]) -> bool {
    let mut pending = MaybeUninit::zeroed();
    unsafe {
        libc::sigpending(pending.as_mut_ptr());
        signals.iter().any(|signal| libc::sigismember(pending.as_ptr(), *signal) == 1)
    }
}

/// Ends this process by `signal` when that is possible.
///
/// Sound: only default actions remain.
pub(super) fn raise_default(signal: i32) {
    set_ignored(signal, false);
    unsafe { libc::raise(signal) };
    Mask::of([signal]).unblock();
}
