//! Vectors of texts (`/v1/embeddings`) and orders of documents (`/v1/rerank`): with each adapter, their prices, filters,
//! and faulty responses.
//!
//! Requests and responses have the fields of openai-python 3.52.0 (`types/embedding_create_params.py`,
//! `types/create_embedding_response.py`), python-genai 3.6.1 (`models.py`, `batchEmbedContents`), Ollama's API
//! documentation (`POST /api/embed`), cohere-python 7.3.1 (`v2/types/v2rerank_response.py`,
//! `types/api_meta_billed_units.py`) and Voyage's API documentation (`POST /v1/rerank`).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tests::gateway::Builder;
use tests::{Client, Gateway, Reply, Upstream};

const EMBEDDINGS: &str = "/v1/embeddings";
const RERANK: &str = "/v1/rerank";

/// Adapters with vectors that call a provider.
const ADAPTERS: [&str; 3] = ["openai", "gemini", "ollama"];

/// A gateway whose model `vectors` costs 2 USD per million tokens, and `order` 0.01 USD a search unit.
fn gateway_of(adapter: &str, upstream: &Upstream) -> Builder {
    let builder = Gateway::builder()
        .provider("scripted", adapter, Some(upstream))
        .tables(
            "[models.vectors]\nkind = \"embeddings\"\ncontext_window = 100\n\
             upstreams = [{ provider = \"scripted\", model = \"vectors-1\" }]\nprice = { input = 2, output = 0 }\n",
        );
    match adapter {
        "openai" => builder.tables(
            "[models.order]\nkind = \"rerank\"\ncontext_window = 100\n\
             upstreams = [{ provider = \"scripted\", model = \"order-1\" }]\n\
             price = { input = 0, output = 0, search = 0.01 }\n",
        ),
        _ => builder,
    }
}

