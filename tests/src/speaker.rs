//! Clients of each dialect, for comparisons of their responses.

use http::Method;
use serde_json::{Value, json};

use crate::client::{Answer, Client, chunks};

/// A client dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    /// OpenAI's Chat Completions.
    Chat,
    /// Anthropic's Messages.
    Messages,
    /// OpenAI's Responses.
    Responses,
    /// Google's `generateContent`.
    Gemini,
}

/// The end of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum End {
    /// Complete.
    #[default]
    Stop,
    /// With tool calls.
    Tools,
    /// At the token limit.
    Length,
    /// Refused by the model or its provider.
    Declined,
}

/// A client's view of a response, independent of the dialect.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Told {
    /// The model's text.
    pub text: String,
    /// The visible reasoning.
    pub reasoning: String,
    /// The calls: name and arguments.
    pub calls: Vec<(String, Value)>,
    /// The addresses of the cited pages.
    pub citations: Vec<String>,
    /// The end.
    pub end: End,
    /// Tokens of input and output.
    pub used: (u64, u64),
    /// Tokens of the input from the provider's cache.
    pub cached: u64,
}

impl Speaker {
    /// All dialects.
    pub const ALL: [Self; 4] = [Self::Chat, Self::Messages, Self::Responses, Self::Gemini];

    /// The path of a request to a model.
    pub fn path(self, model: &str, stream: bool) -> String {
        let path = match self {
            Self::Chat => "/v1/chat/completions",
            Self::Messages => "/v1/messages",
            Self::Responses => "/v1/responses",
            Self::Gemini if stream => {
                return format!("/v1beta/models/{model}:streamGenerateContent?alt=sse");
            }
            Self::Gemini => return format!("/v1beta/models/{model}:generateContent"),
        };
        path.to_owned()
    }

    /// A request to a model with the tool `look`.
    pub fn question(self, model: &str, text: &str, stream: bool) -> Value {
        let schema = json!({ "type": "object", "properties": { "at": { "type": "integer" } } });
        let message = json!({ "role": "user", "content": text });
        match self {
            Self::Chat => json!({
                "model": model, "messages": [message], "stream": stream,
                "tools": [{ "type": "function", "function": { "name": "look", "parameters": schema } }],
            }),
            Self::Messages => json!({
                "model": model, "messages": [message], "stream": stream, "max_tokens": 100,
                "tools": [{ "name": "look", "input_schema": schema }],
            }),
            Self::Responses => json!({
                "model": model, "input": [message], "stream": stream,
                "tools": [{ "type": "function", "name": "look", "parameters": schema }],
            }),
            Self::Gemini => json!({
                "contents": [{ "role": "user", "parts": [{ "text": text }] }],
                "tools": [{ "functionDeclarations": [{ "name": "look", "parametersJsonSchema": schema }] }],
            }),
        }
    }

    /// A short request to the model `scripted`, with these fields besides or instead.
    pub fn with(self, fields: &Value) -> Value {
        let mut body = match self {
            Self::Responses => {
                json!({ "model": "scripted", "max_output_tokens": 2048, "input": "x" })
            }
            Self::Gemini => json!({
                "contents": [{ "parts": [{ "text": "x" }] }], "generationConfig": { "maxOutputTokens": 2048 },
            }),
            Self::Chat | Self::Messages => json!({
                "model": "scripted", "max_tokens": 2048, "messages": [{ "role": "user", "content": "x" }],
            }),
        };
        for (name, value) in fields.as_object().expect("an object") {
            body[name] = value.clone();
        }
        body
    }

    /// Sends the request, and reads the complete response.
    pub async fn ask(self, client: &Client, model: &str) -> Told {
        let question = self.question(model, "Hello", false);
        let answer = client.post(&self.path(model, false), &question).await;
        assert_eq!(answer.status, 200, "{self:?}: {}", answer.text());
        self.read(&answer.json())
    }

    /// Requests a stream, and reads all of it. Returns its error, if it ends with one.
    pub async fn ask_streamed(self, client: &Client, model: &str) -> Result<Told, Value> {
        let question = self.question(model, "Hello", true);
        let path = self.path(model, true);
        let stream = client.follow(Method::POST, &path, &question).await;
        assert_eq!(stream.status, 200, "{self:?}");
        let events = stream.rest().await;
        match self.error_event(&events) {
            Some(error) => Err(error),
            None => Ok(self.read_stream(&events)),
        }
    }

