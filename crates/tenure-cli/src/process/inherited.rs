//! What the caller gave this process and CMD must get: blocked and ignored signals.

use super::unsafe_calls::{self, Mask};
use std::io;

/// Signals as the caller had them, where this process changes them for itself.
#[derive(Clone, Copy)]
pub(crate) struct Inherited {
    mask: Mask,
    pipe_ignored: bool,
    child_ignored: bool,
}

impl Inherited {
    /// Notes them. First thing in `main`.
    ///
    /// SIGCHLD gets its default action: while it is ignored the kernel reaps
    /// children itself, and their ends cannot be learned.
    pub(crate) fn take() -> Inherited {
        let child_ignored = unsafe_calls::is_ignored(libc::SIGCHLD);
        unsafe_calls::set_ignored(libc::SIGCHLD, false);
        Inherited { mask: Mask::current(), pipe_ignored: unsafe_calls::pipe_was_ignored(), child_ignored }
    }

    /// Makes everything as it was; right before an exec, with system calls only.
    pub(super) fn give_back(&self) -> io::Result<()> {
        unsafe_calls::set_ignored(libc::SIGPIPE, self.pipe_ignored);
        unsafe_calls::set_ignored(libc::SIGCHLD, self.child_ignored);
        unsafe_calls::close_what_was_closed();
        self.mask.set();
        Ok(())
    }
}
