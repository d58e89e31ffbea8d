//! The command line.

mod verbs;

pub(crate) use verbs::{Acquire, Check, Completions, Init, Man, Release, Renew, Revoke, Wait, Whose};

use crate::exit::Exit;
use crate::output::{answer, say, say_as_it_is, table};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::error::Error as _;
use std::ffi::OsString;
use std::time::Duration;
use tenure::{Label, Name, escaped};

/// Run a command under a distributed lease.
#[derive(Debug, Parser)]
#[command(name = "tenure", version, max_term_width = 100, after_help = EXIT_CODES)]
#[command(override_usage = "tenure [OPTIONS] COMMAND")]
pub(crate) struct Cli {
    /// The store, as a URL such as sqlite:/var/lib/app/leases.db
    #[arg(long, value_name = "URL", global = true, conflicts_with = "store_file", display_order = 900)]
    pub(crate) store: Option<String>,

    /// A file that holds the store's URL, so that a password is on no command line
    #[arg(long, value_name = "PATH", global = true, display_order = 901)]
    pub(crate) store_file: Option<OsString>,

    /// Say which store is used
    #[arg(short, long, global = true, display_order = 902)]
    pub(crate) verbose: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
  64 usage, 69 store unavailable, 70 internal error or a guardian killed, 75 not acquired,
  76 lease lost, 77 rejected by the store, 126 command not executable, 127 command not found,
  otherwise the command's own; renew, release, show, check, revoke: 1 when it is not held

The store is the first of: --store, --store-file, TENURE_STORE, TENURE_STORE_FILE, the file
/etc/tenure/store, the embedded store of this user (sqlite:)";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Wait for the lease, run a command while it is held, release it, exit with the command's code
    Run(Run),
    /// Acquire for a script, without a heartbeat; prints owner, token and TTL
    Acquire(Acquire),
    /// Set the time left of what was acquired to its TTL; exit 1 when it is not held any more
    Renew(Renew),
    /// Release what was acquired; exit 1 when it was not held any more
    Release(Release),
    /// Inside run: ask the store now whether the lease is held; prints the time left, or exit 1
    Check(Check),
    /// Wait until the name is free; exit 75 when the time ran out
    Wait(Wait),
    /// List who holds what
    Ls(Ls),
    /// Show all about one name, its queue included; exit 1 when nobody holds it
    Show(Show),
    /// Take the lease from the holder with this token, and from no other
    Revoke(Revoke),
    /// Print or do what the store needs before its first use
    Init(Init),
    /// Print the completions of a shell
    Completions(Completions),
    /// Print the man page, of a command if one is named
    Man(Man),
}

#[derive(Debug, Args)]
#[command(override_usage = "tenure run [OPTIONS] NAME -- CMD [ARG]...")]
pub(crate) struct Run {
    /// What to lease: 1 to 512 bytes
    #[arg(value_parser = name)]
    pub(crate) name: Name,

    /// How long the lease outlives a holder that is not heard of any more
    #[arg(long, value_name = "D", default_value = "10s", value_parser = ttl, allow_hyphen_values = true)]
    pub(crate) ttl: Duration,

    /// How often it is renewed [default: a third of the TTL]
    #[arg(long, value_name = "D", value_parser = positive, allow_hyphen_values = true)]
    pub(crate) heartbeat: Option<Duration>,

    /// Do not wait: exit 75 when somebody else holds it
    #[arg(short = 'n', long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,

    /// Wait for at most so long, then exit 75 [default: without end]
    #[arg(short = 'w', long, value_name = "D", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) wait: Option<Duration>,

    /// The exit code when it was not acquired
    #[arg(short = 'E', long, value_name = "N", default_value_t = Exit::NOT_ACQUIRED)]
    pub(crate) conflict_exit_code: u8,

    /// What others see as its holder [default: host:pid]
    #[arg(long, value_name = "TEXT", value_parser = label)]
    pub(crate) label: Option<Label>,

    /// Keep others out for so long from the start on, however short the command is
    #[arg(long, value_name = "D", value_parser = hold, allow_hyphen_values = true)]
    pub(crate) hold_at_least: Option<Duration>,

    /// End the command after so long
    #[arg(long, value_name = "D", value_parser = hold, allow_hyphen_values = true)]
    pub(crate) hold_at_most: Option<Duration>,

    /// How long before the lease ends the command is asked to end [default: a fifth of the lease]
    #[arg(long, value_name = "D", value_parser = duration, allow_hyphen_values = true)]
    pub(crate) grace: Option<Duration>,

    /// What happens to the command when the lease is lost
    #[arg(long, value_name = "WHAT", default_value = "term")]
    pub(crate) on_lost: OnLost,

    /// Release when the command has ended, even if processes of its group run on
    #[arg(short = 'o', long)]
    pub(crate) close: bool,

    /// A line of JSON on this descriptor, which the command does not get, for each change of state
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(3..))]
    pub(crate) status_fd: Option<i32>,

    /// Keep the command in tenure's own process group, and the terminal there
    #[arg(long)]
    pub(crate) foreground: bool,

    /// The command and its arguments, executed as they are given, without a shell
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// It is asked to end (TERM), and killed when the lease ends
    Term,
    /// It runs on without protection; the exit code is 76 all the same
    Ignore,
}

