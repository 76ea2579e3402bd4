//! A filter's description: checked once, at load, and stored as text beside its bytes, so that every node can compare
//! it with the description that it reads.

use serde_json::{Value, json};

use super::bindings::filter::Description;

/// Maximum number of options.
const MAX_OPTIONS: usize = 64;

/// Maximum length of a name, a version and an option, in bytes.
const MAX_WORD_BYTES: usize = 64;

/// Checks that a description is well-formed.
pub(super) fn check(description: &Description) -> Result<(), String> {
    let Description {
        name,
        version,
        options,
    } = description;
    for (what, text) in [("name", name), ("version", version)] {
        if !is_word(text) {
            return Err(format!(
                "its {what} must be 1 to {MAX_WORD_BYTES} printable ASCII characters"
            ));
        }
    }
    if options.len() > MAX_OPTIONS || !options.iter().all(|option| is_word(option)) {
        return Err(format!(
            "its options must be at most {MAX_OPTIONS} names of 1 to {MAX_WORD_BYTES} printable ASCII characters"
        ));
    }
    Ok(())
}

fn is_word(text: &str) -> bool {
    (1..=MAX_WORD_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Returns a description as it is stored: equal descriptions have equal texts.
pub fn to_json(description: &Description) -> Value {
    json!({
        "name": description.name,
        "version": description.version,
        "options": description.options,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_refused() {
        let described = Description {
            name: "redact-pii".into(),
            version: "1.0.0".into(),
            options: vec!["kinds".into()],
        };
        assert_eq!(check(&described), Ok(()));
        type Change = fn(&mut Description);
        let refused: [(&str, Change); 5] = [
            ("name", |d| d.name = String::new()),
            ("name", |d| d.name = "a b".into()),
            ("version", |d| d.version = "1".repeat(65)),
            ("options", |d| d.options = vec!["\u{e9}".into()]),
            ("options", |d| d.options = vec!["o".into(); 65]),
        ];
        for (what, change) in refused {
            let mut description = described.clone();
            change(&mut description);
            let error = check(&description).expect_err("it is refused");
            assert!(error.contains(what), "{what}: {error}");
        }
    }
}
