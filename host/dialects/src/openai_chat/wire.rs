//! The JSON of a request: its objects, and the types of their fields.
//!
//! [`super::request`], [`super::messages`] and [`super::tools`] interpret the values.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use crate::json::{
    Extra, Ignored, List, Listed, MAX_EXTRA, MAX_EXTRA_WITHIN, MAX_MESSAGES, MAX_PARTS, MAX_STOPS,
    MAX_TOOLS, Raw, Refused, Text, TextOr, Unsupported, object,
};

object! {
    struct Body<'de> {
        "model": model: Text<'de>,
        "messages": messages: List<Message<'de>, MAX_MESSAGES>,
        "tools": tools: List<Tool<'de>, MAX_TOOLS>,
        "tool_choice": tool_choice: ToolChoice<'de>,
        "parallel_tool_calls": parallel_tool_calls: bool,
        "response_format": response_format: ResponseFormat<'de>,
        "reasoning_effort": reasoning_effort: Text<'de>,
        "max_tokens": max_tokens: u32,
        "max_completion_tokens": max_completion_tokens: u32,
        "temperature": temperature: f64,
        "top_p": top_p: f64,
        "top_k": top_k: u32,
        "presence_penalty": presence_penalty: f64,
        "frequency_penalty": frequency_penalty: f64,
        "seed": seed: i64,
        "stop": stop: Stop,
        "stream": stream: bool,
        "stream_options": stream_options: StreamOptions<'de>,
        "n": n: u32,
        "logprobs": logprobs: bool,
        "modalities": modalities: List<Text<'de>, MAX_PARTS>,
        "top_logprobs": top_logprobs: u32,
        "audio": audio: Unsupported,
        "functions": functions: Unsupported,
        "function_call": function_call: Unsupported,
        others: Extra<'de, MAX_EXTRA>,
    }
}

object! {
    struct Message<'de> {
        "role": role: Text<'de>,
        "content": content: Content<'de>,
        "name": name: String,
        "tool_call_id": tool_call_id: String,
        "tool_calls": tool_calls: List<ToolCall<'de>, MAX_PARTS>,
        "reasoning_content": reasoning_content: String,
        // OpenRouter's name of the same field.
        "reasoning": reasoning: String,
        "reasoning_details": reasoning_details: List<ReasoningDetail<'de>, MAX_PARTS>,
        "refusal": refusal: String,
        "images": images: List<Part<'de>, MAX_PARTS>,
        "provider_specific_fields": provider_specific_fields: ProviderFields<'de>,
        "annotations": annotations: Ignored,
        // SDK helpers that parse a response's JSON keep the result in this field, here and in a call.
        "parsed": parsed: Ignored,
        others: Extra<'de, MAX_EXTRA_WITHIN>,
    }
}

object! {
    struct Part<'de> {
        "type": kind: Text<'de>,
        "text": text: String,
        "refusal": refusal: String,
        "image_url": image_url: ImageUrl<'de>,
        "file": file: File<'de>,
        "input_audio": input_audio: InputAudio<'de>,
        "cache_control": cache_control: CacheControl<'de>,
        // Streams have it in entries of `images`.
        "index": index: Ignored,
        others: Extra<'de, MAX_EXTRA_WITHIN>,
    }
}

object! {
    struct ImageUrl<'de> {
        "url": url: Text<'de>,
        "detail": detail: Text<'de>,
        others: Refused,
    }
}

object! {
    struct File<'de> {
        "file_data": file_data: Text<'de>,
        "file_id": file_id: String,
        "filename": filename: String,
        others: Refused,
    }
}

object! {
    struct InputAudio<'de> {
        "data": data: Text<'de>,
        "format": format: Text<'de>,
        others: Refused,
    }
}

object! {
    struct CacheControl<'de> {
        "type": kind: Text<'de>,
        "ttl": ttl: Text<'de>,
        others: Refused,
    }
}

object! {
    /// A piece of reasoning in OpenRouter's form.
    struct ReasoningDetail<'de> {
        "type": kind: Text<'de>,
        "text": text: String,
        "summary": summary: String,
        "signature": signature: String,
        "data": data: String,
        "id": id: String,
        "provider": provider: String,
        // OpenRouter's word for the provider's format, and the index in streamed lists.
        "format": format: Ignored,
        "index": index: Ignored,
        others: Refused,
    }
}

