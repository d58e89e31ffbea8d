//! `check`, `wait`, `ls`, `show`, `revoke`, `init` and the pages that are made.
#![allow(clippy::disallowed_methods, reason = "measures real time")]

mod support;

use rusqlite::Connection;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};
use support::{
    directory, ends, eventually, finished, is_69_short_of_descriptors, json, run, signal, stderr, stdout,
    tenure, words,
};

fn fields(value: &Value) -> String {
    value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>().join(" ")
}

/// A run that ends when there is a file `end`; gives it, and its token.
fn holder(directory: &Path, options: &str, name: &str) -> (Child, u64) {
    let mut command = tenure(directory);
    command.current_dir(directory).arg("run").args(options.split_whitespace()).arg(name);
    command.args(["--", "sh", "-c", "until [ -e end ]; do sleep 0.01; done"]);
    let child = command.spawn().expect("it starts");
    let token = eventually("it holds", || {
        let shown: Value =
            serde_json::from_slice(&run(tenure(directory).args(["show", "--json", name])).stdout).ok()?;
        shown["holder"]["token"].as_u64()
    });
    (child, token)
}

fn let_end(directory: &Path, holder: Child) -> Output {
    fs::write(directory.join("end"), "").expect("a file");
    finished(holder)
}

/// Runs this script under a lease.
fn inside(directory: &Path, script: &str) -> Output {
    let path = Path::new(env!("CARGO_BIN_EXE_tenure")).parent().expect("a directory").display();
    let script = format!("PATH={path}:$PATH; {script}");
    run(tenure(directory).current_dir(directory).args(["run", "x", "--", "sh", "-c", &script]))
}

#[test]
fn check_is_0_with_the_time_left_while_the_lease_is_held() {
    let directory = directory();
    let output = inside(directory.path(), "tenure check && tenure check --json");
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    let text = stdout(&output);
    let (left, rest) = text.split_once('\n').expect("two answers");
    assert!(
        left.strip_suffix('s').is_some_and(|left| left.parse::<u8>().is_ok_and(|left| left <= 10)),
        "{left}"
    );
    let value: Value = serde_json::from_str(rest).expect("JSON");
    assert_eq!(fields(&value), "name owner token held left_ms holder store");
    assert_eq!((&value["held"], &value["name"]), (&true.into(), &"x".into()));
    assert!(value["left_ms"].as_u64().is_some_and(|left| left > 5_000), "{value}");
}

#[test]
fn check_is_1_with_the_reason_when_it_is_not_held_any_more() {
    let directory = directory();
    let at = directory.path();
    // Revoked: it says so before the run itself has noticed.
    let script = "trap '' TERM; tenure revoke x --token $TENURE_TOKEN 2> /dev/null; tenure check; echo $?; \
                  tenure check --json > json; echo $?; exit 3";
    let output = inside(at, script);
    let text = stdout(&output);
    assert_eq!(text.lines().skip(1).collect::<Vec<_>>(), ["1", "1"], "{text}{}", stderr(&output));
    assert!(stderr(&output).contains("revoked"), "{}", stderr(&output));
    let value: Value = serde_json::from_slice(&fs::read(at.join("json")).expect("a file")).expect("JSON");
    assert_eq!((&value["held"], &value["left_ms"]), (&false.into(), &Value::Null));

    let check = |owner: &str, token: &str| {
        let mut command = tenure(at);
        command.envs([("TENURE_NAME", "y"), ("TENURE_OWNER", owner), ("TENURE_TOKEN", token)]);
        run(command.arg("check"))
    };
    let owner = "0123456789abcdef0123456789abcdef";
    let free = check(owner, "1");
    assert_eq!((free.status.code(), stdout(&free).as_str()), (Some(1), ""));
    assert!(stderr(&free).contains("nobody holds it"), "{}", stderr(&free));
    let token = stdout(&ends(at, &format!("acquire --owner {owner} --label me y"), 0));
    let token = token.split_whitespace().nth(1).expect("a token");
    assert_eq!(check(owner, token).status.code(), Some(0));
    let other = check("fedcba9876543210fedcba9876543210", token);
    assert!(other.status.code() == Some(1) && stderr(&other).contains("held by me"), "{}", stderr(&other));
    let old = check(owner, "1");
    assert!(old.status.code() == Some(1) && stderr(&old).contains(token), "{}", stderr(&old));
}

