//! Who descends from whom, and who belongs to a group, as /proc tells it.

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use std::fs;

/// What /proc tells of a process. A group is 0 where it began outside of our PID namespace.
pub(crate) struct Process {
    pub(crate) pid: Pid,
    pub(crate) program: String,
    parent: i32,
    pub(super) group: i32,
    pub(super) session: i32,
    /// 0: it has no controlling terminal.
    pub(super) terminal: i32,
    /// The group that has its terminal.
    pub(super) foreground: i32,
    pub(super) is_stopped: bool,
    over: bool,
}

/// What CMD's work consists of: when nothing of it runs, the work is over.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Crew {
    /// All of a group of its own.
    Group(Pid),
    /// In a group with strangers: who descends from `root` and has not left that group.
    Below { root: Pid, group: i32 },
}

impl Crew {
    /// Sends `signal` to all of it. That some are gone already is fine.
    pub(crate) fn signal(self, signal: Signal) {
        match self {
            Crew::Group(group) => signal_group(group, signal),
            Crew::Below { .. } => self.members().iter().for_each(|one| send(&[one.pid], signal)),
        }
    }

    /// Sends `signal` once to all of it and to each descendant of `root` outside it.
    pub(crate) fn signal_all(self, root: Pid, signal: Signal) {
        // Listed first: the signal makes parents end, and their children go elsewhere.
        let everybody = descendants(root, &[]);
        match self {
            Crew::Below { .. } => send(&everybody, signal),
            Crew::Group(group) => {
                let number = group.as_raw_nonzero().get();
                let is_outside = |pid: &Pid| process(*pid).is_some_and(|process| process.group != number);
                let outside: Vec<Pid> = everybody.into_iter().filter(is_outside).collect();
                signal_group(group, signal);
                send(&outside, signal);
            }
        }
    }

    /// What of it runs. Zombies that a stranger does not reap do not count.
    pub(crate) fn members(self) -> Vec<Process> {
        match self {
            Crew::Group(group) => members(group.as_raw_nonzero().get()),
            Crew::Below { root, group } => descendants(root, &[])
                .into_iter()
                .filter_map(process)
                .filter(|process| process.group == group && !process.over)
                .collect(),
        }
    }

    /// Whether nothing of it runs.
    pub(crate) fn is_over(self) -> bool {
        match self {
            Crew::Group(group) if is_empty(group) => true,
            _ => self.members().is_empty(),
        }
    }
}

/// Sends `signal` to all of `group`. One that is gone already is fine.
pub(crate) fn signal_group(group: Pid, signal: Signal) {
    let _ = rustix::process::kill_process_group(group, signal);
}

/// Kills everything that descends from this process but `spared` and what descends from these.
///
/// To be repeated until [`reap`] finds no children: what forks meanwhile is inherited.
pub(crate) fn kill_descendants(spared: &[Pid]) {
    send(&descendants(rustix::process::getpid(), spared), Signal::KILL);
}

fn send(to: &[Pid], signal: Signal) {
    for pid in to {
        let _ = rustix::process::kill_process(*pid, signal);
    }
}

/// Reaps the children that have ended and tells of those that were stopped; whether there
/// are others.
pub(crate) fn reap(mut ended: impl FnMut(Pid, WaitStatus)) -> bool {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(Some((pid, status))) => ended(pid, status),
            Ok(None) => return true,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Whether no process of `group` is left, not even a zombie.
pub(crate) fn is_empty(group: Pid) -> bool {
    rustix::process::test_kill_process_group(group) == Err(Errno::SRCH)
}

/// What runs in a group.
pub(super) fn members(group: i32) -> Vec<Process> {
    every_process().filter(|process| process.group == group && !process.over).collect()
}

/// This process.
pub(super) fn this_process() -> Option<Process> {
    process(rustix::process::getpid())
}

/// Whether somebody watches over this process's group who could continue it when it is stopped:
/// a parent in the same session and another group, as a shell is. A guardian is none.
pub(super) fn is_watched_over(guardian: Pid) -> bool {
    let Some(this) = this_process() else { return false };
    members(this.group).iter().any(|member| {
        let parent = Pid::from_raw(member.parent).filter(|parent| *parent != guardian).and_then(process);
        parent.is_some_and(|parent| parent.group != this.group && parent.session == this.session)
    })
}

/// Whether a process is stopped.
pub(super) fn is_stopped(pid: Pid) -> bool {
    process(pid).is_some_and(|process| process.is_stopped)
}

/// Whether `pid` descends from `root`.
pub(super) fn descends(pid: Pid, root: Pid) -> bool {
    descendants(root, &[]).contains(&pid)
}

/// The children of this process.
pub(crate) fn children() -> Vec<Pid> {
    children_of(rustix::process::getpid())
}

fn descendants(root: Pid, spared: &[Pid]) -> Vec<Pid> {
    let mut found = Vec::new();
    let mut next = vec![root];
    while let Some(parent) = next.pop() {
        for child in children_of(parent) {
            // A process can be seen twice: it may move as its parent ends.
            if !spared.contains(&child) && !found.contains(&child) {
                found.push(child);
                next.push(child);
            }
        }
    }
    found
}

fn children_of(parent: Pid) -> Vec<Pid> {
    let raw = parent.as_raw_nonzero();
    let Ok(threads) = fs::read_dir(format!("/proc/{raw}/task")) else { return Vec::new() };
    let mut children = Vec::new();
    for thread in threads.flatten() {
        match fs::read_to_string(thread.path().join("children")) {
            Ok(list) => {
                children.extend(list.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)));
            }
            // The thread has just ended, or the kernel was built without these lists.
            Err(_) if thread.path().exists() => {
                return every_process()
                    .filter(|process| process.parent == raw.get())
                    .map(|process| process.pid)
                    .collect();
            }
            Err(_) => {}
        }
    }
    children
}

fn every_process() -> impl Iterator<Item = Process> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| process(Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?))
}

fn process(pid: Pid) -> Option<Process> {
    parse(&fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?)
}

/// A line of /proc/PID/stat: `pid (program) state parent group session terminal foreground ...`;
/// the program may hold anything.
fn parse(stat: &str) -> Option<Process> {
    let (open, close) = (stat.find('(')?, stat.rfind(')')?);
    let pid = Pid::from_raw(stat[..open].trim().parse().ok()?)?;
    let program = stat.get(open + 1..close)?.to_owned();
    let mut fields = stat[close + 1..].split_whitespace();
    let state = fields.next()?;
    let mut number = || fields.next()?.parse().ok();
    let (parent, group, session) = (number()?, number()?, number()?);
    let (terminal, foreground) = (number()?, number()?);
    // A first thread that ended while others run on is shown as a zombie with threads.
    let threads: u32 = fields.nth(11)?.parse().ok()?;
    let (is_stopped, over) = (state == "T", matches!(state, "Z" | "X") && threads <= 1);
    Some(Process { pid, program, parent, group, session, terminal, foreground, is_stopped, over })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_name_may_look_like_the_fields_after_it() {
        let fields = "7 9 9 0 -1 4 0 0 0 0 0 0 0 0 20 0";
        let process = parse(&format!("42 (a) Z 1 (b) S {fields} 1 0 5\n")).expect("a process");
        assert_eq!((process.program.as_str(), process.over), ("a) Z 1 (b", false));
        assert_eq!((process.parent, process.group), (7, 9));
        assert!(parse(&format!("42 (a) Z {fields} 1 0 5\n")).expect("a process").over);
        assert!(!parse(&format!("42 (a) Z {fields} 2 0 5\n")).expect("a process").over);
        assert!(parse("nonsense").is_none());
    }
}
