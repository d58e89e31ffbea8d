//! `sqlite:` where the surroundings are hostile, for real: disks that are full, mounts that
//! cannot be written, file systems that cannot keep leases, users without rights, files that
//! are taken away, and namespaces that show another picture of the same machine.
//!
//! What needs a mount or another user is played by a child in namespaces of its own, so that
//! no test needs root. Where no namespace can be made, the tests fail and say so.
#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "support/child.rs"]
mod child;

use child::{Player, listen, say};
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;
use tenure::store::{Released, Standing};
use tenure::{Acquired, Client, Clock, Error, ErrorKind, Lease, Name, Reason, Result, State, Why};

const SHORT: Duration = Duration::from_secs(1);
/// How much later than it should something may happen.
const SLACK: Duration = Duration::from_secs(1);

/// Becomes what a child is to be: the script prepares, and then the role is played.
fn stage(flags: &str, script: &str, role: &str, directory: &Path) -> Player {
    let directory = directory.to_str().expect("UTF-8");
    let cannot = "this test needs namespaces and mounts of its own (unshare -rm) and cannot have them here";
    let script = format!("trap 'echo {cannot:?} >&2' EXIT; set -e; D={directory}; {script}; exec \"$@\"");
    let mut wrapper: Vec<&str> = if flags.is_empty() { vec![] } else { vec!["unshare", flags] };
    wrapper.extend(["sh", "-c", &script, "sh"]);
    Player::start_under(&wrapper, "play", &[role, directory])
}

