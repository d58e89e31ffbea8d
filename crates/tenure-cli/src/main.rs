//! `tenure`: run a command under a distributed lease.

mod args;
mod commands;
mod exit;
mod output;
mod process;
mod store_choice;

use exit::{Exit, Failure};
use process::Inherited;

fn main() -> ! {
    let inherited = Inherited::take();
    let mut words = std::env::args_os().skip(1);
    // Before anything else, since CMD waits for it.
    if words.next().is_some_and(|word| word == process::GUARDIAN) {
        match process::guard(words) {
            Ok(()) => Exit::Success.now(),
            Err(_) => Exit::Internal.now(),
        }
    }
    end_at_a_panic();
    let cli = args::parse();
    let exit = run(cli, inherited).unwrap_or_else(|failure| {
        output::say(&failure.message);
        failure.exit
    });
    exit.now()
}

/// Unwinding would give the lease back while CMD still runs; at an abrupt end
/// the guardian first kills it. The library's threads look after themselves.
fn end_at_a_panic() {
    let main = std::thread::current().id();
    std::panic::set_hook(Box::new(move |panic| {
        output::say(format!("internal error, please report it: {panic}"));
        if std::thread::current().id() == main {
            Exit::Internal.now();
        }
    }));
}

fn run(cli: args::Cli, inherited: Inherited) -> Result<Exit, Failure> {
    // First: a number that is free may be the next one that something gets.
    let status = match &cli.command {
        args::Command::Run(run) => run.status_fd.and_then(output::status::take),
        _ => None,
    };
    let store = store_choice::StoreChoice::make(cli.store, cli.store_file)?;
    // One thread: CMD's guardian must not be the child of a thread that may end.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::internal)?;
    let exit = runtime.block_on(async {
        match cli.command {
            args::Command::Run(run) => commands::run::run(run, &store, cli.verbose, inherited, status).await,
            args::Command::Ls(ls) => commands::ls::ls(ls, &store, cli.verbose).await,
            args::Command::Show(show) => commands::show::show(show, &store, cli.verbose).await,
        }
    });
    // What a store's threads still do is no reason to stay.
    runtime.shutdown_background();
    exit
}
