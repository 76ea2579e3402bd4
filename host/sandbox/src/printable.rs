//! A stranger's text, made safe for a line of output.

/// Returns at most `bytes` bytes of a stranger's text, safe for one line of a log or an error: control characters
/// (line breaks, escapes, NUL) are escaped, so that no part of it can pass for another line.
pub fn printable(text: &str, bytes: usize) -> String {
    let mut line = String::with_capacity(text.len().min(bytes));
    for character in text.chars() {
        if line.len() + character.len_utf8() > bytes {
            line.push('…');
            break;
        }
        let reorders = matches!(character, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if character.is_control() || reorders {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_cannot_forge_another_or_drive_the_terminal() {
        assert_eq!(
            printable("a\r\nERROR b\0\u{1b}[31m\u{202e}", 100),
            "a\\r\\nERROR b\\u{0}\\u{1b}[31m\\u{202e}"
        );
        assert_eq!(printable("żółw", 5), "żó…");
    }
}
