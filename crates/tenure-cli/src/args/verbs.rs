//! The verbs beside `run`.

use super::{duration, hold, label, name, ttl};
use clap::{ArgGroup, Args};
use std::path::PathBuf;
use std::time::Duration;
use tenure::{Label, Name, Owner, Token};

#[derive(Debug, Args)]
pub(crate) struct Acquire {
    /// What to lease: 1 to 512 bytes
    #[arg(value_parser = name)]
    pub(crate) name: Name,

    /// How long it is held, unless it is renewed or released
    #[arg(long, value_name = "D", default_value = "10s", value_parser = ttl, allow_hyphen_values = true)]
    pub(crate) ttl: Duration,

    /// Do not wait: exit 75 when somebody else holds it
    #[arg(short = 'n', long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,

    /// Wait for at most so long, then exit 75 [default: without end]
    #[arg(short = 'w', long, value_name = "D", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) wait: Option<Duration>,

    /// What others see as its holder [default: host:pid, of the script that calls]
    #[arg(long, value_name = "TEXT", value_parser = label)]
    pub(crate) label: Option<Label>,

    /// Keep others out for so long, even if it is released sooner
    #[arg(long, value_name = "D", value_parser = hold, allow_hyphen_values = true)]
    pub(crate) hold_at_least: Option<Duration>,

    /// Make this file, readable by you alone, for renew and release; it must not exist
    #[arg(long, value_name = "FILE", conflicts_with = "owner")]
    pub(crate) owner_file: Option<PathBuf>,

    /// The owner to be, 32 hexadecimal digits: an acquire that is repeated with it gives the
    /// same answer [default: a fresh one]
    #[arg(long, value_name = "OWNER", value_parser = owner)]
    pub(crate) owner: Option<Owner>,

    /// A JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which claim: by its owner, or by the file that holds it.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("whose").required(true))]
pub(crate) struct Whose {
    /// Which; may be left out with --owner-file
    #[arg(value_parser = name, required_unless_present = "owner_file")]
    pub(crate) name: Option<Name>,

    /// The owner that acquire printed
    #[arg(long, value_name = "OWNER", value_parser = owner, group = "whose")]
    pub(crate) owner: Option<Owner>,

    /// The file that acquire made
    #[arg(long, value_name = "FILE", group = "whose")]
    pub(crate) owner_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(
    override_usage = "tenure renew [OPTIONS] NAME --owner OWNER\n       tenure renew [OPTIONS] --owner-file FILE"
)]
pub(crate) struct Renew {
    #[command(flatten)]
    pub(crate) whose: Whose,

    /// The time left from now on [default: as acquired by the owner file, else 10s]
    #[arg(long, value_name = "D", value_parser = ttl, allow_hyphen_values = true)]
    pub(crate) ttl: Option<Duration>,

    /// A JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    override_usage = "tenure release [OPTIONS] NAME --owner OWNER\n       tenure release [OPTIONS] --owner-file FILE"
)]
pub(crate) struct Release {
    #[command(flatten)]
    pub(crate) whose: Whose,

    /// A JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// A JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// Which
    #[arg(value_parser = name)]
    pub(crate) name: Name,

    /// Wait for at most so long, then exit 75 [default: without end]
    #[arg(long, value_name = "D", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) timeout: Option<Duration>,

    /// A JSON object: how the name stands at the end
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Revoke {
    /// Which
    #[arg(value_parser = name)]
    pub(crate) name: Name,

    /// The token of the holder, as show tells it: nobody else is hit
    #[arg(long, value_name = "N", value_parser = token)]
    pub(crate) token: Token,

    /// Free it at once, though the holder may still be working
    #[arg(long)]
    pub(crate) now: bool,

    /// A JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Init {
    /// Do it, instead of printing what would be done
    #[arg(long)]
    pub(crate) apply: bool,

    /// Make the store of this machine, /var/lib/tenure, for all users of the group tenure
    #[arg(long)]
    pub(crate) system: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// For which
    #[arg(value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The page of this command [default: the one of tenure itself]
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Option<String>,
}

fn owner(text: &str) -> Result<Owner, tenure::Error> {
    text.parse()
}

fn token(text: &str) -> Result<Token, tenure::Error> {
    text.parse()
}
