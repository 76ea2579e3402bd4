//! The words in a plugin's description: its name, its version, and lists such as its options.

use std::ops::RangeInclusive;

/// Bytes of the longest word.
pub(crate) const MAX_WORD_BYTES: usize = 64;

const WORD_BYTES: RangeInclusive<usize> = 1..=MAX_WORD_BYTES;

/// The most words of a list.
const MAX_WORDS: usize = 64;

/// Whether a text has 1 to [`MAX_WORD_BYTES`] printable ASCII characters.
pub(crate) fn is_word(text: &str) -> bool {
    WORD_BYTES.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Checks a word. `field` names it in the error.
pub(crate) fn check_word(field: &str, text: &str) -> Result<(), String> {
    if is_word(text) {
        return Ok(());
    }
    Err(format!(
        "its {field} must be 1 to {MAX_WORD_BYTES} printable ASCII characters"
    ))
}

/// Checks a list of words. `field` names it in the error.
pub(crate) fn check_words(field: &str, words: &[String]) -> Result<(), String> {
    if words.len() <= MAX_WORDS && words.iter().all(|word| is_word(word)) {
        return Ok(());
    }
    Err(format!(
        "its {field} must be at most {MAX_WORDS} names of 1 to {MAX_WORD_BYTES} printable ASCII characters"
    ))
}
