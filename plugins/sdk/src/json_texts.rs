//! The texts within JSON: a reader sees each of them, and may change some without a change of anything else.
//!
//! A search over the raw JSON would take the `n` of an escaped line break for the beginning of a word, and would not find
//! a word with an escaped letter.

use std::borrow::Cow;

use serde_json::value::RawValue;

/// The texts of a JSON value that may change. A reader sees the others, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All: strings, names of fields, and numbers, which become strings.
    All,
    /// All strings and numbers that are values.
    Values,
    /// The strings and numbers of a block in a provider's dialect, without types, ids, names and bytes.
    Block,
    /// The strings of a JSON Schema that describe something to a model: descriptions and values.
    Schema,
    /// The strings of the schemas in an object that has the properties' names.
    Schemas,
    /// None.
    Fixed,
    /// None. A reader sees no encrypted bytes.
    Sealed,
}

/// The rights of a reader on a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Read it, and change it.
    Free,
    /// Read it: a change would break its meaning.
    Fixed,
    /// Nothing: it is a file in base64.
    Bytes,
}

/// Characters of base64 above which a string is not a word but bytes.
const WORD_CHARS: usize = 64;
/// Characters of base64 above which a model's reader cannot check a string: text has spaces.
const READABLE_CHARS: usize = 256;

/// An object or a list that contains the current place.
struct Level {
    scope: Scope,
    is_object: bool,
}

/// Calls `each` for every text, and returns the JSON with the replacements of free texts; `None` without any.
///
/// A text that is not valid JSON is one text.
pub fn rewrite(
    json: &str,
    scope: Scope,
    each: &mut dyn FnMut(&str, Form) -> Option<String>,
) -> Option<String> {
    if !is_json(json) {
        let form = if scope == Scope::Fixed {
            Form::Fixed
        } else {
            Form::Free
        };
        return each(json, form).filter(|_| form == Form::Free);
    }
    let bytes = json.as_bytes();
    let (mut changed, mut copied) = (String::new(), 0);
    let mut levels = Vec::new();
    let (mut scope, mut is_name) = (scope, false);
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        at += 1;
        let (text, form) = match bytes[start] {
            open @ (b'{' | b'[') => {
                is_name = open == b'{';
                levels.push(Level {
                    scope,
                    is_object: is_name,
                });
                continue;
            }
            b'}' | b']' => {
                levels.pop();
                continue;
            }
            b',' => {
                if let Some(level) = levels.last() {
                    (scope, is_name) = (level.scope, level.is_object);
                }
                continue;
            }
            b'"' => {
                at = string_end(bytes, at);
                let text = decoded(&json[start..at]);
                let form = if std::mem::take(&mut is_name) {
                    let form = scope.form_of_name();
                    scope = scope.of_field(&text);
                    form
                } else if let Some(form) = scope.form_of(&text) {
                    form
                } else {
                    continue;
                };
                (text, form)
            }
            b'-' | b'0'..=b'9' => {
                let rest = bytes[at..].iter();
                let digits = rest.take_while(|byte| {
                    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'+' | b'-')
                });
                at += digits.count();
                (Cow::Borrowed(&json[start..at]), scope.form_of_number())
            }
            _ => continue,
        };
        if let Some(text) = each(&text, form)
            && form == Form::Free
        {
            changed.push_str(&json[copied..start]);
            changed.push_str(&serde_json::Value::from(text).to_string());
            copied = at;
        }
    }
    (copied > 0).then(|| changed + &json[copied..])
}

/// Returns whether a text is a JSON object or a JSON list.
pub fn is_container(text: &str) -> bool {
    text.trim_start().starts_with(['{', '[']) && is_json(text)
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<&RawValue>(text).is_ok()
}

