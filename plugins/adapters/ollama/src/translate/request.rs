//! A request in this dialect.
//!
//! Some fields are omitted on purpose, and named as ignored, since they change neither the question nor its price:
//! cache marks, signatures, sealed reasoning, a budget of reasoning (the output limit bounds that, too), a schema's
//! name, and labels and hints of other dialects. The wish for calls one at a time is omitted, too: the upstream has
//! no field for it, and no client can rely on it with every model.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;
use weir_sdk::adapter::{BodyPart, Failure, Request};
use weir_sdk::body::{self, Base64, Splices, Text};
use weir_sdk::chat::{
    self, ChatRequest, Content, ReasoningEffort, ResponseFormat, Role, Source, ToolCall,
    ToolChoice, ToolContent, ToolKind, ToolResult,
};
use weir_sdk::custom;
use weir_sdk::fields::is_advisory;
use weir_sdk::messages::{CallArguments, content_name, misplaced};
use weir_sdk::wire::{self, Ignored, refuse};

pub(super) struct UpstreamRequest {
    pub(super) body: Vec<BodyPart>,
    /// The names of omitted fields.
    pub(super) ignored: Vec<String>,
}

/// The client dialect whose requests may have a suffix, and its field.
const COMPLETIONS: &str = "openai-completions";
const SUFFIX: &str = "suffix";

/// Returns the text after the place that the model fills in, if the request has one.
pub(super) fn suffix(chat: &ChatRequest, request: &Request) -> Result<Option<String>, Failure> {
    if request.client.dialect != COMPLETIONS {
        return Ok(None);
    }
    let mut extra = chat.extra.iter();
    let field = extra.find(|(name, _)| name == SUFFIX);
    field
        .map(|(name, json)| serde_json::from_str(json).map_err(|_| refuse(name, name)))
        .transpose()
}

/// Writes the request: with a suffix, for the other path.
///
/// # Errors
///
/// [`FailureKind::Unsupported`](weir_sdk::adapter::FailureKind::Unsupported) with the name of a field that the
/// dialect can't express.
pub(super) fn write(
    chat: &ChatRequest,
    request: &Request,
    context_tokens: Option<u32>,
    suffix: Option<String>,
) -> Result<UpstreamRequest, Failure> {
    let splices = Splices::default();
    let mut context = Context {
        request,
        splices: &splices,
        ignored: Ignored::default(),
    };
    let has_suffix = suffix.is_some();
    let mut messages = messages(chat, &mut context)?;
    let prompt = match &messages[..] {
        _ if !has_suffix => None,
        [prompt_message] if prompt_message.role == "user" && prompt_message.images.is_empty() => {
            messages.pop()
        }
        _ => return Err(refuse("messages", "messages: more than a prompt")),
    };
    let body = Body {
        model: &chat.model,
        messages,
        prompt: prompt.map(|message| message.content),
        suffix,
        tools: tools(chat, &mut context)?,
        format: format(chat, &mut context)?,
        think: think(chat, &mut context),
        stream: chat.stream,
        truncate: false,
        shift: false,
        options: options(chat, context_tokens, has_suffix, &mut context)?,
    };
    let body = splices
        .write(&body, body::estimated_bytes(chat))
        .map_err(|error| Failure::unsupported(error.to_string()))?;
    Ok(UpstreamRequest {
        body,
        ignored: context.ignored.into_names(),
    })
}

/// The inputs of a translation beside the translated piece, and its findings.
struct Context<'a> {
    request: &'a Request,
    splices: &'a Splices,
    ignored: Ignored,
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    messages: Vec<Message<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    suffix: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<OutputFormat<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    think: Option<ThinkOption>,
    stream: bool,
    /// Both off: input that exceeds the context is an error, and not silently truncated.
    truncate: bool,
    shift: bool,
    options: Options<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum OutputFormat<'a> {
    Json(&'static str),
    Schema(&'a RawValue),
}

#[derive(Serialize)]
#[serde(untagged)]
enum ThinkOption {
    Switch(bool),
    Level(&'static str),
}

#[derive(Serialize)]
struct Options<'a> {
    num_predict: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    num_ctx: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    presence_penalty: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    frequency_penalty: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<i64>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stop: &'a [String],
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Text<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    images: Vec<Base64<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<WireToolCall<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
}

#[derive(Serialize)]
struct WireToolCall<'a> {
    id: &'a str,
    function: CalledFunction<'a>,
}

#[derive(Serialize)]
struct CalledFunction<'a> {
    name: &'a str,
    arguments: CallArguments<'a>,
}

#[derive(Serialize)]
struct Tool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<Cow<'a, str>>,
    parameters: &'a RawValue,
}

fn format<'a>(
    chat: &'a ChatRequest,
    context: &mut Context<'a>,
) -> Result<Option<OutputFormat<'a>>, Failure> {
    Ok(match &chat.response_format {
        ResponseFormat::Text => None,
        ResponseFormat::Json => Some(OutputFormat::Json("json")),
        ResponseFormat::JsonSchema(schema) => {
            for (is_set, name) in [
                (schema.name.is_some(), "response_format.json_schema.name"),
                (
                    schema.description.is_some(),
                    "response_format.json_schema.description",
                ),
            ] {
                context.ignored.add_if(is_set, name);
            }
            let name = "response_format.json_schema.schema";
            Some(OutputFormat::Schema(wire::object(name, &schema.schema)?))
        }
    })
}

