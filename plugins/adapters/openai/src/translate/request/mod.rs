//! A request in this dialect, written directly into the sent bytes.
//!
//! A value without a place in the dialect is refused during the write: the messages are walked once, and no tree is
//! built.
//!
//! Some fields are omitted on purpose, and named as ignored, since they do not change the response: labels, service
//! tiers and similar ones ([`is_advisory`]), cache hints (OpenAI caches prefixes by itself), signatures (this dialect
//! has none, except for calls of Google's server), and the display of reasoning. Without the option `reasoning-field`,
//! the reasoning of earlier turns, open or sealed, is omitted as well: a refusal would end every conversation with a
//! reasoning model at its second turn.

mod messages;
mod tools;

use std::cell::RefCell;
use std::fmt::Display;

use serde::ser::{Error as _, SerializeMap};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use weir_sdk::adapter::{Attachment, BodyPart, Failure, Request};
use weir_sdk::body::{self, Splices};
use weir_sdk::chat::{ChatRequest, ExtraField, JsonSchema, ResponseFormat};
use weir_sdk::fields::{is_advisory, is_advisory_within};

use super::options::Options;
use super::{DIALECT, effort};
use messages::Messages;

/// Fields beyond the vocabulary that pass unchanged: none changes the price, makes the upstream store more data, or
/// requests a response that [`chat_response`](super::chat_response) can't read. The list therefore excludes `prediction`, whose
/// rejected tokens are billed as output, `prompt_cache_retention`, and `metadata`, which OpenAI refuses unless the
/// response is stored.
const PASSED_FIELDS: [&str; 5] = [
    "user",
    "logit_bias",
    "verbosity",
    "prompt_cache_key",
    "safety_identifier",
];

/// Fields whose response only a client of this dialect can read.
const DIALECT_FIELDS: [&str; 2] = ["logprobs", "top_logprobs"];

pub(super) struct UpstreamRequest {
    pub(super) body: Vec<BodyPart>,
    /// The names of omitted fields.
    pub(super) ignored: Vec<String>,
}

pub(super) fn requests_logprobs(chat: &ChatRequest) -> bool {
    let mut extra = chat.extra.iter();
    extra.any(|(name, json)| name == "logprobs" && json == "true")
}

/// Writes the body of the request.
///
/// # Errors
///
/// [`FailureKind::Unsupported`](weir_sdk::adapter::FailureKind::Unsupported) with the name of a field that the
/// dialect can't express.
pub(super) fn write(
    chat: &ChatRequest,
    request: &Request,
    options: &Options<'_>,
) -> Result<UpstreamRequest, Failure> {
    let context = Context::new(request, options);
    let content = Body::new(chat, &context);
    let body = context.splices.write(&content, body::estimated_bytes(chat));
    context.finish(body)
}

/// The inputs of a write beside the written piece, and its findings.
pub(super) struct Context<'a> {
    options: &'a Options<'a>,
    attachments: &'a [Attachment],
    end_user: Option<&'a str>,
    /// The client speaks this dialect: fields outside the vocabulary pass unchanged.
    client_speaks_it: bool,
    pub(super) splices: Splices,
    ignored: RefCell<Vec<String>>,
    /// The refusal that stopped the serializer.
    refusal: RefCell<Option<Failure>>,
}

impl<'a> Context<'a> {
    pub(super) fn new(request: &'a Request, options: &'a Options<'a>) -> Self {
        Self {
            options,
            attachments: &request.attachments,
            end_user: request.client.end_user.as_deref(),
            client_speaks_it: request.client.dialect == DIALECT,
            splices: Splices::default(),
            ignored: RefCell::default(),
            refusal: RefCell::default(),
        }
    }

    /// Returns the written body with the names of omitted fields, or the refusal that stopped the serializer.
    pub(super) fn finish(
        &self,
        result: Result<Vec<BodyPart>, serde_json::Error>,
    ) -> Result<UpstreamRequest, Failure> {
        match result {
            Ok(body) => Ok(UpstreamRequest {
                body,
                ignored: self.ignored.take(),
            }),
            Err(error) => {
                let refusal = self.refusal.take();
                Err(refusal.unwrap_or_else(|| Failure::unsupported(error.to_string())))
            }
        }
    }
}

