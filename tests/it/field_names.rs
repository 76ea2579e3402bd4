//! weir rejects field names that differ only in case from a field of weir or of an adapter: servers in Go would read both
//! names as the same field.

use serde_json::{Value, json};
use tests::ledger::random::Random;
use tests::{Gateway, Reply, Upstream};
use weir_dialects::ADAPTERS_OWN;

/// Objects of the requests below with names of the client's choice: maps, schemas and arguments.
const FREE: [&str; 9] = [
    "/metadata",
    "/tools/0/function/parameters",
    "/tools/0/parameters",
    "/tools/0/input_schema",
    "/response_format/json_schema/schema",
    "/messages/1/content/0/input",
    "/tools/0/functionDeclarations/0/parameters",
    "/contents/1/parts/0/functionCall/args",
    "/contents/2/parts/0/functionResponse/response",
];

/// A request of each dialect, with as many kinds of objects as one request can have.
fn requests() -> [(&'static str, Value); 9] {
    let schema = json!({ "type": "object", "properties": { "Model": { "type": "string" } } });
    let chat = json!({
        "model": "scripted", "max_tokens": 50, "temperature": 1, "stop": ["x"], "n": 1, "stream": false,
        "stream_options": { "include_usage": true }, "reasoning_effort": "low", "seed": 1,
        "metadata": { "Max_Tokens": "1", "MODEL": "x" },
        "tools": [{ "type": "function", "function": { "name": "f", "parameters": schema } }],
        "tool_choice": { "type": "function", "function": { "name": "f" } },
        "response_format": { "type": "json_schema", "json_schema": { "name": "s", "schema": schema } },
        "messages": [
            { "role": "user", "content": [{ "type": "text", "text": "Hi" }] },
            { "role": "assistant", "tool_calls": [{ "id": "c", "type": "function",
                "function": { "name": "f", "arguments": "{\"MODEL\": 1}" } }] },
            { "role": "tool", "tool_call_id": "c", "content": "done" },
        ],
    });
    let messages = json!({
        "model": "scripted", "max_tokens": 2000, "stop_sequences": ["x"], "stream": false,
        "thinking": { "type": "enabled", "budget_tokens": 1024 }, "metadata": { "user_id": "u" },
        "system": [{ "type": "text", "text": "Be brief." }],
        "tools": [{ "name": "f", "description": "d", "input_schema": schema }],
        "tool_choice": { "type": "auto" },
        "messages": [
            { "role": "user", "content": [{ "type": "text", "text": "Hi" }] },
            { "role": "assistant", "content": [{ "type": "tool_use", "id": "c", "name": "f", "input": { "MODEL": 1 } }] },
            { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "c", "content": "done" }] },
        ],
    });
    let responses = json!({
        "model": "scripted", "max_output_tokens": 50, "stream": false, "store": false, "instructions": "Be brief.",
        "reasoning": { "effort": "low" }, "text": { "verbosity": "low" },
        "metadata": { "Max_Output_Tokens": "1" },
        "tools": [{ "type": "function", "name": "f", "parameters": schema }],
        "input": [
            { "role": "user", "content": [{ "type": "input_text", "text": "Hi" }] },
            { "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}" },
            { "type": "function_call_output", "call_id": "c", "output": "done" },
        ],
    });
    let generate = json!({
        "model": "scripted",
        "generationConfig": { "maxOutputTokens": 50, "temperature": 1, "thinkingConfig": { "thinkingLevel": "LOW" } },
        "tools": [{ "functionDeclarations": [{ "name": "f", "description": "d", "parameters": schema }] }],
        "toolConfig": { "functionCallingConfig": { "mode": "AUTO" } },
        "contents": [
            { "role": "user", "parts": [{ "text": "Hi" }] },
            { "role": "model", "parts": [{ "functionCall": { "id": "c", "name": "f", "args": { "MODEL": 1 } } }] },
            { "role": "user", "parts": [{ "functionResponse": { "id": "c", "name": "f", "response": { "output": "done" } } }] },
        ],
    });
    let images = json!({ "model": "demo-image", "prompt": "A weir.", "n": 1, "size": "1024x1024", "stream": false });
    [
        ("/v1/chat/completions", chat),
        ("/v1/messages", messages),
        ("/v1/responses", responses),
        ("/v1beta/models/scripted:generateContent", generate),
        ("/v1/images/generations", images),
        (
            "/v1/embeddings",
            json!({ "model": "demo-embedding", "input": "A weir.", "dimensions": 8, "encoding_format": "float" }),
        ),
        (
            "/v1/rerank",
            json!({ "model": "demo-rerank", "query": "weir", "documents": ["A weir."], "top_n": 1 }),
        ),
        (
            "/v1/moderations",
            json!({ "model": "demo-moderation", "input": "A weir." }),
        ),
        (
            "/v1/audio/speech",
            json!({ "model": "demo-speech", "input": "A weir.", "voice": "alloy", "response_format": "wav" }),
        ),
    ]
}

