//! `acquire`, `renew` and `release`: what a script can rely on.
#![allow(clippy::disallowed_methods, reason = "measures real time")]

mod support;

use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};
use support::{
    directory, ends, eventually, finished, is_69_short_of_descriptors, json, pids, run, runs, stderr, stdout,
    tenure, words,
};

/// Owner and token of a claim that is acquired.
#[track_caller]
fn acquired(directory: &Path, line: &str) -> (String, u64) {
    let output = ends(directory, &format!("acquire -n {line}"), 0);
    assert_eq!(stderr(&output), "");
    let text = stdout(&output);
    let [owner, token, _ttl] = text.split_whitespace().collect::<Vec<_>>()[..] else {
        panic!("owner, token and TTL in one line: {text}");
    };
    assert_eq!((text.lines().count(), owner.len()), (1, 32), "{text}");
    (owner.to_owned(), token.parse().expect("a number"))
}

#[test]
fn a_claim_outlives_its_process_and_is_renewed_and_released_by_others() {
    let directory = directory();
    let at = directory.path();
    let (owner, token) = acquired(at, "--ttl 1m --label deploy x");
    let busy = ends(at, "acquire -n x", 75);
    assert!(stderr(&busy).contains("held by deploy since 20"), "{}", stderr(&busy));
    ends(at, "run -n x -- true", 75);

    let renewed = json(&ends(at, &format!("renew x --owner {owner} --ttl 5m --json"), 0));
    assert_eq!((&renewed["name"], &renewed["renewed"]), (&"x".into(), &true.into()));
    let left = renewed["left_ms"].as_u64().expect("a number");
    assert!((200_000..300_000).contains(&left), "{left}");

    let shown = json(&ends(at, "show x --json", 0));
    assert_eq!(shown["holder"]["token"], token);
    assert_eq!(shown["holder"]["owner"], *owner);

    assert_eq!(stdout(&ends(at, &format!("release x --owner {owner}"), 0)), "");
    ends(at, "run -n x -- true", 0);
    let again = ends(at, &format!("release x --owner {owner}"), 1);
    assert!(stderr(&again).contains("is not held by this owner"), "{}", stderr(&again));
    ends(at, &format!("renew x --owner {owner}"), 1);
    let (_, next) = acquired(at, "x");
    assert!(next > token, "{next} after {token}");
}

#[test]
fn json_has_its_fields() {
    let directory = directory();
    let at = directory.path();
    let fields = |output: &Output| {
        let value = json(output);
        value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>().join(" ")
    };
    let output = ends(at, "acquire -n --json --ttl 2s x", 0);
    assert_eq!(fields(&output), "name owner token ttl_ms left_ms store");
    let claim = json(&output);
    assert_eq!(claim["ttl_ms"], 2000);
    assert!(claim["left_ms"].as_u64().is_some_and(|left| left > 500 && left < 1970), "{claim}");
    let owner = claim["owner"].as_str().expect("an owner");
    let renewed = ends(at, &format!("renew --json --ttl 5s x --owner {owner}"), 0);
    assert_eq!(fields(&renewed), "name owner renewed left_ms");
    let released = ends(at, &format!("release --json x --owner {owner}"), 0);
    assert_eq!(fields(&released), "name owner released why");
    assert_eq!((&json(&released)["released"], &json(&released)["why"]), (&true.into(), &Value::Null));
    let again = json(&ends(at, &format!("release --json x --owner {owner}"), 1));
    assert_eq!(again["released"], false);
    assert!(again["why"].is_string(), "{again}");
    let renewed = json(&ends(at, &format!("renew --json x --owner {owner}"), 1));
    assert_eq!((&renewed["renewed"], renewed["why"].is_string()), (&false.into(), true));
}

/// C5: the reply of each may be lost, and it is typed again.
#[test]
fn each_verb_can_be_repeated() {
    let directory = directory();
    let at = directory.path();
    let owner = "0123456789abcdef0123456789abcdef";
    let (_, token) = acquired(at, &format!("--owner {owner} x"));
    for _ in 0..3 {
        assert_eq!(acquired(at, &format!("--owner {owner} x")), (owner.to_owned(), token));
    }
    let waiting = ends(at, &format!("acquire -w 1s --owner {owner} x"), 0);
    assert!(stdout(&waiting).contains(&token.to_string()), "{}", stdout(&waiting));
    // Killed at any instant, it is granted to the same owner again, and to nobody else.
    let owner = "fedcba9876543210fedcba9876543210";
    for round in 0..12 {
        let line = format!("acquire -n --owner {owner} y");
        let mut child = words(&mut tenure(at), &line).spawn().expect("it starts");
        std::thread::sleep(Duration::from_millis(round));
        child.kill().expect("a child");
        child.wait().expect("its end");
    }
    let (_, token) = acquired(at, &format!("--owner {owner} y"));
    assert_eq!(acquired(at, &format!("--owner {owner} y")).1, token);
    ends(at, "acquire -n y", 75);
}

