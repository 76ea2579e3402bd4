//! Requests that are right in their client's dialect, to providers with narrower rules: `tests::strict` refuses what the real ones
//! refuse. `x-weir-ignored` names what an adapter drops to fit.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tests::scenario::{RESPONSES, Scenario, apis};
use tests::speaker::Speaker;
use tests::{Gateway, Upstream, strict};

/// A request of each dialect in the order of [`Speaker::ALL`]; `None` if the dialect has no such request.
struct Case {
    name: &'static str,
    fields: [Option<Value>; 4],
}

/// The models at each provider: rules differ between versions.
fn models(api: &str) -> &'static [&'static str] {
    match api {
        "anthropic" => &["claude-haiku-4-5", "claude-opus-4-7"],
        "bedrock" => &[
            "eu.anthropic.claude-haiku-4-5-20251001-v1:0",
            "us.amazon.nova-pro-v1:0",
        ],
        "gemini" => &["gemini-2.5-pro", "gemini-3-pro"],
        "ollama" => &["qwen3"],
        _ => &["gpt-4.1", "gpt-5"],
    }
}

/// The options of a model that reasons.
fn options(api: &str, model: &str) -> &'static str {
    match (api, model) {
        (RESPONSES, "gpt-5") => {
            "[providers.scripted.options]\napi = \"responses\"\nsampling = \"false\"\n"
        }
        (RESPONSES, _) => "[providers.scripted.options]\napi = \"responses\"\n",
        ("openai", "gpt-5") => "[providers.scripted.options]\nsampling = \"false\"\n",
        ("bedrock", model) if model.contains("claude") => {
            "[providers.scripted.options]\nthinking = \"budget\"\n"
        }
        ("anthropic", "claude-haiku-4-5") => {
            "[providers.scripted.options]\nthinking = \"budget\"\n"
        }
        _ => "",
    }
}

async fn gateway_with(api: &str, model: &str, upstream: &Upstream) -> Gateway {
    let adapter = if api == RESPONSES { "openai" } else { api };
    let builder = Gateway::builder().provider("scripted", adapter, Some(upstream));
    let catalog = format!(
        "[models.scripted]\ncontext_window = 8000000\nmax_output_tokens = 4000000\n\
         default_output_tokens = 1000\nmax_image_tokens = 100\nsupports_tools = true\n\
         supports_vision = true\nupstreams = [{{ provider = \"scripted\", model = \"{model}\" }}]\n\
         price = {{ input = 1, output = 2, search = 0.01 }}\n"
    );
    let builder = builder.tables(options(api, model)).tables(&catalog);
    builder.start().await
}

