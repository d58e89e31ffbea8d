//! A terminal with an interactive shell at it, as a person would use it.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::disallowed_methods, reason = "waits for events, with a bound")]

use super::support::{BOUND, finished};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Instant;

/// Ctrl-C and Ctrl-Z.
pub(crate) const INTERRUPT: &str = "\x03";
pub(crate) const SUSPEND: &str = "\x1a";

const PROMPT: &str = "<what now>";

/// What is typed is not echoed, so that what is seen was said by somebody.
pub(crate) struct Terminal {
    ours: OwnedFd,
    theirs: OwnedFd,
    shell: Option<Child>,
    /// What was shown and not expected yet.
    unread: String,
    /// All that was shown.
    shown: String,
}

impl Terminal {
    /// `bash -i` in this directory, where `tenure` is on the PATH and meets only those of the
    /// same directory.
    pub(crate) fn start(directory: &Path) -> Terminal {
        Terminal::with(directory, &["bash", "--norc", "--noprofile", "--noediting", "-i"])
    }

    pub(crate) fn with(directory: &Path, shell: &[&str]) -> Terminal {
        let ours =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&ours).and_then(|()| unlockpt(&ours)).expect("its other side");
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let theirs = ioctl_tiocgptpeer(&ours, flags).expect("its other side");
        let side = || theirs.try_clone().expect("a descriptor");
        let program = Path::new(env!("CARGO_BIN_EXE_tenure")).parent().expect("a directory").display();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("setsid");
        command.arg("--ctty").args(shell).current_dir(directory);
        command.env_remove("TENURE_STORE_FILE").env("PATH", format!("{program}:{path}"));
        command.env("TENURE_STORE", format!("sqlite:{}", directory.join("leases.db").display()));
        command.env("PS1", PROMPT).env("PS2", "").env_remove("ENV").env("HISTFILE", "/dev/null");
        command.stdin(side()).stdout(side()).stderr(side());
        let shell = Some(command.spawn().expect("a shell"));
        let mut terminal = Terminal { ours, theirs, shell, unread: String::new(), shown: String::new() };
        terminal.say("stty -echo; printf 'with%s\\n' out");
        terminal.expect("without");
        terminal
    }

    /// Types a line.
    pub(crate) fn say(&mut self, line: &str) {
        self.press(&format!("{line}\n"));
    }

    /// Types.
    pub(crate) fn press(&mut self, keys: &str) {
        rustix::io::write(&self.ours, keys.as_bytes()).expect("the terminal takes it");
    }

    /// Presses a key that brings the shell back. What is typed before it is back is lost.
    #[track_caller]
    pub(crate) fn press_for_shell(&mut self, key: &str) {
        // A prompt that was shown before says nothing.
        self.unread = self.unread.replace(PROMPT, "");
        self.press(key);
        let before = self.expect(PROMPT);
        self.unread.insert_str(0, &before);
    }

    /// Waits until this was shown; gives what was shown before it, since the last time.
    #[track_caller]
    pub(crate) fn expect(&mut self, text: &str) -> String {
        let began = Instant::now();
        loop {
            if let Some(at) = self.unread.find(text) {
                let before = self.unread[..at].to_owned();
                self.unread.drain(..at + text.len());
                return before;
            }
            let (late, shown) = (began.elapsed() >= BOUND, &self.shown);
            assert!(!late, "not shown within {BOUND:?}: {text:?} in {shown}\n{}", self.processes());
            self.read();
        }
    }

    /// Who is there, for the report of a failure.
    fn processes(&self) -> String {
        let session = self.shell.as_ref().map_or(0, Child::id).to_string();
        let list = Command::new("ps").args(["-o", "pid,ppid,pgid,tpgid,stat,args", "-s", &session]).output();
        list.map(|list| String::from_utf8_lossy(&list.stdout).into_owned()).unwrap_or_default()
    }

    fn read(&mut self) {
        let bound = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        if poll(&mut [PollFd::new(&self.ours, PollFlags::IN)], Some(&bound)) == Ok(0) {
            return;
        }
        let mut bytes = [0; 4096];
        if let Ok(length) = rustix::io::read(&self.ours, &mut bytes) {
            let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
            self.unread += &text;
            self.shown += &text;
        }
    }

    /// Asks the shell, which must have the terminal for that.
    #[track_caller]
    pub(crate) fn answer(&mut self, words: &str) -> String {
        self.say(&format!("echo \"[$({words})]\" \"done\"."));
        self.expect("[");
        self.expect("] done.")
    }

    /// The exit code of what ran last. The shell must have the terminal.
    #[track_caller]
    pub(crate) fn code(&mut self) -> i32 {
        self.say("echo code=$?=");
        self.expect("code=");
        self.expect("=").parse().expect("a number")
    }

    /// Waits until this group has the terminal.
    #[track_caller]
    pub(crate) fn expect_in_front(&self, group: i32) {
        super::support::eventually(&format!("group {group} is in front"), || {
            let front = rustix::termios::tcgetpgrp(&self.ours).ok()?;
            (front.as_raw_nonzero().get() == group).then_some(())
        });
    }

    /// The terminal's modes, as `stty` says them.
    pub(crate) fn modes(&self) -> rustix::termios::Termios {
        rustix::termios::tcgetattr(&self.theirs).expect("its modes")
    }

    /// Ends the shell; all that was shown.
    #[track_caller]
    pub(crate) fn end(mut self) -> String {
        self.say("exit 0");
        let shell = self.shell.take().expect("a shell");
        // It writes its farewell to the terminal, which has room for it.
        finished(shell);
        std::mem::take(&mut self.shown)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("shown: {}\n{}", self.shown, self.processes());
        }
        if let Some(mut shell) = self.shell.take() {
            let _ = shell.kill();
            let _ = shell.wait();
        }
    }
}
