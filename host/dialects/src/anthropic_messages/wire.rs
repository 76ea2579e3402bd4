//! The JSON of a request: its objects, and the types of their fields.
//!
//! [`super::request`], [`super::content`] and [`super::tools`] interpret the values. A block is parsed from raw JSON
//! after its message: a block of an unknown type is passed on unchanged.

use serde_json::{Value, json};

use crate::json::{
    BoundedList, ExtraFields, IgnoredField, ListItem, MAX_EXTRA, MAX_EXTRA_WITHIN, MAX_MESSAGES,
    MAX_PARTS, MAX_STOPS, MAX_TOOLS, Raw, RefusedFields, Text, TextOr, UnsupportedField, object,
};
use crate::schema::{Described as _, KnownFields, Schemas};

/// The maximum characters of a model's name.
pub(super) const MAX_MODEL_CHARS: usize = 256;
/// The maximum characters of a stop sequence.
pub(super) const MAX_STOP_CHARS: usize = 1_024;
/// The maximum characters of an end user's id.
pub(super) const MAX_USER_CHARS: usize = 512;
/// The maximum characters of the word for the display of reasoning.
pub(super) const MAX_DISPLAY_CHARS: usize = 64;
/// The maximum characters of a block's type or of a provider's name.
pub(super) const MAX_NAME_CHARS: usize = 64;
/// The maximum characters of a document's title.
pub(super) const MAX_TITLE_CHARS: usize = 1_024;
/// The maximum characters of a tool's type or name.
pub(super) const MAX_TOOL_CHARS: usize = 128;

/// Fields of Anthropic's servers (anthropic 2.14.0, `types/message_create_params.py` and `types/beta`).
const PASSED_ON: KnownFields = &[
    ("billing_policy", "The account that pays the provider."),
    (
        "cache_control",
        "The end of a beginning that the provider's cache may keep, at the end of the request.",
    ),
    ("compaction", "The rules that shorten a long conversation."),
    (
        "container",
        "The id of a container in which the provider's tools run.",
    ),
    (
        "context_management",
        "The rules that remove old parts of a conversation.",
    ),
    ("diagnostics", "The settings of the provider's diagnosis."),
    ("fallbacks", "The provider's own fallback models."),
    (
        "inference_geo",
        "The region in which the provider serves the request.",
    ),
    ("mcp_servers", "The MCP servers that the provider calls."),
    (
        "service_tier",
        "The provider's class of service: `auto` or `standard_only`.",
    ),
    (
        "speed",
        "The provider's mode of speed: `standard` or `fast`.",
    ),
    ("thread", "The conversation that the provider keeps."),
];

object! {
    /// A request in Anthropic's Messages. Fields that weir does not know go on to the provider.
    struct MessagesRequestBody<'de> as "MessagesRequest" {
        /// The id of a model, as `GET /models` lists them.
        "model": model: Text<'de> = [Required, Chars(1, MAX_MODEL_CHARS)],
        /// The conversation so far.
        "messages": messages: Messages<'de> = [Required, Items(1)],
        /// The system prompt: a text, or a list of text blocks.
        "system": system: AnthropicContent<'de> = [Is(content_schema)],
        /// The maximum tokens of the response, thinking included.
        "max_tokens": max_tokens: u32 = [Required, AtLeast(1)],
        /// The tools that the model may call.
        "tools": tools: BoundedList<AnthropicTool<'de>, MAX_TOOLS>,
        /// The choice of a tool; the model chooses unless set.
        "tool_choice": tool_choice: AnthropicToolChoice<'de>,
        /// The settings of the model's thinking.
        "thinking": thinking: Thinking<'de>,
        /// The effort and the form of the response.
        "output_config": output_config: OutputConfig<'de>,
        /// The earlier name of `output_config.format`.
        "output_format": output_format: AnthropicFormat<'de>,
        /// Facts about the request.
        "metadata": metadata: Metadata<'de>,
        /// The sampling temperature: a low one makes the response more predictable.
        "temperature": temperature: f64 = [Between(0.0, 1.0)],
        /// The share of probability from which tokens are sampled.
        "top_p": top_p: f64 = [Between(0.0, 1.0)],
        /// The number of likeliest tokens from which one is sampled.
        "top_k": top_k: u32 = [AtLeast(1)],
        /// Texts before which the response ends.
        "stop_sequences": stop_sequences: BoundedList<String, MAX_STOPS> = [EachChars(1, MAX_STOP_CHARS)],
        /// Whether weir streams the response as server-sent events.
        "stream": stream: bool,
        "session_id": session_id: UnsupportedField,
        others: ExtraFields<'de, MAX_EXTRA> = PASSED_ON,
    }
}

