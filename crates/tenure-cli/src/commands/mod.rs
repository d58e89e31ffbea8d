//! What the subcommands do.

mod acquire;
pub(crate) mod check;
pub(crate) mod claims;
pub(crate) mod init;
pub(crate) mod ls;
mod owner_file;
pub(crate) mod pages;
pub(crate) mod revoke;
pub(crate) mod run;
pub(crate) mod show;
pub(crate) mod wait;
mod waiting;

use crate::exit::Failure;
use crate::output::{say, secrets};
use crate::store_choice::StoreChoice;
use tenure::Client;
use tenure::stores::sqlite::Sqlite;

/// The store, as people are shown it.
fn place(client: &Client) -> String {
    let about = client.about();
    let place = format!("{}:{}", about.kind, about.place);
    tenure::escaped(&secrets::hidden(&place)).to_string()
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
            let place = format!("sqlite:{}", tenure::escaped(&file.to_string_lossy()));
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
