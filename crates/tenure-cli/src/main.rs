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
    use args::Command;
    // First: a number that is free may be the next one that something gets.
    let status = match &cli.command {
        Command::Run(run) => run.status_fd.and_then(output::status::take),
        _ => None,
    };
    // These need no store, nor one that is named rightly.
    match cli.command {
        Command::Completions(args) => return commands::pages::completions(&args),
        Command::Man(args) => return commands::pages::man(&args),
        _ => {}
    }
    let is_system = matches!(&cli.command, Command::Init(init) if init.system);
    if is_system && (cli.store.is_some() || cli.store_file.is_some()) {
        return Err(Failure::usage(
            "init --system is about the store of this machine: name no other with it",
        ));
    }
    let store = match is_system {
        true => store_choice::StoreChoice::none(),
        false => store_choice::StoreChoice::make(cli.store, cli.store_file)?,
    };
    let verbose = cli.verbose;
    // One thread: CMD's guardian must not be the child of a thread that may end.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::internal)?;
    let exit = runtime.block_on(async {
        match cli.command {
            Command::Run(args) => commands::run::run(args, &store, verbose, inherited, status).await,
            Command::Acquire(args) => commands::claims::acquire(args, &store, verbose).await,
            Command::Renew(args) => commands::claims::renew(args, &store, verbose).await,
            Command::Release(args) => commands::claims::release(args, &store, verbose).await,
            Command::Check(args) => commands::check::check(args, &store, verbose).await,
            Command::Wait(args) => commands::wait::wait(args, &store, verbose).await,
            Command::Ls(args) => commands::ls::ls(args, &store, verbose).await,
            Command::Show(args) => commands::show::show(args, &store, verbose).await,
            Command::Revoke(args) => commands::revoke::revoke(args, &store, verbose).await,
            Command::Init(args) if args.system => commands::init::init_system(args).await,
            Command::Init(args) => commands::init::init(args, &store, verbose).await,
            Command::Completions(args) => commands::pages::completions(&args),
            Command::Man(args) => commands::pages::man(&args),
        }
    });
    // What a store's threads still do is no reason to stay.
    runtime.shutdown_background();
    exit
}
