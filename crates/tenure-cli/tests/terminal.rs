//! At a terminal: who has it, what its keys do, and who gets it back.
#![allow(clippy::disallowed_methods, reason = "measures real time")]

mod support;

#[path = "support/terminal.rs"]
mod terminal;

use rustix::process::Signal;
use rustix::termios::LocalModes;
use std::fs;
use std::path::Path;
use support::{Leftovers, directory, eventually, group_and_session, pids, runs, signal};
use terminal::{INTERRUPT, SUSPEND, Terminal};

fn script(directory: &Path, name: &str, text: &str) {
    fs::write(directory.join(name), text).expect("a file");
}

/// Writes its number down, says `ready`, and then each line that it reads; ends with `end`.
const READER: &str =
    "echo $$ >> pids; echo ready; while read line && [ \"$line\" != end ]; do echo got:$line; done; exit 3";
/// Counts the signals that reach it until there is a file `end`.
const COUNTER: &str = "trap 'echo int >> count' INT; trap 'echo term >> count' TERM; echo $$ >> pids; echo ready; \
                       until [ -e end ]; do sleep 0.02; done; echo over";

fn scene(directory: &Path) -> Terminal {
    script(directory, "reader", READER);
    script(directory, "counter", COUNTER);
    Terminal::start(directory)
}

/// Nothing is left of what ran before.
fn clear(directory: &Path) {
    for name in ["pids", "count", "end"] {
        let _ = fs::remove_file(directory.join(name));
    }
}

/// What the shell says of its jobs.
fn jobs(terminal: &mut Terminal, directory: &Path) -> String {
    terminal.say("jobs -l > jobs; echo list''ed");
    terminal.expect("listed");
    fs::read_to_string(directory.join("jobs")).expect("a list")
}

fn parent(pid: i32) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse().ok()).expect("a parent")
}

fn tenure_of(cmd: i32) -> i32 {
    parent(parent(cmd))
}

/// How often each signal reached the counter.
fn count(directory: &Path) -> String {
    fs::read_to_string(directory.join("count")).unwrap_or_default().replace('\n', " ")
}

#[test]
fn a_command_reads_the_terminal_and_the_shell_has_it_afterwards() {
    let directory = directory();
    let mut terminal = scene(directory.path());
    terminal.say("tenure run x -- sh reader");
    terminal.expect("ready");
    let cmd = pids(&directory.path().join("pids"), 1)[0];
    assert_eq!(group_and_session(cmd).0, cmd, "in a group of its own");
    terminal.say("hello");
    terminal.expect("got:hello");
    terminal.say("end");
    assert_eq!(terminal.code(), 3);
    terminal.end();
}

#[test]
fn a_nested_command_reads_the_terminal() {
    let directory = directory();
    let mut terminal = scene(directory.path());
    terminal.say("tenure run a -- tenure run b -- sh reader");
    terminal.expect("ready");
    terminal.say("hello");
    terminal.expect("got:hello");
    terminal.press_for_shell(SUSPEND);
    terminal.expect("Stopped");
    terminal.say("fg");
    terminal.say("again");
    terminal.expect("got:again");
    terminal.press_for_shell(INTERRUPT);
    assert_eq!(terminal.code(), 130);
}

#[test]
fn ctrl_c_reaches_the_command_once_and_ends_tenure_by_that_signal() {
    let directory = directory();
    let mut terminal = scene(directory.path());
    for options in ["", "--foreground"] {
        clear(directory.path());
        terminal.say(&format!("tenure run {options} x -- sh counter"));
        terminal.expect("ready");
        terminal.press(INTERRUPT);
        eventually("it came", || (count(directory.path()) == "int ").then_some(()));
        fs::write(directory.path().join("end"), "").expect("a file");
        terminal.expect("over");
        assert_eq!(terminal.code(), 0);
        assert_eq!(count(directory.path()), "int ", "{options}");

        terminal.say(&format!("tenure run {options} x -- sh -c 'echo ready; exec sleep 1000'"));
        terminal.expect("ready");
        terminal.press_for_shell(INTERRUPT);
        assert_eq!(terminal.code(), 130, "{options}");
    }
}

