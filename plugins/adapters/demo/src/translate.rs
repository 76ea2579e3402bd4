//! The complete plan of a response to a request.
//!
//! **Invariant:** `begin` makes the plan, the plan depends on the request alone, and its steps never exceed the
//! host's limit for an exchange without an upstream.

use std::collections::VecDeque;

use serde_json::{Value, json};
use weir_sdk::adapter::{
    CredentialSlot, Description, EmbeddingsRequest, Event, Exchange, Failure, FailureKind,
    HarmRequest, HttpResponseHead, RankingRequest, Request, SpokenRequest, StartedExchange, Step,
    Task, TranscriptRequest,
};
use weir_sdk::blocks::Blocks;
use weir_sdk::chat::{
    Block, CallKind, ChatRequest, Citation, Content, FinishReason, Fragment, Message, Opaque,
    ReasoningEffort, ResponseFormat, Role, Span, Started, Tool, ToolCallStart, ToolChoice,
    ToolContent, ToolKind, ToolResult, Usage,
};
use weir_sdk::fields::is_advisory;

use crate::{agent, audio, image, retrieval};

pub const HELP: &str = "\
I am weir's demo model. I repeat what you say, and I know these commands:
/help - this list
/count - how many tokens your request has
/reason [TEXT] - think first, then answer TEXT
/seal [TEXT] - the same, with the thought signed and sealed
/long N - answer with N words (at most 20000)
/slow N MS - answer with N words and MS milliseconds between them (at most 30 s in all)
/tool [NAME [INPUT]] - call a tool of the request: the first one, or NAME, with INPUT, which is \
JSON for a function
/tools [JSON] - call all functions of the request at once, with JSON as arguments
/cite - answer with a source
/opaque - answer with a block that only this model knows
/refuse - refuse to answer
/finish REASON - answer, and finish for REASON: length, content-filter, pause-turn, \
context-window, malformed-call or any other word
/error KIND [N] - fail, after N words if given; KIND is unsupported, rejected, model-not-found, \
context-length, filtered, unauthorized, rate-limited, unavailable or malformed";

/// The client dialect whose requests may have a suffix, and its field.
const COMPLETIONS: &str = "openai-completions";
const SUFFIX: &str = "suffix";

/// Four bytes make a token: the usual rule of thumb for English.
const TOKEN_BYTES: usize = 4;

/// Maximum words of `/long` and `/slow`.
const MAX_WORDS: usize = 20_000;

/// Total pauses of a response, in milliseconds: the host's limit.
const MAX_PAUSES_MS: u64 = 30_000;

/// Maximum text steps of a response. With a wait after each and the final step, the total stays below the host's
/// limit of 64.
const MAX_TEXT_STEPS: usize = 28;

/// Minimum words of a step if the client streams and did not request slowness.
const MIN_STEP_WORDS: usize = 8;

#[derive(Debug)]
pub struct Demo {
    plan: VecDeque<Result<Step, Failure>>,
}

impl Exchange for Demo {
    fn describe() -> Description {
        Description {
            name: "demo".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            dialect: "demo".to_owned(),
            credential: CredentialSlot::None,
            capabilities: [
                "chat",
                "images",
                "embeddings",
                "rerank",
                "moderation",
                "speech",
                "transcription",
            ]
            .map(str::to_owned)
            .to_vec(),
            options: Vec::new(),
            request_headers: Vec::new(),
            response_headers: Vec::new(),
            path_prefixes: Vec::new(),
        }
    }

    fn begin(request: Request, _configuration: &[u8]) -> Result<StartedExchange<Self>, Failure> {
        let fills_in = request.client.dialect == COMPLETIONS;
        let chat = match request.task {
            Task::Chat(chat) => chat,
            Task::Image(image) => {
                return image::answer(&image).map(Self::of_one_step);
            }
        };
        let ignored = ignored(&chat, fills_in)?;
        let mut reply = Reply::to(&chat)?;
        if let Some(suffix) = suffix(&chat) {
            reply.text = format!("{}, before: {suffix}", reply.text);
        }
        let mut exchange = Self {
            plan: reply.plan(&chat)?,
        };
        Ok(StartedExchange {
            step: exchange.next()?,
            exchange,
            ignored,
        })
    }