/// Plays a role to its end.
fn perform(flags: &str, script: &str, role: &str) {
    let directory = scratch();
    let player = stage(flags, script, role, directory.path());
    assert_eq!(player.hear(), "done", "{role}: see above what it ended with");
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// The roles of the other process.
#[tokio::test]
async fn play() {
    let Some(words) = child::role() else { return };
    let [role, directory] = &words[..] else { panic!("no such role: {words:?}") };
    let directory = Path::new(directory);
    match role.as_str() {
        "full" => on_a_full_disk(directory).await,
        "empty-and-full" => made_on_a_full_disk(directory).await,
        "read-only" => on_a_read_only_mount(directory).await,
        "fuse" => on_fuse(directory).await,
        "mounted-file" => as_a_mounted_file(directory).await,
        "user" => as_somebody(directory).await,
        "modes" => with_definite_modes(directory).await,
        "overlay" => through_an_overlay(directory).await,
        "look" => look(directory).await,
        "hold" => {
            let lease = connect(directory).await.unwrap().lease("x").acquire().await.unwrap();
            say(lease.token());
            listen();
        }
        _ => panic!("no such role: {words:?}"),
    }
    say("done");
}

async fn connect(directory: &Path) -> Result<Client> {
    Client::connect(&format!("sqlite:{}", directory.join("leases.db").display())).await
}

/// What is said when it cannot be opened, with the directory as DIR.
async fn refusal(directory: &Path, kind: ErrorKind) -> String {
    told(connect(directory).await.expect_err("refused"), directory, kind)
}

fn told(error: Error, directory: &Path, kind: ErrorKind) -> String {
    assert_eq!(error.kind(), kind, "{error:?}");
    let text = error.to_string().replace(&directory.canonicalize().unwrap().display().to_string(), "DIR");
    assert!(!text.contains('\n'), "one line: {text}");
    text
}

async fn standing(client: &Client) -> Standing {
    client.inspect(&Name::new("x").unwrap()).await.unwrap()
}

/// It is held until its deadline, and then lost, with this in the last error.
async fn lost_at_its_deadline(lease: &Lease, because: &str) {
    let clock = Clock::system();
    let loss = clock.timeout(lease.ttl() + SLACK, lease.lost()).await.expect("a loss in time");
    assert_eq!(loss.reason, Reason::Expired);
    let (deadline, error) = (lease.deadline(), loss.last_error.expect("what the store said").to_string());
    assert!(loss.at >= deadline && loss.at - deadline < SLACK, "{:?} after {deadline:?}", loss.at);
    assert!(error.contains(because), "{error}");
    assert!(!lease.is_held());
}

/// Takes what is left of the disk.
fn fill(directory: &Path) {
    let mut ballast = std::fs::File::create(directory.join("ballast")).unwrap();
    for size in [1 << 16, 512, 1] {
        let error = loop {
            if let Err(error) = ballast.write_all(&vec![b'x'; size]) {
                break error;
            }
        };
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    }
}

#[test]
fn a_full_disk_is_an_outage_and_nothing_is_lost() {
    perform("-rm", "mount -t tmpfs -o size=1m,mode=700 tmpfs $D", "full");
}

async fn on_a_full_disk(directory: &Path) {
    let client = connect(directory).await.unwrap();
    let held = client.lease("held").ttl(SHORT).acquire().await.unwrap();
    let given = client.lease("given").ttl(SHORT).acquire().await.unwrap();
    let token = held.token();
    fill(directory);
    // The log may have room for a few more pages.
    let mut granted = Vec::new();
    let error = loop {
        match client.lease(format!("more-{}", granted.len())).ttl(SHORT).try_acquire().await {
            Ok(acquired) => granted.push(acquired.lease().expect("nobody else asks for it")),
            Err(error) => break error,
        }
        assert!(granted.len() < 1_000, "the disk was not full");
    };
    assert_eq!(told(error, directory, ErrorKind::Unavailable), "the disk of DIR/leases.db is full");
    // Nobody else is granted it, and its own arithmetic tells how long it is held.
    assert!(held.is_held() && matches!(held.state(), State::Held | State::AtRisk { .. }));
    match given.release().await {
        Ok(released) => assert_eq!(released, Released::Released),
        Err(error) => {
            assert_eq!(told(error, directory, ErrorKind::Unavailable), "the disk of DIR/leases.db is full");
        }
    }
    lost_at_its_deadline(&held, "is full").await;
    std::fs::remove_file(directory.join("ballast")).unwrap();
    for name in ["held", "given"] {
        let acquired = client.lease(name).acquire_within(SHORT + SLACK).await.unwrap();
        assert!(acquired.lease().expect("free in time").token() > token, "{name}");
    }
    let database = rusqlite::Connection::open(directory.join("leases.db")).unwrap();
    let sound: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
}

#[test]
fn a_database_that_finds_no_room_is_made_once_there_is_some() {
    perform("-rm", "mount -t tmpfs -o size=64k,mode=700 tmpfs $D", "empty-and-full");
}

async fn made_on_a_full_disk(directory: &Path) {
    fill(directory);
    assert_eq!(refusal(directory, ErrorKind::Unavailable).await, "the disk of DIR/leases.db is full");
    std::fs::remove_file(directory.join("ballast")).unwrap();
    // Room for the database and not for what stands beside it.
    std::fs::write(directory.join("ballast"), vec![b'x'; 36 << 10]).unwrap();
    assert_eq!(refusal(directory, ErrorKind::Unavailable).await, "the disk of DIR/leases.db is full");
}

#[test]
fn a_read_only_mount_is_refused_by_its_name_and_can_be_looked_at() {
    perform("-rm", "mount -t tmpfs -o mode=700 tmpfs $D", "read-only");
}

async fn on_a_read_only_mount(directory: &Path) {
    let remount = |how: &str| {
        let mut mount = std::process::Command::new("mount");
        let status = mount.args(["-o", &format!("remount,bind,{how}")]).arg(directory).status().unwrap();
        assert!(status.success(), "it can be mounted {how}");
    };
    remount("ro");
    assert_eq!(refusal(directory, ErrorKind::Rejected).await, "DIR/leases.db-gate is on a read-only mount");
    remount("rw");
    let client = connect(directory).await.unwrap();
    let lease = client.lease("x").acquire().await.unwrap();
    let token = lease.token();
    lease.release().await.unwrap();
    client.close().await;
    drop(client);
    // Its threads close their files a moment later.
    let clock = Clock::system();
    let deadline = clock.now() + Duration::from_secs(10);
    while !std::process::Command::new("mount")
        .args(["-o", "remount,bind,ro"])
        .arg(directory)
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap()
        .success()
    {
        assert!(clock.now() < deadline, "what the client had open stays open");
        clock.sleep(Duration::from_millis(10)).await;
    }
    let error = match connect(directory).await {
        Ok(reader) => {
            assert!(standing(&reader).await.holder.is_none());
            let error = reader.lease("x").try_acquire().await.expect_err("nothing can be written");
            told(error, directory, ErrorKind::Rejected)
        }
        Err(error) => told(error, directory, ErrorKind::Rejected),
    };
    assert!(error.ends_with("can be read by this user and not written"), "{error}");
    remount("rw");
    // The reader closes what it had open on a thread of its own, and SQLite shares that in a process.
    let lease = loop {
        let acquired = match connect(directory).await {
            Ok(client) => client.lease("x").acquire().await,
            Err(error) => Err(error),
        };
        match acquired {
            Ok(lease) => break lease,
            Err(error) => assert!(clock.now() < deadline, "{error}"),
        }
        clock.sleep(Duration::from_millis(10)).await;
    };
    assert!(lease.token() > token);
}

#[test]
fn fuse_is_refused_by_its_name() {
    // With a space of processes of its own, for the server of the file system ends with it.
    let script = "command -v bindfs >/dev/null || { echo 'bindfs is missing: install the Debian package bindfs' >&2; exit 1; }; \
                  mkdir $D/source $D/mounted; bindfs $D/source $D/mounted";
    perform("-rmpf", &format!("{script}; D=$D/mounted"), "fuse");
}

async fn on_fuse(directory: &Path) {
    let mounted = directory.join("mounted");
    assert_eq!(
        refusal(&mounted, ErrorKind::Rejected).await,
        "DIR is on a file system (fuse or virtiofs) on which leases cannot be kept safely: use a local one \
         (ext4, xfs, btrfs, f2fs, zfs, bcachefs, tmpfs, overlay)"
    );
    assert_eq!(std::fs::read_dir(&mounted).unwrap().count(), 0, "nothing was made");
}

#[test]
fn a_file_that_is_mounted_without_its_directory_is_refused() {
    let script = "mkdir $D/elsewhere; touch $D/elsewhere/leases.db $D/leases.db;\
                  mount --bind $D/elsewhere/leases.db $D/leases.db";
    perform("-rm", script, "mounted-file");
}

async fn as_a_mounted_file(directory: &Path) {
    assert_eq!(
        refusal(directory, ErrorKind::Rejected).await,
        "DIR/leases.db is mounted by itself, and so not beside the files that others use with it: mount its directory"
    );
    assert!(!directory.join("leases.db-wal").exists());
    assert!(connect(&directory.join("elsewhere")).await.is_ok());
}

#[test]
fn a_user_without_rights_is_told_which_one_is_missing() {
    let directory = scratch();
    let wrapper = ["unshare", "--map-user=65534", "--map-group=65534"];
    let player = Player::start_under(&wrapper, "play", &["user", directory.path().to_str().unwrap()]);
    assert_eq!(player.hear(), "done", "see above what it ended with");
}

async fn as_somebody(directory: &Path) {
    let chmod = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    chmod(directory, 0o555);
    assert!(std::fs::write(directory.join("probe"), "").is_err(), "this user may write everywhere");
    assert_eq!(
        refusal(directory, ErrorKind::Rejected).await,
        "the directory DIR is not writable for this user, and DIR/leases.db-gate is to be made in it"
    );
    chmod(directory, 0o755);
    let client = connect(directory).await.unwrap();
    let lease = client.lease("x").acquire().await.unwrap();
    let database = directory.join("leases.db");
    chmod(&database, 0o000);
    assert_eq!(
        refusal(directory, ErrorKind::Rejected).await,
        "DIR/leases.db or a file beside it cannot be opened by this user"
    );
    chmod(&database, 0o444);
    // What can be read is shown, with the reason why it is not more.
    let reader = connect(directory).await.unwrap();
    assert_eq!(standing(&reader).await.holder.unwrap().token, lease.token());
    let error = reader.lease("y").try_acquire().await.expect_err("nothing can be written");
    assert_eq!(
        told(error, directory, ErrorKind::Rejected),
        "DIR/leases.db is not writable for this user, or on a read-only mount"
    );
    chmod(&database, 0o600);
    let live = directory.join("leases.db-live");
    chmod(&live, 0o000);
    assert_eq!(
        refusal(directory, ErrorKind::Rejected).await,
        "DIR/leases.db-live is not readable and writable for this user (uid 65534): name a store of your own, or share \
         one with a group (tenure init --system)"
    );
    chmod(&live, 0o700);
    assert!(lease.confirm().await.is_ok(), "the holder noticed nothing");
    let inner = directory.join("inner");
    std::fs::create_dir(&inner).unwrap();
    chmod(directory, 0o600);
    let error = connect(&inner).await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Rejected);
    assert!(error.to_string().contains("cannot be entered"), "{error}");
    chmod(directory, 0o700);
}

