//! What the guardian is told as it starts, as the words of its command line.

use super::inherited::Inherited;
use super::unsafe_calls;
use std::ffi::OsString;
use std::os::fd::{OwnedFd, RawFd};
use tenure::Instant;

/// The first word after the program's name, by which `main` knows a guardian.
pub(crate) const GUARDIAN: &str = "__guardian";

/// What does not change while the guardian lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Duties {
    /// Until when everything must be dead, until told otherwise.
    pub(crate) deadline: Instant,
    /// `--on-lost ignore`: nobody is killed.
    pub(crate) spare: bool,
    /// `--close`: the work is over when CMD has ended, whatever else runs in its group.
    pub(crate) close: bool,
    /// CMD stays in tenure's group, which may have other members.
    pub(crate) shared: bool,
}

/// The guardian's command line.
pub(super) fn words(
    control: RawFd,
    liveness: Option<RawFd>,
    duties: Duties,
    inherited: &Inherited,
) -> Vec<String> {
    vec![
        GUARDIAN.to_owned(),
        control.to_string(),
        liveness.map_or("-".to_owned(), |fd| fd.to_string()),
        duties.deadline.as_nanos().to_string(),
        if duties.spare { "spare" } else { "kill" }.to_owned(),
        if duties.close { "close" } else { "drain" }.to_owned(),
        if duties.shared { "shared" } else { "own" }.to_owned(),
        inherited.word(),
    ]
}

pub(super) struct Briefing {
    pub(super) control: OwnedFd,
    /// Held, never used: it keeps the lease from being taken before its time.
    pub(super) liveness: Option<OwnedFd>,
    pub(super) duties: Duties,
    /// For CMD.
    pub(super) inherited: Inherited,
    pub(super) command: Vec<OsString>,
}

impl Briefing {
    /// From the words after [`GUARDIAN`]; `None` when somebody else wrote them.
    pub(super) fn parse(words: impl IntoIterator<Item = OsString>) -> Option<Briefing> {
        let mut words = words.into_iter();
        let mut word = || words.next()?.into_string().ok();
        let control = unsafe_calls::adopt(word()?.parse().ok()?).ok()?;
        let liveness = match word()?.as_str() {
            "-" => None,
            fd => Some(unsafe_calls::adopt(fd.parse().ok()?).ok()?),
        };
        let deadline = Instant::from_nanos(word()?.parse().ok()?);
        let spare = word()? == "spare";
        let close = word()? == "close";
        let shared = word()? == "shared";
        let inherited = Inherited::parse(&word()?)?;
        let command: Vec<OsString> = words.collect();
        (!command.is_empty()).then_some(Briefing {
            control,
            liveness,
            duties: Duties { deadline, spare, close, shared },
            inherited,
            command,
        })
    }
}
