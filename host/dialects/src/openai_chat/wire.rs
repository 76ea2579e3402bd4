//! The JSON of a request: its objects, and the types of their fields.
//!
//! [`super::request`], [`super::messages`] and [`super::tools`] interpret the values.

use std::fmt;

use serde::de::value::{BorrowedStrDeserializer, MapAccessDeserializer};
use serde::de::{self, Deserialize, Deserializer, IntoDeserializer, MapAccess, Visitor};

use serde_json::{Value, json};

use crate::json::{
    BoundedList, ExtraFields, IgnoredField, ListItem, MAX_EXTRA, MAX_EXTRA_WITHIN, MAX_ID_CHARS,
    MAX_MESSAGES, MAX_PARTS, MAX_TOOLS, Raw, RefusedFields, Text, TextOr, UnsupportedField, object,
};
use crate::openai::{
    EFFORTS, MAX_CALLED_NAME_CHARS, MAX_FILE_ID_CHARS, MAX_FILE_NAME_CHARS, MAX_MODEL_CHARS, Stop,
    StreamOptions, stop_schema,
};
use crate::openai_tools::MAX_TYPE_CHARS;
use crate::schema::{Described, KnownFields, Schemas};
use crate::tool_names::TOOL_NAME;

/// The maximum characters of the name of a person, a block's kind or a provider.
pub(super) const MAX_NAME_CHARS: usize = 64;
/// The maximum characters of a response schema's name.
pub(super) const MAX_SCHEMA_NAME_CHARS: usize = 256;
/// The maximum alternatives for each token, as with OpenAI.
pub(super) const MAX_TOP_LOGPROBS: u32 = 20;

/// Fields of OpenAI's and others' servers (openai 3.57.0, `types/chat/completion_create_params.py`).
const PASSED_ON: KnownFields = &[
    (
        "logit_bias",
        "An object that makes tokens more or less likely.",
    ),
    (
        "metadata",
        "An object with up to 16 texts, for the provider's own records.",
    ),
    (
        "moderation",
        "An object that turns on the provider's own checks of content.",
    ),
    (
        "prediction",
        "An expected response, which makes a similar one faster.",
    ),
    (
        "prompt_cache_key",
        "A name that groups requests with the same beginning, for the provider's cache.",
    ),
    (
        "prompt_cache_options",
        "The provider's settings of its cache.",
    ),
    (
        "prompt_cache_retention",
        "The time that the provider keeps the beginning of a request: `in_memory` or `24h`.",
    ),
    (
        "safety_identifier",
        "A stable id of the end user, for the provider's checks of abuse.",
    ),
    (
        "service_tier",
        "The provider's class of service, such as `flex` or `priority`.",
    ),
    ("store", "Whether the provider keeps the response."),
    (
        "user",
        "The id of the end user, as a text of at most 512 characters.",
    ),
    (
        "verbosity",
        "The length of the response: `low`, `medium` or `high`.",
    ),
    (
        "web_search_options",
        "The settings of the provider's own web search.",
    ),
];

