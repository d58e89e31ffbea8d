//! C14 at the command line: text that came from elsewhere, secrets, files and directories of
//! others, and which store is meant.

mod support;

use rusqlite::Connection;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use support::{directory, run, run_with_descriptors, stderr, stdout, tenure, words};

/// Every kind of thing that a terminal may obey, or that shows text in another order.
const HOSTILE: &str =
    "\u{1b}[2J\u{1b}]0;x\u{7}\u{9b}31m\r\u{8}\u{7f}\u{202e}\u{2066}\u{2028}\u{feff}\u{200f}\u{61c}";

#[track_caller]
fn steers_nothing(text: &str, what: &str) {
    let steers = |c: &char| {
        (c.is_control() && *c != '\n')
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    let found: Vec<char> = text.chars().filter(steers).collect();
    assert!(found.is_empty(), "{what}: {found:?} in {text:?}");
}

/// Names and labels written past tenure, by somebody who may write the file.
fn written_by_somebody(at: &Path, label: &str, waiter: &str, name: &str) {
    assert!(run(words(&mut tenure(at), "run first -- true")).status.success());
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a boot id");
    let database = Connection::open(at.join("leases.db")).expect("the database");
    database
        .execute(
            "INSERT INTO session(id, boot, expires, ttl) VALUES (zeroblob(16), ?1, 9000000000000000000, 1000000000)",
            [boot.trim()],
        )
        .expect("a session");
    for name in ["x", name] {
        database
            .execute(
                "INSERT OR REPLACE INTO lease(name, token, owner, label, session, since, ttl, one_shot)
                 VALUES (?1, 7, randomblob(16), ?2, zeroblob(16), 1700000000000000, 1000000000, 1)",
                [name, label],
            )
            .expect("a lease");
    }
    database
        .execute(
            "INSERT INTO entry(name, owner, label, session, ttl, one_shot, keep, since)
             VALUES ('x', randomblob(16), ?1, zeroblob(16), 1000000000, 0, 0, 1700000000000000)",
            [waiter],
        )
        .expect("an entry");
}

const SHOWING: [&str; 12] = [
    "ls",
    "ls --json",
    "show x",
    "show x --json",
    "run -n x -- true",
    "run -w 700ms x -- true",
    "acquire -n x",
    "acquire -w 700ms x",
    "wait --timeout 700ms x",
    "wait --timeout 0 x --json",
    "revoke x --token 1 --json",
    "check --json",
];

fn shown(at: &Path, line: &str) -> Output {
    let mut command = tenure(at);
    command.envs([
        ("TENURE_NAME", "x"),
        ("TENURE_OWNER", "0123456789abcdef0123456789abcdef"),
        ("TENURE_TOKEN", "1"),
    ]);
    run(words(&mut command, line))
}

#[test]
fn what_somebody_wrote_into_the_store_steers_no_terminal() {
    // Allowed in a label, and to be shown escaped; and not allowed, as tenure itself writes none.
    let allowed: String = HOSTILE.chars().filter(|c| !c.is_control()).collect();
    for (label, code) in [(allowed.as_str(), None), (HOSTILE, Some(77))] {
        let directory = directory();
        written_by_somebody(directory.path(), label, label, label);
        for line in SHOWING {
            let output = shown(directory.path(), line);
            for text in [stdout(&output), stderr(&output)] {
                steers_nothing(&text, line);
            }
            let found = output.status.code();
            assert!(found.is_some_and(|found| code.is_none_or(|code| code == found)), "{line}: {found:?}");
            if code.is_none() && !line.starts_with("ls") {
                let text = stdout(&output) + &stderr(&output);
                assert!(text.to_lowercase().contains("202e"), "{line}: it is shown: {text}");
            }
        }
        // JSON means the same as what was stored.
        if code.is_none() {
            let value: Value =
                serde_json::from_slice(&shown(directory.path(), "show x --json").stdout).expect("JSON");
            assert_eq!(value["holder"]["label"], label);
        }
    }
}

/// On a terminal the paths are others: widths, shortening, help with colours.
fn on_a_terminal(at: &Path, line: &str) -> String {
    let program = tenure(at);
    let mut command = Command::new("script");
    command.args([
        "-qec",
        &format!("stty cols 80 && exec {} {line}", env!("CARGO_BIN_EXE_tenure")),
        "/dev/null",
    ]);
    command.envs(program.get_envs().filter_map(|(key, value)| Some((key, value?))));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    stdout(&run(&mut command)).replace("\r\n", "\n")
}

#[test]
fn on_a_terminal_of_80_columns_nothing_is_longer_and_nothing_steers_it() {
    let directory = directory();
    let at = directory.path();
    let bidi: String = HOSTILE.chars().filter(|c| !c.is_control()).collect();
    let wide = format!("夜間報告書{bidi}👩‍👩‍👧❤️").repeat(3);
    written_by_somebody(at, &wide, &wide, &wide);
    for line in ["ls", "show x"] {
        let text = on_a_terminal(at, line);
        steers_nothing(&text, line);
        assert!(text.contains('…') && text.contains('夜'), "{line}: {text}");
        for row in text.lines() {
            let columns: usize = row
                .chars()
                .map(|c| match c {
                    '\u{fe0f}' => 1,
                    c => unicode_width::UnicodeWidthChar::width(c).unwrap_or(0),
                })
                .sum();
            assert!(columns <= 80, "{line}: {columns} columns: {row}");
        }
    }
    // Columns stay under their heads.
    let table = on_a_terminal(at, "ls");
    let ends: Vec<&str> =
        table.lines().map(|line| line.rsplit("  ").next().unwrap_or_default().trim()).collect();
    assert_eq!(ends, ["WAITERS", "1", "0"], "{table}");
}

#[test]
fn help_is_plain_where_colours_are_not_wanted() {
    let directory = directory();
    let at = directory.path();
    let mut command = tenure(at);
    steers_nothing(&stdout(&run(command.arg("--help"))), "--help");
    let coloured = on_a_terminal(at, "--help");
    assert!(coloured.contains('\u{1b}'), "a terminal gets colours: {coloured}");
    let program = format!("NO_COLOR=1 TERM=xterm exec {} --help", env!("CARGO_BIN_EXE_tenure"));
    let output = run(Command::new("script")
        .args(["-qec", &program, "/dev/null"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped()));
    steers_nothing(&stdout(&output).replace("\r\n", "\n"), "NO_COLOR");
}

#[test]
fn no_message_shows_a_password() {
    let directory = directory();
    let at = directory.path();
    let url = "redis://ann:s3cret@127.0.0.1:1/0";
    let file = at.join("url");
    fs::write(&file, url).expect("a file");
    let owner = "0123456789abcdef0123456789abcdef";
    let verbs = [
        "run x -- true".to_owned(),
        "-v acquire -n x".to_owned(),
        format!("renew x --owner {owner}"),
        format!("release x --owner {owner}"),
        "check".to_owned(),
        "ls".to_owned(),
        "show x".to_owned(),
        "wait --timeout 700ms x".to_owned(),
        "revoke x --token 1".to_owned(),
        "init --apply".to_owned(),
        // Typed where no URL is expected.
        format!("ls a {url}"),
        format!("--stoer {url} ls"),
        format!("--stoer={url} ls"),
        format!("show x {url}"),
        format!("run --ttl {url} x -- true"),
        format!("man {url}"),
    ];
    let check = [("TENURE_NAME", "x"), ("TENURE_OWNER", owner), ("TENURE_TOKEN", "1")];
    for verb in &verbs {
        let mut by_option = tenure(at);
        by_option.args(["--store", url]);
        let mut by_variable = tenure(at);
        by_variable.env("TENURE_STORE", url);
        let mut by_file = tenure(at);
        by_file.arg("--store-file").arg(&file);
        for command in [&mut by_option, &mut by_variable, &mut by_file] {
            let output = run(words(command.envs(check), verb));
            let text = stdout(&output) + &stderr(&output);
            assert_eq!(output.status.code(), Some(64), "{verb}: {text}");
            assert!(!text.contains("s3cret"), "{verb}: {text}");
            assert!(
                text.matches("--store-file").count() <= 1 || text.contains("Usage"),
                "warned once: {text}"
            );
        }
    }
}

/// Refused with this code and one line, which is given.
#[track_caller]
fn refused(output: &Output, code: i32) -> String {
    let said = stderr(output);
    assert_eq!((output.status.code(), stdout(output).as_str()), (Some(code), ""), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

#[test]
fn a_directory_of_somebody_else_is_refused_and_said_to_be_his() {
    let directory = directory();
    let at = directory.path();
    let foreign = |command: Command| {
        if rustix::process::geteuid().is_root() {
            chown(at, Some(65534), None).expect("root may");
            return command;
        }
        // In a user namespace of one's own the directories of root are somebody else's.
        let mut mapped = Command::new("unshare");
        mapped.arg("-r").arg(command.get_program());
        mapped.env("TENURE_STORE", "sqlite:/etc/leases.db");
        mapped.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        mapped
    };
    let mut command = foreign(tenure(at));
    let said = refused(&run(words(&mut command, "run x -- true")), 77);
    assert!(said.contains("belongs to another user (uid 65534; this is uid 0)"), "{said}");
    assert_eq!(fs::read_dir(at).expect("a directory").count(), 0);
    if rustix::process::geteuid().is_root() {
        chown(at, Some(0), None).expect("root may");
    }
    for (mode, code) in [(0o755, 0), (0o777, 77), (0o1777, 77), (0o775, 77), (0o2770, 0)] {
        fs::set_permissions(at, fs::Permissions::from_mode(mode)).expect("its mode");
        let output = run(words(&mut tenure(at), "run x -- true"));
        assert_eq!(output.status.code(), Some(code), "{mode:o}: {}", stderr(&output));
        if code != 0 {
            assert!(stderr(&output).contains("may be written by others"), "{}", stderr(&output));
        }
    }
}

#[test]
fn a_path_that_is_too_long_is_a_mistake_and_said_to_be() {
    let directory = directory();
    let at = directory.path();
    let deep = format!("{}/{}leases.db", at.display(), "d/".repeat(300));
    let wide = at.join("n".repeat(250));
    let wider = at.join("n".repeat(300)).join("leases.db");
    for path in [deep.as_ref(), wide.as_path(), wider.as_path()] {
        let url = format!("sqlite:{}", path.display());
        let said = refused(&run(tenure(at).args(["--store", &url, "run", "-n", "x", "--", "true"])), 64);
        assert!(said.contains("too long"), "{said}");
    }
}

/// However few they are, it is not taken for a refusal by the store.
#[test]
fn too_few_descriptors_are_no_refusal() {
    let directory = directory();
    assert!(run(words(&mut tenure(directory.path()), "run x -- true")).status.success());
    for line in ["ls", "init --apply"] {
        for limit in 4..24 {
            let output = run_with_descriptors(limit, words(&mut tenure(directory.path()), line));
            let (code, said) = (output.status.code(), stderr(&output));
            assert!(matches!(code, Some(0 | 69 | 70)), "{line}, {limit}: {code:?} {said}");
            assert!(!matches!(code, Some(69 | 70)) || said.contains("oo many"), "{limit}: {said}");
        }
    }
}

#[test]
fn a_home_that_helps_nobody_is_named_for_what_it_is() {
    let directory = directory();
    for (home, what) in
        [(None, "is not set"), (Some(""), "is empty"), (Some("rel"), "is not an absolute path")]
    {
        let mut command = tenure(directory.path());
        command.env_remove("TENURE_STORE").env_remove("XDG_STATE_HOME").env_remove("HOME");
        if let Some(home) = home {
            command.env("HOME", home);
        }
        let said = refused(&run(command.arg("ls")), 64);
        assert!(said.contains(&format!("HOME {what}")), "{said}");
    }
}

#[test]
fn files_have_their_mode_whatever_the_umask_is() {
    for (umask, directory_mode, file, live) in
        [("000", 0o700, 0o600, 0o700), ("777", 0o700, 0o600, 0o700), ("077", 0o2770, 0o660, 0o2770)]
    {
        let directory = directory();
        let at = directory.path();
        fs::set_permissions(at, fs::Permissions::from_mode(directory_mode)).expect("its mode");
        let program = tenure(at);
        let mut command = Command::new("sh");
        let script = format!("umask {umask}; exec {} acquire x", env!("CARGO_BIN_EXE_tenure"));
        command.args(["-c", &script]).envs(program.get_envs().filter_map(|(key, value)| Some((key, value?))));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = run(&mut command);
        assert!(output.status.success(), "{}", stderr(&output));
        let mut seen = 0;
        for entry in fs::read_dir(at).expect("a directory") {
            let entry = entry.expect("an entry");
            let mode = entry.metadata().expect("it is there").permissions().mode() & 0o7777;
            let expected = if entry.path().is_dir() { live } else { file };
            assert_eq!(mode, expected, "umask {umask}: {}", entry.path().display());
            seen += 1;
        }
        assert!(seen >= 3, "{seen} files");
    }
}

/// Which of several is meant; each names a file of its own.
#[test]
fn the_first_way_to_name_a_store_decides() {
    let directory = directory();
    let at = directory.path();
    for name in ["option", "option-file", "variable", "variable-file"] {
        fs::write(at.join(format!("{name}.url")), format!("sqlite:{}/{name}.db\n", at.display()))
            .expect("a file");
    }
    let url = |name: &str| format!("sqlite:{}/{name}.db", at.display());
    let file = |name: &str| at.join(format!("{name}.url"));
    let home = at.join("home");
    let chosen = |ways: &[&str]| {
        let mut command = tenure(at);
        command.env_remove("TENURE_STORE").env("HOME", &home).env_remove("XDG_STATE_HOME");
        for way in ways {
            match *way {
                "option" => command.arg("--store").arg(url("option")),
                "option-file" => command.arg("--store-file").arg(file("option-file")),
                "variable" => command.env("TENURE_STORE", url("variable")),
                "variable-file" => command.env("TENURE_STORE_FILE", file("variable-file")),
                other => panic!("{other}"),
            };
        }
        let output = run(command.args(["-v", "ls"]));
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stderr(&output)
    };
    for (ways, expected) in [
        (&["option", "variable", "variable-file"][..], "/option.db"),
        (&["option-file", "variable", "variable-file"], "/option-file.db"),
        (&["variable", "variable-file"], "/variable.db"),
        (&["variable-file"], "/variable-file.db"),
        (&[], "/.local/state/tenure/leases.db"),
    ] {
        let said = chosen(ways);
        assert!(said.contains(expected), "{ways:?}: {said}");
    }
}

/// CMD may change its directory, and its home.
#[test]
fn a_relative_store_is_the_same_one_inside() {
    let directory = directory();
    let at = directory.path();
    fs::write(at.join("url"), "sqlite:leases%2Ddb").expect("a file");
    let script = format!("cd / && exec {} run -n x -- true", env!("CARGO_BIN_EXE_tenure"));
    let mut by_file = tenure(at);
    by_file.arg("--store-file").arg("url");
    let mut by_option = tenure(at);
    by_option.args(["--store", "sqlite:leases%2Ddb"]);
    let mut by_variable = tenure(at);
    by_variable.env("TENURE_STORE", "sqlite:leases%2Ddb");
    for command in [&mut by_file, &mut by_option, &mut by_variable] {
        let output = run(command.current_dir(at).args(["run", "x", "--", "sh", "-c", &script]));
        assert_eq!(output.status.code(), Some(75), "it meets the one around it: {}", stderr(&output));
    }
    assert!(at.join("leases-db").exists());
    // The default of this user, for a command with another home.
    let script = format!("HOME=/nonexistent exec {} run -n x -- true", env!("CARGO_BIN_EXE_tenure"));
    let mut command = tenure(at);
    command.env_remove("TENURE_STORE").env_remove("XDG_STATE_HOME").env("HOME", at);
    let output = run(command.args(["run", "x", "--", "sh", "-c", &script]));
    assert_eq!(output.status.code(), Some(75), "{}", stderr(&output));
}

#[test]
fn a_store_file_that_everybody_may_write_is_refused() {
    let directory = directory();
    let file = directory.path().join("url");
    fs::write(&file, "sqlite:/nonexistent/leases.db").expect("a file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).expect("its mode");
    let said = refused(&run(tenure(directory.path()).arg("--store-file").arg(&file).arg("ls")), 77);
    assert!(said.contains("everybody may write it"), "{said}");
}

/// In a mount namespace of its own: the machine's store, its group, and who gets in.
#[test]
fn the_store_of_the_machine_is_made_for_its_group_and_is_everybodys_default() {
    let directory = directory();
    let at = directory.path();
    fs::set_permissions(at, fs::Permissions::from_mode(0o755)).expect("its mode");
    fs::copy(env!("CARGO_BIN_EXE_tenure"), at.join("tenure")).expect("a copy that others may run");
    fs::write(at.join("script"), include_str!("support/init_system.sh")).expect("a script");
    let mut command = Command::new("unshare");
    command.arg("--mount");
    if !rustix::process::geteuid().is_root() {
        command.args(["--map-root-user", "--map-auto"]);
    }
    command.args(["bash", "-eu"]).arg(at.join("script")).arg(at);
    for variable in ["TENURE_STORE", "TENURE_STORE_FILE", "XDG_STATE_HOME"] {
        command.env_remove(variable);
    }
    let output = run(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert!(output.status.success(), "{}\n{}", stdout(&output), stderr(&output));
    assert!(stdout(&output).ends_with("all is well\n"), "{}\n{}", stdout(&output), stderr(&output));
}