#[test]
fn a_claim_lapses_after_its_ttl_and_is_not_renewed_then() {
    let directory = directory();
    let at = directory.path();
    let began = Instant::now();
    let (owner, _) = acquired(at, "--ttl 500ms x");
    ends(at, "acquire -w 10s x", 0);
    assert!(began.elapsed() >= Duration::from_millis(500), "{:?}", began.elapsed());
    let output = ends(at, &format!("renew x --owner {owner}"), 1);
    assert!(stderr(&output).contains("not held"), "{}", stderr(&output));
    ends(at, &format!("release x --owner {owner}"), 1);
}

#[test]
fn a_waiting_acquire_is_served_in_turn_and_at_once() {
    let directory = directory();
    let at = directory.path();
    let (owner, token) = acquired(at, "--ttl 1m x");
    let waiter = words(&mut tenure(at), "acquire --ttl 1m x").spawn().expect("it starts");
    eventually("it waits", || (json(&ends(at, "show x --json", 0))["waiting"] == 1).then_some(()));
    // C8: a newcomer does not overtake it, and nor does it lose its place.
    ends(at, &format!("release x --owner {owner}"), 0);
    let granted = finished(waiter);
    assert_eq!(granted.status.code(), Some(0), "{}", stderr(&granted));
    let text = stdout(&granted);
    let fields: Vec<&str> = text.split_whitespace().collect();
    assert!(fields[1].parse::<u64>().is_ok_and(|next| next > token), "{text}");
    // It stands on a TTL of its own by now, and not on the rest of an entry's life.
    let shown = json(&ends(at, "show x --json", 0));
    assert!(shown["holder"]["left_ms"].as_u64().is_some_and(|left| left > 30_000), "{shown}");
    assert_eq!(shown["holder"]["owner"], *fields[0]);
    ends(at, &format!("release x --owner {}", fields[0]), 0);
}

#[test]
fn a_signal_ends_a_waiting_acquire_and_leaves_nothing_behind() {
    let directory = directory();
    let at = directory.path();
    acquired(at, "--ttl 1m x");
    let mut waiter = tenure(at);
    waiter.current_dir(at);
    let waiter = words(&mut waiter, "acquire --owner-file owner x").spawn().expect("it starts");
    eventually("it waits", || (json(&ends(at, "show x --json", 0))["waiting"] == 1).then_some(()));
    assert!(at.join("owner").exists());
    let pid = rustix::process::Pid::from_child(&waiter);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    let output = finished(waiter);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), Some(15));
    assert!(!at.join("owner").exists());
    assert_eq!(json(&ends(at, "show x --json", 0))["waiting"], 0, "its place is given up at once");
}

#[test]
fn what_reaches_nobody_is_given_back() {
    let directory = directory();
    let at = directory.path();
    let mut command = tenure(at);
    command.stdout(fs::File::create("/dev/full").expect("a device"));
    let output = run(words(&mut command, "acquire -n --ttl 1m x"));
    assert_eq!(output.status.code(), Some(70));
    assert!(stderr(&output).contains("cannot write to stdout"), "{}", stderr(&output));
    ends(at, "acquire -n x", 0);
}

#[test]
fn kept_back_means_kept_back() {
    let directory = directory();
    let at = directory.path();
    let (owner, _) = acquired(at, "--hold-at-least 1m x");
    ends(at, &format!("release x --owner {owner}"), 0);
    let busy = ends(at, "acquire -n x", 75);
    assert!(stderr(&busy).contains("kept back"), "{}", stderr(&busy));
}

