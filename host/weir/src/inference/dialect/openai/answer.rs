//! The answer in the client's dialect: one object, or chunks as they come.
//!
//! **Invariant:** what the chunks of an answer add up to is the message of the plain answer to the same events.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use crate::error::ApiError;
use crate::inference::meter::Billed;
use crate::plugins::bindings::chat::{Blob, BlockKind, Event, FinishReason};
use weir_ledger::Credits;

/// What stands in an answer besides what the model said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerHead {
    /// `chatcmpl-…`
    pub id: String,
    /// Seconds since the epoch.
    pub created: i64,
    /// The model, by the name that the client used.
    pub model: String,
}

/// An answer that is not streamed, as far as it has come.
#[derive(Debug, Default)]
pub struct Completion {
    content: String,
    reasoning: String,
    tool_calls: Vec<ToolCall>,
    images: Vec<AnswerImage>,
    annotations: Vec<Annotation>,
    position: Position,
    finish_reason: Option<&'static str>,
}

impl Completion {
    /// Adds what an event says. Proofs, sealed reasoning and usage have no place in the message.
    pub fn push(&mut self, event: Event) {
        match event {
            Event::BlockStart(kind) => self.position.begin_block(kind),
            Event::Text(text) => {
                self.position.advance(&text);
                append(&mut self.content, text);
            }
            Event::Reasoning(text) => append(&mut self.reasoning, text),
            Event::ToolCall(start) => self.tool_calls.push(ToolCall {
                id: start.id,
                kind: "function",
                function: CalledFunction {
                    name: start.name,
                    arguments: String::new(),
                },
            }),
            Event::ToolCallFragment(fragment) => {
                if let Some(call) = self.tool_calls.last_mut() {
                    append(&mut call.function.arguments, fragment);
                }
            }
            Event::Citation(url) => {
                self.annotations
                    .push(Annotation::new(None, &url, self.position))
            }
            Event::Image(blob) => self.images.push(AnswerImage::new(None, &blob)),
            Event::Finish(reason) => self.finish_reason = Some(finish_word(&reason)),
            Event::RedactedReasoning(_) | Event::Signature(_) | Event::Usage(_) => {}
        }
    }

    /// The `chat.completion` object.
    pub fn into_body(self, head: &AnswerHead, billed: &Billed) -> Vec<u8> {
        // Null says that there is nothing but calls; an answer without anything is an empty text.
        let content = (!self.content.is_empty() || self.tool_calls.is_empty())
            .then_some(self.content.as_str());
        let answer = Answer {
            id: &head.id,
            object: "chat.completion",
            created: head.created,
            model: &head.model,
            choices: [Choice {
                index: 0,
                message: AnswerMessage {
                    role: "assistant",
                    content,
                    refusal: (),
                    reasoning_content: &self.reasoning,
                    tool_calls: &self.tool_calls,
                    images: &self.images,
                    annotations: &self.annotations,
                },
                logprobs: (),
                finish_reason: self.finish_reason.unwrap_or("stop"),
            }],
            usage: billed.into(),
        };
        let mut body = Vec::with_capacity(512 + self.content.len());
        json(&answer, &mut body);
        body
    }
}

/// Writes a streamed answer as server-sent events.
///
/// The first chunk that says something also carries the role; a chunk of its own for the role would cost every
/// answer one more.
#[derive(Debug)]
pub struct Chunks {
    /// A chunk up to and including `"delta":{`, the same in all but the last.
    opening: Vec<u8>,
    /// How much of `opening` comes before `"choices"`.
    head_length: usize,
    include_usage: bool,
    begun: bool,
    tool_calls: usize,
    images: usize,
    annotations: usize,
    position: Position,
    finish_reason: Option<&'static str>,
}

impl Chunks {
    /// `include_usage` is the client's wish for a last chunk with usage and no choice. Other clients must not see
    /// one: many index `choices` without a look.
    pub fn new(head: &AnswerHead, include_usage: bool) -> Self {
        let mut opening = Vec::with_capacity(160 + head.id.len() + head.model.len());
        opening.extend_from_slice(b"data: {\"id\":");
        json(&head.id, &mut opening);
        opening.extend_from_slice(b",\"object\":\"chat.completion.chunk\",\"created\":");
        json(&head.created, &mut opening);
        opening.extend_from_slice(b",\"model\":");
        json(&head.model, &mut opening);
        opening.extend_from_slice(b",");
        let head_length = opening.len();
        opening.extend_from_slice(b"\"choices\":[{\"index\":0,\"delta\":{");
        Self {
            opening,
            head_length,
            include_usage,
            begun: false,
            tool_calls: 0,
            images: 0,
            annotations: 0,
            position: Position::default(),
            finish_reason: None,
        }
    }

