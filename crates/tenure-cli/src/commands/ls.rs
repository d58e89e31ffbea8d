//! `tenure ls`: who holds what.

use crate::args::Ls;
use crate::commands::{Asked, answer, connect};
use crate::exit::{Exit, Failure};
use crate::output::{json, table, text};
use crate::store_choice::StoreChoice;
use std::time::Duration;
use tenure::store::Standing;
use tenure::{Client, Clock, Holder};

/// Prints the names in byte order.
pub(crate) async fn ls(args: Ls, store: &StoreChoice, verbose: bool) -> Result<Exit, Failure> {
    let names = match connect(store, verbose).await? {
        Asked::Store(client) => all(&client, &args.prefix).await?,
        Asked::NoStoreYet(_) => Vec::new(),
    };
    let text = if args.json {
        names.iter().map(|standing| format!("{}\n", json::standing(standing))).collect()
    } else if names.is_empty() {
        String::new()
    } else {
        let terminal = table::terminal_width();
        let header = ["NAME", "HOLDER", "TOKEN", "SINCE", "LEFT", "WAITERS"].map(str::to_owned);
        let rows: Vec<_> =
            std::iter::once(header).chain(names.iter().map(|name| row(name, terminal.is_some()))).collect();
        table::lay_out(&rows, 2, terminal)
    };
    answer(&text, Exit::Success)
}

/// Page by page; what changes meanwhile may be seen or not.
async fn all(client: &Client, prefix: &str) -> Result<Vec<Standing>, Failure> {
    let mut names: Vec<Standing> = Vec::new();
    loop {
        let page = client.list(prefix, names.last().map(|standing| &standing.name)).await?;
        let more = page.more && !page.names.is_empty();
        names.extend(page.names);
        if !more {
            return Ok(names);
        }
    }
}

fn row(standing: &Standing, on_terminal: bool) -> [String; 6] {
    let none = || "-".to_owned();
    let (holder, token, since) = match &standing.holder {
        Some(holder) => {
            let revoked = if standing.revoked.is_some() { " (revoked)" } else { "" };
            (format!("{}{revoked}", holder.label), holder.token.to_string(), since(holder, on_terminal))
        }
        None if standing.kept_back.is_some() => ("(kept back)".to_owned(), none(), none()),
        None => (none(), none(), none()),
    };
    let left = standing.holder.as_ref().map(|holder| holder.left).or(standing.kept_back);
    let left = left.map_or_else(none, text::duration);
    [standing.name.to_string(), holder, token, since, left, standing.waiting.to_string()]
}

/// On a terminal, where room is short, the time of a day that is today's, else the day.
fn since(holder: &Holder, on_terminal: bool) -> String {
    let whole = text::time_to_the_second(holder.since);
    if !on_terminal {
        return whole;
    }
    let age = Clock::system().wall().duration_since(holder.since).unwrap_or_default();
    let short = if age < Duration::from_secs(24 * 3600) { whole.get(11..) } else { whole.get(..10) };
    short.unwrap_or(&whole).to_owned()
}
