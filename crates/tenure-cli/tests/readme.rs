//! What the pages tell people to type is typed here, and what they say comes out is held
//! against what does.
//!
//! Every fenced block of README.md, CONTRIBUTING.md and the pages in docs/ has a language:
//! - `rust` is a documentation test of the library (the foot of its lib.rs).
//! - `sh` is a script; it must succeed.
//! - `console` is a terminal: lines that begin with `$ ` are typed, one after the other in
//!   one shell that stops at the first failure; the rest is what they print, both streams
//!   together. In it `...` stands for any text within a line, and alone on a line for any
//!   number of lines.
//! - `console first terminal` is left running while the next block, the second terminal, is
//!   typed, and is judged after it.
//! - `toml` is for a Cargo.toml: it names this repository, and features that there are.
//! - `text` is shown and not run: pictures.
//!
//! `tenure` and `cargo run -- ` are the program that was built for this test; each page has
//! a home directory of its own.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// No block may take longer.
const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn the_pages_are_true() {
    let pages = pages();
    assert!(pages.len() > 4, "the pages were not found: {pages:?}");
    let typed: usize = pages.iter().map(|page| run(page, &fs::read_to_string(page).expect("a page"))).sum();
    assert!(typed > 3, "only {typed} blocks were typed: the README shows more");
}

#[test]
fn every_link_leads_somewhere() {
    let mut followed = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page");
        let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link);
        for link in links.filter(|link| !link.starts_with("https://")) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { page.with_file_name(file) };
            assert!(target.exists(), "{}: {link} leads nowhere", page.display());
            if !heading.is_empty() {
                let text = fs::read_to_string(&target).expect("a page");
                let headings = text.lines().filter(|line| line.starts_with('#'));
                let mut anchors =
                    headings.map(|line| line.trim_start_matches(['#', ' ']).to_lowercase().replace(' ', "-"));
                assert!(anchors.any(|anchor| anchor == heading), "{}: no heading for {link}", page.display());
            }
            followed += 1;
        }
    }
    assert!(followed > 10, "only {followed} links were found");
}

#[test]
fn every_store_has_its_chapter() {
    let page = fs::read_to_string(root().join("docs/stores.md")).expect("a page");
    for scheme in tenure::schemes() {
        assert!(page.contains(&format!("\n## `{scheme}:`\n")), "docs/stores.md says nothing of {scheme}:");
    }
}

#[test]
fn a_decision_is_short() {
    for entry in fs::read_dir(root().join("docs/decisions")).expect("decisions") {
        let path = entry.expect("a directory can be read").path();
        let text = fs::read_to_string(&path).expect("a decision");
        assert!(text.lines().count() <= 40, "{}: more than 40 lines", path.display());
        for part in ["\n## Context\n", "\n## Decision\n", "\n## Price\n"] {
            assert!(text.contains(part), "{}: no {}", path.display(), part.trim());
        }
    }
}

#[test]
fn what_is_typed_is_told_from_what_is_printed() {
    let blocks = blocks("a\n```sh\nls\n```\n```console\n$ echo a\na\n```\n");
    let found: Vec<_> = blocks.iter().map(|block| (block.language.as_str(), block.text.as_str())).collect();
    assert_eq!(found, [("sh", "ls\n"), ("console", "$ echo a\na\n")]);
    let (typed, printed) = told_apart("$ echo a\na\n$ echo b\nb\n");
    assert_eq!((typed.as_str(), printed.as_str()), ("echo a\necho b\n", "a\nb\n"));
}

#[test]
fn a_page_that_lies_is_found() {
    for (printed, shown, is_true) in [
        ("a\nb\n", "a\nb\n", true),
        ("a\nb\n", "a\n", false),
        ("a\n", "a\nb\n", false),
        ("held by box:7, 3s left\n", "held by ..., ... left\n", true),
        ("held by box:7\n", "held by ..., ... left\n", false),
        ("held by x left over\n", "held by ... left\n", false),
        ("a\nb\nc\nd\n", "a\n...\nd\n", true),
        ("a\nd\n", "a\n...\nd\n", true),
        ("a\nd\ne\n", "a\n...\nd\n", false),
        ("", "", true),
        ("a\n", "", false),
    ] {
        let [printed, shown] = [printed, shown].map(|text| text.lines().collect::<Vec<_>>());
        assert_eq!(lines_match(&shown, &printed), is_true, "{printed:?} {shown:?}");
    }
}

/// Types all blocks of a page, in order; gives their number.
fn run(page: &Path, text: &str) -> usize {
    let desk = Desk::new();
    let mut first: Option<(Block, Child)> = None;
    let mut typed = 0;
    for block in blocks(text) {
        let at = format!("{}:{}", page.display(), block.line);
        match block.language.as_str() {
            "rust" | "text" => continue,
            "toml" => {
                is_for_cargo(&at, &block.text);
                continue;
            }
            "console first terminal" => {
                let child = desk.start(&block);
                desk.wait_until_somebody_holds(&at);
                first = Some((block, child));
                continue;
            }
            "sh" | "console" => {}
            other => panic!("{at}: the language of this block, \"{other}\", is none of those in this test"),
        }
        judge(&at, &block, &ended(&at, desk.start(&block)));
        typed += 1;
        if let Some((block, child)) = first.take() {
            judge(&at, &block, &ended(&at, child));
            typed += 1;
        }
    }
    assert!(first.is_none(), "{}: a first terminal without a second", page.display());
    typed
}

