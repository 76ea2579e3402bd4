//! The tools and the tool choice of OpenAI's two dialects, which differ in the layout of the fields only.

use weir_sandbox::adapter::bindings::chat::{
    AllowedTools, FunctionTool, Tool, ToolChoice, ToolKind,
};

use crate::json::{BoundedList, FieldFault, MAX_TOOLS, Raw, Text, check_is_object, each, required};
use crate::tool_names::is_tool_name;

/// The longest `type` of a tool, and the longest name of a built-in tool, in characters.
pub(crate) const MAX_TYPE_CHARS: usize = 64;

const NO_PARAMETERS: &str = r#"{"type":"object","properties":{}}"#;

/// Reads a function that the client runs.
pub(crate) fn function_tool(
    name: Option<String>,
    description: Option<String>,
    parameters: Option<Raw<'_>>,
    strict: Option<bool>,
) -> Result<FunctionTool, FieldFault> {
    let name = tool_name(name)?;
    let input_schema = parameters.map_or(NO_PARAMETERS, |parameters| parameters.0);
    check_is_object(input_schema, "parameters")?;
    Ok(FunctionTool {
        name,
        description,
        input_schema: input_schema.to_owned(),
        strict,
    })
}

/// Reads the name of a tool that the client runs.
pub(crate) fn tool_name(name: Option<String>) -> Result<String, FieldFault> {
    let name = required(name, "name")?;
    if !is_tool_name(&name) {
        return Err(FieldFault::new(
            "name",
            "must be 1 to 64 characters of a-z, A-Z, 0-9, _ and -",
        ));
    }
    Ok(name)
}

/// Reads a tool choice that is a word. `named` says in the error what an object in its place names.
pub(crate) fn choice_by_mode(
    mode: &str,
    named: &str,
    tools: &[Tool],
) -> Result<ToolChoice, FieldFault> {
    match mode {
        "auto" => Ok(ToolChoice::Auto),
        "none" => Ok(ToolChoice::None),
        "required" if tools.is_empty() => Err(FieldFault::new(
            "tool_choice",
            "must not be required without tools",
        )),
        "required" => Ok(ToolChoice::Required),
        _ => Err(FieldFault::new(
            "tool_choice",
            format!("must be one of none, auto, required, or an object that names a {named}"),
        )),
    }
}

/// Reads a choice among some of the request's tools.
pub(crate) fn choice_among<Named>(
    mode: Option<Text<'_>>,
    tools: Option<BoundedList<Named, MAX_TOOLS>>,
    name_of: impl FnMut(Named) -> Result<String, FieldFault>,
) -> Result<ToolChoice, FieldFault> {
    let is_required = match required(mode, "mode")?.as_str() {
        "auto" => false,
        "required" => true,
        _ => return Err(FieldFault::new("mode", "must be one of auto, required")),
    };
    let names = each(required(tools, "tools")?.0, "tools", name_of)?;
    if names.is_empty() {
        return Err(FieldFault::new("tools", "must not be empty"));
    }
    Ok(ToolChoice::Among(AllowedTools {
        names,
        required: is_required,
    }))
}

/// Checks that the request has a tool of the type `kind` with this name.
pub(crate) fn check_has_tool(name: &str, kind: &str, tools: &[Tool]) -> Result<(), FieldFault> {
    let is_known = tools.iter().any(|tool| match &tool.kind {
        ToolKind::Function(function) => kind == "function" && function.name == name,
        ToolKind::Custom(custom) => kind == "custom" && custom.name == name,
        ToolKind::BuiltIn(_) => false,
    });
    match is_known {
        true => Ok(()),
        false => Err(FieldFault::new(
            "name",
            "must be the name of one of the tools",
        )),
    }
}
