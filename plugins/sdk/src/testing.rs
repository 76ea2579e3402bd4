//! Helpers for tests of adapters: requests to translate, an exchange driven as the host does it, and
//! responses broken on purpose.
//!
//! They need the feature `testing`, which only tests turn on.

mod mutator;
mod recorded;

pub use mutator::Mutator;
pub use recorded::{
    AnswerFixture, check_every_beginning_of_recorded, check_every_cut_of_recorded,
    check_mutations_of_recorded, recorded,
};

use serde_json::Value;
use serde_json::value::RawValue;

use crate::adapter::{
    Attachment, BodyPart, Client, Event, Exchange, Failure, FailureKind, HttpResponseHead, Request,
    Setting, Step, Task,
};
use crate::chat::{
    Block, CallKind, ChatRequest, Citation, Content, File, FinishReason, Fragment, FunctionTool,
    Image, ImageRequest, Media, Message, Part, Reasoning, ReasoningRequest, ResponseFormat, Role,
    Source, Tool, ToolCall, ToolChoice, ToolContent, ToolKind, ToolResult, Usage,
};
use crate::filter;

/// The headers of a stream of Amazon Bedrock.
pub const AWS_STREAM: &[(&str, &str)] = &[("content-type", "application/vnd.amazon.eventstream")];

/// One message of such a stream.
pub fn aws_message(headers: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
    crate::aws::encoded(headers, payload)
}

/// Nothing asked about reasoning.
pub const NO_REASONING: ReasoningRequest = ReasoningRequest {
    effort: None,
    budget_tokens: None,
    summary: None,
    adaptive: None,
};

/// The headers of an answer that is not streamed.
pub const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

/// The headers of a stream of server-sent events.
pub const EVENT_STREAM: &[(&str, &str)] = &[("content-type", "text/event-stream; charset=utf-8")];

/// A chat request that says one thing and sets nothing else.
pub fn chat(said: &str) -> ChatRequest {
    with_messages(vec![message(Role::User, vec![text(said)])])
}

/// A chat request of these messages.
pub fn with_messages(messages: Vec<Message>) -> ChatRequest {
    ChatRequest {
        model: "model-1".to_owned(),
        messages,
        tools: Vec::new(),
        tool_choice: ToolChoice::Auto,
        parallel_tool_calls: None,
        response_format: ResponseFormat::Text,
        reasoning: NO_REASONING,
        modalities: Vec::new(),
        max_output_tokens: 100,
        temperature: None,
        top_p: None,
        top_k: None,
        presence_penalty: None,
        frequency_penalty: None,
        seed: None,
        stop: Vec::new(),
        extra: Vec::new(),
        stream: false,
    }
}

/// A request for an image that sets nothing else.
pub fn image_request(prompt: &str) -> ImageRequest {
    ImageRequest {
        model: "model-1".to_owned(),
        prompt: prompt.to_owned(),
        inputs: Vec::new(),
        mask: None,
        count: 1,
        size: None,
        quality: None,
        background: None,
        media_type: None,
        extra: Vec::new(),
        stream: false,
    }
}

/// A message of these contents.
pub fn message(role: Role, contents: Vec<Content>) -> Message {
    Message {
        role,
        name: None,
        parts: contents.into_iter().map(part).collect(),
        extra: Vec::new(),
    }
}

/// A part about which nothing else is said.
pub fn part(content: Content) -> Part {
    Part {
        content,
        cache: None,
        signature: None,
        provider: None,
        extra: Vec::new(),
    }
}

/// A text.
pub fn text(text: &str) -> Content {
    Content::Text(text.to_owned())
}

/// An image.
pub fn image(source: Source) -> Content {
    Content::Image(Image {
        source,
        detail: None,
    })
}

/// An image that is somewhere else.
pub fn remote_image() -> Content {
    image(Source::Url("https://example.com/a.png".to_owned()))
}

/// A document.
pub fn file(source: Source) -> File {
    File {
        source,
        name: None,
        media_type: None,
        title: None,
        context: None,
        cite: None,
    }
}

/// Readable reasoning of a model.
pub fn reasoning(text: &str) -> Content {
    Content::Reasoning(Reasoning {
        text: text.to_owned(),
        sealed: None,
        id: None,
    })
}

/// A call of a function.
pub fn call(id: &str, name: &str, arguments: &str) -> Content {
    Content::ToolCall(ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        kind: CallKind::Function,
        arguments: arguments.to_owned(),
    })
}

