//! `Upstream`: a model provider whose bytes a test scripts.
//!
//! The provider speaks HTTP/1.1 by hand over a real socket, because a server library would repair the faults under test: bytes
//! cut anywhere, responses that never come or never end, connections reset in the middle. It records its requests,
//! and violations of HTTP's rules.
//!
//! Tests wait for events ([`Upstream::next_request`], [`Gate::reached`], [`Upstream::until_closed`]) and hold a
//! response back with a [`Gate`], rather than sleep.
//!
//! **Invariant:** all tasks stop when the [`Upstream`] is dropped.
//!
//! To add a way to misbehave, add an [`Act`] and the method of [`Reply`] that scripts it.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The input tokens that [`Reply::chat`] and [`Reply::chat_stream`] report.
pub const TOKENS_INPUT: u64 = 10;

/// Maximum bytes of a request's headers.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// Maximum bytes of a request's body.
const MAX_BODY_BYTES: usize = 64 << 20;

/// The response to a [violation](Upstream::violations).
const BAD_REQUEST: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// Maximum pieces that are separated by time; more would take a test too long.
const MAX_CLOCKED_PIECES: usize = 64;

/// A scripted model provider on a socket of its own.
pub struct Upstream {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// Number of requests that [`Upstream::next_request`] has returned.
    handed_out: Mutex<usize>,
    closes_seen: Mutex<usize>,
    hang_ups_seen: Mutex<usize>,
    server: JoinHandle<()>,
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Request {
    /// Number of its connection, counted from 0.
    pub connection: usize,
    /// The method as written.
    pub method: String,
    /// Path and query, as written.
    pub path: String,
    /// In order, names as written.
    pub headers: Vec<(String, String)>,
    /// The bytes of request line and headers, including the blank line.
    pub head: Bytes,
    /// The body's bytes.
    pub body: Bytes,
}

/// One scripted response: its bytes, their pieces, and its faults.
#[derive(Clone, Debug)]
pub struct Reply {
    /// `None` if the response has only the body's bytes.
    head: Option<Head>,
    /// Pieces, each sent separately.
    pieces: Vec<Bytes>,
    before_head: Vec<Act>,
    /// Steps before the piece of that index; the number of pieces means the end.
    before_piece: Vec<(usize, Act)>,
    pause: Option<Duration>,
    ending: Ending,
}

/// Holds a response back until the test opens it.
#[derive(Clone, Debug)]
pub struct Gate {
    open: watch::Sender<bool>,
    reached: watch::Sender<bool>,
}

#[derive(Clone, Debug)]
struct Head {
    status: u16,
    headers: Vec<(String, String)>,
    chunked: bool,
}

/// A step that sends no bytes.
#[derive(Clone, Debug)]
enum Act {
    Wait(Duration),
    Pass(Gate),
}

#[derive(Clone, Debug)]
enum Ending {
    /// Completes the response and awaits the next request.
    KeepAlive,
    /// Completes the response and closes.
    Close,
    /// Closes with a FIN after this many bytes of the body; without a number, before the headers.
    Cut(Option<usize>),
    /// Closes with a RST after this many bytes of the body; without a number, before the headers.
    Reset(Option<usize>),
    /// Stops sending after this many bytes, with the connection open.
    Silence(Option<usize>),
    /// Repeats this byte for ever after the pieces.
    Drip { byte: u8, every: Duration },
}

impl Upstream {
    /// Starts a provider on a free port of the loopback interface. Its response is 501 until a script sets another.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("the loopback interface has a free port");
        let address = listener
            .local_addr()
            .expect("a bound socket has an address");
        let shared = Arc::new(Shared {
            script: Mutex::new(Script {
                queue: VecDeque::new(),
                default: Arc::new(|_| Reply::error(501, "the test scripted no answer")),
            }),
            record: watch::Sender::new(Record::default()),
        });
        let server = tokio::spawn(serve(listener, Arc::clone(&shared)));
        Self {
            address,
            shared,
            handed_out: Mutex::new(0),
            closes_seen: Mutex::new(0),
            hang_ups_seen: Mutex::new(0),
            server,
        }
    }

    /// Its address, as a base URL without a path.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Queues a response for one request; requests take responses in the order of their completion.
    pub fn will(&self, reply: Reply) -> &Self {
        locked(&self.shared.script).queue.push_back(reply);
        self
    }

