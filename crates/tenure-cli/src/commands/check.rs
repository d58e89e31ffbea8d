//! `tenure check`: inside `run`, whether the lease is still held.

use super::{Asked, connect, place};
use crate::args::Check;
use crate::exit::{Exit, Failure};
use crate::output::{answer, json, say, text};
use crate::store_choice::StoreChoice;
use serde_json::json;
use std::env::VarError;
use std::time::Duration;
use tenure::store::Standing;
use tenure::{Name, Owner, Token};

/// Asks the store now; 0 and the time left, or 1 and why.
pub(crate) async fn check(args: Check, store: &StoreChoice, verbose: bool) -> Result<Exit, Failure> {
    let name: Name = variable("TENURE_NAME")?.parse()?;
    let owner: Owner = variable("TENURE_OWNER")?.parse()?;
    let token: Token = variable("TENURE_TOKEN")?.parse()?;
    let (standing, store) = match connect(store, verbose).await? {
        Asked::Store(client) => (client.inspect(&name).await?, place(&client)),
        Asked::NoStoreYet(place) => (super::show::nobody(name.clone()), place),
    };
    let held = time_left(&standing, owner, token);
    if let Err(why) = &held {
        say(format!("\"{name}\" is not held any more: {why} ({store})"));
    }
    let exit = if held.is_ok() { Exit::Success } else { Exit::NotHeld };
    if args.json {
        let value = json!({
            "name": name.as_str(),
            "owner": owner.to_string(),
            "token": token.as_u64(),
            "held": held.is_ok(),
            "left_ms": held.as_ref().ok().copied().map(json::milliseconds),
            "holder": standing.holder.as_ref().map(json::holder),
            "store": store,
        });
        return answer(&json::document(&value), exit);
    }
    match held {
        Ok(left) => answer(&format!("{}\n", text::duration(left)), exit),
        Err(_) => Ok(exit),
    }
}

fn time_left(standing: &Standing, owner: Owner, token: Token) -> Result<Duration, String> {
    match &standing.holder {
        Some(holder) if holder.owner != owner => Err(format!(
            "held by {} with token {} since {}",
            holder.label,
            holder.token,
            text::time_to_the_second(holder.since)
        )),
        Some(holder) if holder.token != token => {
            Err(format!("the token is {}, and TENURE_TOKEN says {token}", holder.token))
        }
        Some(_) if standing.revoked.is_some() => Err("it was revoked: stop".to_owned()),
        Some(holder) => Ok(holder.left),
        None => Err("nobody holds it".to_owned()),
    }
}

fn variable(name: &str) -> Result<String, Failure> {
    std::env::var(name).map_err(|error| {
        let what = match error {
            VarError::NotPresent => "is not set",
            VarError::NotUnicode(_) => "is not UTF-8",
        };
        Failure::usage(format!("{name} {what}: check is for what tenure run has started"))
    })
}
