//! JSON for scripts: names of fields are a contract.

use super::text;
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Duration;
use tenure::store::{Standing, Waiter};
use tenure::{Busy, Holder, Why};

/// One line.
pub(crate) fn line(value: &Value) -> String {
    inert(&format!("{value}\n"))
}

/// For an answer that is one object, indented.
pub(crate) fn document(value: &Value) -> String {
    inert(&format!("{value:#}\n"))
}

/// JSON may hold as they are: controls from U+007F on, overrides, and the like. They stand in
/// strings only, where an escape means the same.
fn inert(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        let mut bytes = [0; 4];
        let is_plain = matches!(c, '\n' | '\\')
            || tenure::escaped(c.encode_utf8(&mut bytes)).to_string().len() == c.len_utf8();
        if is_plain {
            shown.push(c);
        } else {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                let _ = write!(shown, "\\u{unit:04x}");
            }
        }
    }
    shown
}

/// How a name stands, without its queue.
pub(crate) fn standing(standing: &Standing) -> Value {
    json!({
        "name": standing.name.as_str(),
        "holder": standing.holder.as_ref().map(holder),
        "revoked_ms": standing.revoked.map(milliseconds),
        "kept_back_ms": standing.kept_back.map(milliseconds),
        "waiting": standing.waiting,
    })
}

/// The same with its queue and its store.
pub(crate) fn standing_in_full(shown: &Standing, store: &str) -> Value {
    let mut value = standing(shown);
    value["waiters"] = shown.waiters.iter().map(waiter).collect();
    value["store"] = store.into();
    value
}

/// Why a name was not granted.
pub(crate) fn busy(busy: &Busy) -> Value {
    let (why, holder) = match &busy.why {
        Why::Held(held_by) => ("held", Some(holder(held_by))),
        Why::KeptBack(_) => ("kept_back", None),
        Why::Guarded(_) => ("guarded", None),
        _ => ("queued", None),
    };
    json!({
        "why": why,
        "holder": holder,
        "left_ms": busy.left().map(milliseconds),
        "place": busy.place,
        "waiting": busy.waiting,
        "error": busy.last_error.as_ref().map(ToString::to_string),
    })
}

pub(crate) fn holder(holder: &Holder) -> Value {
    json!({
        "owner": holder.owner.to_string(),
        "label": holder.label.as_str(),
        "token": holder.token.as_u64(),
        "since": text::time(holder.since),
        "left_ms": milliseconds(holder.left),
    })
}

fn waiter(waiter: &Waiter) -> Value {
    json!({
        "owner": waiter.owner.to_string(),
        "label": waiter.label.as_str(),
        "since": text::time(waiter.since),
    })
}

pub(crate) fn milliseconds(duration: Duration) -> u64 {
    duration.as_millis().try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_steers_no_terminal_and_means_the_same() {
        let value = json!({ "label": "a\u{1b}\u{7f}\u{9b}2J\u{202e}\u{feff}\\\"\u{1f600}中" });
        for text in [line(&value), document(&value)] {
            assert!(
                !text.chars().any(|c| (c.is_control() && c != '\n') || "\u{202e}\u{feff}".contains(c)),
                "{text:?}"
            );
            assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), value);
        }
    }
}