    fn begin_embeddings(
        request: EmbeddingsRequest,
        _configuration: &[u8],
    ) -> Result<StartedExchange<Self>, Failure> {
        retrieval::embed(&request.task).map(Self::of_one_step)
    }

    fn begin_rerank(
        request: RankingRequest,
        _configuration: &[u8],
    ) -> Result<StartedExchange<Self>, Failure> {
        retrieval::rank(&request.task).map(Self::of_one_step)
    }

    fn begin_moderation(
        request: HarmRequest,
        _configuration: &[u8],
    ) -> Result<StartedExchange<Self>, Failure> {
        retrieval::judge(&request.task).map(Self::of_one_step)
    }

    fn begin_speech(
        request: SpokenRequest,
        _configuration: &[u8],
    ) -> Result<StartedExchange<Self>, Failure> {
        audio::speak(&request.task).map(Self::of_one_step)
    }

    fn begin_transcription(
        request: TranscriptRequest,
        _configuration: &[u8],
    ) -> Result<StartedExchange<Self>, Failure> {
        audio::transcribe(&request).map(Self::of_one_step)
    }

    fn next(&mut self) -> Result<Step, Failure> {
        self.plan.pop_front().unwrap_or(Ok(Step::Done))
    }

    fn head(&mut self, _head: HttpResponseHead) -> Result<(), Failure> {
        Err(unasked())
    }

    fn body(&mut self, _bytes: &[u8], _events: &mut Vec<Event>) -> Result<(), Failure> {
        Err(unasked())
    }

    fn end(&mut self, _events: &mut Vec<Event>) -> Result<(), Failure> {
        Err(unasked())
    }
}

impl Demo {
    fn of_one_step((step, ignored): (Step, Vec<String>)) -> StartedExchange<Self> {
        StartedExchange {
            exchange: Self {
                plan: VecDeque::new(),
            },
            step,
            ignored,
        }
    }
}

/// Returns the names of omitted fields. Fields that would change the response are refused.
fn ignored(chat: &ChatRequest, fills_in: bool) -> Result<Vec<String>, Failure> {
    let refuse = |name: &str| Err(Failure::unsupported(name).with_param(name));
    let parts = || chat.messages.iter().flat_map(|message| &message.parts);
    let mut names = Vec::new();
    for (name, _) in &chat.extra {
        if fills_in && name == SUFFIX {
            continue;
        }
        if !is_advisory(name) {
            return refuse(name);
        }
        names.push(name.clone());
    }
    let inner = chat.messages.iter().flat_map(|message| &message.extra);
    let inner = inner.chain(parts().flat_map(|part| &part.extra));
    let mut inner = inner.chain(chat.tools.iter().flat_map(|tool| &tool.extra));
    if let Some((name, _)) = inner.next() {
        return refuse(name);
    }
    if let ResponseFormat::JsonSchema(_) = chat.response_format {
        return Err(Failure::unsupported("response_format json_schema"));
    }
    if chat.modalities.iter().any(|modality| modality != "text") {
        return refuse("modalities");
    }
    for tool in &chat.tools {
        if let ToolKind::BuiltIn(tool) = &tool.kind {
            return refuse(&tool.kind);
        }
    }
    let has_cache = parts().any(|part| part.cache.is_some())
        || chat.tools.iter().any(|tool| tool.cache.is_some());
    let advisory = [
        (has_cache, "cache_control"),
        (chat.reasoning.summary.is_some(), "reasoning.summary"),
        (chat.reasoning.adaptive.is_some(), "reasoning.adaptive"),
    ];
    let left_out = advisory.iter().filter(|(is_set, _)| *is_set);
    names.extend(left_out.map(|(_, name)| (*name).to_owned()));
    Ok(names)
}

