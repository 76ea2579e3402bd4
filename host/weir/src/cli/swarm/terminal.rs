//! Untrusted text, escaped for a terminal.
//!
//! A model, a web page that it read, or a tool may return any text. In a terminal, control characters in such text
//! could move the cursor, change the window's title, or imitate other lines; these functions turn them into visible
//! escapes. Text for a file or a pipe stays unchanged.

use std::io::{IsTerminal, Write as _, stderr, stdout};

use rustix::termios::tcgetwinsize;
use unicode_width::UnicodeWidthChar;
use weir_sandbox::printable;

/// Columns and rows of a terminal that does not report its size.
const DEFAULT_SIZE: (usize, usize) = (80, 24);

/// Returns untrusted text on one line, without characters that control a terminal.
pub(super) fn line(text: &str) -> String {
    let spaced = text.replace(['\n', '\r', '\t'], " ");
    printable(&spaced, usize::MAX)
}

/// Does the same for text of several lines; keeps the line breaks.
fn lines(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\t', "    ");
    let lines = text.split('\n').map(|line| printable(line, usize::MAX));
    lines.collect::<Vec<_>>().join("\n")
}

/// Prints untrusted text on standard output.
pub(super) fn print(text: &str) {
    let text = match stdout().is_terminal() {
        true => lines(text),
        false => text.to_owned(),
    };
    // The reader may have closed standard output.
    let _ = writeln!(stdout(), "{text}");
}

/// Returns whether the view can be drawn: both outputs are terminals that support escape sequences.
pub(super) fn can_draw() -> bool {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    stdout().is_terminal() && stderr().is_terminal() && !is_dumb
}

/// Returns whether the user allows colours: see <https://no-color.org>.
pub(super) fn has_colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty())
}

/// Returns columns and rows.
pub(super) fn size() -> (usize, usize) {
    match tcgetwinsize(stderr()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => DEFAULT_SIZE,
    }
}

/// Returns a line's beginning, at most this many columns.
pub(super) fn cut(line: &str, columns: usize) -> &str {
    let mut left = columns;
    for (at, character) in line.char_indices() {
        match left.checked_sub(character.width().unwrap_or_default()) {
            Some(rest) => left = rest,
            None => return &line[..at],
        }
    }
    line
}

/// Returns a line's end, at most this many columns.
pub(super) fn tail(line: &str, columns: usize) -> &str {
    let mut left = columns;
    for (at, character) in line.char_indices().rev() {
        match left.checked_sub(character.width().unwrap_or_default()) {
            Some(rest) => left = rest,
            None => return &line[at + character.len_utf8()..],
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_drives_a_terminal_is_left() {
        let hostile: String = (0..=0x2fff).filter_map(char::from_u32).collect();
        let drives = |character: char| {
            character.is_control()
                || matches!(character, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        };
        assert!(!line(&hostile).contains(drives));
        let shown = lines(&hostile);
        assert_eq!(shown.matches('\n').count(), 1);
        assert!(!shown.replace('\n', "").contains(drives));
        assert_eq!(line("a\nb\u{1b}[2J\u{9b}m"), "a b\\u{1b}[2J\\u{9b}m");
    }

    #[test]
    fn lines_are_cut_by_columns() {
        for (text, columns, head, end) in [
            ("abc", 3, "abc", "abc"),
            ("abcd", 3, "abc", "bcd"),
            ("河が上", 5, "河が", "が上"),
            ("e\u{301}tat", 2, "e\u{301}t", "at"),
            ("abc", 0, "", ""),
        ] {
            assert_eq!(
                (cut(text, columns), tail(text, columns)),
                (head, end),
                "{text}"
            );
        }
    }
}