object! {
    /// A request in OpenAI's Chat Completions. Fields that weir does not know go on to the provider.
    struct ChatRequestBody<'de> as "ChatCompletionRequest" {
        /// The id of a model, as `GET /models` lists them.
        "model": model: Text<'de> = [Required, Chars(1, MAX_MODEL_CHARS)],
        /// The conversation so far.
        "messages": messages: BoundedList<ChatMessageParam<'de>, MAX_MESSAGES> = [Required, Items(1)],
        /// The tools that the model may call.
        "tools": tools: BoundedList<ChatTool<'de>, MAX_TOOLS>,
        /// The choice of a tool; the model chooses unless set.
        "tool_choice": tool_choice: ChatToolChoice<'de>,
        /// Whether the model may call several tools at once.
        "parallel_tool_calls": parallel_tool_calls: bool,
        /// The form of the response's text.
        "response_format": response_format: ResponseFormat<'de>,
        /// The effort of the model's reasoning; `max` is another name of `xhigh`.
        "reasoning_effort": reasoning_effort: Text<'de> = [OneOf(&EFFORTS)],
        /// The earlier name of `max_completion_tokens`. If both are set, they must be equal.
        "max_tokens": max_tokens: u32 = [AtLeast(1)],
        /// The maximum tokens of the response, reasoning included; default: the model's maximum.
        "max_completion_tokens": max_completion_tokens: u32 = [AtLeast(1)],
        /// The sampling temperature: a low one makes the response more predictable.
        "temperature": temperature: f64 = [Between(0.0, 2.0)],
        /// The share of probability from which tokens are sampled.
        "top_p": top_p: f64 = [Between(0.0, 1.0)],
        /// The number of likeliest tokens from which one is sampled.
        "top_k": top_k: u32 = [AtLeast(1)],
        /// A positive number makes tokens that have occurred less likely.
        "presence_penalty": presence_penalty: f64 = [Between(-2.0, 2.0)],
        /// A positive number makes tokens less likely the more often they have occurred.
        "frequency_penalty": frequency_penalty: f64 = [Between(-2.0, 2.0)],
        /// A number that makes repeated responses more alike.
        "seed": seed: i64,
        /// A text, or a list of texts, before which the response ends.
        "stop": stop: Stop = [Is(stop_schema)],
        /// Whether weir streams the response as server-sent events.
        "stream": stream: bool,
        /// The settings of a stream.
        "stream_options": stream_options: StreamOptions<'de>,
        /// The number of choices: 1.
        "n": n: u32 = [Only(1)],
        /// Whether the response has the log probabilities of its tokens.
        "logprobs": logprobs: bool,
        /// The kinds of the response's content: `text`.
        "modalities": modalities: BoundedList<Text<'de>, MAX_PARTS> = [Items(1), EachOf(&["text"])],
        /// The number of likeliest alternatives for each token; it needs `logprobs`.
        "top_logprobs": top_logprobs: u32 = [Between(0.0, MAX_TOP_LOGPROBS as f64)],
        "audio": audio: UnsupportedField,
        // A body in the form of Responses.
        "input": input: IgnoredField = [Hidden],
        "functions": functions: UnsupportedField,
        "function_call": function_call: UnsupportedField,
        others: ExtraFields<'de, MAX_EXTRA> = PASSED_ON,
    }
}

object! {
    /// A message of a conversation.
    struct ChatMessageParam<'de> as "ChatMessage" {
        /// The author's role; `developer` is another name of `system`.
        "role": role: Text<'de> = [Required, OneOf(&["system", "developer", "user", "assistant", "tool"])],
        /// A text, or a list of parts. Only an `assistant` message with other content may omit it.
        "content": content: ChatContent<'de>,
        /// The author's name, to distinguish several people of one role.
        "name": name: String = [Chars(1, MAX_NAME_CHARS)],
        /// In a `tool` message: the id of the call to which it responds.
        "tool_call_id": tool_call_id: String = [Chars(1, MAX_ID_CHARS)],
        /// In an `assistant` message: the model's calls of tools.
        "tool_calls": tool_calls: BoundedList<ToolCall<'de>, MAX_PARTS>,
        /// In an `assistant` message: the model's reasoning.
        "reasoning_content": reasoning_content: String,
        /// Another name of `reasoning_content`.
        "reasoning": reasoning: String,
        /// In an `assistant` message: the model's reasoning with the provider's proofs. Send it back unchanged.
        "reasoning_details": reasoning_details: BoundedList<ReasoningDetail<'de>, MAX_PARTS>,
        /// In an `assistant` message: the model's refusal.
        "refusal": refusal: String,
        /// In an `assistant` message: the images that the model has made.
        "images": images: BoundedList<ChatPart<'de>, MAX_PARTS>,
        /// In an `assistant` message: a provider's own data. Send it back unchanged.
        "provider_specific_fields": provider_specific_fields: ProviderFields<'de>,
        /// In an `assistant` message: the sources of an earlier response. They have no effect.
        "annotations": annotations: IgnoredField,
        // SDK helpers that parse a response's JSON keep the result in this field, here and in a call.
        "parsed": parsed: IgnoredField = [Hidden],
        others: ExtraFields<'de, MAX_EXTRA_WITHIN>,
    }
}

object! {
    /// A part of a message. Its `type` determines its other fields.
    struct ChatPart<'de> as "ChatPart" {
        /// The kind of the part: for all roles `text`; for users also `image_url`, `input_audio` and `file`; for tools
        /// also `image_url`; for the model also `refusal`.
        "type": kind: Text<'de> = [OneOf(&["text", "refusal", "image_url", "file", "input_audio"])],
        /// The text of a `text` part.
        "text": text: String,
        /// The text of a `refusal` part.
        "refusal": refusal: String,
        /// The image of an `image_url` part.
        "image_url": image_url: ImageUrlOrText<'de>,
        /// The document of a `file` part.
        "file": file: File<'de>,
        /// The recording of an `input_audio` part.
        "input_audio": input_audio: InputAudio<'de>,
        /// The end of a beginning that the provider's cache may keep.
        "cache_control": cache_control: CacheControl<'de>,
        // Streams have it in entries of `images`.
        "index": index: IgnoredField = [Hidden],
        others: ExtraFields<'de, MAX_EXTRA_WITHIN>,
    }
}