    /// Queues a streamed response with these texts.
    pub fn will_stream<'a>(&self, texts: impl IntoIterator<Item = &'a str>) -> &Self {
        self.will(Reply::chat_stream(texts))
    }

    /// Sets the response for requests that find the queue empty.
    pub fn always(&self, reply: Reply) -> &Self {
        self.always_by(move |_| reply.clone())
    }

    /// Sets the response as a function of the request.
    pub fn always_by(&self, reply: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> &Self {
        locked(&self.shared.script).default = Arc::new(reply);
        self
    }

    /// Returns every request so far.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.record.borrow().requests.clone()
    }

    /// Returns the number of requests.
    pub fn count(&self) -> usize {
        self.shared.record.borrow().requests.len()
    }

    /// Returns the next request that this method has not returned yet; waits for its arrival.
    pub async fn next_request(&self) -> Request {
        let index = take_turn(&self.handed_out);
        let mut record = self.shared.record.subscribe();
        let record = record
            .wait_for(|record| record.requests.len() > index)
            .await
            .expect("the sender lives in self");
        record.requests[index].clone()
    }

    /// Returns the number of accepted connections.
    pub fn connections(&self) -> usize {
        self.shared.record.borrow().connections
    }

    /// Returns the number of open connections.
    pub fn open_connections(&self) -> usize {
        let record = self.shared.record.borrow();
        record.connections - record.ended
    }

    /// Waits until the peer has closed a connection, idle or not: one more with each call.
    pub async fn until_closed(&self) {
        let seen = take_turn(&self.closes_seen);
        self.until(|record| record.closed > seen).await;
    }

    /// Waits until the peer has closed a connection before its response was complete: one more with each call.
    pub async fn until_hung_up(&self) {
        let seen = take_turn(&self.hang_ups_seen);
        self.until(|record| record.hung_up > seen).await;
    }

    /// Waits until no connection is open.
    pub async fn until_all_closed(&self) {
        self.until(|record| record.connections == record.ended)
            .await;
    }

    /// Returns the number of responses that the peer did not wait for.
    pub fn hang_ups(&self) -> usize {
        self.shared.record.borrow().hung_up
    }

    /// Returns violations of HTTP/1.1, one sentence each. Each got a 400 and its connection was closed; none counts
    /// as a request.
    pub fn violations(&self) -> Vec<String> {
        self.shared.record.borrow().violations.clone()
    }

    async fn until(&self, condition: impl Fn(&Record) -> bool) {
        let mut record = self.shared.record.subscribe();
        record
            .wait_for(|record| condition(record))
            .await
            .expect("the sender lives in self");
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Request {
    /// Returns the value of the first header of this name, in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers_named(name).next()
    }

    /// Returns the values of all headers of this name, in any case.
    pub fn headers_named<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        self.headers
            .iter()
            .filter(move |(header, _)| header.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    ///
    /// # Panics
    ///
    /// If the body is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("the upstream was sent JSON")
    }
}

/// The content of responses.
impl Reply {
    /// A response with an empty body.
    pub fn new(status: u16) -> Self {
        Self {
            head: Some(Head {
                status,
                headers: Vec::new(),
                chunked: false,
            }),
            pieces: Vec::new(),
            before_head: Vec::new(),
            before_piece: Vec::new(),
            pause: None,
            ending: Ending::KeepAlive,
        }
    }

    /// A JSON response.
    pub fn json(status: u16, value: &Value) -> Self {
        Self::new(status)
            .header("content-type", "application/json")
            .body(value.to_string())
    }

    /// A stream of server-sent events, each with the text after `data: `, each in its own chunk.
    pub fn events(events: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let pieces = events
            .into_iter()
            .map(|event| Bytes::from(format!("data: {}\n\n", event.as_ref())))
            .collect();
        let mut reply = Self::new(200)
            .header("content-type", "text/event-stream")
            .chunked();
        reply.pieces = pieces;
        reply
    }

    /// These bytes alone, so that the headers can be wrong, too. Closes the connection after them.
    pub fn raw(bytes: impl Into<Bytes>) -> Self {
        let mut reply = Self::new(0);
        reply.head = None;
        reply.pieces = vec![bytes.into()];
        reply.ending = Ending::Close;
        reply
    }

    /// A complete chat completion in OpenAI's form. Reports [`TOKENS_INPUT`] tokens of input and a token of output
    /// for each word.
    pub fn chat(text: &str) -> Self {
        let tokens_output = u64::try_from(text.split_whitespace().count()).unwrap_or(u64::MAX);
        Self::chat_with_usage(text, TOKENS_INPUT, tokens_output)
    }

    /// A complete chat completion with this usage.
    pub fn chat_with_usage(text: &str, tokens_input: u64, tokens_output: u64) -> Self {
        let value = json!({
            "id": "chatcmpl-scripted",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": "scripted",
            "choices": [{
                "index": 0,
                "message": { "role": "assistant", "content": text },
                "finish_reason": "stop",
            }],
            "usage": usage(tokens_input, tokens_output),
        });
        Self::json(200, &value)
    }

