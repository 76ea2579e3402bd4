//! The table of requests in `host/docs/dialects.md`: the features of each client dialect and each adapter, compared with
//! real requests to providers as strict as the real ones (`tests::strict`). `cross.rs` compares the table of responses, and
//! `sdk.rs` the table of clients.

use serde_json::{Value, json};
use tests::scenario::{RESPONSES, Scenario, apis, gateway_with};
use tests::source::root;
use tests::speaker::Speaker;
use tests::{Gateway, Upstream, strict};

/// A provider's signature, in the form for clients of Responses.
const PROOF: &str = "weir.eyJwcm92aWRlciI6InNjcmlwdGVkIiwic2lnbmF0dXJlIjoiYzJsbiJ9";

/// A feature of requests, as fields in each dialect in the order of [`Speaker::ALL`]; `None` if the dialect lacks it.
struct Feature {
    name: &'static str,
    fields: [Option<Value>; 4],
}

fn features() -> Vec<Feature> {
    let user = |content: Value| json!({ "messages": [{ "role": "user", "content": [content] }] });
    let schema = json!({ "type": "object", "properties": {}, "required": [], "additionalProperties": false });
    let function =
        json!([{ "type": "function", "function": { "name": "f", "parameters": schema } }]);
    let tool = json!([{ "name": "f", "input_schema": schema }]);
    let data = "iVBORw0KGgo=";
    let data_url = format!("data:image/png;base64,{data}");
    let pdf = "JVBERi0xLjQKMSAwIG9iajw8L1R5cGUvUGFnZT4+ZW5kb2JqCg==";
    let pdf_url = format!("data:application/pdf;base64,{pdf}");
    let inline =
        |kind: &str, data: &str| json!({ "type": "base64", "media_type": kind, "data": data });
    let mark = json!({ "type": "ephemeral" });
    let document = json!({ "type": "document", "source": inline("application/pdf", pdf) });
    let mut cited = document.clone();
    cited["citations"] = json!({ "enabled": true });
    let by_url = json!({ "type": "url", "url": "https://a.example/b" });
    let image = json!({ "type": "image", "source": inline("image/png", data) });
    let turns = |content: Value, after: Value| {
        json!({ "tools": tool, "messages": [
            { "role": "user", "content": "Hi" },
            { "role": "assistant", "content": [content] },
            { "role": "user", "content": after },
        ] })
    };
    let call = json!({ "type": "tool_use", "id": "c", "name": "f", "input": {} });
    let result = json!([{ "type": "tool_result", "tool_use_id": "c", "content": [image] }]);
    let text = json!({ "type": "text", "text": "x" });
    let mut marked = text.clone();
    marked["cache_control"] = mark;
    let own_tool = json!([{ "type": "function", "name": "f", "parameters": schema }]);
    let input = |part: Value| json!({ "input": [{ "role": "user", "content": [part] }] });
    let items = |item: Value, after: Value| json!({ "tools": own_tool, "input": [{ "role": "user", "content": "Hi" }, item, after] });
    let own_call =
        json!({ "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}" });
    let own_result = json!({ "type": "function_call_output", "call_id": "c", "output": [{ "type": "input_image", "image_url": data_url }] });
    let functions =
        json!([{ "functionDeclarations": [{ "name": "f", "parametersJsonSchema": schema }] }]);
    let part = |part: Value| json!({ "contents": [{ "parts": [part] }] });
    let blob = |kind: &str, data: &str| json!({ "inlineData": { "mimeType": kind, "data": data } });
    let contents = |content: Value, after: Value| {
        json!({ "tools": functions, "contents": [
            { "role": "user", "parts": [{ "text": "Hi" }] },
            { "role": "model", "parts": [content] },
            { "role": "user", "parts": [after] },
        ] })
    };
    let config = |mut config: Value| {
        config["maxOutputTokens"] = 2048.into();
        json!({ "generationConfig": config })
    };
    let of = |name, chat, messages, responses, gemini| Feature {
        name,
        fields: [chat, messages, responses, gemini],
    };
    let all = |name, fields: Value| {
        let fields = Some(fields);
        of(name, fields.clone(), fields.clone(), fields.clone(), fields)
    };
    let tier = Some(json!({ "service_tier": "flex" }));
    vec![
        of(
            "system prompt",
            Some(
                json!({ "messages": [{ "role": "system", "content": "x" }, { "role": "user", "content": "x" }] }),
            ),
            Some(json!({ "system": "x" })),
            Some(json!({ "instructions": "x" })),
            Some(json!({ "systemInstruction": { "parts": [{ "text": "x" }] } })),
        ),
        of(
            "tools",
            Some(json!({ "tools": function })),
            Some(json!({ "tools": tool })),
            Some(json!({ "tools": own_tool })),
            Some(json!({ "tools": functions })),
        ),
        of(
            "forced tool call",
            Some(json!({ "tools": function, "tool_choice": "required" })),
            Some(json!({ "tools": tool, "tool_choice": { "type": "any" } })),
            Some(json!({ "tools": own_tool, "tool_choice": "required" })),
            Some(
                json!({ "tools": functions, "toolConfig": { "functionCallingConfig": { "mode": "ANY" } } }),
            ),
        ),
        of(
            "sequential calls",
            Some(json!({ "tools": function, "parallel_tool_calls": false })),
            Some(
                json!({ "tools": tool, "tool_choice": { "type": "auto", "disable_parallel_tool_use": true } }),
            ),
            Some(json!({ "tools": own_tool, "parallel_tool_calls": false })),
            None,
        ),
        of(
            "image in a tool's result",
            None,
            Some(turns(call, result)),
            Some(items(own_call, own_result)),
            Some(contents(
                json!({ "functionCall": { "id": "c", "name": "f" } }),
                json!({ "functionResponse": { "id": "c", "name": "f", "response": {}, "parts": [blob("image/png", data)] } }),
            )),
        ),
        of(
            "server tools",
            None,
            Some(json!({ "tools": [{ "type": "web_search_20250305", "name": "web_search" }] })),
            Some(json!({ "tools": [{ "type": "web_search" }] })),
            Some(json!({ "tools": [{ "googleSearch": {} }] })),
        ),
        of(
            "image, inline",
            Some(user(
                json!({ "type": "image_url", "image_url": { "url": data_url } }),
            )),
            Some(user(image)),
            Some(input(
                json!({ "type": "input_image", "image_url": data_url }),
            )),
            Some(part(blob("image/png", data))),
        ),
        of(
            "image by URL",
            Some(user(
                json!({ "type": "image_url", "image_url": { "url": "https://a.example/b.png" } }),
            )),
            Some(user(json!({ "type": "image", "source": by_url }))),
            Some(input(
                json!({ "type": "input_image", "image_url": "https://a.example/b.png" }),
            )),
            Some(part(
                json!({ "fileData": { "mimeType": "image/png", "fileUri": "https://a.example/b.png" } }),
            )),
        ),
        of(
            "PDF, inline",
            Some(user(
                json!({ "type": "file", "file": { "filename": "b.pdf", "file_data": pdf_url } }),
            )),
            Some(user(document)),
            Some(input(
                json!({ "type": "input_file", "filename": "b.pdf", "file_data": pdf_url }),
            )),
            Some(part(blob("application/pdf", pdf))),
        ),
        of(
            "PDF by URL",
            None,
            Some(user(json!({ "type": "document", "source": by_url }))),
            Some(input(
                json!({ "type": "input_file", "file_url": "https://a.example/b" }),
            )),
            Some(part(
                json!({ "fileData": { "mimeType": "application/pdf", "fileUri": "https://a.example/b" } }),
            )),
        ),
        of(
            "text document",
            None,
            Some(user(
                json!({ "type": "document", "source": { "type": "text", "media_type": "text/plain", "data": "x" } }),
            )),
            None,
            None,
        ),
        of("document citations", None, Some(user(cited)), None, None),
        of(
            "JSON schema",
            Some(
                json!({ "response_format": { "type": "json_schema", "json_schema": { "name": "x", "strict": true, "schema": schema } } }),
            ),
            Some(
                json!({ "output_config": { "format": { "type": "json_schema", "schema": schema } } }),
            ),
            Some(
                json!({ "text": { "format": { "type": "json_schema", "name": "x", "strict": true, "schema": schema } } }),
            ),
            Some(config(json!({ "responseJsonSchema": schema }))),
        ),
        of(
            "stop sequences",
            Some(json!({ "stop": ["END"] })),
            Some(json!({ "stop_sequences": ["END"] })),
            None,
            Some(config(json!({ "stopSequences": ["END"] }))),
        ),
        of(
            "`top_k`",
            Some(json!({ "top_k": 5 })),
            Some(json!({ "top_k": 5 })),
            None,
            Some(config(json!({ "topK": 5 }))),
        ),
        of(
            "`seed`",
            Some(json!({ "seed": 5 })),
            None,
            None,
            Some(config(json!({ "seed": 5 }))),
        ),
        of(
            "reasoning by effort",
            Some(json!({ "reasoning_effort": "low" })),
            Some(
                json!({ "thinking": { "type": "adaptive" }, "output_config": { "effort": "low" } }),
            ),
            Some(json!({ "reasoning": { "effort": "low" } })),
            Some(config(
                json!({ "thinkingConfig": { "thinkingLevel": "LOW" } }),
            )),
        ),
        of(
            "reasoning by budget",
            None,
            Some(json!({ "thinking": { "type": "enabled", "budget_tokens": 1024 } })),
            None,
            Some(config(
                json!({ "thinkingConfig": { "thinkingBudget": 1024 } }),
            )),
        ),
        of(
            "earlier reasoning",
            None,
            Some(turns(
                json!({ "type": "thinking", "thinking": "Hm.", "signature": "c2ln" }),
                json!("x"),
            )),
            Some(items(
                json!({ "type": "reasoning", "summary": [{ "type": "summary_text", "text": "Hm." }], "encrypted_content": PROOF }),
                json!({ "role": "user", "content": "x" }),
            )),
            Some(contents(
                json!({ "text": "Hm.", "thought": true, "thoughtSignature": "c2ln" }),
                json!({ "text": "x" }),
            )),
        ),
        of(
            "log probabilities",
            Some(json!({ "logprobs": true, "top_logprobs": 2 })),
            None,
            Some(json!({ "top_logprobs": 2 })),
            None,
        ),
        of(
            "cache marks",
            Some(user(marked.clone())),
            Some(user(marked)),
            Some(input(
                json!({ "type": "input_text", "text": "x", "prompt_cache_breakpoint": { "mode": "explicit" } }),
            )),
            None,
        ),
        of(
            "`metadata`",
            Some(json!({ "metadata": { "a": "b" } })),
            Some(json!({ "metadata": { "user_id": "u" } })),
            Some(json!({ "metadata": { "a": "b" } })),
            None,
        ),
        of("`service_tier`", tier.clone(), tier.clone(), tier, None),
        all("unknown field", json!({ "novelty": 1 })),
    ]
}

