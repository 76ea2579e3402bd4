//! The tools of a request, and the model's choice among them.

use weir_sandbox::adapter::bindings::chat::{
    BuiltInTool, FunctionTool, Tool, ToolChoice, ToolKind,
};

use super::content::cache_mark;
use super::wire::{self, MAX_TOOL_CHARS};
use crate::json::{FieldFault, Text, check_is_object, check_length, object_of, required};

/// Translates a tool: the client's own, or the upstream's.
pub(super) fn tool(tool: wire::AnthropicTool<'_>) -> Result<Tool, FieldFault> {
    let kind = tool.kind.as_ref().map_or("custom", Text::as_str);
    check_length(kind, MAX_TOOL_CHARS, "type")?;
    if let Some(name) = &tool.name {
        check_length(name, MAX_TOOL_CHARS, "name")?;
    }
    let mut others = tool.others.into_fields();
    let cache = cache_mark(tool.cache_control, &mut others)?;
    let schema = tool.input_schema.map(|json| json.0);
    if let Some(schema) = schema {
        check_is_object(schema, "input_schema")?;
    }
    if kind != "custom" {
        let mut fields = others;
        let known = [
            (
                "description",
                tool.description
                    .map(|text| serde_json::Value::from(text).to_string()),
            ),
            ("input_schema", schema.map(str::to_owned)),
            ("strict", tool.strict.map(|flag| flag.to_string())),
        ];
        fields.extend(
            known
                .into_iter()
                .filter_map(|(name, json)| Some((name.to_owned(), json?))),
        );
        return Ok(Tool {
            kind: ToolKind::BuiltIn(BuiltInTool {
                kind: kind.to_owned(),
                name: tool.name,
                configuration: object_of(fields),
            }),
            cache,
            extra: Vec::new(),
        });
    }
    let name = required(tool.name, "name")?;
    let schema = required(schema, "input_schema")?;
    Ok(Tool {
        kind: ToolKind::Function(FunctionTool {
            name,
            description: tool.description,
            input_schema: schema.to_owned(),
            strict: tool.strict,
        }),
        cache,
        extra: others,
    })
}

/// Whether the model may call several tools in parallel, if the client sets it.
pub(super) fn parallel_tool_calls(choice: Option<&wire::AnthropicToolChoice<'_>>) -> Option<bool> {
    choice?.disable_parallel_tool_use.map(|disabled| !disabled)
}

/// Translates the tool choice; a named tool must be in the request.
pub(super) fn tool_choice(
    choice: Option<wire::AnthropicToolChoice<'_>>,
    tools: &[Tool],
) -> Result<ToolChoice, FieldFault> {
    let Some(choice) = choice else {
        return Ok(ToolChoice::Auto);
    };
    let kind = required(choice.kind, "tool_choice.type")?;
    if choice.name.is_some() && kind.as_str() != "tool" {
        return Err(FieldFault::new(
            "tool_choice.name",
            "is for a choice of the type tool only",
        ));
    }
    match kind.as_str() {
        "auto" => Ok(ToolChoice::Auto),
        "none" => Ok(ToolChoice::None),
        "any" if tools.is_empty() => Err(FieldFault::new(
            "tool_choice.type",
            "must not be any without tools",
        )),
        "any" => Ok(ToolChoice::Required),
        "tool" => {
            let name = required(choice.name, "tool_choice.name")?;
            let is_known = tools.iter().any(|tool| match &tool.kind {
                ToolKind::Function(function) => function.name == name,
                ToolKind::Custom(custom) => custom.name == name,
                ToolKind::BuiltIn(built_in) => built_in.name.as_ref() == Some(&name),
            });
            match is_known {
                true => Ok(ToolChoice::Named(name)),
                false => Err(FieldFault::new(
                    "tool_choice.name",
                    "must be the name of one of the tools",
                )),
            }
        }
        _ => Err(FieldFault::new(
            "tool_choice.type",
            "must be one of auto, any, tool, none",
        )),
    }
}
