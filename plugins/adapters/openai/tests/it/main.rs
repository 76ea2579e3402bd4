//! The adapter as the host drives it: one exchange from the request to the end of its answer.

mod answers;
mod failures;
mod requests;

use weir_adapter_openai::translate::OpenAi;
use weir_sdk::adapter::{
    Event, Exchange, Failure, HttpRequest, HttpResponseHead, Request, Setting, Step,
};
use weir_sdk::chat::{
    ChatRequest, Content, Message, Part, ReasoningRequest, ResponseFormat, Role, ToolChoice,
};

/// A chat request that says one thing and sets nothing else.
fn chat(text: &str) -> ChatRequest {
    ChatRequest {
        model: "gpt-test".to_owned(),
        messages: vec![message(Role::User, vec![Content::Text(text.to_owned())])],
        tools: Vec::new(),
        tool_choice: ToolChoice::Auto,
        parallel_tool_calls: None,
        response_format: ResponseFormat::Text,
        reasoning: ReasoningRequest::Unspecified,
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
        parts: contents
            .into_iter()
            .map(|content| Part {
                content,
                cache: None,
                signature: None,
            })
            .collect(),
    }
}

fn setting(name: &str, value: &str) -> Setting {
    (name.to_owned(), value.to_owned())
}

/// What the adapter sends for a request.
fn send(chat: ChatRequest, options: &[Setting]) -> Result<HttpRequest, Failure> {
    let mut exchange = OpenAi::begin(Request::Chat(chat), options.to_vec())?;
    match exchange.next()? {
        Step::Send(request) => Ok(request),
        other => panic!("expected a request, got {other:?}"),
    }
}

/// The events of a response that arrives in these pieces.
fn receive<'a>(
    status: u16,
    headers: &[(&str, &str)],
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Result<Vec<Event>, Failure> {
    let request = ChatRequest {
        stream: true,
        ..chat("hello")
    };
    let mut exchange = OpenAi::begin(Request::Chat(request), Vec::new())?;
    exchange.next()?;
    exchange.head(HttpResponseHead {
        status,
        headers: headers
            .iter()
            .map(|(name, value)| setting(name, value))
            .collect(),
    })?;
    let mut events = Vec::new();
    for piece in pieces {
        events.extend(exchange.body(piece)?);
    }
    events.extend(exchange.end()?);
    assert_eq!(exchange.next(), Ok(Step::Done));
    Ok(events)
}

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];
const EVENT_STREAM: &[(&str, &str)] = &[("content-type", "text/event-stream; charset=utf-8")];