#[test]
fn check_is_64_outside_of_run() {
    let directory = directory();
    for (owner, token) in
        [(None, None), (Some("short"), Some("1")), (Some("0123456789abcdef0123456789abcdef"), Some("x"))]
    {
        let mut command = tenure(directory.path());
        for variable in ["TENURE_NAME", "TENURE_OWNER", "TENURE_TOKEN"] {
            command.env_remove(variable);
        }
        if let (Some(owner), Some(token)) = (owner, token) {
            command.envs([("TENURE_NAME", "x"), ("TENURE_OWNER", owner), ("TENURE_TOKEN", token)]);
        }
        let output = run(command.arg("check"));
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(64), ""), "{}", stderr(&output));
        assert_eq!(stderr(&output).lines().count(), 1);
    }
}

#[test]
fn wait_returns_when_the_name_is_free() {
    let directory = directory();
    let at = directory.path();
    assert_eq!(stdout(&ends(at, "wait x", 0)), "", "a store that nobody has used");
    assert_eq!(fs::read_dir(at).expect("a directory").count(), 0);
    let (run_of_x, _) = holder(at, "--label me", "x");
    let mut waiter = words(&mut tenure(at), "wait x --json").spawn().expect("it starts");
    let mut line = String::new();
    let mut reader = BufReader::new(waiter.stderr.take().expect("a pipe"));
    reader.read_line(&mut line).expect("a line");
    assert!(line.contains("waiting for \"x\": held by me") && line.contains("leases.db"), "{line}");
    assert!(waiter.try_wait().expect("a child").is_none());
    assert_eq!(let_end(at, run_of_x).status.code(), Some(0));
    let output = finished(waiter);
    assert_eq!(output.status.code(), Some(0));
    let value = json(&output);
    assert_eq!(fields(&value), "name holder revoked_ms kept_back_ms waiting waiters store");
    assert_eq!(value["holder"], Value::Null);
    ends(at, "wait --timeout 0 x", 0);
}

#[test]
fn wait_is_75_when_the_time_ran_out_and_69_when_nothing_was_heard() {
    let directory = directory();
    let at = directory.path();
    ends(at, "acquire --label me --ttl 1m x", 0);
    for timeout in ["0", "150ms"] {
        let output = ends(at, &format!("wait --timeout {timeout} x"), 75);
        assert!(stderr(&output).contains("held by me"), "{}", stderr(&output));
    }
    assert_eq!(json(&ends(at, "wait --timeout 0 x --json", 75))["holder"]["label"], "me");
    is_69_short_of_descriptors(words(&mut tenure(at), "wait --timeout 0 x"));
    // Kept back is not free.
    let claim = stdout(&ends(at, "acquire --hold-at-least 1m y", 0));
    ends(at, &format!("release y --owner {}", claim.split_whitespace().next().expect("an owner")), 0);
    ends(at, "wait --timeout 0 y", 75);
}

#[test]
fn revoke_hits_the_holder_of_this_token_and_no_other() {
    let directory = directory();
    let at = directory.path();
    ends(at, "revoke x --token 1", 1);
    let (run_of_x, token) = holder(at, "--ttl 2s --label me", "x");
    for wrong in [token - 1, token + 1, 0] {
        let output = ends(at, &format!("revoke x --token {wrong} --now"), 1);
        assert!(
            stderr(&output).contains("me holds it") && !stderr(&output).contains("audit"),
            "{}",
            stderr(&output)
        );
    }
    let output = ends(at, &format!("revoke x --token {token} --json"), 0);
    let value = json(&output);
    assert_eq!(fields(&value), "name token now outcome free_within_ms holder");
    assert_eq!((&value["outcome"], &value["holder"]["label"]), (&"marked".into(), &"me".into()));
    assert!(value["free_within_ms"].as_u64().is_some_and(|left| left <= 2000), "{value}");
    let said = stderr(&output);
    let audit: Value = serde_json::from_str(said.trim_start_matches("tenure: audit: ")).expect("JSON");
    assert_eq!((&audit["action"], &audit["token"]), (&"revoke".into(), &token.into()));
    assert!(audit["at"].as_str().is_some_and(|at| at.starts_with("20") && at.ends_with('Z')), "{audit}");
    assert_eq!(audit["by"]["uid"], rustix::process::getuid().as_raw());
    let ended = finished(run_of_x);
    assert_eq!(ended.status.code(), Some(76), "{}", stderr(&ended));
    let again = json(&ends(at, &format!("revoke x --token {token} --json"), 1));
    assert_eq!((&again["outcome"], &again["free_within_ms"]), (&"not_held".into(), &Value::Null));
}

