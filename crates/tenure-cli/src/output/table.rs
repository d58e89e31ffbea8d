//! Columns for people; on a terminal no line is longer than it is wide.

use rustix::termios::{isatty, tcgetwinsize};
use std::io::stdout;
use unicode_width::UnicodeWidthChar;

/// The least that is left of a shortened cell.
const LEAST: usize = 8;

/// The columns of the terminal that stdout is; `None` when it is none.
pub(crate) fn terminal_width() -> Option<usize> {
    if !isatty(stdout()) {
        return None;
    }
    let columns = tcgetwinsize(stdout()).map_or(0, |size| size.ws_col);
    Some(if columns == 0 { 80 } else { columns.into() })
}

/// A table that comes in parts: columns grow with what comes, and never shrink again.
pub(crate) struct Table<const N: usize> {
    /// Only the first so many columns are shortened.
    elastic: usize,
    terminal: Option<usize>,
    widths: [usize; N],
}

impl<const N: usize> Table<N> {
    pub(crate) fn new(elastic: usize, terminal: Option<usize>) -> Table<N> {
        Table { elastic, terminal, widths: [0; N] }
    }

    /// Lays these rows out as the next part.
    pub(crate) fn lay_out(&mut self, rows: &[[String; N]]) -> String {
        for row in rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = columns(cell).max(*width);
            }
        }
        if let Some(terminal) = self.terminal {
            let gaps = 2 * N.saturating_sub(1);
            while self.widths.iter().sum::<usize>() + gaps > terminal {
                let widest = self.widths[..self.elastic].iter_mut().max().filter(|width| **width > LEAST);
                let Some(widest) = widest else { break };
                *widest -= 1;
            }
        }
        let mut text = String::new();
        for row in rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(self.widths) {
                let cell = shortened(cell, width);
                line += &cell;
                line += &" ".repeat(width.saturating_sub(columns(&cell)) + 2);
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

/// The columns that a text takes on a terminal: ideographs and emoji take two.
pub(crate) fn columns(text: &str) -> usize {
    text.chars().map(width).sum()
}

/// Where terminals differ, the larger.
fn width(c: char) -> usize {
    // Makes an emoji of the character before it.
    if c == '\u{fe0f}' { 1 } else { c.width().unwrap_or(0) }
}

/// Shortens `text` in the middle to at most so many columns.
pub(crate) fn shortened(text: &str, room: usize) -> String {
    if columns(text) <= room {
        return text.to_owned();
    }
    let kept = room.saturating_sub(1);
    let head = fitting(text.chars(), kept - kept / 2);
    let tail: Vec<char> = fitting(text.chars().rev(), kept / 2).chars().rev().collect();
    head + "…" + &String::from_iter(tail)
}

fn fitting(chars: impl Iterator<Item = char>, mut room: usize) -> String {
    let fits = |c: &char| {
        let left = room.checked_sub(width(*c));
        room = left.unwrap_or(0);
        left.is_some()
    };
    chars.take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<[String; 3]> {
        let name = "a-name-of-some-length/".repeat(5);
        vec![
            ["NAME".into(), "HOLDER".into(), "TOKEN".into()],
            [name, "h".repeat(70), "1".repeat(16)],
            ["夜間報告書".repeat(10), "👩‍👩‍👧❤️".repeat(20), "2".into()],
        ]
    }

    #[test]
    fn no_line_is_longer_than_the_terminal() {
        let text = Table::new(2, Some(80)).lay_out(&rows());
        assert!(text.lines().all(|line| columns(line) <= 80), "{text}");
        assert!(text.contains(&"1".repeat(16)), "what is not elastic stays whole: {text}");
    }

    #[test]
    fn nothing_is_shortened_for_a_pipe() {
        assert!(!Table::new(2, None).lay_out(&rows()).contains('…'));
    }

    #[test]
    fn wide_characters_count_twice() {
        assert_eq!(
            [columns("abc"), columns("夜間"), columns("👩"), columns("é"), columns("e\u{301}")],
            [3, 4, 2, 1, 1]
        );
        assert_eq!(shortened("nightly-report-of-everything", 15), "nightly…rything");
        assert_eq!(shortened("夜間報告書", 7), "夜…書");
        assert_eq!(shortened("夜間報告書", 10), "夜間報告書");
        let text = Table::new(1, None).lay_out(&[["夜間".into(), "x".into()], ["a".into(), "y".into()]]);
        assert_eq!(text, "夜間  x\na     y\n");
    }

    #[test]
    fn what_is_shortened_fits_and_keeps_both_ends() {
        for text in
            ["", "a", "nightly-report-of-everything", "夜間報告書の全て", "a夜b間c報d", "👩‍👩‍👧❤️e\u{301}"]
        {
            for room in 0..20 {
                let short = shortened(text, room);
                assert!(columns(&short) <= room.max(1), "{text} in {room}: {short}");
                if let Some((head, tail)) = short.split_once('…') {
                    assert!(text.starts_with(head) && text.ends_with(tail), "{text} in {room}: {short}");
                }
            }
        }
    }

    #[test]
    fn a_later_part_keeps_its_columns() {
        let mut table = Table::new(1, Some(80));
        table.lay_out(&[["a-long-name".into(), "x".into()]]);
        assert_eq!(table.lay_out(&[["b".into(), "y".into()]]), "b            y\n");
    }
}
