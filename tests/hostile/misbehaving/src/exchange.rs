//! The adapter: plays a script of steps, and commits the commanded fault on the way.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::Read;
use std::net::{TcpStream, ToSocketAddrs};

use serde_json::{Value, json};

use crate::bindings::exports::weir::plugin::adapter::{
    CredentialSlot, Description, Event, Exchange, Failure, Guest, GuestExchange, HttpRequest,
    HttpResponseHead, Request, Setting, Step,
};
use crate::bindings::weir::plugin::chat;
use crate::command::{Answer, Behaviour, Command, Fault, Place, plain_request};
use crate::fault;

/// The component.
pub(crate) struct Adapter;

/// One exchange: what remains to be done.
pub(crate) struct Script {
    fault: Option<(Place, Fault)>,
    failure: Option<(Place, Failure)>,
    committed: Cell<bool>,
    steps: RefCell<VecDeque<Step>>,
    forever: bool,
    response: RefCell<Response>,
    /// Whether a response was answered with a text that still wants its `finish`.
    unfinished: Cell<bool>,
}

#[derive(Default)]
struct Response {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    pieces: Vec<usize>,
}

impl Guest for Adapter {
    type Exchange = Script;

    fn describe() -> Description {
        Description {
            name: "misbehaving".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            credential: CredentialSlot::Bearer,
            serves_chat: true,
            serves_images: true,
            options: vec!["option".into()],
        }
    }
}

impl GuestExchange for Script {
    fn begin(request: Request, options: Vec<Setting>) -> Result<Exchange, Failure> {
        let script = match Command::parse(last_user_message(&request))? {
            Some(command) => Script::obey(command, &request, &options),
            None => Script::plain(healthy()),
        };
        script.arrive(Place::Begin)?;
        Ok(Exchange::new(script))
    }

    fn next(&self) -> Result<Step, Failure> {
        self.arrive(Place::Next)?;
        let mut steps = self.steps.borrow_mut();
        if let Some(step) = steps.pop_front() {
            if self.forever {
                steps.push_back(step.clone());
            }
            return Ok(step);
        }
        if self.unfinished.take() {
            return Ok(Step::Emit(vec![
                usage(),
                Event::Finish(chat::FinishReason::Stop),
            ]));
        }
        Ok(Step::Done)
    }

    fn head(&self, head: HttpResponseHead) -> Result<(), Failure> {
        self.arrive(Place::Head)?;
        self.response.replace(Response {
            status: head.status,
            headers: head.headers,
            ..Response::default()
        });
        Ok(())
    }

    fn body(&self, bytes: Vec<u8>) -> Result<Vec<Event>, Failure> {
        self.arrive(Place::Body)?;
        let mut response = self.response.borrow_mut();
        response.pieces.push(bytes.len());
        response.body.extend(bytes);
        Ok(Vec::new())
    }

    fn end(&self) -> Result<Vec<Event>, Failure> {
        self.arrive(Place::End)?;
        let response = self.response.take();
        self.unfinished.set(true);
        Ok(text(
            json!({
                "status": response.status,
                "headers": response.headers,
                "body": String::from_utf8_lossy(&response.body),
                "pieces": response.pieces,
            })
            .to_string(),
        ))
    }
}

impl Script {
    fn plain(steps: Vec<Step>) -> Self {
        Self {
            fault: None,
            failure: None,
            committed: Cell::new(false),
            steps: RefCell::new(steps.into()),
            forever: false,
            response: RefCell::default(),
            unfinished: Cell::new(false),
        }
    }