fn cases() -> Vec<Case> {
    let of = |name, chat, messages, responses, gemini| Case {
        name,
        fields: [chat, messages, responses, gemini],
    };
    let long = "a.b:c|".repeat(20);
    let schema = |extra: Value| {
        let mut schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"], "additionalProperties": false });
        for (name, value) in extra.as_object().into_iter().flatten() {
            schema["properties"]["n"][name] = value.clone();
        }
        schema
    };
    let plain = schema(json!({}));
    let bounded = schema(json!({ "minimum": 1, "maximum": 9 }));
    let optional = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "additionalProperties": false });
    let choice = json!({ "type": "object", "anyOf": [{ "properties": { "a": { "type": "array" } } }, { "properties": { "b": {} } }] });

    let function = |name: &str, schema: &Value, strict: bool| json!({ "type": "function", "function": { "name": name, "parameters": schema, "strict": strict } });
    let tool = |name: &str, schema: &Value, strict: bool| json!({ "name": name, "input_schema": schema, "strict": strict });
    let own = |name: &str, schema: &Value, strict: bool| json!({ "type": "function", "name": name, "parameters": schema, "strict": strict });
    let declared = |name: &str, schema: &Value| json!([{ "functionDeclarations": [{ "name": name, "parametersJsonSchema": schema }] }]);

    let call = |id: &str, arguments: &str| json!({ "id": id, "type": "function", "function": { "name": "look", "arguments": arguments } });
    let user = |content: Value| json!({ "role": "user", "content": content });
    let assistant = |content: Value| json!({ "role": "assistant", "content": content });
    let calls =
        |calls: Vec<Value>| json!({ "role": "assistant", "content": null, "tool_calls": calls });
    let result = |id: &str| json!({ "role": "tool", "tool_call_id": id, "content": "seen" });
    let block = |id: &str| json!({ "type": "tool_use", "id": id, "name": "look", "input": {} });
    let result_block =
        |id: &str| json!({ "type": "tool_result", "tool_use_id": id, "content": "seen" });
    let item = |id: &str, arguments: &str| json!({ "type": "function_call", "call_id": id, "name": "look", "arguments": arguments });
    let output =
        |id: &str| json!({ "type": "function_call_output", "call_id": id, "output": "seen" });
    let content = |role: &str, parts: Value| json!({ "role": role, "parts": parts });
    let part_call = json!({ "functionCall": { "name": "look", "args": {} } });
    let part_result = json!({ "functionResponse": { "name": "look", "response": {} } });
    let text = |text: &str| json!({ "type": "text", "text": text });

    let chat = |messages: Vec<Value>| json!({ "messages": messages, "tools": [function("look", &plain, false)] });
    let messages = |messages: Vec<Value>| json!({ "messages": messages, "tools": [tool("look", &plain, false)] });
    let input =
        |input: Vec<Value>| json!({ "input": input, "tools": [own("look", &plain, false)] });
    let contents =
        |contents: Vec<Value>| json!({ "contents": contents, "tools": declared("look", &plain) });
    let config = |mut config: Value| {
        config["maxOutputTokens"] = 2048.into();
        json!({ "generationConfig": config })
    };
    let jpg = "data:image/jpg;base64,/9j/4AAQSkZJRg==";
    let marked = |text: &str| json!({ "type": "text", "text": text, "cache_control": { "type": "ephemeral" } });
    vec![
        of(
            "long names of tools",
            None,
            Some(json!({ "tools": [tool(&"m".repeat(120), &plain, false)] })),
            None,
            Some(json!({ "tools": declared("ns.look-2", &plain) })),
        ),
        of(
            "odd ids of calls",
            Some(chat(vec![
                user(json!("a")),
                calls(vec![call(&long, "{}")]),
                result(&long),
            ])),
            Some(messages(vec![
                user(json!("a")),
                assistant(json!([block(&"t".repeat(90))])),
                user(json!([result_block(&"t".repeat(90))])),
            ])),
            Some(input(vec![
                user(json!("a")),
                item(&long, "{}"),
                output(&long),
            ])),
            None,
        ),
        of(
            "one id in two turns",
            Some(chat(vec![
                user(json!("a")),
                calls(vec![call("call_0", "{}")]),
                result("call_0"),
                calls(vec![call("call_0", "{}")]),
                result("call_0"),
            ])),
            None,
            None,
            None,
        ),
        of(
            "cut arguments",
            Some(chat(vec![
                user(json!("a")),
                calls(vec![call("c1", "{\"at\": \"x")]),
                result("c1"),
            ])),
            None,
            Some(input(vec![
                user(json!("a")),
                item("c1", "[1"),
                output("c1"),
            ])),
            None,
        ),
        of(
            "results after other messages",
            Some(chat(vec![
                user(json!("a")),
                calls(vec![call("c1", "{}"), call("c2", "{}")]),
                result("c2"),
                user(json!("and?")),
                result("c1"),
            ])),
            Some(messages(vec![
                user(json!("a")),
                assistant(json!([block("c1"), block("c2")])),
                user(json!([
                    result_block("c1"),
                    result_block("c2"),
                    text("and?")
                ])),
            ])),
            Some(input(vec![
                user(json!("a")),
                item("c1", "{}"),
                item("c2", "{}"),
                user(json!("and?")),
                output("c2"),
                output("c1"),
            ])),
            Some(contents(vec![
                content("user", json!([{ "text": "a" }])),
                content("model", json!([part_call])),
                content("user", json!([{ "text": "and?" }, part_result])),
            ])),
        ),
        of(
            "calls without results",
            Some(chat(vec![
                user(json!("a")),
                calls(vec![call("c1", "{}")]),
                user(json!("stop")),
            ])),
            None,
            Some(input(vec![
                user(json!("a")),
                item("c1", "{}"),
                user(json!("stop")),
            ])),
            Some(contents(vec![
                content("user", json!([{ "text": "a" }])),
                content("model", json!([part_call])),
                content("user", json!([{ "text": "stop" }])),
            ])),
        ),
        of(
            "results without calls",
            Some(chat(vec![
                user(json!("a")),
                result("c9"),
                user(json!("and?")),
            ])),
            None,
            Some(input(vec![
                user(json!("a")),
                output("c9"),
                user(json!("and?")),
            ])),
            None,
        ),
        of(
            "earlier calls without tools",
            Some(
                json!({ "messages": [user(json!("a")), calls(vec![call("c1", "{}")]), result("c1")] }),
            ),
            Some(json!({ "messages": [
                user(json!("a")), assistant(json!([block("c1")])), user(json!([result_block("c1")])),
            ] })),
            Some(json!({ "input": [user(json!("a")), item("c1", "{}"), output("c1")] })),
            Some(json!({ "contents": [
                content("user", json!([{ "text": "a" }])),
                content("model", json!([part_call])),
                content("user", json!([part_result])),
            ] })),
        ),
        of(
            "the system alone",
            Some(json!({ "messages": [{ "role": "system", "content": "Say hello." }] })),
            None,
            Some(json!({ "input": [{ "role": "system", "content": "Say hello." }] })),
            None,
        ),
        of(
            "the assistant first",
            Some(
                json!({ "messages": [assistant(json!("Hello. How can I help?")), user(json!("a"))] }),
            ),
            None,
            Some(
                json!({ "input": [assistant(json!("Hello. How can I help?")), user(json!("a"))] }),
            ),
            Some(
                json!({ "contents": [content("model", json!([{ "text": "Hello." }])), content("user", json!([{ "text": "a" }]))] }),
            ),
        ),
        of(
            "names of participants",
            Some(json!({ "messages": [{ "role": "user", "name": "alice", "content": "a" }] })),
            None,
            None,
            None,
        ),
        of(
            "blank texts",
            Some(
                json!({ "messages": [user(json!("a")), assistant(json!("")), user(json!([text(" \n"), text("b")]))] }),
            ),
            None,
            Some(json!({ "input": [user(json!("a")), assistant(json!(" ")), user(json!("b"))] })),
            Some(json!({ "contents": [
                content("user", json!([{ "text": "a" }])), content("model", json!([{ "text": " " }])), content("user", json!([{ "text": "b" }])),
            ] })),
        ),
        of(
            "a turn to continue",
            Some(json!({ "messages": [user(json!("a")), assistant(json!("The answer is "))] })),
            None,
            Some(json!({ "input": [user(json!("a")), assistant(json!("The answer is "))] })),
            Some(
                json!({ "contents": [content("user", json!([{ "text": "a" }])), content("model", json!([{ "text": "It is " }]))] }),
            ),
        ),
        of(
            "blank and many stop sequences",
            Some(json!({ "stop": ["\n", "END"] })),
            Some(json!({ "stop_sequences": ["A", "B", "C", "D", "E", "F"] })),
            None,
            Some(config(
                json!({ "stopSequences": ["\n", "B", "C", "D", "E"] }),
            )),
        ),
        of(
            "a high temperature",
            Some(json!({ "temperature": 1.7 })),
            None,
            Some(json!({ "temperature": 1.7 })),
            Some(config(json!({ "temperature": 1.7 }))),
        ),
        of(
            "temperature and top_p",
            Some(json!({ "temperature": 0.4, "top_p": 0.9 })),
            Some(json!({ "temperature": 0.4, "top_p": 0.9 })),
            Some(json!({ "temperature": 0.4, "top_p": 0.9 })),
            Some(config(json!({ "temperature": 0.4, "topP": 0.9 }))),
        ),
        of(
            "reasoning with a temperature",
            Some(json!({ "reasoning_effort": "high", "temperature": 0.4 })),
            None,
            Some(json!({ "reasoning": { "effort": "high" }, "temperature": 0.4 })),
            Some(config(
                json!({ "temperature": 0.4, "thinkingConfig": { "thinkingBudget": 1500 } }),
            )),
        ),
        of(
            "reasoning before a call that must be made",
            Some(
                json!({ "reasoning_effort": "high", "tools": [function("look", &plain, false)], "tool_choice": { "type": "function", "function": { "name": "look" } } }),
            ),
            None,
            Some(
                json!({ "reasoning": { "effort": "high" }, "tools": [own("look", &plain, false)], "tool_choice": "required" }),
            ),
            None,
        ),
        of(
            "a large budget of reasoning",
            None,
            Some(
                json!({ "max_tokens": 200_000, "thinking": { "type": "enabled", "budget_tokens": 100_000 } }),
            ),
            None,
            None,
        ),
        of(
            "no reasoning",
            Some(json!({ "reasoning_effort": "none" })),
            Some(json!({ "thinking": { "type": "disabled" } })),
            Some(json!({ "reasoning": { "effort": "none" } })),
            None,
        ),
        of(
            "a JSON object",
            Some(
                json!({ "response_format": { "type": "json_object" }, "messages": [user(json!("As JSON."))] }),
            ),
            None,
            None,
            Some(config(json!({ "responseMimeType": "application/json" }))),
        ),
        of(
            "a schema with bounds",
            Some(
                json!({ "response_format": { "type": "json_schema", "json_schema": { "name": "x", "strict": true, "schema": bounded } } }),
            ),
            None,
            Some(
                json!({ "text": { "format": { "type": "json_schema", "name": "x", "strict": true, "schema": bounded } } }),
            ),
            Some(config(
                json!({ "responseMimeType": "application/json", "responseJsonSchema": { "type": "object", "properties": { "n": { "type": "integer", "maximum": 9 } } } }),
            )),
        ),
        of(
            "an optional property",
            None,
            Some(
                json!({ "output_config": { "format": { "type": "json_schema", "schema": optional } } }),
            ),
            None,
            Some(config(
                json!({ "responseMimeType": "application/json", "responseJsonSchema": optional }),
            )),
        ),
        of(
            "a schema beside tools",
            Some(
                json!({ "tools": [function("look", &plain, false)], "response_format": { "type": "json_schema", "json_schema": { "name": "x", "strict": true, "schema": plain } } }),
            ),
            Some(
                json!({ "tools": [tool("look", &plain, false)], "output_config": { "format": { "type": "json_schema", "schema": plain } } }),
            ),
            Some(
                json!({ "tools": [own("look", &plain, false)], "text": { "format": { "type": "json_schema", "name": "x", "strict": true, "schema": plain } } }),
            ),
            None,
        ),
        of(
            "strict tools",
            Some(json!({ "tools": [function("look", &bounded, true)] })),
            Some(json!({ "tools": [tool("look", &optional, true)] })),
            Some(json!({ "tools": [own("look", &bounded, true)] })),
            None,
        ),
        of(
            "schemas of tools without properties",
            Some(json!({ "tools": [{ "type": "function", "function": { "name": "look" } }] })),
            Some(json!({ "tools": [tool("look", &json!({ "type": "object" }), false)] })),
            None,
            Some(json!({ "tools": declared("look", &choice) })),
        ),
        of(
            "an image of type image/jpg",
            Some(
                json!({ "messages": [user(json!([{ "type": "image_url", "image_url": { "url": jpg } }]))] }),
            ),
            None,
            Some(json!({ "input": [user(json!([{ "type": "input_image", "image_url": jpg }]))] })),
            Some(
                json!({ "contents": [content("user", json!([{ "inlineData": { "mimeType": "image/jpg", "data": "/9j/4AAQSkZJRg==" } }]))] }),
            ),
        ),
        of(
            "many cache marks",
            Some(
                json!({ "messages": [user(json!([marked("a"), marked("b"), marked("c"), marked("d"), marked("e")]))] }),
            ),
            None,
            None,
            None,
        ),
        of(
            "a long id of an end user",
            Some(json!({ "user": "u".repeat(300) })),
            Some(json!({ "metadata": { "user_id": "u".repeat(150) } })),
            Some(json!({ "safety_identifier": "u".repeat(300) })),
            None,
        ),
    ]
}

