//! The fencing token.

use super::error::{Error, Result};
use super::text::escaped;
use std::fmt;

/// A number that only grows for a name (C4). Compare tokens of one name in one
/// store only; a fence compares token AND owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// Tokens are exact in Lua, JSON and JavaScript: they stay below 2^53.
    pub const LIMIT: u64 = 1 << 53;

    /// A token that a store gave back.
    pub fn from_u64(number: u64) -> Token {
        Token(number)
    }

    /// The number, to send along with every write.
    pub fn as_u64(self) -> u64 {
        self.0
    }

    /// The rule of the stores that mint by the clock:
    /// `max(previous + 1, wall clock in microseconds)`.
    ///
    /// # Errors
    /// [`ErrorKind::Rejected`](crate::ErrorKind::Rejected) when the token would
    /// reach 2^53: then the store's clock is wrong, and a token minted from it
    /// would outlive the mistake.
    pub fn after(previous: Option<Token>, wall_us: u64) -> Result<Token> {
        let next = previous.map_or(0, |token| token.0.saturating_add(1)).max(wall_us);
        if next >= Self::LIMIT {
            return Err(Error::rejected(format!(
                "no token can be minted: {next} is not below 2^53; the store's wall clock reads {wall_us} us \
                 since 1970, set it right"
            )));
        }
        Ok(Token(next))
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::str::FromStr for Token {
    type Err = Error;
    fn from_str(text: &str) -> Result<Token> {
        text.parse().map(Token).map_err(|_| {
            Error::invalid(format!("\"{}\" is not a token: a whole number is expected", escaped(text)))
        })
    }
}
