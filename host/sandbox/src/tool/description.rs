//! A tool's description: checked once, at load, and stored as text beside its bytes, so that every node can compare
//! it with the description that it reads.

use serde_json::{Value, json};

use super::bindings::tool::Description;
use crate::words::{MAX_WORD_BYTES, check_word};

/// Bytes of the longest description. Each request with the tool pays for its tokens.
const MAX_DESCRIPTION_BYTES: usize = 4 << 10;

/// Checks that a description is well-formed, except for its schema.
pub(super) fn check(description: &Description) -> Result<(), String> {
    let Description {
        name,
        version,
        description,
        input_schema: _,
    } = description;
    if !(1..=MAX_WORD_BYTES).contains(&name.len()) || !name.bytes().all(is_of_name) {
        return Err(format!(
            "its name must be 1 to {MAX_WORD_BYTES} letters, digits, hyphens and underscores, as models' tools are named"
        ));
    }
    check_word("version", version)?;
    let is_text = |character: char| !character.is_control() || character == '\n';
    if description.trim().is_empty()
        || description.len() > MAX_DESCRIPTION_BYTES
        || !description.chars().all(is_text)
    {
        return Err(format!(
            "its description must be a text of at most {MAX_DESCRIPTION_BYTES} bytes, without control characters"
        ));
    }
    Ok(())
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_".contains(&byte)
}

/// Returns a description as it is stored: equal descriptions have equal texts.
pub fn to_json(description: &Description) -> Value {
    json!({
        "name": description.name,
        "version": description.version,
        "description": description.description,
        "input_schema": description.input_schema,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_model_could_be_told_is_refused() {
        let described = Description {
            name: "http_get".into(),
            version: "1.0.0".into(),
            description: "Fetches a page.\nBy its URL.".into(),
            input_schema: String::new(),
        };
        assert_eq!(check(&described), Ok(()));
        type Change = fn(&mut Description);
        let refused: [(&str, Change); 6] = [
            ("name", |d| d.name = String::new()),
            ("name", |d| d.name = "a b".into()),
            ("name", |d| d.name = "n".repeat(65)),
            ("version", |d| d.version = "1\n".into()),
            ("description", |d| d.description = " ".into()),
            ("description", |d| d.description = "\u{1b}[2J".into()),
        ];
        for (what, change) in refused {
            let mut description = described.clone();
            change(&mut description);
            let error = check(&description).expect_err("it is refused");
            assert!(error.contains(what), "{what}: {error}");
        }
    }
}
