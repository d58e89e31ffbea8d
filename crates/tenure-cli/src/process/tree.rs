//! Who descends from whom, and who belongs to a group, as /proc tells it.

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use std::fs;

/// A process that still runs.
pub(crate) struct Process {
    pub(crate) pid: Pid,
    pub(crate) program: String,
    parent: i32,
    group: i32,
    over: bool,
}

/// Sends `signal` to all of `group`. One that is gone already is fine.
pub(crate) fn signal_group(group: Pid, signal: Signal) {
    let _ = rustix::process::kill_process_group(group, signal);
}

/// Sends `signal` once to each process of `group` and to each descendant of `root` outside it.
pub(crate) fn signal_all(root: Pid, group: Pid, signal: Signal) {
    // Listed first: the signal makes parents end, and their children go elsewhere.
    let group_number = group.as_raw_nonzero().get();
    let outside: Vec<Pid> = descendants(root, &[])
        .into_iter()
        .filter(|pid| process(*pid).is_some_and(|process| process.group != group_number))
        .collect();
    signal_group(group, signal);
    send(&outside, signal);
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

/// Reaps the children that have ended; whether there are others.
pub(crate) fn reap(mut ended: impl FnMut(Pid, WaitStatus)) -> bool {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
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

/// Whether `group` does nothing any more. Zombies that a stranger does not reap do not count.
pub(crate) fn nothing_runs_in(group: Pid) -> bool {
    is_empty(group) || members(group).is_empty()
}

/// What runs in `group`.
pub(crate) fn members(group: Pid) -> Vec<Process> {
    every_process().filter(|process| process.group == group.as_raw_nonzero().get() && !process.over).collect()
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

/// Its group is 0 where that began outside of our PID namespace.
fn process(pid: Pid) -> Option<Process> {
    parse(&fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?)
}

/// A line of /proc/PID/stat: `pid (program) state parent group ...`; the program may hold anything.
fn parse(stat: &str) -> Option<Process> {
    let (open, close) = (stat.find('(')?, stat.rfind(')')?);
    let pid = Pid::from_raw(stat[..open].trim().parse().ok()?)?;
    let program = stat.get(open + 1..close)?.to_owned();
    let mut fields = stat[close + 1..].split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    // A first thread that ended while others run on is shown as a zombie with threads.
    let threads: u32 = fields.nth(14)?.parse().ok()?;
    let over = matches!(state, "Z" | "X") && threads <= 1;
    Some(Process { pid, program, parent, group, over })
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
