//! `tenure completions` and `tenure man`: made from the command line's own definition.

use crate::args::{Cli, Completions, Man};
use crate::exit::{Exit, Failure};
use crate::output::answer;
use clap::CommandFactory;

pub(crate) fn completions(args: &Completions) -> Result<Exit, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tenure", &mut text);
    answer(&String::from_utf8_lossy(&text), Exit::Success)
}

/// What all pages end with.
const END: &str = include_str!("man_end.roff");

pub(crate) fn man(args: &Man) -> Result<Exit, Failure> {
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    let command = match &args.command {
        None => root,
        Some(name) => {
            let names: Vec<_> = root.get_subcommands().map(|command| command.get_name().to_owned()).collect();
            let found = root.find_subcommand(name).cloned();
            found.map(|command| command.display_name(format!("tenure-{name}"))).ok_or_else(|| {
                Failure::usage(format!(
                    "there is no command \"{}\": {}",
                    tenure::escaped(name),
                    names.join(", ")
                ))
            })?
        }
    };
    // The usage as help shows it, and at the end what holds for all pages.
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").to_owned();
    let command = command.override_usage(usage).after_help(None::<&str>);
    let mut text = Vec::new();
    clap_mangen::Man::new(command).render(&mut text).map_err(Failure::internal)?;
    answer(&(String::from_utf8_lossy(&text) + END), Exit::Success)
}
