//! Tests of the schemas: readers do what the schemas promise, and writers write nothing else.

mod checks;

use serde_json::{Value, json};

use self::checks::{Reader, bytes, fields_are_described, param, readers_keep_promises};
pub(crate) use self::checks::{check_events, checked};
use crate::{
    anthropic_messages, gemini_generate, openai_chat, openai_completions, openai_responses,
};

/// The requests: the name of each schema, its reader, and a good body that has each object.
fn requests() -> Vec<(&'static str, Reader, Value)> {
    let function = json!({ "name": "f", "description": "d", "parameters": {}, "strict": true });
    vec![
        (
            "ChatCompletionRequest",
            |body| param(openai_chat::read(&bytes(body))),
            json!({
                "model": "m",
                "messages": [
                    { "role": "user", "content": [
                        { "type": "text", "text": "x", "cache_control": { "type": "ephemeral" } },
                        { "type": "image_url", "image_url": { "url": "https://a.example" } },
                        { "type": "file", "file": { "file_id": "f" } },
                        { "type": "input_audio", "input_audio": { "data": "aGk=", "format": "wav" } },
                    ] },
                    { "role": "assistant", "content": "x",
                        "reasoning_details": [{ "type": "reasoning.text", "text": "r" }],
                        "provider_specific_fields": { "blocks": [{ "kind": "k", "block": {} }] },
                        "tool_calls": [
                            { "id": "c", "function": { "name": "f", "arguments": "{}" }, "extra_content": { "google": {} } },
                            { "id": "d", "type": "custom", "custom": { "name": "g", "input": "" } },
                        ] },
                    { "role": "tool", "tool_call_id": "c", "content": "x" },
                ],
                "tools": [
                    { "type": "function", "function": function },
                    { "type": "custom", "custom": { "name": "g", "format": {} } },
                ],
                "tool_choice": { "type": "allowed_tools", "allowed_tools": {
                    "mode": "auto", "tools": [{ "type": "function", "function": { "name": "f" } }],
                } },
                "response_format": { "type": "json_schema", "json_schema": { "schema": {} } },
                "stream_options": {},
                "logprobs": true,
            }),
        ),
        (
            "ResponsesRequest",
            |body| param(openai_responses::read(&bytes(body))),
            json!({
                "model": "m",
                "input": [
                    { "role": "user", "content": [
                        { "type": "input_text", "text": "x", "prompt_cache_breakpoint": { "mode": "explicit" } },
                        { "type": "input_image", "image_url": "https://a.example" },
                        { "type": "input_file", "file_id": "f" },
                    ] },
                    { "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}" },
                    { "type": "function_call_output", "call_id": "c", "output": "x" },
                ],
                "tools": [{ "type": "function", "name": "f", "parameters": {} }],
                "tool_choice": { "type": "allowed_tools", "mode": "auto", "tools": [{ "type": "function", "name": "f" }] },
                "text": { "format": { "type": "json_schema", "schema": {} } },
                "reasoning": {},
                "stream_options": {},
            }),
        ),
        (
            "CompletionRequest",
            |body| param(openai_completions::read(&bytes(body))),
            json!({ "model": "m", "prompt": "x", "stream_options": {} }),
        ),
        (
            "MessagesRequest",
            |body| {
                param(anthropic_messages::read(
                    &bytes(body),
                    &http::HeaderMap::new(),
                ))
            },
            json!({
                "model": "m", "max_tokens": 5, "system": [{ "type": "text", "text": "x" }],
                "messages": [
                    { "role": "user", "content": [
                        { "type": "text", "text": "x", "cache_control": { "type": "ephemeral" } },
                        { "type": "image", "source": { "type": "url", "url": "https://a.example" } },
                        { "type": "document", "title": "t", "source": { "type": "file", "file_id": "f" } },
                    ] },
                    { "role": "assistant", "content": [
                        { "type": "thinking", "thinking": "x", "signature": "s", "provider": "p" },
                        { "type": "tool_use", "id": "c", "name": "f", "input": {} },
                    ] },
                    { "role": "user", "content": [
                        { "type": "tool_result", "tool_use_id": "c", "content": [{ "type": "text", "text": "x" }] },
                    ] },
                ],
                "tools": [{ "name": "f", "input_schema": {} }],
                "tool_choice": { "type": "tool", "name": "f" },
                "thinking": { "type": "enabled", "budget_tokens": 1024 },
                "output_config": { "format": { "type": "json_schema", "schema": {} } },
                "metadata": {},
            }),
        ),
        (
            "GeminiRequest",
            |body| param(gemini_generate::read(&bytes(body), "m", None)),
            json!({
                "contents": [
                    { "role": "user", "parts": [
                        { "text": "x" },
                        { "inlineData": { "mimeType": "image/png", "data": "aGk=" } },
                        { "fileData": { "fileUri": "https://a.example" } },
                    ] },
                    { "role": "model", "parts": [{ "functionCall": { "name": "f", "args": {} } }] },
                    { "role": "user", "parts": [{ "functionResponse": {
                        "name": "f", "response": {}, "parts": [{ "fileData": { "fileUri": "https://a.example" } }],
                    } }] },
                ],
                "systemInstruction": { "parts": [{ "text": "x" }] },
                "tools": [{ "functionDeclarations": [{ "name": "f" }] }],
                "toolConfig": { "functionCallingConfig": { "mode": "ANY" } },
                "generationConfig": { "thinkingConfig": {} },
            }),
        ),
    ]
}

#[test]
fn readers_do_what_their_schemas_promise() {
    readers_keep_promises(requests());
}

#[test]
fn each_field_of_a_schema_is_described_for_people() {
    fields_are_described();
}
