//! The JSON of a request: its objects, and the types of their fields.
//!
//! [`super::request`], [`super::input`] and [`super::tools`] interpret the values.

use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::json::{
    BoundedList, ExtraFields, IgnoredField, ListItem, MAX_EXTRA, MAX_EXTRA_WITHIN, MAX_ID_CHARS,
    MAX_MESSAGES, MAX_PARTS, MAX_TOOLS, Raw, RefusedFields, Text, TextOr, UnsupportedField, object,
};
use crate::openai::{
    EFFORTS, MAX_CALLED_NAME_CHARS, MAX_FILE_ID_CHARS, MAX_FILE_NAME_CHARS, MAX_MODEL_CHARS,
};
use crate::openai_tools::MAX_TYPE_CHARS;
use crate::schema::{Described, KnownFields, Schemas};
use crate::tool_names::MAX_NAMESPACE_CHARS;

/// The prefix of a response's id.
pub(super) const ID_PREFIX: &str = "resp_";
/// The maximum values of `include`; OpenAI knows seven.
const MAX_INCLUDE: usize = 32;

/// The maximum characters of a schema's name.
pub(super) const MAX_SCHEMA_NAME_CHARS: usize = 256;
/// The maximum characters of the word for the display of reasoning.
pub(super) const MAX_SUMMARY_CHARS: usize = 64;
pub(super) const MAX_PHASE_CHARS: usize = 64;

/// The kind of the opaque block that begins a message of the model which is not the first, or has a phase: an object with the phase.
pub(super) const MESSAGE: &str = "message";

/// The accepted values of `include`. Reasoning always has its sealed form; the other values belong to tools that no
/// upstream has.
pub(super) const INCLUDED: [&str; 6] = [
    "reasoning.encrypted_content",
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
];

/// The kinds of items (openai 3.57.0, `types/responses/response_input_item_param.py`), without those that change the settings
/// of a conversation at the provider.
const ITEMS: &[&str] = &[
    "message",
    "reasoning",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "image_generation_call",
    "additional_tools",
    "item_reference",
    "apply_patch_call",
    "apply_patch_call_output",
    "code_interpreter_call",
    "compaction",
    "computer_call",
    "computer_call_output",
    "file_search_call",
    "local_shell_call",
    "local_shell_call_output",
    "mcp_approval_request",
    "mcp_approval_response",
    "mcp_call",
    "mcp_list_tools",
    "program",
    "program_output",
    "shell_call",
    "shell_call_output",
    "tool_search_call",
    "tool_search_output",
    "web_search_call",
];

/// The kinds that stay as the client wrote them: those behind weir's own nine.
pub(super) const HOSTED_ITEMS: &[&str] = ITEMS.split_at(9).1;

/// Fields of OpenAI's servers (openai 3.57.0, `types/responses/response_create_params.py`).
const PASSED_ON: KnownFields = &[
    (
        "access_programs",
        "The programmes whose models the request may use.",
    ),
    (
        "background_options",
        "The settings of a response in the background.",
    ),
    (
        "context_management",
        "A list of rules that shorten a long conversation.",
    ),
    ("image", "The settings of images in the input."),
    (
        "metadata",
        "An object with up to 16 texts, for the provider's own records.",
    ),
    (
        "moderation",
        "An object that turns on the provider's own checks of content.",
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
        "A stable id of the end user, as a text of at most 512 characters.",
    ),
    (
        "service_tier",
        "The provider's class of service, such as `flex` or `priority`.",
    ),
    (
        "truncation",
        "`auto` if the provider may shorten a conversation that is too long; otherwise `disabled`.",
    ),
    (
        "user",
        "The id of the end user, as a text of at most 512 characters.",
    ),
];

