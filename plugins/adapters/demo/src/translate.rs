//! From a request to the whole plan of its answer.
//!
//! **Invariant:** the plan is made in `begin` and depends on the request alone, and it never has
//! more steps than the host allows an exchange that sends nothing.

use std::collections::VecDeque;

use serde_json::{Value, json};
use weir_sdk::adapter::{
    CredentialSlot, Description, Event, Exchange, Failure, HttpResponseHead, Request, Setting, Step,
};
use weir_sdk::chat::{
    BlockKind, ChatRequest, Content, FinishReason, Message, ReasoningRequest, ResponseFormat, Role,
    ToolCallStart, ToolChoice, ToolContent, ToolResult, Usage,
};

/// What `/help` answers.
pub const HELP: &str = "\
I am weir's demo model. I repeat what you say, and I know these commands:
/help - this list
/count - how many tokens your request has
/reason [TEXT] - think first, then answer TEXT
/long N - answer with N words (at most 20000)
/slow N MS - answer with N words and MS milliseconds between them
/tool [NAME [JSON]] - call a tool of the request: the first one, or NAME, with JSON as arguments
/refuse - refuse to answer
/error KIND [N] - fail, after N words if given; KIND is unsupported, rejected, context-length, \
filtered, unauthorized, rate-limited, unavailable or malformed";

/// Four bytes make a token: the usual rule of thumb for English.
const TOKEN_BYTES: usize = 4;

/// The most words of `/long` and `/slow`.
const MAX_WORDS: usize = 20_000;

/// In how many steps an answer comes at most. With a wait after each and the step that finishes,
/// that stays below the 64 that the host allows.
const MAX_TEXT_STEPS: usize = 28;

/// How many words a step brings at least when the client streams and did not ask for slowness.
const MIN_STEP_WORDS: usize = 8;

/// Fields beyond the vocabulary that only label a request. Ignoring them is all there is to do.
const LABELS: [&str; 5] = [
    "user",
    "metadata",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
];

/// One answer, planned.
#[derive(Debug)]
pub struct Demo {
    plan: VecDeque<Result<Step, Failure>>,
}

impl Exchange for Demo {
    fn describe() -> Description {
        Description {
            name: "demo".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            credential: CredentialSlot::None,
            serves_chat: true,
            serves_images: false,
            options: Vec::new(),
        }
    }

    fn begin(request: Request, options: Vec<Setting>) -> Result<Self, Failure> {
        let Request::Chat(chat) = request else {
            return Err(Failure::Unsupported("image requests".to_owned()));
        };
        if let Some((name, _)) = options.first() {
            return Err(Failure::Unsupported(format!("option {name}")));
        }
        if let Some((name, _)) = chat
            .extra
            .iter()
            .find(|(name, _)| !LABELS.contains(&name.as_str()))
        {
            return Err(Failure::Unsupported(name.clone()));
        }
        if let ResponseFormat::JsonSchema(_) = chat.response_format {
            return Err(Failure::Unsupported(
                "response_format json_schema".to_owned(),
            ));
        }
        let reply = Reply::to(&chat)?;
        Ok(Self {
            plan: reply.plan(&chat),
        })
    }

    fn next(&mut self) -> Result<Step, Failure> {
        self.plan.pop_front().unwrap_or(Ok(Step::Done))
    }

    fn head(&mut self, _head: HttpResponseHead) -> Result<(), Failure> {
        Err(unasked())
    }

    fn body(&mut self, _bytes: &[u8]) -> Result<Vec<Event>, Failure> {
        Err(unasked())
    }

    fn end(&mut self) -> Result<Vec<Event>, Failure> {
        Err(unasked())
    }
}

fn unasked() -> Failure {
    Failure::Malformed("a response to a request that was never sent".to_owned())
}

/// What is answered, before limits.
#[derive(Debug)]
struct Reply {
    reasoning: String,
    text: String,
    call: Option<(ToolCallStart, String)>,
    finish: FinishReason,
    /// Milliseconds between words.
    pause_ms: Option<u32>,
    /// Fails instead of finishing.
    failure: Option<Failure>,
}

impl Reply {
    fn text(text: impl Into<String>) -> Self {
        Self {
            reasoning: String::new(),
            text: text.into(),
            call: None,
            finish: FinishReason::Stop,
            pause_ms: None,
            failure: None,
        }
    }

