//! The guardian, driven as tenure drives it, without a lease.

mod support;

#[allow(dead_code, reason = "shared with the program")]
#[path = "../src/process/message.rs"]
mod message;

use message::{Order, Report, SIZE};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::io::FdFlags;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use support::{BOUND, FAMILY, FAMILY_SIZE, Leftovers, directory, eventually, finished, pids, runs};
use tenure::{Clock, Instant};

/// One after the other: else a guardian would get what is meant for another.
static STARTING: Mutex<()> = Mutex::new(());
const FAR: Duration = Duration::from_secs(3600);

struct Guardian {
    process: Child,
    control: OwnedFd,
}

impl Guardian {
    /// A guardian that holds `sh -c script` in `directory`.
    fn start(directory: &Path, deadline: Instant, duties: [&str; 2], script: &str) -> Guardian {
        Guardian::start_with(directory, deadline, duties, script, None)
    }

    fn start_with(
        directory: &Path,
        deadline: Instant,
        duties: [&str; 2],
        script: &str,
        liveness: Option<&File>,
    ) -> Guardian {
        let (control, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .expect("a socket pair");
        let number = |fd: &dyn AsRawFd| fd.as_raw_fd().to_string();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
        command
            .args(["__guardian", &number(&theirs)])
            .arg(liveness.map_or("-".to_owned(), |file| number(file)))
            .arg(deadline.as_nanos().to_string())
            .args(duties)
            .args(["own", "00000:0"])
            .args(["sh", "-c", script])
            .current_dir(directory)
            .process_group(0)
            .stdin(Stdio::null());
        let process = {
            let _alone = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
            let pass = |flags| {
                let passed = [Some(theirs.as_fd()), liveness.map(|file| file.as_fd())];
                for fd in passed.into_iter().flatten() {
                    rustix::io::fcntl_setfd(fd, flags).expect("an open descriptor");
                }
            };
            pass(FdFlags::empty());
            let process = command.spawn().expect("the guardian starts");
            pass(FdFlags::CLOEXEC);
            process
        };
        drop(theirs);
        let mut guardian = Guardian { process, control };
        assert!(matches!(guardian.report(), Some(Report::Held(_))), "armed and held first");
        guardian
    }

    fn order(&self, order: Order) {
        send(&self.control, &order.encode(), SendFlags::NOSIGNAL).expect("the guardian listens");
    }

    fn go(&self, deadline: Instant) {
        self.order(Order::Go(deadline));
    }

    /// The next report; `None` when the guardian has ended.
    #[track_caller]
    fn report(&mut self) -> Option<Report> {
        let bound = Timespec { tv_sec: BOUND.as_secs() as i64, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(&self.control, PollFlags::IN)], Some(&bound));
        assert_ne!(ready, Ok(0), "no report within {BOUND:?}");
        let mut bytes = [0; SIZE];
        match recv(&self.control, &mut bytes, RecvFlags::empty()) {
            Ok((_, length)) if length > 0 => Report::decode(&bytes[..length]),
            _ => None,
        }
    }
}

fn now() -> Instant {
    Clock::system().now()
}

#[test]
fn at_the_deadline_all_are_dead_whatever_they_are() {
    let directory = directory();
    let file = directory.path().join("pids");
    let _leftovers = Leftovers(file.clone());
    let mut guardian = Guardian::start(directory.path(), now() + FAR, ["kill", "drain"], FAMILY);
    guardian.go(now() + FAR);
    let family = pids(&file, FAMILY_SIZE);
    let deadline = now() + Duration::from_millis(300);
    guardian.order(Order::Deadline(deadline));

    assert_eq!(guardian.report(), Some(Report::Ended { status: 9, killed: true }));
    assert!(now() >= deadline, "not before the deadline");
    assert_eq!(guardian.report(), Some(Report::Empty));
    let after = now() - deadline;
    assert_eq!(family.iter().filter(|pid| runs(**pid)).count(), 0, "{family:?}");
    assert!(after < Duration::from_secs(1), "it took {after:?}");
    assert_eq!(guardian.report(), None);
}