object! {
    /// An image at a URL, or in a data URL.
    struct ImageUrl<'de> as "ChatImageUrl" {
        /// An `https` URL, or a data URL such as `data:image/png;base64,…`.
        "url": url: Text<'de> = [Required],
        /// The detail in which the model sees the image.
        "detail": detail: Text<'de> = [OneOf(&["auto", "low", "high"])],
        others: RefusedFields,
    }
}

object! {
    /// A document, with either its bytes or an id.
    struct File<'de> as "ChatFile" {
        /// The document in a data URL, such as `data:application/pdf;base64,…`.
        "file_data": file_data: Text<'de>,
        /// The id of a file that the provider keeps.
        "file_id": file_id: String = [Chars(1, MAX_FILE_ID_CHARS)],
        /// The name of the file.
        "filename": filename: String = [Chars(0, MAX_FILE_NAME_CHARS)],
        others: RefusedFields,
    }
}

object! {
    /// A recording.
    struct InputAudio<'de> as "ChatInputAudio" {
        /// The recording in base64.
        "data": data: Text<'de> = [Required],
        /// The name of the format, such as `wav` or `mp3`.
        "format": format: Text<'de> = [Required, Pattern("^[a-zA-Z0-9!#$&^_.+-]{1,127}$")],
        others: RefusedFields,
    }
}

object! {
    /// The end of a beginning that the provider's cache may keep.
    struct CacheControl<'de> as "ChatCacheControl" {
        /// `ephemeral`.
        "type": kind: Text<'de> = [Required, OneOf(&["ephemeral"])],
        /// The lifetime in the cache.
        "ttl": ttl: Text<'de> = [OneOf(&["5m", "1h"])],
        others: RefusedFields,
    }
}

object! {
    /// A piece of reasoning, in OpenRouter's form.
    struct ReasoningDetail<'de> as "ChatReasoningDetail" {
        /// The kind of the piece, which determines its other fields.
        "type": kind: Text<'de> = [Required, OneOf(&["reasoning.text", "reasoning.summary", "reasoning.encrypted"])],
        /// The text of `reasoning.text`.
        "text": text: String,
        /// The text of `reasoning.summary`.
        "summary": summary: String,
        /// The provider's proof of the text.
        "signature": signature: String,
        /// The sealed form of `reasoning.encrypted`.
        "data": data: String,
        /// The provider's id of the piece.
        "id": id: String = [Chars(0, MAX_ID_CHARS)],
        /// The provider that can read the proof.
        "provider": provider: String = [Chars(1, MAX_NAME_CHARS)],
        /// The provider's format. It has no effect.
        "format": format: IgnoredField,
        /// The position in the list. It has no effect.
        "index": index: IgnoredField,
        others: RefusedFields,
    }
}

object! {
    /// A provider's data beyond Chat Completions, in LiteLLM's field.
    struct ProviderFields<'de> as "ChatProviderFields" {
        /// Blocks that only their provider can read.
        "blocks": blocks: BoundedList<OpaqueBlock<'de>, MAX_PARTS>,
        others: IgnoredField,
    }
}

object! {
    /// A block that only its provider can read.
    struct OpaqueBlock<'de> as "ChatProviderBlock" {
        /// The provider's word for the kind of the block.
        "kind": kind: String = [Required, Chars(1, MAX_NAME_CHARS)],
        /// The block.
        "block": block: Raw<'de> = [Required, Object],
        /// The provider that can read the block.
        "provider": provider: String = [Chars(1, MAX_NAME_CHARS)],
        /// The position in the list. It has no effect.
        "index": index: IgnoredField,
        others: RefusedFields,
    }
}

