//! Who asks: the identity of one acquisition, and what people call it.
#![allow(clippy::disallowed_methods, reason = "the one owner of random numbers")]

use super::error::{Error, Result};
use super::name::{self, Name};
use super::text::escaped;
use std::fmt;
use std::sync::Arc;

/// The identity of ONE acquisition: 128 random bits, fresh each time.
///
/// ```
/// use tenure::Owner;
/// let owner = Owner::fresh();
/// assert_eq!(owner.to_string().parse::<Owner>()?, owner);
/// assert_ne!(owner, Owner::fresh());
/// # Ok::<(), tenure::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner([u8; 16]);

impl Owner {
    /// Draws a new owner from the system's random numbers.
    pub fn fresh() -> Owner {
        Owner(random_bits())
    }

    /// The 128 bits, as a store keeps them.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// An owner that a store gave back.
    pub fn from_bytes(bytes: [u8; 16]) -> Owner {
        Owner(bytes)
    }
}

/// 128 random bits from the system; also the identity of a session.
pub(crate) fn random_bits() -> [u8; 16] {
    let mut bits = [0; 16];
    // Without random numbers two owners could be equal, and two holders one:
    // there is nothing sane to go on with. Linux fails here only before its
    // pool is seeded or where a sandbox forbids getrandom(2).
    getrandom::fill(&mut bits).expect("the system has random numbers");
    bits
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for Owner {
    type Err = Error;
    fn from_str(text: &str) -> Result<Owner> {
        let wrong = || {
            Error::invalid(format!(
                "\"{}\" is not an owner: 32 hexadecimal digits are expected",
                escaped(text)
            ))
        };
        if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let bits = u128::from_str_radix(text, 16).map_err(|_| wrong())?;
        Ok(Owner(bits.to_be_bytes()))
    }
}

/// What people call an owner: host, process, the user's words. It decides nothing.
///
/// At most 256 bytes of UTF-8 without control characters; may be empty.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Label(Arc<str>);

impl Label {
    /// The longest label, in bytes.
    pub const MAX_BYTES: usize = 256;

    /// Checks and takes a label.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when it is too long or
    /// holds a control character.
    pub fn new(text: impl AsRef<str>) -> Result<Label> {
        name::check("label", text.as_ref(), Self::MAX_BYTES)?;
        Ok(Label(text.as_ref().into()))
    }

    /// `host:pid`, the label of whoever gives none.
    pub fn of_this_process() -> Label {
        let host = rustix::system::uname();
        let host: String =
            host.nodename().to_string_lossy().chars().filter(|c| !c.is_control()).take(48).collect();
        let pid = std::process::id();
        Label(format!("{host}:{pid}").into())
    }

    /// The label as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// Shown escaped.
impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        escaped(&self.0).fmt(f)
    }
}

/// Name and owner: the thing that is granted, renewed and released.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Claim {
    /// What is claimed.
    pub name: Name,
    /// Which acquisition claims it.
    pub owner: Owner,
}

impl Claim {
    /// A claim to `name` by an owner that never claimed anything before.
    pub fn fresh(name: Name) -> Claim {
        Claim { name, owner: Owner::fresh() }
    }
}