#[test]
fn the_owner_file_is_all_that_a_script_needs() {
    let directory = directory();
    let at = directory.path();
    let here = |line: &str, code: i32| {
        let mut command = tenure(at);
        let output = run(words(command.current_dir(at), line));
        assert_eq!(output.status.code(), Some(code), "{line}: {}", stderr(&output));
        output
    };
    let printed = stdout(&here("acquire -n --ttl 5m --owner-file owner x", 0));
    let held: Value = serde_json::from_slice(&fs::read(at.join("owner")).expect("a file")).expect("JSON");
    assert_eq!((&held["name"], &held["ttl_ms"]), (&"x".into(), &300_000.into()));
    assert!(printed.starts_with(held["owner"].as_str().expect("an owner")), "{printed}");
    // It renews to the TTL that it was acquired for.
    let renewed = json(&here("renew --json --owner-file owner", 0));
    assert!(renewed["left_ms"].as_u64().is_some_and(|left| left > 200_000), "{renewed}");
    here("renew --owner-file owner y", 64);
    here("renew --owner-file owner x", 0);
    // A second acquire replaces nothing.
    let said = stderr(&here("acquire -n --owner-file owner y", 64));
    assert!(said.contains("exists") && said.contains("release --owner-file"), "{said}");
    assert!(ends(at, "show y", 1).status.code() == Some(1), "nothing was acquired");
    here("release --owner-file owner", 0);
    assert!(!at.join("owner").exists());
    here("release --owner-file owner", 64);
    // What is not acquired leaves no file.
    here("acquire -n --ttl 1m x", 0);
    here("acquire -n --owner-file owner x", 75);
    assert_eq!(
        fs::read_dir(at)
            .expect("it")
            .filter(|entry| entry
                .as_ref()
                .is_ok_and(|entry| !entry.file_name().to_string_lossy().starts_with("leases")))
            .count(),
        0
    );
}

/// C14.
#[test]
fn an_owner_file_is_private_and_goes_through_no_link() {
    let directory = directory();
    let at = directory.path();
    let acquire = |umask: &str, path: &Path| {
        let program = tenure(at);
        let mut command = Command::new("sh");
        let script = format!("umask {umask}; exec \"$@\"");
        command
            .args(["-c", &script, "sh"])
            .arg(program.get_program())
            .arg("acquire")
            .arg("-n")
            .arg("--owner-file");
        command.arg(path).arg("--ttl").arg("1m").arg("x");
        command.envs(program.get_envs().filter_map(|(key, value)| Some((key, value?))));
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        run(&mut command)
    };
    let mode = |path: &Path| fs::symlink_metadata(path).expect("a file").permissions().mode() & 0o7777;
    let file = at.join("owner");
    for umask in ["000", "077", "777"] {
        let output = acquire(umask, &file);
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(mode(&file), 0o600, "umask {umask}");
        let released = run(tenure(at).arg("release").arg("--owner-file").arg(&file));
        assert!(released.status.success(), "{}", stderr(&released));
    }
    #[track_caller]
    fn refused(output: &Output, part: &str) {
        let said = stderr(output);
        assert_eq!((output.status.code(), stdout(output).as_str()), (Some(64), ""), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(part), "{said}");
    }
    let target = at.join("target");
    symlink(&target, &file).expect("a link");
    refused(&acquire("022", &file), "exists");
    assert!(!target.exists(), "a dangling link was followed");
    fs::write(&target, "precious").expect("a file");
    refused(&acquire("022", &file), "exists");
    assert_eq!(fs::read_to_string(&target).expect("a file"), "precious");
    refused(&run(tenure(at).arg("release").arg("--owner-file").arg(&file)), "symbolic link");
    refused(&run(tenure(at).arg("release").arg("--owner-file").arg(&target)), "not made by tenure");

    let fifo = at.join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a fifo");
    refused(&run(tenure(at).arg("release").arg("--owner-file").arg(&fifo)), "no file");

    let open = at.join("open");
    fs::create_dir(&open).expect("a directory");
    for wrong in [0o777, 0o1777, 0o770] {
        fs::set_permissions(&open, fs::Permissions::from_mode(wrong)).expect("its mode");
        refused(&acquire("022", &open.join("owner")), "may be written by others");
    }
    refused(&acquire("022", &at.join("missing/owner")), "cannot be used");
    refused(&acquire("022", Path::new("/")), "not the path");
    // Somebody may have written another owner into it.
    fs::remove_file(&file).expect("the link");
    assert!(acquire("022", &file).status.success());
    fs::set_permissions(&file, fs::Permissions::from_mode(0o622)).expect("its mode");
    refused(&run(tenure(at).arg("release").arg("--owner-file").arg(&file)), "may be written by others");
}