object! {
    /// A call of a tool. A call without a `type` is one of a function.
    struct ToolCall<'de> as "ChatToolCall" {
        /// The id of the call, which the tool's message repeats.
        "id": id: String = [Required, Chars(1, MAX_ID_CHARS)],
        /// The kind of the tool.
        "type": kind: Text<'de> = [OneOf(&["function", "custom"])],
        /// The called function.
        "function": function: CalledFunction<'de>,
        /// The called tool with free text.
        "custom": custom: CalledCustom<'de>,
        /// The provider's proof of the call, in Google's form. Send it back unchanged.
        "extra_content": extra_content: ExtraContent<'de>,
        /// The provider's proof of the call, in LiteLLM's form.
        "provider_specific_fields": provider_specific_fields: SignatureFields<'de>,
        // Clients that combine a streamed call keep it.
        "index": index: IgnoredField = [Hidden],
        others: RefusedFields,
    }
}

object! {
    /// A call's field in Google's endpoint for Chat Completions.
    struct ExtraContent<'de> as "ChatExtraContent" {
        /// Google's fields.
        "google": google: SignatureFields<'de>,
        others: IgnoredField,
    }
}

object! {
    /// The proof of a call.
    struct SignatureFields<'de> as "ChatCallSignature" {
        /// The proof.
        "thought_signature": thought_signature: Text<'de>,
        others: IgnoredField,
    }
}

object! {
    /// A called function.
    struct CalledFunction<'de> as "ChatCalledFunction" {
        /// The name of the function.
        "name": name: String = [Required, Chars(1, MAX_CALLED_NAME_CHARS)],
        /// The arguments, as JSON in a text.
        "arguments": arguments: String = [Required],
        "parsed_arguments": parsed_arguments: IgnoredField = [Hidden],
        "provider_specific_fields": provider_specific_fields: SignatureFields<'de> = [Hidden],
        others: RefusedFields,
    }
}

object! {
    /// A called tool with free text.
    struct CalledCustom<'de> as "ChatCalledCustomTool" {
        /// The name of the tool.
        "name": name: String = [Required, Chars(1, MAX_CALLED_NAME_CHARS)],
        /// The text.
        "input": input: String = [Required],
        others: RefusedFields,
    }
}

object! {
    /// A tool that the model may call. Fields that weir does not know belong to a tool of the provider.
    struct ChatTool<'de> as "ChatTool" {
        /// The kind of the tool: `function`, `custom`, or a tool of the provider; default: `function`.
        "type": kind: Text<'de> = [Chars(1, MAX_TYPE_CHARS)],
        /// The function, if the tool is one.
        "function": function: Function<'de>,
        /// The tool with free text, if the tool is one.
        "custom": custom: Custom<'de>,
        /// The end of a beginning that the provider's cache may keep.
        "cache_control": cache_control: CacheControl<'de>,
        others: ExtraFields<'de, MAX_EXTRA>,
    }
}

object! {
    /// A function of the client.
    struct Function<'de> as "ChatFunction" {
        /// The name of the function.
        "name": name: String = [Required, Pattern(TOOL_NAME)],
        /// The purpose of the function, for the model.
        "description": description: String,
        /// The parameters, as a JSON schema of an object.
        "parameters": parameters: Raw<'de> = [Object],
        /// Whether the arguments must fit the schema.
        "strict": strict: bool,
        others: ExtraFields<'de, MAX_EXTRA_WITHIN>,
    }
}

object! {
    /// A tool of the client whose input is free text.
    struct Custom<'de> as "ChatCustomTool" {
        /// The name of the tool.
        "name": name: String = [Required, Pattern(TOOL_NAME)],
        /// The purpose of the tool, for the model.
        "description": description: String,
        /// The form of the text: an object with `type`, and a grammar if the type is `grammar`.
        "format": format: Raw<'de> = [Object],
        others: RefusedFields,
    }
}

object! {
    /// A choice of one tool or several.
    struct ChosenTool<'de> as "ChatChosenTool" {
        /// The kind of the choice: a `function`, a `custom` tool, or several tools in `allowed_tools`.
        "type": kind: Text<'de> = [Required, OneOf(&["function", "custom", "allowed_tools"])],
        /// The chosen function.
        "function": function: ToolName<'de>,
        /// The chosen tool with free text.
        "custom": custom: ToolName<'de>,
        /// The name of the tool, instead of an object with the name.
        "name": name: String,
        /// The tools among which the model chooses.
        "allowed_tools": allowed_tools: AllowedTools<'de>,
        others: RefusedFields,
    }
}

object! {
    /// The tools among which the model chooses.
    struct AllowedTools<'de> as "ChatAllowedTools" {
        /// Whether the model must call one of them.
        "mode": mode: Text<'de> = [Required, OneOf(&["auto", "required"])],
        /// The tools.
        "tools": tools: BoundedList<NamedTool<'de>, MAX_TOOLS> = [Required, Items(1)],
        others: RefusedFields,
    }
}