object! {
    /// A request in OpenAI's Responses. Fields that weir does not know go on to the provider.
    struct ResponsesRequestBody<'de> as "ResponsesRequest" {
        /// The id of a model, as `GET /models` lists them.
        "model": model: Text<'de> = [Required, Chars(1, MAX_MODEL_CHARS)],
        /// A text of the user, or a list of items.
        "input": input: ResponsesInput<'de> = [Required, Items(1)],
        /// The system instructions.
        "instructions": instructions: String,
        /// The id of the response that this request continues.
        "previous_response_id": previous_response_id: String,
        /// The tools that the model may call.
        "tools": tools: BoundedList<ResponsesTool<'de>, MAX_TOOLS>,
        /// The choice of a tool; the model chooses unless set.
        "tool_choice": tool_choice: Raw<'de> = [Is(tool_choice_schema)],
        /// Whether the model may call several tools at once.
        "parallel_tool_calls": parallel_tool_calls: bool,
        /// The maximum calls of the provider's tools. Only servers of this API get it.
        "max_tool_calls": max_tool_calls: u32,
        /// The form of the response's text.
        "text": text: TextConfig<'de>,
        /// The settings of the model's reasoning.
        "reasoning": reasoning: ReasoningOptions<'de>,
        /// Further fields of the response. Reasoning always has its sealed form; the other words have no effect.
        "include": include: BoundedList<Text<'de>, MAX_INCLUDE> = [EachOf(&INCLUDED)],
        /// The maximum tokens of the response, reasoning included; default: the model's maximum.
        "max_output_tokens": max_output_tokens: u32 = [AtLeast(1)],
        /// The sampling temperature: a low one makes the response more predictable.
        "temperature": temperature: f64 = [Between(0.0, 2.0)],
        /// The share of probability from which tokens are sampled.
        "top_p": top_p: f64 = [Between(0.0, 1.0)],
        /// A positive number makes tokens that have occurred less likely.
        "presence_penalty": presence_penalty: f64 = [Between(-2.0, 2.0)],
        /// A positive number makes tokens less likely the more often they have occurred.
        "frequency_penalty": frequency_penalty: f64 = [Between(-2.0, 2.0)],
        /// Log probabilities, which are not supported: 0.
        "top_logprobs": top_logprobs: u32 = [Only(0)],
        /// Whether weir streams the response as server-sent events.
        "stream": stream: bool,
        /// The settings of a stream.
        "stream_options": stream_options: ResponsesStreamOptions<'de>,
        /// Whether weir keeps the response for `previous_response_id`; default: true.
        "store": store: bool,
        /// Responses in the background, which are not supported: `false`.
        "background": background: bool = [Always(false)],
        "conversation": conversation: UnsupportedField,
        "prompt": prompt: UnsupportedField,
        "session_id": session_id: UnsupportedField,
        others: ExtraFields<'de, MAX_EXTRA> = PASSED_ON,
    }
}

object! {
    /// An item of the input. Its `type` determines its other fields.
    struct InputItem<'de> as "ResponsesInputItem" {
        /// The kind of the item; default: `message` with a `role`, and otherwise `item_reference`. Items of hosted tools, such
        /// as `web_search_call`, go on to servers of this dialect as they are, and others do not receive them.
        "type": kind: Text<'de> = [OneOf(ITEMS)],
        /// The id of the item in an earlier response. In an `item_reference`, it stands for the item.
        "id": id: Text<'de>,
        /// In a `message`: the author's role; `developer` is another name of `system`.
        "role": role: Text<'de> = [OneOf(&["user", "assistant", "system", "developer"])],
        /// In a `message`: a text, or a list of parts.
        "content": content: InputContent<'de>,
        /// In a call or its output: the id of the call.
        "call_id": call_id: String = [Chars(1, MAX_ID_CHARS)],
        /// In a call: the name of the tool.
        "name": name: String = [Chars(1, MAX_CALLED_NAME_CHARS)],
        /// In a `function_call`: the arguments, as JSON in a text.
        "arguments": arguments: String,
        /// In a `custom_tool_call`: the text for the tool.
        "input": input: String,
        /// In an output: the result of the call, as a text or a list of parts.
        "output": output: InputContent<'de>,
        /// In `reasoning`: its readable parts.
        "summary": summary: BoundedList<InputPart<'de>, MAX_PARTS>,
        /// In `reasoning`: its sealed form. Send it back unchanged.
        "encrypted_content": encrypted_content: Text<'de>,
        /// In an `image_generation_call`: the image in base64.
        "result": result: Text<'de>,
        /// In an `image_generation_call`: the format of the image, such as `png`.
        "output_format": output_format: Text<'de>,
        /// In a call: the namespace of the tool.
        "namespace": namespace: String = [Chars(0, MAX_NAMESPACE_CHARS)],
        /// In `additional_tools`: the tools that it adds.
        "tools": tools: BoundedList<ResponsesTool<'de>, MAX_TOOLS>,
        /// The status in an earlier response. It has no effect.
        "status": status: IgnoredField,
        /// In a `message` of the model: its phase, such as `commentary` or `final_answer`. Send it back unchanged. Only servers
        /// of this API get it.
        "phase": phase: String = [Chars(0, MAX_PHASE_CHARS)],
        // A field of responses besides the content, and a result of SDK helpers.
        "caller": caller: IgnoredField = [Hidden],
        "parsed_arguments": parsed_arguments: IgnoredField = [Hidden],
        others: ExtraFields<'de, MAX_EXTRA_WITHIN>,
    }
}

