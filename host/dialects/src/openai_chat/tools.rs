//! The tools of a request, and the model's choice among them.

use serde::Deserialize;
use serde_json::value::RawValue;
use weir_sandbox::adapter::bindings::chat::{
    AllowedTools, BuiltInTool, CustomTool, FunctionTool, Tool, ToolChoice, ToolKind,
};

use super::messages::cache_lifetime;
use super::wire;
use crate::json::{
    Fault, Raw, check_belongs, check_is_object, check_length, each, object_of, required, reread,
};
use crate::openai::tool_name;

const MAX_TYPE_CHARS: usize = 64;

/// Translates a tool. Unknown fields within `function` are passed on with the prefix `function.`, which distinguishes
/// them from the tool's own. The fields of `function` and `custom` may also stand beside `type`, as in Responses:
/// Cursor sends them so.
pub(super) fn tool(tool: wire::Tool<'_>) -> Result<Tool, Fault> {
    let kind = required(tool.kind, "type")?;
    let kind = kind.as_str();
    check_length(kind, MAX_TYPE_CHARS, "type")?;
    let given = [
        ("function", tool.function.is_some()),
        ("custom", tool.custom.is_some()),
    ];
    check_belongs(given, kind, "a tool")?;
    let cache = cache_lifetime(tool.cache_control)?;
    let others = tool.others.into_fields();
    let is_beside = others.iter().any(|(name, _)| name == "name");
    let (kind, extra) = match kind {
        "function" if tool.function.is_none() && is_beside => {
            let beside = object_of(others);
            let mut function: wire::Function<'_> = reread(Raw(&beside))?;
            let extra = std::mem::take(&mut function.others).into_fields();
            (ToolKind::Function(function_tool(function)?), extra)
        }
        "function" => {
            let mut function = required(tool.function, "function")?;
            let within = std::mem::take(&mut function.others).into_fields();
            let within = within
                .into_iter()
                .map(|(name, json)| (format!("function.{name}"), json));
            let mut extra = others;
            extra.extend(within);
            let function = function_tool(function).map_err(|fault| fault.within("function"))?;
            (ToolKind::Function(function), extra)
        }
        "custom" if tool.custom.is_none() && is_beside => {
            let beside = object_of(others);
            (
                ToolKind::Custom(custom_tool(reread(Raw(&beside))?)?),
                Vec::new(),
            )
        }
        "custom" => {
            let custom = custom_tool(required(tool.custom, "custom")?)
                .map_err(|fault| fault.within("custom"))?;
            (ToolKind::Custom(custom), others)
        }
        _ => {
            let built_in = built_in_tool(kind, others)?;
            (ToolKind::BuiltIn(built_in), Vec::new())
        }
    };
    Ok(Tool { kind, cache, extra })
}

fn function_tool(function: wire::Function<'_>) -> Result<FunctionTool, Fault> {
    let input_schema = function
        .parameters
        .map_or(r#"{"type":"object","properties":{}}"#, |parameters| {
            parameters.0
        });
    let name = tool_name(function.name)?;
    check_is_object(input_schema, "parameters")?;
    Ok(FunctionTool {
        name,
        description: function.description,
        input_schema: input_schema.to_owned(),
        strict: function.strict,
    })
}

fn custom_tool(custom: wire::Custom<'_>) -> Result<CustomTool, Fault> {
    let name = tool_name(custom.name)?;
    if let Some(format) = custom.format {
        check_is_object(format.0, "format")?;
    }
    Ok(CustomTool {
        name,
        description: custom.description,
        format: custom.format.map(|format| flat(format.0)),
    })
}

/// The contract puts a grammar's two fields beside `type`, this dialect into a separate object.
fn flat(format: &str) -> String {
    #[derive(Deserialize)]
    struct Nested<'a> {
        #[serde(borrow)]
        grammar: Grammar<'a>,
    }
    #[derive(Deserialize)]
    struct Grammar<'a> {
        #[serde(borrow)]
        syntax: &'a RawValue,
        #[serde(borrow)]
        definition: &'a RawValue,
    }
    match serde_json::from_str::<Nested<'_>>(format) {
        Ok(Nested {
            grammar: Grammar { syntax, definition },
        }) => {
            format!(r#"{{"type":"grammar","syntax":{syntax},"definition":{definition}}}"#)
        }
        Err(_) => format.to_owned(),
    }
}

