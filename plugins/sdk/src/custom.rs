//! Tools that take free text, for upstreams that know functions only.
//!
//! Such a tool becomes a function of one string, [`SCHEMA`]. The tool is called with the string that
//! the model writes. The grammar of the tool becomes part of the description, so that the model tries
//! to follow it.

use serde::{Deserialize, Serialize};

use crate::chat::{CallKind, ChatRequest, CustomTool, ToolKind};

/// The JSON schema of the function's arguments.
pub const SCHEMA: &str =
    r#"{"type":"object","properties":{"input":{"type":"string"}},"required":["input"]}"#;

/// The description of the function for the model.
pub fn description(tool: &CustomTool) -> String {
    #[derive(Deserialize)]
    struct Format {
        syntax: Option<String>,
        definition: Option<String>,
    }
    let mut description = tool.description.clone().unwrap_or_default();
    let format = tool.format.as_deref().map(serde_json::from_str::<Format>);
    if let Some(Ok(Format {
        definition: Some(definition),
        syntax,
    })) = format
    {
        let syntax = syntax.as_deref().unwrap_or("following");
        description += &format!("\n\nThe input must match this {syntax} grammar:\n{definition}");
    }
    description.trim_start().to_owned()
}

/// Whether a tool is held to a grammar, which a function is not.
pub fn has_grammar(tool: &CustomTool) -> bool {
    let format = tool.format.as_deref();
    format.is_some_and(|format| format.contains("\"grammar\""))
}

/// An earlier call's arguments, as the function takes them.
#[derive(Debug, Serialize)]
pub struct CustomArguments<'a> {
    /// The free text.
    pub input: &'a str,
}

/// The free text in a function's arguments. Arguments that do not fit [`SCHEMA`] are the text itself:
/// some models forget the object.
pub fn input(arguments: String) -> String {
    #[derive(Deserialize)]
    struct Arguments {
        input: String,
    }
    match serde_json::from_str(&arguments) {
        Ok(Arguments { input }) => input,
        Err(_) => arguments,
    }
}

/// The names of a request's tools that take free text.
pub fn names(chat: &ChatRequest) -> Vec<String> {
    let tools = chat.tools.iter().filter_map(|tool| match &tool.kind {
        ToolKind::Custom(custom) => Some(custom.name.clone()),
        ToolKind::Function(_) | ToolKind::BuiltIn(_) => None,
    });
    tools.collect()
}

/// The kind of a call by its tool's name.
pub fn kind_of(names: &[String], name: &str) -> CallKind {
    if names.iter().any(|custom| custom == name) {
        CallKind::Custom
    } else {
        CallKind::Function
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_the_model_the_grammar() {
        let mut tool = CustomTool {
            name: "patch".to_owned(),
            description: Some("Patches.".to_owned()),
            format: Some(r#"{"type":"grammar","syntax":"lark","definition":"a"}"#.to_owned()),
        };
        assert_eq!(
            description(&tool),
            "Patches.\n\nThe input must match this lark grammar:\na"
        );
        assert!(has_grammar(&tool));
        tool.format = Some(r#"{"type":"text"}"#.to_owned());
        assert_eq!(description(&tool), "Patches.");
        assert!(!has_grammar(&tool));
    }

    #[test]
    fn finds_the_text_whatever_the_model_wrote() {
        assert_eq!(input(r#"{"input":"a\nb"}"#.to_owned()), "a\nb");
        assert_eq!(input("bare".to_owned()), "bare");
        assert_eq!(input(r#"{"text":1}"#.to_owned()), r#"{"text":1}"#);
    }
}