/// The objects of a request as JSON pointers, except the objects of [`FREE`].
fn objects(value: &Value, at: &str, found: &mut Vec<String>) {
    if FREE.contains(&at) {
        return;
    }
    match value {
        Value::Object(fields) => {
            found.push(at.to_owned());
            for (name, value) in fields {
                objects(value, &format!("{at}/{name}"), found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                objects(item, &format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
}

/// The name with some letters in capitals, or in characters that Go folds to the same letters.
fn other_case(name: &str, random: &mut Random) -> String {
    loop {
        let varied: String = name
            .chars()
            .map(|letter| match (letter, random.below(4)) {
                ('s', 0) => '\u{17f}',
                ('k', 0) => '\u{212a}',
                (letter, 1) => letter.to_ascii_uppercase(),
                (letter, _) => letter,
            })
            .collect();
        if varied != name {
            return varied;
        }
    }
}

/// The path of a field in an error. Errors repeat ASCII only.
fn path(object: &str, name: &str) -> String {
    let name = if name.is_ascii() { name } else { "…" };
    let mut path = String::new();
    for step in object.split('/').skip(1) {
        match step.parse::<usize>() {
            Ok(index) => path.push_str(&format!("[{index}]")),
            Err(_) if path.is_empty() => path.push_str(step),
            Err(_) => path.push_str(&format!(".{step}")),
        }
    }
    match path.is_empty() {
        true => name.to_owned(),
        false => format!("{path}.{name}"),
    }
}

#[tokio::test]
async fn a_name_that_differs_in_case_from_a_field_of_weirs_is_refused_wherever_it_stands() {
    let upstream = Upstream::start().await;
    upstream.always(Reply::chat("{}"));
    let gateway = Gateway::with_upstream(&upstream).await;
    let client = gateway.client();
    let seed = rand_seed();
    let mut random = Random::new(seed);
    for (endpoint, request) in requests() {
        // weir does not compare names of the client's choice.
        let served = client.post(endpoint, &request).await;
        assert_eq!(served.status, 200, "{endpoint}: {}", served.text());
        let count = upstream.count();
        let mut all = Vec::new();
        objects(&request, "", &mut all);
        let is_nested = ["images", "embeddings", "rerank", "moderations", "audio"]
            .iter()
            .all(|flat| !endpoint.contains(flat));
        assert!(!is_nested || all.len() >= 8, "{all:?}");
        for object in &all {
            let fields = request.pointer(object).and_then(Value::as_object);
            let mut names: Vec<_> = fields.into_iter().flatten().collect();
            let owned = json!(1);
            let of_adapters = ADAPTERS_OWN.map(str::to_owned);
            if object.is_empty() {
                names.extend(of_adapters.iter().map(|name| (name, &owned)));
            }
            for (name, value) in names {
                for _ in 0..3 {
                    let varied = other_case(name, &mut random);
                    let mut attempt = request.clone();
                    let target = attempt.pointer_mut(object).and_then(Value::as_object_mut);
                    let target = target.expect("an object");
                    target.insert(varied.clone(), value.clone());
                    let answer = client.post(endpoint, &attempt).await;
                    let expected = path(object, &varied);
                    assert_eq!(answer.status, 400, "{endpoint} {expected}, seed {seed}");
                    let error = answer.json()["error"].clone();
                    let text = error["message"].as_str().unwrap_or_default();
                    assert!(
                        text.starts_with(&format!("{expected} ")),
                        "{endpoint} {expected}: {error}, seed {seed}"
                    );
                    if let Some(param) = error.get("param") {
                        assert_eq!(param, &json!(expected), "{endpoint}, seed {seed}");
                    }
                }
            }
        }
        assert_eq!(upstream.count(), count, "{endpoint}: nobody was asked");
    }
}

/// A new seed for each run; a failure prints it.
fn rand_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("after 1970").as_nanos() as u64
}

#[tokio::test]
async fn the_other_spelling_of_a_limit_is_refused_by_its_name() {
    let gateway = Gateway::start().await;
    for (name, value) in [
        ("Max_Tokens", json!(1_000_000)),
        ("MODEL", json!("another")),
        ("Stream", json!(null)),
        ("max_to\u{212a}en\u{17f}", json!(1_000_000)),
    ] {
        let mut request = tests::chat("demo", "x");
        request[name] = value;
        let answer = gateway.client().post("/chat", &request).await;
        let error = answer.error(400, "INVALID_REQUEST");
        assert_eq!(error["param"], path("", name), "{error}");
    }
    // The adapter decides about an unknown name.
    let mut request = tests::chat("demo", "x");
    request["Frobnicate"] = json!(1);
    let answer = gateway.client().post("/chat", &request).await;
    answer.error(400, "UNSUPPORTED_PARAMETER");
}
