//! Columns for people; on a terminal no line is longer than it is wide.

use rustix::termios::{isatty, tcgetwinsize};
use std::io::stdout;
use tenure::shortened;

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

/// Lays `rows` out, the first being the header. Only the first `elastic` columns are shortened.
pub(crate) fn lay_out<const N: usize>(
    rows: &[[String; N]],
    elastic: usize,
    terminal: Option<usize>,
) -> String {
    let mut widths: [usize; N] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    if let Some(terminal) = terminal {
        let gaps = 2 * N.saturating_sub(1);
        while widths.iter().sum::<usize>() + gaps > terminal {
            let widest = widths[..elastic].iter_mut().max().filter(|width| **width > LEAST);
            let Some(widest) = widest else { break };
            *widest -= 1;
        }
    }
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{:width$}", shortened(cell, width)));
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<[String; 3]> {
        let name = "a-name-of-some-length/".repeat(5);
        vec![["NAME".into(), "HOLDER".into(), "TOKEN".into()], [name, "h".repeat(70), "1".repeat(16)]]
    }

    #[test]
    fn no_line_is_longer_than_the_terminal() {
        let text = lay_out(&rows(), 2, Some(80));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains(&"1".repeat(16)), "what is not elastic stays whole: {text}");
    }

    #[test]
    fn nothing_is_shortened_for_a_pipe() {
        assert!(!lay_out(&rows(), 2, None).contains('…'));
    }
}