/// Returns the request for reasoning. Most models only turn it on or off; one family takes levels, and refuses every
/// other value.
fn think(chat: &ChatRequest, context: &mut Context<'_>) -> Option<ThinkOption> {
    let reasoning = &chat.reasoning;
    for (is_set, name) in [
        (reasoning.budget_tokens.is_some(), "reasoning.budget_tokens"),
        (reasoning.summary.is_some(), "reasoning.summary"),
    ] {
        context.ignored.add_if(is_set, name);
    }
    let takes_levels = chat.model.contains("gpt-oss");
    match reasoning.effort {
        Some(ReasoningEffort::Off) => Some(ThinkOption::Switch(false)),
        Some(effort) if takes_levels => Some(ThinkOption::Level(match effort {
            ReasoningEffort::Off | ReasoningEffort::Minimal | ReasoningEffort::Low => "low",
            ReasoningEffort::Medium => "medium",
            ReasoningEffort::High | ReasoningEffort::Highest => "high",
        })),
        Some(_) => Some(ThinkOption::Switch(true)),
        None if reasoning.budget_tokens.is_some() => Some(ThinkOption::Switch(true)),
        None => reasoning.adaptive.map(ThinkOption::Switch),
    }
}

fn options<'a>(
    chat: &'a ChatRequest,
    num_ctx: Option<u32>,
    has_suffix: bool,
    context: &mut Context<'a>,
) -> Result<Options<'a>, Failure> {
    if let Some(modality) = chat.modalities.iter().find(|name| *name != "text") {
        return Err(refuse("modalities", format!("modalities: {modality}")));
    }
    for (name, _) in &chat.extra {
        if has_suffix && name == SUFFIX {
            continue;
        }
        if !is_advisory(name) {
            return Err(refuse(name, name));
        }
        context.ignored.add(name);
    }
    Ok(Options {
        num_predict: chat.max_output_tokens,
        num_ctx,
        temperature: chat.temperature,
        top_p: chat.top_p,
        top_k: chat.top_k,
        presence_penalty: chat.presence_penalty,
        frequency_penalty: chat.frequency_penalty,
        seed: chat.seed,
        stop: &chat.stop,
    })
}

/// Returns the tools that the model may call. The dialect cannot require a call.
fn tools<'a>(chat: &'a ChatRequest, context: &mut Context<'a>) -> Result<Vec<Tool<'a>>, Failure> {
    let allowed: Option<&[String]> = match &chat.tool_choice {
        ToolChoice::Auto => None,
        ToolChoice::None => Some(&[]),
        ToolChoice::Among(allowed) if !allowed.required => Some(&allowed.names),
        ToolChoice::Required | ToolChoice::Named(_) | ToolChoice::Among(_) => {
            return Err(refuse(
                "tool_choice",
                "tool_choice: a tool that must be called",
            ));
        }
    };
    let mut tools = Vec::with_capacity(chat.tools.len());
    for (index, tool) in chat.tools.iter().enumerate() {
        let function = function(tool, &format!("tools[{index}]"), context)?;
        let is_allowed = |names: &[String]| names.iter().any(|name| name == function.name);
        if allowed.is_none_or(is_allowed) {
            let kind = "function";
            tools.push(Tool { kind, function });
        }
    }
    let is_sequential = chat.parallel_tool_calls == Some(false) && !tools.is_empty();
    context.ignored.add_if(is_sequential, "parallel_tool_calls");
    Ok(tools)
}

fn function<'a>(
    tool: &'a chat::Tool,
    at: &str,
    context: &mut Context<'a>,
) -> Result<Function<'a>, Failure> {
    wire::leave_out_extra(&tool.extra, at, &mut context.ignored)?;
    context
        .ignored
        .add_if(tool.cache.is_some(), "cache_control");
    match &tool.kind {
        ToolKind::Function(function) => {
            // The server does not enforce a call's schema.
            let strict = format!("{at}.strict");
            context
                .ignored
                .add_if(function.strict == Some(true), &strict);
            let parameters = format!("{at}.parameters");
            Ok(Function {
                name: &function.name,
                description: function.description.as_deref().map(Cow::Borrowed),
                parameters: wire::object(&parameters, &function.input_schema)?,
            })
        }
        ToolKind::Custom(tool) => {
            context
                .ignored
                .add_if(custom::has_grammar(tool), &format!("{at}.format"));
            Ok(Function {
                name: &tool.name,
                description: Some(Cow::Owned(custom::description(tool))),
                parameters: wire::raw("", custom::SCHEMA)?,
            })
        }
        ToolKind::BuiltIn(tool) => Err(refuse(at, format!("{at}: a tool of type {}", tool.kind))),
    }
}

