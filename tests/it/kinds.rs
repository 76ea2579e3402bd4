//! Responses of each kind besides chats and images, from each adapter that serves it: in pieces of a byte, and cut after
//! every byte.
//!
//! The responses have the fields of openai-python 3.52.0, python-genai 3.6.1, Ollama's API documentation, and
//! cohere-python 7.3.1; `retrieval` and `audio` name the files.

use http::Method;
use serde_json::{Value, json};
use tests::recording::{self, FORM, wav};
use tests::{Client, Gateway, Reply, Upstream};

/// A request of a kind, and a provider's response to it.
struct Case {
    adapter: &'static str,
    kind: &'static str,
    path: &'static str,
    body: Value,
    response: Value,
}

fn cases() -> Vec<Case> {
    let case = |adapter, kind, path, body: Value, response: Value| Case {
        adapter,
        kind,
        path,
        body,
        response,
    };
    let texts = json!({ "input": ["a", "b"] });
    vec![
        case(
            "openai",
            "embeddings",
            "/v1/embeddings",
            texts.clone(),
            json!({
                "object": "list", "model": "m", "usage": { "prompt_tokens": 2, "total_tokens": 2 },
                "data": [
                    { "object": "embedding", "index": 0, "embedding": [0.5, -1.5] },
                    { "object": "embedding", "index": 1, "embedding": "AACAPwAAAMA=" },
                ],
            }),
        ),
        case(
            "gemini",
            "embeddings",
            "/v1/embeddings",
            texts.clone(),
            json!({ "embeddings": [{ "values": [0.5, -1.5] }, { "values": [1, -2] }] }),
        ),
        case(
            "ollama",
            "embeddings",
            "/v1/embeddings",
            texts.clone(),
            json!({ "model": "m", "embeddings": [[0.5, -1.5], [1, -2]], "prompt_eval_count": 2 }),
        ),
        case(
            "openai",
            "rerank",
            "/v1/rerank",
            json!({ "query": "q", "documents": ["a", "b"] }),
            json!({
                "id": "r", "results": [{ "index": 1, "relevance_score": 0.9 }, { "index": 0, "relevance_score": 0.1 }],
                "meta": { "billed_units": { "search_units": 1.0 } },
            }),
        ),
        case(
            "openai",
            "moderation",
            "/v1/moderations",
            texts,
            json!({
                "id": "m", "model": "m",
                "results": [{ "flagged": false, "categories": {} }, { "flagged": true, "categories": { "hate": true } }],
            }),
        ),
        case(
            "openai",
            "transcription",
            "/v1/audio/transcriptions",
            json!({ "response_format": "verbose_json" }),
            json!({
                "task": "transcribe", "language": "english", "duration": 1.0, "text": "A weir, \"low\".",
                "segments": [{ "id": 0, "start": 0.0, "end": 1.0, "text": "A weir." }],
            }),
        ),
    ]
}

/// Sends a case's request: JSON, or a form with a recording of a second.
async fn send(client: &Client, case: &Case) -> tests::client::Answer {
    let mut body = case.body.clone();
    body["model"] = json!("scripted");
    if case.kind != "transcription" {
        return client.post(case.path, &body).await;
    }
    let fields = body.as_object().into_iter().flatten();
    let fields: Vec<_> = fields
        .map(|(name, value)| (&**name, value.as_str().expect("a text")))
        .collect();
    let form = recording::form(&wav(1), &fields);
    client.send(Method::POST, case.path, Some(FORM), form).await
}

/// Starts a gateway with the case's adapter and model.
async fn gateway_of(case: &Case, upstream: &Upstream) -> Gateway {
    let price = match case.kind {
        "transcription" => "minute = 0.6",
        "rerank" => "input = 0, output = 0, search = 0.01",
        _ => "input = 2, output = 0",
    };
    let kind = case.kind;
    Gateway::builder()
        .provider("scripted", case.adapter, Some(upstream))
        .tables(&format!(
            "[models.scripted]\nkind = \"{kind}\"\ncontext_window = 100\nprice = {{ {price} }}\n\
             upstreams = [{{ provider = \"scripted\" }}]\n"
        ))
        .start()
        .await
}

/// Failures of one account in a row that leave its breaker closed.
const BEFORE_A_BREAKER_OPENS: usize = 4;

#[tokio::test]
async fn a_response_is_read_in_any_pieces_and_never_in_part() {
    for case in cases() {
        let what = format!("{} of {}", case.kind, case.adapter);
        let upstream = Upstream::start().await;
        let gateway = gateway_of(&case, &upstream).await;
        let client = gateway.client();
        let reply = Reply::json(200, &case.response);
        let mut read = Vec::new();
        for reply in [
            reply.clone().in_one_piece(),
            reply.clone().one_byte_at_a_time(),
        ] {
            upstream.will(reply);
            let answer = send(&client, &case).await;
            assert_eq!(answer.status, 200, "{what}: {}", answer.text());
            let mut answer = answer.json();
            answer["id"] = Value::Null;
            read.push(answer);
        }
        assert_eq!(read[0], read[1], "{what}");
        let lengths: Vec<_> = (0..reply.whole_body().len()).collect();
        for some in lengths.chunks(BEFORE_A_BREAKER_OPENS) {
            let balance = client.get("/usage/me").await.json();
            for &length in some {
                upstream.will(reply.clone().cut_after(length));
                let answer = send(&client, &case).await;
                assert_eq!(answer.status, 502, "{what}, {length}: {}", answer.text());
            }
            // Nothing of these was charged, and nothing is held.
            let after = client.get("/usage/me").await.json();
            assert_eq!(after, balance, "{what}");
            upstream.will(reply.clone());
            let answer = send(&client, &case).await;
            assert_eq!(answer.status, 200, "{what}: {}", answer.text());
        }
    }
}