#[test]
fn modes_are_definite_whatever_the_mask() {
    for mask in ["000", "077", "277"] {
        perform("", &format!("umask {mask}"), "modes");
    }
}

async fn with_definite_modes(directory: &Path) {
    let chmod = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let mode = |path: &Path| path.symlink_metadata().unwrap().permissions().mode() & 0o7777;
    for (outer, inner, file) in [(0o700, 0o700, 0o600), (0o2770, 0o2770, 0o660)] {
        let home = directory.join(format!("{outer:o}"));
        std::fs::create_dir(&home).unwrap();
        chmod(&home, outer);
        let (holder, waiter) = (connect(&home).await.unwrap(), connect(&home).await.unwrap());
        let lease = holder.lease("x").acquire().await.unwrap();
        // Whoever waits has a socket.
        let waited = waiter.lease("x").acquire_within(Duration::from_millis(300)).await.unwrap();
        assert!(matches!(waited, Acquired::Busy(_)));
        for suffix in ["", "-wal", "-shm", "-gate"] {
            assert_eq!(mode(&home.join(format!("leases.db{suffix}"))), file, "{suffix}");
        }
        let live = home.join("leases.db-live");
        assert_eq!(mode(&live), inner);
        let beside: Vec<_> = live.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(beside.iter().any(|path| path.extension().is_some_and(|kind| kind == "sock")), "{beside:?}");
        for path in beside {
            assert_eq!(mode(&path), file, "{}", path.display());
        }
        drop(lease);
    }
}

