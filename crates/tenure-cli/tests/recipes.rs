//! The files in docs/recipes are run here, as far as that can be done without what they are for.
#![allow(clippy::disallowed_methods, reason = "waits for events, with a bound")]

mod support;

use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use support::{eventually, finished, run, stderr, stdout};

/// A machine: a home, the program, and scripts that the recipes call.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Machine {
        let machine = Machine(tempfile::tempdir().expect("a home"));
        fs::create_dir(machine.at("bin")).expect("a directory");
        symlink(env!("CARGO_BIN_EXE_tenure"), machine.at("bin/tenure")).expect("a link");
        machine
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    /// A program that a recipe runs.
    fn script(&self, name: &str, text: &str) {
        let path = self.at("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("a script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("its mode");
    }

    /// With as little environment as cron and systemd give.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", self.at("bin").display());
        command.env_clear().env("HOME", self.0.path()).env("PATH", path).current_dir(self.0.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn start(&self, words: &[String]) -> Child {
        self.command("env").args(words).spawn().expect("it starts")
    }

    fn lines(&self, file: &str) -> Vec<String> {
        fs::read_to_string(self.at(file)).unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

fn recipe(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/recipes").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[track_caller]
fn succeeded(output: &Output) {
    assert!(output.status.success(), "{}\n{}{}", output.status, stdout(output), stderr(output));
}

/// What cron would run: its environment, and the lines behind their five fields.
fn crontab() -> (Vec<(String, String)>, Vec<String>) {
    let text = recipe("crontab");
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let is_setting = |line: &&&str| {
        line.split_once('=').is_some_and(|(name, _)| name.bytes().all(|b| b.is_ascii_uppercase()))
    };
    let (settings, jobs): (Vec<&str>, Vec<&str>) = lines.iter().partition(|line| is_setting(line));
    let settings = settings.iter().filter_map(|line| line.split_once('='));
    let command = |job: &&str| {
        let words: Vec<&str> = job.split_whitespace().collect();
        assert!(
            words.len() > 6
                && words[..5].iter().all(|field| field.bytes().all(|b| b"0123456789*/,-".contains(&b))),
            "{job}"
        );
        assert!(!job.contains('%'), "cron takes % for a line break: {job}");
        job.split_once("  tenure").map(|(_, rest)| format!("tenure{rest}")).expect("a command of tenure")
    };
    (settings.map(|(name, value)| (name.into(), value.into())).collect(), jobs.iter().map(command).collect())
}

#[test]
fn the_lines_of_the_crontab_run_as_cron_runs_them() {
    let machine = Machine::new();
    for job in ["report", "backup", "poll", "hourly"] {
        machine.script(job, &format!("echo $$ >> {job}; until [ -e end ]; do sleep 0.01; done"));
    }
    let (settings, jobs) = crontab();
    let path =
        settings.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone()).expect("a PATH");
    let start = |job: &str| {
        let mut cron = machine.command("/bin/sh");
        cron.env("PATH", format!("{}:{path}", machine.at("bin").display()));
        cron.env("SHELL", "/bin/sh").env("LOGNAME", "ann").args(["-c", job]).spawn().expect("it starts")
    };
    assert_eq!(jobs.len(), 4);
    let first: Vec<Child> = jobs.iter().map(|job| start(job)).collect();
    for job in ["report", "backup", "poll", "hourly"] {
        eventually(job, || (machine.lines(job).len() == 1).then_some(()));
    }
    // The next tick, while the first still runs.
    for (job, code) in jobs.iter().zip([75, 0, 0, 75]) {
        if !job.contains("--wait") {
            let second = finished(start(job));
            assert_eq!(second.status.code(), Some(code), "{job}: {}", stderr(&second));
            let mail = stderr(&second).lines().count();
            assert_eq!(mail, usize::from(code == 75), "{job}: {}", stderr(&second));
        }
    }
    fs::write(machine.at("end"), "").expect("a file");
    for child in first {
        succeeded(&finished(child));
    }
    for job in ["report", "backup", "poll", "hourly"] {
        assert_eq!(machine.lines(job).len(), 1, "{job}");
    }
    assert_eq!(machine.lines("poll.log").len(), 1);
    // The late machine finds the short job done, and kept back.
    assert_eq!(finished(start(&jobs[3])).status.code(), Some(75));
}

#[test]
fn the_units_of_systemd_are_understood_by_it_and_do_what_they_say() {
    let machine = Machine::new();
    let program = machine.at("bin/tenure");
    machine.script(
        "report",
        "trap 'echo asked; exit 0' TERM; echo ran; : > started; until [ -e end ]; do sleep 0.01; done",
    );
    let service = recipe("report.service")
        .replace("/usr/bin/tenure", &program.to_string_lossy())
        .replace("/usr/local/bin/report", &machine.at("bin/report").to_string_lossy());
    fs::write(machine.at("report.service"), &service).expect("a unit");
    fs::write(machine.at("report.timer"), recipe("report.timer")).expect("a unit");
    let mut verify = machine.command("systemd-analyze");
    let output = run(verify.args(["verify", "--man=no", "./report.service", "./report.timer"]));
    succeeded(&output);
    assert_eq!(stderr(&output), "", "systemd has nothing to say");

    let value = |key: &str| service.lines().find_map(|line| line.strip_prefix(&format!("{key}=")));
    assert_eq!(value("KillMode"), Some("mixed"));
    let taken: i32 = value("SuccessExitStatus").and_then(|code| code.parse().ok()).expect("a code");
    let (variable, url) =
        value("Environment").and_then(|setting| setting.split_once('=')).expect("a setting");
    let directory = format!("/var/lib/{}", value("StateDirectory").expect("a directory"));
    assert!(url.starts_with(&format!("sqlite:{directory}/")), "{url}");
    fs::create_dir(machine.at("state")).expect("a directory");
    let url = url.replace(&directory, &machine.at("state").to_string_lossy());
    let start = || {
        let mut words = value("ExecStart").expect("a command").split_whitespace();
        let mut command = machine.command(words.next().expect("a program"));
        command.env_remove("HOME").env(variable, &url).args(words);
        command.spawn().expect("it starts")
    };
    let first = start();
    eventually("it runs", || machine.at("started").exists().then_some(()));
    assert_eq!(finished(start()).status.code(), Some(taken));
    // What systemctl stop does with KillMode=mixed.
    let pid = rustix::process::Pid::from_child(&first);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    let output = finished(first);
    assert_eq!(
        (output.status.code(), stdout(&output).as_str()),
        (Some(0), "ran\nasked\n"),
        "{}",
        stderr(&output)
    );
}

/// The documents of a file.
fn yaml(name: &str) -> Vec<Value> {
    let text = recipe(name);
    let documents = text.split("\n---\n");
    documents
        .map(|document| serde_yaml_ng::from_str(document).unwrap_or_else(|error| panic!("{name}: {error}")))
        .collect()
}

fn words(value: &Value) -> Vec<String> {
    let words = value.as_array().unwrap_or_else(|| panic!("a list: {value}"));
    words.iter().map(|word| word.as_str().expect("a text: kubectl refuses other words").to_owned()).collect()
}

/// The pod of a manifest, every volume of which is there.
fn pod(spec: &Value) -> &Value {
    let volumes: Vec<&Value> =
        spec["volumes"].as_array().expect("volumes").iter().map(|volume| &volume["name"]).collect();
    for mount in spec["containers"][0]["volumeMounts"].as_array().expect("mounts") {
        assert!(volumes.contains(&&mount["name"]), "{mount}");
    }
    assert!(
        spec["terminationGracePeriodSeconds"].as_u64().is_some_and(|grace| grace > 30),
        "longer than by default"
    );
    spec
}

#[test]
fn the_manifests_of_kubernetes_are_whole_and_their_commands_run() {
    let machine = Machine::new();
    machine.script("report", "echo ran >> report; until [ -e end ]; do sleep 0.01; done");
    machine.script("worker", "echo $$ >> worker; until [ -e end ]; do sleep 0.01; done");
    let [secret, job] = &yaml("cronjob.yaml")[..] else { panic!("two documents") };
    assert_eq!((&secret["kind"], &job["kind"]), (&"Secret".into(), &"CronJob".into()));
    assert!(secret["stringData"]["store"].as_str().is_some_and(|url| url.starts_with("sqlite:/leases/")));
    let template = &job["spec"]["jobTemplate"]["spec"]["template"]["spec"];
    // Kubernetes takes a podFailurePolicy with this alone, and for a container that is there.
    assert_eq!(template["restartPolicy"], "Never");
    let failing = &job["spec"]["jobTemplate"]["spec"]["podFailurePolicy"]["rules"][0]["onExitCodes"];
    let container = &pod(template)["containers"][0];
    assert_eq!(failing["containerName"], container["name"]);
    let command = words(&container["command"]);
    let first = machine.start(&command);
    eventually("it runs", || (machine.lines("report").len() == 1).then_some(()));
    succeeded(&finished(machine.start(&command)));
    fs::write(machine.at("end"), "").expect("a file");
    succeeded(&finished(first));
    assert_eq!(machine.lines("report").len(), 1, "the second was skipped");

    let [deployment] = &yaml("deployment.yaml")[..] else { panic!("one document") };
    assert_eq!(
        deployment["spec"]["selector"]["matchLabels"],
        deployment["spec"]["template"]["metadata"]["labels"]
    );
    let pod = pod(&deployment["spec"]["template"]["spec"]);
    let container = &pod["containers"][0];
    fs::remove_file(machine.at("end")).expect("a file");
    let pods: Vec<Child> = (0..2).map(|_| machine.start(&words(&container["command"]))).collect();
    eventually("one works", || (machine.lines("worker").len() == 1).then_some(()));
    let hook = words(&container["lifecycle"]["preStop"]["exec"]["command"]);
    succeeded(&finished(machine.start(&hook)));
    let mut second = hook.clone();
    let wait = second.iter().position(|word| word == "--wait").expect("a limit") + 1;
    second[wait] = "100ms".to_owned();
    assert_eq!(finished(machine.start(&second)).status.code(), Some(75), "one goes down at a time");
    fs::write(machine.at("end"), "").expect("a file");
    for pod in pods {
        succeeded(&finished(pod));
    }
    assert_eq!(machine.lines("worker").len(), 2, "the other took over");
}

#[test]
fn the_steps_of_the_ci_job_run() {
    let machine = Machine::new();
    machine.script("deploy.sh", "echo deploy >> log");
    symlink(machine.at("bin/deploy.sh"), machine.at("deploy.sh")).expect("a link");
    fs::create_dir(machine.at("temp")).expect("a directory");
    let [workflow] = &yaml("ci.yml")[..] else { panic!("one document") };
    for (job, deployed) in [("deploy", 1), ("deploy-in-steps", 2)] {
        let _ = fs::remove_file(machine.at("log"));
        let steps = workflow["jobs"][job]["steps"].as_array().expect("steps");
        for (number, step) in steps.iter().enumerate() {
            let mut shell = machine.command("bash");
            shell.env("RUNNER_TEMP", machine.at("temp")).env("GITHUB_RUN_ID", "17");
            succeeded(&run(shell.args(["-e", "-c", step["run"].as_str().expect("a script")])));
            if job == "deploy-in-steps" {
                let busy =
                    run(machine.command("tenure").args(["run", "-n", "deploy-production", "--", "true"]));
                let is_held = number + 1 < steps.len();
                assert_eq!(busy.status.code(), Some(if is_held { 75 } else { 0 }), "after step {number}");
            }
        }
        assert_eq!(machine.lines("log").len(), deployed, "{job}");
    }
    let last = workflow["jobs"]["deploy-in-steps"]["steps"].as_array().and_then(|steps| steps.last());
    assert_eq!(last.map(|step| &step["if"]), Some(&"always()".into()));
}

#[test]
fn replicas_migrate_one_after_the_other_and_then_start() {
    let machine = Machine::new();
    fs::write(machine.at("entrypoint.sh"), recipe("entrypoint.sh")).expect("a script");
    // Finds nothing to do when it was done.
    machine.script(
        "migrate",
        "echo begin >> log; [ -e done ] || { sleep 0.1; echo work >> log; : > done; }; echo end >> log",
    );
    symlink(machine.at("bin/migrate"), machine.at("migrate")).expect("a link");
    let replica = || {
        machine
            .command("sh")
            .args(["entrypoint.sh", "sh", "-c", "echo started >> log"])
            .spawn()
            .expect("it starts")
    };
    let replicas: Vec<Child> = (0..4).map(|_| replica()).collect();
    for replica in replicas {
        succeeded(&finished(replica));
    }
    let log: Vec<String> = machine.lines("log").into_iter().filter(|line| line != "started").collect();
    assert_eq!(log.iter().filter(|line| *line == "work").count(), 1, "{log:?}");
    let mut inside = false;
    for line in &log {
        match line.as_str() {
            "begin" => assert!(!std::mem::replace(&mut inside, true), "{log:?}"),
            "end" => inside = false,
            _ => assert!(inside, "{log:?}"),
        }
    }
    assert_eq!(machine.lines("log").iter().filter(|line| *line == "started").count(), 4);
    machine.script("migrate", "exit 3");
    let output = finished(replica());
    assert_eq!(output.status.code(), Some(3), "no replica starts on an old schema");
    assert_eq!(machine.lines("log").iter().filter(|line| *line == "started").count(), 4);
}

/// Each of them is on the page, and on it is no other.
#[test]
fn every_recipe_is_on_the_page() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let page = fs::read_to_string(folder.join("cli.md")).expect("a page");
    for entry in fs::read_dir(folder.join("recipes")).expect("recipes") {
        let name = entry.expect("an entry").file_name();
        let name = name.to_string_lossy();
        assert!(page.contains(&format!("[{name}](recipes/{name})")), "{name}");
    }
}

/// Whatever the program takes is on the page.
#[test]
fn every_option_and_variable_is_on_the_page() {
    let machine = Machine::new();
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md")).expect("a page");
    let help = |words: &[&str]| stdout(&run(machine.command("tenure").args(words)));
    let text = help(&["--help"]);
    let commands =
        text.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let commands = commands.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let commands: Vec<&str> = commands.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(commands.len() > 10, "{commands:?}");
    let mut seen = 0;
    for command in commands {
        assert!(command == "help" || page.contains(&format!("`{command}")), "{command}");
        for word in help(&[command, "--help"]).split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')) {
            if word.starts_with("--") && word.len() > 2 {
                assert!(page.contains(word), "{command} {word}");
                seen += 1;
            }
        }
    }
    assert!(seen > 40, "only {seen} options");
}
