//! JSON for scripts: names of fields are a contract.

use super::text;
use serde_json::{Value, json};
use std::time::Duration;
use tenure::store::{Standing, Waiter};
use tenure::{Busy, Holder, Why};

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

fn holder(holder: &Holder) -> Value {
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
