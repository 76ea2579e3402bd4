//! The tools of a request, and the model's choice among them.

use weir_sandbox::adapter::bindings::chat::{
    AllowedTools, BuiltInTool, FunctionTool, Tool, ToolChoice, ToolKind,
};

use super::schema::json_schema;
use super::wire;
use crate::json::{FieldFault, MAX_TOOLS, Text, check_is_object, check_length, items, required};

/// The schema of a function without parameters.
const NO_PARAMETERS: &str = r#"{"type":"object","properties":{}}"#;

/// Translates all tools, in order.
pub(super) fn tools(list: Option<wire::GeminiTools<'_>>) -> Result<Vec<Tool>, FieldFault> {
    let mut tools = Vec::new();
    for (index, entry) in items(list).into_iter().enumerate() {
        add(entry, &mut tools).map_err(|fault| fault.at(index).within("tools"))?;
    }
    Ok(tools)
}

fn add(entry: wire::GeminiTool<'_>, tools: &mut Vec<Tool>) -> Result<(), FieldFault> {
    for (index, function) in items(entry.functions).into_iter().enumerate() {
        if tools.len() == MAX_TOOLS {
            let predicate = format!("must not have more than {MAX_TOOLS} items");
            return Err(FieldFault::new("functionDeclarations", predicate));
        }
        let at = |fault: FieldFault| fault.at(index).within("functionDeclarations");
        tools.push(self::function(function).map_err(at)?);
    }
    for (kind, configuration) in entry.others.into_fields() {
        check_is_object(&configuration, &kind)?;
        tools.push(Tool {
            kind: ToolKind::BuiltIn(BuiltInTool {
                kind,
                name: None,
                configuration,
            }),
            cache: None,
            extra: Vec::new(),
        });
    }
    Ok(())
}

fn function(function: wire::FunctionDeclaration<'_>) -> Result<Tool, FieldFault> {
    let name = required(function.name, "name")?;
    check_length(&name, wire::MAX_NAME_CHARS, "name")?;
    let input_schema = match (function.parameters, function.parameters_json_schema) {
        (Some(_), Some(_)) => {
            let predicate = "must not be given together with parametersJsonSchema";
            return Err(FieldFault::new("parameters", predicate));
        }
        (Some(schema), None) => json_schema(schema).map_err(|fault| fault.within("parameters"))?,
        (None, Some(schema)) => {
            check_is_object(schema.0, "parametersJsonSchema")?;
            schema.0.to_owned()
        }
        (None, None) => NO_PARAMETERS.to_owned(),
    };
    let mut extra = function.others.into_fields();
    let results = [
        ("response", function.response),
        ("responseJsonSchema", function.response_json_schema),
    ];
    for (name, schema) in results {
        extra.extend(schema.map(|schema| (name.to_owned(), schema.0.to_owned())));
    }
    Ok(Tool {
        kind: ToolKind::Function(FunctionTool {
            name,
            description: function.description,
            input_schema,
            strict: None,
        }),
        cache: None,
        extra,
    })
}

/// Translates the tool choice; an allowed function must be in the request. One mode enforces the schemas of calls, so
/// it changes the tools.
pub(super) fn tool_choice(
    config: Option<wire::ToolConfig<'_>>,
    tools: &mut [Tool],
) -> Result<ToolChoice, FieldFault> {
    let Some(config) = config.and_then(|config| config.function_calling) else {
        return Ok(ToolChoice::Auto);
    };
    choice(config, tools).map_err(|fault| fault.within("toolConfig.functionCallingConfig"))
}

fn choice(
    config: wire::FunctionCallingConfig<'_>,
    tools: &mut [Tool],
) -> Result<ToolChoice, FieldFault> {
    let mode = config.mode.as_ref().map_or("AUTO", Text::as_str);
    let mut names = items(config.allowed);
    for (index, name) in names.iter().enumerate() {
        let is_known = |tool: &Tool| matches!(&tool.kind, ToolKind::Function(f) if f.name == *name);
        if !tools.iter().any(is_known) {
            let fault = FieldFault::new("", "must be the name of one of the functions");
            return Err(fault.at(index).within("allowedFunctionNames"));
        }
    }
    match mode {
        "ANY" if tools.is_empty() => Err(FieldFault::new("mode", "must not be ANY without tools")),
        "ANY" | "VALIDATED" => {
            for tool in tools {
                if let ToolKind::Function(function) = &mut tool.kind
                    && mode == "VALIDATED"
                {
                    function.strict = Some(true);
                }
            }
            let required = mode == "ANY";
            Ok(match names.len() {
                0 if required => ToolChoice::Required,
                0 => ToolChoice::Auto,
                1 if required => ToolChoice::Named(names.remove(0)),
                _ => ToolChoice::Among(AllowedTools { names, required }),
            })
        }
        "AUTO" | "MODE_UNSPECIFIED" | "NONE" if !names.is_empty() => Err(FieldFault::new(
            "allowedFunctionNames",
            "is for the modes ANY and VALIDATED only",
        )),
        "AUTO" | "MODE_UNSPECIFIED" => Ok(ToolChoice::Auto),
        "NONE" => Ok(ToolChoice::None),
        _ => Err(FieldFault::new(
            "mode",
            "must be one of AUTO, ANY, NONE, VALIDATED",
        )),
    }
}
