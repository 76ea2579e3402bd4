//! The adapter.

use std::cell::{Cell, RefCell};

use serde::Deserialize;
use serde_json::json;

use crate::bindings::exports::weir::plugin::adapter::{
    Begun, BodyPart, CredentialSlot, Description, Exchange, Failure, FailureKind, Guest,
    GuestExchange, HttpRequest, HttpResponseHead, Progress, RefusedSetting, Request, Setting, Step,
    Task,
};
use crate::bindings::exports::weir::plugin::long_texts::{self, Beginning, LongText};
use crate::bindings::weir::plugin::chat::{
    Block, BlockStart, Content, Event, FinishReason, Fragment, ToolContent,
};

/// A command.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Command {
    /// The texts to read in each beginning, before the exchange begins.
    read: Vec<Vec<u32>>,
    /// The body of a request.
    parts: Vec<Part>,
    /// The number of times that the body has each part which is no piece of JSON.
    times: Option<usize>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Part {
    Json(String),
    Attached(u32),
    Base64(u32),
}

/// The component.
pub(crate) struct Adapter;

/// The rest of one exchange.
pub(crate) struct Misuse(RefCell<Vec<Step>>);

thread_local! {
    static ROUNDS: Cell<usize> = const { Cell::new(0) };
}

impl Guest for Adapter {
    type Exchange = Misuse;

    fn describe() -> Description {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        Description {
            name: "misreading".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            dialect: "openai-chat".into(),
            credential: CredentialSlot::Bearer,
            capabilities: names(&["chat", "long-texts"]),
            options: Vec::new(),
            request_headers: names(&["content-type"]),
            response_headers: Vec::new(),
            path_prefixes: names(&["/"]),
        }
    }

    fn configure(_: Vec<Setting>) -> Result<Vec<u8>, RefusedSetting> {
        Ok(Vec::new())
    }
}

impl long_texts::Guest for Adapter {
    fn begin(request: Request, texts: Vec<LongText>, _: Vec<u8>) -> Result<Beginning, Failure> {
        let round = ROUNDS.replace(ROUNDS.get() + 1);
        if let Some(read) = command(&request)?.read.get(round) {
            return Ok(Beginning::Read(read.clone()));
        }
        begun(&request, &texts).map(Beginning::Begun)
    }
}

impl GuestExchange for Misuse {
    fn begin(request: Request, _: Vec<u8>) -> Result<Begun, Failure> {
        begun(&request, &[])
    }

    fn next(&self) -> Result<Step, Failure> {
        Ok(self.0.borrow_mut().pop().unwrap_or(Step::Done))
    }

    fn head(&self, _: HttpResponseHead) -> Result<(), Failure> {
        Ok(())
    }

    fn body(&self, _: Vec<u8>) -> Progress {
        progress(Vec::new())
    }

    fn end(&self) -> Progress {
        progress(text("sent".into()))
    }
}

fn progress(events: Vec<Event>) -> Progress {
    Progress {
        events,
        failure: None,
    }
}

fn begun(request: &Request, texts: &[LongText]) -> Result<Begun, Failure> {
    let command = command(request)?;
    let step = match command.parts.is_empty() {
        true => {
            let seen = json!({ "texts": seen_texts(request), "long": texts });
            Step::Emit(text(seen.to_string()))
        }
        false => Step::Send(HttpRequest {
            method: "POST".into(),
            path: "/chat/completions".into(),
            headers: vec![("content-type".into(), "application/json".into())],
            body: body(&command),
        }),
    };
    Ok(Begun {
        exchange: Exchange::new(Misuse(RefCell::default())),
        step,
        ignored: Vec::new(),
    })
}

fn body(command: &Command) -> Vec<BodyPart> {
    let mut body = Vec::new();
    for part in &command.parts {
        let (part, times) = match part {
            Part::Json(json) => (BodyPart::Bytes(json.clone().into_bytes()), 1),
            Part::Attached(index) => (BodyPart::Attached(*index), command.times.unwrap_or(1)),
            Part::Base64(index) => (BodyPart::Base64Of(*index), command.times.unwrap_or(1)),
        };
        body.extend(vec![part; times]);
    }
    body
}

fn text(text: String) -> Vec<Event> {
    vec![
        Event::BlockStart(BlockStart {
            index: 0,
            block: Block::Text,
        }),
        Event::Fragment(Fragment { index: 0, text }),
        Event::BlockEnd(0),
        Event::Finish(FinishReason::Stop),
    ]
}

/// The texts of the messages and of the tools' results.
fn seen_texts(request: &Request) -> Vec<&str> {
    let Task::Chat(chat) = &request.task else {
        return Vec::new();
    };
    let parts = chat.messages.iter().flat_map(|message| &message.parts);
    let mut texts = Vec::new();
    for part in parts {
        match &part.content {
            Content::Text(text) => texts.push(text.as_str()),
            Content::ToolResult(result) => {
                texts.extend(result.content.iter().filter_map(|content| match content {
                    ToolContent::Text(text) => Some(text.as_str()),
                    _ => None,
                }));
            }
            _ => {}
        }
    }
    texts
}

fn command(request: &Request) -> Result<Command, Failure> {
    let texts = seen_texts(request);
    let last = texts.last().filter(|text| text.starts_with('{'));
    let command = last.map(|command| serde_json::from_str(command));
    let command = command.transpose().map_err(|error| Failure {
        kind: FailureKind::Unsupported,
        text: error.to_string(),
        param: None,
        retry_after_ms: None,
        code: None,
        upstream_error: None,
    })?;
    Ok(command.unwrap_or_default())
}