fn messages<'a>(
    chat: &'a ChatRequest,
    context: &mut Context<'a>,
) -> Result<Vec<Message<'a>>, Failure> {
    let mut messages = Vec::with_capacity(chat.messages.len());
    for (index, message) in chat.messages.iter().enumerate() {
        let translator = MessageTranslator {
            path: format!("messages[{index}]"),
            message,
        };
        translator.add_to(&mut messages, context)?;
    }
    Ok(messages)
}

/// Translates a message. `path` names the message in refusals, such as `messages[0]`.
struct MessageTranslator<'a> {
    path: String,
    message: &'a chat::Message,
}

impl<'a> MessageTranslator<'a> {
    fn refuse(&self, what: &str) -> Failure {
        refuse(&self.path, format!("{}: {what}", self.path))
    }

    /// Adds a message. Here a message has one text, and each result is a message of its own.
    fn add_to(
        &self,
        messages: &mut Vec<Message<'a>>,
        context: &mut Context<'a>,
    ) -> Result<(), Failure> {
        let message = self.message;
        wire::leave_out_extra(&message.extra, &self.path, &mut context.ignored)?;
        let (mut texts, mut thoughts) = (Vec::new(), Vec::new());
        let (mut images, mut tool_calls, mut has_results) = (Vec::new(), Vec::new(), false);
        for part in &message.parts {
            wire::leave_out_extra(&part.extra, &self.path, &mut context.ignored)?;
            context
                .ignored
                .add_if(part.cache.is_some(), "cache_control");
            context
                .ignored
                .add_if(part.signature.is_some(), "signature");
            let is_from_model = message.role == Role::Assistant;
            match &part.content {
                Content::Text(text) | Content::Refusal(text) => texts.push(text.as_str()),
                Content::Image(image) if message.role == Role::User => {
                    context
                        .ignored
                        .add_if(image.detail.is_some(), "image_url.detail");
                    images.push(self.image(&image.source, context)?);
                }
                Content::Reasoning(reasoning) if is_from_model => {
                    context
                        .ignored
                        .add_if(reasoning.sealed.is_some(), "reasoning");
                    // Sealed reasoning alone has no text.
                    if !reasoning.text.is_empty() {
                        thoughts.push(reasoning.text.as_str());
                    }
                }
                Content::ToolCall(call) if is_from_model => tool_calls.push(self.call(call)?),
                Content::ToolResult(result) if !is_from_model => {
                    messages.push(self.result(result, context)?);
                    has_results = true;
                }
                other => return Err(self.refuse_for_role(other)),
            }
        }
        let thoughts = thoughts.join("\n");
        let has_content = !texts.is_empty() || !images.is_empty() || !tool_calls.is_empty();
        if has_content || !has_results {
            messages.push(Message {
                role: match message.role {
                    Role::System => "system",
                    Role::User | Role::Tool => "user",
                    Role::Assistant => "assistant",
                },
                content: context.splices.joined(&texts, "\n"),
                thinking: (!thoughts.is_empty()).then_some(thoughts),
                images,
                tool_calls,
                tool_name: None,
                tool_call_id: None,
            });
        }
        Ok(())
    }

    fn image(&self, source: &Source, context: &Context<'a>) -> Result<Base64<'a>, Failure> {
        let Source::Attachment(index) = *source else {
            return Err(self.refuse("an image that is not in the request"));
        };
        let attachments = &context.request.attachments;
        wire::media_type(attachments, index, None, &self.path)?;
        Ok(context.splices.base64(index))
    }

    fn call(&self, call: &'a ToolCall) -> Result<WireToolCall<'a>, Failure> {
        let arguments = CallArguments::of(call, &self.path)?;
        Ok(WireToolCall {
            id: &call.id,
            function: CalledFunction {
                name: &call.name,
                arguments,
            },
        })
    }

    fn result(
        &self,
        result: &'a ToolResult,
        context: &Context<'a>,
    ) -> Result<Message<'a>, Failure> {
        // The dialect has no flag for an error, so the text says it to the model.
        let mut texts: Vec<&str> = result
            .is_error
            .then_some("The tool failed.")
            .into_iter()
            .collect();
        for content in &result.content {
            match content {
                ToolContent::Text(text) => texts.push(text),
                ToolContent::Image(_) => return Err(self.refuse("an image that a tool saw")),
                ToolContent::File(_) => return Err(self.refuse("a file that a tool saw")),
                ToolContent::Opaque(opaque) => {
                    return Err(self.refuse(&format!("a {} block", opaque.kind)));
                }
            }
        }
        Ok(Message {
            role: "tool",
            content: context.splices.joined(&texts, "\n"),
            thinking: None,
            images: Vec::new(),
            tool_calls: Vec::new(),
            tool_name: result.tool_name.as_deref(),
            tool_call_id: Some(&result.call_id),
        })
    }

    fn refuse_for_role(&self, content: &Content) -> Failure {
        if let Content::Opaque(opaque) = content {
            return self.refuse(&format!("a {} block", opaque.kind));
        }
        self.refuse(&misplaced(content_name(content), self.message.role))
    }
}
