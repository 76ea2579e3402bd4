//! A request to the Responses API: structs that borrow from the request, serialized once.
//!
//! Some fields are omitted on purpose, and named as ignored, since they do not change the response: labels and hints
//! ([`is_advisory`]), cache hints, signatures, names of participants and seeds, and reasoning without its encrypted form.
//! To send a new field, add it to [`Body`].

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use weir_sdk::adapter::{Attachment, BodyPart, Failure, Request};
use weir_sdk::body::{self, Base64, Splices, Text};
use weir_sdk::chat::{
    CallKind, ChatRequest, Content, File, Image, Part, ResponseFormat, Role, Source, ToolCall,
    ToolChoice, ToolContent, ToolKind, ToolResult,
};
use weir_sdk::fields::is_advisory;
use weir_sdk::messages::{MESSAGE_MARK, content_name, misplaced};
use weir_sdk::wire::{Fields, Ignored, leave_out_extra, media_type, object, raw, refuse};

use super::DIALECT;
use crate::translate::effort;
use crate::translate::options::Options;

/// The smallest output limit that the API accepts.
const MIN_OUTPUT_TOKENS: u32 = 16;

/// Fields of this API alone that [`Body`] has, so that no option passes them.
const OWN_FIELDS: [&str; 6] = [
    "input",
    "text",
    "reasoning",
    "max_output_tokens",
    "store",
    "include",
];

/// Returns the phase in the mark of a message.
fn phase(mark: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Mark {
        phase: Option<String>,
    }
    serde_json::from_str::<Mark>(mark).ok()?.phase
}