/// Returns the text after the place that the response fills in.
fn suffix(chat: &ChatRequest) -> Option<String> {
    let mut extra = chat.extra.iter();
    let (_, json) = extra.find(|(name, _)| name == SUFFIX)?;
    serde_json::from_str(json).ok()
}

fn unasked() -> Failure {
    Failure::malformed("a response to a request that was never sent")
}

/// The response before limits.
#[derive(Debug)]
struct Reply {
    reasoning: String,
    /// The reasoning has a proof and a sealed form.
    is_sealed: bool,
    text: String,
    /// The source of all of the text.
    source: Option<&'static str>,
    opaque: Option<Opaque>,
    is_refusal: bool,
    calls: Vec<(ToolCallStart, String)>,
    finish: FinishReason,
    /// Milliseconds between words.
    pause_ms: Option<u32>,
    /// Fails in place of a finish.
    failure: Option<Failure>,
}

impl Reply {
    fn text(text: impl Into<String>) -> Self {
        Self {
            reasoning: String::new(),
            is_sealed: false,
            text: text.into(),
            source: None,
            opaque: None,
            is_refusal: false,
            calls: Vec::new(),
            finish: FinishReason::Stop,
            pause_ms: None,
            failure: None,
        }
    }

    fn to(chat: &ChatRequest) -> Result<Self, Failure> {
        let mut reply = match tool_results(chat) {
            Some(results) => Self::text(format!("The tool said: {results}")),
            None => match chosen_tool(chat)? {
                Some(tool) => Self::calls(chat, [(tool, default_input(tool))]),
                None => Self::to_last_message(chat)?,
            },
        };
        let wants_reasoning = match chat.reasoning.effort {
            Some(effort) => effort != ReasoningEffort::Off,
            None => chat.reasoning.budget_tokens.is_some() || chat.reasoning.adaptive == Some(true),
        };
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
        let prompt = texts(message).collect::<Vec<_>>().join("\n");
        let prompt = prompt.trim();
        let (command, rest) = match prompt.split_once(char::is_whitespace) {
            Some((command, rest)) => (command, rest.trim()),
            None => (prompt, ""),
        };
        Ok(match command {
            "/help" => Self::text(HELP),
            "/count" => Self::text(format!("Your request has {} tokens.", input_tokens(chat))),
            "/reason" | "/seal" => Self {
                reasoning: THOUGHT.to_owned(),
                is_sealed: command == "/seal",
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
            "/tools" => Self::to_tools_command(chat, rest)?,
            "/cite" => Self {
                source: Some("https://example.com/weir"),
                ..Self::text("A weir measures a river.")
            },
            "/opaque" => Self {
                opaque: Some(Opaque {
                    kind: "demo_gauge".to_owned(),
                    json: json!({"type": "demo_gauge", "level_cm": 42}).to_string(),
                }),
                ..Self::text("The gauge says 42.")
            },
            "/finish" => Self {
                finish: finish_reason(rest),
                ..Self::text("The end.")
            },
            "/refuse" => Self {
                is_refusal: true,
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
            _ => match agent::research(chat, prompt, callable_functions(chat)) {
                Some((tool, arguments)) => Self::calls(chat, [(tool, arguments.as_str())]),
                None => Self::to_words(chat, prompt, message),
            },
        })
    }

    fn to_words(chat: &ChatRequest, prompt: &str, message: &Message) -> Self {
        let before = agent::context(chat).map_or_else(String::new, |context| {
            format!("\nThe agent before me said: {context}")
        });
        Self::text(format!(
            "You said: {prompt}{}{before}",
            attachments(message)
        ))
    }

    fn to_tool_command(chat: &ChatRequest, rest: &str) -> Result<Self, Failure> {
        let (name, input) = match rest.split_once(char::is_whitespace) {
            Some((name, input)) => (name, Some(input.trim())),
            None => (rest, None),
        };
        let found = chat
            .tools
            .iter()
            .find(|tool| name.is_empty() || tool_name(tool) == name);
        Ok(match found {
            Some(tool) if may_call(chat, tool) => {
                let input = input.unwrap_or(default_input(tool));
                if tool_kind(tool) == CallKind::Function {
                    check_arguments("/tool", input)?;
                }
                Self::calls(chat, [(tool, input)])
            }
            _ => Self::text(format!("I have no tool {name}").trim_end().to_owned() + "."),
        })
    }

    fn to_tools_command(chat: &ChatRequest, rest: &str) -> Result<Self, Failure> {
        let arguments = if rest.is_empty() { "{}" } else { rest };
        check_arguments("/tools", arguments)?;
        let at_most = match chat.parallel_tool_calls {
            Some(false) => 1,
            _ => chat.tools.len(),
        };
        let functions = callable_functions(chat)
            .take(at_most)
            .map(|tool| (tool, arguments));
        let reply = Self::calls(chat, functions);
        Ok(if reply.calls.is_empty() {
            Self::text("I have no tool.")
        } else {
            reply
        })
    }

    fn calls<'a>(
        chat: &ChatRequest,
        called: impl IntoIterator<Item = (&'a Tool, &'a str)>,
    ) -> Self {
        // The id differs from every other call's in this conversation, and is the same on each run.
        let id = |position| match position {
            0 => format!("call_{}", chat.messages.len()),
            _ => format!("call_{}_{position}", chat.messages.len()),
        };
        let calls = called
            .into_iter()
            .enumerate()
            .map(|(position, (tool, input))| {
                let start = ToolCallStart {
                    id: id(position),
                    name: tool_name(tool).to_owned(),
                    kind: tool_kind(tool),
                };
                (start, input.to_owned())
            });
        Self {
            calls: calls.collect(),
            finish: FinishReason::ToolCalls,
            ..Self::text("")
        }
    }

    /// Returns the response, cut to its limits and into steps; refused if the steps would take too long.
    fn plan(mut self, chat: &ChatRequest) -> Result<VecDeque<Result<Step, Failure>>, Failure> {
        if let Some((at, sequence)) = first_stop(&self.text, &chat.stop) {
            self.text.truncate(at);
            self.finish = FinishReason::StopSequence(sequence.to_owned());
        }
        let mut output = ReplyWriter {
            blocks: Blocks::default(),
            events: vec![Event::Started(Started {
                id: None,
                model: Some(chat.model.clone()),
            })],
            room_bytes: (chat.max_output_tokens as usize).saturating_mul(TOKEN_BYTES),
            is_cut: false,
        };
        let (output_bytes, reasoning_bytes) = self.write(&mut output);
        let finish = if output.is_cut {
            FinishReason::Length
        } else {
            self.finish
        };

        let mut plan = VecDeque::new();
        let streams = chat.stream || self.pause_ms.is_some();
        // A start event alone is not worth a step before a failure.
        let says_something = output.events.len() > 1;
        let steps = steps(output.events, streams, self.pause_ms.is_some());
        let pauses = steps.len().saturating_sub(1) as u64;
        if pauses * u64::from(self.pause_ms.unwrap_or_default()) > MAX_PAUSES_MS {
            return Err(Failure::rejected(
                "/slow: the pauses take more than 30 s in all",
            ));
        }
        for events in steps.into_iter().filter(|_| says_something) {
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
                    other: Vec::new(),
                }),
                Event::Finish(finish),
            ])),
        });
        Ok(plan)
    }

    /// Writes all blocks. Returns the bytes written, and the bytes of reasoning among them.
    fn write(&self, output: &mut ReplyWriter) -> (usize, usize) {
        let reasoning_bytes = output.write_words(Block::Reasoning, &self.reasoning);
        if self.is_sealed && reasoning_bytes > 0 {
            let index = output.blocks.run(Block::Reasoning, &mut output.events);
            let fragment = |text: &str| Fragment {
                index,
                text: text.to_owned(),
            };
            output
                .events
                .push(Event::Signature(fragment("signed-by-demo")));
            output
                .events
                .push(Event::Sealed(fragment("sealed-by-demo")));
        }
        if let Some(opaque) = &self.opaque {
            output.blocks.opaque(opaque.clone(), &mut output.events);
        }
        let block = if self.is_refusal {
            Block::Refusal
        } else {
            Block::Text
        };
        let text_bytes = output.write_words(block, &self.text);
        if let Some(source) = self.source
            && text_bytes > 0
        {
            output.cite(source, &self.text[..text_bytes]);
        }
        // A failure arrives in the middle of a block.
        if self.failure.is_none() {
            output.blocks.end_run(&mut output.events);
        }
        (
            reasoning_bytes + text_bytes + output.write_calls(&self.calls),
            reasoning_bytes,
        )
    }
}