/// The messages of a body.
pub(super) type Messages<'de> = BoundedList<AnthropicMessageParam<'de>, MAX_MESSAGES>;

object! {
    /// A message of a conversation.
    struct AnthropicMessageParam<'de> as "MessagesMessage" {
        /// The author's role.
        "role": role: Text<'de> = [Required, OneOf(&["user", "assistant", "system"])],
        /// A text, or a list of blocks.
        "content": content: AnthropicContent<'de> = [Required, Is(content_schema), Items(1)],
        others: ExtraFields<'de, MAX_EXTRA_WITHIN>,
    }
}

object! {
    /// A block of content. Its `type` determines its other fields. A block of a kind that weir does not know goes on to
    /// the provider.
    struct Block<'de> as "MessagesBlock" {
        /// The kind of the block, such as `text`, `image`, `document`, `thinking`, `redacted_thinking`, `tool_use` or
        /// `tool_result`.
        "type": kind: Text<'de> = [Required, Chars(1, MAX_NAME_CHARS)],
        /// The text of `text`.
        "text": text: String,
        /// The file of `image` or `document`.
        "source": source: Raw<'de> = [Is(source_schema)],
        /// The title of a `document`.
        "title": title: String,
        /// Facts about a `document`, for the model.
        "context": context: String,
        /// In a `document`: an object whose `enabled` turns on citations. In a `text`: its sources.
        "citations": citations: Raw<'de>,
        /// The text of `thinking`.
        "thinking": thinking: String,
        /// The provider's proof of `thinking`. Send it back unchanged.
        "signature": signature: String,
        /// The sealed form of `redacted_thinking`.
        "data": data: String,
        /// The id of a `tool_use`.
        "id": id: String,
        /// The name of the tool in a `tool_use`.
        "name": name: String,
        /// The input of a `tool_use`: an object.
        "input": input: Raw<'de>,
        /// In a `tool_result`: the id of the `tool_use`.
        "tool_use_id": tool_use_id: String,
        /// The content of a `tool_result`: a text, or a list of blocks.
        "content": content: Raw<'de> = [Is(result_schema)],
        /// Whether a `tool_result` is an error.
        "is_error": is_error: bool,
        /// The end of a beginning that the provider's cache may keep.
        "cache_control": cache_control: Raw<'de> = [Is(cache_schema)],
        /// The provider that can read a proof. It is a field of weir.
        "provider": provider: String = [Chars(1, MAX_NAME_CHARS)],
        others: ExtraFields<'de, MAX_EXTRA_WITHIN>,
    }
}

object! {
    /// A file, by its bytes, URL or id.
    struct Source<'de> as "MessagesFileSource" {
        /// The form of the source, which determines its other fields.
        "type": kind: Text<'de> = [Required, OneOf(&["base64", "url", "file"])],
        /// With `base64`: the media type, such as `image/png`.
        "media_type": media_type: Text<'de>,
        /// With `base64`: the bytes.
        "data": data: Text<'de>,
        /// With `url`: an `https` URL.
        "url": url: Text<'de>,
        /// With `file`: the id of a file that the provider keeps.
        "file_id": file_id: String,
        others: RefusedFields,
    }
}

object! {
    /// A document of text, in one piece or in blocks. weir reads only the type.
    struct DocumentSource<'de> as "MessagesTextSource" {
        /// `text` with the text in `data`, or `content` with blocks in `content`.
        "type": kind: Text<'de> = [Required, OneOf(&["text", "content"])],
        others: IgnoredField,
    }
}

object! {
    /// Whether the response cites a document.
    struct Citations<'de> as "MessagesCitations" {
        /// Whether the response cites the document.
        "enabled": enabled: bool,
        others: RefusedFields,
    }
}

object! {
    /// The end of a beginning that the provider's cache may keep.
    struct AnthropicCacheControl<'de> as "MessagesCacheControl" {
        /// `ephemeral`.
        "type": kind: Text<'de> = [Required, OneOf(&["ephemeral"])],
        /// The lifetime in the cache.
        "ttl": ttl: Text<'de> = [OneOf(&["5m", "1h"])],
        others: ExtraFields<'de, MAX_EXTRA_WITHIN>,
    }
}