    /// A chat completion in chunks, one for each text, in OpenAI's form. Reports [`TOKENS_INPUT`] tokens of input and
    /// a token of output for each text.
    pub fn chat_stream<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let texts: Vec<&str> = texts.into_iter().collect();
        let tokens_output = u64::try_from(texts.len()).unwrap_or(u64::MAX);
        Self::chat_stream_with_usage(texts, TOKENS_INPUT, tokens_output)
    }

    /// A chat completion in chunks with this usage.
    pub fn chat_stream_with_usage<'a>(
        texts: impl IntoIterator<Item = &'a str>,
        tokens_input: u64,
        tokens_output: u64,
    ) -> Self {
        let chunk = |choices: Value, usage: Value| {
            json!({
                "id": "chatcmpl-scripted",
                "object": "chat.completion.chunk",
                "created": 1_700_000_000,
                "model": "scripted",
                "choices": choices,
                "usage": usage,
            })
            .to_string()
        };
        let choice = |delta: Value, finish: Value| json!([{ "index": 0, "delta": delta, "finish_reason": finish }]);

        let mut role = Some("assistant");
        let mut events: Vec<String> = texts
            .into_iter()
            .map(|text| {
                let delta = match role.take() {
                    Some(role) => json!({ "role": role, "content": text }),
                    None => json!({ "content": text }),
                };
                chunk(choice(delta, Value::Null), Value::Null)
            })
            .collect();
        events.push(chunk(choice(json!({}), json!("stop")), Value::Null));
        events.push(chunk(json!([]), usage(tokens_input, tokens_output)));
        events.push("[DONE]".into());
        Self::events(events)
    }

    /// A complete chat completion with this message, in OpenAI's form. Reports no usage.
    pub fn chat_message(message: &Value, finish_reason: &str) -> Self {
        let choice = json!({ "index": 0, "message": message, "finish_reason": finish_reason });
        Self::json(200, &json!({ "choices": [choice] }))
    }

    /// A chat completion in chunks, one for each of these deltas, in OpenAI's form. Reports no usage.
    pub fn chat_deltas<'a>(
        deltas: impl IntoIterator<Item = &'a Value>,
        finish_reason: &str,
    ) -> Self {
        let chunk = |delta: &Value, finish: Value| {
            let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
            json!({ "choices": [choice] }).to_string()
        };
        let deltas = deltas.into_iter();
        let mut events: Vec<_> = deltas.map(|delta| chunk(delta, Value::Null)).collect();
        events.push(chunk(&json!({}), json!(finish_reason)));
        events.push("[DONE]".into());
        Self::events(events)
    }

    /// An error in OpenAI's form.
    pub fn error(status: u16, message: &str) -> Self {
        let error = json!({ "message": message, "type": "scripted", "param": null, "code": null });
        Self::json(status, &json!({ "error": error }))
    }

    /// A redirect.
    pub fn redirect(status: u16, location: &str) -> Self {
        Self::new(status).header("location", location)
    }

    /// No response: the connection stays open and silent.
    pub fn never() -> Self {
        Self {
            ending: Ending::Silence(None),
            ..Self::new(200)
        }
    }

    /// No response: the connection is closed with a FIN.
    pub fn hang_up() -> Self {
        Self {
            ending: Ending::Cut(None),
            ..Self::new(200)
        }
    }

    /// No response: the connection is closed with a RST.
    pub fn reset() -> Self {
        Self {
            ending: Ending::Reset(None),
            ..Self::new(200)
        }
    }

    /// An event stream that sends one byte of a comment at each interval and never ends.
    pub fn drip(every: Duration) -> Self {
        let mut reply = Self::events([""; 0]);
        reply.pieces = vec![Bytes::from_static(b":")];
        reply.ending = Ending::Drip { byte: b'.', every };
        reply
    }

    /// A body that sends one blank line at each interval and never ends, as DeepSeek's does while a plain request waits
    /// (API documentation, "Rate Limit": "continuously return empty lines").
    pub fn drip_blanks(every: Duration) -> Self {
        let mut reply = Self::json(200, &Value::Null).chunked();
        reply.pieces = vec![Bytes::from_static(b"\n")];
        reply.ending = Ending::Drip { byte: b'\n', every };
        reply
    }

    /// Headers that grow by one byte at each interval and never end.
    pub fn drip_head(every: Duration) -> Self {
        Self {
            ending: Ending::Drip { byte: b'.', every },
            ..Self::raw("HTTP/1.1 200 OK\r\nx-drip: ")
        }
    }
}