object! {
    /// A tool by its name.
    struct NamedTool<'de> as "ChatNamedTool" {
        /// The kind of the tool.
        "type": kind: Text<'de> = [Required, OneOf(&["function", "custom"])],
        /// The function.
        "function": function: ToolName<'de>,
        /// The tool with free text.
        "custom": custom: ToolName<'de>,
        /// The name of the tool, instead of an object with the name.
        "name": name: String,
        others: RefusedFields,
    }
}

object! {
    /// The name of one of the request's tools.
    struct ToolName<'de> as "ChatToolName" {
        /// The name.
        "name": name: String = [Required],
        others: RefusedFields,
    }
}

object! {
    /// The form of the response's text.
    struct ResponseFormat<'de> as "ChatResponseFormat" {
        /// `text`, any JSON object, or JSON that fits a schema.
        "type": kind: Text<'de> = [Required, OneOf(&["text", "json_object", "json_schema"])],
        /// The schema of `json_schema`.
        "json_schema": json_schema: JsonSchema<'de>,
        others: RefusedFields,
    }
}

object! {
    /// A named schema of the response.
    struct JsonSchema<'de> as "ChatJsonSchema" {
        /// The name of the schema, for the model.
        "name": name: String = [Chars(0, MAX_SCHEMA_NAME_CHARS)],
        /// The purpose of the schema, for the model.
        "description": description: String,
        /// The JSON schema.
        "schema": schema: Raw<'de> = [Required, Object],
        /// Whether the response must fit the schema.
        "strict": strict: bool,
        others: RefusedFields,
    }
}

/// The URL of an image, in an object or alone, as some clients write it.
pub(super) struct ImageUrlOrText<'de>(pub(super) ImageUrl<'de>);

impl<'de> Deserialize<'de> for ImageUrlOrText<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ImageUrlVisitor;

        impl<'de> Visitor<'de> for ImageUrlVisitor {
            type Value = ImageUrlOrText<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object or a string")
            }

            fn visit_borrowed_str<E: de::Error>(self, url: &'de str) -> Result<Self::Value, E> {
                Text::deserialize(BorrowedStrDeserializer::new(url)).map(of_url)
            }

            fn visit_str<E: de::Error>(self, url: &str) -> Result<Self::Value, E> {
                Text::deserialize(url.into_deserializer()).map(of_url)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                ImageUrl::deserialize(MapAccessDeserializer::new(map)).map(ImageUrlOrText)
            }
        }

        deserializer.deserialize_any(ImageUrlVisitor)
    }
}

fn of_url(url: Text<'_>) -> ImageUrlOrText<'_> {
    ImageUrlOrText(ImageUrl {
        url: Some(url),
        ..ImageUrl::default()
    })
}

impl Described for ImageUrlOrText<'_> {
    fn schema(schemas: &mut Schemas) -> Value {
        json!({ "anyOf": [ImageUrl::schema(schemas), { "type": "string" }] })
    }
}

/// The content of a message: plain text, or a list of parts.
pub(super) type ChatContent<'de> = TextOr<ChatPart<'de>, MAX_PARTS>;

impl ListItem for ChatPart<'_> {
    const PLURAL: &'static str = "parts";
}

/// A mode by its word, or tools by name.
pub(super) enum ChatToolChoice<'de> {
    Mode(String),
    Chosen(ChosenTool<'de>),
}

impl Described for ChatToolChoice<'_> {
    fn schema(schemas: &mut Schemas) -> Value {
        let modes = json!({ "type": "string", "enum": ["none", "auto", "required"] });
        json!({ "anyOf": [modes, ChosenTool::schema(schemas)] })
    }
}

impl<'de> Deserialize<'de> for ChatToolChoice<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ToolChoiceVisitor;

        impl<'de> Visitor<'de> for ToolChoiceVisitor {
            type Value = ChatToolChoice<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string or an object")
            }

            fn visit_str<E: de::Error>(self, mode: &str) -> Result<Self::Value, E> {
                Ok(ChatToolChoice::Mode(mode.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                ChosenTool::deserialize(MapAccessDeserializer::new(map)).map(ChatToolChoice::Chosen)
            }
        }

        deserializer.deserialize_any(ToolChoiceVisitor)
    }
}
