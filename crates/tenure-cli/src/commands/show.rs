//! `tenure show`: all about one name.

use crate::args::Show;
use crate::commands::{Asked, connect, place};
use crate::exit::{Exit, Failure};
use crate::output::table::{shortened, terminal_width};
use crate::output::{answer, json, text};
use crate::store_choice::StoreChoice;
use tenure::Name;
use tenure::store::Standing;

/// Prints how the name stands; 1 when nobody holds it.
pub(crate) async fn show(args: Show, store: &StoreChoice, verbose: bool) -> Result<Exit, Failure> {
    let (standing, store) = match connect(store, verbose).await? {
        Asked::Store(client) => (client.inspect(&args.name).await?, place(&client)),
        Asked::NoStoreYet(place) => (nobody(args.name), place),
    };
    let text = if args.json {
        json::document(&json::standing_in_full(&standing, &store))
    } else {
        for_people(&standing, &store)
    };
    let exit = if standing.holder.is_some() { Exit::Success } else { Exit::NotHeld };
    answer(&text, exit)
}

pub(super) fn nobody(name: Name) -> Standing {
    Standing { name, holder: None, revoked: None, kept_back: None, waiters: Vec::new(), waiting: 0 }
}

fn for_people(standing: &Standing, store: &str) -> String {
    let mut lines = vec![("name", standing.name.to_string())];
    match &standing.holder {
        Some(holder) => lines.extend([
            ("holder", holder.label.to_string()),
            ("owner", holder.owner.to_string()),
            ("token", holder.token.to_string()),
            ("since", text::time(holder.since)),
            ("left", text::duration(holder.left)),
        ]),
        None => lines.push(("holder", "nobody".to_owned())),
    }
    if let Some(left) = standing.revoked {
        lines.push(("revoked", format!("free within {}", text::duration(left))));
    }
    if let Some(left) = standing.kept_back {
        lines.push(("kept back", format!("for another {} (hold-at-least)", text::duration(left))));
    }
    lines.push(("waiting", standing.waiting.to_string()));
    for (index, waiter) in standing.waiters.iter().enumerate() {
        let since = text::time_to_the_second(waiter.since);
        lines.push(("", format!("{}. {} since {since}", index + 1, waiter.label)));
    }
    match standing.waiting as usize {
        waiting if waiting > standing.waiters.len() && !standing.waiters.is_empty() => {
            lines.push(("", format!("and {} more", waiting - standing.waiters.len())));
        }
        _ => {}
    }
    lines.push(("store", store.to_owned()));

    let width = terminal_width();
    let room = width.map_or(usize::MAX, |width| width.saturating_sub(11).max(1));
    lines.iter().map(|(field, value)| format!("{field:<9}  {}\n", shortened(value, room))).collect()
}