/// The owner of what `run` holds is no secret to its command.
#[test]
fn a_strangers_renewal_does_not_take_the_lease_from_its_run() {
    let directory = directory();
    let at = directory.path();
    let script = "echo $$ >> pids; until [ -e end ]; do sleep 0.01; done";
    let mut holder = tenure(at);
    holder.current_dir(at).args(["run", "--ttl", "1s", "x", "--", "sh", "-c", script]);
    let holder: Child = holder.spawn().expect("it starts");
    let cmd = pids(&at.join("pids"), 1)[0];
    let shown = json(&ends(at, "show x --json", 0));
    let owner = shown["holder"]["owner"].as_str().expect("an owner");
    ends(at, &format!("renew x --owner {owner} --ttl 10s"), 0);
    ends(at, &format!("acquire -n x --owner {owner} --ttl 10s"), 0);
    // Longer than its TTL: it is still renewed by the run, and still ends with it.
    let until = Instant::now() + Duration::from_millis(1500);
    eventually("time passes", || (Instant::now() >= until).then_some(()));
    assert!(runs(cmd));
    assert_eq!(json(&ends(at, "show x --json", 0))["holder"]["owner"], owner);
    fs::write(at.join("end"), "").expect("a file");
    let output = finished(holder);
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    ends(at, "acquire -n x", 0);
}

#[test]
fn a_renewal_does_not_cut_short_by_mistake() {
    let directory = directory();
    let at = directory.path();
    let (owner, _) = acquired(at, "--ttl 5m x");
    let said = stderr(&ends(at, &format!("renew x --owner {owner}"), 64));
    assert!(said.contains("--ttl"), "{said}");
    ends(at, &format!("renew x --owner {owner} --ttl 2s"), 0);
    ends(at, &format!("renew x --owner {owner}"), 0);
}

#[test]
fn inside_run_its_own_lease_is_not_renewed_by_hand() {
    let directory = directory();
    let script = format!("{0} renew $TENURE_NAME --owner $TENURE_OWNER", env!("CARGO_BIN_EXE_tenure"));
    let output = run(tenure(directory.path()).args(["run", "x", "--", "sh", "-c", &script]));
    assert_eq!(output.status.code(), Some(64), "{}", stderr(&output));
}

#[test]
fn mistakes_are_64_a_store_that_refuses_77_and_one_that_cannot_69() {
    let directory = directory();
    let at = directory.path();
    let owner = "0123456789abcdef0123456789abcdef";
    for line in [
        "acquire",
        "acquire x y",
        "acquire --ttl 1ms x",
        "acquire --ttl 25h x",
        "acquire -n -w 1s x",
        "acquire --owner short x",
        &format!("acquire --owner {owner} --owner-file f x"),
        "acquire --hold-at-least 32days x",
        "renew",
        "renew x",
        &format!("renew --owner {owner}"),
        &format!("renew x --owner {owner} --owner-file f"),
        "release x",
        &format!("release --owner {owner}"),
        "release x --owner 0123456789abcdef0123456789abcdeg",
        "release --owner-file /nonexistent/owner",
    ] {
        let output = ends(at, line, 64);
        assert_eq!(stdout(&output), "", "{line}");
        assert_ne!(stderr(&output), "", "{line}");
    }
    assert_eq!(fs::read_dir(at).expect("a directory").count(), 0);
    // Nobody has used the store yet, and a question does not make it.
    for line in [format!("renew x --owner {owner}"), format!("release x --owner {owner}")] {
        ends(at, &line, 1);
    }
    assert_eq!(fs::read_dir(at).expect("a directory").count(), 0);

    let verbs = [
        "acquire -n x",
        "acquire x",
        &format!("renew x --owner {owner}"),
        &format!("release x --owner {owner}"),
    ];
    ends(at, "run x -- true", 0);
    for line in verbs {
        if line != "acquire x" {
            is_69_short_of_descriptors(words(&mut tenure(at), line));
        }
    }
    for suffix in ["-wal", "-shm"] {
        fs::remove_file(at.join(format!("leases.db{suffix}"))).expect("it is there");
    }
    fs::write(at.join("leases.db"), "no database".repeat(500)).expect("a file");
    for line in verbs {
        let output = ends(at, line, 77);
        assert!(stderr(&output).contains("leases.db"), "{line}: {}", stderr(&output));
    }
}