#[test]
fn ctrl_z_and_fg_and_bg() {
    let directory = directory();
    let mut terminal = scene(directory.path());
    for options in ["", "--foreground"] {
        clear(directory.path());
        terminal.say(&format!("tenure run {options} x -- sh reader"));
        terminal.expect("ready");
        let cmd = pids(&directory.path().join("pids"), 1)[0];
        terminal.press_for_shell(SUSPEND);
        terminal.expect("Stopped");
        assert_eq!(terminal.code(), 148, "{options}: by TSTP");
        assert_eq!(state(cmd), 'T');
        terminal.say("fg");
        terminal.say("one");
        terminal.expect("got:one");
        // In the background it must not read, and says so.
        terminal.press_for_shell(SUSPEND);
        terminal.expect("Stopped");
        terminal.say("bg");
        eventually("it wants to read", || {
            jobs(&mut terminal, directory.path()).contains("tty input").then_some(())
        });
        assert_eq!((state(cmd), state(tenure_of(cmd))), ('T', 'T'));
        terminal.say("fg");
        terminal.say("two");
        terminal.expect("got:two");
        terminal.say("end");
        assert_eq!(terminal.code(), 3, "{options}");
    }
}

#[test]
fn other_shells_suspend_as_well() {
    let directory = directory();
    script(directory.path(), "reader", READER);
    let mut terminal = Terminal::with(directory.path(), &["sh", "-i"]);
    terminal.say("tenure run x -- sh reader");
    terminal.expect("ready");
    terminal.press_for_shell(SUSPEND);
    terminal.expect("Stopped");
    terminal.say("fg");
    terminal.say("one");
    terminal.expect("got:one");
    terminal.say("end");
    assert_eq!(terminal.code(), 3);
}

#[test]
fn a_suspended_command_is_dead_by_the_deadline_and_fg_says_why() {
    let directory = directory();
    let mut terminal = scene(directory.path());
    terminal.say("tenure run --ttl 1s x -- sh reader");
    terminal.expect("ready");
    let cmd = pids(&directory.path().join("pids"), 1)[0];
    let before = terminal.modes();
    terminal.press_for_shell(SUSPEND);
    terminal.expect("unless continued");
    terminal.expect("Stopped");
    eventually("it is dead", || (!runs(cmd)).then_some(()));
    terminal.say("fg");
    assert_eq!(terminal.code(), 76);
    assert_eq!(terminal.modes().local_modes, before.local_modes);
}

#[test]
fn a_loss_that_is_ignored_does_not_keep_a_suspended_command_from_going_on() {
    let directory = directory();
    let mut terminal = scene(directory.path());
    terminal.say("tenure run --ttl 500ms --on-lost ignore x -- sh reader");
    terminal.expect("ready");
    terminal.press_for_shell(SUSPEND);
    terminal.expect("Stopped");
    terminal.say("until tenure run -n x -- true 2>/dev/null; do sleep 0.05; done; echo next-was-in");
    terminal.expect("next-was-in");
    terminal.say("fg");
    terminal.say("one");
    terminal.expect("got:one");
    terminal.say("end");
    assert_eq!(terminal.code(), 76);
}

#[test]
fn a_command_in_the_background_stays_in_tenures_group_and_comes_to_the_front_with_it() {
    let directory = directory();
    let mut terminal = scene(directory.path());
    terminal.say("tenure run x -- sh counter &");
    terminal.expect("ready");
    let cmd = pids(&directory.path().join("pids"), 1)[0];
    assert_eq!(group_and_session(cmd).0, group_and_session(tenure_of(cmd)).0);
    terminal.say("fg");
    terminal.expect_in_front(group_and_session(cmd).0);
    terminal.press(INTERRUPT);
    eventually("it came", || (count(directory.path()) == "int ").then_some(()));
    fs::write(directory.path().join("end"), "").expect("a file");
    assert_eq!(terminal.code(), 0);
    assert_eq!(count(directory.path()), "int ");

    clear(directory.path());
    terminal.say("tenure run x -- sh reader &");
    terminal.expect("ready");
    eventually("it wants to read", || {
        jobs(&mut terminal, directory.path()).contains("tty input").then_some(())
    });
    terminal.say("fg");
    terminal.say("one");
    terminal.expect("got:one");
    terminal.say("end");
    assert_eq!(terminal.code(), 3);
}