/// The outcome of a feature: served, served without some fields, or rejected.
async fn outcome(
    upstream: &Upstream,
    gateway: &Gateway,
    speaker: Speaker,
    fields: Option<&Value>,
) -> String {
    let Some(fields) = fields else {
        return "–".to_owned();
    };
    let body = speaker.with(fields);
    let path = speaker.path("scripted", false);
    let before = upstream.count();
    let answer = gateway.client().post(&path, &body).await;
    if answer.status != 200 {
        assert_eq!(upstream.count(), before, "the provider: {}", answer.text());
        // The adapter rejects the request, or the dialect does for all adapters.
        assert_eq!(answer.status, 400, "{}", answer.text());
        let error = &answer.json()["error"];
        let kind = error.get("status").unwrap_or(&error["type"]);
        assert!(
            kind == "invalid_request_error" || kind == "INVALID_ARGUMENT",
            "{error}"
        );
        return "refused".to_owned();
    }
    match answer.headers.get("x-weir-ignored") {
        None => "yes".to_owned(),
        Some(names) => {
            let names = names.to_str().expect("ASCII").replace(", ", "`, `");
            format!("without `{names}`")
        }
    }
}

/// The name of one of the [`apis`] in the reference.
pub(crate) fn column(api: &str) -> String {
    match api {
        RESPONSES => "`openai` (Responses)".to_owned(),
        adapter => format!("`{adapter}`"),
    }
}

