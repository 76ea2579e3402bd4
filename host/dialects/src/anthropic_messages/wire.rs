//! The JSON of a request: its objects, and the types of their fields.
//!
//! [`super::request`], [`super::content`] and [`super::tools`] interpret the values. A block is parsed from raw JSON
//! after its message: a block of an unknown type is passed on unchanged.

use crate::json::{
    BoundedList, ExtraFields, IgnoredField, ListItem, MAX_EXTRA, MAX_EXTRA_WITHIN, MAX_MESSAGES,
    MAX_PARTS, MAX_STOPS, MAX_TOOLS, Raw, RefusedFields, Text, TextOr, UnsupportedField, object,
};

object! {
    struct MessagesRequestBody<'de> {
        "model": model: Text<'de>,
        "messages": messages: Messages<'de>,
        "system": system: AnthropicContent<'de>,
        "max_tokens": max_tokens: u32,
        "tools": tools: BoundedList<AnthropicTool<'de>, MAX_TOOLS>,
        "tool_choice": tool_choice: AnthropicToolChoice<'de>,
        "thinking": thinking: Thinking<'de>,
        "output_config": output_config: OutputConfig<'de>,
        // The earlier name of `output_config.format`.
        "output_format": output_format: AnthropicFormat<'de>,
        "metadata": metadata: Metadata<'de>,
        "temperature": temperature: f64,
        "top_p": top_p: f64,
        "top_k": top_k: u32,
        "stop_sequences": stop_sequences: BoundedList<String, MAX_STOPS>,
        "stream": stream: bool,
        "session_id": session_id: UnsupportedField,
        others: ExtraFields<'de, MAX_EXTRA>,
    }
}

/// The messages of a body.
pub(super) type Messages<'de> = BoundedList<AnthropicMessageParam<'de>, MAX_MESSAGES>;

object! {
    struct AnthropicMessageParam<'de> {
        "role": role: Text<'de>,
        "content": content: AnthropicContent<'de>,
        others: ExtraFields<'de, MAX_EXTRA_WITHIN>,
    }
}

object! {
    /// A block of content; its `type` determines its fields. The content of `content`, `source` and `citations` depends
    /// on the type, too.
    struct Block<'de> {
        "type": kind: Text<'de>,
        "text": text: String,
        "source": source: Raw<'de>,
        "title": title: String,
        "context": context: String,
        "citations": citations: Raw<'de>,
        "thinking": thinking: String,
        "signature": signature: String,
        "data": data: String,
        "id": id: String,
        "name": name: String,
        "input": input: Raw<'de>,
        "tool_use_id": tool_use_id: String,
        "content": content: Raw<'de>,
        "is_error": is_error: bool,
        "cache_control": cache_control: Raw<'de>,
        // weir's own field: see the module above.
        "provider": provider: String,
        others: ExtraFields<'de, MAX_EXTRA_WITHIN>,
    }
}

object! {
    struct Source<'de> {
        "type": kind: Text<'de>,
        "media_type": media_type: Text<'de>,
        "data": data: Text<'de>,
        "url": url: Text<'de>,
        "file_id": file_id: String,
        others: RefusedFields,
    }
}

object! {
    /// The fields that determine a document's form.
    struct DocumentSource<'de> {
        "type": kind: Text<'de>,
        others: IgnoredField,
    }
}

object! {
    struct Citations<'de> {
        "enabled": enabled: bool,
        others: RefusedFields,
    }
}

object! {
    struct AnthropicCacheControl<'de> {
        "type": kind: Text<'de>,
        "ttl": ttl: Text<'de>,
        others: ExtraFields<'de, MAX_EXTRA_WITHIN>,
    }
}

object! {
    struct AnthropicTool<'de> {
        "type": kind: Text<'de>,
        "name": name: String,
        "description": description: String,
        "input_schema": input_schema: Raw<'de>,
        "strict": strict: bool,
        "cache_control": cache_control: Raw<'de>,
        others: ExtraFields<'de, MAX_EXTRA>,
    }
}

object! {
    struct AnthropicToolChoice<'de> {
        "type": kind: Text<'de>,
        "name": name: String,
        "disable_parallel_tool_use": disable_parallel_tool_use: bool,
        others: RefusedFields,
    }
}

object! {
    struct Thinking<'de> {
        "type": kind: Text<'de>,
        "budget_tokens": budget_tokens: u32,
        "display": display: String,
        others: RefusedFields,
    }
}

object! {
    struct OutputConfig<'de> {
        "effort": effort: Text<'de>,
        "format": format: AnthropicFormat<'de>,
        others: ExtraFields<'de, MAX_EXTRA_WITHIN>,
    }
}

object! {
    struct AnthropicFormat<'de> {
        "type": kind: Text<'de>,
        "schema": schema: Raw<'de>,
        others: RefusedFields,
    }
}

object! {
    struct Metadata<'de> {
        "user_id": user_id: String,
        others: ExtraFields<'de, MAX_EXTRA_WITHIN>,
    }
}

/// Plain text, or a list of blocks.
pub(super) type AnthropicContent<'de> = TextOr<Raw<'de>, MAX_PARTS>;

impl ListItem for Raw<'_> {
    const PLURAL: &'static str = "blocks";
}