object! {
    /// A part of an item. Its `type` determines its other fields.
    struct InputPart<'de> as "ResponsesInputPart" {
        /// The kind of the part: `input_text`, `input_image` and `input_file` of users and tools, `output_text` and
        /// `refusal` of the model, `summary_text` in reasoning.
        "type": kind: Text<'de> = [OneOf(&[
            "input_text", "input_image", "input_file", "output_text", "refusal", "summary_text", "reasoning_text",
        ])],
        /// The text of a text part.
        "text": text: String,
        /// The text of a `refusal`.
        "refusal": refusal: String,
        /// The image of an `input_image`: an `https` URL or a data URL.
        "image_url": image_url: Text<'de>,
        /// The detail in which the model sees the image; for a file, `auto`.
        "detail": detail: Text<'de> = [OneOf(&["auto", "low", "high", "original"])],
        /// The id of a file that the provider keeps.
        "file_id": file_id: String = [Chars(1, MAX_FILE_ID_CHARS)],
        /// The document of an `input_file`, in a data URL such as `data:application/pdf;base64,…`.
        "file_data": file_data: Text<'de>,
        /// The `https` URL of an `input_file`.
        "file_url": file_url: Text<'de>,
        /// The name of the file.
        "filename": filename: String = [Chars(0, MAX_FILE_NAME_CHARS)],
        /// The end of a beginning that the provider's cache may keep.
        "prompt_cache_breakpoint": prompt_cache_breakpoint: CacheBreakpoint<'de>,
        /// The sources in an earlier response. They have no effect.
        "annotations": annotations: IgnoredField,
        /// The log probabilities in an earlier response. They have no effect.
        "logprobs": logprobs: IgnoredField,
        // A result of SDK helpers.
        "parsed": parsed: IgnoredField = [Hidden],
        others: ExtraFields<'de, MAX_EXTRA_WITHIN>,
    }
}

object! {
    /// The end of a beginning that the provider's cache may keep.
    struct CacheBreakpoint<'de> as "ResponsesCacheBreakpoint" {
        /// `explicit`.
        "mode": mode: Text<'de> = [Required, OneOf(&["explicit"])],
        /// The lifetime in the cache.
        "ttl": ttl: Text<'de> = [OneOf(&["30m", "12h"])],
        others: RefusedFields,
    }
}

object! {
    /// A tool that the model may call. Fields that weir does not know belong to a tool of the provider.
    struct ResponsesTool<'de> as "ResponsesTool" {
        /// The kind of the tool: `function`, `custom`, `namespace`, or a tool of the provider.
        "type": kind: Text<'de> = [Required, Chars(1, MAX_TYPE_CHARS)],
        /// The name of the tool.
        "name": name: String,
        /// The purpose of the tool, for the model.
        "description": description: String,
        /// In a `function`: the parameters, as a JSON schema of an object.
        "parameters": parameters: Raw<'de>,
        /// In a `function`: whether the arguments must fit the schema.
        "strict": strict: bool,
        /// In a `custom` tool: the form of its text.
        "format": format: Raw<'de>,
        /// In a `namespace`: its tools.
        "tools": tools: BoundedList<ResponsesTool<'de>, MAX_TOOLS>,
        others: ExtraFields<'de, MAX_EXTRA>,
    }
}

