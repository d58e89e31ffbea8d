//! Text that came from a store or another process is shown escaped (C14).

use std::fmt::{self, Write};
use std::time::Duration;

/// Shows `text` with everything that could steer a terminal written as `\u{..}`.
///
/// Escaped are control characters, bidirectional overrides and isolates, line
/// and paragraph separators, and the backslash itself, so the output can be
/// read back without doubt.
///
/// ```
/// assert_eq!(tenure::escaped("a\u{1b}[2Jb").to_string(), "a\\u{1b}[2Jb");
/// assert_eq!(tenure::escaped("naïve").to_string(), "naïve");
/// ```
pub fn escaped(text: &str) -> Escaped<'_> {
    Escaped(text)
}

/// See [`escaped`].
#[derive(Debug, Clone, Copy)]
pub struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '\\' => f.write_str("\\\\")?,
                c if steers_a_terminal(c) => write!(f, "\\u{{{:x}}}", c as u32)?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

fn steers_a_terminal(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{61c}' | '\u{200e}' | '\u{200f}'      // marks
            | '\u{2028}' | '\u{2029}'                // separators
            | '\u{202a}'..='\u{202e}'                // overrides
            | '\u{2066}'..='\u{2069}'                // isolates
            | '\u{feff}')
}

/// Shortens `text` in the middle to at most `width` characters.
///
/// ```
/// assert_eq!(tenure::shortened("nightly-report-of-everything", 15), "nightly…rything");
/// ```
pub fn shortened(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    let (head, tail) = (kept - kept / 2, kept / 2);
    text.chars().take(head).chain(std::iter::once('…')).chain(text.chars().skip(length - tail)).collect()
}

/// A duration as people write it: `10s`, `1m30s`, `250ms`; parts below a
/// millisecond are left out unless nothing else is there.
///
/// ```
/// use std::time::Duration;
/// assert_eq!(tenure::duration(Duration::from_millis(90_250)), "1m30s250ms");
/// assert_eq!(tenure::duration(Duration::ZERO), "0s");
/// ```
pub fn duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    if millis == 0 {
        return match duration.as_micros() {
            0 => "0s".to_owned(),
            micros => format!("{micros}us"),
        };
    }
    let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];
    let mut rest = millis;
    let mut text = String::new();
    for (unit, length) in units {
        if rest >= length {
            text += &format!("{}{unit}", rest / length);
            rest %= length;
        }
    }
    text
}