#[test]
fn another_member_of_the_pipeline_reads_the_terminal() {
    let directory = directory();
    let mut terminal = scene(directory.path());
    script(directory.path(), "other", "read line < /dev/tty; echo other:$line; touch end; [ -t 0 ] || cat");
    for line in ["tenure run x -- sh counter | sh other", "sh other | tenure run x -- sh counter"] {
        clear(directory.path());
        terminal.say(line);
        let cmd = pids(&directory.path().join("pids"), 1)[0];
        assert_eq!(group_and_session(cmd).0, group_and_session(tenure_of(cmd)).0, "{line}");
        terminal.say("hello");
        eventually("it was read", || directory.path().join("end").exists().then_some(()));
        terminal.expect("over");
        assert_eq!(terminal.code(), 0);
    }
    // And a key reaches each once.
    clear(directory.path());
    terminal.say("tenure run x -- sh counter | (trap '' INT; cat)");
    terminal.expect("ready");
    terminal.press(INTERRUPT);
    eventually("it came", || (count(directory.path()) == "int ").then_some(()));
    fs::write(directory.path().join("end"), "").expect("a file");
    terminal.expect("over");
    assert_eq!(count(directory.path()), "int ");
}

#[test]
fn in_a_script_the_terminal_is_the_scripts() {
    let directory = directory();
    let mut terminal = scene(directory.path());
    script(directory.path(), "script", "tenure run x -- sh reader; read line; echo script:$line");
    terminal.say("sh script");
    terminal.expect("ready");
    terminal.say("one");
    terminal.expect("got:one");
    let cmd = pids(&directory.path().join("pids"), 1)[0];
    terminal.press_for_shell(SUSPEND);
    // The shell knows only the script, which may be stopped before the others are.
    eventually("all are stopped", || (state(cmd) == 'T' && state(tenure_of(cmd)) == 'T').then_some(()));
    terminal.say("fg");
    terminal.expect_in_front(group_and_session(cmd).0);
    terminal.say("end");
    terminal.say("two");
    terminal.expect("script:two");
    terminal.say("sh script");
    terminal.expect("ready");
    terminal.press_for_shell(INTERRUPT);
    assert_eq!(terminal.code(), 130, "the script was ended too");
}

#[test]
fn a_signal_to_tenure_alone_reaches_a_command_in_the_same_group() {
    let directory = directory();
    let mut terminal = scene(directory.path());
    // It starts nobody: a shell that is stopped while it does so is not seen to stop.
    let text = "trap 'echo term >> count' TERM; echo $$ >> pids; echo ready; \
                until read line; do :; done; echo over";
    script(directory.path(), "waiting", text);
    terminal.say("tenure run --foreground x -- sh waiting");
    terminal.expect("ready");
    let cmd = pids(&directory.path().join("pids"), 1)[0];
    signal(tenure_of(cmd), Signal::TERM);
    eventually("it came", || (count(directory.path()) == "term ").then_some(()));
    signal(tenure_of(cmd), Signal::TSTP);
    terminal.expect("Stopped");
    eventually("both", || (state(cmd) == 'T').then_some(()));
    terminal.say("fg");
    terminal.expect_in_front(group_and_session(cmd).0);
    terminal.say("");
    terminal.expect("over");
    assert_eq!(count(directory.path()), "term ");
}

#[test]
fn what_a_command_sends_to_its_group_does_not_come_back_to_it() {
    let directory = directory();
    let mut terminal = scene(directory.path());
    let text = "trap 'echo term >> count' TERM; kill 0; sleep 0.2; echo sent";
    script(directory.path(), "sender", text);
    terminal.say("tenure run --foreground x -- sh sender");
    terminal.expect("sent");
    assert_eq!(terminal.code(), 0);
    assert_eq!(count(directory.path()), "term ");
}

