//! One exchange, scripted for each provider's API: a client gets the same response through every adapter.

use serde_json::{Value, json};
use weir_sdk::aws::MessageStream;
use weir_sdk::testing::aws_message;

use crate::gateway::{Builder, Gateway};
use crate::source::provider_adapters;
use crate::upstream::{Reply, Upstream};

/// A model's behaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scenario {
    /// Says `Hello there`.
    Text,
    /// Calls `look` with `{"at": 1}`.
    Tool,
    /// Says `Two`, and calls `look` with `{"at": 1}` and without arguments.
    ParallelTools,
    /// Thinks `Hm.`, and says `So`.
    Reasoning,
    /// Refuses.
    Refusal,
    /// Says `So`, and reaches the token limit.
    Length,
    /// Says `{"answer": 42}`.
    Structured,
    /// Says `So`, and cites [`SOURCE`].
    Cited,
    /// Says `So`; the provider's cache has [`CACHED`] tokens of the input.
    Cached,
    /// Says `So`, and fails; only in a stream.
    ErrorInside,
}

/// Tokens of every exchange's input and output.
pub const USED: (u64, u64) = (12, 7);

/// The page that a model cites.
pub const SOURCE: &str = "https://a.example/";

/// Tokens of the input from the provider's cache in [`Scenario::Cached`].
pub const CACHED: u64 = 3;

/// The adapter `openai` with the option `api = "responses"`.
pub const RESPONSES: &str = "openai-responses";

/// Returns each adapter that calls a provider, and the other API of `openai`.
pub fn apis() -> Vec<String> {
    let mut names = provider_adapters();
    names.push(RESPONSES.to_owned());
    names
}

/// Adds a provider with one of the [`apis`].
pub fn provider(builder: Builder, name: &str, api: &str, upstream: &Upstream) -> Builder {
    match api {
        RESPONSES => {
            let options = format!("[providers.{name}.options]\napi = \"responses\"\n");
            let builder = builder.provider(name, "openai", Some(upstream));
            builder.tables(&options)
        }
        adapter => builder.provider(name, adapter, Some(upstream)),
    }
}

/// Starts a gateway with the model `scripted`, which this upstream serves by one of the [`apis`], with a price of searches.
pub async fn gateway_with(api: &str, upstream: &Upstream) -> Gateway {
    gateway_of(api, upstream, "scripted", "").await
}

/// The same with the provider's name of the model, and with more settings of it.
pub async fn gateway_of(api: &str, upstream: &Upstream, model: &str, settings: &str) -> Gateway {
    let catalog = format!(
        "[models.scripted]\ncontext_window = 8000000\nmax_output_tokens = 4000000\n\
         default_output_tokens = 1000\nmax_image_tokens = 100\nsupports_tools = true\n\
         supports_vision = true\nupstreams = [{{ provider = \"scripted\", model = \"{model}\" }}]\n\
         price = {{ input = 1, output = 2, search = 0.01 }}\n{settings}\n"
    );
    let builder = provider(Gateway::builder(), "scripted", api, upstream);
    builder.tables(&catalog).start().await
}

/// A response with a schema.
const ANSWER: &str = "{\"answer\": 42}";

impl Scenario {
    /// All except the error.
    pub const WHOLE: [Self; 9] = [
        Self::Text,
        Self::Tool,
        Self::ParallelTools,
        Self::Reasoning,
        Self::Refusal,
        Self::Length,
        Self::Structured,
        Self::Cited,
        Self::Cached,
    ];

    /// Returns the upstream's response in the dialect of this adapter; `None` if its API does not support the
    /// scenario.
    pub fn reply(self, adapter: &str, stream: bool) -> Option<Reply> {
        let is_in_ollama = !matches!(self, Self::Refusal | Self::Cited | Self::Cached);
        if self == Self::ErrorInside && !stream || adapter == "ollama" && !is_in_ollama {
            return None;
        }
        Some(match (adapter, stream) {
            ("openai", false) => self.openai(),
            ("openai", true) => self.openai_stream(),
            (RESPONSES, false) => Reply::json(200, &self.response()),
            (RESPONSES, true) => self.responses_stream(),
            ("anthropic", false) => self.anthropic(),
            ("anthropic", true) => self.anthropic_stream(),
            ("gemini", _) => self.gemini(stream),
            ("ollama", _) => self.ollama(stream),
            ("bedrock", false) => self.bedrock(),
            ("bedrock", true) => self.bedrock_stream(),
            _ => panic!(
                "the adapter {adapter} has no scripted replies; add them to `Scenario` in tests/src/scenario.rs"
            ),
        })
    }