/// The transmission of responses. Positions count the bytes of the body; for [`Reply::raw`], all bytes.
impl Reply {
    /// Adds a header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        if let Some(head) = &mut self.head {
            head.headers.push((name.into(), value.into()));
        }
        self
    }

    /// Sets the body as one piece.
    pub fn body(mut self, bytes: impl Into<Bytes>) -> Self {
        self.pieces = vec![bytes.into()];
        self
    }

    /// Frames the body in chunks, one for each piece, instead of sending its length.
    pub fn chunked(mut self) -> Self {
        if let Some(head) = &mut self.head {
            head.chunked = true;
        }
        self
    }

    /// Cuts the body at exactly these positions. Each piece is a segment of its own.
    pub fn split_at(mut self, positions: impl IntoIterator<Item = usize>) -> Self {
        let body = self.whole_body();
        let mut positions: Vec<usize> = positions
            .into_iter()
            .filter(|position| (1..body.len()).contains(position))
            .collect();
        positions.sort_unstable();
        positions.dedup();
        positions.push(body.len());
        let mut start = 0;
        self.pieces.clear();
        for end in positions {
            self.pieces.push(body.slice(start..end));
            start = end;
        }
        self
    }

    /// Cuts the body into single bytes.
    pub fn one_byte_at_a_time(self) -> Self {
        let length = self.whole_body().len();
        self.split_at(1..length)
    }

    /// Sends the complete body in one segment.
    pub fn in_one_piece(self) -> Self {
        self.split_at([])
    }

    /// Waits before the headers.
    pub fn after(mut self, wait: Duration) -> Self {
        self.before_head.push(Act::Wait(wait));
        self
    }

    /// Waits before the headers until the gate is open.
    pub fn after_gate(mut self, gate: &Gate) -> Self {
        self.before_head.push(Act::Pass(gate.clone()));
        self
    }

    /// Waits between pieces.
    pub fn pausing(mut self, pause: Duration) -> Self {
        self.pause = Some(pause);
        self
    }

    /// Waits before the piece of this index, counted from 0, until the gate is open. The index after the last holds
    /// back the end of the response.
    pub fn gate_before_piece(mut self, index: usize, gate: &Gate) -> Self {
        self.before_piece.push((index, Act::Pass(gate.clone())));
        self
    }

    /// Closes the connection when the response is complete, and announces it.
    pub fn closing(mut self) -> Self {
        self.ending = Ending::Close;
        self.header("connection", "close")
    }

    /// Closes the connection with a FIN after this many bytes of the body; the headers announce all bytes.
    pub fn cut_after(mut self, bytes: usize) -> Self {
        self.ending = Ending::Cut(Some(bytes));
        self
    }

    /// Closes the connection with a RST after this many bytes of the body; the headers announce all bytes.
    pub fn reset_after(mut self, bytes: usize) -> Self {
        self.ending = Ending::Reset(Some(bytes));
        self
    }

    /// Sends this many bytes of the body, then stays silent with the connection open; the headers announce all bytes.
    pub fn silent_after(mut self, bytes: usize) -> Self {
        self.ending = Ending::Silence(Some(bytes));
        self
    }

    /// Returns the body's bytes, all pieces together.
    pub fn whole_body(&self) -> Bytes {
        match self.pieces.as_slice() {
            [piece] => piece.clone(),
            pieces => Bytes::from(pieces.concat()),
        }
    }

    fn truncate(&mut self, mut bytes: usize) {
        for piece in &mut self.pieces {
            piece.truncate(bytes);
            bytes -= piece.len();
        }
        self.pieces.retain(|piece| !piece.is_empty());
    }
}

impl Gate {
    /// A closed gate.
    #[expect(
        clippy::new_without_default,
        reason = "a default gate says nothing of whether it is open"
    )]
    pub fn new() -> Self {
        Self {
            open: watch::Sender::new(false),
            reached: watch::Sender::new(false),
        }
    }

    /// Lets every response pass, now and later.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    /// Waits until a response stands before the gate, or has passed it.
    pub async fn reached(&self) {
        self.reached
            .subscribe()
            .wait_for(|reached| *reached)
            .await
            .expect("the sender lives in self");
    }

    async fn pass(&self) {
        self.reached.send_replace(true);
        self.open
            .subscribe()
            .wait_for(|open| *open)
            .await
            .expect("the sender lives in self");
    }
}

impl Act {
    async fn play(&self) {
        match self {
            Act::Wait(wait) => tokio::time::sleep(*wait).await,
            Act::Pass(gate) => gate.pass().await,
        }
    }
}

impl Head {
    fn encode(&self, body_bytes: usize) -> Bytes {
        let reason = http::StatusCode::from_u16(self.status)
            .ok()
            .and_then(|status| status.canonical_reason());
        let mut head = format!(
            "HTTP/1.1 {} {}\r\n",
            self.status,
            reason.unwrap_or("Scripted")
        );
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if self.chunked {
            head.push_str("transfer-encoding: chunked\r\n");
        } else if !self
            .headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        {
            head.push_str(&format!("content-length: {body_bytes}\r\n"));
        }
        head.push_str("\r\n");
        Bytes::from(head)
    }
}