#[test]
fn when_tenure_is_gone_all_are_dead_before_the_liveness_lock_is_free() {
    let directory = directory();
    let file = directory.path().join("pids");
    let _leftovers = Leftovers(file.clone());
    let path = directory.path().join("alive");
    let liveness = File::create(&path).expect("a file");
    flock(&liveness, FlockOperation::NonBlockingLockExclusive).expect("nobody else has it");
    let guardian =
        Guardian::start_with(directory.path(), now() + FAR, ["kill", "drain"], FAMILY, Some(&liveness));
    guardian.go(now() + FAR);
    let family = pids(&file, FAMILY_SIZE);
    drop(liveness);
    let contender = File::open(&path).expect("the file");
    assert!(flock(&contender, FlockOperation::NonBlockingLockShared).is_err(), "the guardian has it");

    let Guardian { process, control } = guardian;
    drop(control);
    eventually("the lock is free", || flock(&contender, FlockOperation::NonBlockingLockShared).ok());
    assert_eq!(family.iter().filter(|pid| runs(**pid)).count(), 0, "{family:?}");
    assert!(finished(process).status.success());
}

#[test]
fn the_work_is_over_when_the_group_is_empty() {
    let directory = directory();
    let script = "(until [ -e end ]; do sleep 0.01; done) & exit 7";
    let mut guardian = Guardian::start(directory.path(), now() + FAR, ["kill", "drain"], script);
    guardian.go(now() + FAR);
    assert_eq!(guardian.report(), Some(Report::Ended { status: 7 << 8, killed: false }));
    fs::write(directory.path().join("end"), "").expect("a file");
    assert_eq!(guardian.report(), Some(Report::Empty));
    assert_eq!(guardian.report(), None);
}

#[test]
fn what_outlives_its_shell_is_killed_at_the_deadline() {
    let directory = directory();
    let file = directory.path().join("pids");
    let _leftovers = Leftovers(file.clone());
    let script = "sleep 1000 & echo $! >> pids; exit 7";
    let mut guardian = Guardian::start(directory.path(), now() + FAR, ["kill", "drain"], script);
    guardian.go(now() + FAR);
    assert_eq!(guardian.report(), Some(Report::Ended { status: 7 << 8, killed: false }));
    let child = pids(&file, 1)[0];
    assert!(runs(child));
    guardian.order(Order::Deadline(now()));
    assert_eq!(guardian.report(), Some(Report::Empty));
    assert!(!runs(child));
}

#[test]
fn with_close_leftovers_run_on() {
    let directory = directory();
    let file = directory.path().join("pids");
    let _leftovers = Leftovers(file.clone());
    let script = "sleep 1000 & echo $! >> pids; exit 0";
    let mut guardian = Guardian::start(directory.path(), now() + FAR, ["kill", "close"], script);
    guardian.go(now() + FAR);
    assert_eq!(guardian.report(), Some(Report::Ended { status: 0, killed: false }));
    assert_eq!(guardian.report(), Some(Report::Empty));
    assert!(finished(guardian.process).status.success());
    assert!(runs(pids(&file, 1)[0]));
}

#[test]
fn a_renewed_deadline_is_the_one_that_counts() {
    let directory = directory();
    let script = "until [ -e end ]; do sleep 0.01; done";
    let first = now() + Duration::from_millis(500);
    let mut guardian = Guardian::start(directory.path(), first, ["kill", "drain"], script);
    guardian.go(first);
    guardian.order(Order::Deadline(now() + FAR));
    eventually("the first deadline has passed", || {
        (now() > first + Duration::from_millis(200)).then_some(())
    });
    fs::write(directory.path().join("end"), "").expect("a file");
    assert_eq!(guardian.report(), Some(Report::Ended { status: 0, killed: false }));
}

#[test]
fn spared_is_everybody_when_loss_is_to_be_ignored() {
    let directory = directory();
    let file = directory.path().join("pids");
    let script = "echo $$ >> pids; until [ -e end ]; do sleep 0.01; done; echo done > done";
    let guardian = Guardian::start(directory.path(), now() + FAR, ["spare", "drain"], script);
    let deadline = now() + Duration::from_millis(300);
    guardian.go(deadline);
    let cmd = pids(&file, 1)[0];
    eventually("the deadline has passed", || (now() > deadline + Duration::from_millis(200)).then_some(()));
    assert!(runs(cmd));
    let Guardian { mut process, control } = guardian;
    drop(control);
    assert!(process.try_wait().expect("a child").is_none(), "CMD would die with its guardian");
    fs::write(directory.path().join("end"), "").expect("a file");
    assert!(finished(process).status.success());
    assert!(directory.path().join("done").exists());
}

