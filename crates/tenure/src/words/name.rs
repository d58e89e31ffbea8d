//! What is leased.

use super::error::{Error, Result};
use super::text::escaped;
use std::fmt;
use std::sync::Arc;

/// The name of a lease: UTF-8, 1 to 512 bytes, no control characters.
///
/// The same limits hold on every store. A name is never truncated, folded or
/// normalised: two names are equal when their bytes are.
///
/// ```
/// use tenure::Name;
/// let name: Name = "nightly-report".parse()?;
/// assert_eq!(name.as_str(), "nightly-report");
/// assert!("".parse::<Name>().is_err());
/// # Ok::<(), tenure::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 512;

    /// Checks and takes a name.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when it is empty, too
    /// long or holds a control character.
    pub fn new(text: impl AsRef<str>) -> Result<Name> {
        let text = text.as_ref();
        check("name", text, Self::MAX_BYTES)?;
        if text.is_empty() {
            return Err(Error::invalid(
                "the name is empty: give 1 to 512 bytes of UTF-8 without control characters",
            ));
        }
        Ok(Name(text.into()))
    }

    /// The name as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The rule that names and labels share.
pub(super) fn check(what: &str, text: &str, max_bytes: usize) -> Result<()> {
    if text.len() > max_bytes {
        let head: String = text.chars().take(24).collect();
        return Err(Error::invalid(format!(
            "the {what} \"{}…\" has {} bytes: at most {max_bytes} are allowed",
            escaped(&head),
            text.len()
        )));
    }
    if let Some((at, c)) = text.char_indices().find(|(_, c)| c.is_control()) {
        return Err(Error::invalid(format!(
            "the {what} \"{}\" has the control character U+{:04X} at byte {at}: control characters are not allowed",
            escaped(text),
            c as u32
        )));
    }
    Ok(())
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// Shown escaped, so a name can be printed anywhere; see [`Name::as_str`] for the bytes.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        escaped(&self.0).fmt(f)
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for Name {
    type Err = Error;
    fn from_str(text: &str) -> Result<Name> {
        Name::new(text)
    }
}

impl TryFrom<&str> for Name {
    type Error = Error;
    fn try_from(text: &str) -> Result<Name> {
        Name::new(text)
    }
}

impl TryFrom<&String> for Name {
    type Error = Error;
    fn try_from(text: &String) -> Result<Name> {
        Name::new(text)
    }
}

impl TryFrom<String> for Name {
    type Error = Error;
    fn try_from(text: String) -> Result<Name> {
        Name::new(text)
    }
}

impl TryFrom<&Name> for Name {
    type Error = Error;
    fn try_from(name: &Name) -> Result<Name> {
        Ok(name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_text_is_a_name_or_refused_in_one_line(text in prop_oneof![any::<String>(), "\\PC{0,600}", "[a-z\n\u{9f}]{0,8}"]) {
            let allowed = (1..=Name::MAX_BYTES).contains(&text.len()) && !text.chars().any(char::is_control);
            match Name::new(&text) {
                Ok(name) => {
                    prop_assert!(allowed);
                    prop_assert_eq!(name.as_str(), text, "never truncated, folded or normalised");
                }
                Err(error) => {
                    prop_assert!(!allowed && !error.to_string().contains(char::is_control), "{}", error);
                }
            }
        }
    }
}
