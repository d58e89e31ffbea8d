//! Places that cannot keep leases, and what is said about them.

use super::super::classify::classify;
use super::super::place::{Place, default_file};
use super::*;
use crate::ErrorKind;
use crate::words::address::Address;
use rusqlite::ffi;
use rustix::fs::{FileType, Mode};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn refusal(fixture: &Fixture) -> String {
    let error = fixture.try_client("this boot").map(drop).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Rejected, "{error}");
    error
        .to_string()
        .replace(&fixture.directory.path().canonicalize().expect("a path").display().to_string(), "DIR")
}

#[test]
fn a_database_of_a_newer_format_is_not_touched() {
    let fixture = Fixture::new();
    drop(fixture.client());
    fixture.number("SELECT 1");
    let connection = rusqlite::Connection::open(fixture.path()).expect("opened");
    connection.pragma_update(None, "user_version", 7).expect("set");
    assert_eq!(
        refusal(&fixture),
        "DIR/leases.db: database format 7 is newer than this tenure knows (1): upgrade tenure"
    );
}

#[test]
fn what_is_no_database_of_ours_is_not_touched() {
    let fixture = Fixture::new();
    let text = "not a database, and longer than the header of one: ".repeat(40);
    std::fs::write(fixture.path(), &text).expect("written");
    assert_eq!(refusal(&fixture), "DIR/leases.db is not a database: name another file");
    assert_eq!(std::fs::read_to_string(fixture.path()).expect("read"), text);
    std::fs::remove_file(fixture.path()).expect("removed");
    let connection = rusqlite::Connection::open(fixture.path()).expect("opened");
    connection.execute_batch("CREATE TABLE customers(id)").expect("made");
    assert_eq!(refusal(&fixture), "DIR/leases.db is the database of another application: name another file");
    assert_eq!(fixture.number("SELECT count(*) FROM sqlite_schema"), 1);
}

#[test]
fn links_are_not_followed() {
    let fixture = Fixture::new();
    let elsewhere = fixture.directory.path().join("elsewhere");
    std::os::unix::fs::symlink(&elsewhere, fixture.path()).expect("linked");
    assert_eq!(
        refusal(&fixture),
        "DIR/leases.db is a symbolic link, which is not followed: name the file itself"
    );
    for suffix in ["-gate", "-live"] {
        let fixture = Fixture::new();
        std::os::unix::fs::symlink(&elsewhere, fixture.path().with_extension(format!("db{suffix}")))
            .expect("linked");
        let error = fixture.try_client("this boot").map(drop).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Rejected, "{error}");
    }
    assert!(!elsewhere.exists());
}

#[test]
fn what_is_no_file_is_refused_at_once_and_nothing_is_left_beside_it() {
    let fixture = Fixture::new();
    let made = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, fixture.path(), FileType::Fifo, made, 0)
        .expect("a pipe with a name");
    assert_eq!(refusal(&fixture), "DIR/leases.db is not of the kind of file that it has to be");
    assert_eq!(std::fs::read_dir(fixture.directory.path()).expect("it is there").count(), 1);
}

#[test]
fn a_directory_that_others_may_write_or_that_is_missing_is_refused() {
    for mode in [0o777, 0o1777, 0o770, 0o2772] {
        let fixture = Fixture::new();
        std::fs::set_permissions(fixture.directory.path(), std::fs::Permissions::from_mode(mode))
            .expect("set");
        assert_eq!(
            refusal(&fixture),
            format!(
                "DIR may be written by others (mode {mode:04o}): use a directory of your own, or one of a group \
                 with its setgid bit set"
            )
        );
        assert_eq!(std::fs::read_dir(fixture.directory.path()).expect("a directory").count(), 0);
    }
    let error =
        Place::prepare(Path::new("/proc/none/x.db"), place::file_system_of).map(drop).expect_err("refused");
    assert_eq!(error.to_string(), "the directory /proc/none does not exist: make it, or name another file");
}

#[test]
fn a_file_system_is_refused_by_its_name() {
    let fixture = Fixture::new();
    let refused = |of: place::FileSystemOf| {
        Place::prepare(&fixture.path(), of).map(drop).expect_err("refused").to_string()
    };
    assert!(
        refused(|_| Ok(0x6969)).contains(
            "is on a file system (nfs) on which leases cannot be kept safely: use a local one (ext4"
        )
    );
    assert!(refused(|_| Ok(0x6573_5546)).contains("(fuse or virtiofs)"));
    assert!(refused(|_| Ok(0xFF53_4D42)).contains("(cifs)"));
    assert!(refused(|_| Ok(0x1234)).contains("(of type 0x1234)"));
    let accepted = Place::prepare(&fixture.path(), |_| Ok(0x794C_7630)).expect("overlay");
    assert_eq!(accepted.file_system, "overlay");
}