#[test]
fn a_late_word_never_starts_the_command() {
    let directory = directory();
    for duties in [["kill", "drain"], ["spare", "drain"]] {
        let mut guardian = Guardian::start(directory.path(), now() + FAR, duties, "touch started");
        guardian.go(now());
        let first = guardian.report();
        let killed = matches!(first, Some(Report::Ended { status: 9, killed: true }));
        assert!(first == Some(Report::TooLate) || killed, "{first:?}");
        assert!(finished(guardian.process).status.success());
    }
    assert!(!directory.path().join("started").exists());
}

#[test]
fn a_command_that_was_stopped_before_its_exec_is_not_started_late() {
    let directory = directory();
    let deadline = now() + Duration::from_millis(400);
    // Spared: the guardian does not kill it, so its own look at the clock is what is tried.
    let mut guardian = Guardian::start(directory.path(), now() + FAR, ["spare", "drain"], "touch started");
    let children = format!("/proc/{0}/task/{0}/children", guardian.process.id());
    let held: i32 = fs::read_to_string(children).expect("children").trim().parse().expect("one child");
    support::signal(held, rustix::process::Signal::STOP);
    guardian.go(deadline);
    eventually("the deadline has passed", || (now() > deadline).then_some(()));
    support::signal(held, rustix::process::Signal::CONT);
    assert_eq!(guardian.report(), Some(Report::Stopped(libc::SIGSTOP)));
    assert_eq!(guardian.report(), Some(Report::TooLate));
    assert!(!directory.path().join("started").exists());
}

#[test]
fn without_the_word_the_command_never_starts() {
    let directory = directory();
    for duties in [["kill", "drain"], ["spare", "drain"]] {
        let Guardian { process, control } =
            Guardian::start(directory.path(), now() + FAR, duties, "touch started");
        drop(control);
        assert!(finished(process).status.success());
    }
    assert!(!directory.path().join("started").exists());
}

#[test]
fn the_command_dies_with_its_guardian() {
    let directory = directory();
    let file = directory.path().join("pids");
    let _leftovers = Leftovers(file.clone());
    let script = "echo $$ >> pids; exec sleep 1000";
    let mut guardian = Guardian::start(directory.path(), now() + FAR, ["kill", "drain"], script);
    guardian.go(now() + FAR);
    let cmd = pids(&file, 1)[0];
    guardian.process.kill().expect("it runs");
    eventually("the command is dead", || (!runs(cmd)).then_some(()));
    assert_eq!(guardian.report(), None);
    let _ = guardian.process.wait();
}

#[test]
fn the_guardian_is_deaf() {
    let directory = directory();
    let script = "until [ -e end ]; do sleep 0.01; done";
    let mut guardian = Guardian::start(directory.path(), now() + FAR, ["kill", "drain"], script);
    guardian.go(now() + FAR);
    use rustix::process::Signal;
    for signal in
        [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::TSTP, Signal::TTOU, Signal::USR1]
    {
        support::signal(guardian.process.id() as i32, signal);
    }
    fs::write(directory.path().join("end"), "").expect("a file");
    assert_eq!(guardian.report(), Some(Report::Ended { status: 0, killed: false }));
    assert!(finished(guardian.process).status.success());
}

#[test]
fn orphans_are_reaped_while_the_command_runs() {
    let directory = directory();
    let script = "for i in 1 2 3 4 5; do sh -c 'sleep 0.01 &'; done; touch made; until [ -e end ]; do sleep 0.01; done";
    let mut guardian = Guardian::start(directory.path(), now() + FAR, ["kill", "drain"], script);
    guardian.go(now() + FAR);
    eventually("orphans were made", || directory.path().join("made").exists().then_some(()));
    let children = format!("/proc/{0}/task/{0}/children", guardian.process.id());
    eventually("only the command is left", || {
        (fs::read_to_string(&children).ok()?.split_whitespace().count() == 1).then_some(())
    });
    fs::write(directory.path().join("end"), "").expect("a file");
    assert_eq!(guardian.report(), Some(Report::Ended { status: 0, killed: false }));
}