/// The shared state of connections and the test.
struct Shared {
    script: Mutex<Script>,
    record: watch::Sender<Record>,
}

struct Script {
    queue: VecDeque<Reply>,
    default: Arc<dyn Fn(&Request) -> Reply + Send + Sync>,
}

/// The record of events, which only grows.
#[derive(Default)]
struct Record {
    requests: Vec<Request>,
    connections: usize,
    /// Connections that have ended, by either side.
    ended: usize,
    /// Connections that the peer closed.
    closed: usize,
    /// Connections that the peer closed before the response was complete.
    hung_up: usize,
    violations: Vec<String>,
}

/// The reason that a connection ended.
enum End {
    /// The peer closed it between requests.
    Closed,
    /// The peer closed it during a response.
    HungUp,
    /// The script closed it.
    Scripted,
    /// The peer broke HTTP's rules.
    Violation(String),
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    // Dropped with this task, which drops the connections.
    let mut connections = tokio::task::JoinSet::new();
    for index in 0_usize.. {
        let Ok((stream, _)) = listener.accept().await else {
            return;
        };
        while connections.try_join_next().is_some() {}
        shared.record.send_modify(|record| record.connections += 1);
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let mut connection = Connection {
                index,
                stream,
                received: BytesMut::new(),
            };
            let end = connection.run(&shared).await;
            if matches!(end, End::Violation(_)) {
                // The peer may be gone; only the violation counts.
                connection.write(BAD_REQUEST).await.ok();
            }
            drop(connection);
            shared.record.send_modify(|record| {
                record.ended += 1;
                match end {
                    End::Closed => record.closed += 1,
                    End::HungUp => {
                        record.closed += 1;
                        record.hung_up += 1;
                    }
                    End::Scripted => {}
                    End::Violation(violation) => record.violations.push(violation),
                }
            });
        });
    }
}

struct Connection {
    index: usize,
    stream: TcpStream,
    /// Received bytes of an incomplete request.
    received: BytesMut,
}

impl Connection {
    /// Serves requests until the connection ends.
    async fn run(&mut self, shared: &Shared) -> End {
        // Otherwise the kernel would join pieces that the script separates.
        if self.stream.set_nodelay(true).is_err() {
            return End::Closed;
        }
        loop {
            let request = match self.read_request().await {
                ControlFlow::Continue(request) => request,
                ControlFlow::Break(end) => return end,
            };
            shared
                .record
                .send_modify(|record| record.requests.push(request.clone()));
            let (queued, default) = {
                let mut script = locked(&shared.script);
                (script.queue.pop_front(), script.default.clone())
            };
            let reply = queued.unwrap_or_else(|| default(&request));
            if let ControlFlow::Break(end) = self.answer(reply).await {
                return end;
            }
        }
    }

    async fn read_request(&mut self) -> ControlFlow<End, Request> {
        let head_bytes = loop {
            if let Some(position) = self
                .received
                .windows(4)
                .position(|window| window == b"\r\n\r\n")
            {
                break position + 4;
            }
            if self.received.len() > MAX_HEAD_BYTES {
                return violation("a head that is too long");
            }
            if !self.read_more().await {
                return match self.received.is_empty() {
                    true => ControlFlow::Break(End::Closed),
                    false => violation("a connection closed within a head"),
                };
            }
        };
        let head = self.received.split_to(head_bytes).freeze();
        let (method, path, headers) = match parse_head(&head) {
            Ok(parsed) => parsed,
            Err(what) => return violation(what),
        };
        let length = match body_length(&headers) {
            Ok(length) => length,
            Err(what) => return violation(what),
        };
        while self.received.len() < length {
            if !self.read_more().await {
                return violation("a connection closed within a body");
            }
        }
        let body = self.received.split_to(length).freeze();
        ControlFlow::Continue(Request {
            connection: self.index,
            method,
            path,
            headers,
            head,
            body,
        })
    }