/// The result of a tool.
pub fn result(call_id: &str, content: Vec<ToolContent>, is_error: bool) -> Content {
    Content::ToolResult(ToolResult {
        call_id: call_id.to_owned(),
        tool_name: None,
        content,
        is_error,
    })
}

/// A function without parameters.
pub fn function(name: &str) -> Tool {
    tool(ToolKind::Function(FunctionTool {
        name: name.to_owned(),
        description: None,
        input_schema: r#"{"type":"object"}"#.to_owned(),
        strict: None,
    }))
}

/// A tool about which nothing else is said.
pub fn tool(kind: ToolKind) -> Tool {
    Tool {
        kind,
        cache: None,
        extra: Vec::new(),
    }
}

/// A name and what it stands for: a header, an option, an extra field.
pub fn pair(name: &str, value: &str) -> Setting {
    (name.to_owned(), value.to_owned())
}

/// A request of a client that speaks a dialect of its own, with a picture, a document and a
/// recording.
pub fn request(chat: ChatRequest) -> Request {
    request_of(Task::Chat(chat))
}

/// The same for any task.
pub fn request_of(task: Task) -> Request {
    let attachment = |media_type: &str| Attachment {
        media_type: media_type.to_owned(),
        size_bytes: 4,
    };
    Request {
        task,
        attachments: vec![
            attachment("image/png"),
            attachment("application/pdf"),
            attachment("audio/wav"),
        ],
        client: Client {
            dialect: "another".to_owned(),
            headers: Vec::new(),
            end_user: None,
        },
        attempt: 1,
        deadline_ms: 60_000,
    }
}

/// A filter's request for a task that these providers may serve.
pub fn screened(task: Task, providers: &[&str], input_tokens: u64) -> filter::Request {
    let upstream = |provider: &&str| filter::Upstream {
        provider: (*provider).to_owned(),
        model: "model-1".to_owned(),
    };
    filter::Request {
        task: match task {
            Task::Chat(chat) => filter::Task::Chat(chat),
            Task::Image(image) => filter::Task::Image(image),
        },
        attachments: Vec::new(),
        dialect: "another".to_owned(),
        plan: "free".to_owned(),
        input_tokens,
        upstreams: providers.iter().map(upstream).collect(),
    }
}

/// The same of a client that speaks the adapter's own dialect.
pub fn request_of_same_dialect<E: Exchange>(chat: ChatRequest) -> Request {
    let mut request = request(chat);
    request.client.dialect = E::describe().dialect;
    request
}

/// The request of an adapter.
#[derive(Debug)]
pub struct SentRequest {
    /// Path and query.
    pub path: String,
    /// Its headers.
    pub headers: Vec<Setting>,
    /// The body, with `<n>` where attachment `n` goes in base64, `[n]` where it goes as it is.
    pub text: String,
    /// The same, read; null where it is not JSON by its header.
    pub body: Value,
    /// The names of omitted fields.
    pub ignored: Vec<String>,
}

/// Translates a request, and checks that the adapter described all that it sends.
///
/// # Errors
///
/// The adapter's refusal.
///
/// # Panics
///
/// If the adapter asks for another step, or for more than it described.
pub fn send<E: Exchange>(request: Request, options: &[Setting]) -> Result<SentRequest, Failure> {
    let configuration = E::configure(options).expect("options that can be");
    let begun = E::begin(request, &configuration)?;
    let Step::Send(request) = begun.step else {
        panic!("expected a request, got {:?}", begun.step);
    };
    let described = E::describe();
    assert_eq!(request.method, "POST");
    let mut prefixes = described.path_prefixes.iter();
    assert!(prefixes.any(|prefix| request.path.starts_with(prefix)));
    for (name, _) in &request.headers {
        assert!(described.request_headers.contains(name), "{name}");
    }
    let parts = request.body.iter().map(|part| match part {
        BodyPart::Bytes(bytes) => String::from_utf8(bytes.clone()).expect("UTF-8"),
        BodyPart::Base64Of(attachment) => format!("<{attachment}>"),
        BodyPart::Attached(attachment) => format!("[{attachment}]"),
    });
    let text: String = parts.collect();
    let is_json = request
        .headers
        .contains(&pair("content-type", "application/json"));
    Ok(SentRequest {
        path: request.path,
        headers: request.headers,
        body: match is_json {
            true => serde_json::from_str(&text).expect("JSON"),
            false => Value::Null,
        },
        text,
        ignored: begun.ignored,
    })
}

