//! Job control: a CMD that is stopped takes tenure along, so that the shell gets its terminal
//! back, and with tenure it goes on.

use super::signals::{self, Stop};
use super::{Guarded, Terminal};
use crate::output::{say, text};
use rustix::process::Signal;
use tenure::Lease;

/// Without a terminal there is nobody who stops jobs to go on with something else: then a CMD
/// that is stopped stays so, and the lease is kept.
pub(super) struct Jobs {
    terminal: Option<Terminal>,
    /// What CMD left behind runs on in the background.
    ended: bool,
}

impl Jobs {
    pub(super) fn new(terminal: Option<Terminal>) -> Jobs {
        Jobs { terminal, ended: false }
    }

    /// Gives CMD the terminal, if it is ours to give and CMD can have it.
    pub(super) fn begin(&mut self, guarded: &Guarded) {
        if let (false, Some(terminal), Some(group)) = (self.ended, &mut self.terminal, guarded.own_group()) {
            terminal.lend(group);
        }
    }

    /// tenure is asked to stop: CMD first, which takes it along. What is left when CMD has ended
    /// tells nobody that it was stopped.
    pub(super) fn stop(&mut self, guarded: &Guarded, lease: &Lease, spare: bool) {
        if !self.ended && guarded.is_stopped() {
            return self.suspend(guarded, lease, spare, libc::SIGTSTP);
        }
        guarded.signal(Signal::TSTP);
        if self.ended && self.terminal.is_some() {
            if guarded.is_watched_over() {
                signals::stop_by(Stop::Asked);
            }
            self.go_on(guarded, lease, spare);
        }
    }

    /// CMD was stopped by this signal: stops tenure the same way.
    pub(super) fn suspend(&mut self, guarded: &Guarded, lease: &Lease, spare: bool, signal: i32) {
        let Some(terminal) = &mut self.terminal else { return };
        // It may have been continued since.
        if !guarded.is_stopped() {
            return;
        }
        let group = guarded.own_group();
        let in_front = terminal.is_ours() || group.is_some_and(|group| terminal.is_lent_to(group));
        let stop = if in_front { Stop::by(signal) } else { Stop::in_background(signal) };
        if stop.wants_terminal() && in_front {
            // The shell has put us in front meanwhile, of which nobody is told.
            self.begin(guarded);
            return guarded.signal(Signal::CONT);
        }
        // Somebody has a reason to stop CMD alone, and is not waiting for a terminal.
        if signal == libc::SIGSTOP && !in_front {
            return;
        }
        if !guarded.is_watched_over() {
            // As the kernel does with a stopped group that nobody can continue.
            if stop.wants_terminal() {
                guarded.signal(Signal::HUP);
            }
            return self.go_on(guarded, lease, spare);
        }
        if let Some(group) = group {
            terminal.take_back(group);
        }
        if !spare {
            let left = text::duration(lease.remaining());
            let name = lease.name();
            say(format!("stopped; the lease on \"{name}\" and the command end in {left} unless continued"));
        }
        // Once more, for what is between here and there is all the time in which the shell could
        // continue a CMD that is in our group, and only us would it find stopped.
        if guarded.is_stopped() {
            signals::stop_by(stop);
        }
        self.go_on(guarded, lease, spare);
    }

    /// tenure was continued: CMD is too, if it may work on, with the terminal if that is ours.
    pub(super) fn go_on(&mut self, guarded: &Guarded, lease: &Lease, spare: bool) {
        self.begin(guarded);
        // Asked, for a shell has continued all of the group that it knows, and may have stopped
        // it once more since, which is in our group a signal to us as well.
        if guarded.has_stopped() && !signals::is_stopping() && (spare || lease.is_held()) {
            guarded.signal(Signal::CONT);
        }
    }

    /// CMD has ended: takes the terminal back. Where it did not end by itself the modes are as
    /// they were before it.
    pub(super) fn end(&mut self, guarded: &Guarded, exited: bool) {
        self.ended = true;
        if let (Some(terminal), Some(group)) = (&self.terminal, guarded.own_group()) {
            terminal.take_back(group);
            if !exited {
                terminal.restore_modes();
            }
        }
    }
}
