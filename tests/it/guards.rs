//! Filters that guard read every place of a request whose text a model reads, in each dialect of clients, or refuse the
//! request: the bundled filters `moderate` and `redact-pii`, over real sockets and real Wasm.
//!
//! Each row of [`rows`] is a request with a word at one place. Its fields are those of openai-python 3.57.0
//! (`types/chat/completion_create_params.py`, `types/responses/response_create_params.py`, `types/completion_create_params.py`,
//! `types/image_generate_params.py`, `types/embedding_create_params.py`, `types/audio/`), anthropic-python 2.14.0
//! (`types/message_create_params.py`), google-genai 3.6.1 (`types.py`) and cohere-python 7.3.1 (`v2/client.py`).
//!
//! The moderation service answers with a result for each text, as OpenAI's does (`types/moderation_create_response.py`).

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Value, json};
use tests::client::Answer;
use tests::recording::{FORM, form, wav};
use tests::upstream::Request;
use tests::{Gateway, Reply, Upstream, chat};

use crate::anthropic_messages::said;
use crate::gemini_generate;

/// The text at the place of the word.
const PLACE: &str = "CANARY";

/// A word that the moderation service flags.
const FLAGGED: &str = "bluebird";

/// A value that `redact-pii` hides.
const ADDRESS: &str = "ada@example.org";

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";
const GEMINI: &str = "/v1beta/models/gem:generateContent";
const IMAGES: &str = "/v1/images/generations";
const EMBEDDINGS: &str = "/v1/embeddings";
const RERANK: &str = "/v1/rerank";
const MODERATIONS: &str = "/v1/moderations";
const SPEECH: &str = "/v1/audio/speech";
const TRANSCRIPTIONS: &str = "/v1/audio/transcriptions";

/// A request with [`PLACE`] at one place.
struct Row {
    path: &'static str,
    body: Value,
}

impl Row {
    /// Returns the body with this word at the place.
    fn with(&self, word: &str) -> Value {
        let text = self.body.to_string();
        assert_eq!(text.matches(PLACE).count(), 1, "{text}");
        serde_json::from_str(&text.replace(PLACE, word)).expect("JSON")
    }
}

/// Adds the fields to a request of each row.
fn of(path: &'static str, base: &Value, rows: Vec<Value>) -> Vec<Row> {
    let rows = rows.into_iter().map(|fields| {
        let mut body = base.clone();
        for (name, value) in fields.as_object().expect("fields") {
            body[name] = value.clone();
        }
        Row { path, body }
    });
    rows.collect()
}

/// Messages between a question and another one.
fn asking(messages: Value) -> Value {
    let mut all = vec![json!({ "role": "user", "content": "Hello" })];
    all.extend(messages.as_array().expect("a list").iter().cloned());
    json!({ "messages": all })
}