    /// Appends the chunk for an event, if it has one. The end is written by [`Self::finish`], once the answer is
    /// settled.
    pub fn event(&mut self, event: &Event, out: &mut Vec<u8>) {
        match event {
            Event::Text(text) => {
                self.position.advance(text);
                self.fragment(b"\"content\":", text, b"", out);
            }
            Event::Reasoning(text) => self.fragment(b"\"reasoning_content\":", text, b"", out),
            Event::BlockStart(kind) => self.position.begin_block(*kind),
            Event::ToolCall(start) => {
                let call = ToolCallDelta {
                    index: self.tool_calls,
                    id: &start.id,
                    kind: "function",
                    function: CalledFunctionDelta {
                        name: &start.name,
                        arguments: "",
                    },
                };
                self.tool_calls += 1;
                self.delta(b"\"tool_calls\":[", &call, b"]", out);
            }
            Event::ToolCallFragment(fragment) => {
                let Some(index) = self.tool_calls.checked_sub(1) else {
                    return;
                };
                let before =
                    format!("\"tool_calls\":[{{\"index\":{index},\"function\":{{\"arguments\":");
                self.fragment(before.as_bytes(), fragment, b"}}]", out);
            }
            Event::Citation(url) => {
                let annotation = Annotation::new(Some(self.annotations), url, self.position);
                self.annotations += 1;
                self.delta(b"\"annotations\":[", &annotation, b"]", out);
            }
            Event::Image(blob) => {
                let image = AnswerImage::new(Some(self.images), blob);
                self.images += 1;
                self.delta(b"\"images\":[", &image, b"]", out);
            }
            Event::Finish(reason) => self.finish_reason = Some(finish_word(reason)),
            Event::RedactedReasoning(_) | Event::Signature(_) | Event::Usage(_) => {}
        }
    }

    /// Appends the end: the reason, usage, `[DONE]`.
    pub fn finish(&mut self, billed: &Billed, out: &mut Vec<u8>) {
        let usage = AnswerUsage::from(billed);
        out.extend_from_slice(&self.opening);
        if !self.begun {
            self.begun = true;
            out.extend_from_slice(b"\"role\":\"assistant\",\"content\":\"\"");
        }
        out.extend_from_slice(b"},\"finish_reason\":");
        json(self.finish_reason.unwrap_or("stop"), out);
        out.extend_from_slice(b"}],");
        if self.include_usage {
            out.extend_from_slice(b"\"usage\":null}\n\n");
            out.extend_from_slice(&self.opening[..self.head_length]);
            out.extend_from_slice(b"\"choices\":[],");
        }
        out.extend_from_slice(b"\"usage\":");
        json(&usage, out);
        out.extend_from_slice(b"}\n\ndata: [DONE]\n\n");
    }

    /// Appends an error, which ends the stream: SDKs raise it by the `error` in the data, others by the event's name.
    /// Nothing may follow, `[DONE]` least of all: it would say that the answer is whole.
    pub fn error(error: &ApiError, request_id: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(b"event: error\ndata: ");
        json(&error.body(request_id), out);
        out.extend_from_slice(b"\n\n");
    }

    /// A chunk for a piece of text; one that is empty says nothing.
    fn fragment(&mut self, before: &[u8], text: &str, after: &[u8], out: &mut Vec<u8>) {
        if !text.is_empty() {
            self.delta(before, text, after, out);
        }
    }

    fn delta<T: Serialize + ?Sized>(
        &mut self,
        before: &[u8],
        value: &T,
        after: &[u8],
        out: &mut Vec<u8>,
    ) {
        out.extend_from_slice(&self.opening);
        if !self.begun {
            self.begun = true;
            out.extend_from_slice(b"\"role\":\"assistant\",");
        }
        out.extend_from_slice(before);
        json(value, out);
        out.extend_from_slice(after);
        out.extend_from_slice(b"},\"finish_reason\":null}]}\n\n");
    }
}

/// Where in the content the answer has come to, in characters: citations say which stretch they belong to.
#[derive(Debug, Default, Clone, Copy)]
struct Position {
    block_start: usize,
    end: usize,
}