/// The upper rows of a table with a column for each of the [`apis`].
pub(crate) fn table_head() -> String {
    let columns: Vec<_> = apis().iter().map(|api| column(api)).collect();
    let (head, rule) = (columns.join(" | "), "---|".repeat(columns.len()));
    format!("| | {head} |\n|---|{rule}\n")
}

/// Checks that the reference has this table, and no more rows.
pub(crate) fn assert_documented(table: &str) {
    let path = root().join("host/docs/dialects.md");
    let reference = std::fs::read_to_string(path).expect("the reference of dialects");
    assert!(
        format!("{reference}\n").contains(&format!("\n\n{table}\n")),
        "host/docs/dialects.md should have this table:\n{table}"
    );
}

#[tokio::test]
async fn the_reference_says_what_each_dialect_can_ask_of_each_adapter() {
    let mut gateways = Vec::new();
    for api in apis() {
        let upstream = Upstream::start().await;
        let answer = Scenario::Text.reply(&api, false).expect("an answer");
        strict::serve(&upstream, &api, answer);
        let gateway = gateway_with(&api, &upstream).await;
        gateways.push((upstream, gateway));
    }
    let mut table = table_head();
    for feature in features() {
        table += &format!("| {} |", feature.name);
        for (upstream, gateway) in &gateways {
            let mut outcomes = Vec::new();
            for (speaker, fields) in Speaker::ALL.into_iter().zip(&feature.fields) {
                outcomes.push(outcome(upstream, gateway, speaker, fields.as_ref()).await);
            }
            let mut told = outcomes.iter().filter(|outcome| *outcome != "–");
            let first = told.next().expect("a dialect has it");
            table += &match told.all(|outcome| outcome == first) {
                true => format!(" {first} |"),
                false => format!(" {} |", outcomes.join("; ")),
            };
        }
        table += "\n";
    }
    assert_documented(&table);
}
