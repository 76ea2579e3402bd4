//! An answer in this dialect, whole or in chunks, as the contract's events.
//!
//! The two differ in shape only: the message of a whole answer is read as one large delta.
//!
//! Fragments of parallel tool calls may come interleaved, told apart by an index, while the
//! contract wants one block after the other. So the first call streams, and whatever comes after
//! it began (other calls, text) waits for the end of the answer.

use std::fmt;

use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use weir_sdk::adapter::{Event, Failure};
use weir_sdk::chat::{BlockKind, FinishReason, ToolCallStart, Usage};
use weir_sdk::sse::SseEvent;

use super::refusal;

/// The most calls in one answer. Each is searched for by every fragment.
const MAX_TOOL_CALLS: usize = 256;

/// The most that waits for the end of an answer, in bytes.
const MAX_HELD_BYTES: usize = 4 * 1024 * 1024;

/// What of the answer has been read.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// The block begun last, among the events emitted or, once there are calls, in `after_calls`.
    block: Option<BlockKind>,
    calls: Vec<Call>,
    after_calls: Vec<Event>,
    held_bytes: usize,
    usage: Option<Usage>,
    /// `usage` says more than what was emitted.
    usage_is_due: bool,
    finish: Option<FinishReason>,
    refused: bool,
    concluded: bool,
}

/// A tool call. The first of an answer is emitted as it comes, once its id and name are known.
#[derive(Debug, Default)]
struct Call {
    index: Option<u64>,
    id: String,
    name: String,
    /// Not emitted yet.
    arguments: String,
    begun: bool,
    has_arguments: bool,
}

impl Answer {
    /// Reads one event of a stream.
    pub(super) fn read_event(
        &mut self,
        event: SseEvent<'_>,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        let data = event.data.trim();
        if self.concluded || data.is_empty() {
            return Ok(());
        }
        if data == "[DONE]" {
            return self.conclude(events);
        }
        if event.name == "error" {
            return Err(refusal::from_error(data));
        }
        let chunk: Chunk<'_> = serde_json::from_str(data).map_err(|error| malformed(&error))?;
        if chunk.error.is_some() {
            return Err(refusal::from_error(data));
        }
        for choice in chunk.choices.into_iter().flatten() {
            if choice.index.unwrap_or(0) == 0 {
                self.read_choice(choice.delta, choice.finish_reason, false, events)?;
            }
        }
        self.read_usage(chunk.usage, events);
        Ok(())
    }

    /// Reads an answer that is not streamed.
    pub(super) fn read_whole(
        &mut self,
        body: &[u8],
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        let body = String::from_utf8_lossy(body);
        let whole: Whole<'_> = serde_json::from_str(&body).map_err(|error| malformed(&error))?;
        if whole.error.is_some() {
            return Err(refusal::from_error(&body));
        }
        let choice = whole
            .choices
            .into_iter()
            .flatten()
            .find(|choice| choice.index.unwrap_or(0) == 0)
            .ok_or_else(|| Failure::Malformed("the answer has no choices".to_owned()))?;
        // It was parsed whole, so nothing was cut off: a server that gives no reason means this.
        self.finish = Some(FinishReason::Stop);
        self.read_choice(choice.message, choice.finish_reason, true, events)?;
        self.read_usage(whole.usage, events);
        Ok(())
    }

    /// Emits what waits for the end, then the finish event. Does so once.
    ///
    /// # Errors
    ///
    /// [`Failure::Malformed`] for a stream that was cut: it gave no reason for its end.
    pub(super) fn conclude(&mut self, events: &mut Vec<Event>) -> Result<(), Failure> {
        if self.concluded {
            return Ok(());
        }
        let Some(finish) = self.finish.take() else {
            return Err(Failure::Malformed(
                "the stream ended before the answer did".to_owned(),
            ));
        };
        self.concluded = true;
        // Some servers, and OpenAI itself when the tool was chosen for the model, say `stop`
        // after calls.
        let finish = match finish {
            FinishReason::Stop if !self.calls.is_empty() => FinishReason::ToolCalls,
            FinishReason::Stop if self.refused => FinishReason::Refusal,
            finish => finish,
        };
        for (position, call) in self.calls.iter_mut().enumerate() {
            if call.name.is_empty() {
                return Err(Failure::Malformed("a tool call without a name".to_owned()));
            }
            if call.id.is_empty() {
                call.id = format!("call_{position}");
            }
            call.emit(events);
            // No arguments are an empty object: consumers parse what they are given.
            if !call.has_arguments {
                events.push(Event::ToolCallFragment("{}".to_owned()));
            }
        }
        events.append(&mut self.after_calls);
        self.emit_usage(events);
        events.push(Event::Finish(finish));
        Ok(())
    }