#[tokio::test]
async fn a_database_that_is_taken_away_costs_its_holders_their_leases_at_their_deadlines() {
    for is_replaced in [false, true] {
        let directory = scratch();
        let client = connect(directory.path()).await.unwrap();
        let lease = client.lease("x").ttl(SHORT).acquire().await.unwrap();
        let other = scratch();
        drop(connect(other.path()).await.unwrap());
        let database = directory.path().join("leases.db");
        match is_replaced {
            true => std::fs::rename(other.path().join("leases.db"), &database).unwrap(),
            false => std::fs::remove_file(&database).unwrap(),
        }
        let because = "was replaced or deleted while it was in use: start what uses it anew";
        let error = client.lease("y").try_acquire().await.expect_err("it shares nothing with anybody");
        assert_eq!(told(error, directory.path(), ErrorKind::Rejected), format!("DIR/leases.db {because}"));
        assert!(lease.is_held(), "until its deadline");
        lost_at_its_deadline(&lease, because).await;
        // What was taken away is made anew by whoever comes, and works.
        for beside in ["-wal", "-shm"] {
            let _ = std::fs::remove_file(directory.path().join(format!("leases.db{beside}")));
        }
        let anew = connect(directory.path()).await.unwrap();
        assert!(anew.lease("x").try_acquire().await.unwrap().lease().is_some());
    }
}

#[tokio::test]
async fn a_linked_directory_is_judged_by_what_is_behind_the_link() {
    let directory = scratch();
    let (real, link) = (directory.path().join("real"), directory.path().join("link"));
    std::fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let lease = connect(&real).await.unwrap().lease("x").acquire().await.unwrap();
    let through = connect(&link).await.unwrap();
    assert_eq!(standing(&through).await.holder.unwrap().token, lease.token(), "one store");
    // Whoever moves the link afterwards moves nobody.
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(directory.path(), &link).unwrap();
    assert!(through.lease("x").try_acquire().await.unwrap().lease().is_none());
    std::fs::set_permissions(&real, Permissions::from_mode(0o777)).unwrap();
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let text = connect(&link).await.expect_err("refused").to_string();
    assert!(text.contains("real may be written by others (mode 0777)"), "{text}");
}

