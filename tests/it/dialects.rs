//! What each dialect of clients can be told each adapter: the table in `host/README.md`, found out by asking.

use std::path::Path;

use serde_json::{Value, json};
use tests::{Gateway, Reply, Upstream};

use crate::adapters::PROVIDERS;
use crate::anthropic_messages::said;

/// Where the clients of a dialect ask.
const PATHS: [&str; 2] = ["/v1/chat/completions", "/v1/messages"];

/// Something that a client may ask for, as fields of a request: in Chat Completions and in Messages, where they have it.
struct Feature {
    name: &'static str,
    fields: [Option<Value>; 2],
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
    let of = |name, chat: Option<Value>, messages: Option<Value>| Feature {
        name,
        fields: [chat, messages],
    };
    let both = |name, fields: Value| of(name, Some(fields.clone()), Some(fields));
    vec![
        of(
            "system prompt",
            Some(
                json!({ "messages": [{ "role": "system", "content": "x" }, { "role": "user", "content": "x" }] }),
            ),
            Some(json!({ "system": "x" })),
        ),
        of(
            "tools",
            Some(json!({ "tools": function })),
            Some(json!({ "tools": tool })),
        ),
        of(
            "a tool that must be called",
            Some(json!({ "tools": function, "tool_choice": "required" })),
            Some(json!({ "tools": tool, "tool_choice": { "type": "any" } })),
        ),
        of(
            "one call at a time",
            Some(json!({ "tools": function, "parallel_tool_calls": false })),
            Some(
                json!({ "tools": tool, "tool_choice": { "type": "auto", "disable_parallel_tool_use": true } }),
            ),
        ),
        of(
            "an image in a tool's result",
            None,
            Some(turns(call, result)),
        ),
        of(
            "server tools",
            None,
            Some(json!({ "tools": [{ "type": "web_search_20250305", "name": "web_search" }] })),
        ),
        of(
            "image, inline",
            Some(user(
                json!({ "type": "image_url", "image_url": { "url": data_url } }),
            )),
            Some(user(image)),
        ),
        of(
            "image by URL",
            Some(user(
                json!({ "type": "image_url", "image_url": { "url": "https://a.example/b.png" } }),
            )),
            Some(user(json!({ "type": "image", "source": by_url }))),
        ),
        of(
            "PDF, inline",
            Some(user(
                json!({ "type": "file", "file": { "filename": "b.pdf", "file_data": pdf_url } }),
            )),
            Some(user(document)),
        ),
        of(
            "PDF by URL",
            None,
            Some(user(json!({ "type": "document", "source": by_url }))),
        ),
        of(
            "text as a document",
            None,
            Some(user(
                json!({ "type": "document", "source": { "type": "text", "media_type": "text/plain", "data": "x" } }),
            )),
        ),
        of("citations of a document", None, Some(user(cited))),
        of(
            "answer by a JSON schema",
            Some(
                json!({ "response_format": { "type": "json_schema", "json_schema": { "name": "x", "strict": true, "schema": schema } } }),
            ),
            Some(
                json!({ "output_config": { "format": { "type": "json_schema", "schema": schema } } }),
            ),
        ),
        of(
            "stop sequences",
            Some(json!({ "stop": ["END"] })),
            Some(json!({ "stop_sequences": ["END"] })),
        ),
        both("`top_k`", json!({ "top_k": 5 })),
        of("`seed`", Some(json!({ "seed": 5 })), None),
        of(
            "reasoning by effort",
            Some(json!({ "reasoning_effort": "low" })),
            Some(
                json!({ "thinking": { "type": "adaptive" }, "output_config": { "effort": "low" } }),
            ),
        ),
        of(
            "reasoning by budget",
            None,
            Some(json!({ "thinking": { "type": "enabled", "budget_tokens": 1024 } })),
        ),
        of(
            "reasoning of an earlier turn",
            None,
            Some(turns(
                json!({ "type": "thinking", "thinking": "Hm.", "signature": "c2ln" }),
                json!("x"),
            )),
        ),
        both("cache marks", user(marked)),
        of(
            "`metadata`",
            Some(json!({ "metadata": { "a": "b" } })),
            Some(json!({ "metadata": { "user_id": "u" } })),
        ),
        both("`service_tier`", json!({ "service_tier": "flex" })),
        both("a field that weir does not know", json!({ "novelty": 1 })),
    ]
}

/// What an adapter's upstream answers.
fn answer(adapter: &str) -> Reply {
    match PROVIDERS
        .iter()
        .find(|provider| provider.adapter == adapter)
    {
        Some(provider) if adapter != "anthropic" => (provider.whole)(),
        _ => said(adapter, "So"),
    }
}

/// What becomes of a feature: it is served, without what its upstream cannot be told, or refused.
async fn outcome(gateway: &Gateway, path: &str, fields: Option<&Value>) -> String {
    let Some(fields) = fields else {
        return String::new();
    };
    let mut body = json!({
        "model": "scripted", "max_tokens": 2048, "messages": [{ "role": "user", "content": "x" }],
    });
    for (name, value) in fields.as_object().expect("an object") {
        body[name] = value.clone();
    }
    let answer = gateway.client().post(path, &body).await;
    if answer.status != 200 {
        answer.error(400, "UNSUPPORTED_PARAMETER");
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

#[tokio::test]
async fn the_readme_says_what_each_dialect_can_be_told_each_adapter() {
    let adapters = ["openai", "anthropic", "gemini", "ollama"];
    let mut gateways = Vec::new();
    for adapter in adapters {
        let upstream = Upstream::start().await;
        upstream.always(answer(adapter));
        let gateway = Gateway::builder()
            .provider("scripted", adapter, Some(&upstream))
            .model("scripted", &["scripted"])
            .start()
            .await;
        gateways.push((upstream, gateway));
    }
    let mut table = format!(
        "| | `{}` |\n|---|{}\n",
        adapters.join("` | `"),
        "---|".repeat(adapters.len())
    );
    for feature in features() {
        table += &format!("| {} |", feature.name);
        for (_, gateway) in &gateways {
            let [chat, messages] = &feature.fields;
            let chat = outcome(gateway, PATHS[0], chat.as_ref()).await;
            let messages = outcome(gateway, PATHS[1], messages.as_ref()).await;
            table += &match (&*chat, &*messages) {
                ("", only) | (only, "") => format!(" {only} |"),
                (chat, messages) if chat == messages => format!(" {chat} |"),
                (chat, messages) => format!(" {chat}; {messages} |"),
            };
        }
        table += "\n";
    }
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../host/README.md");
    let readme = std::fs::read_to_string(readme).expect("the README");
    assert!(
        readme.contains(&table),
        "host/README.md should have this table:\n{table}"
    );
}