fn chat_rows() -> Vec<Row> {
    let base = json!({
        "model": "scripted", "max_tokens": 50, "messages": [{ "role": "user", "content": "Hello" }],
    });
    let function = |fields: Value| {
        let mut function =
            json!({ "name": "look", "parameters": { "type": "object", "properties": {} } });
        for (name, value) in fields.as_object().expect("fields") {
            function[name] = value.clone();
        }
        json!({ "tools": [{ "type": "function", "function": function }] })
    };
    let said = |fields: Value| {
        let mut message = json!({ "role": "assistant", "content": "Hm." });
        for (name, value) in fields.as_object().expect("fields") {
            message[name] = value.clone();
        }
        asking(json!([message, { "role": "user", "content": "And?" }]))
    };
    let called = |id: &str, name: &str, arguments: &str, result: Value| {
        let call = json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } });
        asking(json!([
            { "role": "assistant", "tool_calls": [call] },
            { "role": "tool", "tool_call_id": "c1", "content": result },
        ]))
    };
    let part = |part: Value| json!({ "messages": [{ "role": "user", "content": [{ "type": "text", "text": "Hello" }, part] }] });
    let schema = |schema: Value, name: &str, description: &str| {
        json!({ "response_format": { "type": "json_schema", "json_schema": {
            "name": name, "description": description, "schema": schema,
        } } })
    };
    of(
        CHAT,
        &base,
        vec![
            json!({ "messages": [{ "role": "system", "content": PLACE }, { "role": "user", "content": "Hello" }] }),
            json!({ "messages": [{ "role": "developer", "content": [{ "type": "text", "text": PLACE }] }, { "role": "user", "content": "Hello" }] }),
            json!({ "messages": [{ "role": "user", "content": PLACE }] }),
            json!({ "messages": [{ "role": "user", "content": "Hello", "name": PLACE }] }),
            json!({ "messages": [{ "role": "user", "content": "Hello", "unknown": { "note": PLACE } }] }),
            part(json!({ "type": "text", "text": PLACE })),
            part(json!({ "type": "text", "text": "x", "unknown": [PLACE] })),
            part(
                json!({ "type": "image_url", "image_url": { "url": format!("https://example.com/{PLACE}.png") } }),
            ),
            part(json!({ "type": "file", "file": { "file_id": PLACE } })),
            part(
                json!({ "type": "file", "file": { "file_data": "data:application/pdf;base64,JVBERi0=", "filename": format!("{PLACE}.pdf") } }),
            ),
            said(json!({ "content": PLACE })),
            said(json!({ "refusal": PLACE })),
            said(json!({ "reasoning_content": PLACE })),
            said(json!({ "reasoning_details": [{ "type": "reasoning.text", "text": PLACE }] })),
            said(
                json!({ "reasoning_details": [{ "type": "reasoning.text", "text": PLACE, "signature": "c2ln" }] }),
            ),
            said(
                json!({ "reasoning_details": [{ "type": "reasoning.summary", "summary": PLACE }] }),
            ),
            said(
                json!({ "reasoning_details": [{ "type": "reasoning.encrypted", "data": PLACE }] }),
            ),
            said(
                json!({ "provider_specific_fields": { "blocks": [{ "kind": "note", "block": { "type": "note", "text": PLACE } }] } }),
            ),
            called(
                "c1",
                "look",
                &format!(r#"{{"at":"{PLACE}"}}"#),
                json!("done"),
            ),
            called("c1", "look", &format!(r#"{{"{PLACE}":1}}"#), json!("done")),
            called("c1", PLACE, "{}", json!("done")),
            called("c1", "look", "{}", json!(PLACE)),
            called(
                "c1",
                "look",
                "{}",
                json!(format!(r#"{{"found":["{PLACE}"]}}"#)),
            ),
            called(
                "c1",
                "look",
                "{}",
                json!([{ "type": "text", "text": PLACE }]),
            ),
            asking(json!([
                { "role": "assistant", "tool_calls": [{ "id": "c1", "type": "custom", "custom": { "name": "run", "input": PLACE } }] },
                { "role": "tool", "tool_call_id": "c1", "content": "done" },
            ])),
            function(json!({ "name": PLACE })),
            function(json!({ "description": PLACE })),
            function(json!({ "unknown": PLACE })),
            function(
                json!({ "parameters": { "type": "object", "properties": { "at": { "type": "string", "description": PLACE } } } }),
            ),
            function(
                json!({ "parameters": { "type": "object", "properties": { PLACE: { "type": "string" } } } }),
            ),
            function(
                json!({ "parameters": { "type": "object", "properties": { "at": { "enum": [PLACE] } } } }),
            ),
            function(
                json!({ "parameters": { "type": "object", "properties": { "at": { "type": "string", "pattern": PLACE } } } }),
            ),
            function(
                json!({ "parameters": { "type": "object", "$defs": { "a": { "title": PLACE } } } }),
            ),
            json!({ "tools": [{ "type": "custom", "custom": { "name": "run", "description": PLACE } }] }),
            json!({ "tools": [{ "type": "custom", "custom": { "name": "run", "format": { "type": "grammar", "grammar": { "syntax": "lark", "definition": PLACE } } } }] }),
            json!({ "tools": [{ "type": "hosted_note", "note": PLACE }] }),
            schema(
                json!({ "type": "object", "properties": { "a": { "description": PLACE } } }),
                "a",
                "b",
            ),
            schema(
                json!({ "type": "object", "properties": { PLACE: {} } }),
                "a",
                "b",
            ),
            schema(json!({ "type": "object" }), PLACE, "b"),
            schema(json!({ "type": "object" }), "a", PLACE),
            json!({ "stop": [PLACE] }),
            json!({ "user": PLACE }),
            json!({ "safety_identifier": PLACE }),
            json!({ "metadata": { "note": PLACE } }),
            json!({ "metadata": { PLACE: "note" } }),
            json!({ "prompt_cache_key": PLACE }),
            json!({ "prediction": { "type": "content", "content": PLACE } }),
            json!({ "prediction": { "type": "content", "content": [{ "type": "text", "text": PLACE }] } }),
            json!({ "web_search_options": { "user_location": { "type": "approximate", "approximate": { "city": PLACE } } } }),
            json!({ "unknown": { "text": PLACE } }),
            json!({ PLACE: true }),
        ],
    )
}

fn responses_rows() -> Vec<Row> {
    let base = json!({ "model": "scripted", "max_output_tokens": 50, "input": "Hello" });
    let input = |items: Value| {
        let mut all = vec![json!({ "role": "user", "content": "Hello" })];
        all.extend(items.as_array().expect("a list").iter().cloned());
        json!({ "input": all })
    };
    let tool = |fields: Value| {
        let mut tool =
            json!({ "type": "function", "name": "look", "parameters": { "type": "object" } });
        for (name, value) in fields.as_object().expect("fields") {
            tool[name] = value.clone();
        }
        json!({ "tools": [tool] })
    };
    let call =
        json!({ "type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}" });
    let format = |name: &str, description: &str, schema: Value| json!({ "text": { "format": { "type": "json_schema", "name": name, "description": description, "schema": schema } } });
    of(
        RESPONSES,
        &base,
        vec![
            json!({ "input": PLACE }),
            json!({ "instructions": PLACE }),
            input(json!([{ "role": "system", "content": PLACE }])),
            input(
                json!([{ "role": "user", "content": [{ "type": "input_text", "text": PLACE }] }]),
            ),
            input(
                json!([{ "role": "user", "content": [{ "type": "input_text", "text": "x", "unknown": PLACE }] }]),
            ),
            input(
                json!([{ "role": "user", "content": [{ "type": "input_image", "image_url": format!("https://example.com/{PLACE}.png") }] }]),
            ),
            input(
                json!([{ "role": "user", "content": [{ "type": "input_file", "file_url": format!("https://example.com/{PLACE}.pdf") }] }]),
            ),
            input(
                json!([{ "role": "user", "content": [{ "type": "input_file", "file_data": "data:application/pdf;base64,JVBERi0=", "filename": format!("{PLACE}.pdf") }] }]),
            ),
            input(
                json!([{ "role": "assistant", "content": [{ "type": "output_text", "text": PLACE }] }]),
            ),
            input(
                json!([{ "role": "assistant", "content": [{ "type": "refusal", "refusal": PLACE }] }]),
            ),
            input(
                json!([{ "type": "reasoning", "summary": [{ "type": "summary_text", "text": PLACE }] }]),
            ),
            input(
                json!([{ "type": "reasoning", "summary": [], "content": [{ "type": "reasoning_text", "text": PLACE }] }]),
            ),
            input(json!([{ "type": "reasoning", "summary": [], "encrypted_content": PLACE }])),
            input(json!([
                { "type": "function_call", "call_id": "c1", "name": "look", "arguments": format!(r#"{{"at":"{PLACE}"}}"#) },
                { "type": "function_call_output", "call_id": "c1", "output": "done" },
            ])),
            input(json!([
                { "type": "function_call", "call_id": "c1", "name": PLACE, "arguments": "{}" },
                { "type": "function_call_output", "call_id": "c1", "output": "done" },
            ])),
            input(
                json!([call, { "type": "function_call_output", "call_id": "c1", "output": PLACE }]),
            ),
            input(
                json!([call, { "type": "function_call_output", "call_id": "c1", "output": [{ "type": "input_text", "text": PLACE }] }]),
            ),
            input(json!([
                { "type": "custom_tool_call", "call_id": "c1", "name": "run", "input": PLACE },
                { "type": "custom_tool_call_output", "call_id": "c1", "output": "done" },
            ])),
            input(json!([
                { "type": "custom_tool_call", "call_id": "c1", "name": "run", "input": "x" },
                { "type": "custom_tool_call_output", "call_id": "c1", "output": PLACE },
            ])),
            input(json!([{ "type": "additional_tools", "tools": [
                { "type": "function", "name": "more", "description": PLACE, "parameters": { "type": "object" } },
            ] }])),
            tool(json!({ "name": PLACE })),
            tool(json!({ "description": PLACE })),
            tool(json!({ "parameters": { "type": "object", "properties": { PLACE: {} } } })),
            tool(
                json!({ "parameters": { "type": "object", "properties": { "a": { "description": PLACE } } } }),
            ),
            tool(json!({ "unknown": PLACE })),
            json!({ "tools": [{ "type": "custom", "name": "run", "description": PLACE }] }),
            json!({ "tools": [{ "type": "custom", "name": "run", "format": { "type": "grammar", "syntax": "lark", "definition": PLACE } }] }),
            json!({ "tools": [{ "type": "web_search", "user_location": { "type": "approximate", "city": PLACE } }] }),
            json!({ "tools": [{ "type": "namespace", "name": "ns", "description": PLACE, "tools": [
                { "type": "function", "name": "more", "parameters": { "type": "object" } },
            ] }] }),
            json!({ "tools": [{ "type": "namespace", "name": "ns", "tools": [
                { "type": "function", "name": "more", "description": PLACE, "parameters": { "type": "object" } },
            ] }] }),
            format(PLACE, "b", json!({ "type": "object" })),
            format("a", PLACE, json!({ "type": "object" })),
            format("a", "b", json!({ "type": "object", "title": PLACE })),
            json!({ "reasoning": { "summary": PLACE } }),
            json!({ "user": PLACE }),
            json!({ "safety_identifier": PLACE }),
            json!({ "metadata": { "note": PLACE } }),
            json!({ "prompt_cache_key": PLACE }),
            json!({ "unknown": PLACE }),
        ],
    )
}

fn messages_rows() -> Vec<Row> {
    let base = json!({
        "model": "claude", "max_tokens": 2048, "messages": [{ "role": "user", "content": "Hello" }],
    });
    let block = |block: Value| json!({ "messages": [{ "role": "user", "content": [{ "type": "text", "text": "Hello" }, block] }] });
    let said = |block: Value| {
        asking(json!([
            { "role": "assistant", "content": [block, { "type": "text", "text": "Hm." }] },
            { "role": "user", "content": "And?" },
        ]))
    };
    let used = |id: &str, name: &str, input: Value, content: Value| {
        asking(json!([
            { "role": "assistant", "content": [{ "type": "tool_use", "id": id, "name": name, "input": input }] },
            { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "t1", "content": content }] },
        ]))
    };
    let tool = |fields: Value| {
        let mut tool = json!({ "name": "look", "input_schema": { "type": "object" } });
        for (name, value) in fields.as_object().expect("fields") {
            tool[name] = value.clone();
        }
        json!({ "tools": [tool] })
    };
    let document = |fields: Value| {
        let mut document = json!({ "type": "document", "source": { "type": "text", "media_type": "text/plain", "data": "x" } });
        for (name, value) in fields.as_object().expect("fields") {
            document[name] = value.clone();
        }
        block(document)
    };
    of(
        MESSAGES,
        &base,
        vec![
            json!({ "system": PLACE }),
            json!({ "system": [{ "type": "text", "text": PLACE }] }),
            json!({ "messages": [{ "role": "user", "content": PLACE }] }),
            json!({ "messages": [{ "role": "user", "content": "Hello", "unknown": PLACE }] }),
            block(json!({ "type": "text", "text": PLACE })),
            block(json!({ "type": "text", "text": "x", "unknown": PLACE })),
            block(
                json!({ "type": "image", "source": { "type": "url", "url": format!("https://example.com/{PLACE}.png") } }),
            ),
            block(json!({ "type": "image", "source": { "type": "file", "file_id": PLACE } })),
            block(
                json!({ "type": "document", "source": { "type": "base64", "media_type": "application/pdf", "data": "JVBERi0=" }, "title": PLACE }),
            ),
            document(
                json!({ "source": { "type": "text", "media_type": "text/plain", "data": PLACE } }),
            ),
            document(
                json!({ "source": { "type": "content", "content": [{ "type": "text", "text": PLACE }] } }),
            ),
            document(json!({ "title": PLACE })),
            document(json!({ "context": PLACE })),
            block(
                json!({ "type": "search_result", "source": PLACE, "title": "a", "content": [{ "type": "text", "text": "b" }] }),
            ),
            block(
                json!({ "type": "search_result", "source": "a", "title": PLACE, "content": [{ "type": "text", "text": "b" }] }),
            ),
            block(
                json!({ "type": "search_result", "source": "a", "title": "b", "content": [{ "type": "text", "text": PLACE }] }),
            ),
            block(json!({ "type": "unheard_of", "text": PLACE })),
            block(json!({ "type": PLACE, "text": "x" })),
            said(json!({ "type": "text", "text": PLACE })),
            said(
                json!({ "type": "text", "text": "x", "citations": [{ "type": "char_location", "cited_text": PLACE, "document_index": 0 }] }),
            ),
            said(json!({ "type": "thinking", "thinking": PLACE, "signature": "c2ln" })),
            said(json!({ "type": "thinking", "thinking": "x", "signature": PLACE })),
            said(json!({ "type": "redacted_thinking", "data": PLACE })),
            said(
                json!({ "type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": { "query": PLACE } }),
            ),
            said(
                json!({ "type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [
                { "type": "web_search_result", "title": PLACE, "url": "https://example.com", "encrypted_content": "eA==" },
            ] }),
            ),
            said(
                json!({ "type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [
                { "type": "web_search_result", "title": "a", "url": "https://example.com", "encrypted_content": PLACE },
            ] }),
            ),
            said(json!({ "type": "compaction", "content": PLACE })),
            used("t1", "look", json!({ "at": PLACE }), json!("done")),
            used("t1", "look", json!({ PLACE: 1 }), json!("done")),
            used("t1", PLACE, json!({}), json!("done")),
            used("t1", "look", json!({}), json!(PLACE)),
            used(
                "t1",
                "look",
                json!({}),
                json!([{ "type": "text", "text": PLACE }]),
            ),
            used(
                "t1",
                "look",
                json!({}),
                json!([{ "type": "text", "text": "x", "unknown": PLACE }]),
            ),
            used(
                "t1",
                "look",
                json!({}),
                json!([{ "type": "search_result", "source": "a", "title": "b", "content": [{ "type": "text", "text": PLACE }] }]),
            ),
            used(
                "t1",
                "look",
                json!({}),
                json!([{ "type": "document", "source": { "type": "text", "media_type": "text/plain", "data": PLACE } }]),
            ),
            used(
                "t1",
                "look",
                json!({}),
                json!([{ "type": "tool_reference", "tool_name": PLACE }]),
            ),
            tool(json!({ "name": PLACE })),
            tool(json!({ "description": PLACE })),
            tool(
                json!({ "input_schema": { "type": "object", "properties": { "a": { "description": PLACE } } } }),
            ),
            tool(json!({ "input_schema": { "type": "object", "properties": { PLACE: {} } } })),
            tool(json!({ "input_examples": [{ "at": PLACE }] })),
            json!({ "tools": [{ "type": "memory_20250818", "name": "memory", "note": PLACE }] }),
            json!({ "tools": [{ "type": "memory_20250818", "name": PLACE }] }),
            json!({ "output_config": { "format": { "type": "json_schema", "schema": { "type": "object", "properties": { "a": { "description": PLACE } } } } } }),
            json!({ "output_config": { "unknown": PLACE } }),
            json!({ "stop_sequences": [PLACE] }),
            json!({ "metadata": { "user_id": PLACE } }),
            json!({ "metadata": { "note": PLACE } }),
            json!({ "context_management": { "edits": [{ "type": "compact_20260112", "instructions": PLACE }] } }),
            json!({ "container": PLACE }),
            json!({ "unknown": PLACE }),
        ],
    )
}

fn gemini_rows() -> Vec<Row> {
    let base = json!({
        "contents": [{ "role": "user", "parts": [{ "text": "Hello" }] }], "generationConfig": { "maxOutputTokens": 50 },
    });
    let parts = |parts: Value| json!({ "contents": [{ "role": "user", "parts": parts }] });
    let said = |part: Value| {
        json!({ "contents": [
            { "role": "user", "parts": [{ "text": "Hello" }] },
            { "role": "model", "parts": [part] },
            { "role": "user", "parts": [{ "text": "And?" }] },
        ] })
    };
    let called = |call: Value, response: Value| {
        json!({ "contents": [
            { "role": "user", "parts": [{ "text": "Hello" }] },
            { "role": "model", "parts": [{ "functionCall": call }] },
            { "role": "user", "parts": [{ "functionResponse": response }] },
        ] })
    };
    let call = json!({ "name": "look", "args": {} });
    let function = |fields: Value| {
        let mut function =
            json!({ "name": "look", "parameters": { "type": "OBJECT", "properties": {} } });
        for (name, value) in fields.as_object().expect("fields") {
            function[name] = value.clone();
        }
        json!({ "tools": [{ "functionDeclarations": [function] }] })
    };
    let response = json!({ "name": "look", "response": { "output": "done" } });
    of(
        GEMINI,
        &base,
        vec![
            json!({ "systemInstruction": { "parts": [{ "text": PLACE }] } }),
            parts(json!([{ "text": PLACE }])),
            parts(
                json!([{ "text": "x" }, { "inlineData": { "mimeType": "application/pdf", "data": "JVBERi0=", "displayName": PLACE } }]),
            ),
            parts(
                json!([{ "text": "x" }, { "fileData": { "mimeType": "image/png", "fileUri": format!("https://example.com/{PLACE}") } }]),
            ),
            parts(json!([{ "text": "x", "partMetadata": { "note": PLACE } }])),
            said(json!({ "text": PLACE })),
            said(json!({ "text": PLACE, "thought": true })),
            said(json!({ "text": PLACE, "thought": true, "thoughtSignature": "c2ln" })),
            said(json!({ "text": "x", "thoughtSignature": PLACE })),
            said(json!({ "executableCode": { "language": "PYTHON", "code": PLACE } })),
            said(json!({ "codeExecutionResult": { "outcome": "OUTCOME_OK", "output": PLACE } })),
            said(
                json!({ "toolCall": { "toolType": "GOOGLE_SEARCH_WEB", "args": { "query": PLACE } } }),
            ),
            called(
                json!({ "name": "look", "args": { "at": PLACE } }),
                response.clone(),
            ),
            called(
                json!({ "name": "look", "args": { PLACE: 1 } }),
                response.clone(),
            ),
            called(
                call.clone(),
                json!({ "name": "look", "response": { "output": PLACE } }),
            ),
            called(
                call.clone(),
                json!({ "name": "look", "response": { "error": PLACE } }),
            ),
            called(
                call,
                json!({ "name": "look", "response": { "found": [PLACE] } }),
            ),
            function(json!({ "name": PLACE })),
            function(json!({ "description": PLACE })),
            function(
                json!({ "parameters": { "type": "OBJECT", "properties": { "a": { "type": "STRING", "description": PLACE } } } }),
            ),
            function(
                json!({ "parameters": { "type": "OBJECT", "properties": { PLACE: { "type": "STRING" } } } }),
            ),
            function(json!({ "response": { "type": "OBJECT", "description": PLACE } })),
            function(json!({ "unknown": PLACE })),
            json!({ "tools": [{ "googleSearch": { "note": PLACE } }] }),
            json!({ "generationConfig": { "responseMimeType": "application/json", "responseSchema": { "type": "OBJECT", "description": PLACE } } }),
            json!({ "generationConfig": { "responseMimeType": "application/json", "responseJsonSchema": { "type": "object", "title": PLACE } } }),
            json!({ "generationConfig": { "stopSequences": [PLACE] } }),
            json!({ "generationConfig": { "speechConfig": { "languageCode": PLACE } } }),
            json!({ "labels": { "note": PLACE } }),
            json!({ "cachedContent": format!("cachedContents/{PLACE}") }),
            json!({ "unknown": PLACE }),
        ],
    )
}

fn other_rows() -> Vec<Row> {
    let mut rows = of(
        COMPLETIONS,
        &json!({ "model": "scripted", "max_tokens": 50, "prompt": "Hello" }),
        vec![
            json!({ "prompt": PLACE }),
            json!({ "suffix": PLACE }),
            json!({ "stop": PLACE }),
            json!({ "user": PLACE }),
            json!({ "unknown": PLACE }),
        ],
    );
    rows.extend(of(
        IMAGES,
        &json!({ "model": "painter", "prompt": "A weir" }),
        vec![
            json!({ "prompt": PLACE }),
            json!({ "user": PLACE }),
            json!({ "size": PLACE }),
            json!({ "unknown": PLACE }),
        ],
    ));
    rows.extend(of(
        EMBEDDINGS,
        &json!({ "model": "vectors", "input": "Hello" }),
        vec![
            json!({ "input": PLACE }),
            json!({ "input": ["a", PLACE] }),
            json!({ "input_type": PLACE }),
            json!({ "user": PLACE }),
            json!({ "instruction": PLACE }),
        ],
    ));
    rows.extend(of(
        RERANK,
        &json!({ "model": "order", "query": "a", "documents": ["b"] }),
        vec![
            json!({ "query": PLACE }),
            json!({ "documents": ["b", PLACE] }),
            json!({ "documents": [{ "text": PLACE }] }),
            json!({ "instruction": PLACE }),
        ],
    ));
    rows.extend(of(
        MODERATIONS,
        &json!({ "model": "judge", "input": "Hello" }),
        vec![
            json!({ "input": PLACE }),
            json!({ "input": ["a", PLACE] }),
            json!({ "unknown": PLACE }),
        ],
    ));
    rows.extend(of(
        SPEECH,
        &json!({ "model": "voice", "input": "Hello", "voice": "v" }),
        vec![
            json!({ "input": PLACE }),
            json!({ "instructions": PLACE }),
            json!({ "voice": PLACE }),
            json!({ "voice": { "id": PLACE } }),
            json!({ "unknown": PLACE }),
        ],
    ));
    // The fields of a form.
    rows.extend(of(
        TRANSCRIPTIONS,
        &json!({ "model": "ear" }),
        vec![
            json!({ "prompt": PLACE }),
            json!({ "language": PLACE }),
            json!({ "hotwords": PLACE }),
            json!({ "known_speaker_names[]": PLACE }),
        ],
    ));
    rows
}

fn rows() -> Vec<Row> {
    let rows = [
        chat_rows(),
        responses_rows(),
        messages_rows(),
        gemini_rows(),
        other_rows(),
    ];
    rows.into_iter().flatten().collect()
}

/// A gateway with a model of each kind and dialect behind this filter. The model `open` has no filter.
async fn guarded(upstreams: &Providers, filter: &str) -> Gateway {
    let model = |id: &str, kind: &str, provider: &str, price: &str| {
        format!(
            "[models.{id}]\nkind = \"{kind}\"\ncontext_window = 1000\nprice = {{ {price} }}\n\
             upstreams = [{{ provider = \"{provider}\", model = \"{id}-1\" }}]\n"
        )
    };
    let tables = [
        model("vectors", "embeddings", "scripted", "input = 2, output = 0"),
        model("order", "rerank", "scripted", "input = 0, output = 0, search = 0.01"),
        model("judge", "moderation", "scripted", "input = 2, output = 0"),
        model("voice", "speech", "scripted", "characters = 20"),
        model("ear", "transcription", "scripted", "minute = 0.6"),
        "[models.painter]\ncontext_window = 2000\nmax_output_tokens = 2000\ndefault_output_tokens = 2000\n\
         max_image_tokens = 400\nsupports_vision = true\nprice = { image = 0.04 }\n\
         upstreams = [{ provider = \"scripted\" }]\n"
            .to_owned(),
        format!(
            "[[filters]]\nguard = true\nmodels = [\"scripted\", \"claude\", \"gem\", \"painter\", \"vectors\", \"order\", \"judge\", \
             \"voice\", \"ear\"]\n{filter}"
        ),
    ];
    let (openai, anthropic, gemini) = (&upstreams.openai, &upstreams.anthropic, &upstreams.gemini);
    Gateway::builder()
        .upstream("scripted", openai)
        .model("open", &["scripted"])
        .provider("anthropic", "anthropic", Some(anthropic))
        .model("claude", &["anthropic"])
        .provider("gemini", "gemini", Some(gemini))
        .model("gem", &["gemini"])
        .tables(&tables.concat())
        .start()
        .await
}

/// Providers of three dialects, which answer every request.
struct Providers {
    openai: Upstream,
    anthropic: Upstream,
    gemini: Upstream,
}

impl Providers {
    async fn start() -> Self {
        let all = Self {
            openai: Upstream::start().await,
            anthropic: Upstream::start().await,
            gemini: Upstream::start().await,
        };
        all.openai.always_by(openai_reply);
        all.anthropic.always(said("anthropic", "fine"));
        all.gemini.always(gemini_generate::said("gemini", "fine"));
        all
    }

    /// Returns the bodies of all requests so far.
    fn bodies(&self) -> Vec<String> {
        let all = [&self.openai, &self.anthropic, &self.gemini];
        let requests = all.into_iter().flat_map(Upstream::requests);
        let text = |body: &[u8]| String::from_utf8_lossy(body).into_owned();
        requests.map(|request| text(&request.body)).collect()
    }
}

/// A response of OpenAI's API at the path of a request, or of Cohere's to a ranking.
fn openai_reply(request: &Request) -> Reply {
    let endpoint = request.path.rsplit('/').next().unwrap_or_default();
    let inputs = || match &request.json()["input"] {
        Value::Array(list) => list.len(),
        _ => 1,
    };
    let usage = json!({ "prompt_tokens": 1, "total_tokens": 1 });
    match endpoint {
        "embeddings" => {
            let vector =
                |index| json!({ "object": "embedding", "index": index, "embedding": [1.0] });
            let data: Vec<_> = (0..inputs()).map(vector).collect();
            Reply::json(
                200,
                &json!({ "object": "list", "data": data, "model": "m", "usage": usage }),
            )
        }
        "rerank" => Reply::json(
            200,
            &json!({ "results": [{ "index": 0, "relevance_score": 1 }] }),
        ),
        "moderations" => Reply::json(200, &verdicts(inputs(), |_| false)),
        "generations" => Reply::json(
            200,
            &json!({ "created": 1, "data": [{ "b64_json": "iVBORw0KGgo=" }] }),
        ),
        "transcriptions" => Reply::json(200, &json!({ "text": "A weir." })),
        "speech" => Reply::new(200)
            .header("content-type", "audio/mpeg")
            .body(b"abc".to_vec()),
        "completions" if request.path.contains("/chat/") => Reply::chat("fine"),
        "completions" => {
            let choice = json!({ "index": 0, "text": "fine", "finish_reason": "stop" });
            Reply::json(
                200,
                &json!({ "choices": [choice], "usage": { "prompt_tokens": 1, "completion_tokens": 1 } }),
            )
        }
        _ => Reply::error(404, "unknown"),
    }
}

/// A response of OpenAI's Moderations API to this many texts.
fn verdicts(texts: usize, flagged: impl Fn(usize) -> bool) -> Value {
    let results: Vec<_> = (0..texts)
        .map(|at| {
            let flagged = flagged(at);
            json!({ "flagged": flagged, "categories": { "hate": flagged }, "category_scores": {} })
        })
        .collect();
    json!({ "id": "modr-1", "model": "omni-moderation-latest", "results": results })
}

/// Returns whether any text of a request has this word, in any form of JSON.
fn has(body: &str, word: &str) -> bool {
    let read = serde_json::from_str::<Value>(body)
        .map_or_else(|_| body.to_owned(), |json| json.to_string());
    read.contains(word) || body.contains(word)
}

async fn send(gateway: &Gateway, row: &Row, word: &str) -> Answer {
    let (client, body) = (gateway.client(), row.with(word));
    if row.path != TRANSCRIPTIONS {
        return client.post(row.path, &body).await;
    }
    let fields = body.as_object().expect("fields").iter();
    let fields: Vec<_> = fields
        .map(|(name, value)| (name.as_str(), value.as_str().expect("a text")))
        .collect();
    client
        .send(Method::POST, row.path, Some(FORM), form(&wav(1), &fields))
        .await
}

/// A service with OpenAI's Moderations API that flags texts with the word.
async fn moderation_service() -> Upstream {
    let service = Upstream::start().await;
    service.always_by(|request| {
        let body = request.json();
        let inputs = body["input"].as_array().expect("a list of texts");
        let is_flagged = |at: usize| inputs[at].as_str().expect("a text").contains(FLAGGED);
        Reply::json(200, &verdicts(inputs.len(), is_flagged))
    });
    service
}

fn moderate(service: &Upstream) -> String {
    format!(
        "slot = \"moderate\"\noptions = {{ unread = \"audio\" }}\nservice = {{ url = \"{}/v1/moderations\", private = true }}\n",
        service.base_url()
    )
}

/// The place of a text that weir does not pass to any provider.
fn is_dropped(row: &Row) -> bool {
    let namespace = &row.body["tools"][0];
    namespace["type"] == "namespace" && namespace["description"] == PLACE
}

#[tokio::test]
async fn moderate_reads_every_place_that_a_model_reads() {
    let (providers, service) = (Providers::start().await, moderation_service().await);
    let gateway = guarded(&providers, &moderate(&service)).await;
    let mut passed = BTreeMap::new();
    let rows = rows();
    for row in rows.iter().filter(|row| !is_dropped(row)) {
        let answer = send(&gateway, row, FLAGGED).await;
        let is_refused = answer
            .text()
            .contains("filter moderate rejects this request");
        if answer.status != 400 || !is_refused {
            passed.insert(row.with(FLAGGED).to_string(), answer.text());
        }
    }
    assert!(
        passed.is_empty(),
        "{} of {}: {passed:#?}",
        passed.len(),
        rows.len()
    );
    let reached = providers.bodies();
    assert!(
        reached.iter().all(|body| !has(body, FLAGGED)),
        "{reached:?}"
    );

    // Another word passes wherever the filter can read it.
    let mut refused = BTreeMap::new();
    for row in &rows {
        let answer = send(&gateway, row, "hummingbird").await;
        let text = answer.text();
        if text.contains("moderate rejects") && !text.contains("which the filter cannot read") {
            refused.insert(row.body.to_string(), text);
        }
    }
    assert!(refused.is_empty(), "{refused:#?}");
    assert!(!providers.bodies().is_empty());
}

#[tokio::test]
async fn redact_pii_hides_or_refuses_a_value_at_every_place() {
    let providers = Providers::start().await;
    let filter = "slot = \"redact-pii\"\noptions = { unread = \"audio\" }\n";
    let gateway = guarded(&providers, filter).await;
    let rows = rows();
    let mut failed = BTreeMap::new();
    let mut refused = 0;
    for row in &rows {
        let answer = send(&gateway, row, ADDRESS).await;
        if answer
            .text()
            .contains("filter redact-pii rejects this request")
        {
            refused += 1;
        }
        if answer.status == 500 || answer.status == 503 {
            failed.insert(row.body.to_string(), answer.text());
        }
    }
    let bodies = providers.bodies();
    let leaked: Vec<_> = bodies.iter().filter(|body| has(body, ADDRESS)).collect();
    assert!(
        leaked.is_empty(),
        "{} of {}: {leaked:#?}",
        leaked.len(),
        rows.len()
    );
    assert!(failed.is_empty(), "{failed:#?}");
    // Many values are replaced, and reach the provider in that form.
    let replaced = bodies.iter().filter(|body| has(body, "[e-mail-1]")).count();
    assert!(
        replaced > rows.len() / 3,
        "{replaced} of {}; {refused} refused",
        rows.len()
    );
}

#[tokio::test]
async fn guards_read_stored_messages_of_a_session() {
    let (providers, service) = (Providers::start().await, moderation_service().await);
    let gateway = guarded(&providers, &moderate(&service)).await;
    let in_session = |model: &str, text: &str| {
        let mut body = chat(model, text);
        body["session_id"] = "s".into();
        body
    };
    providers.openai.will(Reply::chat(FLAGGED));
    let client = gateway.client();
    let stored = client.post("/chat", &in_session("open", "Hello")).await;
    assert_eq!(stored.status, 200, "{}", stored.text());
    let refused = client.post("/chat", &in_session("scripted", "And?")).await;
    refused.error(400, "CONTENT_FILTERED");
    assert_eq!(providers.openai.count(), 1);
}

#[tokio::test]
async fn guards_refuse_unreadable_content_unless_the_operator_passes_it() {
    let image = json!({ "model": "scripted", "max_tokens": 50, "messages": [{ "role": "user", "content": [
        { "type": "image_url", "image_url": { "url": "data:image/png;base64,iVBORw0KGgo=" } },
    ] }] });
    let recording = |gateway: &Gateway| {
        let client = gateway.client();
        async move {
            let body = form(&wav(1), &[("model", "ear")]);
            client
                .send(Method::POST, TRANSCRIPTIONS, Some(FORM), body)
                .await
        }
    };
    let service = moderation_service().await;
    for slot in ["moderate", "redact-pii"] {
        let providers = Providers::start().await;
        let of = |options: &str| {
            let url = service.base_url();
            format!("slot = \"{slot}\"\n{options}service = {{ url = \"{url}\", private = true }}\n")
        };
        let gateway = guarded(&providers, &of("")).await;
        let refused = gateway.client().post(CHAT, &image).await;
        let text = refused.text();
        assert!(
            text.contains("it has an image, which the filter cannot read"),
            "{text}"
        );
        let text = recording(&gateway).await.text();
        assert!(
            text.contains("it has a recording, which the filter cannot read"),
            "{text}"
        );
        assert!(providers.bodies().is_empty());

        let gateway = guarded(&providers, &of("options = { unread = \"image,audio\" }\n")).await;
        let passed = gateway.client().post(CHAT, &image).await;
        assert_eq!(passed.status, 200, "{}", passed.text());
        providers
            .openai
            .will(Reply::json(200, &json!({ "text": "A weir." })));
        let passed = recording(&gateway).await;
        assert_eq!(passed.status, 200, "{}", passed.text());
    }
}
