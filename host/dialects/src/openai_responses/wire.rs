//! The JSON of a request: its objects, and the types of their fields.
//!
//! [`super::request`], [`super::input`] and [`super::tools`] interpret the values.

use crate::json::{
    BoundedList, ExtraFields, IgnoredField, ListItem, MAX_EXTRA, MAX_EXTRA_WITHIN, MAX_MESSAGES,
    MAX_PARTS, MAX_TOOLS, Raw, RefusedFields, Text, TextOr, UnsupportedField, object,
};

/// The maximum values of `include`; OpenAI knows seven.
const MAX_INCLUDE: usize = 32;

object! {
    struct ResponsesRequestBody<'de> {
        "model": model: Text<'de>,
        "input": input: ResponsesInput<'de>,
        "instructions": instructions: String,
        "previous_response_id": previous_response_id: String,
        "tools": tools: BoundedList<ResponsesTool<'de>, MAX_TOOLS>,
        "tool_choice": tool_choice: Raw<'de>,
        "parallel_tool_calls": parallel_tool_calls: bool,
        "max_tool_calls": max_tool_calls: u32,
        "text": text: TextConfig<'de>,
        "reasoning": reasoning: ReasoningOptions<'de>,
        "include": include: BoundedList<Text<'de>, MAX_INCLUDE>,
        "max_output_tokens": max_output_tokens: u32,
        "temperature": temperature: f64,
        "top_p": top_p: f64,
        "presence_penalty": presence_penalty: f64,
        "frequency_penalty": frequency_penalty: f64,
        "top_logprobs": top_logprobs: u32,
        "stream": stream: bool,
        "stream_options": stream_options: ResponsesStreamOptions<'de>,
        "store": store: bool,
        "background": background: bool,
        "conversation": conversation: UnsupportedField,
        "prompt": prompt: UnsupportedField,
        "session_id": session_id: UnsupportedField,
        others: ExtraFields<'de, MAX_EXTRA>,
    }
}

object! {
    /// An item of the input; its `type` determines its fields.
    struct InputItem<'de> {
        "type": kind: Text<'de>,
        "id": id: Text<'de>,
        "role": role: Text<'de>,
        "content": content: InputContent<'de>,
        "call_id": call_id: String,
        "name": name: String,
        "arguments": arguments: String,
        "input": input: String,
        "output": output: InputContent<'de>,
        "summary": summary: BoundedList<InputPart<'de>, MAX_PARTS>,
        "encrypted_content": encrypted_content: Text<'de>,
        "result": result: Text<'de>,
        "output_format": output_format: Text<'de>,
        "namespace": namespace: String,
        "tools": tools: BoundedList<ResponsesTool<'de>, MAX_TOOLS>,
        // Fields of responses besides the content.
        "status": status: IgnoredField,
        "phase": phase: IgnoredField,
        "caller": caller: IgnoredField,
        "parsed_arguments": parsed_arguments: IgnoredField,
        others: ExtraFields<'de, MAX_EXTRA_WITHIN>,
    }
}

object! {
    /// A part of an item; its `type` determines its fields.
    struct InputPart<'de> {
        "type": kind: Text<'de>,
        "text": text: String,
        "refusal": refusal: String,
        "image_url": image_url: Text<'de>,
        "detail": detail: Text<'de>,
        "file_id": file_id: String,
        "file_data": file_data: Text<'de>,
        "file_url": file_url: Text<'de>,
        "filename": filename: String,
        "prompt_cache_breakpoint": prompt_cache_breakpoint: CacheBreakpoint<'de>,
        // Fields of responses besides the content, and results of SDK helpers.
        "annotations": annotations: IgnoredField,
        "logprobs": logprobs: IgnoredField,
        "parsed": parsed: IgnoredField,
        others: ExtraFields<'de, MAX_EXTRA_WITHIN>,
    }
}

object! {
    struct CacheBreakpoint<'de> {
        "mode": mode: Text<'de>,
        "ttl": ttl: Text<'de>,
        others: RefusedFields,
    }
}

object! {
    struct ResponsesTool<'de> {
        "type": kind: Text<'de>,
        "name": name: String,
        "description": description: String,
        "parameters": parameters: Raw<'de>,
        "strict": strict: bool,
        "format": format: Raw<'de>,
        // The tools of a namespace.
        "tools": tools: BoundedList<ResponsesTool<'de>, MAX_TOOLS>,
        others: ExtraFields<'de, MAX_EXTRA>,
    }
}

object! {
    /// A choice of one or several tools, by name.
    struct ResponsesToolChoice<'de> {
        "type": kind: Text<'de>,
        "name": name: String,
        "mode": mode: Text<'de>,
        "tools": tools: BoundedList<ResponsesNamedTool<'de>, MAX_TOOLS>,
        others: RefusedFields,
    }
}

object! {
    struct ResponsesNamedTool<'de> {
        "type": kind: Text<'de>,
        "name": name: String,
        others: RefusedFields,
    }
}

object! {
    struct TextConfig<'de> {
        "format": format: Raw<'de>,
        "verbosity": verbosity: Raw<'de>,
        others: RefusedFields,
    }
}

object! {
    struct TextFormat<'de> {
        "type": kind: Text<'de>,
        "name": name: String,
        "description": description: String,
        "schema": schema: Raw<'de>,
        "strict": strict: bool,
        others: RefusedFields,
    }
}

object! {
    struct ReasoningOptions<'de> {
        "effort": effort: Text<'de>,
        "summary": summary: String,
        // The earlier name of `summary`.
        "generate_summary": generate_summary: String,
        others: RefusedFields,
    }
}

object! {
    struct ResponsesStreamOptions<'de> {
        "include_obfuscation": include_obfuscation: bool,
        // A field of Chat Completions. Here, a stream always ends with usage.
        "include_usage": include_usage: IgnoredField,
        others: RefusedFields,
    }
}

/// Plain text, or a list of items.
pub(super) type ResponsesInput<'de> = TextOr<InputItem<'de>, MAX_MESSAGES>;

impl ListItem for InputItem<'_> {
    const PLURAL: &'static str = "items";
}

/// The content of an item: plain text, or a list of parts.
pub(super) type InputContent<'de> = TextOr<InputPart<'de>, MAX_PARTS>;

impl ListItem for InputPart<'_> {
    const PLURAL: &'static str = "parts";
}
