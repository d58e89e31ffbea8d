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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What `escaped` wrote.
    fn read_back(text: &str) -> Option<String> {
        let mut read = String::new();
        let mut rest = text.chars();
        while let Some(c) = rest.next() {
            if c != '\\' {
                read.push(c);
                continue;
            }
            match rest.next()? {
                '\\' => read.push('\\'),
                'u' => {
                    let digits: String = rest.by_ref().skip(1).take_while(|c| *c != '}').collect();
                    read.push(char::from_u32(u32::from_str_radix(&digits, 16).ok()?)?);
                }
                _ => return None,
            }
        }
        Some(read)
    }

    proptest! {
        #[test]
        fn what_is_escaped_can_be_read_back_and_steers_nothing(
            text in prop_oneof![any::<String>(), "[\\\\u{}0-9a-f\x00-\x1f\x7f-\u{9f}\u{202a}-\u{202e}\u{2066}-\u{2069}\u{feff}]{0,20}"],
        ) {
            let shown = escaped(&text).to_string();
            prop_assert!(!shown.contains(steers_a_terminal), "{:?}", shown);
            prop_assert_eq!(read_back(&shown), Some(text));
        }

        #[test]
        fn what_is_shortened_fits_and_keeps_both_ends(text in any::<String>(), width in 0..40_usize) {
            let short = shortened(&text, width);
            prop_assert!(short.chars().count() <= width.max(1));
            let kept = |short: &str| short.split_once('…').map(|(head, tail)| (head.to_owned(), tail.to_owned()));
            if !text.contains('…') && let Some((head, tail)) = kept(&short) {
                prop_assert!(text.starts_with(&head) && text.ends_with(&tail));
            }
        }

        #[test]
        fn a_duration_is_written_exactly_to_the_millisecond(millis in 1..10_000_000_000_u64) {
            let text = duration(Duration::from_millis(millis));
            let mut sum = 0;
            let mut number = 0;
            let mut units = text.as_str();
            while let Some(c) = units.chars().next() {
                if let Some(digit) = c.to_digit(10) {
                    number = number * 10 + u64::from(digit);
                    units = &units[1..];
                    continue;
                }
                let (unit, length) = [("ms", 1), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)]
                    .into_iter()
                    .find(|(unit, _)| units.starts_with(unit))
                    .expect("a unit");
                (sum, number, units) = (sum + number * length, 0, &units[unit.len()..]);
            }
            prop_assert_eq!(sum, millis);
        }
    }
}
