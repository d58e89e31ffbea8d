//! What the subcommands do.

mod acquire;
pub(crate) mod ls;
pub(crate) mod run;
pub(crate) mod show;
mod waiting;

use crate::exit::{Exit, Failure};
use crate::output::{print, say};
use crate::store_choice::StoreChoice;
use std::io::ErrorKind;
use tenure::Client;
use tenure::stores::sqlite::Sqlite;

/// The store, as people are shown it.
fn place(client: &Client) -> String {
    let about = client.about();
    format!("{}:{}", about.kind, about.place)
}

/// Where a question goes.
enum Asked {
    Store(Client),
    /// Nobody has used it yet, and a question does not make it. Its place.
    NoStoreYet(String),
}

/// Connects for a question that waits for nothing.
async fn connect(store: &StoreChoice, verbose: bool) -> Result<Asked, Failure> {
    let (asked, place) = match Sqlite::missing(&store.url)? {
        Some(file) => {
            let place = format!("sqlite:{}", file.display());
            (Asked::NoStoreYet(place.clone()), place)
        }
        None => {
            let client = Client::connect(&store.url).await?;
            let place = place(&client);
            (Asked::Store(client), place)
        }
    };
    if verbose {
        say(format!("store {place}"));
    }
    Ok(asked)
}

/// Answers on stdout. That the reader has gone (`| head`) is not our failure.
fn answer(text: &str, exit: Exit) -> Result<Exit, Failure> {
    match print(text) {
        Ok(()) => Ok(exit),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(exit),
        Err(error) => Err(Failure::new(Exit::Internal, format!("cannot write to stdout: {error}"))),
    }
}
