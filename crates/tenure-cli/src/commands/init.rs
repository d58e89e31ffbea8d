//! `tenure init`: what a store needs before its first use.

use super::{Asked, connect};
use crate::args::Init;
use crate::exit::{Exit, Failure};
use crate::output::{answer, say};
use crate::store_choice::StoreChoice;
use rustix::fs::{AtFlags, Mode, OFlags, chownat, fchmod, fstat, mkdirat, openat};
use rustix::fs::{Gid, Uid};
use rustix::io::Errno;
use std::process::Command;
use tenure::Client;

/// The store of the machine is here, where its parent is.
const PARENT: &str = "/var/lib";
const DIRECTORY: &str = "tenure";
/// The library takes it for everybody's default once it is there.
const URL: &str = "sqlite:/var/lib/tenure/leases.db";
const GROUP: &str = "tenure";
/// New files belong to the group, and nobody else comes in.
const MODE: u32 = 0o2770;

/// Prints what the store needs, or does it.
pub(crate) async fn init(args: Init, store: &StoreChoice, verbose: bool) -> Result<Exit, Failure> {
    if !args.apply
        && let Asked::NoStoreYet(place) = connect(store, false).await?
    {
        return answer(&format!("{place} needs nothing: it is made by its first use\n"), Exit::Success);
    }
    let client = Client::connect(&store.url).await?;
    if verbose {
        say(format!("store {}", super::place(&client)));
    }
    let text = client.setup(args.apply).await?;
    client.close().await;
    answer(&text, Exit::Success)
}

/// The same for the store of this machine.
pub(crate) async fn init_system(args: Init) -> Result<Exit, Failure> {
    let group = group()?;
    if !args.apply {
        let mut text = String::from("# Run this as root, or: tenure init --system --apply\n");
        if group.is_none() {
            text += &format!("groupadd --system {GROUP}\n");
        }
        text += &format!("install -d -o root -g {GROUP} -m {MODE:o} {PARENT}/{DIRECTORY}\n");
        text += &format!("tenure --store {URL} init --apply\n");
        text += "# Then, for everybody who is to use it (from their next login on):\n";
        text += &format!("usermod --append --groups {GROUP} USER\n");
        return answer(&text, Exit::Success);
    }
    if !rustix::process::geteuid().is_root() {
        return Err(rejected(
            "only root can make the store of this machine: sudo tenure init --system --apply",
        ));
    }
    let group = match group {
        Some(group) => group,
        None => add_group()?,
    };
    make_directory(group)?;
    let client = Client::connect(URL).await?;
    client.setup(true).await?;
    client.close().await;
    let text = format!(
        "{URL} is now the store of everybody on this machine who names no other.\n\
         Let users in (from their next login on): usermod --append --groups {GROUP} USER\n"
    );
    answer(&text, Exit::Success)
}

fn make_directory(group: Gid) -> Result<(), Failure> {
    let path = format!("{PARENT}/{DIRECTORY}");
    let failed = |error: Errno| rejected(format!("{path} cannot be made: {}", std::io::Error::from(error)));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let parent = openat(rustix::fs::CWD, PARENT, flags, Mode::empty()).map_err(failed)?;
    match mkdirat(&parent, DIRECTORY, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(failed(error)),
    }
    let directory = openat(&parent, DIRECTORY, flags, Mode::empty()).map_err(|error| match error {
        Errno::LOOP | Errno::NOTDIR => {
            rejected(format!("{path} is a symbolic link or no directory: remove it"))
        }
        error => failed(error),
    })?;
    let owner = fstat(&directory).map_err(failed)?.st_uid;
    if owner != 0 {
        return Err(rejected(format!(
            "{path} belongs to another user (uid {owner}), who could replace the leases: move it away"
        )));
    }
    chownat(&directory, "", Some(Uid::ROOT), Some(group), AtFlags::EMPTY_PATH).map_err(failed)?;
    // Whatever the umask is.
    fchmod(&directory, Mode::from_raw_mode(MODE)).map_err(failed)
}

fn add_group() -> Result<Gid, Failure> {
    // shadow-utils, then busybox, whose addgroup Debian's understands too.
    for words in [&["groupadd", "--system", GROUP][..], &["addgroup", "-S", GROUP]] {
        let ran = Command::new(words[0]).args(&words[1..]).output();
        if ran.is_ok_and(|output| output.status.success())
            && let Some(group) = group()?
        {
            return Ok(group);
        }
    }
    Err(rejected(format!("the group {GROUP} cannot be made by groupadd or addgroup: make it, and try again")))
}

/// The group, if there is one: as the system tells it, which may ask a directory service.
fn group() -> Result<Option<Gid>, Failure> {
    let told = Command::new("getent").args(["group", GROUP]).output();
    let text = match told {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
        Ok(output) if output.status.code() == Some(2) => return Ok(None),
        // Not there, as in small containers.
        _ => std::fs::read_to_string("/etc/group").map_err(Failure::internal)?,
    };
    let line = text.lines().find_map(|line| line.strip_prefix(GROUP)?.strip_prefix(':'));
    Ok(line.and_then(|line| line.split(':').nth(1)?.parse().ok()).map(Gid::from_raw))
}

fn rejected(message: impl Into<String>) -> Failure {
    Failure::new(Exit::Rejected, message)
}
