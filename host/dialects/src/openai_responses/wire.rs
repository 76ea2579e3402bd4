//! The JSON of a request: its objects, and the types of their fields.
//!
//! [`super::request`], [`super::input`] and [`super::tools`] interpret the values.

use crate::json::{
    Extra, Ignored, List, Listed, MAX_EXTRA, MAX_EXTRA_WITHIN, MAX_MESSAGES, MAX_PARTS, MAX_TOOLS,
    Raw, Refused, Text, TextOr, Unsupported, object,
};

/// The maximum values of `include`; OpenAI knows seven.
const MAX_INCLUDE: usize = 32;

object! {
    struct Body<'de> {
        "model": model: Text<'de>,
        "input": input: Input<'de>,
        "instructions": instructions: String,
        "previous_response_id": previous_response_id: String,
        "tools": tools: List<Tool<'de>, MAX_TOOLS>,
        "tool_choice": tool_choice: Raw<'de>,
        "parallel_tool_calls": parallel_tool_calls: bool,
        "max_tool_calls": max_tool_calls: u32,
        "text": text: TextConfig<'de>,
        "reasoning": reasoning: Reasoning<'de>,
        "include": include: List<Text<'de>, MAX_INCLUDE>,
        "max_output_tokens": max_output_tokens: u32,
        "temperature": temperature: f64,
        "top_p": top_p: f64,
        "presence_penalty": presence_penalty: f64,
        "frequency_penalty": frequency_penalty: f64,
        "top_logprobs": top_logprobs: u32,
        "stream": stream: bool,
        "stream_options": stream_options: StreamOptions<'de>,
        "store": store: bool,
        "background": background: bool,
        "conversation": conversation: Unsupported,
        "prompt": prompt: Unsupported,
        "session_id": session_id: Unsupported,
        others: Extra<'de, MAX_EXTRA>,
    }
}

object! {
    /// An item of the input; its `type` determines its fields.
    struct Item<'de> {
        "type": kind: Text<'de>,
        "id": id: Text<'de>,
        "role": role: Text<'de>,
        "content": content: Content<'de>,
        "call_id": call_id: String,
        "name": name: String,
        "arguments": arguments: String,
        "input": input: String,
        "output": output: Content<'de>,
        "summary": summary: List<Part<'de>, MAX_PARTS>,
        "encrypted_content": encrypted_content: Text<'de>,
        "result": result: Text<'de>,
        "output_format": output_format: Text<'de>,
        // Fields of responses besides the content.
        "status": status: Ignored,
        "phase": phase: Ignored,
        "caller": caller: Ignored,
        "parsed_arguments": parsed_arguments: Ignored,
        others: Extra<'de, MAX_EXTRA_WITHIN>,
    }
}

object! {
    /// A part of an item; its `type` determines its fields.
    struct Part<'de> {
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
        "annotations": annotations: Ignored,
        "logprobs": logprobs: Ignored,
        "parsed": parsed: Ignored,
        others: Extra<'de, MAX_EXTRA_WITHIN>,
    }
}

object! {
    struct CacheBreakpoint<'de> {
        "mode": mode: Text<'de>,
        "ttl": ttl: Text<'de>,
        others: Refused,
    }
}

object! {
    struct Tool<'de> {
        "type": kind: Text<'de>,
        "name": name: String,
        "description": description: String,
        "parameters": parameters: Raw<'de>,
        "strict": strict: bool,
        "format": format: Raw<'de>,
        others: Extra<'de, MAX_EXTRA>,
    }
}

object! {
    /// A choice of one or several tools, by name.
    struct ChosenTool<'de> {
        "type": kind: Text<'de>,
        "name": name: String,
        "mode": mode: Text<'de>,
        "tools": tools: List<NamedTool<'de>, MAX_TOOLS>,
        others: Refused,
    }
}

object! {
    struct NamedTool<'de> {
        "type": kind: Text<'de>,
        "name": name: String,
        others: Refused,
    }
}

object! {
    struct TextConfig<'de> {
        "format": format: Raw<'de>,
        "verbosity": verbosity: Raw<'de>,
        others: Refused,
    }
}

object! {
    struct Format<'de> {
        "type": kind: Text<'de>,
        "name": name: String,
        "description": description: String,
        "schema": schema: Raw<'de>,
        "strict": strict: bool,
        others: Refused,
    }
}

object! {
    struct Reasoning<'de> {
        "effort": effort: Text<'de>,
        "summary": summary: String,
        // The earlier name of `summary`.
        "generate_summary": generate_summary: String,
        others: Refused,
    }
}

object! {
    struct StreamOptions<'de> {
        "include_obfuscation": include_obfuscation: bool,
        others: Refused,
    }
}

/// Plain text, or a list of items.
pub(super) type Input<'de> = TextOr<Item<'de>, MAX_MESSAGES>;

impl Listed for Item<'_> {
    const PLURAL: &'static str = "items";
}

/// The content of an item: plain text, or a list of parts.
pub(super) type Content<'de> = TextOr<Part<'de>, MAX_PARTS>;

impl Listed for Part<'_> {
    const PLURAL: &'static str = "parts";
}