/// Writes the body of the request; returns it with the names of omitted fields.
///
/// # Errors
///
/// [`FailureKind::Unsupported`](weir_sdk::adapter::FailureKind::Unsupported) with the name of a field that the API
/// does not have.
pub(in crate::translate) fn write(
    chat: &ChatRequest,
    request: &Request,
    options: &Options<'_>,
) -> Result<(Vec<BodyPart>, Vec<String>), Failure> {
    let splices = Splices::default();
    let mut writer = RequestWriter {
        chat,
        splices: &splices,
        attachments: &request.attachments,
        client_speaks_it: request.client.dialect == DIALECT,
        custom_calls: custom_calls(chat),
        ignored: Ignored::default(),
    };
    let mut body = writer.body(options)?;
    let names_end_user = body.user.is_some() || body.safety_identifier.is_some();
    if let Some(end_user) = request
        .client
        .end_user
        .as_deref()
        .filter(|_| !names_end_user)
    {
        match options.end_user_field {
            Some("safety_identifier") => body.safety_identifier = Some(EndUser::Id(end_user)),
            Some(_) => body.user = Some(EndUser::Id(end_user)),
            None => {}
        }
    }
    let bytes = splices
        .write(&body, body::estimated_bytes(chat))
        .map_err(|error| Failure::unsupported(error.to_string()))?;
    Ok((bytes, writer.ignored.into_names()))
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    input: Vec<InputItem<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<ToolChoiceValue<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel_tool_calls: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<TextConfig<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<Reasoning<'a>>,
    max_output_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    store: bool,
    include: [&'static str; 1],
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<EndUser<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    safety_identifier: Option<EndUser<'a>>,
    #[serde(flatten)]
    extra: Fields<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum EndUser<'a> {
    Id(&'a str),
    /// As the client wrote it.
    ClientJson(&'a RawValue),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum InputItem<'a> {
    Message {
        role: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        phase: Option<String>,
        content: Vec<ContentPart<'a>>,
    },
    Reasoning {
        /// Required, even if it is empty.
        summary: Vec<ReasoningSummary<'a>>,
        encrypted_content: &'a str,
    },
    FunctionCall {
        call_id: &'a str,
        name: &'a str,
        arguments: Text<'a>,
    },
    CustomToolCall {
        call_id: &'a str,
        name: &'a str,
        input: Text<'a>,
    },
    FunctionCallOutput {
        call_id: &'a str,
        output: CallOutput<'a>,
    },
    CustomToolCallOutput {
        call_id: &'a str,
        output: CallOutput<'a>,
    },
    /// The item of a hosted tool, as the client wrote it.
    #[serde(untagged)]
    Hosted(&'a RawValue),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ReasoningSummary<'a> {
    SummaryText { text: Text<'a> },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ContentPart<'a> {
    InputText {
        text: Text<'a>,
    },
    OutputText {
        text: Text<'a>,
    },
    Refusal {
        refusal: Text<'a>,
    },
    InputImage {
        #[serde(skip_serializing_if = "Option::is_none")]
        image_url: Option<ImageUrl<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        file_id: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        detail: Option<&'a str>,
    },
    InputFile {
        #[serde(skip_serializing_if = "Option::is_none")]
        file_url: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        file_id: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        filename: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        file_data: Option<Base64<'a>>,
    },
}

/// The result of a tool: one text, or parts.
#[derive(Serialize)]
#[serde(untagged)]
enum CallOutput<'a> {
    Text(Text<'a>),
    Parts(Vec<ContentPart<'a>>),
}

#[derive(Serialize)]
#[serde(untagged)]
enum ImageUrl<'a> {
    Url(&'a str),
    Data(Base64<'a>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Tool<'a> {
    Function {
        name: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<Text<'a>>,
        parameters: &'a RawValue,
        /// Required; `null` is the upstream's default.
        strict: Option<bool>,
    },
    Custom {
        name: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<Text<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        format: Option<&'a RawValue>,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
enum ToolChoiceValue<'a> {
    Mode(&'static str),
    Tool(NamedTool<'a>),
    Among {
        #[serde(rename = "type")]
        kind: &'static str,
        mode: &'static str,
        tools: Vec<NamedTool<'a>>,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum NamedTool<'a> {
    Function { name: &'a str },
    Custom { name: &'a str },
}

#[derive(Serialize)]
struct TextConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<TextFormat<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verbosity: Option<&'a RawValue>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum TextFormat<'a> {
    JsonObject,
    JsonSchema {
        /// Required here, unlike in the vocabulary.
        name: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        strict: Option<bool>,
        schema: &'a RawValue,
    },
}

#[derive(Serialize)]
struct Reasoning<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<&'a str>,
}

fn custom_calls(chat: &ChatRequest) -> Vec<&str> {
    let parts = chat.messages.iter().flat_map(|message| &message.parts);
    let ids = parts.filter_map(|part| match &part.content {
        Content::ToolCall(call) if call.kind == CallKind::Custom => Some(call.id.as_str()),
        _ => None,
    });
    ids.collect()
}

struct RequestWriter<'a> {
    chat: &'a ChatRequest,
    splices: &'a Splices,
    attachments: &'a [Attachment],
    /// The client speaks this dialect.
    client_speaks_it: bool,
    /// The ids of calls with free text in earlier turns.
    custom_calls: Vec<&'a str>,
    ignored: Ignored,
}

impl<'a> RequestWriter<'a> {
    fn body(&mut self, options: &Options<'_>) -> Result<Body<'a>, Failure> {
        let chat = self.chat;
        self.refuse_unsupported_fields()?;
        let mut body = Body {
            model: &chat.model,
            input: self.input()?,
            tools: self.tools()?,
            tool_choice: self.tool_choice(),
            parallel_tool_calls: chat.parallel_tool_calls.filter(|_| !chat.tools.is_empty()),
            text: None,
            reasoning: self.reasoning(options),
            max_output_tokens: chat.max_output_tokens.max(MIN_OUTPUT_TOKENS),
            temperature: chat.temperature,
            top_p: chat.top_p,
            store: false,
            include: ["reasoning.encrypted_content"],
            stream: chat.stream,
            user: None,
            safety_identifier: None,
            extra: Fields::default(),
        };
        let format = self.format()?;
        let mut verbosity = None;
        for (name, json) in &chat.extra {
            let client_json = raw(name, json)?;
            match name.as_str() {
                "user" => body.user = Some(EndUser::ClientJson(client_json)),
                "safety_identifier" => {
                    body.safety_identifier = Some(EndUser::ClientJson(client_json))
                }
                "verbosity" => verbosity = Some(client_json),
                "prompt_cache_key" => body.extra.add(name, client_json),
                "max_tool_calls" if self.client_speaks_it => body.extra.add(name, client_json),
                name if options.passes(name) && !OWN_FIELDS.contains(&name) => {
                    body.extra.add(name, client_json)
                }
                _ if is_advisory(name) => self.ignored.add(name),
                _ => return Err(refuse(name, name)),
            }
        }
        if format.is_some() || verbosity.is_some() {
            body.text = Some(TextConfig { format, verbosity });
        }
        Ok(body)
    }

    /// Refuses fields that change the response and have no place in this API.
    fn refuse_unsupported_fields(&mut self) -> Result<(), Failure> {
        let chat = self.chat;
        if let Some(modality) = chat.modalities.iter().find(|name| *name != "text") {
            return Err(refuse("modalities", format!("modalities: {modality}")));
        }
        let penalizes = |penalty: Option<f64>| penalty.is_some_and(|penalty| penalty != 0.0);
        for (name, is_set) in [
            ("top_k", chat.top_k.is_some()),
            ("presence_penalty", penalizes(chat.presence_penalty)),
            ("frequency_penalty", penalizes(chat.frequency_penalty)),
            ("stop", !chat.stop.is_empty()),
        ] {
            if is_set {
                return Err(refuse(name, name));
            }
        }
        self.ignored.add_if(chat.seed.is_some(), "seed");
        Ok(())
    }

    fn input(&mut self) -> Result<Vec<InputItem<'a>>, Failure> {
        let mut items = Vec::with_capacity(self.chat.messages.len());
        for (index, message) in self.chat.messages.iter().enumerate() {
            let at = format!("messages[{index}]");
            self.ignored.add_if(message.name.is_some(), "name");
            leave_out_extra(&message.extra, &at, &mut self.ignored)?;
            for part in &message.parts {
                self.add(part, message.role, &at, &mut items)?;
            }
        }
        // The text behind a mark may have been left out.
        items.retain(
            |item| !matches!(item, InputItem::Message { content, .. } if content.is_empty()),
        );
        Ok(items)
    }

    /// Adds a part to the last message of its role, or as an item of its own.
    fn add(
        &mut self,
        part: &'a Part,
        role: Role,
        at: &str,
        items: &mut Vec<InputItem<'a>>,
    ) -> Result<(), Failure> {
        self.ignored.add_if(part.cache.is_some(), "cache_control");
        self.ignored.add_if(part.signature.is_some(), "signature");
        leave_out_extra(&part.extra, at, &mut self.ignored)?;
        let content_part = match (&part.content, role) {
            (Content::ToolCall(call), Role::Assistant) => {
                items.push(self.call(call));
                return Ok(());
            }
            (Content::ToolResult(result), Role::Tool) => {
                items.push(self.result(result, at)?);
                return Ok(());
            }
            (Content::Reasoning(reasoning), Role::Assistant) => {
                let Some(encrypted_content) = &reasoning.sealed else {
                    self.ignored.add_if(!reasoning.text.is_empty(), "reasoning");
                    return Ok(());
                };
                let summary = (!reasoning.text.is_empty()).then(|| ReasoningSummary::SummaryText {
                    text: self.splices.text(&reasoning.text),
                });
                items.push(InputItem::Reasoning {
                    summary: summary.into_iter().collect(),
                    encrypted_content,
                });
                return Ok(());
            }
            (Content::Opaque(mark), Role::Assistant) if mark.kind == MESSAGE_MARK => {
                items.push(InputItem::Message {
                    role: "assistant",
                    phase: phase(&mark.json),
                    content: Vec::new(),
                });
                return Ok(());
            }
            (Content::Opaque(item), Role::Assistant) if self.client_speaks_it => {
                items.push(InputItem::Hosted(object(at, &item.json)?));
                return Ok(());
            }
            (Content::Text(text), Role::Assistant) => ContentPart::OutputText {
                text: self.splices.text(text),
            },
            (Content::Text(text), Role::System | Role::User) => ContentPart::InputText {
                text: self.splices.text(text),
            },
            (Content::Refusal(text), Role::Assistant) => ContentPart::Refusal {
                refusal: self.splices.text(text),
            },
            (Content::Image(image), Role::User) => self.image(image, at)?,
            (Content::File(file), Role::User) => self.file(file, at)?,
            (content, role) => {
                let what = misplaced(content_name(content), role);
                return Err(refuse(at, format!("{at}: {what}")));
            }
        };
        let role = match role {
            Role::System => "system",
            Role::Assistant => "assistant",
            Role::User | Role::Tool => "user",
        };
        match items.last_mut() {
            Some(InputItem::Message {
                role: last,
                content,
                ..
            }) if *last == role => content.push(content_part),
            _ => items.push(InputItem::Message {
                role,
                phase: None,
                content: vec![content_part],
            }),
        }
        Ok(())
    }

    fn image(&self, image: &'a Image, at: &str) -> Result<ContentPart<'a>, Failure> {
        let (image_url, file_id) = match &image.source {
            Source::Url(url) => (Some(ImageUrl::Url(url)), None),
            Source::Attachment(index) => {
                let media_type = media_type(self.attachments, *index, None, at)?;
                let data = self.splices.data_url(media_type, *index);
                (Some(ImageUrl::Data(data)), None)
            }
            Source::Id(id) => (None, Some(id.as_str())),
        };
        Ok(ContentPart::InputImage {
            image_url,
            file_id,
            detail: image.detail.as_deref(),
        })
    }

    fn file(&self, file: &'a File, at: &str) -> Result<ContentPart<'a>, Failure> {
        if file.context.is_some() {
            return Err(refuse(at, format!("{at}: the context of a file")));
        }
        if file.cite == Some(true) {
            return Err(refuse(at, format!("{at}: citations of a file")));
        }
        let (mut file_url, mut file_id, mut filename, mut file_data) = (None, None, None, None);
        match &file.source {
            Source::Url(url) => file_url = Some(url.as_str()),
            Source::Id(id) => file_id = Some(id.as_str()),
            Source::Attachment(index) => {
                let media_type =
                    media_type(self.attachments, *index, file.media_type.as_deref(), at)?;
                file_data = Some(self.splices.data_url(media_type, *index));
                // Required beside the data, and visible to the model.
                let name = file.title.as_ref().or(file.name.as_ref());
                filename = Some(name.map_or("document.pdf", String::as_str));
            }
        }
        Ok(ContentPart::InputFile {
            file_url,
            file_id,
            filename,
            file_data,
        })
    }

    fn call(&self, call: &'a ToolCall) -> InputItem<'a> {
        let (call_id, name) = (call.id.as_str(), call.name.as_str());
        let text = self.splices.text(&call.arguments);
        match call.kind {
            CallKind::Function => InputItem::FunctionCall {
                call_id,
                name,
                arguments: text,
            },
            CallKind::Custom => InputItem::CustomToolCall {
                call_id,
                name,
                input: text,
            },
        }
    }

    fn result(&self, result: &'a ToolResult, at: &str) -> Result<InputItem<'a>, Failure> {
        let call_id = result.call_id.as_str();
        // The dialect has no flag for an error, so the text says it to the model.
        let notice = result.is_error.then_some("The tool failed.");
        let mut parts = Vec::with_capacity(result.content.len() + 1);
        let text = |text: &'a str| ContentPart::InputText {
            text: self.splices.text(text),
        };
        parts.extend(notice.map(text));
        for content in &result.content {
            parts.push(match content {
                ToolContent::Text(result_text) => text(result_text),
                ToolContent::Image(image) => self.image(image, at)?,
                ToolContent::File(file) => self.file(file, at)?,
                ToolContent::Opaque(opaque) => {
                    return Err(refuse(at, format!("{at}: a {} block", opaque.kind)));
                }
            });
        }
        let output = match (parts.len(), parts.pop()) {
            (_, None) => CallOutput::Text(self.splices.text("")),
            (1, Some(ContentPart::InputText { text })) => CallOutput::Text(text),
            (_, Some(last)) => {
                parts.push(last);
                CallOutput::Parts(parts)
            }
        };
        Ok(match self.custom_calls.contains(&call_id) {
            true => InputItem::CustomToolCallOutput { call_id, output },
            false => InputItem::FunctionCallOutput { call_id, output },
        })
    }

    fn tools(&mut self) -> Result<Vec<Tool<'a>>, Failure> {
        let mut tools = Vec::with_capacity(self.chat.tools.len());
        for (index, tool) in self.chat.tools.iter().enumerate() {
            let at = format!("tools[{index}]");
            self.ignored.add_if(tool.cache.is_some(), "cache_control");
            leave_out_extra(&tool.extra, &at, &mut self.ignored)?;
            let text = |text: &'a String| self.splices.text(text);
            tools.push(match &tool.kind {
                ToolKind::Function(function) => Tool::Function {
                    name: &function.name,
                    description: function.description.as_ref().map(text),
                    parameters: object(&at, &function.input_schema)?,
                    // Elsewhere, an omitted `strict` means that the schema is not enforced.
                    strict: function
                        .strict
                        .or((!self.client_speaks_it).then_some(false)),
                },
                ToolKind::Custom(custom) => Tool::Custom {
                    name: &custom.name,
                    description: custom.description.as_ref().map(text),
                    format: match &custom.format {
                        Some(format) => Some(object(&at, format)?),
                        None => None,
                    },
                },
                ToolKind::BuiltIn(tool) => {
                    return Err(refuse(&at, format!("{at}: a tool of type {}", tool.kind)));
                }
            });
        }
        Ok(tools)
    }

    fn tool_choice(&self) -> Option<ToolChoiceValue<'a>> {
        let chat = self.chat;
        match &chat.tool_choice {
            // The upstream refuses a choice without tools.
            ToolChoice::None if chat.tools.is_empty() => None,
            ToolChoice::Auto => None,
            ToolChoice::None => Some(ToolChoiceValue::Mode("none")),
            ToolChoice::Required => Some(ToolChoiceValue::Mode("required")),
            ToolChoice::Named(name) => Some(ToolChoiceValue::Tool(self.named(name))),
            ToolChoice::Among(allowed) => Some(ToolChoiceValue::Among {
                kind: "allowed_tools",
                mode: if allowed.required { "required" } else { "auto" },
                tools: allowed.names.iter().map(|name| self.named(name)).collect(),
            }),
        }
    }

    fn named(&self, name: &'a str) -> NamedTool<'a> {
        let is_custom = self
            .chat
            .tools
            .iter()
            .any(|tool| matches!(&tool.kind, ToolKind::Custom(custom) if custom.name == name));
        match is_custom {
            true => NamedTool::Custom { name },
            false => NamedTool::Function { name },
        }
    }

    fn format(&self) -> Result<Option<TextFormat<'a>>, Failure> {
        Ok(match &self.chat.response_format {
            ResponseFormat::Text => None,
            ResponseFormat::Json => Some(TextFormat::JsonObject),
            ResponseFormat::JsonSchema(format) => Some(TextFormat::JsonSchema {
                name: format.name.as_deref().unwrap_or("response"),
                description: format.description.as_deref(),
                strict: format.strict,
                schema: object("response_format.json_schema.schema", &format.schema)?,
            }),
        })
    }

    fn reasoning(&mut self, options: &Options<'_>) -> Option<Reasoning<'a>> {
        let requested = &self.chat.reasoning;
        self.ignored
            .add_if(requested.budget_tokens.is_some(), "reasoning.budget_tokens");
        self.ignored
            .add_if(requested.adaptive.is_some(), "reasoning.adaptive");
        let is_in_vain = effort::is_in_vain(requested, options.efforts);
        self.ignored.add_if(is_in_vain, "reasoning_effort");
        let effort = effort::word(requested, options.efforts);
        let summary = match requested.summary.as_deref() {
            None | Some("none" | "omitted") => None,
            Some(word @ ("auto" | "concise" | "detailed")) => Some(word),
            // Another dialect's word for a summary.
            Some(_) => Some("auto"),
        };
        (effort.is_some() || summary.is_some()).then_some(Reasoning { effort, summary })
    }
}