    fn read_choice(
        &mut self,
        delta: Option<Delta<'_>>,
        finish_reason: Option<String>,
        is_whole: bool,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        if let Some(delta) = delta {
            self.read_delta(delta, is_whole, events)?;
        }
        // Some servers write an empty one where OpenAI writes null.
        if let Some(reason) = finish_reason.filter(|reason| !reason.is_empty()) {
            self.finish = Some(match reason.as_str() {
                "length" | "max_tokens" | "model_length" => FinishReason::Length,
                "tool_calls" | "function_call" => FinishReason::ToolCalls,
                "content_filter" => FinishReason::ContentFilter,
                // OpenRouter's and DeepSeek's words for an upstream that gave up.
                "error" | "insufficient_system_resource" => {
                    return Err(Failure::Unavailable(format!("finish_reason {reason}")));
                }
                // `stop`, and the many words for it (`eos`, `end_turn` …).
                _ => FinishReason::Stop,
            });
        }
        Ok(())
    }

    fn read_delta(
        &mut self,
        delta: Delta<'_>,
        is_whole: bool,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        let Delta {
            content,
            refusal,
            reasoning_content,
            reasoning,
            annotations,
            tool_calls,
        } = delta;
        // Servers in transition send the same text under both names.
        let reasoning = if reasoning_content.text.is_empty() {
            reasoning
        } else {
            reasoning_content
        };
        for thought in [reasoning.text, content.reasoning] {
            self.push(BlockKind::Reasoning, thought, Event::Reasoning, events)?;
        }
        self.push(BlockKind::Text, content.text, Event::Text, events)?;
        if let Some(raw) = annotations {
            // Beside the answer, so what can't be read is no reason to lose it.
            let annotations: Vec<Annotation> = serde_json::from_str(raw.get()).unwrap_or_default();
            for url in annotations
                .into_iter()
                .filter_map(|annotation| annotation.url_citation)
                .map(|citation| citation.url)
            {
                self.push(BlockKind::Text, url, Event::Citation, events)?;
            }
        }
        self.refused |= !refusal.text.is_empty();
        self.push(BlockKind::Text, refusal.text, Event::Text, events)?;
        for (position, call) in tool_calls.into_iter().flatten().enumerate() {
            let index = call.index.or(is_whole.then_some(position as u64));
            self.read_call(index, call, events)?;
        }
        Ok(())
    }

    /// Emits a piece of a block of this kind, or holds it while calls are being read.
    fn push(
        &mut self,
        kind: BlockKind,
        piece: String,
        event: fn(String) -> Event,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        if piece.is_empty() {
            return Ok(());
        }
        let events = if self.calls.is_empty() {
            events
        } else {
            hold(&mut self.held_bytes, &piece)?;
            &mut self.after_calls
        };
        if self.block != Some(kind) {
            self.block = Some(kind);
            events.push(Event::BlockStart(kind));
        }
        events.push(event(piece));
        Ok(())
    }

    fn read_call(
        &mut self,
        index: Option<u64>,
        delta: CallDelta<'_>,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        let id = delta.id.unwrap_or_default();
        let function = delta.function.unwrap_or_default();
        let position = self.find_call(index, &id)?;
        let call = &mut self.calls[position];
        if call.id.is_empty() {
            call.id = id;
        }
        if call.name.is_empty() {
            // Servers that repeat the name repeat all of it.
            call.name = function.name.unwrap_or_default();
        }
        let arguments = function
            .arguments
            .map_or(Ok(String::new()), read_arguments)?;
        call.has_arguments |= !arguments.is_empty();
        if call.begun {
            if !arguments.is_empty() {
                events.push(Event::ToolCallFragment(arguments));
            }
            return Ok(());
        }
        hold(&mut self.held_bytes, &arguments)?;
        call.arguments.push_str(&arguments);
        if position == 0 && !call.id.is_empty() && !call.name.is_empty() {
            call.emit(events);
        }
        Ok(())
    }

