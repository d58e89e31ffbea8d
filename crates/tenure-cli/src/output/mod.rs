//! What tenure says: few lines on stderr for people, JSON and tables on stdout.

pub(crate) mod json;
pub(crate) mod status;
pub(crate) mod table;
pub(crate) mod text;

use std::io::Write;

/// One line on stderr. That nobody reads it ends nothing.
pub(crate) fn say(line: impl AsRef<str>) {
    // In one write, so that lines of several processes do not mix.
    let line = format!("tenure: {}\n", line.as_ref());
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Text on stdout, whole or with an error.
pub(crate) fn print(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