    /// Plays the reply while watching for the peer's close.
    async fn answer(&mut self, mut reply: Reply) -> ControlFlow<End> {
        let body_bytes = reply.whole_body().len();
        let cut = match reply.ending {
            Ending::Cut(bytes) | Ending::Reset(bytes) | Ending::Silence(bytes) => Some(bytes),
            _ => None,
        };
        for act in &reply.before_head {
            self.watched(act.play()).await?;
        }
        if let (Some(head), None | Some(Some(_))) = (&reply.head, cut) {
            self.send(&head.encode(body_bytes)).await?;
        }
        if let Some(bytes) = cut {
            reply.truncate(bytes.unwrap_or(0));
        }

        let chunked = reply.head.as_ref().is_some_and(|head| head.chunked);
        let frame = |piece: &Bytes| match chunked {
            true => {
                Bytes::from([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat())
            }
            false => piece.clone(),
        };
        let pause = match reply.pause {
            Some(pause) => Some(pause),
            None if reply.pieces.len() <= MAX_CLOCKED_PIECES => Some(Duration::from_millis(1)),
            None => None,
        };
        for index in 0..=reply.pieces.len() {
            for (_, act) in reply.before_piece.iter().filter(|(at, _)| *at == index) {
                self.watched(act.play()).await?;
            }
            let Some(piece) = reply.pieces.get(index).filter(|piece| !piece.is_empty()) else {
                continue;
            };
            if index > 0 || reply.head.is_some() {
                self.watched(settle(pause)).await?;
            }
            self.send(&frame(piece)).await?;
        }

        match reply.ending {
            Ending::KeepAlive | Ending::Close => {
                if chunked {
                    self.send(b"0\r\n\r\n").await?;
                }
                match reply.ending {
                    Ending::KeepAlive => ControlFlow::Continue(()),
                    _ => self.finish().await,
                }
            }
            Ending::Cut(_) => self.finish().await,
            Ending::Reset(_) => {
                // A peer that has not read the earlier bytes loses them when the RST arrives.
                self.watched(settle(Some(Duration::from_millis(20))))
                    .await?;
                self.stream.set_zero_linger().ok();
                ControlFlow::Break(End::Scripted)
            }
            Ending::Silence(_) => {
                self.watched(std::future::pending()).await?;
                ControlFlow::Break(End::HungUp)
            }
            Ending::Drip { byte, every } => loop {
                self.watched(tokio::time::sleep(every)).await?;
                self.send(&frame(&Bytes::from(vec![byte]))).await?;
            },
        }
    }

    async fn finish(&mut self) -> ControlFlow<End> {
        // The shutdown fails if the peer was faster, which ends the connection as well.
        self.stream.shutdown().await.ok();
        ControlFlow::Break(End::Scripted)
    }

    async fn send(&mut self, bytes: &[u8]) -> ControlFlow<End> {
        // The peer may stop reading and then close: only a read shows it.
        let mut rest = bytes;
        while !rest.is_empty() {
            let (mut reader, mut writer) = self.stream.split();
            tokio::select! {
                written = writer.write(rest) => match written {
                    Ok(written) if written > 0 => rest = &rest[written..],
                    _ => return ControlFlow::Break(End::HungUp),
                },
                open = read_into(&mut reader, &mut self.received) => if !open {
                    return ControlFlow::Break(End::HungUp);
                },
            }
        }
        ControlFlow::Continue(())
    }

    /// Waits for `event`, unless the peer closes the connection first.
    async fn watched(&mut self, event: impl Future<Output = ()>) -> ControlFlow<End> {
        tokio::pin!(event);
        loop {
            tokio::select! {
                biased;
                () = &mut event => return ControlFlow::Continue(()),
                open = read_into(&mut self.stream, &mut self.received) => if !open {
                    return ControlFlow::Break(End::HungUp);
                },
            }
        }
    }

    async fn read_more(&mut self) -> bool {
        read_into(&mut self.stream, &mut self.received).await
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.shutdown().await
    }
}

/// Reads more bytes; false if the peer closed, or exceeds the maximum of a request.
async fn read_into(stream: &mut (impl AsyncReadExt + Unpin), received: &mut BytesMut) -> bool {
    let room = received.remaining() <= MAX_HEAD_BYTES + MAX_BODY_BYTES;
    room && matches!(stream.read_buf(received).await, Ok(1..))
}

/// Gives the peer time to read the sent bytes as separate pieces.
async fn settle(pause: Option<Duration>) {
    match pause {
        Some(pause) => tokio::time::sleep(pause).await,
        None => {
            for _ in 0..16 {
                tokio::task::yield_now().await;
            }
        }
    }
}

type ParsedHead = (String, String, Vec<(String, String)>);

/// Parses strictly: a proxy that sends bytes that only a lenient server accepts can be abused to smuggle requests.
fn parse_head(head: &[u8]) -> Result<ParsedHead, &'static str> {
    let head = std::str::from_utf8(head).map_err(|_| "a head that is no text")?;
    let head = head
        .strip_suffix("\r\n\r\n")
        .ok_or("a head without an end")?;
    let mut lines = head.split("\r\n");
    let request_line = lines.next().unwrap_or_default();
    let mut words = request_line.split(' ');
    let (Some(method), Some(path), Some("HTTP/1.1"), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err("a request line that is none");
    };
    if !method.bytes().all(is_token) || method.is_empty() || !path.starts_with('/') {
        return Err("a request line with a bad method or path");
    }
    if head.split("\r\n").any(|line| {
        line.bytes()
            .any(|byte| byte != b'\t' && byte.is_ascii_control())
    }) {
        return Err("a control character in a head");
    }
    let mut headers = Vec::new();
    for line in lines {
        let (name, value) = line.split_once(':').ok_or("a header without a colon")?;
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err("a header with a bad name");
        }
        headers.push((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()));
    }
    Ok((method.to_owned(), path.to_owned(), headers))
}