#[tokio::test]
async fn a_holder_that_is_seen_through_an_overlay_is_not_taken_for_dead() {
    let directory = scratch();
    let store = directory.path().join("store");
    std::fs::create_dir(&store).unwrap();
    let lease = connect(&store).await.unwrap().lease("x").ttl(SHORT * 3).acquire().await.unwrap();
    let script = "mount -t tmpfs tmpfs $D/space; cd $D/space; mkdir upper work mounted; \
                  mount -t overlay -o lowerdir=$D/store,upperdir=$D/space/upper,workdir=$D/space/work overlay $D/space/mounted";
    std::fs::create_dir(directory.path().join("space")).unwrap();
    let player = stage("-rm", script, "overlay", directory.path());
    assert_eq!(player.hear(), "done", "see above what it ended with");
    assert!(lease.is_held(), "and the holder noticed nothing");
    lease.confirm().await.unwrap();
}

/// It sees the database as it is below, and writes to a copy: what it must not do is to
/// conclude from the liveness file, which is another one here, that its owner died.
async fn through_an_overlay(directory: &Path) {
    let clock = Clock::system();
    let mounted = directory.join("space/mounted");
    let client = connect(&mounted).await.unwrap();
    let holder = standing(&client).await.holder.expect("the holder is alive");
    let until = clock.now() + holder.left;
    let acquired = client.lease("x").acquire_within(holder.left + SLACK).await.unwrap();
    assert!(acquired.lease().expect("nobody renews the copy").token() > holder.token);
    assert!(clock.now() >= until, "not before the TTL has passed");
}

#[tokio::test]
async fn processes_in_another_time_namespace_see_the_same_lease() {
    let directory = scratch();
    let client = connect(directory.path()).await.unwrap();
    let lease = client.lease("x").acquire().await.unwrap();
    let shifted = "grep -q 'boottime *5000' /proc/self/timens_offsets";
    let wrapped = |role| stage("-rT", "exec unshare -T --boottime 5000 \"$@\"", role, directory.path());
    // The control: the shift is there, or nothing is shown by this.
    let mut control = std::process::Command::new("unshare");
    let control = control.args(["-rT", "--boottime", "5000", "sh", "-c", shifted]).status().unwrap();
    assert!(control.success(), "a time namespace can be made");

    let mut other = wrapped("look");
    let theirs: f64 = other.hear().parse().unwrap();
    let ours = standing(&client).await.holder.unwrap().left.as_secs_f64();
    assert!((theirs - ours).abs() < 1.0, "{theirs} s left there and {ours} here");
    other.say("look");
    drop(lease);
    assert_eq!(other.hear(), "done");

    // And the other way round: theirs is held here, and free as soon as they die.
    let mut other = wrapped("hold");
    let token: u64 = other.hear().parse().unwrap();
    let Acquired::Busy(busy) = client.lease("x").try_acquire().await.unwrap() else { panic!("two holders") };
    assert!(
        matches!(busy.why, Why::Held(holder) if holder.token.as_u64() == token && holder.left <= lease_ttl())
    );
    other.process.kill().unwrap();
    let next = client.lease("x").acquire_within(SLACK).await.unwrap().lease().expect("at once");
    assert!(next.token().as_u64() > token);
}

fn lease_ttl() -> Duration {
    Duration::from_secs(10)
}

/// Says what is left of the lease, is refused while it is held, and gets it afterwards.
async fn look(directory: &Path) {
    let client = connect(directory).await.unwrap();
    let left = standing(&client).await.holder.expect("a holder").left;
    assert!(client.lease("x").try_acquire().await.unwrap().lease().is_none());
    say(left.as_secs_f64());
    assert_eq!(listen(), "look");
    let lease = client.lease("x").acquire_within(lease_ttl()).await.unwrap().lease().expect("released");
    lease.confirm().await.unwrap();
    assert!(lease.remaining() > lease_ttl() / 2, "the deadline is on the clock of this namespace");
}
