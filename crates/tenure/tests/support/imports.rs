//! Reads which modules of the crate a source file names: in `use` trees and in the middle
//! of code, through `crate`, `$crate`, `self` and `super`, and through re-exports.

use std::collections::HashMap;

/// A path below the crate: `["words", "name"]`.
pub(crate) type Module = Vec<String>;

/// A file of the library.
pub(crate) struct Source {
    /// Below `src`, for people.
    pub(crate) path: String,
    /// The module that the file is.
    pub(crate) module: Module,
    tokens: Vec<String>,
}

impl Source {
    /// The file at these parts of a path below `src`.
    pub(crate) fn new(at: &[&str], text: &str) -> Source {
        let mut module: Module = at.iter().map(|part| part.trim_end_matches(".rs").to_owned()).collect();
        if module.last().is_some_and(|last| last == "mod" || last == "lib") {
            module.pop();
        }
        Source { path: at.join("/"), module, tokens: tokens(text) }
    }
}

/// Where the names at the root of the crate come from.
pub(crate) struct Reexports(HashMap<String, Module>);

impl Reexports {
    /// `Name` is `words::name::Name`.
    pub(crate) fn resolve(&self, path: Module) -> Module {
        path.first().and_then(|first| self.0.get(first)).cloned().unwrap_or(path)
    }
}

/// The names that `lib.rs` re-exports.
pub(crate) fn reexports(sources: &[Source]) -> Reexports {
    let lib = sources.iter().find(|source| source.module.is_empty()).expect("lib.rs");
    let mut names = HashMap::new();
    for (at, window) in lib.tokens.windows(2).enumerate() {
        if window == ["pub", "use"] {
            for path in tree(&lib.tokens, at + 2, &[]).0 {
                names.insert(path.last().expect("a path has a part").clone(), path);
            }
        }
    }
    Reexports(names)
}

/// Every path into the crate that `source` names. The crate itself, as in `use crate::*`,
/// is the empty path.
pub(crate) fn paths(source: &Source) -> Vec<Module> {
    let tokens = &source.tokens;
    let mut found = Vec::new();
    let mut here = source.module.clone();
    // The depth of braces at which each inline module ends.
    let mut inline = Vec::new();
    let mut depth = 0;
    let mut at = 0;
    while at < tokens.len() {
        let token = tokens[at].as_str();
        let follows = |offset: usize, text: &str| tokens.get(at + offset).is_some_and(|token| token == text);
        let continues = at > 0 && tokens[at - 1] == "::";
        match token {
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                if inline.last() == Some(&depth) {
                    inline.pop();
                    here.pop();
                }
            }
            "mod" if follows(2, "{") => {
                here.push(tokens[at + 1].clone());
                inline.push(depth);
            }
            "crate" | "self" | "super" if !continues && (follows(1, "::") || follows(1, "as")) => {
                let (paths, next) = path(tokens, at, &here);
                found.extend(paths);
                at = next;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// A path that begins with `crate`, `self` or `super`.
fn path(tokens: &[String], mut at: usize, here: &[String]) -> (Vec<Module>, usize) {
    let mut base = here.to_vec();
    loop {
        match tokens[at].as_str() {
            "crate" => base.clear(),
            "super" => _ = base.pop(),
            "self" => {}
            _ => break,
        }
        if tokens.get(at + 1).is_none_or(|token| token != "::") {
            return (vec![base], at + 1);
        }
        at += 2;
    }
    tree(tokens, at, &base)
}

/// The rest of a path after `base`: names, and groups of them.
fn tree(tokens: &[String], mut at: usize, base: &[String]) -> (Vec<Module>, usize) {
    let mut path = base.to_vec();
    loop {
        match tokens.get(at).map_or("", String::as_str) {
            "{" => {
                let mut found = Vec::new();
                at += 1;
                while tokens.get(at).is_some_and(|token| token != "}") {
                    if tokens[at] == "," {
                        at += 1;
                        continue;
                    }
                    let (paths, next) = tree(tokens, at, &path);
                    found.extend(paths);
                    at = next.max(at + 1);
                    if tokens.get(at).is_some_and(|token| token == "as") {
                        at += 2;
                    }
                }
                return (found, at + 1);
            }
            "*" | "self" => return (vec![path], at + 1),
            name if name.starts_with(|c: char| c.is_alphabetic() || c == '_') => {
                path.push(name.to_owned());
                at += 1;
            }
            _ => return (vec![path], at),
        }
        match tokens.get(at) {
            Some(token) if token == "::" => at += 1,
            _ => return (vec![path], at),
        }
    }
}

/// Names, `::`, and single characters; comments and literals are left out.
fn tokens(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(&c) = chars.get(at) {
        let rest = &chars[at..];
        if rest.starts_with(&['/', '/']) {
            at += rest.iter().take_while(|c| **c != '\n').count();
        } else if rest.starts_with(&['/', '*']) {
            at += block_comment(rest);
        } else if let Some(length) = raw_string(rest) {
            at += length;
        } else if c == '"' {
            at += quoted(rest, '"');
        } else if c == '\'' && (rest.get(1) == Some(&'\\') || rest.get(2) == Some(&'\'')) {
            at += quoted(rest, '\'');
        } else if rest.starts_with(&[':', ':']) {
            tokens.push("::".to_owned());
            at += 2;
        } else if c.is_alphanumeric() || c == '_' {
            let name: String = rest.iter().take_while(|c| c.is_alphanumeric() || **c == '_').collect();
            at += name.chars().count();
            tokens.push(name);
        } else {
            if !c.is_whitespace() {
                tokens.push(c.to_string());
            }
            at += 1;
        }
    }
    tokens
}

/// The length of a comment that may hold others.
fn block_comment(chars: &[char]) -> usize {
    let (mut at, mut depth) = (0, 0);
    while at < chars.len() {
        match &chars[at..] {
            ['/', '*', ..] => (at, depth) = (at + 2, depth + 1),
            ['*', '/', ..] => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// The length of `r"..."`, `r#"..."#` and the like, `b` before it or not.
fn raw_string(chars: &[char]) -> Option<usize> {
    let start = usize::from(chars.first() == Some(&'b'));
    if chars.get(start) != Some(&'r') {
        return None;
    }
    let hashes = chars[start + 1..].iter().take_while(|c| **c == '#').count();
    let open = start + 1 + hashes;
    if chars.get(open) != Some(&'"') {
        return None;
    }
    let end: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    let length = chars[open + 1..].windows(end.len()).position(|window| window == end)?;
    Some(open + 1 + length + end.len())
}

/// The length of a literal with escapes.
fn quoted(chars: &[char], quote: char) -> usize {
    let mut at = 1;
    while at < chars.len() && chars[at] != quote {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}
