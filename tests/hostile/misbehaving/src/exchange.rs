//! The adapter: plays a script of steps, and commits the commanded fault on the way.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::net::{TcpStream, ToSocketAddrs};

use serde_json::{Value, json};

use crate::bindings::exports::weir::plugin::adapter::{
    Begun, BodyPart, CredentialSlot, Description, Event, Exchange, Failure, Guest, GuestExchange,
    HttpRequest, HttpResponseHead, Progress, RefusedSetting, Request, Setting, Step, Task,
};
use crate::bindings::weir::plugin::chat;
use crate::command::{Answer, Behaviour, Command, Fault, Place, plain_request};
use crate::{configure, fault, habits};

/// The component.
pub(crate) struct Adapter;

/// The rest of one exchange.
pub(crate) struct Script {
    fault: Option<(Place, Fault)>,
    failure: Option<(Place, Failure)>,
    /// Events that accompany the failure.
    last_words: Vec<Event>,
    committed: Cell<bool>,
    steps: RefCell<VecDeque<Step>>,
    forever: bool,
    /// Number of steps that are not repeated.
    once: Cell<usize>,
    ignored: Vec<String>,
    response: RefCell<Response>,
    /// Number of blocks so far, which is the index of the next.
    blocks: Cell<u32>,
    /// A response's text still needs its `finish`.
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
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        Description {
            name: "misbehaving".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            dialect: "openai-chat".into(),
            credential: CredentialSlot::Bearer,
            capabilities: names(&["chat", "images"]),
            options: names(&["option"]),
            // The last name is for invalid header values.
            request_headers: names(&["accept", "content-type", "x-mine", "x-a"]),
            response_headers: names(&["x-asked", "x-all-*"]),
            path_prefixes: names(&["/"]),
        }
    }

    fn configure(options: Vec<Setting>) -> Result<Vec<u8>, RefusedSetting> {
        configure::configure(&options)
    }
}

impl GuestExchange for Script {
    fn begin(request: Request, configuration: Vec<u8>) -> Result<Begun, Failure> {
        let command = match Command::parse(last_user_message(&request))? {
            Some(command) => Some(command),
            None => Command::parse(&configure::standing_command(&configuration))?,
        };
        let script = match command {
            Some(command) => Script::obey(command, &request, &configuration),
            None => Script::plain(habits::steps(last_user_message(&request))),
        };
        script.arrive(Place::Begin)?;
        Ok(Begun {
            step: script.step(),
            ignored: script.ignored.clone(),
            exchange: Exchange::new(script),
        })
    }

    fn next(&self) -> Result<Step, Failure> {
        self.arrive(Place::Next)?;
        Ok(self.step())
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

    fn body(&self, bytes: Vec<u8>) -> Progress {
        self.progress(Place::Body, || {
            let mut response = self.response.borrow_mut();
            response.pieces.push(bytes.len());
            response.body.extend(bytes);
            Vec::new()
        })
    }

    fn end(&self) -> Progress {
        self.progress(Place::End, || {
            let response = self.response.take();
            self.unfinished.set(true);
            let index = self.blocks.replace(self.blocks.get() + 1);
            text(
                index,
                json!({
                    "status": response.status,
                    "headers": response.headers,
                    "body": String::from_utf8_lossy(&response.body),
                    "pieces": response.pieces,
                })
                .to_string(),
            )
        })
    }
}

impl Script {
    fn plain(steps: Vec<Step>) -> Self {
        Self {
            fault: None,
            failure: None,
            last_words: Vec::new(),
            committed: Cell::new(false),
            steps: RefCell::new(steps.into()),
            forever: false,
            once: Cell::new(0),
            ignored: Vec::new(),
            response: RefCell::default(),
            blocks: Cell::new(0),
            unfinished: Cell::new(false),
        }
    }