object! {
    /// A choice of one tool or several.
    struct ResponsesToolChoice<'de> as "ResponsesToolChoice" {
        /// The kind of the choice: a `function`, a `custom` tool, or several tools in `allowed_tools`.
        "type": kind: Text<'de> = [Required, OneOf(&["function", "custom", "allowed_tools"])],
        /// The name of the tool.
        "name": name: String,
        /// With `allowed_tools`: whether the model must call one of them.
        "mode": mode: Text<'de> = [OneOf(&["auto", "required"])],
        /// With `allowed_tools`: the tools.
        "tools": tools: BoundedList<ResponsesNamedTool<'de>, MAX_TOOLS> = [Items(1)],
        others: RefusedFields,
    }
}

object! {
    /// A tool by its name.
    struct ResponsesNamedTool<'de> as "ResponsesNamedTool" {
        /// The kind of the tool.
        "type": kind: Text<'de> = [Required, OneOf(&["function", "custom"])],
        /// The name of the tool.
        "name": name: String = [Required],
        others: RefusedFields,
    }
}

object! {
    /// The form of the response's text.
    struct TextConfig<'de> as "ResponsesTextConfig" {
        /// The format of the text.
        "format": format: Raw<'de> = [Is(TextFormat::schema)],
        /// The length of the response: `low`, `medium` or `high`. The provider checks it.
        "verbosity": verbosity: Raw<'de>,
        others: RefusedFields,
    }
}

object! {
    /// The format of the response's text.
    struct TextFormat<'de> as "ResponsesTextFormat" {
        /// `text`, any JSON object, or JSON that fits a schema.
        "type": kind: Text<'de> = [Required, OneOf(&["text", "json_object", "json_schema"])],
        /// With `json_schema`: the name of the schema, for the model.
        "name": name: String = [Chars(0, MAX_SCHEMA_NAME_CHARS)],
        /// With `json_schema`: the purpose of the schema, for the model.
        "description": description: String,
        /// With `json_schema`: the JSON schema.
        "schema": schema: Raw<'de> = [Object],
        /// With `json_schema`: whether the response must fit the schema.
        "strict": strict: bool,
        others: RefusedFields,
    }
}

object! {
    /// The settings of the model's reasoning.
    struct ReasoningOptions<'de> as "ResponsesReasoning" {
        /// The effort of the model's reasoning; `max` is another name of `xhigh`.
        "effort": effort: Text<'de> = [OneOf(&EFFORTS)],
        /// The detail of the readable reasoning, such as `auto`, `concise` or `detailed`.
        "summary": summary: String = [Chars(0, MAX_SUMMARY_CHARS)],
        /// The earlier name of `summary`.
        "generate_summary": generate_summary: String = [Chars(0, MAX_SUMMARY_CHARS)],
        others: RefusedFields,
    }
}

object! {
    /// The settings of a stream.
    struct ResponsesStreamOptions<'de> as "ResponsesStreamOptions" {
        /// Padding of events, which is not supported: `false`.
        "include_obfuscation": include_obfuscation: bool = [Always(false)],
        /// A field of Chat Completions. It has no effect: a stream always ends with the token usage.
        "include_usage": include_usage: IgnoredField,
        others: RefusedFields,
    }
}

fn tool_choice_schema(schemas: &mut Schemas) -> Value {
    let modes = json!({ "type": "string", "enum": ["none", "auto", "required"] });
    json!({ "anyOf": [modes, ResponsesToolChoice::schema(schemas)] })
}

/// Plain text, or a list of items.
pub(super) type ResponsesInput<'de> = TextOr<RawItem<'de>, MAX_MESSAGES>;

/// An item of the input as the client wrote it: items of hosted tools stay so.
pub(super) struct RawItem<'de>(pub(super) Raw<'de>);

impl<'de> Deserialize<'de> for RawItem<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Raw::deserialize(deserializer).map(Self)
    }
}

impl ListItem for RawItem<'_> {
    const PLURAL: &'static str = "items";
}

impl Described for RawItem<'_> {
    fn schema(schemas: &mut Schemas) -> Value {
        InputItem::schema(schemas)
    }
}

/// The content of an item: plain text, or a list of parts.
pub(super) type InputContent<'de> = TextOr<InputPart<'de>, MAX_PARTS>;

impl ListItem for InputPart<'_> {
    const PLURAL: &'static str = "parts";
}
