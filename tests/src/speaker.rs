//! Clients of each dialect, for comparisons of their responses.

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
    /// The end.
    pub end: End,
    /// Tokens of input and output.
    pub used: (u64, u64),
}

impl Speaker {
    /// All dialects.
    pub const ALL: [Self; 3] = [Self::Chat, Self::Messages, Self::Responses];

    /// The request path.
    pub fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Messages => "/v1/messages",
            Self::Responses => "/v1/responses",
        }
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
        }
    }

    /// Sends the request, and reads the complete response.
    pub async fn ask(self, client: &Client, model: &str) -> Told {
        let question = self.question(model, "Hello", false);
        let answer = client.post(self.path(), &question).await;
        assert_eq!(answer.status, 200, "{self:?}: {}", answer.text());
        self.read(&answer.json())
    }

    /// Requests a stream, and reads all of it. Returns its error, if it ends with one.
    pub async fn ask_streamed(self, client: &Client, model: &str) -> Result<Told, Value> {
        let question = self.question(model, "Hello", true);
        let stream = client.stream(self.path(), &question).await;
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
        let data = last.strip_prefix("event: error\ndata: ")?;
        let error: Value = serde_json::from_str(data).expect("JSON");
        Some(error["error"].clone())
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
        }
    }

    /// Reads a complete stream.
    pub fn read_stream(self, events: &[String]) -> Told {
        match self {
            Self::Chat => read_chat_stream(&chunks(events)),
            Self::Messages => read_messages_stream(events),
            Self::Responses => read_responses_stream(events),
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
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
        for more in delta["tool_calls"].as_array().into_iter().flatten() {
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
            Some("text") => told.text.push_str(&text(&block["text"])),
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
