//! The shape of the house: imports point down, files keep their size, and nothing
//! unfinished hides. CONTRIBUTING.md draws the picture that this file checks.

mod support {
    pub(crate) mod imports;
}

use std::fs;
use std::path::{Path, PathBuf};
use support::imports::{self, Source};

/// What each module of the library may import, beside itself. A store is a module of its
/// own here: it imports no other store.
const LAYERS: [(&str, &[&str]); 12] = [
    ("words", &[]),
    ("store", &["words"]),
    ("stores", &["store", "words"]),
    ("metrics", &["words"]),
    ("keep", &["store", "words"]),
    ("hold", &["keep", "store", "words", "metrics"]),
    ("one_shot", &["hold", "keep", "store", "words"]),
    // Its cases ask a store directly, and through a client as programs do.
    ("conformance", &["hold", "keep", "store", "words"]),
    ("connect", &["hold", "stores", "store", "words"]),
    ("blocking", &["connect", "hold", "keep", "store", "words"]),
    ("tests", &["hold", "keep", "stores", "store", "words"]),
    (
        "",
        &[
            "blocking",
            "conformance",
            "connect",
            "hold",
            "keep",
            "metrics",
            "one_shot",
            "store",
            "stores",
            "words",
        ],
    ),
];

/// No file is longer, comments and tests included, so that one can be read in one sitting.
const LONGEST_FILE: usize = 600;

/// Lines of code, that is without blank lines, comments and inline tests: to count those
/// would punish whoever explains. SQL counts.
const BUDGETS: [(&str, usize, &str); 4] = [
    ("hold+keep", 2_060, "what a reader must know to trust a lease, in an evening"),
    ("stores/memory", 1_100, "two faces, and every clause without a server to lean on"),
    ("stores/sqlite", 2_300, "also its own server: sessions, queue, liveness, gate, file checks"),
    ("conformance", 2_500, "a case per clause is long and flat"),
];

#[test]
fn imports_point_down_only() {
    let sources = library();
    let reexports = imports::reexports(&sources);
    let wrong: Vec<String> = sources.iter().flat_map(|source| upward(source, &reexports)).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(sources.len() > 20, "the sources were not found: {}", sources.len());
}

#[test]
fn an_upward_import_is_found_however_it_is_written() {
    let lib = Source::new(&["lib.rs"], "pub use hold::lease::{Fence, Lease};\npub use words::name::Name;\n");
    let reexports = imports::reexports(std::slice::from_ref(&lib));
    let flagged = |at: &[&str], text: &str| upward(&Source::new(at, text), &reexports).len();
    for (at, text, count) in [
        (["words", "name.rs"].as_slice(), "use crate::store::Store;", 1),
        (&["words", "name.rs"], "use crate::{words::token::Token, keep::{plan::Plan, keeper}};", 2),
        (&["words", "name.rs"], "fn f() -> crate::Lease { todo() }", 1),
        (&["words", "name.rs"], "fn f() -> Option<crate::hold::lease::Lease> { None }", 1),
        (&["words", "name.rs"], "use super::super::store::Store;", 1),
        (&["words", "name.rs"], "mod tests { use super::super::super::keep::plan::Plan; }", 1),
        (&["words", "name.rs"], "use crate::*;", 1),
        (&["words", "name.rs"], "use crate as all;", 1),
        (&["words", "name.rs"], "macro_rules! m { () => { $crate::keep::record::State } }", 1),
        (&["stores", "sqlite", "mod.rs"], "use crate::keep::keeper::Keeper;", 1),
        (&["stores", "sqlite", "mod.rs"], "use crate::stores::memory::Memory;", 1),
        (&["stores", "sqlite", "gate.rs"], "use super::super::memory::Memory;", 1),
        (&["stores", "mod.rs"], "use crate::connect::schemes;", 1),
        (&["store.rs"], "use crate::stores::memory;", 1),
        (&["keep", "plan.rs"], "use crate::hold::lease::Lease;", 1),
        (&["hold", "lease.rs"], "use crate::stores::memory::Memory;", 1),
        (&["elsewhere.rs"], "use crate::words::name::Name;", 1),
        // What is allowed, and what only looks like an import.
        (&["words", "name.rs"], "use super::token::Token; use crate::Name;", 0),
        (&["words", "name.rs"], "mod tests { use super::*; use super::super::token::Token; }", 0),
        (&["stores", "sqlite", "gate.rs"], "use super::place::Place; use crate::{store, words};", 0),
        (
            &["stores", "sqlite", "mod.rs"],
            "fn f() { crate::words::text::escaped(\"\"); crate::Name::new(\"\"); }",
            0,
        ),
        (
            &["stores", "sqlite", "gate.rs"],
            "// use crate::keep;\n/* crate::hold /* */ crate::keep */ const A: &str = \"crate::keep\";",
            0,
        ),
        (
            &["stores", "sqlite", "gate.rs"],
            "const A: &str = r#\"\" crate::keep\"#; const B: char = '\"'; fn f<'a>(_: &'a str) {}",
            0,
        ),
        (&["hold", "lease.rs"], "use crate::keep::keeper::Keeper; use crate::Fence; use std::sync::Arc;", 0),
    ] {
        assert_eq!(flagged(at, text), count, "{at:?}: {text}");
    }
}

