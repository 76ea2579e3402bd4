//! The tools of a request, and the model's choice among them.

use serde::Deserialize;
use serde_json::value::RawValue;
use weir_sandbox::adapter::bindings::chat::{
    BuiltInTool, CustomTool, FunctionTool, Tool, ToolChoice, ToolKind,
};

use super::messages::cache_lifetime;
use super::wire;
use crate::json::{
    FieldFault, Raw, Text, check_belongs, check_is_object, check_length, object_of, required,
    reread,
};
use crate::openai_tools::{
    MAX_TYPE_CHARS, check_has_tool, choice_among, choice_by_mode, function_tool, tool_name,
};

/// Translates a tool. Unknown fields within `function` are passed on with the prefix `function.`, which distinguishes
/// them from the tool's own. A tool without a type is a function. The fields of `function` and `custom` may also stand beside `type`, as in Responses:
/// Cursor sends them so.
pub(super) fn tool(tool: wire::ChatTool<'_>) -> Result<Tool, FieldFault> {
    let kind = tool.kind.as_ref().map_or("function", Text::as_str);
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
            (ToolKind::Function(read_function(function)?), extra)
        }
        "function" => {
            let mut function = required(tool.function, "function")?;
            let within = std::mem::take(&mut function.others).into_fields();
            let within = within
                .into_iter()
                .map(|(name, json)| (format!("function.{name}"), json));
            let mut extra = others;
            extra.extend(within);
            let function = read_function(function).map_err(|fault| fault.within("function"))?;
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

fn read_function(function: wire::Function<'_>) -> Result<FunctionTool, FieldFault> {
    function_tool(
        function.name,
        function.description,
        function.parameters,
        function.strict,
    )
}

fn custom_tool(custom: wire::Custom<'_>) -> Result<CustomTool, FieldFault> {
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
    struct NestedGrammar<'a> {
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
    match serde_json::from_str::<NestedGrammar<'_>>(format) {
        Ok(NestedGrammar {
            grammar: Grammar { syntax, definition },
        }) => {
            format!(r#"{{"type":"grammar","syntax":{syntax},"definition":{definition}}}"#)
        }
        Err(_) => format.to_owned(),
    }
}

/// Translates a tool of another type than the client's own: its other fields are its configuration.
fn built_in_tool(kind: &str, mut fields: Vec<(String, String)>) -> Result<BuiltInTool, FieldFault> {
    let mut name = None;
    if let Some(at) = fields.iter().position(|(field, _)| field == "name") {
        let (_, json) = fields.remove(at);
        let text: String =
            serde_json::from_str(&json).map_err(|_| FieldFault::new("name", "must be a string"))?;
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
    choice: Option<wire::ChatToolChoice<'_>>,
    tools: &[Tool],
) -> Result<ToolChoice, FieldFault> {
    match choice {
        None => Ok(ToolChoice::Auto),
        Some(wire::ChatToolChoice::Mode(mode)) => choice_by_mode(&mode, "function", tools),
        Some(wire::ChatToolChoice::Chosen(choice)) => {
            chosen(choice, tools).map_err(|fault| fault.within("tool_choice"))
        }
    }
}

fn chosen(choice: wire::ChosenTool<'_>, tools: &[Tool]) -> Result<ToolChoice, FieldFault> {
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
            choice_among(allowed.mode, allowed.tools, |tool| named(tool, tools))
                .map_err(|fault| fault.within("allowed_tools"))?
        }
        _ => {
            return Err(FieldFault::new(
                "type",
                "must be one of function, custom, allowed_tools",
            ));
        }
    };
    check_belongs(given, kind.as_str(), "a choice")?;
    Ok(choice)
}

fn named(tool: wire::NamedTool<'_>, tools: &[Tool]) -> Result<String, FieldFault> {
    let kind = required(tool.kind, "type")?;
    let given = [
        ("function", tool.function.is_some()),
        ("custom", tool.custom.is_some()),
    ];
    let name = match kind.as_str() {
        "function" => known_name(tool.function, tool.name, "function", tools)?,
        "custom" => known_name(tool.custom, tool.name, "custom", tools)?,
        _ => return Err(FieldFault::new("type", "must be one of function, custom")),
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
) -> Result<String, FieldFault> {
    let name = match (tool, beside) {
        (None, Some(name)) => name,
        (tool, _) => {
            let tool = required(tool, field)?;
            required(tool.name, "name").map_err(|fault| fault.within(field))?
        }
    };
    check_has_tool(&name, field, tools).map_err(|fault| fault.within(field))?;
    Ok(name)
}
