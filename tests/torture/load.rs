//! Requests in an open loop to a gateway that may go down, and their results. Most requests are chats, and half of the
//! chats are streamed.

use std::collections::HashMap;
use std::time::Duration;

use http::Method;
use serde_json::Value;
use tests::{Client, chunks};
use tokio::sync::watch;
use tokio::task::JoinSet;
use weir_ledger::Credits;

use crate::kinds::Kind;
use crate::money::Charge;
use crate::process::request;

/// Period of requests of another kind than a chat.
const OTHER_EVERY: u64 = 5;

pub(crate) const REQUESTS_PER_SECOND: u32 = 50;

/// A client's result of one request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Heard {
    /// `None` without a response, or with an incomplete plain one.
    pub status: Option<u16>,
    pub request_id: Option<String>,
    /// The code of an error, also at the end of a stream.
    pub code: Option<String>,
    /// The reported charge, at the end of a complete response.
    pub paid: Option<Credits>,
    /// Bytes of the response's text.
    pub bytes: usize,
}

impl Heard {
    /// Whether it was served, or its stream ended by an error with a code.
    pub(crate) fn is_served(&self) -> bool {
        self.status == Some(200) && (self.paid.is_some() || self.code.is_some())
    }

    /// Whether the answer said that it is paid, and the ledger has no such charge.
    pub(crate) fn is_lost(&self, charges: &HashMap<String, Charge>) -> bool {
        let charge = self.request_id.as_ref().and_then(|id| charges.get(id));
        let is_charged = charge.is_some_and(|it| it.is_settled && Some(it.credits) == self.paid);
        self.paid.is_some() && !is_charged
    }
}

/// Sends chats until a stop, then waits for the remaining responses.
pub(crate) async fn chats(client: Client, stop: watch::Receiver<bool>) -> Vec<Heard> {
    run_with(client, stop, REQUESTS_PER_SECOND, None).await
}

/// Sends chats and requests of all other kinds until a stop, then waits for the remaining responses.
pub(crate) async fn run(client: Client, stop: watch::Receiver<bool>) -> Vec<Heard> {
    run_at(REQUESTS_PER_SECOND, client, stop).await
}

/// Sends as [`run`] does, at this rate.
pub(crate) async fn run_at(
    requests_per_second: u32,
    client: Client,
    stop: watch::Receiver<bool>,
) -> Vec<Heard> {
    run_with(client, stop, requests_per_second, Some(OTHER_EVERY)).await
}

async fn run_with(
    client: Client,
    mut stop: watch::Receiver<bool>,
    requests_per_second: u32,
    other_every: Option<u64>,
) -> Vec<Heard> {
    let mut requests = JoinSet::new();
    let mut clock = tokio::time::interval(Duration::from_secs(1) / requests_per_second);
    for number in 0_u64.. {
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => break,
            _ = clock.tick() => {}
        }
        let client = client.clone();
        let turn = other_every.filter(|every| number % every == 0);
        let kind = turn.map(|every| Kind::in_turn(number / every));
        requests.spawn(async move {
            match kind {
                Some(kind) => ask_other(&client, kind).await,
                None => ask(&client, number % 2 == 1).await,
            }
        });
    }
    requests.join_all().await
}

/// One request of another kind than a chat. Its complete response names no charge, which is known.
async fn ask_other(client: &Client, kind: Kind) -> Heard {
    let (path, content_type, body) = kind.request();
    let sent = client.try_send(Method::POST, path, Some(content_type), body);
    let Some(answer) = sent.await else {
        return Heard::default();
    };
    let is_served = answer.status == 200;
    Heard {
        status: Some(answer.status.as_u16()),
        request_id: id_of(&answer.headers),
        code: (!is_served)
            .then(|| serde_json::from_slice(&answer.body).ok())
            .flatten()
            .and_then(|json| code(&json)),
        paid: is_served.then(|| kind.price()),
        bytes: 0,
    }
}

/// One request.
pub(crate) async fn ask(client: &Client, stream: bool) -> Heard {
    if stream {
        return read(client).await;
    }
    let Some(answer) = client.try_post("/chat", &request(false)).await else {
        return Heard::default();
    };
    let json = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
    let text = json["choices"][0]["message"]["content"].as_str();
    Heard {
        status: Some(answer.status.as_u16()),
        request_id: id_of(&answer.headers),
        code: code(&json),
        paid: paid(&json),
        bytes: text.map_or(0, str::len),
    }
}

async fn read(client: &Client) -> Heard {
    let Some(stream) = client.try_stream("/chat", &request(true)).await else {
        return Heard::default();
    };
    let mut heard = Heard {
        status: Some(stream.status.as_u16()),
        request_id: id_of(&stream.headers),
        ..Heard::default()
    };
    if stream.status != 200 {
        heard.code = code(&stream.try_json().await);
        return heard;
    }
    let events = stream.try_rest().await;
    let is_whole = events.last().is_some_and(|event| event == "data: [DONE]");
    let chunks = chunks(&events);
    let error = events
        .last()
        .and_then(|event| event.strip_prefix("event: error\ndata: "));
    heard.code = error.and_then(|error| code(&serde_json::from_str(error).ok()?));
    heard.bytes = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
        .map(str::len)
        .sum();
    if is_whole {
        heard.paid = chunks.last().and_then(paid);
    }
    heard
}

fn code(answer: &Value) -> Option<String> {
    Some(answer["error"]["code"].as_str()?.to_owned())
}

fn id_of(headers: &http::HeaderMap) -> Option<String> {
    Some(headers.get("x-request-id")?.to_str().ok()?.to_owned())
}

/// Parses a number with at most six decimals.
fn paid(answer: &Value) -> Option<Credits> {
    Credits::parse(&answer["usage"]["credits"].to_string())
}
