//! Events of a running swarm: numbered, none lost and none twice however often the stream is cut, and with the
//! models' text in between.

use http::Method;
use serde_json::{Value, json};
use tests::client::{EventStream, patiently};
use tests::{Client, Gate, Gateway, Reply, Upstream, stores};

use crate::billing::is_settled;
use crate::swarm_tools::{calls, page};
use crate::swarms::{STREAMED, agent, gateway, swarm};

/// Returns an event's number, name and payload. A delta has no number.
fn read(event: &str) -> (Option<i64>, String, Value) {
    let field = |name: &str| {
        let mut lines = event.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    };
    let data = field("data").expect("a payload");
    (
        field("id").map(|id| id.parse().expect("a number")),
        field("event").expect("a name").to_owned(),
        serde_json::from_str(data).expect("JSON"),
    )
}

/// Returns the numbered events among these.
pub(crate) fn numbered(events: Vec<String>) -> Vec<String> {
    let has_number = |event: &String| event.lines().any(|line| line.starts_with("id: "));
    events.into_iter().filter(has_number).collect()
}

async fn follow(client: &Client, id: &str, after: i64) -> EventStream {
    let client = client
        .clone()
        .with_header("last-event-id", &after.to_string());
    let path = format!("/swarms/{id}/events");
    let stream = client.follow(Method::GET, &path, &Value::Null).await;
    assert_eq!(stream.status, 200);
    stream
}

/// Returns the next event of a stream. On a slow machine, keep-alive comments may precede it.
async fn next(stream: &mut EventStream) -> String {
    loop {
        let event = stream.next().await.expect("another event");
        if !event.starts_with(':') {
            return event;
        }
    }
}

