//! What is compiled in: each direct dependency has its reason in CONTRIBUTING.md, every
//! licence is one that MIT or Apache-2.0 code may carry, and nothing comes twice.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const ALLOWED: [&str; 7] =
    ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-3-Clause", "ISC", "Unicode-3.0", "Zlib"];

/// Two versions of these are compiled in, and why.
const TWICE: [(&str, &str); 0] = [];

#[test]
fn every_licence_is_allowed() {
    let packages = packages();
    assert!(packages.len() > 20, "only {} packages were found", packages.len());
    for package in packages {
        let licence = text(&package["license"]);
        assert!(is_allowed(licence), "{} {}: {licence}", package["name"], package["version"]);
    }
}

#[test]
fn licence_expressions_are_understood() {
    for (expression, allowed) in [
        ("MIT", true),
        ("GPL-3.0-only", false),
        ("MIT OR GPL-3.0-only", true),
        ("MIT AND GPL-3.0-only", false),
        ("MIT/Apache-2.0", true),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
        ("(GPL-3.0-only OR MIT) AND GPL-2.0-only", false),
        ("Apache-2.0 WITH LLVM-exception OR GPL-3.0-only", true),
        ("", false),
    ] {
        assert_eq!(is_allowed(expression), allowed, "{expression}");
    }
}

#[test]
fn nothing_comes_in_two_versions() {
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in packages() {
        versions.entry(text(&package["name"]).into()).or_default().push(text(&package["version"]).into());
    }
    versions.retain(|name, versions| versions.len() > 1 && !TWICE.iter().any(|(twice, _)| twice == name));
    assert!(versions.is_empty(), "{versions:?}");
}

#[test]
fn every_dependency_has_a_reason() {
    let page = std::fs::read_to_string(root().join("CONTRIBUTING.md")).expect("CONTRIBUTING.md");
    let (_, table) = page.split_once("## Dependencies").expect("a chapter on dependencies");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    let mut listed: Vec<&str> =
        rows.map(|(name, _)| name).filter(|name| !["crate", "---"].contains(name)).collect();
    listed.sort_unstable();
    assert_eq!(listed, dependencies());
}

#[test]
fn no_dependency_is_unused() {
    let mut code = String::new();
    for part in [
        "tenure/src",
        "tenure/tests",
        "tenure/benches",
        "tenure-cli/src",
        "tenure-cli/tests",
        "tenure-cli/benches",
    ] {
        read_all(&root().join("crates").join(part), &mut code);
    }
    let is_used = |name: &str| {
        let name = name.replace('-', "_");
        [format!("{name}::"), format!("use {name};")].iter().any(|use_of_it| code.contains(use_of_it))
    };
    let unused: Vec<String> = dependencies().into_iter().filter(|name| !is_used(name)).collect();
    assert!(unused.is_empty(), "{unused:?}");
}

/// Everything that is built here, our own crates and their development included.
fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--all-features", "--locked", "--offline"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu", "--manifest-path"])
        .arg(root().join("Cargo.toml"))
        .output()
        .expect("cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    match metadata["packages"].take() {
        Value::Array(packages) => packages,
        other => panic!("no packages: {other}"),
    }
}

/// `OR` and `/` take any side, `AND` takes both; parentheses only around an `OR`.
fn is_allowed(expression: &str) -> bool {
    expression.split(" AND ").all(|part| {
        let part = part.trim_matches(['(', ')']).replace('/', " OR ");
        part.split(" OR ").any(|licence| ALLOWED.contains(&licence.trim()))
    })
}

/// What the workspace names, in order.
fn dependencies() -> Vec<String> {
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).expect("Cargo.toml");
    let (_, section) = manifest.split_once("[workspace.dependencies]\n").expect("dependencies");
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    let names = lines.filter_map(|line| line.split_once(" = ")).map(|(name, _)| name.to_owned());
    let mut names: Vec<String> = names.filter(|name| name != "tenure").collect();
    names.sort_unstable();
    names
}

fn read_all(folder: &Path, code: &mut String) {
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("a directory can be read").path();
        if path.is_dir() {
            read_all(&path, code);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            *code += &std::fs::read_to_string(&path).expect("UTF-8");
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