#[test]
fn every_error_of_sqlite_says_what_to_do() {
    let fixture = Fixture::new();
    let place = Place::prepare(&fixture.path(), place::file_system_of).expect("a place");
    use ErrorKind::{Rejected, Unavailable};
    for (code, kind, text) in [
        (ffi::SQLITE_BUSY, Unavailable, "locked by another process"),
        (ffi::SQLITE_BUSY_SNAPSHOT, Unavailable, "locked by another process"),
        (ffi::SQLITE_LOCKED, Unavailable, "locked by another process"),
        (ffi::SQLITE_PROTOCOL, Unavailable, "locked by another process"),
        (ffi::SQLITE_FULL, Unavailable, "the disk of"),
        (ffi::SQLITE_IOERR_SHMSIZE, Unavailable, "the disk of"),
        (ffi::SQLITE_NOMEM, Unavailable, "no memory"),
        (ffi::SQLITE_IOERR_FSYNC, Unavailable, "cannot be read or written"),
        (ffi::SQLITE_READONLY, Rejected, "not writable for this user, or on a read-only mount"),
        (ffi::SQLITE_READONLY_DBMOVED, Rejected, "replaced or deleted"),
        (ffi::SQLITE_READONLY_DIRECTORY, Rejected, "directory"),
        (ffi::SQLITE_PERM, Rejected, "not writable"),
        (ffi::SQLITE_CANTOPEN, Rejected, "cannot be opened"),
        (ffi::SQLITE_CANTOPEN_SYMLINK, Rejected, "symbolic link"),
        (ffi::SQLITE_NOTADB, Rejected, "is not a database"),
        (ffi::SQLITE_CORRUPT, Rejected, "is damaged"),
        (ffi::SQLITE_CONSTRAINT, Rejected, "does not do as it should"),
    ] {
        let error = classify(&place, rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
        assert!(error.kind() == kind && error.to_string().contains(text), "{code}: {error:?}");
    }
    let odd = rusqlite::Error::InvalidColumnType(0, "owner".into(), rusqlite::types::Type::Text);
    assert!(classify(&place, odd).to_string().contains("holds what tenure did not write"));
    let disk = place.failed("", rustix::io::Errno::NOSPC);
    assert!(disk.kind() == Unavailable && disk.to_string().ends_with("is full"));
    assert!(place.failed("", rustix::io::Errno::ROFS).to_string().ends_with("is on a read-only mount"));
}

#[test]
fn the_default_is_the_state_directory_of_the_user() {
    let default = |home: Option<&str>, state: Option<&str>, has_system| {
        let variable = |name: &str| if name == "HOME" { home } else { state }.map(Into::into);
        default_file(variable, has_system)
            .map(|path| path.display().to_string())
            .map_err(|error| error.kind())
    };
    assert_eq!(default(Some("/h"), None, false).as_deref(), Ok("/h/.local/state/tenure/leases.db"));
    assert_eq!(default(Some("/h"), Some("/state"), false).as_deref(), Ok("/state/tenure/leases.db"));
    for ignored in ["", "relative"] {
        assert_eq!(
            default(Some("/h"), Some(ignored), false).as_deref(),
            Ok("/h/.local/state/tenure/leases.db")
        );
    }
    assert_eq!(default(None, None, false), Err(ErrorKind::Invalid));
    assert_eq!(default(Some("/h"), None, true).as_deref(), Ok("/var/lib/tenure/leases.db"));
}

#[test]
fn an_address_names_a_file() {
    let named = |url: &str| Place::named(Address::parse(url)?).map(|path| path.display().to_string());
    for (url, path) in [
        ("sqlite:/a/b.db", "/a/b.db"),
        ("sqlite:///a%20b.db", "/a b.db"),
        ("sqlite:a/b.db", "a/b.db"),
        ("sqlite:100%25", "100%"),
    ] {
        assert_eq!(named(url).as_deref().ok(), Some(path), "{url}");
    }
    for url in ["sqlite://host/a", "sqlite:/a/", "sqlite:/a%00b"] {
        assert_eq!(named(url).expect_err("refused").kind(), ErrorKind::Invalid, "{url}");
    }
    assert_eq!(
        named("sqlite:/a?mode=ro").expect_err("refused").to_string(),
        "sqlite: has no option \"mode\"; it has none"
    );
}

#[tokio::test]
async fn who_may_only_read_can_look_and_is_told_why_not_more() {
    let fixture = Fixture::new();
    let a = fixture.client();
    granted(&a, ask(&claim("x"), false)).await;
    // As whoever opens it without the right to write, which root never lacks.
    let place = Place::prepare(&fixture.path(), place::file_system_of).expect("a place");
    let identity = place.identity().expect("a file");
    let host = Host::new(fixture.clock.clone(), "this boot".into(), 0);
    let reader = Sqlite::new(Arc::new(super::super::Client::new(host, place, None, identity)));
    let names = reader.list(String::new(), None).await.expect("a page").names;
    assert!(names.len() == 1 && names[0].holder.is_some());
    assert!(reader.inspect(claim("x").name).await.expect("a standing").holder.is_some());
    let error = reader.acquire(ask(&claim("y"), false)).await.map(drop).expect_err("refused");
    assert!(
        error.kind() == ErrorKind::Rejected
            && error.to_string().ends_with("can be read by this user and not written")
    );
    assert!(reader.examine().await.expect("facts").contains(&Fact { key: "rights", value: "read".into() }));
    drop((reader, a));
}

#[tokio::test]
async fn a_list_has_pages_in_byte_order() {
    let fixture = Fixture::new();
    let a = fixture.client();
    let mut pending = Vec::new();
    for i in 0..PAGE + 2 {
        pending.push(a.acquire(ask(&claim(&format!("p/{i:05}")), false)));
    }
    for name in ["o", "q", "p/\u{10FFFF}"] {
        pending.push(a.acquire(ask(&claim(name), false)));
    }
    for answer in pending {
        answer.await.expect("granted");
    }
    let first = a.list("p/".into(), None).await.expect("a page");
    assert_eq!((first.names.len(), first.more), (PAGE, true));
    let last = first.names.last().map(|standing| standing.name.clone());
    let rest = a.list("p/".into(), last).await.expect("a page");
    let rest: Vec<_> = rest.names.iter().map(|standing| standing.name.as_str()).collect();
    assert_eq!(rest, ["p/01000", "p/01001", "p/\u{10FFFF}"]);
}
