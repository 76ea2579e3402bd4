//! The JSON of a request: its objects, and the types of their fields.
//!
//! [`super::request`], [`super::messages`] and [`super::tools`] interpret the values.

use std::fmt;

use serde::de::value::{BorrowedStrDeserializer, MapAccessDeserializer};
use serde::de::{self, Deserialize, Deserializer, IntoDeserializer, MapAccess, Visitor};

use crate::json::{
    BoundedList, ExtraFields, IgnoredField, ListItem, MAX_EXTRA, MAX_EXTRA_WITHIN, MAX_MESSAGES,
    MAX_PARTS, MAX_TOOLS, Raw, RefusedFields, Text, TextOr, UnsupportedField, object,
};
use crate::openai::{Stop, StreamOptions};

object! {
    struct ChatRequestBody<'de> {
        "model": model: Text<'de>,
        "messages": messages: BoundedList<ChatMessageParam<'de>, MAX_MESSAGES>,
        "tools": tools: BoundedList<ChatTool<'de>, MAX_TOOLS>,
        "tool_choice": tool_choice: ChatToolChoice<'de>,
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
        "modalities": modalities: BoundedList<Text<'de>, MAX_PARTS>,
        "top_logprobs": top_logprobs: u32,
        "audio": audio: UnsupportedField,
        // A body in the form of Responses.
        "input": input: IgnoredField,
        "functions": functions: UnsupportedField,
        "function_call": function_call: UnsupportedField,
        others: ExtraFields<'de, MAX_EXTRA>,
    }
}

object! {
    struct ChatMessageParam<'de> {
        "role": role: Text<'de>,
        "content": content: ChatContent<'de>,
        "name": name: String,
        "tool_call_id": tool_call_id: String,
        "tool_calls": tool_calls: BoundedList<ToolCall<'de>, MAX_PARTS>,
        "reasoning_content": reasoning_content: String,
        // OpenRouter's name of the same field.
        "reasoning": reasoning: String,
        "reasoning_details": reasoning_details: BoundedList<ReasoningDetail<'de>, MAX_PARTS>,
        "refusal": refusal: String,
        "images": images: BoundedList<ChatPart<'de>, MAX_PARTS>,
        "provider_specific_fields": provider_specific_fields: ProviderFields<'de>,
        "annotations": annotations: IgnoredField,
        // SDK helpers that parse a response's JSON keep the result in this field, here and in a call.
        "parsed": parsed: IgnoredField,
        others: ExtraFields<'de, MAX_EXTRA_WITHIN>,
    }
}

object! {
    struct ChatPart<'de> {
        "type": kind: Text<'de>,
        "text": text: String,
        "refusal": refusal: String,
        "image_url": image_url: ImageUrlOrText<'de>,
        "file": file: File<'de>,
        "input_audio": input_audio: InputAudio<'de>,
        "cache_control": cache_control: CacheControl<'de>,
        // Streams have it in entries of `images`.
        "index": index: IgnoredField,
        others: ExtraFields<'de, MAX_EXTRA_WITHIN>,
    }
}

object! {
    struct ImageUrl<'de> {
        "url": url: Text<'de>,
        "detail": detail: Text<'de>,
        others: RefusedFields,
    }
}

object! {
    struct File<'de> {
        "file_data": file_data: Text<'de>,
        "file_id": file_id: String,
        "filename": filename: String,
        others: RefusedFields,
    }
}

object! {
    struct InputAudio<'de> {
        "data": data: Text<'de>,
        "format": format: Text<'de>,
        others: RefusedFields,
    }
}

object! {
    struct CacheControl<'de> {
        "type": kind: Text<'de>,
        "ttl": ttl: Text<'de>,
        others: RefusedFields,
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
        "format": format: IgnoredField,
        "index": index: IgnoredField,
        others: RefusedFields,
    }
}

object! {
    /// LiteLLM's field for a provider's data beyond the dialect; clients send it back. Only `blocks` is weir's.
    struct ProviderFields<'de> {
        "blocks": blocks: BoundedList<OpaqueBlock<'de>, MAX_PARTS>,
        others: IgnoredField,
    }
}

object! {
    struct OpaqueBlock<'de> {
        "kind": kind: String,
        "block": block: Raw<'de>,
        "provider": provider: String,
        "index": index: IgnoredField,
        others: RefusedFields,
    }
}

object! {
    struct ToolCall<'de> {
        "id": id: String,
        "type": kind: Text<'de>,
        "function": function: CalledFunction<'de>,
        "custom": custom: CalledCustom<'de>,
        "extra_content": extra_content: ExtraContent<'de>,
        "provider_specific_fields": provider_specific_fields: SignatureFields<'de>,
        // Clients that combine a streamed call keep it.
        "index": index: IgnoredField,
        others: RefusedFields,
    }
}

object! {
    /// A call's field in Google's endpoint for this dialect; clients send it back.
    struct ExtraContent<'de> {
        "google": google: SignatureFields<'de>,
        others: IgnoredField,
    }
}

object! {
    /// A call's signature. In `provider_specific_fields`, here and in a function, it is LiteLLM's.
    struct SignatureFields<'de> {
        "thought_signature": thought_signature: Text<'de>,
        others: IgnoredField,
    }
}

object! {
    struct CalledFunction<'de> {
        "name": name: String,
        "arguments": arguments: String,
        "parsed_arguments": parsed_arguments: IgnoredField,
        "provider_specific_fields": provider_specific_fields: SignatureFields<'de>,
        others: RefusedFields,
    }
}

object! {
    struct CalledCustom<'de> {
        "name": name: String,
        "input": input: String,
        others: RefusedFields,
    }
}

object! {
    struct ChatTool<'de> {
        "type": kind: Text<'de>,
        "function": function: Function<'de>,
        "custom": custom: Custom<'de>,
        "cache_control": cache_control: CacheControl<'de>,
        others: ExtraFields<'de, MAX_EXTRA>,
    }
}

object! {
    struct Function<'de> {
        "name": name: String,
        "description": description: String,
        "parameters": parameters: Raw<'de>,
        "strict": strict: bool,
        others: ExtraFields<'de, MAX_EXTRA_WITHIN>,
    }
}

object! {
    struct Custom<'de> {
        "name": name: String,
        "description": description: String,
        "format": format: Raw<'de>,
        others: RefusedFields,
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
        others: RefusedFields,
    }
}

object! {
    struct AllowedTools<'de> {
        "mode": mode: Text<'de>,
        "tools": tools: BoundedList<NamedTool<'de>, MAX_TOOLS>,
        others: RefusedFields,
    }
}

object! {
    struct NamedTool<'de> {
        "type": kind: Text<'de>,
        "function": function: ToolName<'de>,
        "custom": custom: ToolName<'de>,
        "name": name: String,
        others: RefusedFields,
    }
}

object! {
    struct ToolName<'de> {
        "name": name: String,
        others: RefusedFields,
    }
}

object! {
    struct ResponseFormat<'de> {
        "type": kind: Text<'de>,
        "json_schema": json_schema: JsonSchema<'de>,
        others: RefusedFields,
    }
}

object! {
    struct JsonSchema<'de> {
        "name": name: String,
        "description": description: String,
        "schema": schema: Raw<'de>,
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
