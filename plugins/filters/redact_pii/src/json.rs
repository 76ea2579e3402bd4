//! Changes of the texts within JSON, without a change of anything else.
//!
//! A search over the raw JSON would take the `n` of an escaped line break for the beginning of an e-mail address.

use std::borrow::Cow;

use serde_json::value::RawValue;

/// The texts of a JSON value that may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All: strings, names of fields, and numbers, which become strings.
    All,
    /// All strings that are values.
    Values,
    /// The strings of a block in a provider's dialect, without types, ids, names and bytes.
    Block,
    /// The strings of a JSON Schema that a model reads: descriptions and values.
    Schema,
    /// The strings of the schemas in an object that has the properties' names.
    Schemas,
    /// None.
    None,
}

/// An object or a list that contains the current place.
struct Level {
    scope: Scope,
    is_object: bool,
}

/// Calls `each` for the texts in a scope, and returns the JSON with the replacements; `None` without any.
///
/// A text that is not valid JSON is one text.
pub fn rewrite(
    json: &str,
    scope: Scope,
    each: &mut dyn FnMut(&str) -> Option<String>,
) -> Option<String> {
    if !is_json(json) {
        return each(json);
    }
    let bytes = json.as_bytes();
    let (mut changed, mut copied) = (String::new(), 0);
    let mut levels = Vec::new();
    let (mut scope, mut is_name) = (scope, false);
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        at += 1;
        let text = match bytes[start] {
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
                let is_text = scope.has(&text);
                if std::mem::take(&mut is_name) {
                    scope = scope.of_field(&text);
                    if scope != Scope::All {
                        continue;
                    }
                }
                if !is_text {
                    continue;
                }
                text
            }
            b'-' | b'0'..=b'9' => {
                let rest = bytes[at..].iter();
                let digits = rest.take_while(|byte| {
                    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'+' | b'-')
                });
                at += digits.count();
                if scope != Scope::All {
                    continue;
                }
                Cow::Borrowed(&json[start..at])
            }
            _ => continue,
        };
        if let Some(text) = each(&text) {
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
            Self::All | Self::Values | Self::None => self,
            Self::Block => match name {
                // The input of a call has fields of any name.
                "input" => Self::Values,
                "type" | "id" | "name" | "media_type" => Self::None,
                _ if name.ends_with("_id") => Self::None,
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

    fn has(self, text: &str) -> bool {
        match self {
            Self::All | Self::Values => true,
            Self::Block => !is_bytes(text),
            Self::Schema | Self::Schemas | Self::None => false,
        }
    }
}

/// Returns whether a text is base64, such as encrypted content. It is longer than all personal data of one word.
fn is_bytes(text: &str) -> bool {
    let is_base64 =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=');
    text.len() > 64 && text.bytes().all(is_base64)
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
        let mut each = |text: &str| {
            let shout = text.to_uppercase();
            (text.contains("me") || text == "7").then_some(shout)
        };
        rewrite(json, scope, &mut each).unwrap_or_else(|| json.to_owned())
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
                r#"{"me":{"me":["ME",7]},"x":"ME"}"#,
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
            (Scope::None, r#"["me"]"#, r#"["me"]"#),
        ] {
            assert_eq!(shouted(json, scope), expected);
        }
        let bytes = format!(r#"{{"data":"{}"}}"#, "me".repeat(33));
        assert_eq!(shouted(&bytes, Scope::Block), bytes);
        assert_ne!(shouted(&bytes, Scope::Values), bytes);
    }

    #[test]
    fn only_objects_and_lists_are_containers() {
        assert!(is_container(r#" {"a":1}"#) && is_container("[]"));
        assert!(!is_container("1") && !is_container("[a]") && !is_container(""));
    }
}
