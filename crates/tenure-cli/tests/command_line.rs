//! What needs no lease: mistakes, help, and which store is meant.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use support::{directory, run, stderr, stdout, tenure, unprivileged};

/// Runs, expects this exit code, and gives the one line on stderr.
#[track_caller]
fn refused(command: &mut Command, code: i32) -> String {
    let output = run(command);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert_eq!(stdout(&output), "");
    assert_eq!(said.lines().count(), 1, "one line: {said}");
    assert!(said.starts_with("tenure: "), "{said}");
    said
}

#[test]
fn a_wrong_duration_is_named_with_what_is_allowed() {
    let directory = directory();
    for wrong in ["0", "-5s", "1ms", "1000years", "soon", "10", "25h", ""] {
        let said = refused(tenure(directory.path()).args(["run", "--ttl", wrong, "x", "--", "true"]), 64);
        assert!(said.contains(&format!("--ttl \"{wrong}\"")), "{said}");
        assert!(said.contains("500ms to 24h") && said.contains("1m30s"), "{said}");
    }
    for option in ["--heartbeat", "--wait", "--grace", "--hold-at-least", "--hold-at-most"] {
        let said = refused(tenure(directory.path()).args(["run", option, "soon", "x", "--", "true"]), 64);
        assert!(said.contains(&format!("{option} \"soon\"")), "{said}");
    }
}

#[test]
fn a_missing_command_is_a_mistake_with_a_hint() {
    let directory = directory();
    for words in [&["run", "x"][..], &["run"], &["run", "x", "--"], &["run", "x", "true"]] {
        let said = refused(tenure(directory.path()).args(words), 64);
        assert!(said.contains("tenure run NAME -- CMD"), "{said}");
    }
    let said = refused(tenure(directory.path()).args(["run", "x", "--", ""]), 64);
    assert!(said.contains("empty"), "{said}");
}

#[test]
fn a_wrong_name_or_label_is_a_mistake() {
    let directory = directory();
    let long = "n".repeat(513);
    for wrong in ["", "a\nb", &long] {
        refused(tenure(directory.path()).args(["run", wrong, "--", "true"]), 64);
        refused(tenure(directory.path()).args(["show", wrong]), 64);
    }
    refused(tenure(directory.path()).args(["run", "--label", "a\x1bb", "x", "--", "true"]), 64);
}

#[test]
fn a_name_may_begin_with_a_dash() {
    let directory = directory();
    let shown = ["sh", "-c", "echo $TENURE_NAME"];
    let run_as = |words: &[&str]| run(tenure(directory.path()).arg("run").args(words).args(shown));
    assert_eq!(stdout(&run_as(&["--", "-x", "--"])), "-x\n");
    assert_eq!(stdout(&run_as(&["-n", "--", "--ttl", "--"])), "--ttl\n");
    let said = refused(tenure(directory.path()).args(["run", "", "--", "true"]), 64);
    assert!(said.contains("NAME \"\"") && !said.contains('<'), "{said}");
}