impl Scope {
    /// Returns the scope of a field's value, in an object of this scope.
    fn of_field(self, name: &str) -> Self {
        match self {
            Self::All | Self::Sealed => self,
            Self::Values | Self::Block | Self::Fixed if is_sealed(name) => Self::Sealed,
            Self::Values | Self::Fixed => self,
            Self::Block => match name {
                // The input of a call has fields of any name.
                "input" => Self::Values,
                "type" | "id" | "name" | "media_type" => Self::Fixed,
                _ if name.ends_with("_id") => Self::Fixed,
                _ => self,
            },
            Self::Schema => match name {
                "title" | "description" | "$comment" | "default" | "const" | "enum"
                | "examples" | "example" => Self::Values,
                "properties" | "patternProperties" | "dependentSchemas" | "$defs"
                | "definitions" => Self::Schemas,
                _ => self,
            },
            Self::Schemas => Self::Schema,
        }
    }

    fn form_of_name(self) -> Form {
        match self {
            Self::All => Form::Free,
            Self::Values
            | Self::Block
            | Self::Schema
            | Self::Schemas
            | Self::Fixed
            | Self::Sealed => Form::Fixed,
        }
    }

    fn form_of_number(self) -> Form {
        match self {
            Self::All | Self::Values | Self::Block => Form::Free,
            Self::Schema | Self::Schemas | Self::Fixed | Self::Sealed => Form::Fixed,
        }
    }

    /// Returns the form of a string that is a value; `None` if no reader sees it.
    fn form_of(self, text: &str) -> Option<Form> {
        match self {
            Self::All => Some(Form::Free),
            Self::Values | Self::Block | Self::Fixed if is_file(text) => Some(Form::Bytes),
            Self::Block if is_bytes(text) => Some(Form::Fixed),
            Self::Values | Self::Block => Some(Form::Free),
            Self::Schema | Self::Schemas | Self::Fixed => Some(Form::Fixed),
            Self::Sealed => (!is_bytes(text)).then_some(Form::Fixed),
        }
    }
}

/// Returns whether a field of this name has encrypted content or a proof, which only its provider can write.
fn is_sealed(name: &str) -> bool {
    name.starts_with("encrypted") || name.ends_with("signature") || name.ends_with("Signature")
}

/// Returns whether a text is base64, such as encrypted content. It is longer than all personal data of one word.
pub fn is_bytes(text: &str) -> bool {
    let is_base64 =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=');
    text.len() > WORD_CHARS && text.bytes().all(is_base64)
}

/// Returns whether a text is a file in base64, alone or in a data URL.
fn is_file(text: &str) -> bool {
    let data = match text.strip_prefix("data:") {
        Some(rest) => rest.split_once(";base64,").map_or("", |(_, data)| data),
        None if text.len() > READABLE_CHARS => text,
        None => "",
    };
    is_bytes(data)
}

/// Returns the end of the string whose content begins here.
fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

