//! The tools of a request, and the model's choice among them.

use serde_json::{Value, json};
use weir_sandbox::adapter::bindings::chat::{BuiltInTool, CustomTool, Tool, ToolChoice, ToolKind};

use super::wire;
use crate::json::{
    FieldFault, Raw, Text, check_belongs, check_is_object, check_length, each, object_of,
    presentable, required, reread,
};
use crate::openai_tools::{
    MAX_TYPE_CHARS, check_has_tool, choice_among, choice_by_mode, function_tool, tool_name,
};
use crate::tool_names::MAX_NAMESPACE_CHARS;

/// A tool as the client defines it.
pub(super) enum DefinedTool {
    Single(Tool),
    Namespace(Namespace),
}

/// Tools of the client under a shared name.
pub(super) struct Namespace {
    pub(super) name: String,
    /// The purpose of the tools, for the model.
    pub(super) description: Option<String>,
    pub(super) tools: Vec<Tool>,
}

/// Translates a tool: the client's own, the upstream's, or a namespace of the client's tools.
pub(super) fn tool(tool: wire::ResponsesTool<'_>) -> Result<DefinedTool, FieldFault> {
    let kind = required(tool.kind.as_ref(), "type")?.as_str();
    match (kind, &tool.tools) {
        ("namespace", _) => namespace(tool).map(DefinedTool::Namespace),
        (_, None) => single(tool).map(DefinedTool::Single),
        (_, Some(_)) => Err(FieldFault::new("tools", "is for namespaces only")),
    }
}

fn namespace(tool: wire::ResponsesTool<'_>) -> Result<Namespace, FieldFault> {
    let name = required(tool.name, "name")?;
    check_length(&name, MAX_NAMESPACE_CHARS, "name")?;
    if let Some((name, _)) = tool.others.0.first() {
        return Err(FieldFault::new(
            presentable(name.as_str()),
            "is not supported",
        ));
    }
    let tools = each(required(tool.tools, "tools")?.0, "tools", |tool| {
        match (tool.kind.as_ref().map(Text::as_str), &tool.tools) {
            (Some("function" | "custom"), None) => single(tool),
            _ => Err(FieldFault::new("type", "must be one of function, custom")),
        }
    })?;
    Ok(Namespace {
        name,
        description: tool.description,
        tools,
    })
}

fn single(tool: wire::ResponsesTool<'_>) -> Result<Tool, FieldFault> {
    let kind = required(tool.kind.as_ref(), "type")?.as_str();
    check_length(kind, MAX_TYPE_CHARS, "type")?;
    let foreign = match kind {
        "function" => [("format", tool.format.is_some()), ("", false)],
        "custom" => [
            ("parameters", tool.parameters.is_some()),
            ("strict", tool.strict.is_some()),
        ],
        _ => return built_in(tool),
    };
    check_belongs(foreign, kind, "a tool")?;
    let kind = match kind {
        "function" => ToolKind::Function(function_tool(
            tool.name,
            tool.description,
            tool.parameters,
            tool.strict,
        )?),
        _ => {
            if let Some(format) = tool.format {
                check_is_object(format.0, "format")?;
            }
            ToolKind::Custom(CustomTool {
                name: tool_name(tool.name)?,
                description: tool.description,
                format: tool.format.map(|format| format.0.to_owned()),
            })
        }
    };
    Ok(Tool {
        kind,
        cache: None,
        extra: tool.others.into_fields(),
    })
}

