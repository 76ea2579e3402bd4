//! N1 and N5: the effect of one free key on others by the size of its requests, at default limits. An organisation's
//! member with requests to the same model must be served within two seconds throughout.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tests::recording::{FORM, form, wav};
use tests::{Answer, Client, Reply, Upstream, chat};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::kinds::{self, Kind};
use crate::money::ORGANISATION;
use crate::process::{Node, Stores};
use crate::runtime;

const CHAT: &str = "/chat";
const JSON: &str = "application/json";

/// The model of both, with the bundled adapter `openai`.
const MODEL: &str = "wide";

/// The rate of the plan `free`.
const ATTACKS_EVERY: Duration = Duration::from_secs(1);
const NEIGHBOUR_EVERY: Duration = Duration::from_millis(100);

/// Repetitions of each kind in N1: as many as a quarantine would take.
const TIMES: usize = 5;

/// Prompts of N5.
const PROMPTS: usize = 60;

const SERVED_WITHIN: Duration = Duration::from_secs(2);

/// Time limit of a response: a later one counts as missing.
const PATIENCE: Duration = Duration::from_secs(20);

/// Credits of the neighbour's organisation.
const CREDITS: &str = "100000";

/// Size of an oversized part, in bytes: less than a body may have.
const HUGE: usize = 9_000_000;

/// A request: its path, media type and body.
type Attack = (&'static str, &'static str, Bytes);

/// N1: all sizes under a client's control.
pub(crate) fn quarantine() -> bool {
    let kinds: Vec<_> = chats().into_iter().chain(others()).collect();
    let attacks = (0..TIMES).flat_map(|_| kinds.iter().cloned());
    let what = format!("{} kinds of requests {TIMES} times", kinds.len());
    runtime(2).block_on(beside_a_neighbour("N1", &what, attacks))
}

/// N5: prompts as long as a body can be, and as long as an adapter can serve.
pub(crate) fn appetite() -> bool {
    let prompts =
        [HUGE, 7_500_000].map(|bytes| (CHAT, JSON, said(chat(MODEL, &"word ".repeat(bytes / 5)))));
    let attacks = (0..PROMPTS).map(|prompt| prompts[prompt % 2].clone());
    let what = format!("{PROMPTS} prompts of 9 and 7.5 MB");
    runtime(2).block_on(beside_a_neighbour("N5", &what, attacks))
}

async fn beside_a_neighbour(row: &str, what: &str, attacks: impl Iterator<Item = Attack>) -> bool {
    let upstream = Upstream::start().await;
    upstream.always_by(
        |request| match request.path.ends_with("/chat/completions") {
            true => Reply::chat("served"),
            false => Kind::reply(request),
        },
    );
    let mut node = Node::new(&Stores::default(), &model(&upstream));
    let neighbour = node.member_client(CREDITS).await;
    node.start();
    let mallory = key(&node, "mallory");
    let (_, upgraded) = node.run(&["user", "set-plan", "--user", ORGANISATION, "--plan", "pro"]);
    assert!(upgraded, "the neighbour pays");
    let before = node.resident_kib() >> 10;
    let (stop, stopped) = watch::channel(false);
    let asking = tokio::spawn(ask_until(stopped, neighbour));
    let (mut sent, mut resident) = (JoinSet::new(), before);
    let mut clock = tokio::time::interval(ATTACKS_EVERY);
    for (path, content_type, body) in attacks {
        clock.tick().await;
        let mallory = mallory.clone();
        sent.spawn(async move {
            let answer = mallory.try_send(Method::POST, path, Some(content_type), body);
            tokio::time::timeout(PATIENCE, answer).await.ok()
        });
        resident = resident.max(node.resident_kib() >> 10);
    }
    let answers = sent.join_all().await;
    stop.send_replace(true);
    let neighbour = asking.await.expect("no panic");
    let shown = node.operator().get("/admin/plugins/openai").await.json();
    let traps = &shown["plugins"][0]["traps"];
    let is_active = shown["plugins"][0]["state"] == "active";
    println!(
        "{row}: {what}: {}; the neighbour: {} of {} served, the slowest in {:.0?} (limit {SERVED_WITHIN:.0?}); \
         openai: {traps} traps, {}; resident {before} MiB, then {resident} MiB at most, {} panics",
        count(&answers),
        neighbour.served,
        neighbour.asked,
        neighbour.slowest,
        if is_active {
            "in service"
        } else {
            "out of service"
        },
        node.panics(),
    );
    is_active
        && *traps == 0
        && neighbour.served == neighbour.asked
        && neighbour.slowest <= SERVED_WITHIN
        && node.panics() == 0
}