fn decoded(literal: &str) -> Cow<'_, str> {
    let raw = &literal[1..literal.len() - 1];
    if !raw.contains('\\') {
        return Cow::Borrowed(raw);
    }
    // Half of a surrogate pair is no character.
    serde_json::from_str(literal).map_or(Cow::Borrowed(raw), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shouted(json: &str, scope: Scope) -> String {
        let mut each = |text: &str, _: Form| {
            let shout = text.to_uppercase();
            (text.contains("me") || text == "7").then_some(shout)
        };
        rewrite(json, scope, &mut each).unwrap_or_else(|| json.to_owned())
    }

    fn read(json: &str, scope: Scope) -> Vec<(String, Form)> {
        let mut read = Vec::new();
        rewrite(json, scope, &mut |text, form| {
            read.push((text.to_owned(), form));
            None
        });
        read
    }

    #[test]
    fn a_scope_decides_what_changes_and_the_rest_stays_byte_for_byte() {
        for (scope, json, expected) in [
            (
                Scope::All,
                r#"{ "me":["\n me", 7,{"a":-1.5e+3}], "b" :"é\u00e9","c":"\ud800 me"}"#,
                r#"{ "ME":["\n ME", "7",{"a":-1.5e+3}], "b" :"é\u00e9","c":"\\UD800 ME"}"#,
            ),
            (Scope::All, "me [", "ME ["),
            (Scope::All, r#"{"a":"me"#, r#"{"A":"ME"#),
            (
                Scope::Values,
                r#"{"me":{"me":["me",7]},"x":"me"}"#,
                r#"{"me":{"me":["ME","7"]},"x":"ME"}"#,
            ),
            (
                Scope::Block,
                r#"{"type":"me","id":"me","tool_use_id":"me","title":"me","input":{"name":"me"},"content":[{"type":"me","text":"me"}]}"#,
                r#"{"type":"me","id":"me","tool_use_id":"me","title":"ME","input":{"name":"ME"},"content":[{"type":"me","text":"ME"}]}"#,
            ),
            (
                Scope::Schema,
                r#"{"type":"me","title":"me","properties":{"title":{"description":"me","enum":["me"],"items":{"pattern":"me","default":{"me":"me"}}},"me":true},"required":["me"]}"#,
                r#"{"type":"me","title":"ME","properties":{"title":{"description":"ME","enum":["ME"],"items":{"pattern":"me","default":{"me":"ME"}}},"me":true},"required":["me"]}"#,
            ),
            (Scope::Fixed, r#"["me",7]"#, r#"["me",7]"#),
            (Scope::Fixed, "me [", "me ["),
        ] {
            assert_eq!(shouted(json, scope), expected);
        }
        let bytes = format!(r#"{{"data":"{}"}}"#, "me".repeat(33));
        assert_eq!(shouted(&bytes, Scope::Block), bytes);
        assert_ne!(shouted(&bytes, Scope::Values), bytes);
    }

    #[test]
    fn readers_see_names_and_texts_that_cannot_change() {
        let json = r#"{"type":"a","\u0062":{"id":3},"pattern":"c"}"#;
        for (scope, forms) in [
            (Scope::All, [Form::Free; 6]),
            (Scope::Schema, [Form::Fixed; 6]),
            (Scope::Fixed, [Form::Fixed; 6]),
        ] {
            let texts = ["type", "a", "b", "id", "3", "pattern", "c"];
            let read = read(json, scope);
            let names: Vec<_> = read.iter().map(|(text, _)| text.as_str()).collect();
            assert_eq!(names, texts, "{scope:?}");
            assert!(read.iter().all(|(_, form)| *form == forms[0]), "{scope:?}");
        }
    }

    #[test]
    fn only_encrypted_bytes_stay_unseen_and_files_are_named() {
        let (sealed, file) = ("me".repeat(200), "me".repeat(129));
        for scope in [Scope::Values, Scope::Block, Scope::Fixed] {
            let of = |field: &str, text: &str| {
                let json = serde_json::json!({ field: text }).to_string();
                let read = read(&json, scope).into_iter().skip(1);
                read.map(|(_, form)| form).collect::<Vec<_>>()
            };
            assert!(of("encrypted_content", &sealed).is_empty(), "{scope:?}");
            assert!(of("thoughtSignature", &sealed).is_empty(), "{scope:?}");
            assert_eq!(of("encrypted_content", "me"), [Form::Fixed], "{scope:?}");
            assert_eq!(of("content", &file), [Form::Bytes], "{scope:?}");
            let url = format!("data:image/png;base64,{file}");
            assert_eq!(of("url", &url), [Form::Bytes], "{scope:?}");
        }
        assert_eq!(read(&format!("\"{file}\""), Scope::All)[0].1, Form::Free);
    }

    #[test]
    fn only_objects_and_lists_are_containers() {
        assert!(is_container(r#" {"a":1}"#) && is_container("[]"));
        assert!(!is_container("1") && !is_container("[a]") && !is_container(""));
    }
}