#[test]
fn revoke_now_frees_at_once_and_says_who_may_still_work() {
    let directory = directory();
    let at = directory.path();
    let (run_of_x, token) = holder(at, "--ttl 2s --label me", "x");
    let output = ends(at, &format!("revoke x --token {token} --now"), 0);
    assert!(stdout(&output).contains("me may still be working"), "{}", stdout(&output));
    ends(at, "acquire -n x", 0);
    assert_eq!(finished(run_of_x).status.code(), Some(76));
    // It lifts what keeps a name back, too.
    let claim = json(&ends(at, "acquire --json --hold-at-least 1m y", 0));
    let (owner, token) = (claim["owner"].as_str().expect("an owner"), &claim["token"]);
    ends(at, &format!("release y --owner {owner}"), 0);
    ends(at, "acquire -n y", 75);
    ends(at, &format!("revoke y --token {token}"), 0);
    ends(at, "acquire -n y", 0);
}

#[test]
fn mistakes_are_64_a_store_that_refuses_77_and_one_that_cannot_69() {
    let directory = directory();
    let at = directory.path();
    for line in [
        "wait",
        "wait --timeout soon x",
        "revoke x",
        "revoke x --token y",
        "init --system extra",
        "man nothing",
        "completions tcsh",
        "completions",
        "ls a b",
        "show",
    ] {
        let output = ends(at, line, 64);
        assert_eq!(stdout(&output), "", "{line}");
    }
    let asked = ["ls", "show x", "wait --timeout 0 x", "revoke x --token 1", "init", "init --apply", "check"];
    ends(at, "run x -- true", 0);
    let check =
        [("TENURE_NAME", "x"), ("TENURE_OWNER", "0123456789abcdef0123456789abcdef"), ("TENURE_TOKEN", "1")];
    for line in asked {
        is_69_short_of_descriptors(words(tenure(at).envs(check), line));
    }
    for suffix in ["-wal", "-shm"] {
        fs::remove_file(at.join(format!("leases.db{suffix}"))).expect("it is there");
    }
    fs::write(at.join("leases.db"), "no database".repeat(500)).expect("a file");
    for line in asked {
        let output = run(words(tenure(at).envs(check), line));
        assert_eq!(
            (output.status.code(), stdout(&output).as_str()),
            (Some(77), ""),
            "{line}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn who_died_waiting_is_not_counted() {
    let directory = directory();
    let at = directory.path();
    let (run_of_x, _) = holder(at, "", "x");
    let waiter = words(&mut tenure(at), "run x -- true").spawn().expect("it starts");
    let waiting = || json(&ends(at, "show x --json", 0))["waiting"].as_u64();
    eventually("it waits", || (waiting() == Some(1)).then_some(()));
    let pid = rustix::process::Pid::from_child(&waiter);
    signal(pid.as_raw_nonzero().get(), rustix::process::Signal::KILL);
    // Its entry lives for 1.5 s.
    let began = Instant::now();
    eventually("it is not counted any more", || (waiting() == Some(0)).then_some(()));
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    finished(waiter);
    assert_eq!(let_end(at, run_of_x).status.code(), Some(0));
}

/// More than the store gives in one page, written past tenure.
fn crowd(directory: &Path, names: u32, waiters: u32) {
    ends(directory, "run first -- true", 0);
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a boot id");
    let database = Connection::open(directory.join("leases.db")).expect("the database");
    database
        .execute_batch(&format!(
            "BEGIN;
             INSERT INTO session(id, boot, expires, ttl) VALUES (zeroblob(16), '{}', 9000000000000000000, 1000000000);
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {names})
             INSERT INTO lease(name, token, owner, label, session, since, ttl, one_shot)
             SELECT printf('name-%06d', i), i, randomblob(16), 'crowd', zeroblob(16), 1700000000000000, 1000000000, 1 FROM n;
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {waiters})
             INSERT INTO entry(name, owner, label, session, ttl, one_shot, keep, since)
             SELECT 'name-000001', randomblob(16), 'waits', zeroblob(16), 1000000000, 0, 0, 1700000000000000 FROM n;
             COMMIT;",
            boot.trim()
        ))
        .expect("it is written");
}

