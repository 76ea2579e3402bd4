//! `prompt_caching = "auto"`: weir marks the prefixes that a provider keeps in its cache, if the client marks none.

use serde_json::{Value, json};
use tests::scenario::{Scenario, apis, gateway_of};
use tests::speaker::Speaker;
use tests::{Gateway, Upstream, strict};

/// A model with the setting, at a provider that refuses what the real one refuses.
async fn caching(api: &str, setting: &str) -> (Upstream, Gateway) {
    let upstream = Upstream::start().await;
    let answer = Scenario::Text.reply(api, false).expect("an answer");
    strict::serve(&upstream, api, answer);
    let model = match api {
        "bedrock" => "eu.anthropic.claude-haiku-4-5-20251001-v1:0",
        _ => "claude-haiku-4-5",
    };
    let gateway = gateway_of(api, &upstream, model, setting).await;
    (upstream, gateway)
}

const AUTO: &str = "prompt_caching = \"auto\"";

/// The third turn of a conversation with a long system prompt and two tools.
fn conversation(speaker: Speaker) -> Value {
    let rules = "Be brief. ".repeat(600);
    let schema = json!({ "type": "object", "properties": { "at": { "type": "string" } } });
    let turns = ["What is this?", "A turtle.", "And now?"];
    let listed = |role_of_model: &str, of: &dyn Fn(&str, &str) -> Value| -> Vec<Value> {
        let roles = ["user", role_of_model, "user"];
        let turns = roles.iter().zip(turns);
        turns.map(|(role, text)| of(role, text)).collect()
    };
    let message = |role: &str, text: &str| json!({ "role": role, "content": text });
    match speaker {
        Speaker::Chat => {
            let tool = |name: &str| json!({ "type": "function", "function": { "name": name, "parameters": schema } });
            let mut messages = listed("assistant", &message);
            messages.insert(0, message("system", &rules));
            json!({ "model": "scripted", "messages": messages, "tools": [tool("a"), tool("b")] })
        }
        Speaker::Messages => {
            let tool = |name: &str| json!({ "name": name, "input_schema": schema });
            json!({
                "model": "scripted", "max_tokens": 100, "system": rules, "messages": listed("assistant", &message),
                "tools": [tool("a"), tool("b")],
            })
        }
        Speaker::Responses => {
            let tool =
                |name: &str| json!({ "type": "function", "name": name, "parameters": schema });
            json!({
                "model": "scripted", "instructions": rules, "input": listed("assistant", &message),
                "tools": [tool("a"), tool("b")],
            })
        }
        Speaker::Gemini => {
            let part =
                |role: &str, text: &str| json!({ "role": role, "parts": [{ "text": text }] });
            let tool = |name: &str| json!({ "name": name, "parametersJsonSchema": schema });
            json!({
                "systemInstruction": { "parts": [{ "text": rules }] }, "contents": listed("model", &part),
                "tools": [{ "functionDeclarations": [tool("a"), tool("b")] }],
            })
        }
    }
}

/// The places of the marks in a body, such as `/tools/1`.
fn marks(body: &Value) -> Vec<String> {
    fn look(value: &Value, at: &str, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                for (name, inner) in fields {
                    match &**name {
                        "cache_control" | "cachePoint" => found.push(at.to_owned()),
                        name => look(inner, &format!("{at}/{name}"), found),
                    }
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    look(item, &format!("{at}/{index}"), found);
                }
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    look(body, "", &mut found);
    found.sort();
    found
}

/// Sends a request, and returns the marks of the provider's request. Nobody reads of marks that the client did not set.
async fn sent(
    (upstream, gateway): &(Upstream, Gateway),
    speaker: Speaker,
    body: &Value,
) -> Vec<String> {
    let path = speaker.path("scripted", false);
    let answer = gateway.client().post(&path, body).await;
    assert_eq!(answer.status, 200, "{speaker:?}: {}", answer.text());
    let ignored = answer.headers.get("x-weir-ignored");
    assert!(ignored.is_none(), "{speaker:?}: {ignored:?}");
    marks(&upstream.next_request().await.json())
}

#[tokio::test]
async fn tools_the_system_prompt_and_the_conversation_are_marked_for_providers_with_marks() {
    for api in apis() {
        let expected: &[&str] = match &*api {
            "anthropic" => &["/messages/2/content/0", "/system/0", "/tools/1"],
            // The points stand behind what they end.
            "bedrock" => &["/messages/2/content/1", "/system/1", "/toolConfig/tools/2"],
            _ => &[],
        };
        let (auto, own) = (caching(&api, AUTO).await, caching(&api, "").await);
        for speaker in Speaker::ALL {
            let body = conversation(speaker);
            assert_eq!(
                sent(&auto, speaker, &body).await,
                expected,
                "{api} {speaker:?}"
            );
            let none = sent(&own, speaker, &body).await;
            assert!(none.is_empty(), "{api} {speaker:?}: {none:?}");
        }
    }
}

#[tokio::test]
async fn marks_of_the_client_are_the_only_ones() {
    let provider = caching("anthropic", AUTO).await;
    let mark = json!({ "type": "ephemeral", "ttl": "1h" });
    let body = conversation(Speaker::Messages);
    let mut of_tool = body.clone();
    of_tool["tools"][0]["cache_control"] = mark.clone();
    let mut of_text = body.clone();
    of_text["messages"][0]["content"] =
        json!([{ "type": "text", "text": "x", "cache_control": mark }]);
    let mut of_request = body.clone();
    of_request["cache_control"] = mark.clone();
    let mut of_result = body;
    let result = json!({ "type": "text", "text": "seen", "cache_control": mark });
    of_result["messages"][1]["content"] =
        json!([{ "type": "tool_use", "id": "t", "name": "a", "input": {} }]);
    of_result["messages"][2]["content"] =
        json!([{ "type": "tool_result", "tool_use_id": "t", "content": [result] }]);
    for (body, expected) in [
        (of_tool, "/tools/0"),
        (of_text, "/messages/0/content/0"),
        (of_request, ""),
        (of_result, "/messages/2/content/0"),
    ] {
        let marks = sent(&provider, Speaker::Messages, &body).await;
        assert_eq!(marks, [expected]);
    }
}

/// Providers keep no short prefix, and a question that nobody continues would pay for a write in vain.
#[tokio::test]
async fn short_requests_and_short_questions_have_no_mark() {
    let provider = caching("anthropic", AUTO).await;
    let chat = |text: &str| json!({ "model": "scripted", "messages": [{ "role": "system", "content": "Be brief." }, { "role": "user", "content": text }] });
    for (body, expected) in [
        (chat("x"), &[][..]),
        (
            chat(&"x ".repeat(4_000)),
            &["/messages/0/content/0", "/system/0"],
        ),
    ] {
        assert_eq!(sent(&provider, Speaker::Chat, &body).await, expected);
    }
    let mut first = conversation(Speaker::Messages);
    first["messages"] = json!([{ "role": "user", "content": "x" }]);
    assert_eq!(
        sent(&provider, Speaker::Messages, &first).await,
        ["/system/0", "/tools/1"]
    );
    // A tool that is loaded later takes no mark.
    let mut later = conversation(Speaker::Messages);
    later["tools"][1]["defer_loading"] = true.into();
    let marks = sent(&provider, Speaker::Messages, &later).await;
    assert_eq!(marks, ["/messages/2/content/0", "/system/0", "/tools/0"]);
}
