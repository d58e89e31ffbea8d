//! C12 and C14: names and labels of every kind, and many of them.

use super::kit::{Fixture, all, granted, holder, released};
use crate::store::{PAGE, Page};
use crate::words::name::Name;
use crate::words::owner::Label;
use std::collections::BTreeSet;

const ODD: &[&str] = &[
    "a{b",
    "}{",
    "{}",
    "x{y}z",
    "{a}{b}",
    "/",
    "//",
    "a/b/",
    "#",
    "%",
    "%41",
    "%%",
    "?x=1&y=2",
    "'",
    "\"",
    "`",
    "'; drop table leases; --",
    "$1",
    ":name",
    "\\",
    "\\x00",
    "\\u{0}",
    " ",
    " a ",
    "a b",
    ".",
    "..",
    "../a",
    "*",
    "?",
    "[a-z]",
    "_",
    "a\u{301}",
    "\u{e1}",
    "ß",
    "SS",
    "日本語",
    "🦀",
    "\u{202e}abc",
    "\u{feff}",
    "NULL",
    "0",
    "-",
    "--help",
    "a:b",
    "a,b",
    "a;b",
    "a|b",
    "a&b",
    "a=b",
    "a+b",
    "~",
    "^",
    "!",
    "@",
    "()",
    "<>",
];

pub(super) async fn c14_odd_names_round_trip(f: Fixture) {
    let longest = "ü".repeat((Name::MAX_BYTES - f.prefix().len()) / 2);
    let names: Vec<_> = ODD.iter().copied().chain([longest.as_str()]).map(|tail| f.name(tail)).collect();
    let asks: Vec<_> = names.iter().map(|name| f.ask(name)).collect();
    for ask in &asks {
        granted(&f.a, ask).await;
    }
    for ask in &asks {
        let standing = f.b.inspect(ask.claim.name.clone()).await.expect("inspect is answered");
        assert_eq!(standing.name, ask.claim.name, "the name as it was given");
        let owner = standing.holder.map(|holder| holder.owner);
        assert_eq!(owner, Some(ask.claim.owner), "the holder of \"{}\"", ask.claim.name);
    }
    let listed = names_of(&f.b.list(f.prefix(), None).await.expect("list is answered"));
    let sorted: Vec<Name> = names.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
    assert_eq!(listed, sorted, "all odd names in byte order");
    for ask in &asks {
        released(&f.a, &ask.claim).await;
        assert_eq!(holder(&f.b, &ask.claim.name).await, None, "\"{}\" after its release", ask.claim.name);
    }
}

pub(super) async fn c14_names_that_look_alike_are_distinct(f: Fixture) {
    let alike = [
        "name",
        "Name",
        "NAME",
        "name ",
        " name",
        "name/",
        "names",
        "nam",
        "n\u{e4}me",
        "na\u{308}me",
        "\u{ff4e}ame",
        "\u{43d}ame",
        "name\u{200b}",
        "straße",
        "strasse",
        "i",
        "ı",
        "I",
        "İ",
    ];
    for tail in alike {
        granted(&f.a, &f.ask(&f.name(tail))).await;
    }
    let listed = names_of(&f.b.list(f.prefix(), None).await.expect("list is answered"));
    assert_eq!(listed.len(), alike.len(), "names that look alike: {listed:?}");
}

pub(super) async fn c14_a_prefix_is_no_pattern(f: Fixture) {
    let tails = ["a%b", "a_b", "aXb", "a*b", "a?b", "a[x]b", "a\\b", "A%b", "a%"];
    for tail in tails {
        granted(&f.a, &f.ask(&f.name(tail))).await;
    }
    for (prefix, expected) in [
        ("a%", &["a%", "a%b"][..]),
        ("a_", &["a_b"]),
        ("a*", &["a*b"]),
        ("a?", &["a?b"]),
        ("a[x]", &["a[x]b"]),
        ("a\\", &["a\\b"]),
        ("A", &["A%b"]),
        ("a%b", &["a%b"]),
        ("a%bc", &[]),
        ("\u{0}", &[]),
    ] {
        let page = f.b.list(format!("{}{prefix}", f.prefix()), None).await.expect("list is answered");
        let expected: Vec<_> = expected.iter().map(|tail| f.name(tail)).collect();
        assert_eq!(names_of(&page), expected, "names with the prefix \"{prefix}\"");
        assert!(!page.more, "more names with the prefix \"{prefix}\"");
    }
    let after = f.name("a?b");
    let page = f.b.list(f.prefix(), Some(after.clone())).await.expect("list is answered");
    let expected: BTreeSet<_> = tails.iter().map(|tail| f.name(tail)).filter(|name| *name > after).collect();
    assert_eq!(names_of(&page), Vec::from_iter(expected), "names after \"{after}\"");
}

pub(super) async fn c14_odd_labels_round_trip(f: Fixture) {
    let longest = "é".repeat(Label::MAX_BYTES / 2);
    let labels = ["", " ", "it's \"quoted\"", "{}", "%s $1 :x ?", "\u{202e}evil", "日本 🦀", &longest];
    for (number, label) in labels.into_iter().enumerate() {
        let mut ask = f.ask(&f.name(&format!("{number}")));
        ask.label = Label::new(label).expect("a label");
        granted(&f.a, &ask).await;
        let standing = f.b.inspect(ask.claim.name.clone()).await.expect("inspect is answered");
        assert_eq!(standing.holder.map(|holder| holder.label), Some(ask.label), "the label as it was given");
    }
}

/// They are refused before there is anything to ask a store.
pub(super) async fn c14_control_characters_reach_no_store(f: Fixture) {
    granted(&f.a, &f.ask(&f.name("ab"))).await;
    for wrong in ["\u{1b}[2J", "a\nb", "a\0", "\u{7f}", "\u{9b}31m", "a\tb"] {
        assert!(Name::new(wrong).is_err(), "a name with a control character: {wrong:?}");
        assert!(Label::new(wrong).is_err(), "a label with a control character: {wrong:?}");
        let page = f.a.list(format!("{}{wrong}", f.prefix()), None).await.expect("list is answered");
        assert!(page.names.is_empty(), "names that begin with {wrong:?}: {page:?}");
    }
}

pub(super) async fn c12_a_page_has_at_most_a_thousand_names(f: Fixture) {
    let mut names: Vec<_> = (0..PAGE + 10).map(|number| f.name(&format!("{number}"))).collect();
    for chunk in names.chunks(64) {
        for answer in all(chunk.iter().map(|name| f.a.acquire(f.ask(name))).collect()).await {
            answer.expect("acquire is answered");
        }
    }
    names.sort();
    let first = f.b.list(f.prefix(), None).await.expect("list is answered");
    assert_eq!(first.names.len(), PAGE, "names in a full page");
    assert!(first.more, "there are more names");
    let last = first.names.last().map(|standing| standing.name.clone());
    let second = f.b.list(f.prefix(), last).await.expect("list is answered");
    assert!(!second.more, "there are no more names");
    let both = [names_of(&first), names_of(&second)].concat();
    assert_eq!(both, names, "both pages, in byte order");
}

fn names_of(page: &Page) -> Vec<Name> {
    page.names.iter().map(|standing| standing.name.clone()).collect()
}