    /// Returns an object `response`, with the fields of openai-python 3.52.0's `types/responses/response.py`.
    fn response(self) -> Value {
        let says = |text: &str| json!({ "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": text, "annotations": [] }] });
        let call = |id: &str, arguments: &str| json!({ "type": "function_call", "call_id": id, "name": "look", "arguments": arguments });
        let output = match self {
            Self::Text => json!([says("Hello there")]),
            Self::Structured => json!([says(ANSWER)]),
            Self::Tool => json!([call("t1", "{\"at\": 1}")]),
            Self::ParallelTools => {
                json!([says("Two"), call("t1", "{\"at\": 1}"), call("t2", "{}")])
            }
            Self::Reasoning => json!([
                { "type": "reasoning", "summary": [{ "type": "summary_text", "text": "Hm." }] },
                says("So"),
            ]),
            Self::Refusal => {
                json!([{ "type": "message", "content": [{ "type": "refusal", "refusal": "No." }] }])
            }
            Self::Cited => {
                let mut said = says("So");
                said["content"][0]["annotations"] = json!([{
                    "type": "url_citation", "url": SOURCE, "title": "A", "start_index": 0, "end_index": 2,
                }]);
                json!([said])
            }
            Self::Length | Self::Cached | Self::ErrorInside => json!([says("So")]),
        };
        let (input, output_tokens) = USED;
        let (status, details) = match self {
            Self::Length => ("incomplete", json!({ "reason": "max_output_tokens" })),
            _ => ("completed", Value::Null),
        };
        json!({
            "id": "resp_1", "object": "response", "model": "m", "status": status, "incomplete_details": details,
            "error": null, "output": output,
            "usage": {
                "input_tokens": input, "output_tokens": output_tokens, "total_tokens": input + output_tokens,
                "input_tokens_details": { "cached_tokens": self.cached() },
            },
        })
    }

    /// Tokens from the provider's cache.
    fn cached(self) -> u64 {
        match self {
            Self::Cached => CACHED,
            _ => 0,
        }
    }

    fn openai_usage(self) -> Value {
        json!({
            "prompt_tokens": USED.0, "completion_tokens": USED.1,
            "prompt_tokens_details": { "cached_tokens": self.cached() },
        })
    }

    fn responses_stream(self) -> Reply {
        let response = self.response();
        let mut events = vec![
            json!({ "type": "response.created", "response": { "id": "resp_1", "model": "m", "output": [] } }),
        ];
        for (index, item) in response["output"]
            .as_array()
            .into_iter()
            .flatten()
            .enumerate()
        {
            let delta = |kind: &str, delta: &Value| {
                let field = if kind.contains("summary") {
                    "summary_index"
                } else {
                    "content_index"
                };
                json!({ "type": kind, "output_index": index, field: 0, "delta": delta })
            };
            events.push(json!({ "type": "response.output_item.added", "output_index": index, "item": item }));
            events.push(match item["type"].as_str() {
                Some("function_call") => {
                    delta("response.function_call_arguments.delta", &item["arguments"])
                }
                Some("reasoning") => delta(
                    "response.reasoning_summary_text.delta",
                    &item["summary"][0]["text"],
                ),
                _ if self == Self::Refusal => {
                    delta("response.refusal.delta", &item["content"][0]["refusal"])
                }
                _ => delta("response.output_text.delta", &item["content"][0]["text"]),
            });
            for annotation in item["content"][0]["annotations"]
                .as_array()
                .into_iter()
                .flatten()
            {
                events.push(json!({
                    "type": "response.output_text.annotation.added", "output_index": index, "content_index": 0,
                    "annotation_index": 0, "annotation": annotation,
                }));
            }
            if self != Self::ErrorInside {
                events.push(json!({ "type": "response.output_item.done", "output_index": index, "item": item }));
            }
        }
        events.push(match self {
            Self::ErrorInside => {
                json!({ "type": "error", "code": "server_error", "message": "It failed." })
            }
            _ => {
                let status = response["status"].as_str().expect("a status");
                json!({ "type": format!("response.{status}"), "response": response })
            }
        });
        Reply::events(events.iter().map(Value::to_string))
    }

    fn openai(self) -> Reply {
        let call = |id: &str, arguments: &str| json!({ "id": id, "type": "function", "function": { "name": "look", "arguments": arguments } });
        let (message, finish) = match self {
            Self::Text => (json!({ "content": "Hello there" }), "stop"),
            Self::Structured => (json!({ "content": ANSWER }), "stop"),
            Self::Tool => (
                json!({ "content": null, "tool_calls": [call("t1", "{\"at\": 1}")] }),
                "tool_calls",
            ),
            Self::ParallelTools => (
                json!({ "content": "Two", "tool_calls": [call("t1", "{\"at\": 1}"), call("t2", "{}")] }),
                "tool_calls",
            ),
            Self::Reasoning => (
                json!({ "reasoning_content": "Hm.", "content": "So" }),
                "stop",
            ),
            Self::Refusal => (json!({ "content": null, "refusal": "No." }), "stop"),
            Self::Length => (json!({ "content": "So" }), "length"),
            Self::Cited => (
                json!({ "content": "So", "annotations": [url_citation()] }),
                "stop",
            ),
            Self::Cached => (json!({ "content": "So" }), "stop"),
            Self::ErrorInside => unreachable!("only in a stream"),
        };
        let choice = json!({ "index": 0, "message": message, "finish_reason": finish });
        Reply::json(
            200,
            &json!({ "choices": [choice], "usage": self.openai_usage() }),
        )
    }

    fn openai_stream(self) -> Reply {
        let call = |index: usize, id: &str, arguments: &str| {
            json!({ "tool_calls": [{
                "index": index, "id": id, "type": "function", "function": { "name": "look", "arguments": arguments },
            }] })
        };
        let more = |index: usize, arguments: &str| json!({ "tool_calls": [{ "index": index, "function": { "arguments": arguments } }] });
        let said = |text: &str| json!({ "content": text });
        let (deltas, finish) = match self {
            Self::Text => (vec![said("Hello "), said("there")], "stop"),
            Self::Structured => (vec![said(ANSWER)], "stop"),
            Self::Tool => (
                vec![call(0, "t1", "{\"at\""), more(0, ": 1}")],
                "tool_calls",
            ),
            // Fragments of the first call arrive after the beginning of the second.
            Self::ParallelTools => (
                vec![
                    said("Two"),
                    call(0, "t1", "{\"at\""),
                    call(1, "t2", ""),
                    more(0, ": 1}"),
                    more(1, "{}"),
                ],
                "tool_calls",
            ),
            Self::Reasoning => (
                vec![json!({ "reasoning_content": "Hm." }), said("So")],
                "stop",
            ),
            Self::Refusal => (vec![json!({ "refusal": "No." })], "stop"),
            Self::Length => (vec![said("So")], "length"),
            Self::Cited => (
                vec![said("So"), json!({ "annotations": [url_citation()] })],
                "stop",
            ),
            Self::Cached => (vec![said("So")], "stop"),
            Self::ErrorInside => (vec![said("So")], ""),
        };
        let chunk = |delta: Value, finish: Option<&str>| {
            json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] })
                .to_string()
        };
        let mut events: Vec<_> = deltas.into_iter().map(|delta| chunk(delta, None)).collect();
        if self == Self::ErrorInside {
            events.push(
                json!({ "error": { "message": "broken", "type": "server_error" } }).to_string(),
            );
        } else {
            events.push(chunk(json!({}), Some(finish)));
            events.push(json!({ "choices": [], "usage": self.openai_usage() }).to_string());
            events.push("[DONE]".to_owned());
        }
        Reply::events(events)
    }

    fn anthropic_blocks(self) -> (Vec<Value>, &'static str) {
        let text = |text: &str| json!({ "type": "text", "text": text });
        let call = |id: &str, input: Value| json!({ "type": "tool_use", "id": id, "name": "look", "input": input });
        match self {
            Self::Text => (vec![text("Hello there")], "end_turn"),
            Self::Structured => (vec![text(ANSWER)], "end_turn"),
            Self::Tool => (vec![call("t1", json!({ "at": 1 }))], "tool_use"),
            Self::ParallelTools => (
                vec![
                    text("Two"),
                    call("t1", json!({ "at": 1 })),
                    call("t2", json!({})),
                ],
                "tool_use",
            ),
            Self::Reasoning => (
                vec![
                    json!({ "type": "thinking", "thinking": "Hm.", "signature": "c2ln" }),
                    text("So"),
                ],
                "end_turn",
            ),
            Self::Refusal => (Vec::new(), "refusal"),
            Self::Length => (vec![text("So")], "max_tokens"),
            Self::Cited => {
                let mut said = text("So");
                said["citations"] = json!([{
                    "type": "web_search_result_location", "url": SOURCE, "title": "A", "cited_text": "So it is.",
                    "encrypted_index": "aW5k",
                }]);
                (vec![said], "end_turn")
            }
            Self::Cached => (vec![text("So")], "end_turn"),
            Self::ErrorInside => (vec![text("So")], ""),
        }
    }

    fn anthropic(self) -> Reply {
        let (content, stop) = self.anthropic_blocks();
        Reply::json(
            200,
            &json!({
                "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content,
                "stop_reason": stop, "usage": self.anthropic_usage(USED.1),
            }),
        )
    }

    fn anthropic_usage(self, output: u64) -> Value {
        json!({
            "input_tokens": USED.0 - self.cached(), "cache_read_input_tokens": self.cached(), "output_tokens": output,
        })
    }

    fn anthropic_stream(self) -> Reply {
        let (blocks, stop) = self.anthropic_blocks();
        let mut events = vec![json!({ "type": "message_start", "message": {
            "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [],
            "usage": self.anthropic_usage(1),
        } })];
        for (index, mut block) in blocks.into_iter().enumerate() {
            let deltas = match block["type"].as_str() {
                Some("text") => {
                    let text =
                        json!({ "type": "text_delta", "text": std::mem::take(&mut block["text"]) });
                    let citations = std::mem::take(&mut block["citations"]);
                    let citations = citations.as_array().into_iter().flatten();
                    let cite =
                        |citation| json!({ "type": "citations_delta", "citation": citation });
                    [text].into_iter().chain(citations.map(cite)).collect()
                }
                Some("thinking") => vec![
                    json!({ "type": "thinking_delta", "thinking": std::mem::take(&mut block["thinking"]) }),
                    json!({ "type": "signature_delta", "signature": std::mem::take(&mut block["signature"]) }),
                ],
                _ => {
                    let input = std::mem::replace(&mut block["input"], json!({}));
                    vec![json!({ "type": "input_json_delta", "partial_json": input.to_string() })]
                }
            };
            for field in ["text", "thinking", "signature"] {
                if block.get(field).is_some() {
                    block[field] = "".into();
                }
            }
            events.push(
                json!({ "type": "content_block_start", "index": index, "content_block": block }),
            );
            for delta in deltas {
                events
                    .push(json!({ "type": "content_block_delta", "index": index, "delta": delta }));
            }
            if self != Self::ErrorInside {
                events.push(json!({ "type": "content_block_stop", "index": index }));
            }
        }
        if self == Self::ErrorInside {
            events.push(
                json!({ "type": "error", "error": { "type": "api_error", "message": "broken" } }),
            );
        } else {
            events.push(json!({
                "type": "message_delta", "delta": { "stop_reason": stop }, "usage": { "output_tokens": USED.1 },
            }));
            events.push(json!({ "type": "message_stop" }));
        }
        Reply::events(events.iter().map(Value::to_string))
    }

    fn gemini(self, stream: bool) -> Reply {
        let call = |args: Value| json!({ "functionCall": { "name": "look", "args": args } });
        let text = |text: &str| json!({ "text": text });
        let (parts, finish) = match self {
            Self::Text => (vec![text("Hello "), text("there")], "STOP"),
            Self::Structured => (vec![text(ANSWER)], "STOP"),
            Self::Tool => (vec![call(json!({ "at": 1 }))], "STOP"),
            Self::ParallelTools => (
                vec![text("Two"), call(json!({ "at": 1 })), call(json!({}))],
                "STOP",
            ),
            Self::Reasoning => (
                vec![json!({ "text": "Hm.", "thought": true }), text("So")],
                "STOP",
            ),
            Self::Refusal => (Vec::new(), "SAFETY"),
            Self::Length => (vec![text("So")], "MAX_TOKENS"),
            Self::Cited | Self::Cached => (vec![text("So")], "STOP"),
            Self::ErrorInside => (vec![text("So")], ""),
        };
        // The output count excludes thoughts.
        let thoughts = if self == Self::Reasoning { 3 } else { 0 };
        let usage = json!({
            "promptTokenCount": USED.0, "cachedContentTokenCount": self.cached(),
            "candidatesTokenCount": USED.1 - thoughts, "thoughtsTokenCount": thoughts,
        });
        let mut candidate = json!({ "finishReason": finish });
        if self == Self::Cited {
            candidate["groundingMetadata"] = json!({
                "groundingChunks": [{ "web": { "uri": SOURCE, "title": "A" } }],
                "groundingSupports": [{
                    "segment": { "startIndex": 0, "endIndex": 2, "text": "So" }, "groundingChunkIndices": [0],
                }],
            });
        }
        if !stream {
            candidate["content"] = json!({ "role": "model", "parts": parts });
            return Reply::json(
                200,
                &json!({ "candidates": [candidate], "usageMetadata": usage }),
            );
        }
        let chunk = |part: Value| json!({ "candidates": [{ "content": { "role": "model", "parts": [part] } }] });
        let mut events: Vec<_> = parts.into_iter().map(chunk).collect();
        events.push(match self {
            Self::ErrorInside => {
                json!({ "error": { "code": 500, "message": "broken", "status": "INTERNAL" } })
            }
            _ => json!({ "candidates": [candidate], "usageMetadata": usage }),
        });
        Reply::events(events.iter().map(Value::to_string))
    }

    /// Returns the content of a message, and the reason of its end: `bedrock-runtime` in botocore 1.44.8.
    fn bedrock_blocks(self) -> (Vec<Value>, &'static str) {
        let text = |text: &str| json!({ "text": text });
        let call = |id: &str, input: Value| json!({ "toolUse": { "toolUseId": id, "name": "look", "input": input } });
        match self {
            Self::Text => (vec![text("Hello there")], "end_turn"),
            Self::Structured => (vec![text(ANSWER)], "end_turn"),
            Self::Tool => (vec![call("t1", json!({ "at": 1 }))], "tool_use"),
            Self::ParallelTools => (
                vec![
                    text("Two"),
                    call("t1", json!({ "at": 1 })),
                    call("t2", json!({})),
                ],
                "tool_use",
            ),
            Self::Reasoning => {
                let reasoning = json!({ "text": "Hm.", "signature": "c2ln" });
                let reasoning = json!({ "reasoningContent": { "reasoningText": reasoning } });
                (vec![reasoning, text("So")], "end_turn")
            }
            Self::Refusal => (Vec::new(), "content_filtered"),
            Self::Length => (vec![text("So")], "max_tokens"),
            Self::Cited => {
                let said = json!({ "content": [text("So")], "citations": [{
                    "title": "A", "sourceContent": [{ "text": "So it is." }], "location": { "web": { "url": SOURCE } },
                }] });
                (vec![json!({ "citationsContent": said })], "end_turn")
            }
            Self::Cached => (vec![text("So")], "end_turn"),
            Self::ErrorInside => (vec![text("So")], ""),
        }
    }

    fn bedrock(self) -> Reply {
        let (content, stop) = self.bedrock_blocks();
        Reply::json(
            200,
            &json!({
                "output": { "message": { "role": "assistant", "content": content } },
                "stopReason": stop, "usage": self.bedrock_usage(), "metrics": { "latencyMs": 9 },
            }),
        )
    }

    fn bedrock_usage(self) -> Value {
        json!({
            "inputTokens": USED.0 - self.cached(), "cacheReadInputTokens": self.cached(), "outputTokens": USED.1,
            "totalTokens": USED.0 + USED.1,
        })
    }

    fn bedrock_stream(self) -> Reply {
        let (blocks, stop) = self.bedrock_blocks();
        let mut events = vec![("messageStart", json!({ "role": "assistant" }))];
        for (index, block) in blocks.into_iter().enumerate() {
            let mut start = None;
            let reasoning = &block["reasoningContent"]["reasoningText"];
            let (call, cited) = (&block["toolUse"], &block["citationsContent"]);
            let deltas = if let Some(text) = block["text"].as_str() {
                vec![json!({ "text": text })]
            } else if cited.is_object() {
                vec![
                    cited["content"][0].clone(),
                    json!({ "citation": cited["citations"][0] }),
                ]
            } else if reasoning.is_object() {
                ["text", "signature"]
                    .map(|part| json!({ "reasoningContent": { part: reasoning[part] } }))
                    .to_vec()
            } else {
                start = Some(
                    json!({ "toolUse": { "toolUseId": call["toolUseId"], "name": call["name"] } }),
                );
                // Without arguments, there is no delta.
                match call["input"].to_string() {
                    input if input == "{}" => Vec::new(),
                    input => vec![json!({ "toolUse": { "input": input } })],
                }
            };
            if let Some(start) = start {
                let start = json!({ "start": start, "contentBlockIndex": index });
                events.push(("contentBlockStart", start));
            }
            for delta in deltas {
                let delta = json!({ "delta": delta, "contentBlockIndex": index });
                events.push(("contentBlockDelta", delta));
            }
            if self != Self::ErrorInside {
                events.push(("contentBlockStop", json!({ "contentBlockIndex": index })));
            }
        }
        if self != Self::ErrorInside {
            events.push(("messageStop", json!({ "stopReason": stop })));
            let metadata = json!({ "usage": self.bedrock_usage(), "metrics": { "latencyMs": 9 } });
            events.push(("metadata", metadata));
        }
        let events = events.iter();
        let reply = aws_stream(events.map(|(name, payload)| (*name, payload.to_string())));
        if self != Self::ErrorInside {
            return reply;
        }
        let headers = [
            (":exception-type", "modelStreamErrorException"),
            (":content-type", "application/json"),
            (":message-type", "exception"),
        ];
        let error = aws_message(&headers, br#"{"message":"broken"}"#);
        let body = [&reply.whole_body()[..], &error].concat();
        reply.body(body)
    }

    fn ollama(self, stream: bool) -> Reply {
        let call =
            |arguments: Value| json!({ "function": { "name": "look", "arguments": arguments } });
        let (message, reason) = match self {
            Self::Text => (json!({ "content": "Hello there" }), "stop"),
            Self::Structured => (json!({ "content": ANSWER }), "stop"),
            Self::Tool => (
                json!({ "content": "", "tool_calls": [call(json!({ "at": 1 }))] }),
                "stop",
            ),
            Self::ParallelTools => (
                json!({ "content": "Two", "tool_calls": [call(json!({ "at": 1 })), call(json!({}))] }),
                "stop",
            ),
            Self::Reasoning => (json!({ "content": "So", "thinking": "Hm." }), "stop"),
            Self::Length => (json!({ "content": "So" }), "length"),
            Self::ErrorInside => (json!({ "content": "So" }), ""),
            Self::Refusal | Self::Cited | Self::Cached => unreachable!("its API has none"),
        };
        let end = json!({
            "done": true, "done_reason": reason, "prompt_eval_count": USED.0, "eval_count": USED.1,
        });
        let with = |message: Value, rest: &Value| {
            let mut line = rest.clone();
            line["model"] = "m".into();
            line["message"] = message;
            line["message"]["role"] = "assistant".into();
            line
        };
        if !stream {
            return Reply::json(200, &with(message, &end));
        }
        let first = with(message, &json!({ "done": false }));
        let last = match self {
            Self::ErrorInside => json!({ "error": "broken" }),
            _ => with(json!({ "content": "" }), &end),
        };
        Reply::new(200)
            .header("content-type", "application/x-ndjson")
            .body(format!("{first}\n{last}\n"))
    }
}