object! {
    /// LiteLLM's field for a provider's data beyond the dialect; clients send it back. Only `blocks` is weir's.
    struct ProviderFields<'de> {
        "blocks": blocks: List<OpaqueBlock<'de>, MAX_PARTS>,
        others: Ignored,
    }
}

object! {
    struct OpaqueBlock<'de> {
        "kind": kind: String,
        "block": block: Raw<'de>,
        "provider": provider: String,
        "index": index: Ignored,
        others: Refused,
    }
}

object! {
    struct ToolCall<'de> {
        "id": id: String,
        "type": kind: Text<'de>,
        "function": function: CalledFunction<'de>,
        "custom": custom: CalledCustom<'de>,
        // Clients that combine a streamed call keep it.
        "index": index: Ignored,
        others: Refused,
    }
}

object! {
    struct CalledFunction<'de> {
        "name": name: String,
        "arguments": arguments: String,
        "parsed_arguments": parsed_arguments: Ignored,
        others: Refused,
    }
}

object! {
    struct CalledCustom<'de> {
        "name": name: String,
        "input": input: String,
        others: Refused,
    }
}

object! {
    struct Tool<'de> {
        "type": kind: Text<'de>,
        "function": function: Function<'de>,
        "custom": custom: Custom<'de>,
        "cache_control": cache_control: CacheControl<'de>,
        others: Extra<'de, MAX_EXTRA>,
    }
}

object! {
    struct Function<'de> {
        "name": name: String,
        "description": description: String,
        "parameters": parameters: Raw<'de>,
        "strict": strict: bool,
        others: Extra<'de, MAX_EXTRA_WITHIN>,
    }
}

object! {
    struct Custom<'de> {
        "name": name: String,
        "description": description: String,
        "format": format: Raw<'de>,
        others: Refused,
    }
}

object! {
    /// A choice of one or several tools, by name.
    struct ChosenTool<'de> {
        "type": kind: Text<'de>,
        "function": function: ToolName<'de>,
        "custom": custom: ToolName<'de>,
        "name": name: String,
        "allowed_tools": allowed_tools: AllowedTools<'de>,
        others: Refused,
    }
}

object! {
    struct AllowedTools<'de> {
        "mode": mode: Text<'de>,
        "tools": tools: List<NamedTool<'de>, MAX_TOOLS>,
        others: Refused,
    }
}

object! {
    struct NamedTool<'de> {
        "type": kind: Text<'de>,
        "function": function: ToolName<'de>,
        "custom": custom: ToolName<'de>,
        "name": name: String,
        others: Refused,
    }
}

object! {
    struct ToolName<'de> {
        "name": name: String,
        others: Refused,
    }
}

object! {
    struct ResponseFormat<'de> {
        "type": kind: Text<'de>,
        "json_schema": json_schema: JsonSchema<'de>,
        others: Refused,
    }
}

object! {
    struct JsonSchema<'de> {
        "name": name: String,
        "description": description: String,
        "schema": schema: Raw<'de>,
        "strict": strict: bool,
        others: Refused,
    }
}

object! {
    struct StreamOptions<'de> {
        "include_usage": include_usage: bool,
        "include_obfuscation": include_obfuscation: bool,
        others: Refused,
    }
}

/// The content of a message: plain text, or a list of parts.
pub(super) type Content<'de> = TextOr<Part<'de>, MAX_PARTS>;

impl Listed for Part<'_> {
    const PLURAL: &'static str = "parts";
}

/// One stop sequence, or a list of them.
pub(super) type Stop = TextOr<String, MAX_STOPS>;

impl Listed for String {
    const PLURAL: &'static str = "strings";
}

/// A mode by its word, or tools by name.
pub(super) enum ToolChoice<'de> {
    Mode(String),
    Chosen(ChosenTool<'de>),
}

impl<'de> Deserialize<'de> for ToolChoice<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = ToolChoice<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string or an object")
            }

            fn visit_str<E: de::Error>(self, mode: &str) -> Result<Self::Value, E> {
                Ok(ToolChoice::Mode(mode.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                ChosenTool::deserialize(MapAccessDeserializer::new(map)).map(ToolChoice::Chosen)
            }
        }

        deserializer.deserialize_any(Either)
    }
}