/// Returns whether RFC 9110 permits the byte in a token, such as a method or the name of a header.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn body_length(headers: &[(String, String)]) -> Result<usize, &'static str> {
    let named = |name: &'static str| {
        headers
            .iter()
            .filter(move |(header, _)| header.eq_ignore_ascii_case(name))
    };
    if named("host").count() != 1 {
        return Err("not exactly one host header");
    }
    if named("transfer-encoding").next().is_some() {
        return Err("a transfer encoding, where bodies are expected with their length");
    }
    let mut lengths = named("content-length");
    let length = match (lengths.next(), lengths.next()) {
        (None, _) => return Ok(0),
        (Some((_, length)), None) if length.bytes().all(|byte| byte.is_ascii_digit()) => {
            length.parse().ok()
        }
        _ => return Err("a content length that is ambiguous"),
    };
    length
        .filter(|length| *length <= MAX_BODY_BYTES)
        .ok_or("a body that is too long")
}

fn violation<T>(what: &str) -> ControlFlow<End, T> {
    ControlFlow::Break(End::Violation(what.to_owned()))
}

fn usage(tokens_input: u64, tokens_output: u64) -> Value {
    json!({
        "prompt_tokens": tokens_input,
        "completion_tokens": tokens_output,
        "total_tokens": tokens_input.saturating_add(tokens_output),
    })
}

/// Returns the counter's value, which no other call gets.
fn take_turn(counter: &Mutex<usize>) -> usize {
    let mut counter = locked(counter);
    let turn = *counter;
    *counter += 1;
    turn
}