async fn ask(client: &Client, swarm: &Value) -> String {
    let accepted = client.post("/swarms", swarm).await.json();
    accepted["execution_id"].as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn what_a_model_says_is_told_as_it_comes_to_who_listens() {
    let upstream = Upstream::start().await;
    let (unheard, half) = (Gate::new(), Gate::new());
    upstream
        .will(Reply::chat_stream(["Rivers rise."]).after_gate(&unheard))
        .will(
            Reply::chat_stream(["Größe: ", "two", " metres.\u{1b}[2J"]).gate_before_piece(1, &half),
        );
    let builder = Gateway::builder().swarms().upstream("scripted", &upstream);
    let gateway = builder.tables(STREAMED).start().await;
    gateway.set_plan("pro").await;
    let client = gateway.client();
    let agents = ["a", "b"].map(|name| {
        let mut agent = agent(name);
        agent["model"] = json!("streamed");
        agent
    });
    let id = ask(&client, &swarm(&agents)).await;
    patiently(unheard.reached()).await;
    // In the middle of the first call, which had no listener at its beginning.
    let mut stream = follow(&client, &id, 0).await;
    unheard.open();
    let mut next = async || read(&next(&mut stream).await);
    for name in ["agent_start", "agent_done", "agent_start"] {
        assert_eq!(next().await.1, name);
    }
    let delta = |offset: usize, text: &str| {
        let told = json!({ "execution_id": id, "agent": "b", "number": 1, "iteration": 1, "offset": offset, "text": text });
        (None, "agent_delta".to_owned(), told)
    };
    // Its response is still incomplete.
    assert_eq!(next().await, delta(0, "Größe: "));
    half.open();
    let mut text = String::new();
    let (number, done) = loop {
        match next().await {
            (None, _, told) => {
                assert_eq!(told["offset"], 7 + text.chars().count());
                text.push_str(told["text"].as_str().expect("text"));
            }
            (Some(number), name, done) => {
                assert_eq!(name, "agent_done");
                break (number, done);
            }
        }
    };
    assert_eq!((number, &*text), (4, "two metres.\u{1b}[2J"));
    assert_eq!(done["output"], "Größe: two metres.\u{1b}[2J");
    assert_eq!(next().await.1, "swarm_done");
    let asked: Vec<_> = upstream.requests().iter().map(|sent| sent.json()).collect();
    assert_eq!(asked.len(), 2);
    // Listeners change nothing.
    assert_eq!(asked[0]["stream"], true, "nobody listened");
    assert_eq!(asked[1]["stream"], true);
    assert!(asked[1].get("step").is_none(), "{}", asked[1]);
    // The delta was sent, and is not stored.
    let again: Vec<_> = follow(&client, &id, 0).await.rest().await;
    let again: Vec<_> = again.iter().map(|event| read(event).0).collect();
    assert_eq!(again, [1, 2, 3, 4, 5].map(Some));
    let record = client.get(&format!("/swarms/{id}")).await.json();
    let used = client.get("/usage/requests").await.json();
    let mut charged = 0.0;
    let requests = used["requests"].as_array().expect("a list").iter();
    for request in requests.filter(|request| request["model"] == "streamed") {
        charged += request["credits"].as_f64().expect("credits");
    }
    let credits = record["total_credits"].as_f64().expect("credits");
    assert!(credits > 0.0 && (charged - credits).abs() < 1e-9, "{used}");
    is_settled(&gateway).await;
}

#[tokio::test]
async fn a_stream_that_is_cut_at_every_event_loses_none_and_repeats_none() {
    let postgres = stores::Postgres::shared().create_database().await;
    for url in [None, Some(&postgres)] {
        let upstream = Upstream::start().await;
        let mut builder = Gateway::builder().swarms().upstream("scripted", &upstream);
        if let Some(url) = url {
            builder = builder.postgres(url);
        }
        let gateway = builder.start().await;
        gateway.set_plan("pro").await;
        let client = gateway.client();
        let look = json!({ "url": page(&gateway) });
        let gates: [Gate; 4] = std::array::from_fn(|_| Gate::new());
        for (index, gate) in gates.iter().enumerate() {
            upstream.will(match index % 2 {
                0 => calls("http_get", &look).after_gate(gate),
                _ => Reply::chat_stream(["It ", "rains."]).after_gate(gate),
            });
        }
        let id = ask(&client, &swarm(&[agent("a"), agent("b")])).await;
        // agent_start, tool_call, agent_done, twice, and swarm_done: a gate stands before these, and the client is
        // connected before it opens.
        let behind = [(1, 0), (2, 1), (4, 2), (5, 3)];
        let (mut last, mut seen) = (0, Vec::new());
        while last < 7 {
            let mut stream = follow(&client, &id, last).await;
            if let Some((_, gate)) = behind.iter().find(|(number, _)| *number == last) {
                gates[*gate].open();
            }
            let event = loop {
                let event = next(&mut stream).await;
                if read(&event).0.is_some() {
                    break event;
                }
            };
            last = read(&event).0.expect("a number");
            seen.push(event);
        }
        let all = follow(&client, &id, 0).await.rest().await;
        assert_eq!(seen, all, "none is lost and none comes twice");
        let numbers: Vec<_> = all.iter().filter_map(|event| read(event).0).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7]);
        for after in 0..=7 {
            let rest = follow(&client, &id, after).await.rest().await;
            assert_eq!(rest, all[after as usize..]);
        }
        assert_eq!(
            upstream.count(),
            4,
            "a client that goes away cancels nothing"
        );
    }
}

/// Clients and proxies treat a connection without a byte as dead.
#[tokio::test]
async fn a_stream_of_events_with_nothing_to_say_is_kept_alive() {
    let upstream = Upstream::start().await;
    let gate = Gate::new();
    upstream.will(Reply::chat("At last.").after_gate(&gate));
    let gateway = gateway(&upstream).await;
    let client = gateway.client();
    let id = ask(&client, &swarm(&[agent("a")])).await;
    patiently(gate.reached()).await;
    let mut stream = follow(&client, &id, 1).await;
    let comment = stream.next().await;
    assert_eq!(comment.as_deref(), Some(": keep-alive"));
    gate.open();
    let rest = numbered(stream.rest().await);
    assert_eq!(rest.len(), 2, "{rest:?}");
}