#[test]
fn ls_prints_every_page_and_show_says_how_many_more() {
    let directory = directory();
    let at = directory.path();
    crowd(at, 2_500, 1_200);
    // More than a pipe holds: read while it is written.
    let ends = |line: &str| {
        let output = words(&mut tenure(at), line).output().expect("it runs");
        assert_eq!(output.status.code(), Some(0), "{line}: {}", stderr(&output));
        output
    };
    let text = stdout(&ends("ls"));
    let names: Vec<&str> = text.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names.len(), 2_500);
    assert!(names.is_sorted() && names.ends_with(&["name-002500"]), "{:?}", names.last());
    let lines = stdout(&ends("ls --json name-0024"));
    let objects: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((objects.len(), &objects[0]["name"]), (100, &"name-002400".into()));
    assert_eq!(fields(&objects[0]), "name holder revoked_ms kept_back_ms waiting");
    assert_eq!(fields(&objects[0]["holder"]), "owner label token since left_ms");
    let shown = stdout(&ends("show name-000001"));
    assert!(
        shown.contains("waiting    1200") && shown.contains("and 200 more"),
        "{}",
        &shown[shown.len() - 200..]
    );
    let shown = json(&ends("show --json name-000001"));
    assert_eq!((&shown["waiting"], shown["waiters"].as_array().map(Vec::len)), (&1200.into(), Some(1000)));
    assert_eq!(fields(&shown["waiters"][0]), "owner label since");
}

#[test]
fn whoever_reads_only_the_first_line_ends_ls_quietly() {
    let directory = directory();
    let at = directory.path();
    crowd(at, 4_000, 0);
    for line in ["ls", "ls --json"] {
        let mut child = words(&mut tenure(at), line).spawn().expect("it starts");
        let mut first = [0; 1];
        let mut out = child.stdout.take().expect("a pipe");
        out.read_exact(&mut first).expect("a byte");
        drop(out);
        let output = finished(child);
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{line}");
    }
}

#[test]
fn an_answer_that_does_not_arrive_is_70() {
    let directory = directory();
    let at = directory.path();
    ends(at, "acquire --ttl 1m x", 0);
    let lines = [
        "ls",
        "ls --json",
        "show x",
        "wait y --json",
        "init",
        "init --system",
        "man",
        "man run",
        "completions zsh",
        "--help",
        "run --help",
        "--version",
        "help show",
    ];
    for line in lines {
        let mut command = tenure(at);
        command.stdout(fs::File::create("/dev/full").expect("a device"));
        let output = run(words(&mut command, line));
        assert_eq!(output.status.code(), Some(70), "{line}: {}", stderr(&output));
        let said = stderr(&output);
        assert!(said.lines().count() == 1 && said.contains("cannot write to stdout"), "{line}: {said}");
    }
}

#[test]
fn init_prints_and_makes_what_the_store_needs() {
    let directory = directory();
    let at = directory.path();
    let printed = stdout(&ends(at, "init", 0));
    assert!(printed.contains("leases.db") && printed.contains("first use"), "{printed}");
    assert_eq!(fs::read_dir(at).expect("a directory").count(), 0, "nothing is made");
    ends(at, "init --apply", 0);
    assert!(at.join("leases.db").exists());
    ends(at, "init --apply", 0);
    let printed = stdout(&ends(at, "init --system", 0));
    assert!(printed.contains("2770") && printed.contains("/var/lib/tenure"), "{printed}");
    ends(at, "--store sqlite: init --system", 64);
}

#[test]
fn pages_and_completions_name_every_command() {
    let directory = directory();
    let at = directory.path();
    let help = stdout(&ends(at, "--help", 0));
    let commands: Vec<&str> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|command| *command != "help")
        .collect();
    for command in [
        "run",
        "acquire",
        "renew",
        "release",
        "check",
        "wait",
        "ls",
        "show",
        "revoke",
        "init",
        "completions",
        "man",
    ] {
        assert!(commands.contains(&command), "{commands:?}");
    }
    // Neither needs a store, nor one that is named rightly.
    let made = |line: &str| {
        let output = run(words(tenure(at).env("TENURE_STORE", ""), line));
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{line}");
        stdout(&output)
    };
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = made(&format!("completions {shell}"));
        for command in &commands {
            assert!(script.contains(command), "{shell}: {command}");
        }
    }
    let page = made("man");
    for command in &commands {
        assert!(page.contains(command), "{command}");
        let page = made(&format!("man {command}"));
        assert!(
            page.contains(".SH OPTIONS")
                && page.contains(".SH EXIT STATUS")
                && page.contains(&format!("tenure\\-{command}")),
            "{page}"
        );
    }
    let mut bash = std::process::Command::new("bash");
    bash.args(["-n", "/dev/stdin"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut bash = bash.spawn().expect("bash");
    std::io::Write::write_all(&mut bash.stdin.take().expect("a pipe"), made("completions bash").as_bytes())
        .expect("it reads");
    assert_eq!(stderr(&finished(bash)), "", "bash understands it");
}