    /// Returns the error object, as the dialect's SDK finds it.
    pub fn error(self, answer: &Answer) -> Value {
        answer.json()["error"].clone()
    }

    /// Returns weir's code in an error object.
    pub fn code(self, error: &Value) -> &str {
        let code = match self {
            Self::Gemini => &error["details"][0]["reason"],
            _ => &error["weir_code"],
        };
        code.as_str().expect("a code")
    }

    /// Returns the dialect's status for a status.
    pub fn status(self, status: u16) -> u16 {
        match (self, status) {
            (Self::Messages, 503) => 529,
            _ => status,
        }
    }

    /// Returns the error of a stream that has begun.
    pub fn error_event(self, events: &[String]) -> Option<Value> {
        let mut last = events.last()?;
        if self == Self::Responses && last.starts_with("event: response.failed\n") {
            last = &events[events.len() - 2];
        }
        let mark = match self {
            Self::Gemini => "data: ",
            _ => "event: error\ndata: ",
        };
        let error: Value = serde_json::from_str(last.strip_prefix(mark)?).expect("JSON");
        error.get("error").cloned()
    }

    /// Reads a response.
    pub fn read(self, answer: &Value) -> Told {
        match self {
            Self::Chat => {
                let choice = &answer["choices"][0];
                let calls = choice["message"]["tool_calls"].as_array();
                told_in_chat(
                    &choice["message"],
                    calls.cloned().unwrap_or_default(),
                    &choice["finish_reason"],
                    &answer["usage"],
                )
            }
            Self::Messages => told_in_messages(
                answer["content"].as_array().expect("blocks"),
                &answer["stop_reason"],
                &answer["usage"],
            ),
            Self::Responses => told_in_responses(answer),
            Self::Gemini => told_in_gemini(std::slice::from_ref(answer)),
        }
    }