/// The body that an adapter sends for a chat request in another dialect.
///
/// # Panics
///
/// If the adapter refuses the request.
pub fn body<E: Exchange>(chat: ChatRequest) -> Value {
    send::<E>(request(chat), &[])
        .expect("a request that can be expressed")
        .body
}

/// The field that an adapter names when it refuses a chat request in another dialect.
///
/// # Panics
///
/// If the adapter does not refuse the request.
pub fn refused_field<E: Exchange>(chat: ChatRequest) -> String {
    let failure = send::<E>(request(chat), &[]).expect_err("a refusal");
    assert_eq!(failure.kind, FailureKind::Unsupported);
    failure.param.expect("a field to blame")
}

/// The events of a response that arrives in these pieces, and the failure after them. Checks that the
/// events are in a valid order.
///
/// # Panics
///
/// If the order is invalid.
pub fn receive<'a, E: Exchange>(
    chat: ChatRequest,
    status: u16,
    headers: &[(&str, &str)],
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<Event>, Result<(), Failure>) {
    receive_for::<E>(Task::Chat(chat), status, headers, pieces)
}

/// The same for any task.
///
/// # Panics
///
/// As for [`receive`].
pub fn receive_for<'a, E: Exchange>(
    task: Task,
    status: u16,
    headers: &[(&str, &str)],
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<Event>, Result<(), Failure>) {
    let configuration = E::configure(&[]).expect("no options");
    let mut exchange = E::begin(request_of(task), &configuration)
        .expect("a request")
        .exchange;
    let mut events = Vec::new();
    let headers = headers.iter().map(|(name, value)| pair(name, value));
    let head = HttpResponseHead {
        status,
        headers: headers.collect(),
    };
    let read = || {
        exchange.head(head)?;
        for piece in pieces {
            exchange.body(piece, &mut events)?;
        }
        exchange.end(&mut events)?;
        assert_eq!(exchange.next(), Ok(Step::Done));
        Ok(())
    };
    let result = read();
    check_order(&events, result.is_ok());
    (events, result)
}

/// A request for a streamed response.
pub fn streamed(said: &str) -> ChatRequest {
    ChatRequest {
        stream: true,
        ..chat(said)
    }
}

/// The events of a complete response, as lines.
///
/// # Panics
///
/// If the response is incomplete.
pub fn read<E: Exchange>(headers: &[(&str, &str)], answer: &str) -> Vec<String> {
    let (events, result) = receive::<E>(streamed(""), 200, headers, [answer.as_bytes()]);
    assert_eq!(result, Ok(()), "after {:#?}", lines(&events));
    lines(&events)
}

/// The failure of a response, and the lines before it.
///
/// # Panics
///
/// If the response does not fail.
pub fn fails<E: Exchange>(headers: &[(&str, &str)], answer: &str) -> (Vec<String>, Failure) {
    let (events, result) = receive::<E>(streamed(""), 200, headers, [answer.as_bytes()]);
    (lines(&events), result.expect_err("a failure"))
}

/// The failure of a response with this status.
///
/// # Panics
///
/// If the response does not fail.
pub fn failure<E: Exchange>(status: u16, headers: &[(&str, &str)], body: &str) -> Failure {
    let (events, result) = receive::<E>(streamed(""), status, headers, [body.as_bytes()]);
    assert_eq!(events, []);
    result.expect_err("a failure")
}

/// Checks that a response gives the same events for every cut.
///
/// # Panics
///
/// If the events differ.
pub fn check_every_cut<E: Exchange>(headers: &[(&str, &str)], answer: &str) {
    let bytes = answer.as_bytes();
    let uncut = receive::<E>(streamed(""), 200, headers, [bytes]);
    assert_eq!(uncut.1, Ok(()));
    for at in 0..=bytes.len() {
        let (first, second) = bytes.split_at(at);
        let cut = receive::<E>(streamed(""), 200, headers, [first, second]);
        assert_eq!(cut, uncut, "cut at {at}");
    }
    let cut = receive::<E>(streamed(""), 200, headers, bytes.chunks(1));
    assert_eq!(cut, uncut);
}

