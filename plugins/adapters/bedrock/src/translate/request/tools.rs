//! The tools of a request, and the model's choice among them.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;
use weir_sdk::adapter::Failure;
use weir_sdk::chat::{self, ChatRequest, ToolKind};
use weir_sdk::custom;
use weir_sdk::wire::{self, refuse};

use super::{CachePoint, Context};
use crate::translate::fit;

/// The schema of a tool that is known by its calls alone.
const ANY_ARGUMENTS: &str = r#"{"type":"object"}"#;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolConfig<'a> {
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<ToolChoice<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Tool<'a> {
    ToolSpec(ToolSpec<'a>),
    CachePoint(CachePoint),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolSpec<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<Cow<'a, str>>,
    input_schema: InputSchema<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
}

#[derive(Serialize)]
struct InputSchema<'a> {
    json: &'a RawValue,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum ToolChoice<'a> {
    Any {},
    Tool { name: &'a str },
}

pub(super) fn translate<'a>(
    chat: &'a ChatRequest,
    context: &mut Context<'a>,
) -> Result<Option<ToolConfig<'a>>, Failure> {
    let mut tools = Vec::with_capacity(chat.tools.len());
    for (index, tool) in chat.tools.iter().enumerate() {
        let tool_spec = tool_spec(tool, &format!("tools[{index}]"), context)?;
        // The dialect has no choice among some tools: the others are omitted.
        let is_allowed = match &chat.tool_choice {
            chat::ToolChoice::Among(allowed) => {
                allowed.names.iter().any(|name| name == tool_spec.name)
            }
            _ => true,
        };
        if is_allowed {
            tools.push(Tool::ToolSpec(tool_spec));
            tools.extend(context.cache_point(tool.cache).map(Tool::CachePoint));
        }
    }
    let called = fit::called_tools(chat);
    // A conversation with calls needs tools: those of the calls.
    let needs_called = tools.is_empty() && !called.is_empty();
    if needs_called {
        let schema = wire::raw("", ANY_ARGUMENTS)?;
        tools.extend(called.iter().map(|name| {
            Tool::ToolSpec(ToolSpec {
                name,
                description: None,
                input_schema: InputSchema { json: schema },
                strict: None,
            })
        }));
    }
    if tools.is_empty() {
        return Ok(None);
    }
    context.ignored.add_if(
        chat.parallel_tool_calls == Some(false),
        "parallel_tool_calls",
    );
    let tool_choice = match &chat.tool_choice {
        // Without tools the model calls none, but the upstream refuses a conversation with calls and without tools.
        chat::ToolChoice::None if called.is_empty() => return Ok(None),
        chat::ToolChoice::None => {
            context.ignored.add("tool_choice");
            None
        }
        chat::ToolChoice::Auto => None,
        _ if needs_called => None,
        chat::ToolChoice::Required => Some(ToolChoice::Any {}),
        chat::ToolChoice::Named(name) => Some(ToolChoice::Tool { name }),
        chat::ToolChoice::Among(allowed) => allowed.required.then_some(ToolChoice::Any {}),
    };
    Ok(Some(ToolConfig { tools, tool_choice }))
}

fn tool_spec<'a>(
    tool: &'a chat::Tool,
    at: &str,
    context: &mut Context<'a>,
) -> Result<ToolSpec<'a>, Failure> {
    wire::leave_out_extra(&tool.extra, at, &mut context.ignored)?;
    Ok(match &tool.kind {
        ToolKind::Function(function) => {
            let description = function.description.as_deref();
            ToolSpec {
                name: &function.name,
                // The upstream refuses an empty description.
                description: description
                    .filter(|text| !text.is_empty())
                    .map(Cow::Borrowed),
                input_schema: InputSchema {
                    json: wire::object(&format!("{at}.parameters"), &function.input_schema)?,
                },
                // Off is the default, and not every model accepts the field.
                strict: function.strict.filter(|strict| *strict),
            }
        }
        ToolKind::Custom(tool) => {
            context
                .ignored
                .add_if(custom::has_grammar(tool), &format!("{at}.format"));
            let description = custom::description(tool);
            ToolSpec {
                name: &tool.name,
                description: (!description.is_empty()).then_some(Cow::Owned(description)),
                input_schema: InputSchema {
                    json: wire::raw("", custom::SCHEMA)?,
                },
                strict: None,
            }
        }
        ToolKind::BuiltIn(tool) => {
            return Err(refuse(at, format!("{at}: a tool of type {}", tool.kind)));
        }
    })
}