object! {
    /// A tool that the model may call. Fields that weir does not know belong to a tool of the provider.
    struct AnthropicTool<'de> as "MessagesTool" {
        /// The kind of the tool: `custom` for a tool of the client, or a tool of the provider; default: `custom`.
        "type": kind: Text<'de> = [Chars(1, MAX_TOOL_CHARS)],
        /// The name of the tool; toolsets of the provider have none.
        "name": name: String = [Chars(1, MAX_TOOL_CHARS)],
        /// The purpose of the tool, for the model.
        "description": description: String,
        /// The input of a tool of the client, as a JSON schema of an object.
        "input_schema": input_schema: Raw<'de> = [Object],
        /// Whether the input must fit the schema.
        "strict": strict: bool,
        /// The end of a beginning that the provider's cache may keep.
        "cache_control": cache_control: Raw<'de> = [Is(AnthropicCacheControl::schema)],
        others: ExtraFields<'de, MAX_EXTRA>,
    }
}

object! {
    /// The choice of a tool.
    struct AnthropicToolChoice<'de> as "MessagesToolChoice" {
        /// `auto`, any of the tools, one tool by its name, or none.
        "type": kind: Text<'de> = [Required, OneOf(&["auto", "any", "tool", "none"])],
        /// With `tool`: the name of the tool.
        "name": name: String,
        /// Whether the model may call only one tool at once.
        "disable_parallel_tool_use": disable_parallel_tool_use: bool,
        others: RefusedFields,
    }
}

object! {
    /// The settings of the model's thinking.
    struct Thinking<'de> as "MessagesThinking" {
        /// Thinking with a budget, with one that the model chooses, or none.
        "type": kind: Text<'de> = [Required, OneOf(&["enabled", "adaptive", "disabled"])],
        /// With `enabled`: the maximum tokens of the thinking.
        "budget_tokens": budget_tokens: u32,
        /// The detail of the readable thinking, such as `summarized` or `omitted`.
        "display": display: String = [Chars(0, MAX_DISPLAY_CHARS)],
        others: RefusedFields,
    }
}

object! {
    /// The effort and the form of the response.
    struct OutputConfig<'de> as "MessagesOutputConfig" {
        /// The effort of the model; `max` is another name of `xhigh`.
        "effort": effort: Text<'de> = [OneOf(&["low", "medium", "high", "xhigh", "max"])],
        /// The form of the response's text.
        "format": format: AnthropicFormat<'de>,
        others: ExtraFields<'de, MAX_EXTRA_WITHIN>,
    }
}

object! {
    /// The form of the response's text.
    struct AnthropicFormat<'de> as "MessagesFormat" {
        /// `json_schema`.
        "type": kind: Text<'de> = [Required, OneOf(&["json_schema"])],
        /// The JSON schema that the response fits.
        "schema": schema: Raw<'de> = [Required, Object],
        others: RefusedFields,
    }
}

object! {
    /// Facts about a request.
    struct Metadata<'de> as "MessagesMetadata" {
        /// The id of the end user.
        "user_id": user_id: String = [Chars(0, MAX_USER_CHARS)],
        others: ExtraFields<'de, MAX_EXTRA_WITHIN>,
    }
}

fn content_schema(schemas: &mut Schemas) -> Value {
    TextOr::<Block<'_>, MAX_PARTS>::schema(schemas)
}

fn result_schema(schemas: &mut Schemas) -> Value {
    json!({ "anyOf": [content_schema(schemas), any_of_unknown_kinds()] })
}

fn source_schema(schemas: &mut Schemas) -> Value {
    let known = [Source::schema(schemas), DocumentSource::schema(schemas)];
    json!({ "anyOf": [known[0], known[1], any_of_unknown_kinds()] })
}

fn cache_schema(schemas: &mut Schemas) -> Value {
    json!({ "anyOf": [AnthropicCacheControl::schema(schemas), any_of_unknown_kinds()] })
}

/// A block of a kind that weir does not know has the fields of its provider.
fn any_of_unknown_kinds() -> Value {
    json!({ "description": "In a block of a kind that weir does not know: any JSON." })
}

/// Plain text, or a list of blocks.
pub(super) type AnthropicContent<'de> = TextOr<Raw<'de>, MAX_PARTS>;

impl ListItem for Raw<'_> {
    const PLURAL: &'static str = "blocks";
}