    fn obey(command: Command, request: &Request, options: &[Setting]) -> Self {
        let place = command.place;
        let on_the_way = match place {
            Place::Begin | Place::Next => healthy(),
            Place::Head | Place::Body | Place::End => vec![Step::Send(plain_request())],
        };
        match command.behaviour {
            Behaviour::Fault(fault) => Self {
                fault: Some((place, fault)),
                ..Self::plain(on_the_way)
            },
            Behaviour::Answer(answer) => match answer {
                Answer::Script { steps, forever } => Self {
                    forever,
                    ..Self::plain(steps)
                },
                Answer::Send {
                    method,
                    path,
                    headers,
                    body,
                    times,
                } => {
                    let send = Step::Send(HttpRequest {
                        method,
                        path,
                        headers,
                        body: body.into_bytes(),
                    });
                    Self::plain(vec![send; times])
                }
                Answer::Fail { failure } => Self {
                    failure: Some((place, failure)),
                    ..Self::plain(on_the_way)
                },
                Answer::NeverDone { wait } => {
                    let step = wait.map_or(Step::Emit(Vec::new()), Step::Wait);
                    Self {
                        forever: true,
                        ..Self::plain(vec![step])
                    }
                }
                Answer::Text { bytes } => Self::plain(answer_of("x".repeat(bytes))),
                Answer::Utf8 => Self::plain(answer_of(broken_text())),
                Answer::Env { connect, lookup } => {
                    Self::plain(answer_of(surroundings(&connect, &lookup).to_string()))
                }
                Answer::EchoRequest => Self::plain(answer_of(
                    json!({ "request": request, "options": options }).to_string(),
                )),
            },
        }
    }

    /// Commits what was commanded for this call.
    fn arrive(&self, place: Place) -> Result<(), Failure> {
        if let Some((_, fault)) = self.fault.as_ref().filter(|(at, _)| *at == place)
            && !self.committed.replace(true)
        {
            fault::commit(fault);
        }
        match &self.failure {
            Some((at, failure)) if *at == place => Err(failure.clone()),
            _ => Ok(()),
        }
    }
}

fn last_user_message(request: &Request) -> &str {
    match request {
        Request::Image(request) => &request.prompt,
        Request::Chat(request) => request
            .messages
            .iter()
            .rev()
            .filter(|message| message.role == chat::Role::User)
            .flat_map(|message| message.parts.iter().rev())
            .find_map(|part| match &part.content {
                chat::Content::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .unwrap_or_default(),
    }
}

fn healthy() -> Vec<Step> {
    answer_of("ok".into())
}

fn answer_of(content: String) -> Vec<Step> {
    let mut events = text(content);
    events.extend([usage(), Event::Finish(chat::FinishReason::Stop)]);
    vec![Step::Emit(events)]
}

fn text(content: String) -> Vec<Event> {
    vec![
        Event::BlockStart(chat::BlockKind::Text),
        Event::Text(content),
    ]
}

fn usage() -> Event {
    Event::Usage(chat::Usage {
        input_tokens: Some(10),
        cache_read_tokens: None,
        cache_write_short_tokens: None,
        cache_write_long_tokens: None,
        output_tokens: Some(1),
        reasoning_tokens: None,
        images: None,
    })
}

/// A lone continuation byte, an overlong slash and a surrogate.
fn broken_text() -> String {
    let bytes = vec![b'o', b'k', 0x80, 0xc0, 0xaf, 0xed, 0xa0, 0x80];
    // SAFETY: none; the string is moved to the host unread, and the host must notice.
    unsafe { String::from_utf8_unchecked(bytes) }
}

fn surroundings(connect: &str, lookup: &str) -> Value {
    let mut input = String::new();
    json!({
        "arguments": std::env::args().collect::<Vec<_>>(),
        "variables": std::env::vars().collect::<Vec<_>>(),
        "directory": outcome(std::env::current_dir()),
        "files": outcome(std::fs::read_dir("/").map(|entries| entries.flatten().collect::<Vec<_>>())),
        "read": outcome(std::fs::read_to_string("/etc/passwd")),
        "input": outcome(std::io::stdin().take(1 << 16).read_to_string(&mut input).map(|_| input)),
        "connect": outcome(TcpStream::connect(connect)),
        "lookup": outcome((lookup, 80).to_socket_addrs().map(Iterator::collect::<Vec<_>>)),
    })
}

fn outcome<T: std::fmt::Debug>(result: std::io::Result<T>) -> Value {
    match result {
        Ok(value) => json!({ "ok": format!("{value:?}") }),
        Err(error) => json!({ "error": error.to_string() }),
    }
}