#[test]
fn files_keep_their_size() {
    let mut wrong = Vec::new();
    for path in files(&root().join("crates"), &["rs", "sql"]) {
        let lines = read(&path).lines().count();
        if lines > LONGEST_FILE {
            wrong.push(format!("{}: {lines} lines, at most {LONGEST_FILE} are allowed", shown(&path)));
        }
    }
    let src = root().join("crates/tenure/src");
    for (what, budget, reason) in BUDGETS {
        let folders = what.split('+').map(|folder| files(&src.join(folder), &["rs", "sql", "lua"]));
        let sources = folders.flatten().filter(|path| !is_test(path.strip_prefix(&src).expect("below src")));
        let lines: usize = sources.map(|path| code(&read(&path))).sum();
        if lines > budget {
            wrong.push(format!("{what}: {lines} lines of code, the budget is {budget} ({reason})"));
        }
    }
    for store in fs::read_dir(src.join("stores")).expect("the stores") {
        let store = store.expect("an entry");
        let name = format!("stores/{}", store.file_name().display());
        if store.path().is_dir() && !BUDGETS.iter().any(|(what, ..)| *what == name) {
            wrong.push(format!("{name} has no budget: give it one in this test"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn comments_and_tests_cost_nothing() {
    let text = "//! Why.\n\nuse a;\n/// What.\nfn f() {} // here\n-- heading\n#[cfg(test)]\nmod tests {\n    fn g() {}\n}\n";
    assert_eq!(code(text), 2);
}

/// Put together at run time, so that this file does not find itself.
fn forbidden() -> Vec<(String, &'static str)> {
    let word = |parts: &[&str]| parts.concat();
    vec![
        (word(&["todo", "!("]), "unfinished code"),
        (word(&["unimplemented", "!("]), "unfinished code"),
        (word(&["#[ig", "nore"]), "a test that nobody runs"),
        (word(&["```", "ignore"]), "an example that nobody runs"),
        (word(&["```rust,", "ignore"]), "an example that nobody runs"),
        (word(&["```no_", "run"]), "an example that nobody runs"),
        (word(&["```rust,no_", "run"]), "an example that nobody runs"),
        (word(&["/ho", "me/"]), "a path of one machine"),
        (word(&["/ro", "ot/"]), "a path of one machine"),
        (word(&["/wo", "rk/"]), "a path of one machine"),
        (word(&["/Use", "rs/"]), "a path of one machine"),
    ]
}

#[test]
fn nothing_is_unfinished_unrun_or_bound_to_a_machine() {
    let mut wrong = Vec::new();
    let kinds = ["rs", "sql", "toml", "md", "sh", "lock", "yml", "Makefile", "run"];
    let files = files(&root(), &kinds);
    for path in &files {
        let text = read(path);
        for (number, line) in text.lines().enumerate() {
            for (pattern, what) in forbidden() {
                if line.contains(&pattern) {
                    wrong.push(format!("{}:{}: {what}: {}", shown(path), number + 1, line.trim()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    let seen = |name: &str| files.iter().any(|path| path.ends_with(name));
    assert!(
        seen("README.md") && seen("Makefile") && seen(".ci/run") && seen("crates/tenure/src/lib.rs"),
        "{files:?}"
    );
}

#[test]
fn every_feature_is_linted_alone() {
    let manifest = read(&root().join("crates/tenure/Cargo.toml"));
    let section = manifest.split("[features]").nth(1).expect("a list of features");
    let section = section.split("\n[").next().expect("its end");
    let mut declared: Vec<&str> =
        section.lines().filter_map(|line| line.split_once(" = ")).map(|(name, _)| name).collect();
    declared.retain(|name| *name != "default" && !name.starts_with('#'));
    let makefile = read(&root().join("Makefile"));
    let listed =
        makefile.lines().find_map(|line| line.strip_prefix("FEATURES := ")).expect("a list in the Makefile");
    let mut listed: Vec<&str> = listed.split_whitespace().collect();
    declared.sort_unstable();
    listed.sort_unstable();
    assert_eq!(declared, listed);
}

/// Every import of `source` that its layer does not allow.
fn upward(source: &Source, reexports: &imports::Reexports) -> Vec<String> {
    let here = source.module.first().map_or("", String::as_str);
    let Some((_, allowed)) = LAYERS.iter().find(|(layer, _)| *layer == here) else {
        return vec![format!("{}: the module {here} has no layer: give it one in this test", source.path)];
    };
    let mut wrong = Vec::new();
    for path in imports::paths(source) {
        let path = reexports.resolve(path);
        let there = path.first().map_or("", String::as_str);
        let other_store = here == "stores" && there == "stores" && {
            let [own, other] = [&source.module, &path].map(|module| module.get(1));
            own.is_some() && other.is_some() && own != other
        };
        if (there != here && !allowed.contains(&there)) || other_store {
            let here = if here.is_empty() { "lib.rs" } else { here };
            wrong.push(format!("{}: {here} may not import crate::{}", source.path, path.join("::")));
        }
    }
    wrong
}

fn library() -> Vec<Source> {
    let src = root().join("crates/tenure/src");
    files(&src, &["rs"])
        .iter()
        .map(|path| {
            let below = path.strip_prefix(&src).expect("below src");
            let at: Vec<&str> = below.iter().map(|part| part.to_str().expect("UTF-8")).collect();
            Source::new(&at, &read(path))
        })
        .collect()
}

/// Lines that are neither blank nor comment, up to the inline tests, which come last.
fn code(text: &str) -> usize {
    text.lines()
        .map(str::trim)
        .take_while(|line| *line != "#[cfg(test)]")
        .filter(|line| !line.is_empty() && !line.starts_with("//") && !line.starts_with("--"))
        .count()
}

/// `tests.rs` and what is below `tests/` inside the library.
fn is_test(path: &Path) -> bool {
    path.file_stem().is_some_and(|stem| stem == "tests")
        || path.components().any(|part| part.as_os_str() == "tests")
}

/// The files below `folder` with one of these extensions or names, in order.
fn files(folder: &Path, kinds: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("a directory can be read").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            if !["target", ".git"].contains(&name) {
                found.extend(files(&path, kinds));
            }
        } else if kinds.contains(&name.rsplit('.').next().unwrap_or_default()) {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}