const THOUGHT: &str = "The user wants an answer. I shall give one.";

/// The events of a response, up to its limit.
struct ReplyWriter {
    blocks: Blocks,
    events: Vec<Event>,
    room_bytes: usize,
    is_cut: bool,
}

impl ReplyWriter {
    /// Writes a run word by word. Returns the bytes written.
    fn write_words(&mut self, block: Block, text: &str) -> usize {
        let fitting = self.fitting(text);
        for word in fitting.split_inclusive(' ') {
            self.blocks
                .say(block.clone(), word.to_owned(), &mut self.events);
        }
        fitting.len()
    }

    /// Writes calls in parallel, a word of each in turn. Returns the bytes written.
    fn write_calls(&mut self, calls: &[(ToolCallStart, String)]) -> usize {
        let mut written_bytes = 0;
        let mut open = Vec::new();
        for (start, input) in calls {
            let fitting = self.fitting(input);
            written_bytes += fitting.len();
            if fitting.len() == input.len() || !fitting.is_empty() {
                let block = Block::ToolCall(start.clone());
                let index = self.blocks.begin(block, &mut self.events);
                open.push((index, fitting.split_inclusive(' ')));
            }
        }
        let indices: Vec<u32> = open.iter().map(|(index, _)| *index).collect();
        loop {
            let mut pieces = open
                .iter_mut()
                .filter_map(|(index, words)| Some((*index, words.next()?.to_owned())))
                .peekable();
            if pieces.peek().is_none() {
                break;
            }
            self.events
                .extend(pieces.map(|(index, text)| Event::Fragment(Fragment { index, text })));
        }
        self.events.extend(indices.into_iter().map(Event::BlockEnd));
        written_bytes
    }