/// A provider's response with these vectors, as JSON.
fn vectors(adapter: &str, vectors: &[&str]) -> Reply {
    let body = match adapter {
        "openai" => {
            let items = vectors.iter().enumerate();
            let items: Vec<_> = items
                .map(|(index, vector)| {
                    format!(r#"{{"object":"embedding","index":{index},"embedding":{vector}}}"#)
                })
                .collect();
            format!(
                r#"{{"object":"list","data":[{}],"model":"vectors-1","usage":{{"prompt_tokens":7,"total_tokens":7}}}}"#,
                items.join(",")
            )
        }
        "gemini" => {
            let items: Vec<_> = vectors
                .iter()
                .map(|vector| format!(r#"{{"values":{vector}}}"#))
                .collect();
            format!(r#"{{"embeddings":[{}]}}"#, items.join(","))
        }
        _ => format!(
            r#"{{"model":"vectors-1","embeddings":[{}],"total_duration":1,"load_duration":1,"prompt_eval_count":7}}"#,
            vectors.join(",")
        ),
    };
    Reply::new(200)
        .header("content-type", "application/json")
        .body(body)
}

fn asked(input: Value) -> Value {
    json!({ "model": "vectors", "input": input })
}

/// Returns status and credits of the last request with a hold.
async fn ended(client: &Client) -> (String, f64) {
    let list = client.get("/usage/requests?limit=1").await.json();
    let last = &list["requests"][0];
    let status = last["status"].as_str().unwrap_or_default();
    (status.to_owned(), last["credits"].as_f64().unwrap_or(-1.0))
}

fn embedded(answer: &Value) -> Vec<Value> {
    let data = answer["data"].as_array().expect("a list");
    data.iter().map(|item| item["embedding"].clone()).collect()
}

#[tokio::test]
async fn texts_become_vectors_with_each_adapter() {
    for adapter in ADAPTERS {
        let upstream = Upstream::start().await;
        let gateway = gateway_of(adapter, &upstream).start().await;
        let client = gateway.client();
        let mut body = asked(json!(["a cat", "a dog"]));
        body["dimensions"] = json!(2);
        for base64 in [false, true] {
            upstream.will(vectors(adapter, &["[1.5, -2]", "[0.25,1e-3]"]));
            if base64 {
                body["encoding_format"] = json!("base64");
            }
            let answer = client.post(EMBEDDINGS, &body).await;
            assert_eq!(answer.status, 200, "{adapter}: {}", answer.text());
            let answer = answer.json();
            assert_eq!(
                (&answer["object"], &answer["model"]),
                (&json!("list"), &json!("vectors"))
            );
            let bytes = |numbers: [f32; 2]| numbers.map(f32::to_le_bytes).concat();
            let expected = match base64 {
                false => vec![json!([1.5, -2]), json!([0.25, 0.001])],
                true => [[1.5, -2.0], [0.25, 0.001]]
                    .map(|numbers| json!(STANDARD.encode(bytes(numbers))))
                    .to_vec(),
            };
            assert_eq!(embedded(&answer), expected, "{adapter}");
            assert_eq!(answer["data"][1]["index"], 1);
            // Gemini reports no tokens: ten bytes are three.
            let tokens = if adapter == "gemini" { 3 } else { 7 };
            assert_eq!(answer["usage"]["prompt_tokens"], tokens, "{adapter}");
            let credits = f64::from(tokens) * 0.0028;
            assert_eq!(answer["usage"]["credits"], credits);
            assert_eq!(ended(&client).await, ("settled".to_owned(), credits));

            let request = upstream.next_request().await;
            let (path, expected) = match adapter {
                "openai" => {
                    let mut expected = json!({
                        "model": "vectors-1", "input": ["a cat", "a dog"], "dimensions": 2,
                    });
                    if base64 {
                        expected["encoding_format"] = json!("base64");
                    }
                    ("/embeddings", expected)
                }
                "gemini" => {
                    let one = |text: &str| {
                        json!({
                            "model": "models/vectors-1", "content": { "parts": [{ "text": text }] },
                            "outputDimensionality": 2,
                        })
                    };
                    (
                        "/models/vectors-1:batchEmbedContents",
                        json!({ "requests": [one("a cat"), one("a dog")] }),
                    )
                }
                _ => (
                    "/embed",
                    json!({
                        "model": "vectors-1", "input": ["a cat", "a dog"], "truncate": false, "dimensions": 2,
                    }),
                ),
            };
            assert_eq!(request.path, path);
            assert_eq!(request.json(), expected);
        }
    }
}

#[tokio::test]
async fn tokens_and_the_use_of_vectors_reach_providers_that_know_them() {
    let upstream = Upstream::start().await;
    let options = "[providers.scripted.options]\ninput-type = \"true\"\ndimensions-field = \"output_dimension\"\n";
    let gateway = gateway_of("openai", &upstream)
        .tables(options)
        .start()
        .await;
    let mut body = asked(json!([[1, 2], [3]]));
    body["input_type"] = json!("document");
    body["dimensions"] = json!(1);
    body["truncation"] = json!(false);
    upstream.will(vectors("openai", &["[1]", "[2]"]));
    let answer = gateway.client().post(EMBEDDINGS, &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(
        upstream.next_request().await.json(),
        json!({
            "model": "vectors-1", "input": [[1, 2], [3]], "output_dimension": 1, "input_type": "document",
            "truncation": false,
        })
    );

    let upstream = Upstream::start().await;
    let gateway = gateway_of("gemini", &upstream).start().await;
    let client = gateway.client();
    let mut body = asked(json!("a cat"));
    for (word, expected) in [("query", "RETRIEVAL_QUERY"), ("CLUSTERING", "CLUSTERING")] {
        body["input_type"] = json!(word);
        upstream.will(vectors("gemini", &["[1]"]));
        assert_eq!(client.post(EMBEDDINGS, &body).await.status, 200);
        let request = upstream.next_request().await.json();
        assert_eq!(request["requests"][0]["taskType"], expected);
    }
    for (body, param) in [
        (asked(json!([1, 2])), "input"),
        (
            json!({ "model": "vectors", "input": "a", "input_type": "unheard of" }),
            "input_type",
        ),
        (
            json!({ "model": "vectors", "input": "a", "novelty": 1 }),
            "novelty",
        ),
    ] {
        let refused = client.post(EMBEDDINGS, &body).await;
        assert_eq!(refused.status, 400, "{}", refused.text());
        assert_eq!(refused.json()["error"]["param"], param);
    }
}

#[tokio::test]
async fn the_gateway_without_setup_makes_vectors_and_orders_documents() {
    let gateway = Gateway::start().await;
    let client = gateway.client();
    let body = json!({
        "model": "demo-embedding", "input": ["a small weir", "the weir, small", "cats"], "dimensions": 256,
    });
    let answer = client.post(EMBEDDINGS, &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let vectors: Vec<Vec<f64>> = embedded(&answer.json())
        .into_iter()
        .map(|vector| serde_json::from_value(vector).expect("numbers"))
        .collect();
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    assert!((product(&vectors[0], &vectors[0]) - 1.0).abs() < 1e-6);
    assert!(product(&vectors[0], &vectors[1]) > product(&vectors[0], &vectors[2]));

    let body = json!({
        "model": "demo-rerank", "query": "small weir", "top_n": 2, "return_documents": true,
        "documents": ["cats", "A weir is small.", { "text": "a small cat" }],
    });
    for path in [RERANK, "/v2/rerank"] {
        let answer = client.post(path, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(
            answer.json()["results"],
            json!([
                { "index": 1, "relevance_score": 1.0, "document": { "text": "A weir is small." } },
                { "index": 2, "relevance_score": 0.5, "document": { "text": "a small cat" } },
            ])
        );
        // A search unit is 0.001 USD, times 1.4.
        assert_eq!(answer.json()["usage"]["credits"], 1.4);
        assert_eq!(ended(&client).await, ("settled".to_owned(), 1.4));
    }
    let listed = client.get("/models").await.json();
    let models = listed["models"].as_array().expect("a list");
    let kind = |id: &str| {
        let model = models.iter().find(|model| model["id"] == id);
        model.map(|model| model["kind"].clone())
    };
    assert_eq!(kind("demo-embedding"), Some(json!("embeddings")));
    assert_eq!(kind("demo-rerank"), Some(json!("rerank")));
    assert_eq!(kind("demo"), Some(json!("chat")));
}

#[tokio::test]
async fn documents_are_ordered_and_paid_by_search_unit_or_token() {
    let upstream = Upstream::start().await;
    let gateway = gateway_of("openai", &upstream)
        .tables("[models.by-token]\nkind = \"rerank\"\ncontext_window = 100\nprice = { input = 2, output = 0 }\n\
                 upstreams = [{ provider = \"scripted\", options = { rerank-limit-field = \"top_k\" } }]\n")
        .start()
        .await;
    let client = gateway.client();
    let documents: Vec<_> = (0..150)
        .map(|number| format!("document {number}"))
        .collect();
    let ranking =
        json!([{ "index": 149, "relevance_score": 0.9 }, { "index": 3, "relevance_score": 0.1 }]);
    let body = json!({ "model": "order", "query": "q", "documents": documents, "top_n": 2, "max_tokens_per_doc": 99 });

    // Cohere's response. A report of fewer units than 150 documents have is not believed, nor is one of more.
    for (units, charged) in [
        (json!(2.0), 2),
        (json!(1), 2),
        (json!(900), 2),
        (Value::Null, 2),
    ] {
        upstream.will(Reply::json(
            200,
            &json!({
                "id": "r", "results": ranking,
                "meta": { "api_version": { "version": "2" }, "billed_units": { "search_units": units } },
            }),
        ));
        let answer = client.post(RERANK, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.json()["results"], ranking);
        assert_eq!(
            ended(&client).await,
            ("settled".to_owned(), f64::from(charged) * 14.0),
            "{units}"
        );
        let request = upstream.next_request().await;
        assert_eq!(request.path, "/rerank");
        assert_eq!(
            request.json(),
            json!({
                "model": "order-1", "query": "q", "documents": documents, "top_n": 2, "max_tokens_per_doc": 99,
            })
        );
    }

    // Voyage's response.
    let body = json!({ "model": "by-token", "query": "q", "documents": ["a", "b"], "top_n": 1 });
    let ranking = json!([{ "index": 1, "relevance_score": 0.5 }]);
    upstream.will(Reply::json(
        200,
        &json!({ "object": "list", "data": ranking, "model": "by-token", "usage": { "total_tokens": 9 } }),
    ));
    let answer = client.post(RERANK, &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["results"], ranking);
    assert_eq!(answer.json()["usage"]["total_tokens"], 9);
    assert_eq!(ended(&client).await, ("settled".to_owned(), 9.0 * 0.0028));
    assert_eq!(
        upstream.next_request().await.json(),
        json!({ "model": "by-token", "query": "q", "documents": ["a", "b"], "top_k": 1 })
    );
}

#[tokio::test]
async fn an_invalid_response_costs_nothing() {
    let ranked = |results: &str| {
        Reply::new(200)
            .header("content-type", "application/json")
            .body(format!(r#"{{"results":{results}}}"#))
    };
    for adapter in ADAPTERS {
        let upstream = Upstream::start().await;
        let gateway = gateway_of(adapter, &upstream).start().await;
        let client = gateway.client();
        let two = asked(json!(["a", "b"]));
        let mut cases = vec![
            (EMBEDDINGS, two.clone(), vectors(adapter, &["[1]"])),
            (
                EMBEDDINGS,
                two.clone(),
                vectors(adapter, &["[1]", "[1, 2]"]),
            ),
            (EMBEDDINGS, two.clone(), vectors(adapter, &["[1]", "null"])),
            (
                EMBEDDINGS,
                two.clone(),
                vectors(adapter, &["[1]", "[\"1\"]"]),
            ),
            (
                EMBEDDINGS,
                two.clone(),
                vectors(adapter, &["[1]", "[1e99]"]),
            ),
            (
                EMBEDDINGS,
                two.clone(),
                vectors(adapter, &["[1]", "\"@0\""]),
            ),
            (EMBEDDINGS, two.clone(), Reply::json(200, &json!({}))),
            (EMBEDDINGS, two, Reply::events(["{}"])),
        ];
        if adapter == "openai" {
            let body = json!({ "model": "order", "query": "q", "documents": ["a", "b"] });
            for results in [
                "[{\"index\":2,\"relevance_score\":1}]",
                "[{}]",
                "{}",
                "null",
            ] {
                cases.push((RERANK, body.clone(), ranked(results)));
            }
        }
        for (path, body, reply) in cases {
            let said = String::from_utf8_lossy(&reply.whole_body()).into_owned();
            // A valid response keeps the provider's breaker closed.
            upstream.will(vectors(adapter, &["[1]"]));
            let valid = client.post(EMBEDDINGS, &asked(json!("a"))).await;
            assert_eq!(valid.status, 200, "{adapter}: {}", valid.text());
            upstream.will(reply);
            let answer = client.post(path, &body).await;
            assert_eq!(answer.status, 502, "{adapter}, {said}: {}", answer.text());
            let (status, _) = ended(&client).await;
            assert_eq!(status, "released", "{adapter}, {said}");
        }
        // A model may have no other number of dimensions.
        upstream.will(vectors(adapter, &["[1]"]));
        let mut body = asked(json!("a"));
        body["dimensions"] = json!(2);
        let answer = client.post(EMBEDDINGS, &body).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert_eq!(answer.json()["error"]["param"], "dimensions");
        // The provider's error reaches the client.
        upstream.will(Reply::json(
            429,
            &json!({ "error": { "message": "slow down" } }),
        ));
        upstream.will(Reply::json(
            429,
            &json!({ "error": { "message": "slow down" } }),
        ));
        let answer = client.post(EMBEDDINGS, &asked(json!("a"))).await;
        assert_eq!(answer.status, 503, "{}", answer.text());
    }
}

/// weir delivers as many items as the request asks for, and counts the surplus against the component.
#[tokio::test]
async fn surplus_vectors_and_documents_are_dropped_and_counted() {
    for adapter in ADAPTERS {
        let upstream = Upstream::start().await;
        let gateway = gateway_of(adapter, &upstream).start().await;
        let client = gateway.client();
        upstream.will(vectors(adapter, &["[1]", "[2]", "[3]"]));
        let answer = client.post(EMBEDDINGS, &asked(json!(["a", "b"]))).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(embedded(&answer.json()).len(), 2, "{adapter}");
        let mut surplus = 1;
        if adapter == "openai" {
            let results = json!([
                { "index": 1, "relevance_score": 0.9 }, { "index": 0, "relevance_score": 0.1 },
            ]);
            upstream.will(Reply::json(200, &json!({ "results": results })));
            let body =
                json!({ "model": "order", "query": "q", "documents": ["a", "b"], "top_n": 1 });
            let answer = client.post(RERANK, &body).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            let ranked = answer.json()["results"].clone();
            assert_eq!(ranked.as_array().map(Vec::len), Some(1), "{ranked}");
            assert_eq!(ranked[0]["index"], 1);
            surplus += 1;
        }
        let metrics = gateway.stranger().get("/metrics").await.text();
        let clamps = format!("weir_plugin_clamps_total{{slot=\"{adapter}\"");
        let counted = metrics.lines().filter(|line| line.starts_with(&clamps));
        assert_eq!(counted.count(), surplus, "{metrics}");
    }
}

#[tokio::test]
async fn a_request_of_another_kind_or_size_is_refused_by_field() {
    let upstream = Upstream::start().await;
    let gateway = gateway_of("openai", &upstream).start().await;
    let client = gateway.client();
    let long = "word ".repeat(100);
    let chat = json!({ "model": "vectors", "messages": [{ "role": "user", "content": "a" }] });
    for (path, body, code, param) in [
        (
            EMBEDDINGS,
            json!({ "model": "demo", "input": "a" }),
            "MODEL_NOT_SUPPORTED",
            "model",
        ),
        (
            EMBEDDINGS,
            json!({ "model": "order", "input": "a" }),
            "MODEL_NOT_SUPPORTED",
            "model",
        ),
        (
            EMBEDDINGS,
            json!({ "model": "unknown", "input": "a" }),
            "UNKNOWN_MODEL",
            "model",
        ),
        (
            EMBEDDINGS,
            asked(json!(["a", long])),
            "CONTEXT_LENGTH_EXCEEDED",
            "input[1]",
        ),
        (
            EMBEDDINGS,
            asked(json!(long)),
            "CONTEXT_LENGTH_EXCEEDED",
            "input",
        ),
        (
            RERANK,
            json!({ "model": "vectors", "query": "q", "documents": ["a"] }),
            "MODEL_NOT_SUPPORTED",
            "model",
        ),
        (
            RERANK,
            json!({ "model": "order", "query": long, "documents": ["a"] }),
            "CONTEXT_LENGTH_EXCEEDED",
            "query",
        ),
        ("/v1/chat/completions", chat, "MODEL_NOT_SUPPORTED", "model"),
    ] {
        let refused = client.post(path, &body).await;
        let status = if code == "UNKNOWN_MODEL" { 404 } else { 400 };
        assert_eq!(refused.status, status, "{path}: {}", refused.text());
        let error = &refused.json()["error"];
        assert_eq!(
            (&error["weir_code"], &error["param"]),
            (&json!(code), &json!(param)),
            "{path}: {error}"
        );
    }
    assert!(upstream.requests().is_empty());
}

#[tokio::test]
async fn filters_guard_texts_of_each_kind() {
    let upstream = Upstream::start().await;
    let gateway = gateway_of("openai", &upstream)
        .tables("[[filters]]\nslot = \"redact-pii\"\n")
        .start()
        .await;
    let client = gateway.client();
    upstream.will(vectors("openai", &["[1]", "[2]"]));
    let answer = client
        .post(
            EMBEDDINGS,
            &asked(json!(["write to ann@example.com", "a cat"])),
        )
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let sent = upstream.next_request().await.json();
    let text = sent["input"][0].as_str().expect("a text");
    assert!(
        !text.contains("ann@example.com") && text.starts_with("write to "),
        "{text}"
    );
    assert_eq!(sent["input"][1], "a cat");

    let ranking = json!([{ "index": 0, "relevance_score": 1 }]);
    upstream.will(Reply::json(200, &json!({ "results": ranking })));
    let body = json!({ "model": "order", "query": "ann@example.com", "documents": ["by ann@example.com"] });
    assert_eq!(client.post(RERANK, &body).await.status, 200);
    let sent = upstream.next_request().await.json().to_string();
    assert!(!sent.contains("ann@example.com"), "{sent}");

    // No filter can read tokens.
    let refused = client.post(EMBEDDINGS, &asked(json!([1, 2]))).await;
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert_eq!(refused.json()["error"]["param"], "input");
}

#[tokio::test]
async fn a_repeated_request_with_a_key_is_replayed() {
    let upstream = Upstream::start().await;
    let gateway = gateway_of("openai", &upstream).start().await;
    let client = gateway.client().with_header("idempotency-key", "k-1");
    upstream.will(vectors("openai", &["[1]"]));
    let mut seen = Vec::new();
    for _ in 0..2 {
        let body = asked(json!("a"));
        let answer = client.post(EMBEDDINGS, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        seen.push(answer.json());
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!(upstream.requests().len(), 1);
}