    /// The call that a fragment belongs to; a new one if there is none.
    ///
    /// By index, but an id that differs makes another call: some servers send each call whole and
    /// give all of them index 0, or none.
    fn find_call(&mut self, index: Option<u64>, id: &str) -> Result<usize, Failure> {
        let found = if id.is_empty() && index.is_none() {
            self.calls.len().checked_sub(1)
        } else {
            self.calls.iter().rposition(|call| {
                call.index == index && (id.is_empty() || call.id.is_empty() || call.id == id)
            })
        };
        if let Some(position) = found {
            return Ok(position);
        }
        if self.calls.len() == MAX_TOOL_CALLS {
            return Err(Failure::Malformed(format!(
                "the answer has more than {MAX_TOOL_CALLS} tool calls"
            )));
        }
        // What follows is held, and so begins its own block.
        self.block = None;
        self.calls.push(Call {
            index,
            ..Call::default()
        });
        Ok(self.calls.len() - 1)
    }

    /// Notes usage that says something new. A server may repeat it with every chunk.
    fn read_usage(&mut self, raw: Option<&RawValue>, events: &mut Vec<Event>) {
        let Some(read) = raw.and_then(read_usage) else {
            return;
        };
        // The last event stands, so it must not lose what an earlier one knew.
        let known = self.usage.unwrap_or(NO_USAGE);
        let merged = Usage {
            input_tokens: read.input_tokens.or(known.input_tokens),
            cache_read_tokens: read.cache_read_tokens.or(known.cache_read_tokens),
            output_tokens: read.output_tokens.or(known.output_tokens),
            reasoning_tokens: read.reasoning_tokens.or(known.reasoning_tokens),
            ..NO_USAGE
        };
        if merged != known {
            self.usage = Some(merged);
            self.usage_is_due = true;
        }
        // Calls may still wait for the end, and totals follow what they count.
        if self.calls.is_empty() {
            self.emit_usage(events);
        }
    }

    fn emit_usage(&mut self, events: &mut Vec<Event>) {
        if std::mem::take(&mut self.usage_is_due) {
            events.extend(self.usage.map(Event::Usage));
        }
    }
}

impl Call {
    /// Begins the call's block, unless it has begun, and emits what waited for that.
    fn emit(&mut self, events: &mut Vec<Event>) {
        if self.begun {
            return;
        }
        self.begun = true;
        events.push(Event::BlockStart(BlockKind::ToolCall));
        events.push(Event::ToolCall(ToolCallStart {
            id: self.id.clone(),
            name: self.name.clone(),
        }));
        if !self.arguments.is_empty() {
            events.push(Event::ToolCallFragment(std::mem::take(&mut self.arguments)));
        }
    }
}

fn hold(held_bytes: &mut usize, piece: &str) -> Result<(), Failure> {
    *held_bytes += piece.len();
    if *held_bytes > MAX_HELD_BYTES {
        return Err(Failure::Malformed(format!(
            "parallel tool calls exceed {MAX_HELD_BYTES} bytes"
        )));
    }
    Ok(())
}

const NO_USAGE: Usage = Usage {
    input_tokens: None,
    cache_read_tokens: None,
    cache_write_short_tokens: None,
    cache_write_long_tokens: None,
    output_tokens: None,
    reasoning_tokens: None,
    images: None,
};

fn read_usage(raw: &RawValue) -> Option<Usage> {
    // Nonsense is as good as nothing: the host then estimates, and the answer stands.
    let usage: WireUsage<'_> = serde_json::from_str(raw.get()).ok()?;
    let input_tokens = count(usage.prompt_tokens);
    let visible_tokens = count(usage.completion_tokens);
    let reasoning_tokens = read_details(usage.completion_tokens_details)
        .and_then(|details| count(details.reasoning_tokens));
    // xAI counts reasoning beside the completion, which shows in the total; OpenAI within it.
    let beside = || {
        let sum = visible_tokens?.checked_add(reasoning_tokens.filter(|tokens| *tokens > 0)?)?;
        (count(usage.total_tokens)? == input_tokens?.checked_add(sum)?).then_some(sum)
    };
    Some(Usage {
        input_tokens,
        cache_read_tokens: read_details(usage.prompt_tokens_details)
            .and_then(|details| count(details.cached_tokens)),
        output_tokens: beside().or(visible_tokens),
        reasoning_tokens,
        ..NO_USAGE
    })
}