    /// Decides what to answer.
    fn to(chat: &ChatRequest) -> Result<Self, Failure> {
        let mut reply = match tool_results(chat) {
            Some(results) => Self::text(format!("The tool said: {results}")),
            None => match chosen_tool(chat)? {
                Some(name) => Self::call(chat, name, "{}"),
                None => Self::to_last_message(chat)?,
            },
        };
        let wants_reasoning = !matches!(
            chat.reasoning,
            ReasoningRequest::Unspecified | ReasoningRequest::Off
        );
        if wants_reasoning && reply.reasoning.is_empty() {
            reply.reasoning = THOUGHT.to_owned();
        }
        if chat.response_format == ResponseFormat::Json && !reply.text.is_empty() {
            reply.text = json!({"answer": reply.text}).to_string();
        }
        Ok(reply)
    }

    fn to_last_message(chat: &ChatRequest) -> Result<Self, Failure> {
        let Some(message) = last_user_message(chat) else {
            return Ok(Self::text("You said nothing. Try /help."));
        };
        let said = texts(message).collect::<Vec<_>>().join("\n");
        let said = said.trim();
        let (command, rest) = match said.split_once(char::is_whitespace) {
            Some((command, rest)) => (command, rest.trim()),
            None => (said, ""),
        };
        Ok(match command {
            "/help" => Self::text(HELP),
            "/count" => Self::text(format!("Your request has {} tokens.", input_tokens(chat))),
            "/reason" => Self {
                reasoning: THOUGHT.to_owned(),
                ..Self::text(if rest.is_empty() { "Done." } else { rest })
            },
            "/long" => Self::text(words(number(command, rest)?)),
            "/slow" => {
                let (count, pause_ms) = rest.split_once(' ').unwrap_or((rest, ""));
                Self {
                    pause_ms: Some(number(command, pause_ms)?),
                    ..Self::text(words(number(command, count)?))
                }
            }
            "/tool" => Self::to_tool_command(chat, rest)?,
            "/refuse" => Self {
                finish: FinishReason::Refusal,
                ..Self::text("I would rather not answer that.")
            },
            "/error" => {
                let (kind, after_words) = rest.split_once(' ').unwrap_or((rest, "0"));
                let after_words = number(command, after_words)?;
                Self {
                    failure: Some(failure(kind)?),
                    ..Self::text(words(after_words))
                }
            }
            _ => Self::text(format!("You said: {said}{}", attachments(message))),
        })
    }

    fn to_tool_command(chat: &ChatRequest, rest: &str) -> Result<Self, Failure> {
        let (name, arguments) = match rest.split_once(char::is_whitespace) {
            Some((name, arguments)) => (name, arguments.trim()),
            None => (rest, "{}"),
        };
        if !matches!(serde_json::from_str(arguments), Ok(Value::Object(_))) {
            return Err(Failure::Rejected(
                "/tool: the arguments are not a JSON object".to_owned(),
            ));
        }
        let may_call = chat.tool_choice != ToolChoice::None;
        Ok(
            match chat
                .tools
                .iter()
                .find(|tool| name.is_empty() || tool.name == name)
            {
                Some(tool) if may_call => Self::call(chat, &tool.name, arguments),
                _ => Self::text(format!("I have no tool {name}").trim_end().to_owned() + "."),
            },
        )
    }

    fn call(chat: &ChatRequest, name: &str, arguments: &str) -> Self {
        // Unlike any other call's in this conversation, and the same every time.
        let id = format!("call_{}", chat.messages.len());
        let name = name.to_owned();
        Self {
            call: Some((ToolCallStart { id, name }, arguments.to_owned())),
            finish: FinishReason::ToolCalls,
            ..Self::text("")
        }
    }