/// What a user copies into a Cargo.toml.
fn is_for_cargo(at: &str, text: &str) {
    let [workspace, library] = ["Cargo.toml", "crates/tenure/Cargo.toml"]
        .map(|manifest| fs::read_to_string(root().join(manifest)).expect("a manifest"));
    let line =
        text.lines().find(|line| line.starts_with("tenure = ")).unwrap_or_else(|| panic!("{at}: no tenure"));
    let repository =
        workspace.lines().find_map(|line| line.strip_prefix("repository = ")).expect("a repository");
    assert!(line.contains(&format!("git = {repository}")), "{at}: {line}");
    let (_, features) = line.split_once("features = [").expect("features");
    let features = features.split_once(']').expect("their end").0;
    for feature in features.split(',').map(|feature| feature.trim().trim_matches('"')) {
        let is_there = library.lines().any(|line| line.starts_with(&format!("{feature} = [")));
        assert!(is_there, "{at}: there is no feature {feature}");
    }
}

fn judge(at: &str, block: &Block, output: &Output) {
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{at}: {}\n{}\nprinted:\n{printed}", output.status, block.text);
    if block.language != "sh" {
        let (_, shown) = told_apart(&block.text);
        let [expected, found] = [shown.as_str(), &printed].map(|text| text.lines().collect::<Vec<_>>());
        assert!(lines_match(&expected, &found), "{at}: the page shows\n{shown}\nand this came\n{printed}");
    }
}

/// A home directory, and the program on its PATH.
struct Desk(tempfile::TempDir);

impl Desk {
    fn new() -> Desk {
        let home = tempfile::tempdir().expect("a home directory");
        let bin = home.path().join("bin");
        fs::create_dir(&bin).expect("a place for programs");
        symlink(env!("CARGO_BIN_EXE_tenure"), bin.join("tenure")).expect("a link");
        let cargo = "#!/bin/sh\n[ \"$1 $2\" = 'run --' ] || { echo \"only: cargo run --\"; exit 1; }\n\
                     shift 2\nexec tenure \"$@\"\n";
        fs::write(bin.join("cargo"), cargo).expect("a script");
        fs::set_permissions(bin.join("cargo"), fs::Permissions::from_mode(0o755)).expect("its mode");
        Desk(home)
    }

    fn start(&self, block: &Block) -> Child {
        match block.language.as_str() {
            "sh" => self.shell(&block.text),
            _ => self.shell(&told_apart(&block.text).0),
        }
    }

    fn shell(&self, script: &str) -> Child {
        let home = self.0.path();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("bash");
        for variable in ["XDG_STATE_HOME", "TENURE_STORE", "TENURE_STORE_FILE", "BASH_ENV"] {
            command.env_remove(variable);
        }
        command
            .args(["-e", "-o", "pipefail", "-c", &format!("exec 2>&1\n{script}")])
            .current_dir(home)
            .env("HOME", home)
            .env("PATH", format!("{}:{path}", home.join("bin").display()))
            .env("LC_ALL", "C")
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("bash")
    }

    /// The second terminal begins when the first has its lease.
    fn wait_until_somebody_holds(&self, at: &str) {
        let looking = self.shell("until tenure ls | grep -q .; do sleep 0.05; done");
        assert!(ended(at, looking).status.success(), "{at}: nobody holds anything");
    }
}

/// What came of it; killed, and a failure, when it takes too long.
fn ended(at: &str, child: Child) -> Output {
    let group = rustix::process::Pid::from_child(&child);
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    match receiver.recv_timeout(LIMIT) {
        Ok(output) => output.expect("its output"),
        Err(_) => {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            panic!("{at}: not done after {LIMIT:?}");
        }
    }
}

/// A fenced block.
struct Block {
    line: usize,
    language: String,
    text: String,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (index, line) in page.lines().enumerate() {
        match (line.trim_start().strip_prefix("```"), &mut open) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(language), None) => {
                open = Some(Block { line: index + 1, language: language.to_owned(), text: String::new() });
            }
            (None, Some(block)) => block.text += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block is not closed");
    blocks
}

/// What is typed, and what is printed.
fn told_apart(text: &str) -> (String, String) {
    let (mut typed, mut printed) = (String::new(), String::new());
    for line in text.lines() {
        match line.strip_prefix("$ ") {
            Some(command) => typed += &format!("{command}\n"),
            None => printed += &format!("{line}\n"),
        }
    }
    (typed, printed)
}

fn lines_match(shown: &[&str], printed: &[&str]) -> bool {
    match (shown, printed) {
        ([], []) => true,
        (["...", rest @ ..], _) => (0..=printed.len()).any(|skipped| lines_match(rest, &printed[skipped..])),
        ([first, rest @ ..], [line, lines @ ..]) => line_matches(first, line) && lines_match(rest, lines),
        _ => false,
    }
}

/// `...` stands for any text.
fn line_matches(shown: &str, printed: &str) -> bool {
    match shown.split_once("...") {
        None => shown == printed,
        Some((start, rest)) => printed.strip_prefix(start).is_some_and(|tail| {
            let ends = tail.char_indices().map(|(at, _)| at).chain([tail.len()]);
            ends.into_iter().any(|at| line_matches(rest, &tail[at..]))
        }),
    }
}

/// README.md, CONTRIBUTING.md and the pages of docs/; decision records show nothing to type.
fn pages() -> Vec<PathBuf> {
    let root = root();
    let mut pages = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    for entry in fs::read_dir(root.join("docs")).expect("the pages") {
        let path = entry.expect("a directory can be read").path();
        if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    pages.sort();
    pages
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}