/// The results of a neighbour's requests.
#[derive(Default)]
struct Neighbour {
    asked: usize,
    served: usize,
    slowest: Duration,
}

/// Sends requests at a fixed rate, regardless of outstanding responses.
async fn ask_until(stopped: watch::Receiver<bool>, client: Client) -> Neighbour {
    let mut requests = JoinSet::new();
    let mut clock = tokio::time::interval(NEIGHBOUR_EVERY);
    while !*stopped.borrow() {
        clock.tick().await;
        let client = client.clone();
        requests.spawn(async move {
            let asked = Instant::now();
            let request = chat(MODEL, "hello");
            let answer = tokio::time::timeout(PATIENCE, client.try_post(CHAT, &request)).await;
            let is_served = matches!(answer, Ok(Some(answer)) if answer.status == 200);
            (is_served, asked.elapsed())
        });
    }
    let answers = requests.join_all().await;
    Neighbour {
        asked: answers.len(),
        served: answers.iter().filter(|(is_served, _)| *is_served).count(),
        slowest: answers
            .iter()
            .map(|(_, took)| *took)
            .max()
            .unwrap_or_default(),
    }
}

/// Counts the responses by kind; a missing response and a closed connection are two of the kinds.
fn count(answers: &[Option<Option<Answer>>]) -> String {
    let mut kinds = BTreeMap::new();
    for answer in answers {
        let kind = match answer {
            None => format!("none within {PATIENCE:.0?}"),
            Some(None) => "closed".to_owned(),
            Some(Some(answer)) if answer.status == 200 => "200".to_owned(),
            Some(Some(answer)) => {
                let code = &answer.json()["error"]["code"];
                format!(
                    "{} {}",
                    answer.status.as_u16(),
                    code.as_str().unwrap_or("?")
                )
            }
        };
        *kinds.entry(kind).or_insert(0) += 1;
    }
    let counted = kinds
        .iter()
        .map(|(kind, times)| format!("{times} × {kind}"));
    counted.collect::<Vec<_>>().join(", ")
}

fn key(node: &Node, user: &str) -> Client {
    let (key, made) = node.run(&["key", "create", "--user", user]);
    assert!(made, "a key is made");
    Client::new(node.address()).with_key(&key)
}

/// A model whose context fits any body, at a price that any account can pay.
fn model(upstream: &Upstream) -> String {
    let others = kinds::ALL.map(|kind| {
        let price = match kind {
            Kind::Embeddings | Kind::Rerank | Kind::Moderation => "input = 0.0001, output = 0",
            Kind::Speech => "characters = 0.0001",
            Kind::Transcription => "minute = 0.0001",
        };
        format!(
            "[models.{name}]\nkind = \"{name}\"\ncontext_window = 8000000\nprice = {{ {price} }}\n\
             upstreams = [{{ provider = {MODEL:?} }}]\n",
            name = kind.name()
        )
    });
    format!(
        "[providers.{MODEL}]\nadapter = \"openai\"\nbase_url = \"{}\"\n\
         [models.{MODEL}]\ncontext_window = 8000000\nmax_output_tokens = 1000\n\
         default_output_tokens = 1000\nmax_image_tokens = 100\nsupports_tools = true\nsupports_vision = true\n\
         upstreams = [{{ provider = {MODEL:?} }}]\nprice = {{ input = 0.0001, output = 0.0001 }}\n{}",
        upstream.base_url(),
        others.concat()
    )
}