#[test]
fn the_deadline_kills_all_that_came_of_the_command_and_no_other_member_of_the_pipeline() {
    let directory = directory();
    let file = directory.path().join("pids");
    let _leftovers = Leftovers(file.clone());
    let mut terminal = scene(directory.path());
    script(directory.path(), "family", support::FAMILY);
    script(
        directory.path(),
        "other",
        "trap '' PIPE; cat; echo $$ > other; read line < /dev/tty; echo other:$line",
    );
    terminal.say("tenure run --ttl 1s --hold-at-most 1500ms x -- sh family | sh other");
    let family = pids(&file, support::FAMILY_SIZE);
    eventually("all are dead", || (!family.iter().any(|pid| runs(*pid))).then_some(()));
    pids(&directory.path().join("other"), 1);
    terminal.say("alive");
    terminal.expect("other:alive");
    assert_eq!(terminal.answer("echo ${PIPESTATUS[0]}"), "76");
}

#[test]
fn the_terminal_comes_back_however_the_run_ends() {
    let directory = directory();
    let mut terminal = scene(directory.path());
    script(directory.path(), "raw", "echo $$ >> pids; stty raw; echo ready; exec sleep 1000");
    let before = terminal.modes().local_modes;
    assert!(before.contains(LocalModes::ICANON));
    for (whom, what, code) in [
        ("CMD", Signal::KILL, 137),
        ("guardian", Signal::KILL, 70),
        ("tenure", Signal::TERM, 143),
        ("tenure", Signal::KILL, 137),
    ] {
        clear(directory.path());
        terminal.say("tenure run x -- sh raw");
        terminal.expect("ready");
        let cmd = pids(&directory.path().join("pids"), 1)[0];
        let victim = match whom {
            "CMD" => cmd,
            "guardian" => parent(cmd),
            _ => tenure_of(cmd),
        };
        signal(victim, what);
        assert_eq!(terminal.code(), code, "{whom}");
        assert_eq!(terminal.modes().local_modes, before, "{whom}");
    }
    // Killed at the deadline, and the exit code is 76: the shell would not look after the modes.
    terminal.say(
        "tenure run --ttl 1s --hold-at-most 700ms x -- sh -c \"trap '' TERM; stty raw; exec sleep 1000\"",
    );
    terminal.expect("asking the command to end");
    assert_eq!(terminal.code(), 76);
    assert_eq!(terminal.modes().local_modes, before);
}

#[test]
fn while_what_the_command_left_behind_runs_on_the_keys_work() {
    let directory = directory();
    let mut terminal = scene(directory.path());
    let text = "sh -c 'echo $$ >> pids; exec sleep 1000' & until [ -e pids ]; do sleep 0.01; done; exit 6";
    script(directory.path(), "leaving", text);
    for options in ["", "--foreground"] {
        clear(directory.path());
        terminal.say(&format!("tenure run {options} x -- sh leaving"));
        terminal.expect("waiting for what runs on");
        let left = pids(&directory.path().join("pids"), 1)[0];
        terminal.press_for_shell(SUSPEND);
        assert_eq!(terminal.code(), 148, "{options}");
        eventually("it is stopped too", || (state(left) == 'T').then_some(()));
        terminal.say("fg");
        eventually("it goes on", || (state(left) != 'T').then_some(()));
        signal(left, Signal::KILL);
        assert_eq!(terminal.code(), 6, "{options}");
    }
}

#[test]
fn a_message_from_the_background_stops_nothing() {
    let directory = directory();
    let mut terminal = scene(directory.path());
    terminal
        .say("stty tostop; tenure run -v x -- sh -c 'sleep 0.1 >/dev/null; touch end' & wait; echo waited");
    terminal.expect("waited");
    assert!(directory.path().join("end").exists());
}

#[test]
fn who_waits_can_be_suspended_and_goes_on_waiting() {
    let directory = directory();
    let mut terminal = scene(directory.path());
    terminal.say("tenure run x -- sh counter &");
    terminal.expect("ready");
    terminal.say("tenure run x -- echo mine");
    terminal.expect("waiting for \"x\"");
    terminal.press_for_shell(SUSPEND);
    terminal.expect("Stopped");
    terminal.say("fg %2");
    fs::write(directory.path().join("end"), "").expect("a file");
    terminal.expect("mine");
    assert_eq!(terminal.code(), 0);
}

fn state(pid: i32) -> char {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next()).unwrap_or('-')
}