/// Whether a provider with these rules refuses the request because it is wrong in the client's own dialect, too.
fn is_own(speaker: Speaker, api: &str) -> bool {
    matches!(
        (speaker, api),
        (Speaker::Chat | Speaker::Responses, "openai" | RESPONSES)
            | (Speaker::Messages, "anthropic")
            | (Speaker::Gemini, "gemini")
    )
}

/// Sends a request; the error has the provider's words, if it refused the request.
async fn served(
    gateway: &Gateway,
    upstream: &Upstream,
    speaker: Speaker,
    fields: &Value,
) -> Result<String, String> {
    let body = speaker.with(fields);
    let before = upstream.count();
    let answer = gateway
        .client()
        .post(&speaker.path("scripted", false), &body)
        .await;
    let ignored = answer.headers.get("x-weir-ignored");
    let ignored = ignored
        .map_or("", |names| names.to_str().expect("ASCII"))
        .to_owned();
    match answer.status.as_u16() {
        200 => Ok(ignored),
        400 if upstream.count() == before => Ok("refused".to_owned()),
        _ => Err(answer.text()),
    }
}

#[tokio::test]
async fn no_provider_refuses_what_is_right_in_another_dialect() {
    let mut refused = Vec::new();
    let mut told = 0;
    for api in apis() {
        for model in models(&api) {
            let upstream = Upstream::start().await;
            let answer = Scenario::Text.reply(&api, false).expect("an answer");
            strict::serve(&upstream, &api, answer);
            let gateway = gateway_with(&api, model, &upstream).await;
            for case in cases() {
                for (speaker, fields) in Speaker::ALL.into_iter().zip(&case.fields) {
                    let Some(fields) = fields else { continue };
                    told += 1;
                    if let Err(words) = served(&gateway, &upstream, speaker, fields).await
                        && !is_own(speaker, &api)
                    {
                        refused.push(format!(
                            "{api} {model}: {} of {speaker:?}: {words}",
                            case.name
                        ));
                    }
                }
            }
        }
    }
    assert!(told > 500, "{told}");
    assert!(
        refused.is_empty(),
        "{} of {told}:\n{}",
        refused.len(),
        refused.join("\n")
    );
}

