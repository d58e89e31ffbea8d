//! The URL that names a store, taken apart.

use super::error::{Error, Result};
use super::text::escaped;

/// `scheme:rest?option=value&option=value`, percent-decoded where it is taken.
///
/// Its `Debug` shows the scheme alone, since the rest may hold a password.
pub(crate) struct Address {
    /// Lower case.
    pub(crate) scheme: String,
    /// What stands between the colon and the question mark, still encoded.
    pub(crate) rest: String,
    options: Vec<(String, String)>,
}

impl Address {
    pub(crate) fn parse(url: &str) -> Result<Address> {
        let colon = url.find(':').ok_or_else(|| {
            // Where there may be a password nothing is repeated (C11).
            let shown = if url.contains('@') { "…" } else { url };
            Error::invalid(format!(
                "\"{}\" is not a store URL: it has no scheme, as in sqlite:/var/lib/app/leases.db",
                escaped(shown)
            ))
        })?;
        let (rest, query) = match url[colon + 1..].split_once('?') {
            Some((rest, query)) => (rest, query),
            None => (&url[colon + 1..], ""),
        };
        let options = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                Ok((decode(key)?, decode(value)?))
            })
            .collect::<Result<Vec<_>>>()?;
        if let Some((key, _)) = options
            .iter()
            .enumerate()
            .find_map(|(i, (key, _))| options[..i].iter().find(|(earlier, _)| earlier == key))
        {
            return Err(Error::invalid(format!("the option \"{}\" is given twice", escaped(key))));
        }
        Ok(Address { scheme: url[..colon].to_ascii_lowercase(), rest: rest.to_owned(), options })
    }

    /// Takes an option out; what is left at [`finish`](Address::finish) is unknown.
    pub(crate) fn take(&mut self, key: &str) -> Option<String> {
        let at = self.options.iter().position(|(name, _)| name == key)?;
        Some(self.options.remove(at).1)
    }

    /// Refuses options that nobody took.
    pub(crate) fn finish(self, known: &[&str]) -> Result<()> {
        match self.options.first() {
            None => Ok(()),
            Some((key, _)) => Err(Error::invalid(format!(
                "{}: has no option \"{}\"; {}",
                self.scheme,
                escaped(key),
                match known {
                    [] => "it has none".to_owned(),
                    known => format!("it has: {}", known.join(", ")),
                }
            ))),
        }
    }
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:…", self.scheme)
    }
}

/// Undoes percent-encoding.
pub(crate) fn decode(text: &str) -> Result<String> {
    // Not repeated: it may be a password.
    let wrong =
        || Error::invalid("a part of the store URL is not percent-encoded UTF-8: write a literal % as %25");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|b| (b as char).to_digit(16)).ok_or_else(wrong);
        bytes.push((digit()? * 16 + digit()?) as u8);
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart() {
        let mut address = Address::parse("SQLite:/a%20b?x=1&y=%26").expect("a URL");
        assert_eq!((address.scheme.as_str(), address.rest.as_str()), ("sqlite", "/a%20b"));
        assert_eq!(address.take("y").as_deref(), Some("&"));
        let error = address.finish(&["y"]).expect_err("x is left");
        assert_eq!(error.to_string(), "sqlite: has no option \"x\"; it has: y");
    }

    #[test]
    fn what_may_hold_a_password_is_not_repeated() {
        let error = Address::parse("ann;secret@host/db").expect_err("no URL").to_string();
        assert!(!error.contains("secret"), "{error}");
        let address = Address::parse("redis://ann:secret@host").expect("a URL");
        assert!(!format!("{address:?}").contains("secret"));
    }

    #[test]
    fn what_is_no_url_is_refused() {
        for wrong in ["", "leases.db", "sqlite:?a=1&a=2", "sqlite:?a=%zz", "sqlite:?a=%f"] {
            assert!(Address::parse(wrong).is_err(), "{wrong}");
        }
    }
}