impl Context<'_> {
    /// Names an omitted field, once.
    fn ignore(&self, name: &str) {
        let mut ignored = self.ignored.borrow_mut();
        if !ignored.iter().any(|known| known == name) {
            ignored.push(name.to_owned());
        }
    }

    /// Refuses the request. An empty `param` names no field.
    pub(super) fn refuse<E: serde::ser::Error>(&self, param: &str, what: impl Into<String>) -> E {
        self.fail(Failure::unsupported(what).with_param(param))
    }

    /// Stops the write with this failure.
    fn fail<E: serde::ser::Error>(&self, failure: Failure) -> E {
        self.refusal.replace(Some(failure));
        E::custom("refused")
    }

    /// Returns whether an extra field of a message, a part or a tool is another dialect's, and advisory.
    fn leaves_out(&self, name: &str) -> bool {
        !self.client_speaks_it && is_advisory_within(name)
    }

    /// Adds the fields that a client of this dialect wrote beside those of the vocabulary. `at` is their place, `own`
    /// the fields that this module writes.
    fn extra<M: SerializeMap>(
        &self,
        map: &mut M,
        extra: &[ExtraField],
        own: &[&str],
        at: impl Display,
    ) -> Result<(), M::Error> {
        for (name, json) in extra {
            if self.leaves_out(name) {
                self.ignore(name);
                continue;
            }
            if !self.client_speaks_it || own.contains(&name.as_str()) {
                return Err(self.refuse(&format!("{at}.{name}"), format!("{at}: {name}")));
            }
            map.serialize_entry(name, &RawJson { field: name, json })?;
        }
        Ok(())
    }
}

pub(super) struct Body<'a> {
    pub(super) chat: &'a ChatRequest,
    pub(super) context: &'a Context<'a>,
}

impl Serialize for Body<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { chat, context } = *self;
        let mut body = serializer.serialize_map(None)?;
        body.serialize_entry("model", &chat.model)?;
        body.serialize_entry("messages", &Messages { chat, context })?;
        tools::write(&mut body, chat, context)?;
        self.write_format(&mut body)?;
        self.write_reasoning(&mut body)?;
        body.serialize_entry(context.options.output_limit_field, &chat.max_output_tokens)?;
        self.write_temperature(&mut body)?;
        if chat.top_k.is_some() && !context.options.passes("top_k") {
            return Err(context.refuse("top_k", "top_k"));
        }
        entry_if(&mut body, "top_k", chat.top_k)?;
        self.write_penalties(&mut body)?;
        entry_if(&mut body, "seed", chat.seed)?;
        self.write_stop(&mut body)?;
        self.write_stream(&mut body)?;
        self.write_extra(&mut body, &[])?;
        body.end()
    }
}

impl<'a> Body<'a> {
    pub(super) fn new(chat: &'a ChatRequest, context: &'a Context<'a>) -> Self {
        Self { chat, context }
    }
}

