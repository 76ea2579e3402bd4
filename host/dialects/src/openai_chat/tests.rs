//! Tests of request parsing: translations, and errors.

#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use serde_json::{Value, json};
use weir_errors::ApiError;
use weir_sandbox::adapter::bindings::adapter::Client;
use weir_sandbox::adapter::bindings::chat::{
    AllowedTools, Audio, BuiltInTool, CacheLifetime, CallKind, ChatRequest, Content, CustomTool,
    File, FunctionTool, Image, JsonSchema, Message, Opaque, Part, Reasoning, ReasoningEffort,
    ReasoningRequest, ResponseFormat, Role, Source, Tool, ToolCall, ToolChoice, ToolContent,
    ToolKind, ToolResult,
};

use super::{Preferences, read};
use crate::{Attachment, ChatCall, Dialect, MessageOrigin};

/// Fields that invalidate a good request, and the expected complete message; its first word is the path.
const REFUSALS: &str = r##"
{"model": null}
    model is required.
{"model": ""}
    model must have 1 to 256 characters.
{"model": 5}
    model must be a string, not an integer.
{"messages": null}
    messages is required.
{"messages": []}
    messages must not be empty.
{"messages": "hi"}
    messages must be an array, not a string.
{"messages": ["hi"]}
    messages[0] must be an object, not a string.
{"messages": [null]}
    messages[0] must be an object, not null.
{"messages": [{"content": "x"}]}
    messages[0].role is required.
{"messages": [{"role": "function", "content": "x"}]}
    messages[0].role must not be function, which is not supported: use tool.
{"messages": [{"role": "bot", "content": "x"}]}
    messages[0].role must be one of system, developer, user, assistant, tool.
{"messages": [{"role": "user"}]}
    messages[0].content is required.
{"messages": [{"role": "user", "content": []}]}
    messages[0].content must not be empty.
{"messages": [{"role": "user", "content": {"a": 1}}]}
    messages[0].content must be a string or an array of parts, not an object.
{"messages": [{"role": "user", "name": "", "content": "x"}]}
    messages[0].name must have 1 to 64 characters.
{"messages": [{"role": "user", "tool_call_id": "c", "content": "x"}]}
    messages[0].tool_call_id is for messages of the tool role only.
{"messages": [{"role": "user", "content": "x", "tool_calls": []}]}
    messages[0].tool_calls is for messages of the assistant role only.
{"messages": [{"role": "system", "content": [{"type": "image_url", "image_url": {"url": "https://a.example"}}]}]}
    messages[0].content[0].type must be text.
{"messages": [{"role": "tool", "content": "x"}]}
    messages[0].tool_call_id is required.
{"messages": [{"role": "tool", "tool_call_id": "c"}]}
    messages[0].content is required.
{"messages": [{"role": "tool", "tool_call_id": "c", "content": [{"type": "file"}]}]}
    messages[0].content[0].type must be one of text, image_url.
{"messages": [{"role": "assistant", "content": null}]}
    messages[0].content is required without tool_calls.
{"messages": [{"role": "assistant", "content": []}]}
    messages[0].content is required without tool_calls.
{"messages": [{"role": "user", "content": "x", "reasoning": "r"}]}
    messages[0].reasoning is for messages of the assistant role only.
{"messages": [{"role": "user", "content": "x", "reasoning_details": []}]}
    messages[0].reasoning_details is for messages of the assistant role only.
{"messages": [{"role": "tool", "tool_call_id": "c", "content": "x", "provider_specific_fields": {}}]}
    messages[0].provider_specific_fields is for messages of the assistant role only.
{"messages": [{"role": "assistant", "reasoning": ["r"]}]}
    messages[0].reasoning must be a string, not an array.
{"messages": [{"role": "assistant", "reasoning_details": [{"text": "r"}]}]}
    messages[0].reasoning_details[0].type is required.
{"messages": [{"role": "assistant", "reasoning_details": [{"type": "reasoning.image"}]}]}
    messages[0].reasoning_details[0].type must be one of reasoning.text, reasoning.summary, reasoning.encrypted.
{"messages": [{"role": "assistant", "reasoning_details": [{"type": "reasoning.text"}]}]}
    messages[0].reasoning_details[0].text is required.
{"messages": [{"role": "assistant", "reasoning_details": [{"type": "reasoning.summary", "text": "r"}]}]}
    messages[0].reasoning_details[0].summary is required.
{"messages": [{"role": "assistant", "reasoning_details": [{"type": "reasoning.encrypted"}]}]}
    messages[0].reasoning_details[0].data is required.
{"messages": [{"role": "assistant", "reasoning_details": [{"type": "reasoning.text", "text": "r", "data": "d"}]}]}
    messages[0].reasoning_details[0].data does not belong to an entry of this type.
{"messages": [{"role": "assistant", "reasoning_details": [{"type": "reasoning.text", "text": "r", "foo": "d"}]}]}
    messages[0].reasoning_details[0].foo is not supported.
{"messages": [{"role": "assistant", "reasoning_details": [{"type": "reasoning.text", "text": "r", "provider": ""}]}]}
    messages[0].reasoning_details[0].provider must have 1 to 64 characters.
{"messages": [{"role": "assistant", "provider_specific_fields": {"blocks": [{"block": {}}]}}]}
    messages[0].provider_specific_fields.blocks[0].kind is required.
{"messages": [{"role": "assistant", "provider_specific_fields": {"blocks": [{"kind": "", "block": {}}]}}]}
    messages[0].provider_specific_fields.blocks[0].kind must have 1 to 64 characters.
{"messages": [{"role": "assistant", "provider_specific_fields": {"blocks": [{"kind": "k"}]}}]}
    messages[0].provider_specific_fields.blocks[0].block is required.
{"messages": [{"role": "assistant", "provider_specific_fields": {"blocks": [{"kind": "k", "block": [1]}]}}]}
    messages[0].provider_specific_fields.blocks[0].block must be an object.
{"messages": [{"role": "assistant", "provider_specific_fields": {"blocks": [{"kind": "k", "block": {}, "foo": 1}]}}]}
    messages[0].provider_specific_fields.blocks[0].foo is not supported.
{"messages": [{"role": "assistant", "provider_specific_fields": {"blocks": [{"kind": "k", "block": {}, "provider": ""}]}}]}
    messages[0].provider_specific_fields.blocks[0].provider must have 1 to 64 characters.
{"messages": [{"role": "assistant", "provider_specific_fields": {"thought_signatures": ["s"]}}]}
    messages[0].content is required without tool_calls.
{"messages": [{"role": "assistant", "tool_calls": [{"type": "web_search"}]}]}
    messages[0].tool_calls[0].type must be one of function, custom.
{"messages": [{"role": "assistant", "tool_calls": [{"type": "custom"}]}]}
    messages[0].tool_calls[0].id is required.
{"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "type": "custom"}]}]}
    messages[0].tool_calls[0].custom is required.
{"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {"input": "x"}}]}]}
    messages[0].tool_calls[0].custom.name is required.
{"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "", "input": "x"}}]}]}
    messages[0].tool_calls[0].custom.name must not be empty.
{"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "f"}}]}]}
    messages[0].tool_calls[0].custom.input is required.
{"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "custom": {"name": "f", "input": "x"}}]}]}
    messages[0].tool_calls[0].custom does not belong to a call of this type.
{"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "foo": 1}]}]}
    messages[0].tool_calls[0].foo is not supported.
{"messages": [{"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "x", "foo": 1}]}]}
    messages[0].content[0].foo is not supported.
{"messages": [{"role": "tool", "tool_call_id": "c", "content": [{"type": "input_audio"}]}]}
    messages[0].content[0].type must be one of text, image_url.
{"messages": [{"role": "assistant", "content": [{"type": "input_audio"}]}]}
    messages[0].content[0].type must be one of text, refusal.
{"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]}
    messages[0].tool_calls[0].id is required.
{"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f"}}]}]}
    messages[0].tool_calls[0].function.arguments is required.
{"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {}}}]}]}
    messages[0].tool_calls[0].function.arguments must be a string, not an object.
{"messages": [{"role": "assistant", "content": "x", "images": [{"type": "text", "text": "x"}]}]}
    messages[0].images[0].type must be image_url.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {}]}]}
    messages[0].content[1].type is required.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "video"}]}]}
    messages[0].content[1].type must be one of text, image_url, input_audio, file.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "input_audio"}]}]}
    messages[0].content[1].input_audio is required.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "input_audio", "input_audio": {}}]}]}
    messages[0].content[1].input_audio.data is required.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "input_audio", "input_audio": {"data": "AQID"}}]}]}
    messages[0].content[1].input_audio.format is required.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "input_audio", "input_audio": {"data": "AQID", "format": "w/v"}}]}]}
    messages[0].content[1].input_audio.format must be the name of a format, e.g. wav.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "input_audio", "input_audio": {"data": "data:audio/wav;base64,AQID", "format": "wav"}}]}]}
    messages[0].content[1].input_audio.data must hold valid base64.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]}]}
    messages[0].content[1].input_audio.data must not hold an empty file.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "input_audio", "input_audio": {"data": "AQID", "format": "wav", "foo": 1}}]}]}
    messages[0].content[1].input_audio.foo is not supported.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text"}]}]}
    messages[0].content[1].text is required.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "a", "refusal": "b"}]}]}
    messages[0].content[1].refusal does not belong to a part of this type.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": "u"}]}]}
    messages[0].content[1].image_url.url must be an https URL or a base64 data URL.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": 1}]}]}
    messages[0].content[1].image_url must be an object or a string, not an integer.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}]}]}
    messages[0].content[1].image_url.url is required.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "file", "file": {}}]}]}
    messages[0].content[1].file.file_data is required.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "file", "file": {"file_id": ""}}]}]}
    messages[0].content[1].file.file_id must have 1 to 256 characters.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "file", "file": {"file_id": "f", "file_data": "data:a/b;base64,AQID"}}]}]}
    messages[0].content[1].file.file_id must not be given together with file_data.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "file", "file": {"file_id": "f", "foo": 1}}]}]}
    messages[0].content[1].file.foo is not supported.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "https://a.example/", "foo": 1}}]}]}
    messages[0].content[1].image_url.foo is not supported.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "a", "cache_control": {"type": "ephemeral", "foo": 1}}]}]}
    messages[0].content[1].cache_control.foo is not supported.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "file", "file": {"file_data": "AQID"}}]}]}
    messages[0].content[1].file.file_data must be a base64 data URL, e.g. data:application/pdf;base64,….
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "a", "cache_control": {"type": "forever"}}]}]}
    messages[0].content[1].cache_control.type must be ephemeral.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "a", "cache_control": {"type": "ephemeral", "ttl": "2h"}}]}]}
    messages[0].content[1].cache_control.ttl must be one of 5m, 1h.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "http://a.example/"}}]}]}
    messages[0].content[1].image_url.url must be an https URL or a base64 data URL.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}]}
    messages[0].content[1].image_url.url must be an https URL or a base64 data URL.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "https:///x"}}]}]}
    messages[0].content[1].image_url.url must be a valid URL of at most 8192 bytes.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "https://a.example/ b"}}]}]}
    messages[0].content[1].image_url.url must be a valid URL of at most 8192 bytes.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:image/png,abc"}}]}]}
    messages[0].content[1].image_url.url must have the form data:<media type>;base64,<data>.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:;base64,AQID"}}]}]}
    messages[0].content[1].image_url.url must have the form data:<media type>;base64,<data>.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:image/p\"g;base64,AQID"}}]}]}
    messages[0].content[1].image_url.url must have the form data:<media type>;base64,<data>.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:text/html;base64,AQID"}}]}]}
    messages[0].content[1].image_url.url must be of a media type such as image/png.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,A!"}}]}]}
    messages[0].content[1].image_url.url must hold valid base64.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}]}]}
    messages[0].content[1].image_url.url must not hold an empty file.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "https://a.example/", "detail": "medium"}}]}]}
    messages[0].content[1].image_url.detail must be one of auto, low, high.
{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "file", "file": {"filename": 1}}]}]}
    messages[0].content[1].file.filename must be a string, not an integer.
{"tools": [{}]}
    tools[0].function is required.
{"input": "Hi"}
    input must not be given together with messages.
{"tools": [{"type": ""}]}
    tools[0].type must have 1 to 64 characters.
{"tools": [{"type": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}]}
    tools[0].type must have 1 to 64 characters.
{"tools": [{"type": "web_search", "name": 1}]}
    tools[0].name must be a string.
{"tools": [{"type": "web_search", "name": ""}]}
    tools[0].name must have 1 to 64 characters.
{"tools": [{"type": "web_search", "function": {"name": "f"}}]}
    tools[0].function does not belong to a tool of this type.
{"tools": [{"type": "function", "custom": {"name": "f"}}]}
    tools[0].custom does not belong to a tool of this type.
{"tools": [{"type": "custom"}]}
    tools[0].custom is required.
{"tools": [{"type": "custom", "custom": {}}]}
    tools[0].custom.name is required.
{"tools": [{"type": "custom", "custom": {"name": "a b"}}]}
    tools[0].custom.name must be 1 to 64 characters of a-z, A-Z, 0-9, _ and -.
{"tools": [{"type": "custom", "custom": {"name": "f", "format": "text"}}]}
    tools[0].custom.format must be an object.
{"tools": [{"type": "custom", "custom": {"name": "f", "foo": 1}}]}
    tools[0].custom.foo is not supported.
{"tools": [{"type": "function"}]}
    tools[0].function is required.
{"tools": [{"type": "function", "function": {}}]}
    tools[0].function.name is required.
{"tools": [{"type": "function", "function": {"name": "get weather"}}]}
    tools[0].function.name must be 1 to 64 characters of a-z, A-Z, 0-9, _ and -.
{"tools": [{"type": "function", "function": {"name": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}}]}
    tools[0].function.name must be 1 to 64 characters of a-z, A-Z, 0-9, _ and -.
{"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]}
    tools[0].function.parameters must be an object.
{"tools": [{"type": "function", "function": {"name": "f", "strict": "yes"}}]}
    tools[0].function.strict must be a boolean, not a string.
{"tool_choice": "any"}
    tool_choice must be one of none, auto, required, or an object that names a function.
{"tool_choice": "required"}
    tool_choice must not be required without tools.
{"tool_choice": 1}
    tool_choice must be a string or an object, not an integer.
{"tool_choice": {}}
    tool_choice.type is required.
{"tool_choice": {"type": "function"}}
    tool_choice.function is required.
{"tool_choice": {"type": "function", "function": {"name": 1}}}
    tool_choice.function.name must be a string, not an integer.
{"tool_choice": {"type": "function", "function": {"name": "f"}}}
    tool_choice.function.name must be the name of one of the tools.
{"tool_choice": {"type": "web_search"}}
    tool_choice.type must be one of function, custom, allowed_tools.
{"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": {"type": "custom", "custom": {"name": "f"}}}
    tool_choice.custom.name must be the name of one of the tools.
{"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": {"type": "function", "function": {"name": "f"}, "custom": {"name": "f"}}}
    tool_choice.custom does not belong to a choice of this type.
{"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": {"type": "function", "function": {"name": "f"}, "foo": 1}}
    tool_choice.foo is not supported.
{"tool_choice": {"type": "allowed_tools"}}
    tool_choice.allowed_tools is required.
{"tool_choice": {"type": "allowed_tools", "allowed_tools": {}}}
    tool_choice.allowed_tools.mode is required.
{"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "none"}}}
    tool_choice.allowed_tools.mode must be one of auto, required.
{"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto"}}}
    tool_choice.allowed_tools.tools is required.
{"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}}
    tool_choice.allowed_tools.tools must not be empty.
{"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "mcp"}]}}}
    tool_choice.allowed_tools.tools[0].type must be one of function, custom.
{"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function"}]}}}
    tool_choice.allowed_tools.tools[0].function is required.
{"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "g"}}]}}}
    tool_choice.allowed_tools.tools[0].function.name must be the name of one of the tools.
{"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "foo": 1}}}
    tool_choice.allowed_tools.foo is not supported.
{"response_format": {"type": "xml"}}
    response_format.type must be one of text, json_object, json_schema.
{"response_format": {"type": "json_schema"}}
    response_format.json_schema is required.
{"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}}
    response_format.json_schema.schema is required.
{"response_format": {"type": "json_schema", "json_schema": {"schema": true}}}
    response_format.json_schema.schema must be an object.
{"response_format": {"type": "json_schema", "json_schema": {"schema": {}, "strict": "yes"}}}
    response_format.json_schema.strict must be a boolean, not a string.
{"reasoning_effort": "huge"}
    reasoning_effort must be one of none, minimal, low, medium, high, xhigh, max.
{"max_tokens": 0}
    max_tokens must be at least 1.
{"max_tokens": -1}
    max_tokens must be an integer from 0 to 4294967295.
{"max_tokens": 1.5}
    max_tokens must be an integer from 0 to 4294967295, not a fraction.
{"max_completion_tokens": 0}
    max_completion_tokens must be at least 1.
{"max_completion_tokens": 2, "max_tokens": 1}
    max_tokens must equal max_completion_tokens if both are given.
{"temperature": 2.1}
    temperature must be from 0 to 2.
{"temperature": "1"}
    temperature must be a number, not a string.
{"top_p": -0.1}
    top_p must be from 0 to 1.
{"top_k": 0}
    top_k must be at least 1.
{"presence_penalty": 3}
    presence_penalty must be from -2 to 2.
{"frequency_penalty": -3}
    frequency_penalty must be from -2 to 2.
{"seed": 18446744073709551615}
    seed must be a signed 64-bit integer.
{"stop": ""}
    stop must not be empty.
{"stop": ["a", ""]}
    stop[1] must not be empty.
{"stop": ["a", 1]}
    stop[1] must be a string, not an integer.
{"stop": ["a", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a"]}
    stop must not have more than 16 items.
{"stream": "true"}
    stream must be a boolean, not a string.
{"stream_options": {"foo": 1}}
    stream_options.foo is not supported.
{"stream_options": {"include_obfuscation": true}}
    stream_options.include_obfuscation is not supported.
{"n": 2}
    n must be 1: more than one choice is not supported.
{"logprobs": true, "top_logprobs": 21}
    top_logprobs must be at most 20.
{"top_logprobs": 2}
    top_logprobs needs logprobs to be true.
{"logprobs": false, "top_logprobs": 2}
    top_logprobs needs logprobs to be true.
{"audio": {"voice": "x"}}
    audio is not supported.
{"modalities": ["text", "audio"]}
    modalities must be ["text"]: other modalities are not supported.
{"modalities": []}
    modalities must be ["text"]: other modalities are not supported.
{"functions": []}
    functions is not supported.
{"function_call": "auto"}
    function_call is not supported.
"##;

fn parse(body: &Value) -> Result<ChatCall, ApiError> {
    read(body.to_string().as_bytes())
}

/// The request with `fields`, a model and, unless they have their own, a message.
fn with(fields: Value) -> Value {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    body.as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    body
}

fn request(fields: Value) -> ChatRequest {
    parse(&with(fields)).unwrap().request
}

fn messages(messages: Value) -> Vec<Message> {
    request(json!({ "messages": messages })).messages
}

fn plain(content: Content) -> Part {
    Part {
        content,
        cache: None,
        signature: None,
        provider: None,
        extra: vec![],
    }
}

fn thought(text: &str, sealed: Option<&str>, id: Option<&str>) -> Part {
    plain(Content::Reasoning(Reasoning {
        text: text.into(),
        sealed: sealed.map(Into::into),
        id: id.map(Into::into),
    }))
}

fn call(id: &str, name: &str, kind: CallKind, arguments: &str) -> Part {
    plain(Content::ToolCall(ToolCall {
        id: id.into(),
        name: name.into(),
        kind,
        arguments: arguments.into(),
    }))
}

fn reasoning(effort: Option<ReasoningEffort>) -> ReasoningRequest {
    ReasoningRequest {
        effort,
        budget_tokens: None,
        summary: None,
        adaptive: None,
    }
}

fn attachment(media_type: &str, data: &'static [u8]) -> Attachment {
    Attachment {
        media_type: media_type.into(),
        data: data.into(),
    }
}

fn fields(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(name, json)| ((*name).to_owned(), (*json).to_owned()))
        .collect()
}

fn text(text: &str) -> Part {
    plain(Content::Text(text.into()))
}

fn error(body: &str) -> ApiError {
    let error = read(body.as_bytes()).unwrap_err();
    assert_eq!(
        (error.status().as_u16(), error.code()),
        (400, "INVALID_REQUEST")
    );
    error
}

#[test]
fn a_minimal_request_leaves_everything_else_to_the_upstream() {
    let call = parse(&with(json!({}))).unwrap();
    assert_eq!(
        call,
        ChatCall {
            request: ChatRequest {
                model: "m".into(),
                messages: vec![Message {
                    role: Role::User,
                    name: None,
                    parts: vec![text("hi")],
                    extra: vec![],
                }],
                tools: vec![],
                tool_choice: ToolChoice::Auto,
                parallel_tool_calls: None,
                response_format: ResponseFormat::Text,
                reasoning: reasoning(None),
                modalities: vec![],
                max_output_tokens: 0,
                temperature: None,
                top_p: None,
                top_k: None,
                presence_penalty: None,
                frequency_penalty: None,
                seed: None,
                stop: vec![],
                extra: vec![],
                stream: false,
            },
            attachments: vec![],
            origins: vec![MessageOrigin::Listed(0)],
            body_bytes: with(json!({})).to_string().len(),
            client: Client {
                dialect: "openai-chat".into(),
                headers: vec![],
                end_user: None,
            },
            output_limit: None,
            output_limit_param: "max_tokens",
            needs_tools: false,
            chain: None,
            dialect: Dialect::OpenAiChat(Preferences {
                include_usage: false,
            }),
        }
    );
}

#[test]
fn every_setting_reaches_the_request() {
    let call = parse(&with(json!({
            "tools": [
                {"type": "function", "function": {"name": "a-1"}},
                {"type": "function", "cache_control": {"type": "ephemeral", "ttl": "1h"},
                 "function": {"name": "b", "description": "B.", "parameters": {"type": "object"}, "strict": true}},
            ],
            "tool_choice": {"type": "function", "function": {"name": "b"}},
            "parallel_tool_calls": false,
            "response_format": {"type": "json_schema", "json_schema": {
                "name": "n", "description": "d", "strict": true, "schema": {"type": "object"}}},
            "reasoning_effort": "xhigh",
            "max_tokens": 7, "max_completion_tokens": 7,
            "temperature": 2, "top_p": 0.5, "top_k": 40, "presence_penalty": -2, "frequency_penalty": 1.5,
            "seed": -9_007_199_254_740_993_i64, "stop": ["a", "b"],
            "stream": true, "stream_options": {"include_usage": true, "include_obfuscation": false},
            "n": 1, "logprobs": false, "modalities": ["text"],
        })))
        .unwrap();
    assert_eq!(call.output_limit, Some(7));
    assert_eq!(
        call.dialect,
        Dialect::OpenAiChat(Preferences {
            include_usage: true
        })
    );
    let request = call.request;
    assert_eq!(
        request.tools,
        [
            Tool {
                kind: ToolKind::Function(FunctionTool {
                    name: "a-1".into(),
                    description: None,
                    input_schema: r#"{"type":"object","properties":{}}"#.into(),
                    strict: None,
                }),
                cache: None,
                extra: vec![],
            },
            Tool {
                kind: ToolKind::Function(FunctionTool {
                    name: "b".into(),
                    description: Some("B.".into()),
                    input_schema: r#"{"type":"object"}"#.into(),
                    strict: Some(true),
                }),
                cache: Some(CacheLifetime::Long),
                extra: vec![],
            },
        ]
    );
    assert_eq!(request.tool_choice, ToolChoice::Named("b".into()));
    assert_eq!(request.parallel_tool_calls, Some(false));
    assert_eq!(
        request.response_format,
        ResponseFormat::JsonSchema(JsonSchema {
            name: Some("n".into()),
            description: Some("d".into()),
            strict: Some(true),
            schema: r#"{"type":"object"}"#.into(),
        })
    );
    assert_eq!(request.reasoning, reasoning(Some(ReasoningEffort::Highest)));
    assert_eq!(request.modalities, Vec::<String>::new());
    assert_eq!(request.temperature, Some(2.0));
    assert_eq!(request.top_p, Some(0.5));
    assert_eq!(request.top_k, Some(40));
    assert_eq!(request.presence_penalty, Some(-2.0));
    assert_eq!(request.frequency_penalty, Some(1.5));
    assert_eq!(request.seed, Some(-9_007_199_254_740_993));
    assert_eq!(request.stop, ["a", "b"]);
    assert_eq!(request.extra, []);
    assert!(request.stream);
}

#[test]
fn words_of_settings_are_translated() {
    let efforts = [
        ("none", ReasoningEffort::Off),
        ("minimal", ReasoningEffort::Minimal),
        ("low", ReasoningEffort::Low),
        ("medium", ReasoningEffort::Medium),
        ("high", ReasoningEffort::High),
        ("max", ReasoningEffort::Highest),
    ];
    for (word, effort) in efforts {
        assert_eq!(
            request(json!({"reasoning_effort": word})).reasoning,
            reasoning(Some(effort))
        );
    }
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    let choices = [
        ("auto", ToolChoice::Auto),
        ("none", ToolChoice::None),
        ("required", ToolChoice::Required),
    ];
    for (word, choice) in choices {
        assert_eq!(
            request(json!({"tools": tools, "tool_choice": word})).tool_choice,
            choice
        );
    }
    for (word, format) in [
        ("text", ResponseFormat::Text),
        ("json_object", ResponseFormat::Json),
    ] {
        assert_eq!(
            request(json!({"response_format": {"type": word}})).response_format,
            format
        );
    }
    assert_eq!(request(json!({"stop": "end"})).stop, ["end"]);
}

#[test]
fn what_a_schema_or_a_tool_leaves_open_stays_open() {
    let bare = request(json!({
        "tools": [{"type": "function", "function": {"name": "f", "strict": false}}],
        "response_format": {"type": "json_schema", "json_schema": {"schema": {}}},
    }));
    assert!(matches!(
        &bare.tools[0].kind,
        ToolKind::Function(function) if function.strict == Some(false)
    ));
    assert_eq!(
        bare.response_format,
        ResponseFormat::JsonSchema(JsonSchema {
            name: None,
            description: None,
            strict: None,
            schema: "{}".into(),
        })
    );
}

#[test]
fn either_name_of_the_output_limit_is_read() {
    for fields in [
        json!({"max_tokens": 5}),
        json!({"max_completion_tokens": 5}),
    ] {
        assert_eq!(parse(&with(fields)).unwrap().output_limit, Some(5));
    }
}

#[test]
fn fields_beyond_the_vocabulary_are_handed_on_as_they_were_written() {
    let body = br#"{"user": "u", "model": "m", "logit_bias": { "5" : 1.0 }, "store": null,
            "messages": [{"role": "user", "content": ""}], "metadata": "\ud83d\ude00"}"#;
    let call = read(body).unwrap();
    assert_eq!(
        call.request.extra,
        fields(&[
            ("user", "\"u\""),
            ("logit_bias", "{ \"5\" : 1.0 }"),
            ("metadata", r#""\ud83d\ude00""#),
        ])
    );
    assert_eq!(call.client.end_user.as_deref(), Some("u"));
    // Default values are not passed on.
    let defaults = json!({"store": false, "service_tier": "auto", "metadata": {}, "logit_bias": {},
        "top_logprobs": 0, "logprobs": false, "n": 1});
    assert_eq!(parse(&with(defaults)).unwrap().request.extra, []);

    let request = request(json!({
        "messages": [
            {"role": "user", "weight": 0, "content": [{"type": "text", "text": "x", "annotations": [1], "new": null}]},
            {"role": "assistant", "content": "x", "audio": {"id": "a"}},
            {"role": "tool", "tool_call_id": "c", "content": "x", "status": "done"},
        ],
        "tools": [
            {"type": "function", "defer_loading": true, "function": {"name": "f", "examples": [1], "new": null}},
            {"type": "custom", "defer_loading": false, "custom": {"name": "g"}},
        ],
    }));
    let messages = &request.messages;
    assert_eq!(messages[0].extra, fields(&[("weight", "0")]));
    assert_eq!(
        messages[0].parts[0].extra,
        fields(&[("annotations", "[1]")])
    );
    assert_eq!(messages[1].extra, fields(&[("audio", r#"{"id":"a"}"#)]));
    assert_eq!(messages[1].parts, [text("x")]);
    assert_eq!(messages[2].extra, fields(&[("status", "\"done\"")]));
    assert_eq!(
        request.tools[0].extra,
        fields(&[("defer_loading", "true"), ("function.examples", "[1]")])
    );
    assert_eq!(
        request.tools[1].extra,
        fields(&[("defer_loading", "false")])
    );
}

#[test]
fn the_end_user_is_who_the_client_says_if_it_says_so_in_text() {
    let end_user = |fields| parse(&with(fields)).unwrap().client.end_user;
    assert_eq!(end_user(json!({"user": "ann"})).as_deref(), Some("ann"));
    assert_eq!(end_user(json!({"user": 5})), None);
    assert_eq!(end_user(json!({"safety_identifier": "ann"})), None);
}

#[test]
fn tools_may_take_free_text_or_be_the_upstreams_own() {
    let request = request(json!({
        "tools": [
            {"type": "custom", "cache_control": {"type": "ephemeral"}, "custom": {
                "name": "patch", "description": "P.", "format": {"type": "grammar", "grammar": {"syntax": "lark"}}}},
            {"type": "custom", "custom": {"name": "bare"}},
            {"type": "web_search_20250305", "name": "web_search", "max_uses": 5, "cache_control": {"type": "ephemeral"},
             "allowed_domains": ["a.example"], "note": null, "a\"b": "c"},
            {"type": "code_interpreter"},
        ],
        "tool_choice": {"type": "custom", "custom": {"name": "bare"}},
    }));
    let tool = |kind, cache| Tool {
        kind,
        cache,
        extra: vec![],
    };
    let custom = |name: &str, description: Option<&str>, format: Option<&str>| {
        ToolKind::Custom(CustomTool {
            name: name.into(),
            description: description.map(Into::into),
            format: format.map(Into::into),
        })
    };
    let built_in = |kind: &str, name: Option<&str>, configuration: &str| {
        ToolKind::BuiltIn(BuiltInTool {
            kind: kind.into(),
            name: name.map(Into::into),
            configuration: configuration.into(),
        })
    };
    let grammar = r#"{"grammar":{"syntax":"lark"},"type":"grammar"}"#;
    let configuration = r#"{"a\"b":"c","allowed_domains":["a.example"],"max_uses":5}"#;
    assert_eq!(
        request.tools,
        [
            tool(
                custom("patch", Some("P."), Some(grammar)),
                Some(CacheLifetime::Short)
            ),
            tool(custom("bare", None, None), None),
            tool(
                built_in("web_search_20250305", Some("web_search"), configuration),
                Some(CacheLifetime::Short)
            ),
            tool(built_in("code_interpreter", None, "{}"), None),
        ]
    );
    assert_eq!(request.tool_choice, ToolChoice::Named("bare".into()));
}

#[test]
fn tools_and_choices_may_be_written_as_in_responses() {
    let format = json!({ "type": "grammar", "syntax": "lark", "definition": "start: WORD" });
    let flat = request(json!({
        "tools": [
            { "type": "function", "name": "f", "description": "d", "parameters": { "type": "object" }, "strict": true },
            { "type": "custom", "name": "c", "format": format },
        ],
        "tool_choice": { "type": "function", "name": "f" },
    }));
    let nested = request(json!({
        "tools": [
            { "type": "function", "function": {
                "name": "f", "description": "d", "parameters": { "type": "object" }, "strict": true,
            } },
            { "type": "custom", "custom": { "name": "c", "format": format } },
        ],
        "tool_choice": { "type": "function", "function": { "name": "f" } },
    }));
    assert_eq!(flat.tools, nested.tools);
    assert_eq!(flat.tool_choice, nested.tool_choice);
    let among = request(json!({
        "tools": [{ "type": "function", "name": "f" }],
        "tool_choice": { "type": "allowed_tools", "allowed_tools": {
            "mode": "auto", "tools": [{ "type": "function", "name": "f" }],
        } },
    }));
    let names = vec!["f".to_owned()];
    let required = false;
    assert_eq!(
        among.tool_choice,
        ToolChoice::Among(AllowedTools { names, required })
    );
    for (tool, fault) in [
        (
            json!({ "type": "function", "name": "a b" }),
            "tools[0].name",
        ),
        (
            json!({ "type": "function", "name": "f", "strict": 1 }),
            "tools[0].strict",
        ),
        (
            json!({ "type": "custom", "name": "f", "strict": true }),
            "tools[0].strict",
        ),
    ] {
        let refused = error(&with(json!({ "tools": [tool] })).to_string());
        assert_eq!(refused.param(), Some(fault));
    }
}

#[test]
fn a_tool_without_a_type_is_a_function() {
    for tool in [
        json!({ "function": { "name": "f" } }),
        json!({ "name": "f" }),
    ] {
        let request = request(json!({ "tools": [tool] }));
        let ToolKind::Function(function) = &request.tools[0].kind else {
            panic!("{:?}", request.tools);
        };
        assert_eq!(function.name, "f");
    }
}

#[test]
fn an_image_may_be_its_url_alone() {
    for url in ["https://a.example/b.png", "https://a.example/\u{e9}.png"] {
        let parts = json!([{ "type": "image_url", "image_url": url }]);
        let escaped = json!({ "model": "m", "messages": [{ "role": "user", "content": parts }] });
        let escaped = escaped.to_string().replace('\u{e9}', "\\u00e9");
        let call = read(escaped.as_bytes()).unwrap();
        let Content::Image(image) = &call.request.messages[0].parts[0].content else {
            panic!("{:?}", call.request.messages);
        };
        assert_eq!(image.source, Source::Url(url.to_owned()));
    }
}

/// Cursor sends such bodies to the endpoint of Chat Completions.
#[test]
fn a_body_of_responses_is_read_for_a_response_of_chat_completions() {
    let body = json!({
        "model": "m", "instructions": "Be brief.", "stream": true, "stream_options": { "include_usage": true },
        "max_output_tokens": 9, "tools": [{ "type": "function", "name": "f", "parameters": { "type": "object" } }],
        "input": [{ "role": "user", "content": [{ "type": "input_text", "text": "Hi" }] }],
    });
    let call = parse(&body).unwrap();
    assert_eq!(call.output_limit, Some(9));
    assert_eq!(call.request.messages.len(), 2);
    assert_eq!(call.request.tools.len(), 1);
    let preferences = super::Preferences {
        include_usage: true,
    };
    assert_eq!(call.dialect, Dialect::OpenAiChat(preferences));
    assert_eq!(call.chain, None);
    for (field, value, param) in [
        (
            "previous_response_id",
            json!("resp_1"),
            "previous_response_id",
        ),
        ("input", json!([{ "id": "msg_1_0" }]), "input[0].id"),
        ("input", json!([]), "input"),
    ] {
        let mut body = body.clone();
        body[field] = value;
        assert_eq!(parse(&body).unwrap_err().param(), Some(param));
    }
}

#[test]
fn a_choice_may_be_among_several_tools() {
    for (mode, required) in [("auto", false), ("required", true)] {
        let choice = request(json!({
            "tools": [
                {"type": "function", "function": {"name": "f"}},
                {"type": "custom", "custom": {"name": "g"}},
                {"type": "function", "function": {"name": "h"}},
            ],
            "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [
                {"type": "custom", "custom": {"name": "g"}}, {"type": "function", "function": {"name": "f"}}]}},
        }))
        .tool_choice;
        let names = vec!["g".into(), "f".into()];
        assert_eq!(choice, ToolChoice::Among(AllowedTools { names, required }));
    }
}

#[test]
fn null_is_as_absent_everywhere() {
    let call = parse(&json!({
            "model": "m", "whatever": null, "tools": null, "tool_choice": null, "n": null, "audio": null,
            "functions": null, "function_call": null, "session_id": null, "top_logprobs": null, "modalities": null,
            "stream": null, "stream_options": {"include_usage": null, "new": null}, "stop": null, "max_tokens": null,
            "response_format": null, "temperature": null,
            "messages": [
                {"role": "user", "name": null, "tool_calls": null, "new": null, "content": [
                    {"type": "image_url", "text": null, "cache_control": null, "new": null,
                     "image_url": {"url": "https://a.example/b", "detail": null, "new": null}}]},
                {"role": "assistant", "content": "x", "refusal": null, "audio": null, "function_call": null,
                 "tool_calls": null, "annotations": null, "reasoning_content": null, "images": null, "reasoning": null,
                 "reasoning_details": null, "provider_specific_fields": null},
                {"role": "assistant", "content": "x", "provider_specific_fields": {"blocks": null, "new": null}},
            ],
        }))
        .unwrap();
    assert_eq!(call.request.extra, []);
    assert_eq!(call.request.messages[0].extra, []);
    assert_eq!(call.request.messages[0].parts[0].extra, []);
    assert_eq!(call.request.messages[1].parts, [text("x")]);
    assert_eq!(call.request.messages[2].parts, [text("x")]);
}

#[test]
fn roles_and_names_are_translated() {
    let messages = messages(json!([
        {"role": "system", "content": "s"},
        {"role": "developer", "content": [{"type": "text", "text": "d"}]},
        {"role": "user", "content": "u", "name": "ann"},
        {"role": "assistant", "content": "a"},
    ]));
    let roles: Vec<_> = messages.iter().map(|message| message.role).collect();
    assert_eq!(
        roles,
        [Role::System, Role::System, Role::User, Role::Assistant]
    );
    assert_eq!(messages[1].parts, [text("d")]);
    assert_eq!(messages[2].name.as_deref(), Some("ann"));
}

#[test]
fn parts_become_text_images_recordings_and_files() {
    let mut call = parse(&with(json!({"messages": [{"role": "user", "content": [
        {"type": "text", "text": "look", "cache_control": {"type": "ephemeral"}},
        {"type": "image_url", "image_url": {"url": "HTTPS://a.example/b.png?c", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "data:IMAGE/PNG;base64,AQID", "detail": "high"}},
        {"type": "image_url", "image_url": {"url": "data:image/svg+xml;charset=utf-8;base64,AQI", "detail": "auto"}},
        {"type": "image_url", "image_url": {"url": "https://a.example/"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AQI="},
         "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        {"type": "file", "file": {"file_data": "data:text/csv;base64,AQ=="}},
        {"type": "file", "file": {"file_id": "file-1", "filename": "b.pdf"}},
        {"type": "input_audio", "input_audio": {"data": "AQIDBA==", "format": "Wav"}},
    ]}]})))
    .unwrap();
    let image = |source, detail: Option<&str>| {
        let detail = detail.map(Into::into);
        plain(Content::Image(Image { source, detail }))
    };
    let url = |url: &str| Source::Url(url.into());
    let file = |source, name: Option<&str>, media_type: Option<&str>| {
        plain(Content::File(File {
            source,
            name: name.map(Into::into),
            media_type: media_type.map(Into::into),
            title: None,
            context: None,
            cite: None,
        }))
    };
    assert_eq!(
        call.request.messages.remove(0).parts,
        [
            Part {
                cache: Some(CacheLifetime::Short),
                ..text("look")
            },
            image(url("HTTPS://a.example/b.png?c"), Some("low")),
            image(Source::Attachment(0), Some("high")),
            image(Source::Attachment(1), None),
            image(url("https://a.example/"), None),
            Part {
                cache: Some(CacheLifetime::Long),
                ..file(
                    Source::Attachment(2),
                    Some("a.pdf"),
                    Some("application/pdf")
                )
            },
            file(Source::Attachment(3), None, Some("text/csv")),
            file(Source::Id("file-1".into()), Some("b.pdf"), None),
            plain(Content::Audio(Audio {
                source: Source::Attachment(4),
                format: Some("Wav".into()),
            })),
        ]
    );
    assert_eq!(
        call.attachments,
        [
            attachment("image/png", &[1, 2, 3]),
            attachment("image/svg+xml", &[1, 2]),
            attachment("application/pdf", &[1, 2]),
            attachment("text/csv", &[1]),
            attachment("audio/wav", &[1, 2, 3, 4]),
        ]
    );
}

#[test]
fn an_earlier_answer_may_be_sent_back_as_it_was_received() {
    let call_of = parse(&with(json!({"messages": [
        {"role": "assistant", "content": "said", "refusal": null, "annotations": [{"type": "url_citation"}],
         "audio": null, "function_call": null, "reasoning_content": "thought", "parsed": {"a": 1},
         "images": [{"index": 0, "type": "image_url", "image_url": {"url": "data:image/png;base64,AQID"}}],
         "tool_calls": [{"index": 0, "id": "c1", "type": "function",
                         "function": {"name": "f", "arguments": "{\"a\": 1", "parsed_arguments": {"a": 1}}}]},
        {"role": "assistant", "content": null, "refusal": "no"},
        {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "b"}]},
        {"role": "assistant", "content": "",
         "tool_calls": [{"id": "c2", "function": {"name": "g", "arguments": ""}},
                        {"index": 1, "id": "c3", "type": "custom", "custom": {"name": "h", "input": "* \"x\""}}]},
        {"role": "assistant", "content": ""},
        {"role": "assistant", "content": "", "refusal": "no"},
        {"role": "assistant", "content": "", "refusal": ""},
    ]})))
    .unwrap();
    let messages = call_of.request.messages;
    let refusal = |text: &str| plain(Content::Refusal(text.into()));
    assert_eq!(
        messages[0].parts,
        [
            thought("thought", None, None),
            text("said"),
            plain(Content::Image(Image {
                source: Source::Attachment(0),
                detail: None,
            })),
            call("c1", "f", CallKind::Function, "{\"a\": 1"),
        ]
    );
    assert_eq!(call_of.attachments, [attachment("image/png", &[1, 2, 3])]);
    assert_eq!(messages[1].parts, [refusal("no")]);
    assert_eq!(messages[2].parts, [text("a"), refusal("b")]);
    assert_eq!(
        messages[3].parts,
        [
            call("c2", "g", CallKind::Function, ""),
            call("c3", "h", CallKind::Custom, "* \"x\""),
        ]
    );
    assert_eq!(messages[4].parts, [text("")]);
    assert_eq!(messages[5].parts, [refusal("no")]);
    assert_eq!(messages[6].parts, [text("")]);
}

#[test]
fn reasoning_has_two_names_and_one_of_them_counts() {
    let parts = |fields: Value| {
        let mut message = json!({"role": "assistant", "content": "x"});
        message
            .as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        messages(json!([message])).remove(0).parts
    };
    let said = |thoughts: &str| [thought(thoughts, None, None), text("x")];
    assert_eq!(parts(json!({"reasoning": "a"})), said("a"));
    assert_eq!(
        parts(json!({"reasoning": "a", "reasoning_content": "b"})),
        said("b")
    );
    assert_eq!(
        parts(json!({"reasoning_content": "b", "reasoning_details": []})),
        said("b")
    );
    assert_eq!(parts(json!({"reasoning": ""})), [text("x")]);
}

#[test]
fn reasoning_comes_back_with_its_proof() {
    let messages = messages(json!([
        {"role": "assistant", "content": "x", "reasoning_content": "the same text twice", "reasoning": "thrice",
         "reasoning_details": [
            {"type": "reasoning.text", "text": "a", "signature": "s1", "index": 0, "format": "unknown", "id": null},
            {"type": "reasoning.text", "signature": "s2", "provider": "provider_a", "index": 1},
            {"type": "reasoning.encrypted", "data": "d1", "id": "r1", "index": 2},
            {"type": "reasoning.summary", "summary": "b", "signature": ""},
            {"type": "reasoning.encrypted", "data": "d2", "id": "r2"},
            {"type": "reasoning.encrypted", "data": "d3"},
            {"type": "reasoning.text", "text": "c", "id": "r4"},
            {"type": "reasoning.encrypted", "data": "d5", "id": "r5"},
            {"type": "reasoning.text", "text": "e"},
            {"type": "reasoning.encrypted", "data": "d6", "provider": "provider_a"},
            {"type": "reasoning.text", "text": ""},
        ]},
    ]));
    let signature = |signature: &str| Some(signature.to_owned());
    let provider = || Some("provider_a".to_owned());
    assert_eq!(
        messages[0].parts,
        [
            Part {
                signature: signature("s1"),
                ..thought("a", None, None)
            },
            Part {
                signature: signature("s2"),
                provider: provider(),
                ..thought("", None, None)
            },
            thought("", Some("d1"), Some("r1")),
            thought("b", Some("d2"), Some("r2")),
            thought("", Some("d3"), None),
            thought("c", None, Some("r4")),
            thought("", Some("d5"), Some("r5")),
            thought("e", None, None),
            Part {
                provider: provider(),
                ..thought("", Some("d6"), None)
            },
            text("x"),
        ]
    );
}

#[test]
fn opaque_blocks_come_back_before_all_else() {
    let messages = messages(json!([
        {"role": "assistant", "content": "x", "reasoning_content": "r", "provider_specific_fields": {
            "thought_signatures": ["s"], "citations": [[{"a": 1}]],
            "blocks": [
                {"index": 0, "kind": "server_tool_use", "block": {"a": [1.0]}, "provider": "provider_a"},
                {"kind": "web_search_tool_result", "block": {}},
            ]}},
        {"role": "assistant", "content": "", "provider_specific_fields": {"blocks": [{"kind": "k", "block": {}}]}},
        {"role": "assistant", "content": "y", "provider_specific_fields": {"citations": null}},
    ]));
    let opaque = |kind: &str, json: &str| {
        plain(Content::Opaque(Opaque {
            kind: kind.into(),
            json: json.into(),
        }))
    };
    assert_eq!(
        messages[0].parts,
        [
            Part {
                provider: Some("provider_a".into()),
                ..opaque("server_tool_use", r#"{"a":[1.0]}"#)
            },
            opaque("web_search_tool_result", "{}"),
            thought("r", None, None),
            text("x"),
        ]
    );
    assert_eq!(messages[1].parts, [opaque("k", "{}")]);
    assert_eq!(messages[2].parts, [text("y")]);
}

#[test]
fn a_tool_message_becomes_one_result() {
    let call = parse(&with(json!({"messages": [
        {"role": "tool", "tool_call_id": "c1", "content": "4", "name": "add"},
        {"role": "tool", "tool_call_id": "c2", "content": [
            {"type": "text", "text": "see", "cache_control": {"type": "ephemeral"}},
            {"type": "image_url", "image_url": {"url": "https://a.example/", "detail": "low"}},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AQID"}},
        ]},
    ]})))
    .unwrap();
    let messages = call.request.messages;
    let result = |call_id: &str, tool_name: Option<&str>, content| {
        plain(Content::ToolResult(ToolResult {
            call_id: call_id.into(),
            tool_name: tool_name.map(Into::into),
            content,
            is_error: false,
        }))
    };
    assert_eq!(
        messages[0].parts,
        [result(
            "c1",
            Some("add"),
            vec![ToolContent::Text("4".into())]
        )]
    );
    assert_eq!(messages[0].name, None);
    let seen = vec![
        ToolContent::Text("see".into()),
        ToolContent::Image(Image {
            source: Source::Url("https://a.example/".into()),
            detail: Some("low".into()),
        }),
        ToolContent::Image(Image {
            source: Source::Attachment(0),
            detail: None,
        }),
    ];
    assert_eq!(
        messages[1].parts,
        [Part {
            cache: Some(CacheLifetime::Short),
            ..result("c2", None, seen)
        }]
    );
    assert_eq!(call.attachments, [attachment("image/png", &[1, 2, 3])]);
}

#[test]
fn an_error_names_the_field_and_says_what_is_wrong() {
    let mut lines = REFUSALS.trim().lines();
    while let Some(fields) = lines.next() {
        let expected = lines.next().unwrap().trim();
        let error = error(&with(serde_json::from_str(fields).unwrap()).to_string());
        assert_eq!(error.message(), expected, "{fields}");
        assert_eq!(error.param(), expected.split(' ').next(), "{fields}");
    }
}

#[test]
fn lengths_are_counted_in_characters() {
    for (field, limit) in [("model", 256), ("messages[0].name", 64)] {
        let body = |length| {
            let text = "é".repeat(length);
            match field {
                "model" => with(json!({ "model": text })),
                _ => with(json!({"messages": [{"role": "user", "content": "x", "name": text}]})),
            }
        };
        assert!(parse(&body(limit)).is_ok());
        assert_eq!(error(&body(limit + 1).to_string()).param(), Some(field));
    }
}

#[test]
fn a_missing_field_is_named_even_if_the_body_is_empty() {
    assert_eq!(error("{}").param(), Some("model"));
    assert_eq!(error(r#"{"model": "m"}"#).param(), Some("messages"));
}

#[test]
fn a_body_that_is_not_json_is_refused_with_its_position() {
    let cases = [
        ("", "EOF while parsing a value at line 1 column 0"),
        (
            "{\"model\":\n \"m\",]",
            "key must be a string at line 2 column 6",
        ),
        (
            "{\"model\": \"m\"} x",
            "trailing characters at line 1 column 16",
        ),
        (r#"{"model": "\ud800"}"#, "at line 1 column"),
    ];
    for (body, says) in cases {
        let error = error(body);
        assert_eq!(error.param(), None);
        assert!(
            error.message().starts_with("The body is not valid JSON: "),
            "{}",
            error.message()
        );
        assert!(error.message().contains(says), "{}", error.message());
    }
    let error = read(b"{\"model\": \"\xff\"}").unwrap_err();
    assert!(
        error.message().contains("invalid unicode"),
        "{}",
        error.message()
    );
    let error = read(b"{\"model\": \"m\", \"extra\": \"\xff\"}").unwrap_err();
    assert_eq!(error.status().as_u16(), 400);
}

#[test]
fn a_body_that_is_no_object_is_refused() {
    let error = error("[1]");
    assert_eq!(
        (error.param(), error.message()),
        (None, "The body must be an object, not an array.")
    );
}

#[test]
fn a_number_that_no_float_holds_is_refused_by_name() {
    for name in ["temperature", "seed", "max_tokens"] {
        let body = with(json!({ name: 12345 }))
            .to_string()
            .replace("12345", "1e999");
        assert_eq!(error(&body).param(), Some(name));
    }
}

#[test]
fn a_repeated_field_is_refused_by_name() {
    let cases = [
        (r#"{"model":"m","model":"m"}"#, "model"),
        (r#"{"model":null,"model":"m"}"#, "model"),
        (r#"{"user":"a","user":"b"}"#, "user"),
        (
            r#"{"messages":[{"role":"user","role":"user"}]}"#,
            "messages[0].role",
        ),
        (
            r#"{"messages":[{"role":"user","content":[{"type":"text","text":"a","text":"b"}]}]}"#,
            "messages[0].content[0].text",
        ),
    ];
    for (body, path) in cases {
        let error = error(body);
        assert_eq!(error.param(), Some(path));
        assert!(
            error.message().contains("is given more than once"),
            "{}",
            error.message()
        );
    }
}

#[test]
fn depth_is_bounded_wherever_anything_may_stand() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let places = [
        ("extra", r#""extra": @"#),
        (
            "tools[0].function.parameters",
            r#""tools": [{"type": "function", "function": {"parameters": {"a": @}}}]"#,
        ),
        (
            "response_format.json_schema.schema",
            r#""response_format": {"type": "json_schema", "json_schema": {"schema": {"a": @}}}"#,
        ),
        ("messages[0].extra", r#""messages": [{"extra": {"a": @}}]"#),
        (
            "messages[0].content[0].extra",
            r#""messages": [{"content": [{"extra": {"a": @}}]}]"#,
        ),
        ("tools[0].extra", r#""tools": [{"extra": {"a": @}}]"#),
        (
            "tools[0].function.extra",
            r#""tools": [{"function": {"extra": {"a": @}}}]"#,
        ),
        (
            "tools[0].custom.format",
            r#""tools": [{"custom": {"format": {"a": @}}}]"#,
        ),
        (
            "messages[0].provider_specific_fields.blocks[0].block",
            r#""messages": [{"provider_specific_fields": {"blocks": [{"block": {"a": @}}]}}]"#,
        ),
        (
            "model",
            r#""messages": [{"provider_specific_fields": {"new": @}, "reasoning_details": [{"format": @}]}]"#,
        ),
        ("audio", r#""audio": @"#),
        ("stop[0]", r#""stop": @"#),
        ("model", r#""model": @"#),
        ("messages[0]", r#""messages": @"#),
        (
            "messages[0].role",
            r#""messages": [{"annotations": @, "content": "x"}]"#,
        ),
    ];
    for (path, place) in places {
        let body = format!("{{{}}}", place.replace('@', &deep));
        let expected = if path == "messages[0].role" {
            "model"
        } else {
            path
        };
        assert_eq!(error(&body).param(), Some(expected), "{place}");
        // The same, truncated before any bracket closes.
        let body = format!("{{{}", place.split('@').next().unwrap()) + &"[".repeat(100_000);
        assert_eq!(
            read(body.as_bytes()).unwrap_err().status().as_u16(),
            400,
            "{place}"
        );
    }
}

#[test]
fn brackets_in_strings_do_not_count_as_depth() {
    let body = with(json!({ "extra": ["[\"\\".repeat(500)] }));
    assert!(parse(&body).is_ok());
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let body = |levels| {
        with(json!({"extra": "@"}))
            .to_string()
            .replace("\"@\"", &nested(levels))
    };
    assert!(read(body(100).as_bytes()).is_ok());
    assert_eq!(error(&body(101)).param(), Some("extra"));
}

#[test]
fn lists_and_extra_fields_are_bounded() {
    let message = json!({"role": "user", "content": ""});
    assert!(parse(&with(json!({"messages": vec![message.clone(); 8_192]}))).is_ok());
    let error = parse(&with(json!({"messages": vec![message; 8_193]}))).unwrap_err();
    assert_eq!(error.param(), Some("messages"));

    let message = |count| {
        let part = json!({"type": "text", "text": ""});
        let parts = vec![part; count];
        with(json!({"messages": [{"role": "user", "content": parts}]}))
    };
    assert!(parse(&message(1_024)).is_ok());
    assert_eq!(
        parse(&message(1_025)).unwrap_err().param(),
        Some("messages[0].content")
    );
    let message = |list: &str, count| {
        with(json!({"messages": [
            {"role": "assistant", "content": "x", "provider_specific_fields": {list: vec![json!({}); count]}}]}))
    };
    assert_eq!(
        parse(&message("blocks", 1_025)).unwrap_err().param(),
        Some("messages[0].provider_specific_fields.blocks")
    );
    assert!(parse(&message("ignored", 1_025)).is_ok());

    let extra =
        |count: usize| -> Value { (0..count).map(|n| (format!("x{n}"), json!(n))).collect() };
    assert_eq!(request(extra(64)).extra.len(), 64);
    let error = parse(&with(extra(65))).unwrap_err();
    assert!(
        error
            .message()
            .starts_with("The body must have at most 64 undocumented fields")
    );
    let within = |place: &str, count| {
        let mut body = with(json!({
            "messages": [{"role": "user", "content": [{"type": "text", "text": ""}]}],
            "tools": [{"type": "function", "function": {"name": "f"}}, {"type": "web_search"}],
        }));
        let object = body.pointer_mut(place).unwrap().as_object_mut().unwrap();
        object.extend(extra(count).as_object().unwrap().clone());
        parse(&body)
    };
    for (place, path, limit) in [
        ("/messages/0", "messages[0]", 16),
        ("/messages/0/content/0", "messages[0].content[0]", 16),
        ("/tools/0", "tools[0]", 64),
        ("/tools/0/function", "tools[0].function", 16),
        ("/tools/1", "tools[1]", 64),
    ] {
        assert!(within(place, limit).is_ok(), "{place}");
        let error = within(place, limit + 1).unwrap_err();
        assert_eq!(error.param(), Some(path));
        assert!(
            error
                .message()
                .contains(&format!("at most {limit} undocumented fields"))
        );
    }
    let error = parse(&with(json!({"messages": [
        {"role": "user", "content": "", ("x".repeat(65)): 1}]})))
    .unwrap_err();
    assert!(error.message().contains("names of at most 64"));
}

#[test]
fn a_name_that_cannot_be_shown_is_left_out_of_the_path() {
    for name in [
        "a b".to_owned(),
        "x".repeat(65),
        "\u{1b}[31m".to_owned(),
        String::new(),
    ] {
        let error = parse(&with(json!({"stream_options": { name: 1 }}))).unwrap_err();
        assert_eq!(error.param(), Some("stream_options.…"));
    }
}

/// Puts every kind of value into each place of a request with all fields.
#[test]
fn no_error_repeats_what_the_body_says() {
    const SECRET: &str = "s3cret, expected u32";
    let whole = json!({
        "model": SECRET, "stop": [SECRET], "temperature": 1, "max_tokens": 5, "stream": true, "user": SECRET,
        "reasoning_effort": "low", "seed": 1, "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto",
            "tools": [{"type": "function", "function": {"name": "f"}}, {"type": "custom", "custom": {"name": "g"}}]}},
        "tools": [{"type": "function", "cache_control": {"type": "ephemeral", "ttl": "5m"}, "extra": SECRET,
                   "function": {"name": "f", "description": SECRET, "parameters": {}, "strict": true, "extra": SECRET}},
                  {"type": "custom", "custom": {"name": "g", "description": SECRET, "format": {"type": SECRET}}},
                  {"type": SECRET, "name": SECRET, "extra": SECRET}],
        "response_format": {"type": "json_schema", "json_schema": {
            "name": SECRET, "description": SECRET, "schema": {}, "strict": true}},
        "stream_options": {"include_usage": true}, "n": 1, "modalities": ["text"], "logprobs": false,
        "messages": [
            {"role": "system", "content": SECRET, "extra": SECRET},
            {"role": "user", "name": SECRET, "content": [
                {"type": "text", "text": SECRET, "extra": SECRET, "cache_control": {"type": "ephemeral"}},
                {"type": "image_url", "image_url": {"url": "https://a.example/s3cret", "detail": "low"}},
                {"type": "file", "file": {"filename": SECRET, "file_data": "data:a/b;base64,AQID"}},
                {"type": "file", "file": {"file_id": SECRET}},
                {"type": "input_audio", "input_audio": {"data": "AQID", "format": "wav"}}]},
            {"role": "assistant", "content": SECRET, "reasoning_content": SECRET, "refusal": SECRET,
             "images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AQID"}}],
             "reasoning": SECRET, "reasoning_details": [
                {"type": "reasoning.text", "text": SECRET, "signature": SECRET, "id": SECRET, "provider": SECRET},
                {"type": "reasoning.summary", "summary": SECRET}, {"type": "reasoning.encrypted", "data": SECRET}],
             "provider_specific_fields": {"blocks": [{"kind": SECRET, "block": {"a": SECRET}, "provider": SECRET}]},
             "tool_calls": [{"id": SECRET, "type": "function", "function": {"name": "f", "arguments": SECRET}},
                            {"id": SECRET, "type": "custom", "custom": {"name": SECRET, "input": SECRET}}]},
            {"role": "tool", "tool_call_id": SECRET, "name": SECRET, "content": [{"type": "text", "text": SECRET}]},
        ],
    });
    assert_eq!(parse(&whole).err(), None);
    let mut pointers = Vec::new();
    collect_pointers(&whole, String::new(), &mut pointers);
    assert!(pointers.len() > 80);
    let mut refused = 0;
    for pointer in &pointers {
        for value in [
            json!(null),
            json!(true),
            json!(1),
            json!(-1),
            json!(8_123_456_789_123_u64),
            json!(1.5),
            json!(SECRET),
            json!(""),
            json!([]),
            json!({}),
            json!([SECRET]),
            json!({"x": SECRET}),
        ] {
            let mut body = whole.clone();
            *body.pointer_mut(pointer).unwrap() = value;
            let Err(error) = parse(&body) else { continue };
            refused += 1;
            let rendered = error.body("r").to_string();
            assert!(!rendered.contains("s3cret"), "{pointer}: {rendered}");
            assert!(!rendered.contains("8123456789123"), "{pointer}: {rendered}");
            assert!(
                error.message().ends_with('.') && !error.message().contains("not valid"),
                "{rendered}"
            );
        }
    }
    assert!(refused > 500);

    // Truncated anywhere, it is refused without a quotation.
    let text = whole.to_string();
    for end in 0..text.len() {
        let error = error(&text[..end]);
        assert!(!error.message().contains("s3cret"));
    }
}

fn collect_pointers(value: &Value, pointer: String, pointers: &mut Vec<String>) {
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect_pointers(item, format!("{pointer}/{index}"), pointers);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                collect_pointers(field, format!("{pointer}/{name}"), pointers);
            }
        }
        _ => {}
    }
    pointers.push(pointer);
}