/// Checks that each beginning of a response fails as malformed. `last` is the text that completes the
/// response; beginnings that contain it are not checked.
///
/// # Panics
///
/// If a beginning does not fail.
pub fn check_every_truncation<E: Exchange>(headers: &[(&str, &str)], answer: &str, last: &str) {
    let complete = answer.rfind(last).expect("the answer has it") + last.len();
    for end in 0..complete {
        let bytes = &answer.as_bytes()[..end];
        let (_, result) = receive::<E>(streamed(""), 200, headers, [bytes]);
        let failure = result.expect_err("what is cut is not whole");
        assert_eq!(failure.kind, FailureKind::Malformed, "cut at {end}");
    }
}

/// Reads answers broken in many ways, which must give events in order or a failure, and never
/// panic. The same ways each time.
///
/// # Panics
///
/// If one is read otherwise.
pub fn check_mutations<E: Exchange>(headers: &[(&str, &str)], answers: &[&str]) {
    const TIMES: u64 = 400;
    let others: Vec<&[u8]> = answers.iter().map(|answer| answer.as_bytes()).collect();
    for (seed, answer) in (1..).zip(answers) {
        let mut mutator = Mutator::new(seed);
        for _ in 0..TIMES {
            let bytes = mutator.mutated(answer.as_bytes(), &others);
            let piece_bytes = 1 + mutator.below(64);
            let pieces = bytes.chunks(piece_bytes);
            let (events, result) = receive::<E>(streamed(""), 200, headers, pieces);
            let whole = receive::<E>(streamed(""), 200, headers, [&bytes[..]]);
            assert_eq!((events, result.is_ok()), (whole.0, whole.1.is_ok()));
        }
    }
}

/// Checks what the host checks of events: blocks are numbered in turn, pieces belong to open blocks,
/// all end before the finish, which is last; and a whole answer's function is called with an object.
fn check_order(events: &[Event], is_whole: bool) {
    let mut open: Vec<(u32, &Block, String)> = Vec::new();
    let mut begun = 0;
    let mut finish = None;
    let mut calls = Vec::new();
    // Bytes of images may come before everything else.
    let in_order = events
        .iter()
        .filter(|event| !matches!(event, Event::MediaBytes(_)));
    for (at, event) in in_order.enumerate() {
        assert_eq!(finish, None, "an event after the finish");
        match event {
            Event::Started(_) => assert_eq!(at, 0, "a start after the first event"),
            Event::BlockStart(start) => {
                assert_eq!(start.index, begun);
                begun += 1;
                open.push((start.index, &start.block, String::new()));
            }
            Event::Opaque(opaque) => {
                assert_eq!(opaque.index, begun);
                begun += 1;
                let json: &RawValue = serde_json::from_str(&opaque.block.json).expect("JSON");
                assert!(json.get().starts_with('{'));
            }
            Event::Fragment(piece) | Event::Signature(piece) | Event::Sealed(piece) => {
                let found = open.iter_mut().find(|(index, _, _)| *index == piece.index);
                let (_, block, said) = found.expect("a piece of an open block");
                match event {
                    Event::Fragment(_) => said.push_str(&piece.text),
                    Event::Sealed(_) => assert_eq!(**block, Block::Reasoning),
                    _ => {}
                }
            }
            Event::Citation(Citation { index, .. }) | Event::Logprobs(Fragment { index, .. }) => {
                let found = open.iter().find(|(known, _, _)| known == index);
                let (_, block, _) = found.expect("an open block");
                assert!(matches!(block, Block::Text | Block::Refusal));
            }
            Event::BlockEnd(index) => {
                let position = open.iter().position(|(known, _, _)| known == index);
                let (_, block, said) = open.remove(position.expect("an open block"));
                if let Block::ToolCall(call) = block {
                    assert!(!call.name.is_empty());
                    if call.kind == CallKind::Function {
                        calls.push(said);
                    }
                }
            }
            Event::MediaBytes(_) | Event::Media(_) | Event::Usage(_) => {}
            Event::Finish(reason) => {
                assert!(open.is_empty(), "a finish before every block has ended");
                finish = Some(reason);
            }
        }
    }
    assert_eq!(
        finish.is_some(),
        is_whole,
        "a finish is what a whole answer has"
    );
    if finish == Some(&FinishReason::ToolCalls) {
        assert!(!calls.iter().any(String::is_empty), "a call with nothing");
    }
}

/// The bytes of an image, those that came before it too.
pub fn image_bytes(events: &[Event], media: &Media) -> Vec<u8> {
    let pieces = events.iter().filter_map(|event| match event {
        Event::MediaBytes(piece) if Some(piece.id) == media.bytes_before => Some(&piece.data),
        _ => None,
    });
    pieces.chain([&media.data]).flatten().copied().collect()
}