/// The names of tools that a provider knows under others are the client's in its answer.
#[tokio::test]
async fn a_call_has_the_clients_name_of_its_tool() {
    let upstream = Upstream::start().await;
    let gateway = gateway_with("openai", "gpt-4.1", &upstream).await;
    let name = format!("mcp__{}", "x".repeat(100));
    upstream.always_by(|request| {
        let name = request.json()["tools"][0]["function"]["name"].clone();
        assert!(name.as_str().is_some_and(|name| name.len() <= 64), "{name}");
        let call = json!({ "id": "c", "type": "function", "function": { "name": name, "arguments": "{}" } });
        tests::Reply::chat_message(&json!({ "role": "assistant", "tool_calls": [call] }), "tool_calls")
    });
    let body = json!({
        "model": "scripted", "max_tokens": 100, "messages": [{ "role": "user", "content": "x" }],
        "tools": [{ "name": name, "input_schema": { "type": "object" } }],
    });
    let answer = gateway.client().post("/v1/messages", &body).await;
    assert_eq!(
        answer.json()["content"][0]["name"],
        *name,
        "{}",
        answer.text()
    );
}

/// Each rule names its source, and refuses a request that breaks it: a rule that refuses nothing proves nothing.
#[test]
fn each_rule_refuses_something() {
    let long = "x".repeat(300);
    let open = json!({ "type": "object", "properties": { "n": { "minimum": 1 } } });
    let result = json!({ "role": "user", "content": [{ "type": "text", "text": " " }] });
    let user = json!({ "role": "user", "content": "a" });
    let thinks = |kind: &str| json!({ "type": kind, "budget_tokens": 10 });
    let broken: Vec<(&str, &str, Value)> = vec![
        ("anthropic", "", json!({ "messages": [] })),
        (
            "anthropic",
            "",
            json!({ "messages": [{ "role": "assistant", "content": "a" }] }),
        ),
        (
            "anthropic",
            "",
            json!({ "messages": [{ "role": "user", "content": [] }, user] }),
        ),
        (
            "anthropic",
            "",
            json!({ "messages": [{ "role": "user", "name": "a", "content": "a" }] }),
        ),
        ("anthropic", "", json!({ "messages": [user, result] })),
        (
            "anthropic",
            "",
            json!({ "messages": [user, { "role": "assistant", "content": "a " }] }),
        ),
        (
            "anthropic",
            "",
            json!({ "model": "claude-opus-4-6", "messages": [user, { "role": "assistant", "content": "a" }] }),
        ),
        (
            "anthropic",
            "",
            json!({ "messages": [user], "tools": [{ "name": "a.b", "input_schema": { "type": "object" } }] }),
        ),
        (
            "anthropic",
            "",
            json!({ "messages": [user], "tools": [{ "name": "a", "input_schema": { "type": "object" } }, { "name": "a", "input_schema": { "type": "object" } }] }),
        ),
        (
            "anthropic",
            "",
            json!({ "messages": [user], "tools": [{ "name": "a", "input_schema": {} }] }),
        ),
        (
            "anthropic",
            "",
            json!({ "messages": [user], "tools": [{ "name": "a", "input_schema": { "type": "object", "anyOf": [] } }] }),
        ),
        (
            "anthropic",
            "",
            json!({ "messages": [user], "tools": [{ "name": "a", "strict": true, "input_schema": open }] }),
        ),
        (
            "anthropic",
            "",
            json!({ "messages": [user], "output_config": { "format": { "schema": open } } }),
        ),
        (
            "anthropic",
            "",
            json!({ "messages": [user, { "role": "assistant", "content": [{ "type": "tool_use", "id": "a b", "name": "a", "input": {} }] }] }),
        ),
        (
            "anthropic",
            "",
            json!({ "messages": [user, { "role": "assistant", "content": [{ "type": "tool_use", "id": "a", "name": "a", "input": {} }, { "type": "tool_use", "id": "a", "name": "a", "input": {} }] }] }),
        ),
        (
            "anthropic",
            "",
            json!({ "messages": [user, { "role": "assistant", "content": [{ "type": "tool_use", "id": "a", "name": "a", "input": "x" }] }] }),
        ),
        (
            "anthropic",
            "",
            json!({ "messages": [user, { "role": "assistant", "content": [{ "type": "tool_use", "id": "a", "name": "a", "input": {} }] }] }),
        ),
        (
            "anthropic",
            "",
            json!({ "messages": [{ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "a", "content": "x" }] }] }),
        ),
        (
            "anthropic",
            "",
            json!({ "messages": [user], "temperature": 1.5 }),
        ),
        (
            "anthropic",
            "",
            json!({ "model": "claude-haiku-4-5", "messages": [user], "temperature": 0.5, "top_p": 0.5 }),
        ),
        (
            "anthropic",
            "",
            json!({ "model": "claude-opus-4-7", "messages": [user], "temperature": 0.5 }),
        ),
        (
            "anthropic",
            "",
            json!({ "messages": [user], "temperature": 0.5, "thinking": thinks("adaptive") }),
        ),
        (
            "anthropic",
            "",
            json!({ "messages": [user], "top_k": 5, "thinking": thinks("adaptive") }),
        ),
        (
            "anthropic",
            "",
            json!({ "messages": [user], "tool_choice": { "type": "any" }, "thinking": thinks("adaptive") }),
        ),
        (
            "anthropic",
            "",
            json!({ "messages": [user], "max_tokens": 100, "thinking": thinks("enabled") }),
        ),
        (
            "anthropic",
            "",
            json!({ "messages": [user, { "role": "assistant", "content": [{ "type": "text", "text": "a" }, { "type": "tool_use", "id": "a", "name": "a", "input": {} }] }, { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "a", "content": "x" }] }], "thinking": { "type": "enabled" } }),
        ),
        (
            "anthropic",
            "",
            json!({ "messages": [user], "stop_sequences": ["\n"] }),
        ),
        (
            "anthropic",
            "",
            json!({ "messages": [{ "role": "user", "content": vec![json!({ "type": "text", "text": "a", "cache_control": {} }); 5] }] }),
        ),
        (
            "anthropic",
            "",
            json!({ "messages": [{ "role": "user", "content": [{ "type": "image", "source": { "type": "base64", "media_type": "image/jpg" } }] }] }),
        ),
        (
            "anthropic",
            "",
            json!({ "messages": [user], "metadata": { "user_id": long } }),
        ),
        (
            "anthropic",
            "",
            json!({ "messages": [user], "anthropic_beta": ["x"] }),
        ),
        ("bedrock", "", json!({ "messages": [] })),
        (
            "bedrock",
            "",
            json!({ "messages": [{ "role": "user", "content": [] }] }),
        ),
        (
            "bedrock",
            "",
            json!({ "messages": [{ "role": "user", "content": [{ "text": " " }] }] }),
        ),
        (
            "bedrock",
            "",
            json!({ "messages": [{ "role": "user", "content": [{ "text": "a" }] }], "toolConfig": { "tools": [{ "toolSpec": { "name": "a.b", "inputSchema": { "json": { "type": "object" } } } }] } }),
        ),
        (
            "bedrock",
            "",
            json!({ "messages": [{ "role": "user", "content": [{ "text": "a" }] }, { "role": "assistant", "content": [{ "toolUse": { "toolUseId": "a b", "name": "a", "input": {} } }] }] }),
        ),
        (
            "bedrock",
            "",
            json!({ "messages": [{ "role": "user", "content": [{ "text": "a" }] }, { "role": "assistant", "content": [{ "toolUse": { "toolUseId": "a", "name": "a", "input": {} } }, { "toolUse": { "toolUseId": "a", "name": "a", "input": {} } }] }] }),
        ),
        (
            "bedrock",
            "",
            json!({ "messages": [{ "role": "user", "content": [{ "text": "a" }] }, { "role": "assistant", "content": [{ "toolUse": { "toolUseId": "a", "name": "a", "input": "x" } }] }] }),
        ),
        (
            "bedrock",
            "",
            json!({ "messages": [{ "role": "user", "content": [{ "text": "a" }] }, { "role": "assistant", "content": [{ "toolUse": { "toolUseId": "a", "name": "a", "input": {} } }] }] }),
        ),
        (
            "bedrock",
            "",
            json!({ "toolConfig": {}, "messages": [{ "role": "user", "content": [{ "text": "a" }] }, { "role": "assistant", "content": [{ "toolUse": { "toolUseId": "a", "name": "a", "input": {} } }] }] }),
        ),
        (
            "bedrock",
            "",
            json!({ "toolConfig": {}, "messages": [{ "role": "user", "content": [{ "toolResult": { "toolUseId": "a" } }] }] }),
        ),
        (
            "bedrock",
            "",
            json!({ "messages": [{ "role": "user", "content": [{ "text": "a" }] }], "toolConfig": { "tools": [{ "toolSpec": { "name": "a", "description": "", "inputSchema": { "json": { "type": "object" } } } }] } }),
        ),
        (
            "bedrock",
            "",
            json!({ "messages": [{ "role": "user", "content": [{ "text": "a" }] }], "toolConfig": { "tools": [{ "toolSpec": { "name": "a", "inputSchema": { "json": {} } } }] } }),
        ),
        (
            "bedrock",
            "",
            json!({ "messages": [{ "role": "user", "content": [{ "text": "a" }] }], "toolConfig": { "tools": [{ "toolSpec": { "name": "a", "strict": true, "inputSchema": { "json": open } } }] } }),
        ),
        (
            "bedrock",
            "",
            json!({ "messages": [{ "role": "user", "content": [{ "document": {} }] }] }),
        ),
        (
            "bedrock",
            "",
            json!({ "messages": [{ "role": "user", "content": [{ "image": { "format": "jpg" } }] }] }),
        ),
        (
            "bedrock",
            "",
            json!({ "messages": [{ "role": "user", "content": [{ "text": "a" }] }], "inferenceConfig": { "temperature": 1.5 } }),
        ),
        (
            "bedrock",
            "/model/anthropic.claude-haiku-4-5-v1/converse",
            json!({ "messages": [{ "role": "user", "content": [{ "text": "a" }] }], "inferenceConfig": { "temperature": 0.5, "topP": 0.5 } }),
        ),
        (
            "bedrock",
            "",
            json!({ "messages": [{ "role": "user", "content": [{ "text": "a" }] }], "additionalModelRequestFields": { "thinking": { "type": "enabled" } }, "toolConfig": { "toolChoice": { "any": {} } } }),
        ),
        (
            "bedrock",
            "",
            json!({ "messages": [{ "role": "user", "content": [{ "text": "a" }] }], "inferenceConfig": { "maxTokens": 5 }, "additionalModelRequestFields": { "thinking": { "budget_tokens": 10 } } }),
        ),
        (
            "bedrock",
            "",
            json!({ "messages": [{ "role": "user", "content": [{ "text": "a" }] }], "inferenceConfig": { "stopSequences": [" "] } }),
        ),
        (
            "openai",
            "",
            json!({ "tools": [{ "type": "function", "function": { "name": "a.b" } }] }),
        ),
        ("openai", "", json!({ "tools": vec![json!({}); 129] })),
        (
            "openai",
            "",
            json!({ "tools": [{ "type": "function", "function": { "name": "a", "parameters": {} } }] }),
        ),
        (
            "openai",
            "",
            json!({ "tools": [{ "type": "function", "function": { "name": "a", "strict": true, "parameters": open } }] }),
        ),
        (
            "openai",
            "",
            json!({ "response_format": { "json_schema": { "name": "a", "strict": true, "schema": open } } }),
        ),
        (
            "openai",
            "",
            json!({ "response_format": { "json_schema": { "name": "a b" } } }),
        ),
        (
            "openai",
            "",
            json!({ "messages": [{ "role": "assistant", "tool_calls": [{ "id": long, "function": { "name": "a" } }] }] }),
        ),
        (
            "openai",
            "",
            json!({ "messages": [{ "role": "assistant", "tool_calls": [{ "id": "a", "function": { "name": "a" } }] }, user] }),
        ),
        (
            "openai",
            "",
            json!({ "messages": [{ "role": "tool", "tool_call_id": "a" }] }),
        ),
        (
            "openai",
            "",
            json!({ "messages": [{ "role": "assistant", "tool_calls": [{ "id": "a", "function": { "name": "a" } }] }, { "role": "tool", "tool_call_id": "a", "content": [{ "type": "image_url" }] }] }),
        ),
        ("openai", "", json!({ "stop": ["a", "b", "c", "d", "e"] })),
        (
            "openai",
            "",
            json!({ "model": "gpt-5", "temperature": 0.5 }),
        ),
        ("openai", "", json!({ "model": "gpt-5", "top_p": 0.5 })),
        ("openai", "", json!({ "model": "gpt-5", "max_tokens": 5 })),
        (
            "openai",
            "",
            json!({ "response_format": { "type": "json_object" } }),
        ),
        ("openai", "", json!({ "tool_choice": "none" })),
        ("openai", "", json!({ "user": long })),
        ("openai", "", json!({ "metadata": {} })),
        (
            RESPONSES,
            "",
            json!({ "tools": [{ "type": "function", "name": "a.b", "parameters": { "type": "object", "properties": {} } }] }),
        ),
        (
            RESPONSES,
            "",
            json!({ "tools": [{ "type": "function", "name": "a", "parameters": {} }] }),
        ),
        (
            RESPONSES,
            "",
            json!({ "text": { "format": { "name": "a", "strict": true, "schema": open } } }),
        ),
        (
            RESPONSES,
            "",
            json!({ "text": { "format": { "name": "a b" } } }),
        ),
        (RESPONSES, "", json!({ "input": [{ "call_id": long }] })),
        (
            RESPONSES,
            "",
            json!({ "input": [{ "type": "function_call_output", "call_id": "a" }] }),
        ),
        (
            RESPONSES,
            "",
            json!({ "input": [{ "type": "function_call", "call_id": "a", "name": "a" }] }),
        ),
        (
            RESPONSES,
            "",
            json!({ "text": { "format": { "type": "json_object" } } }),
        ),
        (RESPONSES, "", json!({ "stop": ["a"] })),
        (RESPONSES, "", json!({ "max_output_tokens": 5 })),
        (
            RESPONSES,
            "",
            json!({ "model": "gpt-5", "temperature": 0.5 }),
        ),
        (RESPONSES, "", json!({ "user": long })),
        ("gemini", "", json!({ "contents": [] })),
        ("gemini", "", json!({ "contents": [{ "parts": [] }] })),
        (
            "gemini",
            "",
            json!({ "contents": [{ "parts": [{ "text": "a" }] }], "tools": [{ "functionDeclarations": [{ "name": "7a" }] }] }),
        ),
        (
            "gemini",
            "",
            json!({ "contents": [{ "role": "user", "parts": [{ "text": "a" }] }, { "role": "model", "parts": [{ "functionCall": { "name": "a", "args": "x" } }] }] }),
        ),
        (
            "gemini",
            "",
            json!({ "contents": [{ "role": "user", "parts": [{ "text": "a" }] }, { "role": "model", "parts": [{ "functionCall": { "name": "a", "args": {} } }] }] }),
        ),
        (
            "gemini",
            "",
            json!({ "contents": [{ "role": "model", "parts": [{ "functionCall": { "name": "a", "args": {} } }] }, { "role": "user", "parts": [{ "functionResponse": { "name": "a" } }] }] }),
        ),
        (
            "gemini",
            "",
            json!({ "contents": [{ "role": "user", "parts": [{ "text": "a" }] }, { "role": "model", "parts": [{ "functionCall": { "name": "a", "args": {} } }] }, { "role": "user", "parts": [{ "text": "b" }, { "functionResponse": { "name": "a" } }] }] }),
        ),
        (
            "gemini",
            "/models/gemini-3-pro:generateContent",
            json!({ "contents": [{ "role": "user", "parts": [{ "text": "a" }] }, { "role": "model", "parts": [{ "functionCall": { "name": "a", "args": {} } }] }, { "role": "user", "parts": [{ "functionResponse": { "name": "a" } }] }] }),
        ),
        (
            "gemini",
            "",
            json!({ "contents": [{ "parts": [{ "text": "a" }] }], "generationConfig": { "stopSequences": ["a", "b", "c", "d", "e", "f"] } }),
        ),
        (
            "gemini",
            "/models/gemini-2.5-pro:generateContent",
            json!({ "contents": [{ "parts": [{ "text": "a" }] }], "generationConfig": { "thinkingConfig": { "thinkingBudget": 0 } } }),
        ),
        (
            "gemini",
            "/models/gemini-2.5-flash:generateContent",
            json!({ "contents": [{ "parts": [{ "text": "a" }] }], "generationConfig": { "thinkingConfig": { "thinkingBudget": 99_999 } } }),
        ),
        (
            "gemini",
            "/models/gemini-3-pro:generateContent",
            json!({ "contents": [{ "parts": [{ "text": "a" }] }], "generationConfig": { "thinkingConfig": { "thinkingLevel": "minimal" } } }),
        ),
        (
            "gemini",
            "/models/gemini-2.5-pro:generateContent",
            json!({ "contents": [{ "parts": [{ "text": "a" }] }], "tools": [{ "functionDeclarations": [{ "name": "a" }] }], "generationConfig": { "responseMimeType": "application/json" } }),
        ),
        (
            "ollama",
            "",
            json!({ "messages": [{ "content": "", "tool_calls": [{ "function": { "arguments": "x" } }] }] }),
        ),
        ("ollama", "", json!({ "messages": [{ "content": [] }] })),
        ("ollama", "", json!({ "think": "high" })),
        ("ollama", "", json!({ "model": "llama3", "think": true })),
        (
            "ollama",
            "",
            json!({ "messages": [{ "content": "", "images": ["https://a"] }] }),
        ),
    ];
    let headers = [("anthropic-beta".to_owned(), "x".to_owned())];
    let vertex = json!({ "anthropic_version": "vertex-2023-10-16", "messages": [user] });
    let mut refused: BTreeSet<(String, &str)> = broken
        .iter()
        .map(|(api, path, body)| {
            let refusal = strict::refusal(api, path, &[], body);
            let refusal = refusal.unwrap_or_else(|| panic!("{api} takes {body}"));
            ((*api).to_owned(), refusal.rule)
        })
        .collect();
    let beta = strict::refusal("anthropic", "", &headers, &vertex).expect("an unknown beta");
    refused.insert(("anthropic".to_owned(), beta.rule));
    let empty_mark = json!({ "messages": [{ "role": "user", "content": [{ "type": "text", "text": "", "cache_control": {} }] }] });
    assert!(strict::refusal("anthropic", "", &[], &empty_mark).is_some());
    let mut unproved = Vec::new();
    let mut rules = 0;
    for api in apis() {
        for rule in strict::rules(&api) {
            rules += 1;
            assert!(!rule.source.is_empty());
            // A text with a mark that is empty breaks the rule of blank texts first.
            if !refused.contains(&(api.clone(), rule.name)) && rule.name != "marks of empty texts" {
                unproved.push(format!("{api}: {}", rule.name));
            }
        }
    }
    assert_eq!(unproved, [""; 0]);
    assert!(rules >= 80, "{rules}");
}