fn built_in(tool: wire::ResponsesTool<'_>) -> Result<Tool, FieldFault> {
    if let Some(name) = &tool.name {
        check_length(name, MAX_TYPE_CHARS, "name")?;
    }
    let text = |text: String| Value::from(text).to_string();
    let raw = |json: Raw<'_>| json.0.to_owned();
    let known = [
        ("description", tool.description.map(text)),
        ("parameters", tool.parameters.map(raw)),
        ("strict", tool.strict.map(|flag| flag.to_string())),
        ("format", tool.format.map(raw)),
    ];
    let mut fields = tool.others.into_fields();
    let given = known.into_iter();
    fields.extend(given.filter_map(|(name, json)| Some((name.to_owned(), json?))));
    Ok(Tool {
        kind: ToolKind::BuiltIn(BuiltInTool {
            kind: required(tool.kind, "type")?.into_string(),
            name: tool.name,
            configuration: object_of(fields),
        }),
        cache: None,
        extra: Vec::new(),
    })
}

/// Translates the tool choice; a named tool must be in the request.
pub(super) fn tool_choice(
    choice: Option<Raw<'_>>,
    tools: &[Tool],
) -> Result<ToolChoice, FieldFault> {
    let Some(choice) = choice else {
        return Ok(ToolChoice::Auto);
    };
    match serde_json::from_str::<String>(choice.0) {
        Ok(mode) => choice_by_mode(&mode, "tool", tools),
        Err(_) => reread(choice)
            .and_then(|choice| chosen(choice, tools))
            .map_err(|fault| fault.within("tool_choice")),
    }
}

fn chosen(choice: wire::ResponsesToolChoice<'_>, tools: &[Tool]) -> Result<ToolChoice, FieldFault> {
    let kind = required(choice.kind, "type")?;
    match kind.as_str() {
        "function" | "custom" => {
            known_name(choice.name, kind.as_str(), tools).map(ToolChoice::Named)
        }
        "allowed_tools" => choice_among(
            choice.mode,
            choice.tools,
            |tool: wire::ResponsesNamedTool<'_>| {
                let kind = required(tool.kind, "type")?;
                known_name(tool.name, kind.as_str(), tools)
            },
        ),
        _ => Err(FieldFault::new(
            "type",
            "must be one of function, custom, allowed_tools",
        )),
    }
}

/// Checks the name of a tool of this type.
fn known_name(name: Option<String>, kind: &str, tools: &[Tool]) -> Result<String, FieldFault> {
    if !matches!(kind, "function" | "custom") {
        return Err(FieldFault::new("type", "must be one of function, custom"));
    }
    let name = required(name, "name")?;
    check_has_tool(&name, kind, tools)?;
    Ok(name)
}

/// Returns the tools for the response, with each field that OpenAI's schema requires.
pub(super) fn echo(tools: &[DefinedTool]) -> String {
    list(tools.iter().map(|tool| match tool {
        DefinedTool::Single(tool) => echo_one(tool),
        DefinedTool::Namespace(namespace) => {
            let field = |name: &str, value: Value| (name.to_owned(), value.to_string());
            object_of(vec![
                field("type", "namespace".into()),
                field("name", namespace.name.as_str().into()),
                field("description", json!(namespace.description)),
                (
                    "tools".to_owned(),
                    list(namespace.tools.iter().map(echo_one)),
                ),
            ])
        }
    }))
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

fn echo_one(tool: &Tool) -> String {
    let field = |name: &str, value: Value| (name.to_owned(), value.to_string());
    let raw = |name: &str, json: &str| (name.to_owned(), json.to_owned());
    object_of(match &tool.kind {
        ToolKind::Function(function) => vec![
            field("type", "function".into()),
            field("name", function.name.as_str().into()),
            field("description", json!(function.description)),
            raw("parameters", &function.input_schema),
            field("strict", json!(function.strict)),
        ],
        ToolKind::Custom(custom) => vec![
            field("type", "custom".into()),
            field("name", custom.name.as_str().into()),
            field("description", json!(custom.description)),
            raw(
                "format",
                custom.format.as_deref().unwrap_or(r#"{"type":"text"}"#),
            ),
        ],
        ToolKind::BuiltIn(built_in) => vec![
            field("type", built_in.kind.as_str().into()),
            field("name", json!(built_in.name)),
        ],
    })
}