impl Position {
    fn begin_block(&mut self, kind: BlockKind) {
        if kind == BlockKind::Text {
            self.block_start = self.end;
        }
    }

    fn advance(&mut self, text: &str) {
        self.end += text.chars().count();
    }
}

#[derive(Debug, Serialize)]
struct Answer<'a> {
    id: &'a str,
    object: &'static str,
    created: i64,
    model: &'a str,
    choices: [Choice<'a>; 1],
    usage: AnswerUsage,
}

#[derive(Debug, Serialize)]
struct Choice<'a> {
    index: u32,
    message: AnswerMessage<'a>,
    logprobs: (),
    finish_reason: &'static str,
}

#[derive(Debug, Serialize)]
struct AnswerMessage<'a> {
    role: &'static str,
    content: Option<&'a str>,
    refusal: (),
    #[serde(skip_serializing_if = "str::is_empty")]
    reasoning_content: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    tool_calls: &'a [ToolCall],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    images: &'a [AnswerImage],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    annotations: &'a [Annotation],
}

#[derive(Debug, Serialize)]
struct ToolCall {
    id: String,
    #[serde(rename = "type")]
    kind: &'static str,
    function: CalledFunction,
}

#[derive(Debug, Serialize)]
struct CalledFunction {
    name: String,
    arguments: String,
}

#[derive(Debug, Serialize)]
struct ToolCallDelta<'a> {
    index: usize,
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    function: CalledFunctionDelta<'a>,
}

#[derive(Debug, Serialize)]
struct CalledFunctionDelta<'a> {
    name: &'a str,
    arguments: &'a str,
}

/// A picture as OpenRouter and those who followed it put it into a message; OpenAI's own answers have none.
#[derive(Debug, Serialize)]
struct AnswerImage {
    /// In chunks only. OpenAI's SDKs put lists together by it and fail on an entry without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<usize>,
    #[serde(rename = "type")]
    kind: &'static str,
    image_url: ImageUrl,
}

#[derive(Debug, Serialize)]
struct ImageUrl {
    url: String,
}

impl AnswerImage {
    fn new(index: Option<usize>, blob: &Blob) -> Self {
        let mut url = format!("data:{};base64,", blob.media_type);
        STANDARD.encode_string(&blob.data, &mut url);
        Self {
            index,
            kind: "image_url",
            image_url: ImageUrl { url },
        }
    }
}

#[derive(Debug, Serialize)]
struct Annotation {
    /// In chunks only, as for an image.
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<usize>,
    #[serde(rename = "type")]
    kind: &'static str,
    url_citation: UrlCitation,
}

#[derive(Debug, Serialize)]
struct UrlCitation {
    start_index: usize,
    end_index: usize,
    title: String,
    url: String,
}

impl Annotation {
    /// Spans the current block as far as it has come: a stream cannot know how it goes on, and both forms of an
    /// answer should say the same. The dialect demands a title, for which the URL has to do.
    fn new(index: Option<usize>, url: &str, position: Position) -> Self {
        Self {
            index,
            kind: "url_citation",
            url_citation: UrlCitation {
                start_index: position.block_start,
                end_index: position.end,
                title: url.to_owned(),
                url: url.to_owned(),
            },
        }
    }
}

#[derive(Debug, Serialize)]
struct AnswerUsage {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
    prompt_tokens_details: PromptTokensDetails,
    completion_tokens_details: CompletionTokensDetails,
    /// Not OpenAI's: what the request was charged.
    credits: Credits,
}

#[derive(Debug, Serialize)]
struct PromptTokensDetails {
    cached_tokens: u64,
}

#[derive(Debug, Serialize)]
struct CompletionTokensDetails {
    reasoning_tokens: u64,
}

impl From<&Billed> for AnswerUsage {
    fn from(billed: &Billed) -> Self {
        let counts = &billed.tokens;
        Self {
            prompt_tokens: counts.input,
            completion_tokens: counts.output,
            total_tokens: counts.input.saturating_add(counts.output),
            prompt_tokens_details: PromptTokensDetails {
                cached_tokens: counts.cache_read,
            },
            completion_tokens_details: CompletionTokensDetails {
                reasoning_tokens: counts.reasoning,
            },
            credits: billed.credits,
        }
    }
}