#[test]
fn every_mistake_of_usage_is_64_and_help_is_0() {
    let directory = directory();
    for words in [
        &[][..],
        &["nonsense"],
        &["run", "--nonsense", "x", "--", "true"],
        &["run", "-n", "-w", "1s", "x", "--", "true"],
        &["run", "-E", "256", "x", "--", "true"],
        &["run", "--on-lost", "cry", "x", "--", "true"],
        &["show"],
        &["--store", "sqlite:", "--store-file", "f", "ls"],
        &["--store", "nonsense:", "ls"],
        &["--store", "nonsense", "ls"],
    ] {
        let output = run(tenure(directory.path()).args(words));
        assert_eq!(output.status.code(), Some(64), "{words:?}: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "{words:?}");
        assert_ne!(stderr(&output), "", "{words:?}");
    }
    for words in [&["--help"][..], &["run", "--help"], &["help", "show"], &["--version"]] {
        let output = run(tenure(directory.path()).args(words));
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{words:?}");
        assert_ne!(stdout(&output), "", "{words:?}");
    }
}

#[test]
fn a_command_that_cannot_be_run_is_not_waited_for() {
    let directory = directory();
    let said = refused(tenure(directory.path()).args(["run", "x", "--", "no-such-command"]), 127);
    assert!(said.contains("no-such-command"), "{said}");
    refused(tenure(directory.path()).args(["run", "x", "--", "./no-such-command"]), 127);
    refused(tenure(directory.path()).args(["run", "x", "--", "/"]), 126);
    let script = directory.path().join("script");
    fs::write(&script, "#!/bin/sh\n").expect("a file");
    let said = refused(tenure(directory.path()).args(["run", "x", "--"]).arg(&script), 126);
    assert!(said.contains("script"), "{said}");
    assert!(!directory.path().join("leases.db").exists(), "nothing was acquired");
}

#[test]
fn set_but_empty_is_no_store() {
    let directory = directory();
    let ls = || {
        let mut command = tenure(directory.path());
        command.env_remove("TENURE_STORE").arg("ls");
        command
    };
    refused(ls().env("TENURE_STORE", ""), 64);
    refused(ls().env("TENURE_STORE_FILE", ""), 64);
    refused(ls().args(["--store", ""]), 64);
    refused(ls().args(["--store-file", ""]), 64);
    let empty = directory.path().join("empty");
    fs::write(&empty, "\n").expect("a file");
    refused(ls().arg("--store-file").arg(&empty), 64);
    refused(ls().env("TENURE_STORE_FILE", &empty), 64);
}

#[test]
fn a_store_of_one_process_is_refused_with_the_reason() {
    let directory = directory();
    for url in ["memory:", "MEMORY:x?session=shared"] {
        let said = refused(tenure(directory.path()).args(["--store", url, "ls"]), 64);
        assert!(said.contains("one process"), "{said}");
    }
    let file = directory.path().join("store");
    fs::write(&file, "memory:\n").expect("a file");
    refused(tenure(directory.path()).arg("--store-file").arg(&file).arg("ls"), 64);
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let directory = directory();
    let missing = directory.path().join("missing");
    let said = refused(tenure(directory.path()).arg("--store-file").arg(&missing).arg("ls"), 64);
    assert!(said.contains("missing"), "{said}");
    let closed = directory.path().join("closed");
    fs::write(&closed, "sqlite:").expect("a file");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).expect("its mode");
    let said = refused(unprivileged(tenure(directory.path())).arg("--store-file").arg(&closed).arg("ls"), 77);
    assert!(said.contains("closed"), "{said}");
}

#[test]
fn what_a_file_holds_is_never_shown() {
    let directory = directory();
    let file = directory.path().join("store");
    for text in ["nonsense://u:s3cret@h/\n", "s3cret", "a:s3cret\nb:s3cret\n"] {
        fs::write(&file, text).expect("a file");
        let output = run(tenure(directory.path()).arg("--store-file").arg(&file).arg("ls"));
        assert_eq!(output.status.code(), Some(64));
        assert!(!stderr(&output).contains("s3cret"), "{}", stderr(&output));
    }
}

#[test]
fn a_password_on_the_command_line_is_warned_of() {
    let directory = directory();
    let output = run(tenure(directory.path()).args(["--store", "nonsense://u:s3cret@h/", "ls"]));
    assert!(stderr(&output).contains("--store-file"), "{}", stderr(&output));
    assert!(!stderr(&output).contains("s3cret"), "{}", stderr(&output));
}

#[test]
fn a_guardian_without_its_orders_does_nothing() {
    let words: [&[&str]; 3] = [&["__guardian"], &["__guardian", "2", "-"], &["__guardian", "x", "-", "1"]];
    for words in words {
        let output = run(tenure(Path::new("/nonexistent")).args(words).args(["touch", "/nonexistent/x"]));
        assert_eq!(output.status.code(), Some(70), "{words:?}");
    }
}