    /// The answer cut to its limits, and cut into steps.
    fn plan(mut self, chat: &ChatRequest) -> VecDeque<Result<Step, Failure>> {
        if let Some((at, sequence)) = first_stop(&self.text, &chat.stop) {
            self.text.truncate(at);
            self.finish = FinishReason::StopSequence(sequence.to_owned());
        }
        let mut output = Output {
            events: Vec::new(),
            room_bytes: (chat.max_output_tokens as usize).saturating_mul(TOKEN_BYTES),
            is_cut: false,
        };
        let reasoning_bytes = output.write(
            BlockKind::Reasoning,
            None,
            &self.reasoning,
            Event::Reasoning,
        );
        let mut output_bytes =
            reasoning_bytes + output.write(BlockKind::Text, None, &self.text, Event::Text);
        if let Some((start, arguments)) = self.call {
            let start = Some(Event::ToolCall(start));
            output_bytes += output.write(
                BlockKind::ToolCall,
                start,
                &arguments,
                Event::ToolCallFragment,
            );
        }
        let finish = if output.is_cut {
            FinishReason::Length
        } else {
            self.finish
        };

        let mut plan = VecDeque::new();
        let streams = chat.stream || self.pause_ms.is_some();
        for events in steps(output.events, streams, self.pause_ms.is_some()) {
            if let Some(pause_ms) = self.pause_ms
                && !plan.is_empty()
            {
                plan.push_back(Ok(Step::Wait(pause_ms)));
            }
            plan.push_back(Ok(Step::Emit(events)));
        }
        plan.push_back(match self.failure {
            Some(failure) => Err(failure),
            None => Ok(Step::Emit(vec![
                Event::Usage(Usage {
                    input_tokens: Some(input_tokens(chat)),
                    cache_read_tokens: None,
                    cache_write_short_tokens: None,
                    cache_write_long_tokens: None,
                    output_tokens: Some(tokens(output_bytes)),
                    reasoning_tokens: Some(tokens(reasoning_bytes)),
                    images: None,
                }),
                Event::Finish(finish),
            ])),
        });
        plan
    }
}

const THOUGHT: &str = "The user wants an answer. I shall give one.";

/// The events of an answer, as far as its limit allows.
struct Output {
    events: Vec<Event>,
    room_bytes: usize,
    is_cut: bool,
}

impl Output {
    /// Writes a block word by word. Says how many bytes there was room for.
    fn write(
        &mut self,
        kind: BlockKind,
        start: Option<Event>,
        text: &str,
        event: fn(String) -> Event,
    ) -> usize {
        if text.is_empty() {
            return 0;
        }
        let fitting = &text[..text.floor_char_boundary(self.room_bytes)];
        self.room_bytes -= fitting.len();
        self.is_cut |= fitting.len() < text.len();
        if !fitting.is_empty() {
            self.events.push(Event::BlockStart(kind));
            self.events.extend(start);
            let words = fitting.split_inclusive(' ');
            self.events.extend(words.map(|word| event(word.to_owned())));
        }
        fitting.len()
    }
}

/// Deals events out over steps, as evenly as the most steps allow.
fn steps(events: Vec<Event>, streams: bool, is_slow: bool) -> Vec<Vec<Event>> {
    let brings_text = |event: &Event| !matches!(event, Event::BlockStart(_) | Event::ToolCall(_));
    let word_count = events.iter().filter(|event| brings_text(event)).count();
    let min_step_words = if is_slow { 1 } else { MIN_STEP_WORDS };
    let step_words = if streams {
        word_count.div_ceil(MAX_TEXT_STEPS).max(min_step_words)
    } else {
        word_count
    };
    let mut steps: Vec<Vec<Event>> = Vec::new();
    let mut words_in_step = step_words;
    for event in events {
        // A block begins in the step of its first word.
        if words_in_step == step_words {
            words_in_step = 0;
            steps.push(Vec::new());
        }
        words_in_step += usize::from(brings_text(&event));
        if let Some(step) = steps.last_mut() {
            step.push(event);
        }
    }
    steps
}

/// The tool that the client says must be called.
fn chosen_tool(chat: &ChatRequest) -> Result<Option<&str>, Failure> {
    let mut names = chat.tools.iter().map(|tool| tool.name.as_str());
    let (found, wanted) = match &chat.tool_choice {
        ToolChoice::Auto | ToolChoice::None => return Ok(None),
        // `/tool` may name another than the first: that, too, is a call.
        ToolChoice::Required if asks_for_tool(chat) => return Ok(None),
        ToolChoice::Required => (names.next(), "any tool"),
        ToolChoice::Named(name) => (names.find(|known| known == name), name.as_str()),
    };
    match found {
        Some(name) => Ok(Some(name)),
        None => Err(Failure::Rejected(format!(
            "tool_choice: the request does not define {wanted}"
        ))),
    }
}

fn asks_for_tool(chat: &ChatRequest) -> bool {
    let mut words = last_user_message(chat)
        .into_iter()
        .flat_map(texts)
        .flat_map(str::split_whitespace);
    words.next() == Some("/tool")
        && words
            .next()
            .is_some_and(|name| chat.tools.iter().any(|tool| tool.name == name))
}

