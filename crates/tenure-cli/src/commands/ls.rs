//! `tenure ls`: who holds what.

use crate::args::Ls;
use crate::commands::{Asked, connect};
use crate::exit::{Exit, Failure};
use crate::output::table::{Table, terminal_width};
use crate::output::{cannot_write, json, print, text};
use crate::store_choice::StoreChoice;
use std::io::ErrorKind;
use std::time::Duration;
use tenure::store::Standing;
use tenure::{Clock, Holder};

/// Prints the names in byte order, page by page; what changes meanwhile may be seen or not.
pub(crate) async fn ls(args: Ls, store: &StoreChoice, verbose: bool) -> Result<Exit, Failure> {
    let Asked::Store(client) = connect(store, verbose).await? else { return Ok(Exit::Success) };
    let terminal = terminal_width();
    let mut table = None;
    let mut after = None;
    loop {
        let page = client.list(&args.prefix, after.as_ref()).await?;
        let text = if args.json {
            page.names.iter().map(|standing| json::line(&json::standing(standing))).collect()
        } else {
            for_people(&mut table, &page.names, terminal)
        };
        match print(&text) {
            // The reader has gone (`| head`): the rest is not asked for.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(Exit::Success),
            Err(error) => return Err(cannot_write(&error)),
            Ok(()) => {}
        }
        after = page.names.into_iter().next_back().map(|standing| standing.name);
        if !page.more || after.is_none() {
            return Ok(Exit::Success);
        }
    }
}

/// The header comes with the first row.
fn for_people(table: &mut Option<Table<6>>, names: &[Standing], terminal: Option<usize>) -> String {
    if names.is_empty() {
        return String::new();
    }
    let mut rows = Vec::with_capacity(names.len() + 1);
    let table = table.get_or_insert_with(|| {
        rows.push(["NAME", "HOLDER", "TOKEN", "SINCE", "LEFT", "WAITERS"].map(str::to_owned));
        Table::new(2, terminal)
    });
    rows.extend(names.iter().map(|name| row(name, terminal.is_some())));
    table.lay_out(&rows)
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
