//! The tools of a request, and the model's choice among them.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;
use weir_sdk::adapter::Failure;
use weir_sdk::chat::{self, ChatRequest, ToolKind};
use weir_sdk::custom;
use weir_sdk::wire::{self, Fields, refuse};

use super::{CacheControl, Context};

/// Fields of a tool that this module writes; extra fields can't be these.
const TOOL_FIELDS: [&str; 4] = ["name", "description", "input_schema", "strict"];

#[derive(Serialize)]
pub(super) struct Tool<'a> {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_schema: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
    #[serde(flatten)]
    configuration: Fields<'a>,
    #[serde(flatten)]
    extra: Fields<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
pub(super) struct ToolChoice<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disable_parallel_tool_use: Option<bool>,
}

pub(super) fn translate<'a>(
    chat: &'a ChatRequest,
    context: &mut Context<'a>,
) -> Result<(Vec<Tool<'a>>, Option<ToolChoice<'a>>), Failure> {
    let mut tools = Vec::with_capacity(chat.tools.len());
    for (index, tool) in chat.tools.iter().enumerate() {
        // The dialect has no choice among some tools: the others are omitted.
        let is_allowed = match &chat.tool_choice {
            chat::ToolChoice::Among(allowed) => allowed
                .names
                .iter()
                .any(|name| Some(&**name) == name_of(tool)),
            _ => true,
        };
        if is_allowed {
            tools.push(translate_tool(tool, &format!("tools[{index}]"), context)?);
        }
    }
    let choice = translate_choice(chat, !tools.is_empty());
    Ok((tools, choice))
}

fn name_of(tool: &chat::Tool) -> Option<&str> {
    match &tool.kind {
        ToolKind::Function(function) => Some(&function.name),
        ToolKind::Custom(custom) => Some(&custom.name),
        ToolKind::BuiltIn(tool) => tool.name.as_deref(),
    }
}

fn translate_choice(chat: &ChatRequest, has_tools: bool) -> Option<ToolChoice<'_>> {
    let one_at_a_time = (chat.parallel_tool_calls == Some(false) && has_tools).then_some(true);
    let choice = |kind, name| {
        Some(ToolChoice {
            kind,
            name,
            disable_parallel_tool_use: one_at_a_time,
        })
    };
    let auto = || one_at_a_time.and_then(|_| choice("auto", None));
    match &chat.tool_choice {
        chat::ToolChoice::Auto => auto(),
        chat::ToolChoice::None => has_tools.then_some(ToolChoice {
            kind: "none",
            name: None,
            disable_parallel_tool_use: None,
        }),
        chat::ToolChoice::Required => choice("any", None),
        chat::ToolChoice::Named(name) => choice("tool", Some(name)),
        chat::ToolChoice::Among(allowed) if allowed.required => choice("any", None),
        chat::ToolChoice::Among(_) => auto(),
    }
}

fn translate_tool<'a>(
    tool: &'a chat::Tool,
    at: &str,
    context: &mut Context<'a>,
) -> Result<Tool<'a>, Failure> {
    // A more specific mark of the client is among the extra fields.
    let own: &[&str] = match tool.cache {
        Some(_) => &["type", "name", "cache_control"],
        None => &["type", "name"],
    };
    let wire_tool = match &tool.kind {
        ToolKind::Function(function) => Tool {
            kind: None,
            name: Some(&function.name),
            description: function.description.as_deref().map(Cow::Borrowed),
            input_schema: Some(wire::object(
                &format!("{at}.parameters"),
                &function.input_schema,
            )?),
            // Off is the default, and older models accept no other value.
            strict: function.strict.filter(|strict| *strict),
            configuration: Fields::default(),
            extra: Fields::default(),
            cache_control: None,
        },
        ToolKind::Custom(tool) => {
            context
                .ignored
                .add_if(custom::has_grammar(tool), &format!("{at}.format"));
            Tool {
                kind: None,
                name: Some(&tool.name),
                description: Some(Cow::Owned(custom::description(tool))),
                input_schema: Some(wire::raw("", custom::SCHEMA)?),
                strict: None,
                configuration: Fields::default(),
                extra: Fields::default(),
                cache_control: None,
            }
        }
        ToolKind::BuiltIn(tool) if context.client_speaks_it => Tool {
            kind: Some(&tool.kind),
            name: tool.name.as_deref(),
            description: None,
            input_schema: None,
            strict: None,
            configuration: Fields::of_object(&tool.configuration, own, at)?,
            extra: Fields::default(),
            cache_control: None,
        },
        ToolKind::BuiltIn(tool) => {
            return Err(refuse(at, format!("{at}: a tool of type {}", tool.kind)));
        }
    };
    Ok(Tool {
        extra: context.extra(&tool.extra, &TOOL_FIELDS, at)?,
        cache_control: CacheControl::beside(&tool.extra, tool.cache),
        ..wire_tool
    })
}