/// Returns a chat for each size under a client's control.
fn chats() -> Vec<Attack> {
    let long = "x".repeat(HUGE);
    let escaped = "\u{1}".repeat(HUGE / 6);
    let user = json!({ "role": "user", "content": "x" });
    let after = |message: Value| json!({ "messages": [user, message] });
    let assistant = |fields: Value| {
        let mut message = json!({ "role": "assistant", "content": "x" });
        merge(&mut message, fields);
        after(message)
    };
    let call = |id: &str, name: &str, arguments: &str| json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } });
    let tool = |description: &str| json!({ "type": "function", "function": { "name": "f", "description": description } });
    let part = json!({ "type": "text", "text": "" });
    let parts = |messages, count| {
        let content = json!(vec![part.clone(); count]);
        json!({ "messages": vec![json!({ "role": "user", "content": content }); messages] })
    };
    let content = |part: Value| after(json!({ "role": "user", "content": [part] }));
    let detail = |fields: Value| assistant(json!({ "reasoning_details": [fields] }));
    let image =
        json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,AQID" } });
    let base64 = "A".repeat(HUGE / 4 * 4);
    let schema = |name: &str, value: &str| json!({ "response_format": { "type": "json_schema", "json_schema": { "name": name, "schema": { "a": value } } } });
    let many_fields: Value = (0..400_000)
        .map(|field| (format!("f{field}"), json!(1)))
        .collect();
    let fields = [
        json!({ "messages": [{ "role": "user", "content": long }] }),
        json!({ "messages": [{ "role": "user", "content": escaped }] }),
        json!({ "messages": vec![json!({ "role": "user", "content": "" }); 8_192] }),
        json!({ "messages": vec![user.clone(); 200_000] }),
        parts(300, 1_000),
        parts(32, 1_000),
        parts(1, 300_000),
        after(json!({ "role": "tool", "tool_call_id": long, "content": "x" })),
        after(json!({ "role": "user", "name": long, "content": "x" })),
        assistant(json!({ "tool_calls": [call(&long, "f", "{}")] })),
        assistant(json!({ "tool_calls": [call("c", &long, "{}")] })),
        assistant(json!({ "tool_calls": [call("c", "f", &long)] })),
        assistant(json!({ "tool_calls": vec![call("c", "f", "{}"); 1_000] })),
        assistant(json!({ "reasoning_content": long })),
        assistant(json!({ "refusal": long })),
        detail(json!({ "type": "reasoning.text", "text": "x", "signature": long })),
        detail(json!({ "type": "reasoning.encrypted", "data": long })),
        detail(json!({ "type": "reasoning.summary", "summary": "x", "id": long })),
        assistant(
            json!({ "provider_specific_fields": { "blocks": [{ "kind": "k", "block": { "a": long } }] } }),
        ),
        assistant(json!({ "annotations": long })),
        content(
            json!({ "type": "image_url", "image_url": { "url": format!("https://a.example/{long}") } }),
        ),
        content(
            json!({ "type": "image_url", "image_url": { "url": format!("data:image/png;base64,{base64}") } }),
        ),
        content(json!({ "type": "file", "file": { "file_id": "f", "filename": long } })),
        content(
            json!({ "type": "input_audio", "input_audio": { "data": base64, "format": "wav" } }),
        ),
        after(json!({ "role": "user", "content": vec![image; 1_000] })),
        json!({ "tools": vec![tool(""); 500] }),
        json!({ "tools": vec![tool(&"x".repeat(HUGE / 500)); 500] }),
        json!({ "tools": vec![tool(""); 100_000] }),
        schema("n", &long),
        schema(&long, "x"),
        json!({ "user": long }),
        json!({ "metadata": long }),
        json!({ "logit_bias": many_fields }),
        many_fields.clone(),
        json!({ "stop": vec!["x".repeat(1_000); 16] }),
        json!({ "stop": long }),
        json!({ "model": long }),
    ];
    let mut kinds: Vec<_> = fields
        .into_iter()
        .map(|fields| {
            let mut body = chat(MODEL, "x");
            merge(&mut body, fields);
            said(body)
        })
        .collect();
    // Nested arrays, as deep as a body allows, and many times that.
    for megabytes in [9, 64] {
        kinds.push(Bytes::from("[".repeat(megabytes << 20)));
        let half = (megabytes << 20) / 2;
        let nested = format!("{}{}", "[".repeat(half), "]".repeat(half));
        kinds.push(Bytes::from(format!(
            "{{\"model\":{MODEL:?},\"messages\":[{user}],\"extra\":{nested}}}"
        )));
    }
    kinds.into_iter().map(|body| (CHAT, JSON, body)).collect()
}