/// Translates a tool of another type than the client's own: its other fields are its configuration.
fn built_in_tool(kind: &str, mut fields: Vec<(String, String)>) -> Result<BuiltInTool, Fault> {
    let mut name = None;
    if let Some(at) = fields.iter().position(|(field, _)| field == "name") {
        let (_, json) = fields.remove(at);
        let text: String =
            serde_json::from_str(&json).map_err(|_| Fault::new("name", "must be a string"))?;
        check_length(&text, MAX_TYPE_CHARS, "name")?;
        name = Some(text);
    }
    Ok(BuiltInTool {
        kind: kind.to_owned(),
        name,
        configuration: object_of(fields),
    })
}

/// Translates the tool choice; a named tool must be in the request.
pub(super) fn tool_choice(
    choice: Option<wire::ToolChoice<'_>>,
    tools: &[Tool],
) -> Result<ToolChoice, Fault> {
    match choice {
        None => Ok(ToolChoice::Auto),
        Some(wire::ToolChoice::Mode(mode)) => match mode.as_str() {
            "auto" => Ok(ToolChoice::Auto),
            "none" => Ok(ToolChoice::None),
            "required" if tools.is_empty() => Err(Fault::new(
                "tool_choice",
                "must not be required without tools",
            )),
            "required" => Ok(ToolChoice::Required),
            _ => Err(Fault::new(
                "tool_choice",
                "must be one of none, auto, required, or an object that names a function",
            )),
        },
        Some(wire::ToolChoice::Chosen(choice)) => {
            chosen(choice, tools).map_err(|fault| fault.within("tool_choice"))
        }
    }
}

fn chosen(choice: wire::ChosenTool<'_>, tools: &[Tool]) -> Result<ToolChoice, Fault> {
    let kind = required(choice.kind, "type")?;
    let given = [
        ("function", choice.function.is_some()),
        ("custom", choice.custom.is_some()),
        ("allowed_tools", choice.allowed_tools.is_some()),
    ];
    let choice = match kind.as_str() {
        "function" => {
            let named = known_name(choice.function, choice.name, "function", tools);
            ToolChoice::Named(named?)
        }
        "custom" => ToolChoice::Named(known_name(choice.custom, choice.name, "custom", tools)?),
        "allowed_tools" => {
            let allowed = required(choice.allowed_tools, "allowed_tools")?;
            let among = among(allowed, tools).map_err(|fault| fault.within("allowed_tools"))?;
            ToolChoice::Among(among)
        }
        _ => {
            return Err(Fault::new(
                "type",
                "must be one of function, custom, allowed_tools",
            ));
        }
    };
    check_belongs(given, kind.as_str(), "a choice")?;
    Ok(choice)
}

fn among(allowed: wire::AllowedTools<'_>, tools: &[Tool]) -> Result<AllowedTools, Fault> {
    let is_required = match required(allowed.mode, "mode")?.as_str() {
        "auto" => false,
        "required" => true,
        _ => return Err(Fault::new("mode", "must be one of auto, required")),
    };
    let names = required(allowed.tools, "tools")?.0;
    let names = each(names, "tools", |tool| named(tool, tools))?;
    if names.is_empty() {
        return Err(Fault::new("tools", "must not be empty"));
    }
    Ok(AllowedTools {
        names,
        required: is_required,
    })
}

fn named(tool: wire::NamedTool<'_>, tools: &[Tool]) -> Result<String, Fault> {
    let kind = required(tool.kind, "type")?;
    let given = [
        ("function", tool.function.is_some()),
        ("custom", tool.custom.is_some()),
    ];
    let name = match kind.as_str() {
        "function" => known_name(tool.function, tool.name, "function", tools)?,
        "custom" => known_name(tool.custom, tool.name, "custom", tools)?,
        _ => return Err(Fault::new("type", "must be one of function, custom")),
    };
    check_belongs(given, kind.as_str(), "a tool")?;
    Ok(name)
}

/// Returns the name in the object `field`, which is also the type of the named tool; or beside the object, as in
/// Responses.
fn known_name(
    tool: Option<wire::ToolName<'_>>,
    beside: Option<String>,
    field: &str,
    tools: &[Tool],
) -> Result<String, Fault> {
    let name = match (tool, beside) {
        (None, Some(name)) => name,
        (tool, _) => {
            let tool = required(tool, field)?;
            required(tool.name, "name").map_err(|fault| fault.within(field))?
        }
    };
    let is_known = tools.iter().any(|tool| match &tool.kind {
        ToolKind::Function(function) => field == "function" && function.name == name,
        ToolKind::Custom(custom) => field == "custom" && custom.name == name,
        ToolKind::BuiltIn(_) => false,
    });
    if !is_known {
        let fault = Fault::new("name", "must be the name of one of the tools");
        return Err(fault.within(field));
    }
    Ok(name)
}