    /// Cites a source in the open text.
    fn cite(&mut self, source: &str, text: &str) {
        let index = self.blocks.run(Block::Text, &mut self.events);
        let title = "On weirs";
        let json = json!({"type": "demo_citation", "url": source, "title": title});
        self.events.push(Event::Citation(Citation {
            index,
            source: Some(source.to_owned()),
            title: Some(title.to_owned()),
            cited_text: Some("A weir is a low dam.".to_owned()),
            span: Some(Span {
                start: 0,
                // The value is at most 24.
                end: text.chars().count() as u32,
            }),
            json: Some(json.to_string()),
        }));
    }

    /// Takes as much of a text as fits.
    fn fitting<'a>(&mut self, text: &'a str) -> &'a str {
        let fitting = &text[..text.floor_char_boundary(self.room_bytes)];
        self.room_bytes -= fitting.len();
        self.is_cut |= fitting.len() < text.len();
        fitting
    }
}

/// Distributes events over steps, as evenly as the maximum of steps permits.
fn steps(events: Vec<Event>, streams: bool, is_slow: bool) -> Vec<Vec<Event>> {
    let brings_text = |event: &Event| matches!(event, Event::Fragment(_));
    let word_count = events.iter().filter(|event| brings_text(event)).count();
    let min_step_words = if is_slow { 1 } else { MIN_STEP_WORDS };
    let step_words = if streams {
        word_count.div_ceil(MAX_TEXT_STEPS).max(min_step_words)
    } else {
        word_count.max(1)
    };
    let mut steps: Vec<Vec<Event>> = Vec::new();
    let mut words_in_step = step_words;
    for event in events {
        // A block begins in the step of its first word, and ends in the step of its last.
        let belongs_to_next =
            brings_text(&event) || matches!(event, Event::Started(_) | Event::BlockStart(_));
        if belongs_to_next && words_in_step == step_words {
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

/// Returns the tool that the client requires.
fn chosen_tool(chat: &ChatRequest) -> Result<Option<&Tool>, Failure> {
    let mut tools = chat.tools.iter();
    let (found, wanted) = match &chat.tool_choice {
        ToolChoice::Auto | ToolChoice::None => return Ok(None),
        ToolChoice::Named(name) => (tools.find(|tool| tool_name(tool) == name), name.as_str()),
        ToolChoice::Among(allowed) if !allowed.required => return Ok(None),
        // `/tool` may name another tool than the first, and `/tools` calls all.
        ToolChoice::Required | ToolChoice::Among(_) if asks_for_tool(chat) => return Ok(None),
        ToolChoice::Required => (tools.next(), "any tool"),
        ToolChoice::Among(_) => (
            tools.find(|tool| may_call(chat, tool)),
            "any of the allowed tools",
        ),
    };
    match found {
        Some(tool) => Ok(Some(tool)),
        None => Err(Failure::rejected(format!(
            "tool_choice: the request does not define {wanted}"
        ))
        .with_param("tool_choice")),
    }
}

/// Returns whether the last message's command itself calls a tool.
fn asks_for_tool(chat: &ChatRequest) -> bool {
    let mut words = last_user_message(chat)
        .into_iter()
        .flat_map(texts)
        .flat_map(str::split_whitespace);
    match (words.next(), words.next()) {
        (Some("/tool"), Some(name)) => {
            let mut tools = chat.tools.iter().filter(|tool| may_call(chat, tool));
            tools.any(|tool| tool_name(tool) == name)
        }
        (Some("/tools"), _) => callable_functions(chat).next().is_some(),
        _ => false,
    }
}

fn callable_functions(chat: &ChatRequest) -> impl Iterator<Item = &Tool> {
    let functions = chat.tools.iter();
    functions.filter(|tool| tool_kind(tool) == CallKind::Function && may_call(chat, tool))
}

fn may_call(chat: &ChatRequest, tool: &Tool) -> bool {
    match &chat.tool_choice {
        ToolChoice::None => false,
        ToolChoice::Among(allowed) => allowed.names.iter().any(|name| name == tool_name(tool)),
        ToolChoice::Auto | ToolChoice::Required | ToolChoice::Named(_) => true,
    }
}

fn tool_name(tool: &Tool) -> &str {
    match &tool.kind {
        ToolKind::Function(function) => &function.name,
        ToolKind::Custom(custom) => &custom.name,
        // Refused earlier.
        ToolKind::BuiltIn(_) => "",
    }
}

fn tool_kind(tool: &Tool) -> CallKind {
    match &tool.kind {
        ToolKind::Custom(_) => CallKind::Custom,
        ToolKind::Function(_) | ToolKind::BuiltIn(_) => CallKind::Function,
    }
}

fn default_input(tool: &Tool) -> &'static str {
    match tool_kind(tool) {
        CallKind::Function => "{}",
        CallKind::Custom => "please",
    }
}

fn check_arguments(command: &str, arguments: &str) -> Result<(), Failure> {
    match serde_json::from_str(arguments) {
        Ok(Value::Object(_)) => Ok(()),
        _ => Err(Failure::rejected(format!(
            "{command}: the arguments are not a JSON object"
        ))),
    }
}

fn finish_reason(word: &str) -> FinishReason {
    match word {
        "" | "stop" => FinishReason::Stop,
        "length" => FinishReason::Length,
        "content-filter" => FinishReason::ContentFilter,
        "pause-turn" => FinishReason::PauseTurn,
        "context-window" => FinishReason::ContextWindow,
        "malformed-call" => FinishReason::MalformedCall,
        other => FinishReason::Other(other.to_owned()),
    }
}

/// Returns the results of the tools, if they are the last message.
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
        ToolContent::File(_) => "(a file)",
        ToolContent::Opaque(opaque) => opaque.json.as_str(),
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

/// Counts the images, recordings and other attachments, if any.
fn attachments(message: &Message) -> String {
    let count = |is_kind: fn(&Content) -> bool| {
        let parts = message.parts.iter();
        parts.filter(|part| is_kind(&part.content)).count()
    };
    let counts = [
        (
            "images",
            count(|content| matches!(content, Content::Image(_))),
        ),
        (
            "recordings",
            count(|content| matches!(content, Content::Audio(_))),
        ),
        (
            "files",
            count(|content| matches!(content, Content::File(_))),
        ),
        (
            "opaque blocks",
            count(|content| matches!(content, Content::Opaque(_))),
        ),
    ];
    let some = counts.iter().filter(|(_, count)| *count > 0);
    let some: Vec<_> = some
        .map(|(name, count)| format!("{name}: {count}"))
        .collect();
    if some.is_empty() {
        String::new()
    } else {
        format!(" ({})", some.join(", "))
    }
}

/// Returns the position of the first stop sequence, and that sequence.
fn first_stop<'a>(text: &str, stop: &'a [String]) -> Option<(usize, &'a str)> {
    stop.iter()
        .filter(|sequence| !sequence.is_empty())
        .filter_map(|sequence| Some((text.find(sequence.as_str())?, sequence.as_str())))
        .min_by_key(|(at, _)| *at)
}

fn input_tokens(chat: &ChatRequest) -> u64 {
    let part_bytes = |content: &Content| match content {
        Content::Text(text) | Content::Refusal(text) => text.len(),
        Content::Reasoning(reasoning) => reasoning.text.len(),
        Content::ToolCall(call) => call.name.len() + call.arguments.len(),
        Content::ToolResult(result) => result_text(result).len(),
        // The demo model ignores them.
        Content::Image(_) | Content::Audio(_) | Content::File(_) | Content::Opaque(_) => 0,
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
            let (description, form) = match &tool.kind {
                ToolKind::Function(tool) => (&tool.description, tool.input_schema.as_str()),
                ToolKind::Custom(tool) => (&tool.description, tool.format.as_deref().unwrap_or("")),
                ToolKind::BuiltIn(_) => (&None, ""),
            };
            tool_name(tool).len() + description.as_ref().map_or(0, String::len) + form.len()
        })
        .sum();
    let suffix_bytes = suffix(chat).map_or(0, |suffix| suffix.len());
    tokens(message_bytes + tool_bytes + suffix_bytes)
}

fn tokens(bytes: usize) -> u64 {
    bytes.div_ceil(TOKEN_BYTES) as u64
}

/// Returns a text of this many words.
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
        .map_err(|_| Failure::rejected(format!("{command}: {text:?} is not a number")))
}

fn failure(kind: &str) -> Result<Failure, Failure> {
    let kind = match kind {
        "unsupported" => FailureKind::Unsupported,
        "rejected" => FailureKind::Rejected,
        "model-not-found" => FailureKind::ModelNotFound,
        "context-length" => FailureKind::ContextLength,
        "filtered" => FailureKind::Filtered,
        "unauthorized" => FailureKind::Unauthorized,
        "rate-limited" => FailureKind::RateLimited,
        "unavailable" => FailureKind::Unavailable,
        "malformed" => FailureKind::Malformed,
        _ => {
            return Err(Failure::rejected(format!(
                "/error: {kind:?} is none of those that /help lists"
            )));
        }
    };
    Ok(Failure {
        retry_after_ms: (kind == FailureKind::RateLimited).then_some(1000),
        ..Failure::new(kind, "because /error asked for it")
    })
}
