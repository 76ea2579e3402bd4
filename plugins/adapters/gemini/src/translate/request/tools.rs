//! The tools of a request, and the model's choice among them.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;
use weir_sdk::adapter::Failure;
use weir_sdk::chat::{ChatRequest, Tool, ToolChoice, ToolKind};
use weir_sdk::custom;
use weir_sdk::wire::{self, Fields, refuse};

use super::Context;

/// The fields of a function that pass from a client of this dialect.
const RESULT_SCHEMAS: [&str; 2] = ["response", "responseJsonSchema"];

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolDeclarations<'a> {
    function_declarations: Vec<FunctionDeclaration<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FunctionDeclaration<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<Cow<'a, str>>,
    parameters_json_schema: &'a RawValue,
    /// The schemas of results, from a client of this dialect.
    #[serde(flatten)]
    extra: Fields<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolConfig<'a> {
    function_calling_config: FunctionCallingConfig<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FunctionCallingConfig<'a> {
    mode: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    allowed_function_names: Vec<&'a str>,
}

type ToolsAndConfig<'a> = (Option<ToolDeclarations<'a>>, Option<ToolConfig<'a>>);

pub(super) fn translate<'a>(
    chat: &'a ChatRequest,
    context: &mut Context<'a>,
) -> Result<ToolsAndConfig<'a>, Failure> {
    let mut function_declarations = Vec::with_capacity(chat.tools.len());
    let mut is_strict = false;
    for (index, tool) in chat.tools.iter().enumerate() {
        let at = format!("tools[{index}]");
        let function = function(tool, &at, context)?;
        // The dialect has no optional choice among some tools: the others are omitted.
        let is_allowed = match &chat.tool_choice {
            ToolChoice::Among(allowed) if !allowed.required => {
                allowed.names.iter().any(|name| name == function.name)
            }
            _ => true,
        };
        if is_allowed {
            is_strict |= matches!(&tool.kind, ToolKind::Function(f) if f.strict == Some(true));
            function_declarations.push(function);
        }
    }
    if function_declarations.is_empty() {
        return Ok((None, None));
    }
    context.ignored.add_if(
        chat.parallel_tool_calls == Some(false),
        "parallel_tool_calls",
    );
    let config = |mode, allowed_function_names| {
        Some(ToolConfig {
            function_calling_config: FunctionCallingConfig {
                mode,
                allowed_function_names,
            },
        })
    };
    let config = match &chat.tool_choice {
        ToolChoice::None => config("NONE", Vec::new()),
        ToolChoice::Required => config("ANY", Vec::new()),
        ToolChoice::Named(name) => config("ANY", vec![name.as_str()]),
        ToolChoice::Among(allowed) if allowed.required => {
            config("ANY", allowed.names.iter().map(String::as_str).collect())
        }
        // The mode that enforces the schemas of calls, as the other modes do anyway.
        ToolChoice::Auto | ToolChoice::Among(_) if is_strict => config("VALIDATED", Vec::new()),
        ToolChoice::Auto | ToolChoice::Among(_) => None,
    };
    Ok((
        Some(ToolDeclarations {
            function_declarations,
        }),
        config,
    ))
}

fn function<'a>(
    tool: &'a Tool,
    at: &str,
    context: &mut Context<'a>,
) -> Result<FunctionDeclaration<'a>, Failure> {
    let mut extra = Fields::default();
    for field in &tool.extra {
        let (name, json) = field;
        if context.client_speaks_it && RESULT_SCHEMAS.contains(&name.as_str()) {
            extra.add(name, wire::raw(name, json)?);
        } else {
            wire::leave_out_extra(std::slice::from_ref(field), at, &mut context.ignored)?;
        }
    }
    context
        .ignored
        .add_if(tool.cache.is_some(), "cache_control");
    match &tool.kind {
        ToolKind::Function(function) => Ok(FunctionDeclaration {
            name: &function.name,
            description: function.description.as_deref().map(Cow::Borrowed),
            parameters_json_schema: wire::object(
                &format!("{at}.parameters"),
                &function.input_schema,
            )?,
            extra,
        }),
        ToolKind::Custom(tool) => {
            context
                .ignored
                .add_if(custom::has_grammar(tool), &format!("{at}.format"));
            Ok(FunctionDeclaration {
                name: &tool.name,
                description: Some(Cow::Owned(custom::description(tool))),
                parameters_json_schema: wire::raw("", custom::SCHEMA)?,
                extra,
            })
        }
        ToolKind::BuiltIn(tool) => Err(refuse(at, format!("{at}: a tool of type {}", tool.kind))),
    }
}
