//! The controlling terminal: whether CMD gets a group of its own that the terminal is lent to,
//! and how it comes back.

use super::tree::{self, Crew};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::process::Pid;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};
use std::os::fd::{AsFd, OwnedFd};

/// The terminal of this session.
pub(crate) struct Terminal {
    tty: OwnedFd,
    ours: Pid,
    /// As they were before CMD got it.
    modes: Option<Termios>,
}

/// Whether CMD stays in tenure's group, and the terminal if there is one.
///
/// CMD leaves only a group that nobody else is in: to members of a pipeline or a script the
/// terminal would be lost. It is lent out only by who has it; in the background CMD stays, so
/// that the shell's `fg` brings it to the front as well.
pub(crate) fn place(foreground: bool) -> (bool, Option<Terminal>) {
    let Some(this) = tree::this_process() else { return (foreground, None) };
    if this.terminal == 0 {
        return (foreground, None);
    }
    let has_it = this.group != 0 && this.foreground == this.group;
    let alone = || !is_piped() && tree::members(this.group).len() <= 1;
    let shared = foreground || !has_it || !alone();
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let tty = open("/dev/tty", flags, Mode::empty()).ok();
    let terminal = tty.zip(Pid::from_raw(this.group)).map(|(tty, ours)| Terminal { tty, ours, modes: None });
    (shared, terminal)
}

/// A shell starts the members of a pipeline one after the other: that there is no other yet
/// says little.
fn is_piped() -> bool {
    let (stdin, stdout) = (std::io::stdin(), std::io::stdout());
    [stdin.as_fd(), stdout.as_fd()]
        .into_iter()
        .any(|fd| fstat(fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo))
}

impl Terminal {
    /// Whether tenure's own group has it.
    pub(crate) fn is_ours(&self) -> bool {
        tcgetpgrp(&self.tty) == Ok(self.ours)
    }

    /// Whether `group` has it.
    pub(crate) fn is_lent_to(&self, group: Pid) -> bool {
        tcgetpgrp(&self.tty) == Ok(group)
    }

    /// Gives it to `group` if it is ours to give.
    pub(crate) fn lend(&mut self, group: Pid) {
        if self.is_ours() {
            self.modes = self.modes.take().or_else(|| tcgetattr(&self.tty).ok());
            let _ = tcsetpgrp(&self.tty, group);
        }
    }

    /// Takes it back from `group`, or from whomever that gave it to and who is gone. Whoever
    /// else has it, as the shell that went on without us, keeps it.
    pub(crate) fn take_back(&self, group: Pid) {
        let Ok(holder) = tcgetpgrp(&self.tty) else { return };
        if holder == group || holder != self.ours && Crew::Group(holder).is_over() {
            let _ = tcsetpgrp(&self.tty, self.ours);
        }
    }

    /// Undoes what a CMD that was killed could not undo, such as raw input.
    pub(crate) fn restore_modes(&self) {
        if let Some(modes) = self.modes.as_ref().filter(|_| self.is_ours()) {
            let _ = tcsetattr(&self.tty, OptionalActions::Now, modes);
        }
    }
}
