//! The adapter under a host's calls: one exchange from the request to the end of its response.

mod answers;
mod failures;
mod images;
mod recorded;
mod requests;
mod responses;

use serde_json::Value;
use weir_adapter_openai::translate::OpenAi;
use weir_sdk::adapter::{
    Attachment, BodyPart, Client, Event, Exchange, Failure, HttpRequest, HttpResponseHead, Request,
    Setting, StartedExchange, Step, Task,
};
use weir_sdk::chat::{
    ChatRequest, Content, Message, Part, ReasoningRequest, ResponseFormat, Role, ToolChoice,
};

const NO_REASONING: ReasoningRequest = ReasoningRequest {
    effort: None,
    budget_tokens: None,
    summary: None,
    adaptive: None,
};

/// A chat request with one text and no settings.
fn chat(text: &str) -> ChatRequest {
    ChatRequest {
        model: "gpt-test".to_owned(),
        messages: vec![message(Role::User, vec![Content::Text(text.to_owned())])],
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

fn message(role: Role, contents: Vec<Content>) -> Message {
    Message {
        role,
        name: None,
        parts: contents.into_iter().map(part).collect(),
        extra: Vec::new(),
    }
}

fn part(content: Content) -> Part {
    Part {
        content,
        cache: None,
        signature: None,
        provider: None,
        extra: Vec::new(),
    }
}

fn setting(name: &str, value: &str) -> Setting {
    (name.to_owned(), value.to_owned())
}

/// A request of a client of another dialect, with a picture, a document and a recording.
fn request(chat: ChatRequest) -> Request {
    let attachment = |media_type: &str| Attachment {
        media_type: media_type.to_owned(),
        size_bytes: 4,
    };
    Request {
        task: Task::Chat(chat),
        attachments: vec![
            attachment("image/png"),
            attachment("application/pdf"),
            attachment("audio/x-wav"),
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

/// The request of a client of the adapter's own dialect.
fn request_of_same_dialect(chat: ChatRequest) -> Request {
    let mut request = request(chat);
    request.client.dialect = OpenAi::describe().dialect;
    request
}

fn begin(request: Request, options: &[Setting]) -> Result<StartedExchange<OpenAi>, Failure> {
    let configuration = OpenAi::configure(options).expect("options that can be");
    OpenAi::begin(request, &configuration)
}

/// Returns the adapter's request, and its ignored fields.
fn send(request: Request, options: &[Setting]) -> Result<(HttpRequest, Vec<String>), Failure> {
    let begun = begin(request, options)?;
    match begun.step {
        Step::Send(request) => Ok((request, begun.ignored)),
        other => panic!("expected a request, got {other:?}"),
    }
}

/// Returns the body as the host assembles it, with `<n>` in place of attachment `n`.
fn joined_body(request: &HttpRequest) -> String {
    let parts = request.body.iter().map(|part| match part {
        BodyPart::Bytes(bytes) => String::from_utf8(bytes.clone()).expect("UTF-8"),
        BodyPart::Base64Of(attachment) => format!("<{attachment}>"),
        BodyPart::Attached(_) => panic!("nothing goes as it is"),
    });
    parts.collect()
}

fn sent(request: Request, options: &[Setting]) -> Value {
    let (request, _) = send(request, options).expect("a request that can be expressed");
    serde_json::from_str(&joined_body(&request)).expect("JSON")
}

/// Returns the events of a response in these pieces, and the failure after them.
fn receive_all<'a>(
    status: u16,
    headers: &[(&str, &str)],
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<Event>, Result<(), Failure>) {
    let chat = ChatRequest {
        stream: true,
        ..chat("hello")
    };
    let mut exchange = begin(request(chat), &[]).expect("a request").exchange;
    let mut events = Vec::new();
    let head = HttpResponseHead {
        status,
        headers: headers
            .iter()
            .map(|(name, value)| setting(name, value))
            .collect(),
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
    (events, result)
}

/// Returns the events of a complete response.
fn receive<'a>(
    status: u16,
    headers: &[(&str, &str)],
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Vec<Event>, Failure> {
    let (events, result) = receive_all(status, headers, pieces);
    result.map(|()| events)
}

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];
const EVENT_STREAM: &[(&str, &str)] = &[("content-type", "text/event-stream; charset=utf-8")];