fn finish_word(reason: &FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop | FinishReason::StopSequence(_) => "stop",
        FinishReason::Length => "length",
        FinishReason::ToolCalls => "tool_calls",
        FinishReason::ContentFilter | FinishReason::Refusal => "content_filter",
    }
}

/// Takes the first piece as it is: an answer that was not streamed has only one.
fn append(text: &mut String, piece: String) {
    if text.is_empty() {
        *text = piece;
    } else {
        text.push_str(&piece);
    }
}

fn json<T: Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) {
    serde_json::to_writer(out, value).expect("plain structs serialize, and a Vec takes every byte");
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may fail by panicking")]
mod tests {
    use http::StatusCode;
    use serde_json::{Value, json};

    use crate::plugins::bindings::chat::{ToolCallStart, Usage};

    use super::*;
    use weir_ledger::TokenCounts;

    const USAGE: Billed = Billed {
        credits: Credits::from_micro(1_250_000),
        tokens: TokenCounts {
            input: 10,
            cache_read: 4,
            cache_write_short: 0,
            cache_write_long: 0,
            output: 7,
            reasoning: 2,
        },
    };

    fn head() -> AnswerHead {
        AnswerHead {
            id: "chatcmpl-1".into(),
            created: 1_700_000_000,
            model: "a \"model\"".into(),
        }
    }

    fn usage() -> Value {
        json!({
            "prompt_tokens": 10, "completion_tokens": 7, "total_tokens": 17,
            "prompt_tokens_details": {"cached_tokens": 4},
            "completion_tokens_details": {"reasoning_tokens": 2}, "credits": 1.25,
        })
    }

    fn text(text: &str) -> Event {
        Event::Text(text.into())
    }

    fn call(id: &str, name: &str) -> [Event; 2] {
        let start = ToolCallStart {
            id: id.into(),
            name: name.into(),
        };
        [
            Event::BlockStart(BlockKind::ToolCall),
            Event::ToolCall(start),
        ]
    }

    fn fragment(json: &str) -> Event {
        Event::ToolCallFragment(json.into())
    }

    fn plain_answer(events: &[Event]) -> Value {
        let mut completion = Completion::default();
        for event in events {
            completion.push(event.clone());
        }
        serde_json::from_slice(&completion.into_body(&head(), &USAGE)).unwrap()
    }

    fn stream(events: &[Event], include_usage: bool) -> Vec<u8> {
        let mut chunks = Chunks::new(&head(), include_usage);
        let mut out = Vec::new();
        for event in events {
            chunks.event(event, &mut out);
        }
        chunks.finish(&USAGE, &mut out);
        out
    }

    /// The JSON of the chunks of a stream that ends as it should.
    fn chunks(stream: &[u8]) -> Vec<Value> {
        let text = std::str::from_utf8(stream).unwrap();
        let text = text.strip_suffix("data: [DONE]\n\n").unwrap();
        text.split_terminator("\n\n")
            .map(|event| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap())
            .collect()
    }

    /// Puts deltas together as OpenAI's SDKs do: strings are joined, list entries matched by `index`.
    fn accumulate(whole: &mut Value, delta: &Value) {
        match (whole, delta) {
            (Value::Object(whole), Value::Object(delta)) => {
                for (name, value) in delta {
                    match whole.get_mut(name) {
                        Some(_) if name == "index" || name == "type" => {}
                        Some(field) => accumulate(field, value),
                        None if value.is_array() => {
                            let mut list = json!([]);
                            accumulate(&mut list, value);
                            whole.insert(name.clone(), list);
                        }
                        None => {
                            whole.insert(name.clone(), value.clone());
                        }
                    }
                }
            }
            (Value::Array(whole), Value::Array(delta)) => {
                for entry in delta {
                    let index = usize::try_from(entry["index"].as_u64().unwrap()).unwrap();
                    assert!(index <= whole.len());
                    match whole.get_mut(index) {
                        Some(known) => accumulate(known, entry),
                        None => whole.push(entry.clone()),
                    }
                }
            }
            (Value::String(whole), Value::String(delta)) => whole.push_str(delta),
            (whole, delta) => panic!("{whole} then {delta}"),
        }
    }

    fn without_indexes(message: &mut Value) {
        for list in ["tool_calls", "images", "annotations"] {
            for entry in message
                .get_mut(list)
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
            {
                entry.as_object_mut().unwrap().remove("index");
            }
        }
    }

    /// One of everything, in several blocks.
    fn everything() -> Vec<Event> {
        let mut events = vec![
            Event::BlockStart(BlockKind::Reasoning),
            Event::Reasoning("let me".into()),
            Event::Reasoning(" think\n".into()),
            Event::Signature("proof".into()),
            Event::RedactedReasoning("sealed".into()),
            Event::BlockStart(BlockKind::Text),
            text("Hé\"\\\u{7}\u{2028}😀"),
            text(""),
            text("</script>\n\ndata: x\r"),
            Event::Citation("https://a.example/?q=\"".into()),
            Event::BlockStart(BlockKind::Text),
            text("more"),
            Event::Citation("https://b.example/".into()),
            Event::Usage(Usage {
                input_tokens: Some(1),
                cache_read_tokens: None,
                cache_write_short_tokens: None,
                cache_write_long_tokens: None,
                output_tokens: Some(1),
                reasoning_tokens: None,
                images: None,
            }),
        ];
        for bytes in [vec![1, 2, 3], vec![4]] {
            events.push(Event::Image(Blob {
                media_type: "image/png".into(),
                data: bytes,
            }));
        }
        events.extend(call("c1", "first"));
        events.extend([fragment("{\"a\":"), fragment(""), fragment("\"\\n\"}")]);
        events.extend(call("c2", "second"));
        events.push(Event::Finish(FinishReason::ToolCalls));
        events
    }

    #[test]
    fn a_plain_answer_is_one_object() {
        let events = [
            Event::BlockStart(BlockKind::Text),
            text("Hello"),
            text(" there"),
            Event::Finish(FinishReason::Stop),
        ];
        assert_eq!(
            plain_answer(&events),
            json!({
                "id": "chatcmpl-1", "object": "chat.completion", "created": 1_700_000_000, "model": "a \"model\"",
                "choices": [{
                    "index": 0,
                    "message": {"role": "assistant", "content": "Hello there", "refusal": null},
                    "logprobs": null,
                    "finish_reason": "stop",
                }],
                "usage": usage(),
            })
        );
    }

    #[test]
    fn everything_that_a_model_may_answer_has_its_place() {
        let answer = plain_answer(&everything());
        let said = "Hé\"\\\u{7}\u{2028}😀</script>\n\ndata: x\r";
        let length = said.chars().count();
        let citation = |start: usize, end: usize, url: &str| {
            json!({"type": "url_citation",
                   "url_citation": {"start_index": start, "end_index": end, "title": url, "url": url}})
        };
        let image = |url: &str| json!({"type": "image_url", "image_url": {"url": url}});
        let call = |id: &str, name: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
        assert_eq!(
            answer["choices"][0],
            json!({
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": format!("{said}more"),
                    "refusal": null,
                    "reasoning_content": "let me think\n",
                    "tool_calls": [call("c1", "first", "{\"a\":\"\\n\"}"), call("c2", "second", "")],
                    "images": [image("data:image/png;base64,AQID"), image("data:image/png;base64,BA==")],
                    "annotations": [
                        citation(0, length, "https://a.example/?q=\""),
                        citation(length, length + 4, "https://b.example/"),
                    ],
                },
                "logprobs": null,
                "finish_reason": "tool_calls",
            })
        );
    }

    #[test]
    fn content_is_null_only_beside_tool_calls() {
        let calls = plain_answer(&call("c", "f"));
        assert_eq!(calls["choices"][0]["message"]["content"], Value::Null);
        let nothing = plain_answer(&[]);
        assert_eq!(nothing["choices"][0]["message"]["content"], "");
    }

    #[test]
    fn reasons_to_finish_are_put_in_openais_words() {
        let cases = [
            (FinishReason::Stop, "stop"),
            (FinishReason::StopSequence("x".into()), "stop"),
            (FinishReason::Length, "length"),
            (FinishReason::ToolCalls, "tool_calls"),
            (FinishReason::ContentFilter, "content_filter"),
            (FinishReason::Refusal, "content_filter"),
        ];
        for (reason, word) in cases {
            let events = [text("x"), Event::Finish(reason)];
            assert_eq!(plain_answer(&events)["choices"][0]["finish_reason"], word);
            assert_eq!(
                chunks(&stream(&events, false))[1]["choices"][0]["finish_reason"],
                word
            );
        }
    }

    #[test]
    fn the_chunks_of_an_answer_add_up_to_the_plain_one() {
        let events = everything();
        let mut whole = json!({});
        let mut reasons = Vec::new();
        for chunk in chunks(&stream(&events, false)) {
            assert_eq!(chunk["object"], "chat.completion.chunk");
            assert_eq!(chunk["id"], "chatcmpl-1");
            assert_eq!(chunk["created"], 1_700_000_000);
            assert_eq!(chunk["model"], "a \"model\"");
            assert_eq!(chunk["choices"][0]["index"], 0);
            accumulate(&mut whole, &chunk["choices"][0]["delta"]);
            reasons.push(chunk["choices"][0]["finish_reason"].clone());
        }
        without_indexes(&mut whole);
        let mut plain = plain_answer(&events)["choices"][0]["message"].clone();
        plain.as_object_mut().unwrap().remove("refusal");
        assert_eq!(whole, plain);
        assert_eq!(reasons.pop().unwrap(), "tool_calls");
        assert!(reasons.iter().all(Value::is_null));
    }

    #[test]
    fn only_the_first_chunk_carries_the_role() {
        let chunks = chunks(&stream(&[text("a"), text("b")], false));
        let deltas: Vec<_> = chunks
            .iter()
            .map(|chunk| &chunk["choices"][0]["delta"])
            .collect();
        assert_eq!(
            deltas,
            [
                &json!({"role": "assistant", "content": "a"}),
                &json!({"content": "b"}),
                &json!({})
            ]
        );
    }

    #[test]
    fn a_text_event_is_one_chunk_byte_for_byte() {
        let mut chunks = Chunks::new(&head(), true);
        let mut out = Vec::new();
        chunks.event(&text("a"), &mut out);
        out.clear();
        chunks.event(&text("b\n"), &mut out);
        assert_eq!(
            std::str::from_utf8(&out).unwrap(),
            "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\
             \"model\":\"a \\\"model\\\"\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"b\\n\"},\
             \"finish_reason\":null}]}\n\n"
        );
    }

    #[test]
    fn usage_comes_in_a_chunk_of_its_own_for_clients_that_asked() {
        let chunks = chunks(&stream(
            &[text("a"), Event::Finish(FinishReason::Length)],
            true,
        ));
        assert_eq!(chunks.len(), 3);
        assert_eq!(chunks[1]["choices"][0]["finish_reason"], "length");
        assert_eq!(chunks[1]["usage"], Value::Null);
        assert_eq!(chunks[2]["choices"], json!([]));
        assert_eq!(chunks[2]["usage"], usage());
    }

    #[test]
    fn usage_comes_with_the_last_choice_for_all_others() {
        let chunks = chunks(&stream(
            &[text("a"), Event::Finish(FinishReason::Length)],
            false,
        ));
        assert_eq!(chunks.len(), 2);
        assert_eq!(chunks[1]["choices"][0]["finish_reason"], "length");
        assert_eq!(chunks[1]["usage"], usage());
        assert!(chunks.iter().all(|chunk| chunk["choices"][0].is_object()));
    }

    #[test]
    fn an_answer_without_content_still_has_a_role() {
        let chunks = chunks(&stream(&[], false));
        assert_eq!(chunks.len(), 1);
        assert_eq!(
            chunks[0]["choices"][0]["delta"],
            json!({"role": "assistant", "content": ""})
        );
    }

    #[test]
    fn events_without_a_place_in_the_dialect_write_nothing() {
        let mut chunks = Chunks::new(&head(), false);
        let mut out = Vec::new();
        for event in [
            Event::BlockStart(BlockKind::Reasoning),
            Event::Signature("s".into()),
            Event::RedactedReasoning("r".into()),
            fragment("before any call"),
            Event::Finish(FinishReason::Stop),
        ] {
            chunks.event(&event, &mut out);
        }
        assert_eq!(out, b"");
    }

    #[test]
    fn an_error_is_an_event_of_its_own_and_the_last() {
        let error = ApiError::new(
            StatusCode::BAD_GATEWAY,
            "UPSTREAM_FAILED",
            "No luck:\nsorry.",
        );
        let mut out = Vec::new();
        Chunks::error(&error, "req-1", &mut out);
        let text = std::str::from_utf8(&out).unwrap();
        let data = text
            .strip_prefix("event: error\ndata: ")
            .and_then(|rest| rest.strip_suffix("\n\n"))
            .unwrap();
        assert!(!data.contains('\n'));
        assert_eq!(
            serde_json::from_str::<Value>(data).unwrap(),
            error.body("req-1")
        );
    }
}
