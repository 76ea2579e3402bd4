//! The tools of a request, and the model's choice among them.

use serde_json::{Value, json};
use weir_sandbox::adapter::bindings::chat::{
    AllowedTools, BuiltInTool, CustomTool, FunctionTool, Tool, ToolChoice, ToolKind,
};

use super::wire;
use crate::json::{
    Fault, Raw, check_belongs, check_is_object, check_length, each, object_of, required, reread,
};
use crate::openai::tool_name;

const MAX_TYPE_CHARS: usize = 64;

/// Translates a tool: the client's own, or the upstream's.
pub(super) fn tool(tool: wire::Tool<'_>) -> Result<Tool, Fault> {
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
        "function" => {
            let schema = tool.parameters.map(|parameters| parameters.0);
            let schema = schema.unwrap_or(r#"{"type":"object","properties":{}}"#);
            check_is_object(schema, "parameters")?;
            ToolKind::Function(FunctionTool {
                name: tool_name(tool.name)?,
                description: tool.description,
                input_schema: schema.to_owned(),
                strict: tool.strict,
            })
        }
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

fn built_in(tool: wire::Tool<'_>) -> Result<Tool, Fault> {
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
pub(super) fn tool_choice(choice: Option<Raw<'_>>, tools: &[Tool]) -> Result<ToolChoice, Fault> {
    let Some(choice) = choice else {
        return Ok(ToolChoice::Auto);
    };
    let read = || match serde_json::from_str::<String>(choice.0) {
        Ok(mode) => match mode.as_str() {
            "auto" => Ok(ToolChoice::Auto),
            "none" => Ok(ToolChoice::None),
            "required" if tools.is_empty() => {
                Err(Fault::new("", "must not be required without tools"))
            }
            "required" => Ok(ToolChoice::Required),
            _ => Err(Fault::new(
                "",
                "must be one of none, auto, required, or an object that names a tool",
            )),
        },
        Err(_) => chosen(reread(choice)?, tools),
    };
    read().map_err(|fault| fault.within("tool_choice"))
}

fn chosen(choice: wire::ChosenTool<'_>, tools: &[Tool]) -> Result<ToolChoice, Fault> {
    let kind = required(choice.kind, "type")?;
    match kind.as_str() {
        "function" | "custom" => {
            known_name(choice.name, kind.as_str(), tools).map(ToolChoice::Named)
        }
        "allowed_tools" => {
            let required_one = match required(choice.mode, "mode")?.as_str() {
                "auto" => false,
                "required" => true,
                _ => return Err(Fault::new("mode", "must be one of auto, required")),
            };
            let names = each(required(choice.tools, "tools")?.0, "tools", |tool| {
                let kind = required(tool.kind, "type")?;
                known_name(tool.name, kind.as_str(), tools)
            })?;
            if names.is_empty() {
                return Err(Fault::new("tools", "must not be empty"));
            }
            Ok(ToolChoice::Among(AllowedTools {
                names,
                required: required_one,
            }))
        }
        _ => Err(Fault::new(
            "type",
            "must be one of function, custom, allowed_tools",
        )),
    }
}

/// Checks the name of a tool of this type.
fn known_name(name: Option<String>, kind: &str, tools: &[Tool]) -> Result<String, Fault> {
    if !matches!(kind, "function" | "custom") {
        return Err(Fault::new("type", "must be one of function, custom"));
    }
    let name = required(name, "name")?;
    let is_known = tools.iter().any(|tool| match &tool.kind {
        ToolKind::Function(function) => kind == "function" && function.name == name,
        ToolKind::Custom(custom) => kind == "custom" && custom.name == name,
        ToolKind::BuiltIn(_) => false,
    });
    match is_known {
        true => Ok(name),
        false => Err(Fault::new("name", "must be the name of one of the tools")),
    }
}

/// Returns the tools for the response, with each field that OpenAI's schema requires.
pub(super) fn echo(tools: &[Tool]) -> String {
    let tools: Vec<_> = tools.iter().map(echo_one).collect();
    format!("[{}]", tools.join(","))
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