    fn obey(command: Command, request: &Request, configuration: &[u8]) -> Self {
        let place = command.place;
        let on_the_way = match place {
            Place::Begin => healthy(1),
            Place::Next => [vec![Step::Emit(Vec::new())], healthy(1)].concat(),
            Place::Head | Place::Body | Place::End => vec![Step::Send(plain_request())],
        };
        match command.behaviour {
            Behaviour::Fault(fault) => Self {
                fault: Some((place, fault)),
                ..Self::plain(on_the_way)
            },
            Behaviour::Answer(answer) => match answer {
                Answer::Script {
                    steps,
                    forever,
                    once,
                } => Self {
                    forever,
                    once: Cell::new(once),
                    ..Self::plain(steps)
                },
                Answer::Send {
                    keep,
                    method,
                    path,
                    headers,
                    body,
                    mut parts,
                    times,
                } => {
                    fault::keep(keep);
                    if !body.is_empty() {
                        parts.insert(0, BodyPart::Bytes(body.into_bytes()));
                    }
                    let send = Step::Send(HttpRequest {
                        method,
                        path,
                        headers,
                        body: parts,
                    });
                    Self::plain(vec![send; times])
                }
                Answer::Fail { failure, events } => Self {
                    failure: Some((place, failure)),
                    last_words: events,
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
                    json!({
                        "request": request,
                        "configuration": String::from_utf8_lossy(configuration),
                        "attachments": request.attachments,
                    })
                    .to_string(),
                )),
                Answer::Noise => Self::plain(answer_of(noise().to_string())),
                Answer::Memory => Self::plain(answer_of(fault::memory_bytes().to_string())),
                Answer::Ignore { names } => Self {
                    ignored: names,
                    ..Self::plain(healthy(1))
                },
            },
        }
    }

    /// Commits the fault commanded for this call.
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

    /// Returns the result of a call that returns events even if it fails.
    fn progress(&self, place: Place, events: impl FnOnce() -> Vec<Event>) -> Progress {
        match self.arrive(place) {
            Ok(()) => Progress {
                events: events(),
                failure: None,
            },
            Err(failure) => Progress {
                events: self.last_words.clone(),
                failure: Some(failure),
            },
        }
    }

    /// Returns the next step of the script; at its end, the end of the response, then `done`.
    fn step(&self) -> Step {
        let mut steps = self.steps.borrow_mut();
        if let Some(step) = steps.pop_front() {
            let once = self.once.get();
            self.once.set(once.saturating_sub(1));
            if self.forever && once == 0 {
                steps.push_back(step.clone());
            }
            if let Step::Emit(events) = &step {
                let begun = events.iter().filter(|event| begins_a_block(event));
                self.blocks
                    .update(|blocks| begun.fold(blocks, |sum, _| sum + 1));
            }
            return step;
        }
        if self.unfinished.take() {
            return Step::Emit(vec![usage(1), Event::Finish(chat::FinishReason::Stop)]);
        }
        Step::Done
    }
}

fn last_user_message(request: &Request) -> &str {
    match &request.task {
        Task::Image(request) => &request.prompt,
        Task::Chat(request) => request
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

/// Returns a healthy component's response, with this many reported tokens.
pub(crate) fn healthy(tokens: u64) -> Vec<Step> {
    answer_with("ok".into(), tokens)
}

fn answer_of(content: String) -> Vec<Step> {
    answer_with(content, 1)
}

fn answer_with(content: String, tokens: u64) -> Vec<Step> {
    let mut events = text(0, content);
    events.extend([usage(tokens), Event::Finish(chat::FinishReason::Stop)]);
    vec![Step::Emit(events)]
}

fn text(index: u32, text: String) -> Vec<Event> {
    let block = chat::Block::Text;
    vec![
        Event::BlockStart(chat::BlockStart { index, block }),
        Event::Fragment(chat::Fragment { index, text }),
        Event::BlockEnd(index),
    ]
}

/// Returns a number that differs in each instance.
pub(crate) fn noise() -> u64 {
    RandomState::new().hash_one(())
}

fn begins_a_block(event: &Event) -> bool {
    matches!(event, Event::BlockStart(_) | Event::Opaque(_))
}

fn usage(tokens: u64) -> Event {
    Event::Usage(chat::Usage {
        input_tokens: Some(10),
        cache_read_tokens: None,
        cache_write_short_tokens: None,
        cache_write_long_tokens: None,
        output_tokens: Some(tokens),
        reasoning_tokens: None,
        images: None,
        other: Vec::new(),
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
