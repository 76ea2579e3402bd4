//! A filter's description: checked once, at load, and stored as text beside its bytes, so that every node can compare
//! it with the description that it reads.

use serde_json::{Value, json};

use super::bindings::filter::Description;
use crate::words::{check_word, check_words};

/// Checks that a description is well-formed.
pub(super) fn check(description: &Description) -> Result<(), String> {
    let Description {
        name,
        version,
        options,
    } = description;
    check_word("name", name)?;
    check_word("version", version)?;
    check_words("options", options)
}

/// A description as the database keeps it. Equal descriptions have equal texts.
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
