//! `tenure revoke`: takes a lease from its holder.

use super::{Asked, connect};
use crate::args::Revoke;
use crate::exit::{Exit, Failure};
use crate::output::{answer, json, say, text};
use crate::store_choice::StoreChoice;
use serde_json::{Value, json};
use std::time::Duration;
use tenure::store::Revoked;
use tenure::{Clock, Holder, Label};

/// Hits the holder with this token and no other; says on stderr who did what to whom.
pub(crate) async fn revoke(args: Revoke, store: &StoreChoice, verbose: bool) -> Result<Exit, Failure> {
    let Asked::Store(client) = connect(store, verbose).await? else {
        return told(&args, None, &Revoked::NotHeld(None));
    };
    // Afterwards the store may not know any more.
    let before = client.inspect(&args.name).await?.holder.filter(|holder| holder.token == args.token);
    let revoked = client.revoke(&args.name, args.token, args.now).await?;
    told(&args, before.as_ref(), &revoked)
}

fn told(args: &Revoke, before: Option<&Holder>, revoked: &Revoked) -> Result<Exit, Failure> {
    let label = before.map_or_else(|| "its holder".to_owned(), |holder| holder.label.to_string());
    let (outcome, free_within, line) = match revoked {
        Revoked::Marked(left) => (
            "marked",
            Some(*left),
            format!("revoked: free when {label} has stopped, at the latest in {}", text::duration(*left)),
        ),
        Revoked::Freed if before.is_none() => {
            ("freed", Some(Duration::ZERO), "revoked: it was kept back, and is free now".to_owned())
        }
        Revoked::Freed => (
            "freed",
            Some(Duration::ZERO),
            format!("revoked: free now; {label} may still be working until it notices"),
        ),
        Revoked::NotHeld(now) => {
            let who = now.as_ref().map_or_else(
                || "nobody holds it".to_owned(),
                |holder| format!("{} holds it with token {}", holder.label, holder.token),
            );
            say(format!("\"{}\" is not held with token {}: {who}", args.name, args.token));
            ("not_held", None, String::new())
        }
    };
    let holder = match revoked {
        Revoked::NotHeld(now) => now.as_ref(),
        _ => before,
    };
    let mut value = json!({
        "name": args.name.as_str(),
        "token": args.token.as_u64(),
        "now": args.now,
        "outcome": outcome,
        "free_within_ms": free_within.map(json::milliseconds),
        "holder": holder.map(json::holder),
    });
    let is_revoked = free_within.is_some();
    if is_revoked {
        say(format!("audit: {}", json::line(&audit(&value)).trim_end()));
    }
    let exit = if is_revoked { Exit::Success } else { Exit::NotHeld };
    if args.json {
        return answer(&json::document(&value.take()), exit);
    }
    answer(&if line.is_empty() { line } else { line + "\n" }, exit)
}

/// For whoever reads the logs afterwards: what, to whom, by whom, when.
fn audit(revoked: &Value) -> Value {
    let mut audit = json!({ "at": text::time(Clock::system().wall()), "action": "revoke" });
    for (key, value) in revoked.as_object().into_iter().flatten() {
        audit[key] = value.clone();
    }
    audit["by"] = json!({
        "process": Label::of_this_process().as_str(),
        "uid": rustix::process::getuid().as_raw(),
        "sudo_user": std::env::var("SUDO_USER").ok(),
    });
    audit
}