/// What the tools answered, if theirs was the last word.
fn tool_results(chat: &ChatRequest) -> Option<String> {
    let answered = chat
        .messages
        .iter()
        .rev()
        .take_while(|message| message.role == Role::Tool)
        .count();
    let results = chat.messages[chat.messages.len() - answered..]
        .iter()
        .flat_map(|message| &message.parts)
        .filter_map(|part| match &part.content {
            Content::ToolResult(result) => Some(result_text(result)),
            _ => None,
        });
    (answered > 0).then(|| results.collect::<Vec<_>>().join("\n"))
}

fn result_text(result: &ToolResult) -> String {
    let texts = result.content.iter().map(|content| match content {
        ToolContent::Text(text) => text.as_str(),
        ToolContent::Image(_) => "(an image)",
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn last_user_message(chat: &ChatRequest) -> Option<&Message> {
    let mut latest_first = chat.messages.iter().rev();
    latest_first.find(|message| message.role == Role::User)
}

fn texts(message: &Message) -> impl Iterator<Item = &str> {
    message.parts.iter().filter_map(|part| match &part.content {
        Content::Text(text) => Some(text.as_str()),
        _ => None,
    })
}

/// How many images and files came along, if any.
fn attachments(message: &Message) -> String {
    let count = |is_kind: fn(&Content) -> bool| {
        let parts = message.parts.iter();
        parts.filter(|part| is_kind(&part.content)).count()
    };
    let images = count(|content| matches!(content, Content::Image(_)));
    let files = count(|content| matches!(content, Content::File(_)));
    match (images, files) {
        (0, 0) => String::new(),
        (images, 0) => format!(" (images: {images})"),
        (0, files) => format!(" (files: {files})"),
        (images, files) => format!(" (images: {images}, files: {files})"),
    }
}

/// Where the first of the stop sequences stands, and which it is.
fn first_stop<'a>(text: &str, stop: &'a [String]) -> Option<(usize, &'a str)> {
    stop.iter()
        .filter(|sequence| !sequence.is_empty())
        .filter_map(|sequence| Some((text.find(sequence.as_str())?, sequence.as_str())))
        .min_by_key(|(at, _)| *at)
}

fn input_tokens(chat: &ChatRequest) -> u64 {
    let part_bytes = |content: &Content| match content {
        Content::Text(text) | Content::Reasoning(text) => text.len(),
        Content::ToolCall(call) => call.name.len() + call.arguments.len(),
        Content::ToolResult(result) => result_text(result).len(),
        // Nobody looks at them.
        Content::Image(_) | Content::File(_) | Content::RedactedReasoning(_) => 0,
    };
    let message_bytes: usize = chat
        .messages
        .iter()
        .flat_map(|message| &message.parts)
        .map(|part| part_bytes(&part.content))
        .sum();
    let tool_bytes: usize = chat
        .tools
        .iter()
        .map(|tool| {
            let description_bytes = tool.description.as_ref().map_or(0, String::len);
            tool.name.len() + description_bytes + tool.input_schema.len()
        })
        .sum();
    tokens(message_bytes + tool_bytes)
}

fn tokens(bytes: usize) -> u64 {
    bytes.div_ceil(TOKEN_BYTES) as u64
}

/// A text of so many words.
fn words(count: usize) -> String {
    let river = "the water finds its way down to the sea and over every weir it sings ";
    let words = river.split_inclusive(' ').cycle();
    words
        .take(count.min(MAX_WORDS))
        .collect::<String>()
        .trim_end()
        .to_owned()
}

fn number<N: std::str::FromStr>(command: &str, text: &str) -> Result<N, Failure> {
    text.trim()
        .parse()
        .map_err(|_| Failure::Rejected(format!("{command}: {text:?} is not a number")))
}

fn failure(kind: &str) -> Result<Failure, Failure> {
    let text = || "because /error asked for it".to_owned();
    Ok(match kind {
        "unsupported" => Failure::Unsupported(text()),
        "rejected" => Failure::Rejected(text()),
        "context-length" => Failure::ContextLength(text()),
        "filtered" => Failure::Filtered(text()),
        "unauthorized" => Failure::Unauthorized(text()),
        "rate-limited" => Failure::RateLimited(Some(1000)),
        "unavailable" => Failure::Unavailable(text()),
        "malformed" => Failure::Malformed(text()),
        _ => {
            return Err(Failure::Rejected(format!(
                "/error: {kind:?} is none of those that /help lists"
            )));
        }
    })
}