#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// Only names that begin so
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,

    /// One JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// Which
    #[arg(value_parser = name)]
    pub(crate) name: Name,

    /// A JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Parses the process's command line; on a mistake says so and ends with 64.
pub(crate) fn parse() -> Cli {
    let words: Vec<OsString> = std::env::args_os().collect();
    let parsed = Cli::try_parse_from(&words).or_else(|error| with_dashed_name(&words).unwrap_or(Err(error)));
    parsed.unwrap_or_else(|error| {
        if !error.use_stderr() {
            let exit = answer(&for_stdout(&error), Exit::Success).unwrap_or_else(|failure| {
                say(&failure.message);
                failure.exit
            });
            exit.now();
        }
        match in_one_line(&error) {
            Some(line) => say(line),
            None => say_as_it_is(&error.render().to_string()),
        }
        Exit::Usage.now()
    })
}

/// Help, with colours on a terminal that wants them.
fn for_stdout(error: &clap::Error) -> String {
    let is_plain = table::terminal_width().is_none()
        || std::env::var_os("NO_COLOR").is_some_and(|no| !no.is_empty())
        || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    let text = error.render();
    if is_plain { text.to_string() } else { text.ansi().to_string() }
}

/// `run -- -NAME -- CMD`: what follows the first `--` is CMD to clap, and no name left.
fn with_dashed_name(words: &[OsString]) -> Option<clap::error::Result<Cli>> {
    let dashes = words.iter().position(|word| word == "--")?;
    let [dashed, second, ..] = &words[dashes + 1..] else { return None };
    if !is_run() || second != "--" {
        return None;
    }
    let any = OsString::from("any");
    let parsed = Cli::try_parse_from(words[..dashes].iter().chain([&any]).chain(&words[dashes + 2..]));
    let parsed = parsed.and_then(|mut cli| {
        let named = Name::new(dashed.to_string_lossy());
        match (&mut cli.command, named) {
            (Command::Run(run), Ok(name)) => run.name = name,
            (_, Err(error)) => return Err(clap::Error::raw(ErrorKind::InvalidValue, format!("{error}\n"))),
            _ => {}
        }
        Ok(cli)
    });
    Some(parsed)
}

/// The mistakes for which there is something better to say than clap does.
fn in_one_line(error: &clap::Error) -> Option<String> {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::ValueValidation => {
            // As it stands in the usage: an option with its value, or <NAME>.
            let option = context(ContextKind::InvalidArg)?.split_whitespace().next()?;
            let option = option.trim_start_matches(['<', '[']).trim_end_matches(['>', ']']);
            let value = escaped(context(ContextKind::InvalidValue)?).to_string();
            Some(format!("{option} \"{value}\": {}", error.source()?))
        }
        ErrorKind::MissingRequiredArgument if is_run() => {
            Some("run needs a name and, after --, a command: tenure run NAME -- CMD ARG...".to_owned())
        }
        ErrorKind::UnknownArgument if is_run() && !std::env::args_os().any(|word| word == "--") => {
            let word = escaped(context(ContextKind::InvalidArg)?).to_string();
            Some(format!(
                "\"{word}\" is not an option of run: write the command after --, as in: tenure run NAME -- CMD ARG..."
            ))
        }
        _ => None,
    }
}

fn is_run() -> bool {
    std::env::args_os().skip(1).take_while(|word| word != "--").any(|word| word == "run")
}

fn name(text: &str) -> Result<Name, tenure::Error> {
    Name::new(text)
}

fn label(text: &str) -> Result<Label, tenure::Error> {
    Label::new(text)
}

const DAY: Duration = Duration::from_secs(24 * 3600);

fn ttl(text: &str) -> Result<Duration, String> {
    between(text, Duration::from_millis(500), DAY, "500ms to 24h")
}

fn positive(text: &str) -> Result<Duration, String> {
    between(text, Duration::from_millis(1), DAY, "1ms to 24h")
}

fn hold(text: &str) -> Result<Duration, String> {
    between(text, Duration::from_millis(1), 31 * DAY, "1ms to 31days")
}

fn duration(text: &str) -> Result<Duration, String> {
    between(text, Duration::ZERO, 3660 * DAY, "0s to 10years")
}

/// The clap derive wants functions; this is what they share.
fn between(text: &str, least: Duration, most: Duration, allowed: &str) -> Result<Duration, String> {
    let said = format!("allowed is {allowed}, with its unit, as in 10s, 1m30s or 250ms");
    let duration = match humantime::parse_duration(text) {
        Ok(duration) => duration,
        Err(_) if text == "0" => Duration::ZERO,
        Err(_) => return Err(format!("is not a duration; {said}")),
    };
    match duration {
        short if short < least => Err(format!("is too short; {said}")),
        long if long > most => Err(format!("is too long; {said}")),
        fits => Ok(fits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations_have_a_unit_and_a_range() {
        assert_eq!(ttl("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(ttl("500ms"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-5s", "1ms", "1000years", "10", "", "soon", "99999999999999years", "25h"] {
            let error = ttl(wrong).expect_err(wrong);
            assert!(error.contains("500ms to 24h"), "{wrong}: {error}");
        }
    }
}