impl Body<'_> {
    fn write_format<M: SerializeMap>(&self, body: &mut M) -> Result<(), M::Error> {
        if let Some(modality) = self.chat.modalities.iter().find(|name| *name != "text") {
            let what = format!("modalities: {modality}");
            return Err(self.context.refuse("modalities", what));
        }
        match &self.chat.response_format {
            ResponseFormat::Text => Ok(()),
            ResponseFormat::Json => body.serialize_entry(
                "response_format",
                &FormatType {
                    kind: "json_object",
                },
            ),
            ResponseFormat::JsonSchema(JsonSchema {
                name,
                description,
                strict,
                schema,
            }) => body.serialize_entry(
                "response_format",
                &JsonSchemaFormat {
                    kind: "json_schema",
                    json_schema: NamedSchema {
                        // The field is required here, unlike in the vocabulary.
                        name: name.as_deref().unwrap_or("response"),
                        description: description.as_deref(),
                        strict: *strict,
                        schema: RawJson {
                            field: "response_format.json_schema.schema",
                            json: schema,
                        },
                    },
                },
            ),
        }
    }

    fn write_reasoning<M: SerializeMap>(&self, body: &mut M) -> Result<(), M::Error> {
        let reasoning = &self.chat.reasoning;
        if reasoning.budget_tokens.is_some() {
            self.context.ignore("reasoning.budget_tokens");
        }
        if reasoning.summary.is_some() {
            self.context.ignore("reasoning.summary");
        }
        if reasoning.adaptive.is_some() {
            self.context.ignore("reasoning.adaptive");
        }
        let efforts = self.context.options.efforts;
        if effort::is_in_vain(reasoning, efforts) {
            self.context.ignore("reasoning_effort");
        }
        let effort = effort::word(reasoning, efforts);
        entry_if(body, "reasoning_effort", effort)
    }

    pub(super) fn write_temperature<M: SerializeMap>(&self, body: &mut M) -> Result<(), M::Error> {
        entry_if(body, "temperature", self.chat.temperature)?;
        entry_if(body, "top_p", self.chat.top_p)
    }

    pub(super) fn write_penalties<M: SerializeMap>(&self, body: &mut M) -> Result<(), M::Error> {
        entry_if(body, "presence_penalty", self.chat.presence_penalty)?;
        entry_if(body, "frequency_penalty", self.chat.frequency_penalty)
    }

    pub(super) fn write_stop<M: SerializeMap>(&self, body: &mut M) -> Result<(), M::Error> {
        let stop = &self.chat.stop;
        entry_if(body, "stop", (!stop.is_empty()).then_some(stop))
    }

    pub(super) fn write_stream<M: SerializeMap>(&self, body: &mut M) -> Result<(), M::Error> {
        if !self.chat.stream {
            return Ok(());
        }
        body.serialize_entry("stream", &true)?;
        let options = StreamOptions {
            include_usage: true,
        };
        let options = self.context.options.stream_usage.then_some(options);
        entry_if(body, "stream_options", options)
    }

    /// Writes the fields beyond the vocabulary. `own` are those of the API.
    pub(super) fn write_extra<M: SerializeMap>(
        &self,
        body: &mut M,
        own: &[&str],
    ) -> Result<(), M::Error> {
        let Self { chat, context } = *self;
        let mut names_end_user = false;
        for (name, json) in &chat.extra {
            let passes = PASSED_FIELDS.contains(&name.as_str())
                || own.contains(&name.as_str())
                || context.client_speaks_it && DIALECT_FIELDS.contains(&name.as_str())
                || context.options.passes(name);
            if !passes {
                if is_advisory(name) {
                    context.ignore(name);
                    continue;
                }
                return Err(context.refuse(name, name));
            }
            names_end_user |= matches!(name.as_str(), "user" | "safety_identifier");
            body.serialize_entry(name, &RawJson { field: name, json })?;
        }
        match (context.options.end_user_field, context.end_user) {
            (Some(field), Some(end_user)) if !names_end_user => {
                body.serialize_entry(field, end_user)
            }
            _ => Ok(()),
        }
    }
}

pub(super) fn entry_if<M: SerializeMap>(
    map: &mut M,
    name: &str,
    value: Option<impl Serialize>,
) -> Result<(), M::Error> {
    match value {
        Some(value) => map.serialize_entry(name, &value),
        None => Ok(()),
    }
}

#[derive(Serialize)]
struct FormatType {
    #[serde(rename = "type")]
    kind: &'static str,
}

#[derive(Serialize)]
struct JsonSchemaFormat<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    json_schema: NamedSchema<'a>,
}

#[derive(Serialize)]
struct NamedSchema<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
    schema: RawJson<'a>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

/// JSON that passes unchanged as text.
struct RawJson<'a> {
    field: &'a str,
    json: &'a str,
}

impl Serialize for RawJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Parsed, so that no text can break out of its place in the body.
        let json: &RawValue = serde_json::from_str(self.json)
            .map_err(|error| S::Error::custom(format_args!("{}: {error}", self.field)))?;
        json.serialize(serializer)
    }
}
