//! What the caller gave this process and CMD must get: signals that are blocked or ignored,
//! and streams that are closed.

use super::unsafe_calls::{self, Mask};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;

/// Takes over a descriptor that the caller passed for this process and not for CMD.
pub(crate) fn take_for_writing(number: i32) -> io::Result<OwnedFd> {
    let descriptor = unsafe_calls::adopt(number)?;
    rustix::io::ioctl_fioclex(&descriptor)?;
    let mode = rustix::fs::fcntl_getfl(&descriptor)? & OFlags::RWMODE;
    if mode == OFlags::RDONLY { Err(Errno::BADF.into()) } else { Ok(descriptor) }
}

/// The caller gave no standard output: what stands there now leads to /dev/null.
pub(crate) fn stdout_was_closed() -> bool {
    unsafe_calls::streams_were_closed()[1]
}

/// What the caller had, where this process changes it for itself.
#[derive(Clone, Copy)]
pub(crate) struct Inherited {
    mask: Mask,
    pipe_ignored: bool,
    child_ignored: bool,
    closed: [bool; 3],
}

impl Inherited {
    /// Notes it. First thing in `main`.
    ///
    /// SIGCHLD gets its default action: while it is ignored the kernel reaps
    /// children itself, and their ends cannot be learned.
    pub(crate) fn take() -> Inherited {
        let child_ignored = unsafe_calls::is_ignored(libc::SIGCHLD);
        unsafe_calls::set_ignored(libc::SIGCHLD, false);
        Inherited {
            mask: Mask::current(),
            pipe_ignored: unsafe_calls::pipe_was_ignored(),
            child_ignored,
            closed: unsafe_calls::streams_were_closed(),
        }
    }

    /// For the guardian's command line: it inherits what tenure made of it.
    pub(super) fn word(&self) -> String {
        let [a, b, c] = self.closed;
        let bits = [self.pipe_ignored, self.child_ignored, a, b, c].map(|yes| if yes { '1' } else { '0' });
        format!("{}:{:x}", bits.iter().collect::<String>(), self.mask.bits())
    }

    /// The same in the guardian.
    pub(super) fn parse(word: &str) -> Option<Inherited> {
        let (bits, mask) = word.split_once(':')?;
        let mask = Mask::from_bits(u64::from_str_radix(mask, 16).ok()?);
        let bits: Vec<bool> = bits.chars().map(|bit| bit == '1').collect();
        let [pipe_ignored, child_ignored, closed @ ..] = bits.as_slice() else { return None };
        let closed = closed.try_into().ok()?;
        Some(Inherited { mask, pipe_ignored: *pipe_ignored, child_ignored: *child_ignored, closed })
    }

    /// Makes everything as it was; right before an exec, with system calls only.
    pub(super) fn give_back(&self) {
        unsafe_calls::set_ignored(libc::SIGPIPE, self.pipe_ignored);
        unsafe_calls::set_ignored(libc::SIGCHLD, self.child_ignored);
        for (fd, closed) in (0..).zip(self.closed) {
            if closed {
                unsafe_calls::close_stream(fd);
            }
        }
        self.mask.set();
    }
}