/// The events with each image whole, which is what they come to in however many pieces its bytes come.
pub fn assembled(mut events: Vec<Event>) -> Vec<Event> {
    let all = events.clone();
    events.retain_mut(|event| match event {
        Event::MediaBytes(_) => false,
        Event::Media(media) => {
            media.data = image_bytes(&all, media);
            media.bytes_before = None;
            true
        }
        _ => true,
    });
    events
}

/// Events as lines to compare, with the pieces of each block and of each image joined.
pub fn lines(events: &[Event]) -> Vec<String> {
    let mut lines: Vec<(Option<(u32, &str)>, String)> = Vec::new();
    for event in events {
        let (what, line) = match event {
            Event::MediaBytes(_) => continue,
            Event::Media(media) => (None, media_line(media, events)),
            Event::Fragment(piece) => (Some((piece.index, "")), piece.text.clone()),
            Event::Signature(piece) => (Some((piece.index, " signature")), piece.text.clone()),
            Event::Sealed(piece) => (Some((piece.index, " sealed")), piece.text.clone()),
            other => (None, line(other)),
        };
        match lines.last_mut() {
            Some((last, joined)) if what.is_some() && *last == what => joined.push_str(&line),
            _ => lines.push((what, line)),
        }
    }
    let lines = lines.into_iter().map(|(what, line)| match what {
        Some((index, name)) => format!("{index}{name}: {line}"),
        None => line,
    });
    lines.collect()
}

fn line(event: &Event) -> String {
    let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    match event {
        Event::Started(started) => {
            format!("started {} {}", known(&started.id), known(&started.model))
        }
        Event::BlockStart(start) => match &start.block {
            Block::Text => format!("{} text", start.index),
            Block::Refusal => format!("{} refusal", start.index),
            Block::Reasoning => format!("{} reasoning", start.index),
            Block::ToolCall(call) => {
                let custom = match call.kind {
                    CallKind::Function => "",
                    CallKind::Custom => " with free text",
                };
                format!("{} call {} {}{custom}", start.index, call.id, call.name)
            }
        },
        Event::Citation(citation) => {
            let span = citation.span.as_ref();
            let span =
                span.map_or_else(String::new, |span| format!(" {}..{}", span.start, span.end));
            format!(
                "{} cites {} {} {}{span}",
                citation.index,
                known(&citation.source),
                known(&citation.title),
                known(&citation.cited_text),
            )
        }
        Event::Logprobs(piece) => format!("{} logprobs {}", piece.index, piece.text),
        Event::BlockEnd(index) => format!("{index} ends"),
        Event::Opaque(opaque) => format!(
            "{} {} {}",
            opaque.index, opaque.block.kind, opaque.block.json
        ),
        Event::Usage(usage) => format!("usage{}", counts(usage)),
        Event::Finish(reason) => {
            // As generated, with the type's name.
            let reason = format!("{reason:?}");
            format!("finish {}", reason.trim_start_matches("FinishReason::"))
        }
        Event::Fragment(_)
        | Event::Signature(_)
        | Event::Sealed(_)
        | Event::MediaBytes(_)
        | Event::Media(_) => String::new(),
    }
}

fn media_line(media: &Media, events: &[Event]) -> String {
    let what = match media.is_preview {
        true => "preview",
        false => "media",
    };
    let place = match &media.url {
        Some(url) => format!("at {url}"),
        None => format!("of {} bytes", image_bytes(events, media).len()),
    };
    let revised = media.revised_prompt.as_ref();
    let revised = revised.map_or_else(String::new, |prompt| format!(" for {prompt:?}"));
    format!("{what} {} {place}{revised}", media.media_type)
}

fn counts(usage: &Usage) -> String {
    let counts = [
        ("in", usage.input_tokens),
        ("read", usage.cache_read_tokens),
        ("write", usage.cache_write_short_tokens),
        ("write-long", usage.cache_write_long_tokens),
        ("out", usage.output_tokens),
        ("reasoning", usage.reasoning_tokens),
        ("images", usage.images.map(u64::from)),
    ];
    let counts = counts
        .into_iter()
        .filter_map(|(name, count)| Some((name, count?)));
    let other = usage
        .other
        .iter()
        .map(|other| (other.name.as_str(), other.count));
    let counts = counts
        .chain(other)
        .map(|(name, count)| format!(" {name}={count}"));
    counts.collect()
}