/// A citation in Chat Completions.
fn url_citation() -> Value {
    let page = json!({ "url": SOURCE, "title": "A", "start_index": 0, "end_index": 2 });
    json!({ "type": "url_citation", "url_citation": page })
}

/// A stream of Amazon Bedrock of these events, each with its type.
pub fn aws_stream<'a>(events: impl IntoIterator<Item = (&'a str, String)>) -> Reply {
    let message = |(name, payload): (&str, String)| {
        let headers = [
            (":event-type", name),
            (":content-type", "application/json"),
            (":message-type", "event"),
        ];
        aws_message(&headers, payload.as_bytes())
    };
    let messages: Vec<u8> = events.into_iter().flat_map(message).collect();
    Reply::new(200)
        .header("content-type", "application/vnd.amazon.eventstream")
        .body(messages)
}

/// The reply with another text in its body, or in each message of Amazon's framing.
///
/// # Panics
///
/// If the body is neither text nor such messages.
pub fn edited(api: &str, reply: Reply, edit: impl Fn(&str) -> String) -> Reply {
    let body = reply.whole_body();
    if api != "bedrock" {
        let text = str::from_utf8(&body).expect("a text");
        return reply.body(edit(text));
    }
    let mut stream = MessageStream::default();
    stream.push(&body);
    let mut events = Vec::new();
    while let Some(message) = stream.next().expect("messages") {
        events.push((message.name.into_owned(), edit(&message.payload)));
    }
    let events = events.iter();
    aws_stream(events.map(|(name, payload)| (name.as_str(), payload.clone())))
}