/// Locks a mutex even after a panic: a test that panicked elsewhere has its own report; this one continues.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: &str = "GET /v1/models HTTP/1.1\r\nHost: upstream\r\n\r\n";
    const POST: &str = "POST /v1/chat?x=1 HTTP/1.1\r\nHost: upstream\r\nX-One: 1\r\nx-one: 2\r\nContent-Length: 7\r\n\r\n{\"a\":1}";

    struct Client(TcpStream);

    impl Client {
        async fn connect(upstream: &Upstream) -> Self {
            Self(
                TcpStream::connect(upstream.address())
                    .await
                    .expect("the upstream listens"),
            )
        }

        async fn send(&mut self, text: &str) {
            self.0
                .write_all(text.as_bytes())
                .await
                .expect("the upstream reads");
        }

        /// Reads until the response ends with this text, and returns the number of reads.
        async fn read_until(&mut self, end: &str) -> (String, usize) {
            let (mut answer, mut reads) = (Vec::new(), 0);
            while !answer.ends_with(end.as_bytes()) {
                let read = self
                    .0
                    .read_buf(&mut answer)
                    .await
                    .expect("the connection holds");
                assert_ne!(read, 0, "closed after {}", String::from_utf8_lossy(&answer));
                reads += 1;
            }
            (String::from_utf8(answer).expect("text"), reads)
        }

        async fn read_to_end(&mut self) -> io::Result<String> {
            let mut answer = String::new();
            self.0.read_to_string(&mut answer).await?;
            Ok(answer)
        }
    }

    #[tokio::test]
    async fn records_requests_and_answers_them_in_turn() {
        let upstream = Upstream::start().await;
        upstream
            .will(Reply::chat("two words"))
            .always(Reply::error(503, "busy"));
        let mut client = Client::connect(&upstream).await;

        client.send(POST).await;
        let request = upstream.next_request().await;
        assert_eq!(
            (request.method.as_str(), request.path.as_str()),
            ("POST", "/v1/chat?x=1")
        );
        assert_eq!(
            request.headers_named("X-ONE").collect::<Vec<_>>(),
            ["1", "2"]
        );
        assert_eq!(request.json(), json!({ "a": 1 }));
        assert!(POST.as_bytes().starts_with(&request.head));
        let (answer, _) = client.read_until("}").await;
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("\"completion_tokens\":2"),
            "{answer}"
        );

        client.send(GET).await;
        let (answer, _) = client.read_until("}}").await;
        assert!(
            answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n"),
            "{answer}"
        );
        assert_eq!(
            (
                upstream.count(),
                upstream.connections(),
                upstream.open_connections()
            ),
            (2, 1, 1)
        );

        drop(client);
        upstream.until_closed().await;
        upstream.until_all_closed().await;
        assert_eq!(upstream.hang_ups(), 0);
    }

    #[tokio::test]
    async fn sends_each_piece_by_itself() {
        let upstream = Upstream::start().await;
        upstream
            .will(Reply::new(200).body("0123456789").split_at([2, 5]))
            .will(Reply::new(200).body("0123456789").one_byte_at_a_time())
            .will(
                Reply::new(200)
                    .body("0123456789")
                    .one_byte_at_a_time()
                    .in_one_piece(),
            );
        for reads_expected in [1 + 3, 1 + 10, 1 + 1] {
            let mut client = Client::connect(&upstream).await;
            client.send(GET).await;
            let (_, reads) = client.read_until("0123456789").await;
            assert_eq!(reads, reads_expected);
        }
    }

    #[tokio::test]
    async fn streams_events_in_chunks() {
        let upstream = Upstream::start().await;
        upstream.will_stream(["one ", "two "]);
        let mut client = Client::connect(&upstream).await;
        client.send(GET).await;
        let (answer, _) = client
            .read_until("e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
            .await;
        assert_eq!(answer.matches("data: ").count(), 5);
    }

    #[tokio::test]
    async fn a_gate_holds_an_answer_back() {
        let upstream = Upstream::start().await;
        let (head, piece, end) = (Gate::new(), Gate::new(), Gate::new());
        upstream.will(
            Reply::events(["a", "b"])
                .after_gate(&head)
                .gate_before_piece(1, &piece)
                .gate_before_piece(2, &end),
        );
        let mut client = Client::connect(&upstream).await;
        client.send(GET).await;
        head.reached().await;
        head.open();
        let (answer, _) = client.read_until("data: a\n\n\r\n").await;
        piece.reached().await;
        assert!(!answer.contains("data: b"));
        piece.open();
        client.read_until("data: b\n\n\r\n").await;
        end.reached().await;
        end.open();
        client.read_until("0\r\n\r\n").await;
    }

    #[tokio::test]
    async fn notices_a_peer_that_hangs_up() {
        let upstream = Upstream::start().await;
        let shut = Gate::new();
        let every = Duration::from_millis(1);
        let replies = [
            Reply::never(),
            Reply::drip(every),
            Reply::drip_head(every),
            Reply::chat("late").after_gate(&shut),
            Reply::chat("cut").silent_after(3),
        ];
        for (index, reply) in replies.into_iter().enumerate() {
            upstream.will(reply);
            let mut client = Client::connect(&upstream).await;
            client.send(GET).await;
            upstream.next_request().await;
            if index == 1 {
                client.read_until("\r\n.\r\n").await;
            }
            drop(client);
            upstream.until_hung_up().await;
        }
        assert_eq!((upstream.hang_ups(), upstream.open_connections()), (5, 0));
    }

    #[tokio::test]
    async fn breaks_off_where_it_is_told() {
        let upstream = Upstream::start().await;
        upstream
            .will(Reply::hang_up())
            .will(Reply::new(200).body("0123456789").cut_after(4))
            .will(Reply::events(["a", "b"]).cut_after(9))
            .will(Reply::new(204).closing())
            .will(Reply::raw("HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n"))
            .will(Reply::redirect(307, "http://elsewhere/"));
        let answers = [
            "",
            "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n0123",
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n9\r\ndata: a\n\n\r\n",
            "HTTP/1.1 204 No Content\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
        ];
        for expected in answers {
            let mut client = Client::connect(&upstream).await;
            client.send(GET).await;
            assert_eq!(client.read_to_end().await.expect("a FIN"), expected);
        }

        upstream.always(Reply::reset());
        let mut client = Client::connect(&upstream).await;
        client.send(GET).await;
        client
            .read_until("location: http://elsewhere/\r\ncontent-length: 0\r\n\r\n")
            .await;
        client.send(GET).await;
        assert_eq!(
            client.read_to_end().await.expect_err("a RST").kind(),
            io::ErrorKind::ConnectionReset
        );
    }

    #[tokio::test]
    async fn refuses_what_could_smuggle_a_request() {
        let upstream = Upstream::start().await;
        let host = "Host: upstream\r\n";
        for bad in [
            format!("POST / HTTP/1.1\r\n{host}Content-Length: 1\r\nContent-Length: 2\r\n\r\n"),
            format!(
                "POST / HTTP/1.1\r\n{host}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
            ),
            format!("GET / HTTP/1.1\r\n{host}X: a\nY: b\r\n\r\n"),
            format!("GET / HTTP/1.1\r\n{host}{host}\r\n"),
            format!("GET /a b HTTP/1.1\r\n{host}\r\n"),
            format!("GET http://elsewhere/ HTTP/1.1\r\n{host}\r\n"),
        ] {
            let mut client = Client::connect(&upstream).await;
            client.send(&bad).await;
            let answer = client.read_to_end().await.expect("an answer");
            assert!(answer.starts_with("HTTP/1.1 400"), "{bad}: {answer}");
        }
        upstream.until_all_closed().await;
        assert_eq!((upstream.violations().len(), upstream.count()), (6, 0));
    }
}