    /// Reads a complete stream.
    pub fn read_stream(self, events: &[String]) -> Told {
        match self {
            Self::Chat => read_chat_stream(&chunks(events)),
            Self::Messages => read_messages_stream(events),
            Self::Responses => read_responses_stream(events),
            Self::Gemini => told_in_gemini(&chunks(events)),
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Returns the arguments of a call, and checks its id.
fn call(seen: &mut Vec<String>, id: &Value, name: &Value, arguments: Value) -> (String, Value) {
    let id = text(id);
    assert!(!id.is_empty() && !seen.contains(&id), "{id:?} of {seen:?}");
    seen.push(id);
    (text(name), arguments)
}

fn told_in_chat(message: &Value, calls: Vec<Value>, finish: &Value, usage: &Value) -> Told {
    let mut seen = Vec::new();
    let calls = calls.iter().map(|called| {
        let function = &called["function"];
        let arguments = serde_json::from_str(&text(&function["arguments"])).expect("JSON");
        call(&mut seen, &called["id"], &function["name"], arguments)
    });
    let calls = calls.collect();
    Told {
        text: text(&message["content"]),
        reasoning: text(&message["reasoning_content"]),
        calls,
        citations: list(&message["annotations"])
            .map(|annotation| text(&annotation["url_citation"]["url"]))
            .collect(),
        end: match finish.as_str() {
            Some("stop") if message["refusal"].is_string() => End::Declined,
            Some("stop") => End::Stop,
            Some("tool_calls") => End::Tools,
            Some("length") => End::Length,
            Some("content_filter") => End::Declined,
            other => panic!("{other:?}"),
        },
        used: (
            number(&usage["prompt_tokens"]),
            number(&usage["completion_tokens"]),
        ),
        cached: number(&usage["prompt_tokens_details"]["cached_tokens"]),
    }
}

fn read_chat_stream(chunks: &[Value]) -> Told {
    let (mut message, mut calls, mut finish) = (json!({}), Vec::<Value>::new(), Value::Null);
    let append = |to: &mut Value, more: &Value| {
        if let Some(more) = more.as_str() {
            *to = (text(to) + more).into();
        }
    };
    for chunk in chunks {
        let choice = &chunk["choices"][0];
        let delta = &choice["delta"];
        for field in ["content", "reasoning_content", "refusal"] {
            if delta[field].is_string() {
                append(&mut message[field], &delta[field]);
            }
        }
        if let Some(more) = delta["annotations"].as_array() {
            let mut annotations: Vec<_> = list(&message["annotations"]).cloned().collect();
            annotations.extend_from_slice(more);
            message["annotations"] = annotations.into();
        }
        for more in list(&delta["tool_calls"]) {
            let index = usize::try_from(number(&more["index"])).expect("an index");
            if calls.len() <= index {
                calls.resize(index + 1, json!({ "function": {} }));
            }
            append(&mut calls[index]["id"], &more["id"]);
            for field in ["name", "arguments"] {
                append(
                    &mut calls[index]["function"][field],
                    &more["function"][field],
                );
            }
        }
        if choice["finish_reason"].is_string() {
            finish = choice["finish_reason"].clone();
        }
    }
    let usage = &chunks.last().expect("chunks")["usage"];
    told_in_chat(&message, calls, &finish, usage)
}

fn told_in_messages(blocks: &[Value], stop: &Value, usage: &Value) -> Told {
    let (mut told, mut seen) = (Told::default(), Vec::new());
    for block in blocks {
        match block["type"].as_str() {
            Some("text") => {
                told.text.push_str(&text(&block["text"]));
                let citations = list(&block["citations"]);
                told.citations.extend(
                    citations
                        .map(|citation| text(citation.get("url").unwrap_or(&citation["source"]))),
                );
            }
            Some("thinking") => told.reasoning.push_str(&text(&block["thinking"])),
            Some("tool_use") => told.calls.push(call(
                &mut seen,
                &block["id"],
                &block["name"],
                block["input"].clone(),
            )),
            other => panic!("{other:?}"),
        }
    }
    told.end = match stop.as_str() {
        Some("end_turn") => End::Stop,
        Some("tool_use") => End::Tools,
        Some("max_tokens") => End::Length,
        Some("refusal") => End::Declined,
        other => panic!("{other:?}"),
    };
    let input = [
        "input_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
    ];
    told.used = (
        input.map(|field| number(&usage[field])).iter().sum(),
        number(&usage["output_tokens"]),
    );
    told.cached = number(&usage["cache_read_input_tokens"]);
    told
}

fn read_messages_stream(events: &[String]) -> Told {
    let (mut blocks, mut stop, mut usage) = (Vec::<Value>::new(), Value::Null, json!({}));
    let mut inputs = Vec::<String>::new();
    for event in events {
        let Some((_, data)) = event.split_once("data: ") else {
            continue;
        };
        let data: Value = serde_json::from_str(data).expect("JSON");
        let index = usize::try_from(number(&data["index"])).expect("an index");
        let delta = &data["delta"];
        match data["type"].as_str() {
            Some("content_block_start") => {
                blocks.push(data["content_block"].clone());
                inputs.push(String::new());
            }
            Some("content_block_delta") => {
                for field in ["text", "thinking"] {
                    if let Some(more) = delta[field].as_str() {
                        blocks[index][field] = (text(&blocks[index][field]) + more).into();
                    }
                }
                if delta["citation"].is_object() {
                    let citations = &mut blocks[index]["citations"];
                    let known = list(citations).chain([&delta["citation"]]);
                    *citations = known.cloned().collect();
                }
                inputs[index].push_str(&text(&delta["partial_json"]));
            }
            Some("message_delta") => {
                stop = delta["stop_reason"].clone();
                usage = data["usage"].clone();
            }
            _ => {}
        }
    }
    for (block, input) in blocks.iter_mut().zip(inputs) {
        if !input.is_empty() {
            block["input"] = serde_json::from_str(&input).expect("JSON");
        }
    }
    told_in_messages(&blocks, &stop, &usage)
}

fn told_in_responses(answer: &Value) -> Told {
    let (mut told, mut seen, mut has_refused) = (Told::default(), Vec::new(), false);
    for item in answer["output"].as_array().expect("items") {
        match item["type"].as_str() {
            Some("message") => {
                for part in item["content"].as_array().expect("parts") {
                    told.text.push_str(&text(&part["text"]));
                    has_refused |= part["type"] == "refusal";
                    let annotations = list(&part["annotations"]);
                    told.citations
                        .extend(annotations.map(|annotation| text(&annotation["url"])));
                }
            }
            Some("reasoning") => {
                for part in item["summary"].as_array().expect("parts") {
                    told.reasoning.push_str(&text(&part["text"]));
                }
            }
            Some("function_call") => {
                let arguments = serde_json::from_str(&text(&item["arguments"])).expect("JSON");
                told.calls
                    .push(call(&mut seen, &item["call_id"], &item["name"], arguments));
            }
            other => panic!("{other:?}"),
        }
    }
    let why = answer["incomplete_details"]["reason"].as_str();
    told.end = match (answer["status"].as_str(), why) {
        (Some("completed"), None) if has_refused => End::Declined,
        (Some("completed"), None) if !told.calls.is_empty() => End::Tools,
        (Some("completed"), None) => End::Stop,
        (Some("incomplete"), Some("max_output_tokens")) => End::Length,
        (Some("incomplete"), Some("content_filter")) => End::Declined,
        other => panic!("{other:?}"),
    };
    let usage = &answer["usage"];
    told.used = (
        number(&usage["input_tokens"]),
        number(&usage["output_tokens"]),
    );
    told.cached = number(&usage["input_tokens_details"]["cached_tokens"]);
    told
}

/// Reads each item in its final form, which must equal the sum of its pieces, and the end of the response.
fn read_responses_stream(events: &[String]) -> Told {
    let (mut items, mut pieces) = (Vec::new(), String::new());
    let mut answer = Value::Null;
    for event in events {
        let Some((_, data)) = event.split_once("data: ") else {
            continue;
        };
        let data: Value = serde_json::from_str(data).expect("JSON");
        pieces.push_str(&text(&data["delta"]));
        if data["type"] == "response.output_item.done" {
            items.push(data["item"].clone());
        }
        answer = data["response"].clone();
    }
    let whole: String = items
        .iter()
        .flat_map(|item| {
            let parts = [&item["content"], &item["summary"]].map(Value::as_array);
            let parts = parts.into_iter().flatten().flatten();
            let texts = parts.map(|part| text(&part["text"]) + &text(&part["refusal"]));
            texts.chain([text(&item["arguments"])]).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(pieces, whole);
    answer["output"] = items.into();
    told_in_responses(&answer)
}

/// Reads a response, or the chunks of a stream.
fn told_in_gemini(chunks: &[Value]) -> Told {
    let (mut told, mut seen, mut finish) = (Told::default(), Vec::new(), None);
    for candidate in chunks.iter().map(|chunk| &chunk["candidates"][0]) {
        for part in list(&candidate["content"]["parts"]) {
            let called = &part["functionCall"];
            if called.is_object() {
                let arguments = called["args"].clone();
                told.calls
                    .push(call(&mut seen, &called["id"], &called["name"], arguments));
            }
            match part["thought"] == true {
                true => told.reasoning.push_str(&text(&part["text"])),
                false => told.text.push_str(&text(&part["text"])),
            }
        }
        let sources = list(&candidate["groundingMetadata"]["groundingChunks"]);
        told.citations
            .extend(sources.map(|source| text(&source["web"]["uri"])));
        finish = candidate["finishReason"].as_str().or(finish);
    }
    told.end = match finish {
        Some("STOP") if !told.calls.is_empty() => End::Tools,
        Some("STOP") => End::Stop,
        Some("MAX_TOKENS") => End::Length,
        Some("SAFETY") => End::Declined,
        other => panic!("{other:?}"),
    };
    let usage = &chunks.last().expect("chunks")["usageMetadata"];
    let output = ["candidatesTokenCount", "thoughtsTokenCount"];
    told.used = (
        number(&usage["promptTokenCount"]),
        output.map(|field| number(&usage[field])).iter().sum(),
    );
    told.cached = number(&usage["cachedContentTokenCount"]);
    told
}