/// Returns a request of every other kind for each size under a client's control.
fn others() -> Vec<Attack> {
    let long = "x".repeat(HUGE);
    let escaped = "\u{1}".repeat(HUGE / 6);
    let empty = |count| json!(vec![""; count]);
    let texts = |count| json!(vec!["x".repeat(HUGE / count); count]);
    let tokens: Value = (0..1_000_000).collect();
    let many_fields: Value = (0..400_000)
        .map(|field| (format!("f{field}"), json!(1)))
        .collect();
    let bodies = [
        (
            Kind::Embeddings,
            "/v1/embeddings",
            json!({ "input": "x" }),
            vec![
                json!({ "input": long }),
                json!({ "input": escaped }),
                json!({ "input": empty(2_048) }),
                json!({ "input": empty(500_000) }),
                json!({ "input": texts(96) }),
                json!({ "input": tokens }),
                json!({ "input": vec![json!([1]); 500_000] }),
                json!({ "user": long }),
                json!({ "encoding_format": long }),
                many_fields.clone(),
            ],
        ),
        (
            Kind::Rerank,
            "/v1/rerank",
            json!({ "query": "x", "documents": ["x"] }),
            vec![
                json!({ "query": long }),
                json!({ "documents": [long] }),
                json!({ "documents": empty(1_000) }),
                json!({ "documents": empty(500_000) }),
                json!({ "documents": texts(1_000) }),
                json!({ "documents": vec![json!({ "text": "x" }); 100_000] }),
                many_fields.clone(),
            ],
        ),
        (
            Kind::Moderation,
            "/v1/moderations",
            json!({ "input": "x" }),
            vec![
                json!({ "input": long }),
                json!({ "input": escaped }),
                json!({ "input": empty(500_000) }),
                json!({ "input": texts(1_000) }),
                many_fields.clone(),
            ],
        ),
        (
            Kind::Speech,
            "/v1/audio/speech",
            json!({ "input": "x", "voice": "alloy" }),
            vec![
                json!({ "input": long }),
                json!({ "voice": long }),
                json!({ "voice": { "id": long } }),
                json!({ "instructions": long }),
                json!({ "response_format": long }),
                many_fields,
            ],
        ),
    ];
    let mut attacks = Vec::new();
    for (kind, path, body, sizes) in bodies {
        for fields in sizes {
            let mut body = body.clone();
            body["model"] = json!(kind.name());
            merge(&mut body, fields);
            attacks.push((path, JSON, said(body)));
        }
    }
    let model = ("model", Kind::Transcription.name());
    let short = wav(1);
    // The head says that the recording lasts for days.
    let mut liar = short.clone();
    liar[40..44].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut many_parts = vec![model];
    many_parts.extend(vec![("timestamp_granularities[]", "word"); 50_000]);
    for form in [
        form(&wav(HUGE as u32 / 8_000), &[model]),
        form(&liar, &[model]),
        form(&vec![0; HUGE], &[model]),
        form(&[], &[model]),
        form(&short, &[model, ("prompt", &long)]),
        form(&short, &[model, ("language", &long)]),
        form(&short, &[model, ("response_format", &long)]),
        form(&short, &[("model", &long)]),
        form(&short, &[model, (&long, "x")]),
        form(&short, &many_parts),
    ] {
        attacks.push(("/v1/audio/transcriptions", FORM, form));
    }
    attacks
}

fn merge(object: &mut Value, fields: Value) {
    if let (Value::Object(object), Value::Object(fields)) = (object, fields) {
        object.extend(fields);
    }
}

fn said(body: Value) -> Bytes {
    body.to_string().into()
}
