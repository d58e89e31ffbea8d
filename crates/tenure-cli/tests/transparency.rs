//! CMD gets from tenure what it would get from its caller without it.

mod support;

use std::path::Path;
use std::process::Command;
use support::{run, stderr, stdout, tenure};

/// Show what they were given. Not by a shell alone: it clears the mask of blocked signals.
const LOOKS: [&[&str]; 2] = [
    &["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"],
    &["sh", "-c", "ls /proc/self/fd; ulimit -c; umask; pwd"],
];

/// The output of `sh -c script`, which has `"$@"` run something.
#[track_caller]
fn seen(directory: &Path, script: &str, words: &[&str]) -> String {
    let mut command = Command::new("sh");
    let tenure = tenure(directory);
    for (name, value) in tenure.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.args(["-c", script, "sh"]).args(words).current_dir(directory);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let output = run(&mut command);
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output).lines().map(without_the_libcs_own).collect()
}

/// The C library keeps signals 32 and 33 to itself, and handles them once there are threads.
fn without_the_libcs_own(line: &str) -> String {
    let signals = line.strip_prefix("SigIgn:\t").and_then(|set| u64::from_str_radix(set, 16).ok());
    match signals {
        Some(signals) => format!("ignored {:x}\n", signals & !(0b11 << 31)),
        None => format!("{line}\n"),
    }
}

#[test]
fn signals_descriptors_and_limits_are_the_callers() {
    let directory = tempfile::tempdir().expect("a directory");
    for script in [
        "\"$@\"",
        "trap '' HUP INT USR1; exec \"$@\"",
        "exec env --ignore-signal=PIPE \"$@\"",
        "exec env --ignore-signal=CHLD \"$@\"",
        "exec env --block-signal=USR2 --block-signal=CHLD --block-signal=TERM \"$@\"",
        "exec \"$@\" 7>seven 9<&0 8</dev/null",
        "exec \"$@\" <&-",
        "exec \"$@\" <&- 2>&-",
        "ulimit -c 0; umask 027; exec \"$@\"",
    ] {
        for look in LOOKS {
            let without = seen(directory.path(), script, look);
            let with = [&[env!("CARGO_BIN_EXE_tenure"), "run", "x", "--"], look].concat();
            assert_eq!(seen(directory.path(), script, &with), without, "{script}");
        }
    }
}

#[test]
fn arguments_are_passed_as_they_are() {
    let directory = tempfile::tempdir().expect("a directory");
    let words = ["run", "x", "--", "printf", "[%s]", "a b", "", "$HOME", "*", "--", "-n", "\u{202e}"];
    let output = run(tenure(directory.path()).args(words));
    assert_eq!(stdout(&output), "[a b][][$HOME][*][--][-n][\u{202e}]");
}

#[test]
fn the_environment_is_the_callers_and_the_leases() {
    let directory = tempfile::tempdir().expect("a directory");
    let script = "echo $OWN; echo $TENURE_NAME; echo $TENURE_OWNER; echo $TENURE_TOKEN; \
                  echo $TENURE_STORE_KIND; echo $TENURE_TTL_MS";
    let output = run(tenure(directory.path())
        .env("OWN", "mine")
        .env("TENURE_NAME", "an outer one")
        .args(["run", "--ttl", "20s", "the name", "--", "sh", "-c", script]));
    let said = stdout(&output);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..2], ["mine", "the name"], "{}", stderr(&output));
    assert!(lines[2].parse::<tenure::Owner>().is_ok(), "{said}");
    assert!(lines[3].parse::<u64>().expect("decimal") > 0);
    assert_eq!(lines[4..], ["sqlite", "20000"]);
}

#[test]
fn a_nested_command_meets_the_same_store() {
    let directory = tempfile::tempdir().expect("a directory");
    let url = format!("sqlite:{}", directory.path().join("other.db").display());
    let file = directory.path().join("store");
    std::fs::write(&file, format!("{url}\n")).expect("a file");
    let script = "echo \"$TENURE_STORE|$TENURE_STORE_FILE\"";
    let run_with = |option: &str, value: &str| {
        let mut command = tenure(directory.path());
        command.env("TENURE_STORE_FILE", "/from/outside").current_dir(directory.path());
        stdout(&run(command.args([option, value, "run", "x", "--", "sh", "-c", script])))
    };
    assert_eq!(run_with("--store", &url), format!("{url}|\n"));
    assert_eq!(run_with("--store-file", "store"), format!("|{}\n", file.display()));
}