fn read_details(raw: Option<&RawValue>) -> Option<WireDetails<'_>> {
    serde_json::from_str(raw?.get()).ok()
}

/// A number that can be a count: negative, broken and huge ones, and texts, are not.
fn count(raw: Option<&RawValue>) -> Option<u64> {
    raw?.get().parse().ok()
}

/// A piece of the arguments' JSON text. It comes in a string, except from servers that send the
/// object itself.
fn read_arguments(raw: &RawValue) -> Result<String, Failure> {
    let json = raw.get();
    if json.starts_with('"') {
        serde_json::from_str(json).map_err(|error| malformed(&error))
    } else {
        Ok(json.to_owned())
    }
}

fn malformed(error: &serde_json::Error) -> Failure {
    // Where, not what: the text around it may be a user's.
    Failure::Malformed(format!(
        "the answer is not a chat completion ({:?} error at line {} column {})",
        error.classify(),
        error.line(),
        error.column()
    ))
}

/// One event of a stream.
#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: Option<Vec<ChunkChoice<'a>>>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ChunkChoice<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    finish_reason: Option<String>,
}

/// An answer that is not streamed.
#[derive(Deserialize)]
struct Whole<'a> {
    #[serde(borrow)]
    choices: Option<Vec<WholeChoice<'a>>>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WholeChoice<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    message: Option<Delta<'a>>,
    finish_reason: Option<String>,
}

/// What a chunk adds, or all of a message.
#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(default)]
    content: Spoken,
    #[serde(default)]
    refusal: Spoken,
    /// The name that most compatible servers use; `reasoning` is the other.
    #[serde(default)]
    reasoning_content: Spoken,
    #[serde(default)]
    reasoning: Spoken,
    #[serde(borrow)]
    annotations: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_calls: Option<Vec<CallDelta<'a>>>,
}

#[derive(Deserialize)]
struct CallDelta<'a> {
    index: Option<u64>,
    id: Option<String>,
    #[serde(borrow)]
    function: Option<FunctionDelta<'a>>,
}

#[derive(Default, Deserialize)]
struct FunctionDelta<'a> {
    name: Option<String>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Annotation {
    url_citation: Option<UrlCitation>,
}

#[derive(Deserialize)]
struct UrlCitation {
    url: String,
}

#[derive(Deserialize)]
struct WireUsage<'a> {
    #[serde(borrow)]
    prompt_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    completion_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    total_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    prompt_tokens_details: Option<&'a RawValue>,
    #[serde(borrow)]
    completion_tokens_details: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WireDetails<'a> {
    #[serde(borrow)]
    cached_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning_tokens: Option<&'a RawValue>,
}

/// What a model says: a string, null, or (Mistral) a list of texts and thoughts. Anything else
/// is no text, rather than an error that would cost the rest of the answer.
#[derive(Debug, Default)]
struct Spoken {
    text: String,
    reasoning: String,
}

impl<'de> Deserialize<'de> for Spoken {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SpokenVisitor)
    }
}

struct SpokenVisitor;

impl<'de> Visitor<'de> for SpokenVisitor {
    type Value = Spoken;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("text")
    }

    fn visit_str<E>(self, text: &str) -> Result<Spoken, E> {
        Ok(Spoken {
            text: text.to_owned(),
            reasoning: String::new(),
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Spoken, A::Error> {
        let mut spoken = Spoken::default();
        while let Some(part) = parts.next_element::<SpokenPart>()? {
            spoken.text += &part.text.text;
            spoken.reasoning += &part.thinking.text;
        }
        Ok(spoken)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Spoken, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Spoken::default())
    }

    fn visit_unit<E>(self) -> Result<Spoken, E> {
        Ok(Spoken::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Spoken, E> {
        Ok(Spoken::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<Spoken, E> {
        Ok(Spoken::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Spoken, E> {
        Ok(Spoken::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Spoken, E> {
        Ok(Spoken::default())
    }
}

#[derive(Deserialize)]
struct SpokenPart {
    #[serde(default)]
    text: Spoken,
    #[serde(default)]
    thinking: Spoken,
}
