//! The charge of each tier of tokens, as vendors count them: in each dialect, plain and streamed.
//!
//! The fields are those of openai-python 3.52.0 (`types/completion_usage.py`, `types/responses/response_usage.py`),
//! anthropic-sdk-python 2.12.0 (`types/usage.py`), python-genai 3.6.1 (`types.py`,
//! `GenerateContentResponseUsageMetadata`) and Ollama's API documentation. `docs.x.ai`, `api-docs.deepseek.com` and
//! `docs.mistral.ai` describe the fields of these vendors.

use serde_json::{Value, json};
use tests::gateway::Builder;
use tests::scenario::aws_stream;
use tests::speaker::Speaker;
use tests::{Client, Gateway, Reply, Upstream};

/// Nano-USD for a token: of input, read from the cache, written to it for a short and a long time, and of output.
const PRICES: [u64; 5] = [2_000, 200, 2_500, 4_000, 10_000];

/// Tokens in the order of [`PRICES`], each counted once.
type Tiers = [u64; 5];

/// An upstream's usage, and its tiers.
struct Case {
    api: &'static str,
    usage: Value,
    tiers: Tiers,
}

fn case(api: &'static str, usage: Value, tiers: Tiers) -> Case {
    Case { api, usage, tiers }
}

const RESPONSES: &str = "openai over Responses";

fn cases() -> Vec<Case> {
    let chat = |usage, tiers| case("openai", usage, tiers);
    let responses = |usage, tiers| case(RESPONSES, usage, tiers);
    let anthropic = |usage, tiers| case("anthropic", usage, tiers);
    let gemini = |usage, tiers| case("gemini", usage, tiers);
    vec![
        chat(
            json!({ "prompt_tokens": 1_000, "completion_tokens": 50, "total_tokens": 1_050 }),
            [1_000, 0, 0, 0, 50],
        ),
        // OpenAI counts cached and reasoning tokens inside.
        chat(
            json!({
                "prompt_tokens": 1_000, "completion_tokens": 50, "total_tokens": 1_050,
                "prompt_tokens_details": { "cached_tokens": 600 },
                "completion_tokens_details": { "reasoning_tokens": 30 },
            }),
            [400, 600, 0, 0, 50],
        ),
        // DeepSeek.
        chat(
            json!({
                "prompt_tokens": 1_000, "completion_tokens": 50, "total_tokens": 1_050,
                "prompt_cache_hit_tokens": 600, "prompt_cache_miss_tokens": 400,
            }),
            [400, 600, 0, 0, 50],
        ),
        // xAI counts reasoning beside the output.
        chat(
            json!({
                "prompt_tokens": 1_000, "completion_tokens": 50, "total_tokens": 1_080,
                "completion_tokens_details": { "reasoning_tokens": 30 },
            }),
            [1_000, 0, 0, 0, 80],
        ),
        // Mistral counts audio beside the input.
        chat(
            json!({
                "prompt_tokens": 1_000, "completion_tokens": 50, "total_tokens": 1_120,
                "prompt_tokens_details": { "audio_tokens": 70 },
            }),
            [1_070, 0, 0, 0, 50],
        ),
        // A proxy in front of Anthropic.
        chat(
            json!({
                "prompt_tokens": 1_000, "completion_tokens": 50, "total_tokens": 1_050,
                "prompt_tokens_details": { "cached_tokens": 600, "cache_creation_tokens": 200 },
            }),
            [200, 600, 200, 0, 50],
        ),
        responses(
            json!({
                "input_tokens": 1_000, "output_tokens": 50, "total_tokens": 1_050,
                "input_tokens_details": { "cached_tokens": 600 },
                "output_tokens_details": { "reasoning_tokens": 30 },
            }),
            [400, 600, 0, 0, 50],
        ),
        responses(
            json!({
                "input_tokens": 1_000, "output_tokens": 50, "total_tokens": 1_050,
                "input_tokens_details": {
                    "cached_tokens": 600, "cache_write_tokens": 200,
                    "cache_write_tokens_details": { "ttl_12h_tokens": 150 },
                },
                "output_tokens_details": { "reasoning_tokens": 0 },
            }),
            [200, 600, 50, 150, 50],
        ),
        anthropic(
            json!({ "input_tokens": 1_000, "output_tokens": 50 }),
            [1_000, 0, 0, 0, 50],
        ),
        // Anthropic counts cached tokens beside the input.
        anthropic(
            json!({
                "input_tokens": 200, "cache_read_input_tokens": 600, "cache_creation_input_tokens": 200,
                "cache_creation": { "ephemeral_5m_input_tokens": 50, "ephemeral_1h_input_tokens": 150 },
                "output_tokens": 50,
            }),
            [200, 600, 50, 150, 50],
        ),
        anthropic(
            json!({ "input_tokens": 800, "cache_creation_input_tokens": 200, "output_tokens": 50 }),
            [800, 0, 200, 0, 50],
        ),
        gemini(
            json!({ "promptTokenCount": 1_000, "candidatesTokenCount": 50, "totalTokenCount": 1_050 }),
            [1_000, 0, 0, 0, 50],
        ),
        // Gemini counts cached tokens inside, thoughts and the prompts of its own tools beside.
        gemini(
            json!({
                "promptTokenCount": 1_000, "cachedContentTokenCount": 600, "candidatesTokenCount": 50,
                "thoughtsTokenCount": 30, "toolUsePromptTokenCount": 20, "totalTokenCount": 1_100,
            }),
            [420, 600, 0, 0, 80],
        ),
        // Bedrock counts cached tokens beside the input, as Anthropic does.
        case(
            "bedrock",
            json!({
                "inputTokens": 200, "outputTokens": 50, "totalTokens": 1_050,
                "cacheReadInputTokens": 600, "cacheWriteInputTokens": 200,
                "cacheDetails": [{ "ttl": "1h", "inputTokens": 150 }, { "ttl": "5m", "inputTokens": 50 }],
            }),
            [200, 600, 50, 150, 50],
        ),
        case(
            "bedrock",
            json!({ "inputTokens": 1_000, "outputTokens": 50, "totalTokens": 1_050 }),
            [1_000, 0, 0, 0, 50],
        ),
        case(
            "ollama",
            json!({ "prompt_eval_count": 1_000, "eval_count": 50 }),
            [1_000, 0, 0, 0, 50],
        ),
    ]
}

/// An upstream's response with this usage.
fn reply(case: &Case, stream: bool) -> Reply {
    let usage = &case.usage;
    let events = |events: &[Value]| Reply::events(events.iter().map(Value::to_string));
    match (case.api, stream) {
        ("openai", false) => Reply::json(
            200,
            &json!({
                "model": "m", "usage": usage,
                "choices": [{ "index": 0, "message": { "role": "assistant", "content": "So" }, "finish_reason": "stop" }],
            }),
        ),
        ("openai", true) => events(&[
            json!({ "choices": [{ "index": 0, "delta": { "role": "assistant", "content": "So" } }] }),
            json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] }),
            json!({ "choices": [], "usage": usage }),
        ]),
        (RESPONSES, _) => {
            let item = json!({
                "type": "message", "role": "assistant",
                "content": [{ "type": "output_text", "text": "So", "annotations": [] }],
            });
            let response = json!({
                "id": "resp_1", "object": "response", "model": "m", "status": "completed",
                "output": [item], "usage": usage,
            });
            if !stream {
                return Reply::json(200, &response);
            }
            let created = json!({ "id": "resp_1", "model": "m", "output": [] });
            events(&[
                json!({ "type": "response.created", "response": created }),
                json!({ "type": "response.output_item.added", "output_index": 0, "item": item }),
                json!({
                    "type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "So",
                }),
                json!({ "type": "response.output_item.done", "output_index": 0, "item": item }),
                json!({ "type": "response.completed", "response": response }),
            ])
        }
        ("anthropic", false) => Reply::json(
            200,
            &json!({
                "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "usage": usage,
                "content": [{ "type": "text", "text": "So" }], "stop_reason": "end_turn",
            }),
        ),
        ("anthropic", true) => {
            let mut first = usage.clone();
            first["output_tokens"] = json!(1);
            events(&[
                json!({ "type": "message_start", "message": { "id": "msg_1", "model": "m", "content": [], "usage": first } }),
                json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
                json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": "So" } }),
                json!({ "type": "content_block_stop", "index": 0 }),
                json!({
                    "type": "message_delta", "delta": { "stop_reason": "end_turn" },
                    "usage": { "output_tokens": usage["output_tokens"] },
                }),
                json!({ "type": "message_stop" }),
            ])
        }
        ("gemini", _) => {
            let answer = json!({
                "candidates": [{ "content": { "role": "model", "parts": [{ "text": "So" }] }, "finishReason": "STOP" }],
                "usageMetadata": usage,
            });
            match stream {
                false => Reply::json(200, &answer),
                true => Reply::events([answer.to_string()]),
            }
        }
        ("bedrock", false) => Reply::json(
            200,
            &json!({
                "output": { "message": { "role": "assistant", "content": [{ "text": "So" }] } },
                "stopReason": "end_turn", "usage": usage,
            }),
        ),
        ("bedrock", true) => aws_stream(
            [
                ("messageStart", json!({ "role": "assistant" })),
                (
                    "contentBlockDelta",
                    json!({ "contentBlockIndex": 0, "delta": { "text": "So" } }),
                ),
                ("contentBlockStop", json!({ "contentBlockIndex": 0 })),
                ("messageStop", json!({ "stopReason": "end_turn" })),
                ("metadata", json!({ "usage": usage })),
            ]
            .map(|(name, payload)| (name, payload.to_string())),
        ),
        ("ollama", _) => {
            let mut answer = usage.clone();
            answer["model"] = json!("m");
            answer["message"] = json!({ "role": "assistant", "content": "So" });
            answer["done"] = json!(true);
            answer["done_reason"] = json!("stop");
            let kind = match stream {
                false => "application/json",
                true => "application/x-ndjson",
            };
            let body = format!("{answer}\n");
            Reply::new(200).header("content-type", kind).body(body)
        }
        (api, _) => unreachable!("{api} has replies"),
    }
}

async fn gateway_with(api: &str, upstream: &Upstream) -> Gateway {
    gateway_of(api, upstream).start().await
}

/// Returns a gateway that serves the model `tiers` from this upstream.
fn gateway_of(api: &str, upstream: &Upstream) -> Builder {
    let adapter = if api == RESPONSES { "openai" } else { api };
    let option = match api {
        RESPONSES => "[providers.scripted.options]\napi = \"responses\"\n",
        _ => "",
    };
    let model = "[models.tiers]\ncontext_window = 100000\nmax_output_tokens = 1000\ndefault_output_tokens = 200\nsupports_tools = true\n\
                 upstreams = [{ provider = \"scripted\" }]\n\
                 price = { input = 2, cache_read = 0.2, cache_write_short = 2.5, cache_write_long = 4, output = 10, \
                 audio_input = 6, audio_output = 20, search = 0.01 }\n";
    Gateway::builder()
        .provider("scripted", adapter, Some(upstream))
        .tables(option)
        .tables(model)
}

/// Sends a request that is long enough for the reported tokens.
async fn ask(client: &Client, dialect: Option<Speaker>, stream: bool) {
    let text = "word ".repeat(1_000);
    let (path, question) = match dialect {
        Some(speaker) => (speaker.path(), speaker.question("tiers", &text, stream)),
        None => (
            match stream {
                false => "/v1beta/models/tiers:generateContent",
                true => "/v1beta/models/tiers:streamGenerateContent?alt=sse",
            },
            json!({ "contents": [{ "role": "user", "parts": [{ "text": text }] }] }),
        ),
    };
    // `post` reads a stream to its end.
    let answer = client.post(path, &question).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
}

/// Returns the charge of the last request, in micro-credits.
async fn last_charge(client: &Client) -> u64 {
    let requests = client.get("/usage/requests").await.json();
    let credits = requests["requests"][0]["credits"].as_f64();
    (credits.expect("a charge") * 1e6).round() as u64
}

#[tokio::test]
async fn each_tier_of_tokens_is_charged_at_its_own_price_in_each_dialect() {
    let dialects = Speaker::ALL.map(Some).into_iter().chain([None]);
    let cases = cases();
    let mut checked = 0;
    for api in [
        "openai",
        RESPONSES,
        "anthropic",
        "bedrock",
        "gemini",
        "ollama",
    ] {
        let upstream = Upstream::start().await;
        let gateway = gateway_with(api, &upstream).await;
        let client = gateway.client();
        for case in cases.iter().filter(|case| case.api == api) {
            let tiers = case.tiers.iter().zip(PRICES);
            let cost: u64 = tiers.map(|(tokens, price)| tokens * price).sum();
            // The customer pays 1.4 times the provider's price. A micro-credit is a nano-USD.
            let expected = (cost * 14).div_ceil(10);
            for dialect in dialects.clone() {
                for stream in [false, true] {
                    upstream.will(reply(case, stream));
                    ask(&client, dialect, stream).await;
                    assert_eq!(
                        last_charge(&client).await,
                        expected,
                        "{api} to {dialect:?}, streamed: {stream}, {}",
                        case.usage
                    );
                    checked += 1;
                }
            }
        }
    }
    assert_eq!(checked, cases.len() * 8);
}

/// The fields are those of anthropic-sdk-python 2.12.0: `types/server_tool_usage.py` and
/// `types/web_search_tool_20250305_param.py`.
#[tokio::test]
async fn searches_and_their_results_are_charged_within_what_the_request_allows() {
    let upstream = Upstream::start().await;
    let gateway = gateway_with("anthropic", &upstream).await;
    let client = gateway.client();
    let search = |max_uses: u64| json!([{ "type": "web_search_20250305", "name": "web_search", "max_uses": max_uses }]);
    let bash = json!([{ "type": "bash_20250124", "name": "bash" }]);
    // A short prompt: about 20 bytes and a message, and 576 tokens for a tool.
    let most_without_results = 2 * (10 + 16 + 576 + 30);
    for (tools, input, searches, charged_searches, is_input_charged) in [
        (search(3), 40_000, 2, 2, true),
        (search(3), 40_000, 9, 3, true),
        // A result has at most 16,384 tokens.
        (search(1), 40_000, 1, 1, false),
        (bash, 40_000, 2, 0, false),
    ] {
        for stream in [false, true] {
            let usage = json!({
                "input_tokens": input, "output_tokens": 50,
                "server_tool_use": { "web_search_requests": searches, "web_fetch_requests": 0 },
            });
            upstream.will(reply(&case("anthropic", usage, [0; 5]), stream));
            let question = json!({
                "model": "tiers", "max_tokens": 100, "stream": stream, "tools": tools,
                "messages": [{ "role": "user", "content": "Who won?" }],
            });
            let answer = client.post("/v1/messages", &question).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            let charged = last_charge(&client).await;
            // Nano-USD.
            let rest = 50 * PRICES[4] + charged_searches * 10_000_000;
            let all = (input * PRICES[0] + rest) * 14 / 10;
            if is_input_charged {
                assert_eq!(charged, all, "{tools}");
            } else {
                let results = charged_searches * 2 * 8_192;
                let most = ((results + most_without_results) * PRICES[0] + rest) * 14 / 10;
                assert!(
                    charged < all && charged <= most,
                    "{tools}: {charged} of {most}"
                );
                assert!(charged > results * PRICES[0], "{tools}: {charged}");
            }
        }
    }
}

/// The hold covers searches and their results, unless the upstream does not run the tool.
#[tokio::test]
async fn a_request_that_may_search_reserves_the_price_of_its_searches() {
    let question = |dialect: &str| match dialect {
        "/v1/messages" => json!({
            "model": "tiers", "max_tokens": 100, "messages": [{ "role": "user", "content": "Who won?" }],
            "tools": [{ "type": "web_search_20250305", "name": "web_search" }],
        }),
        _ => json!({
            "model": "tiers", "max_output_tokens": 100, "input": "Who won?",
            "tools": [{ "type": "web_search" }],
        }),
    };
    let upstream = Upstream::start().await;
    let gateway = gateway_of("anthropic", &upstream)
        .credits(200)
        .start()
        .await;
    let client = gateway.client();
    // Ten searches are 140 credits, and a window of 100,000 tokens that are all written to the cache another 560.
    let refused = client.post("/v1/messages", &question("/v1/messages")).await;
    assert_eq!(refused.status, 429, "{}", refused.text());
    let required = refused.json()["error"]["required_credits"].as_f64();
    assert!(
        required.is_some_and(|credits| (700.0..710.0).contains(&credits)),
        "{required:?}"
    );

    let usage = json!({ "input_tokens": 10, "output_tokens": 5 });
    upstream.will(reply(&case("anthropic", usage, [0; 5]), false));
    let answer = client
        .post("/v1/responses", &question("/v1/responses"))
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let ignored = answer.headers.get("x-weir-ignored");
    assert!(
        ignored.is_some_and(|names| names == "web_search"),
        "{ignored:?}"
    );
}

/// The fields are those of python-genai 3.6.1 (`types.py`, `ModalityTokenCount`) and openai-python 3.52.0
/// (`types/completion_usage.py`).
#[tokio::test]
async fn audio_has_its_own_prices() {
    let details = json!([{ "modality": "TEXT", "tokenCount": 20 }, { "modality": "AUDIO", "tokenCount": 300 }]);
    for (api, usage) in [
        (
            "gemini",
            json!({
                "promptTokenCount": 320, "candidatesTokenCount": 40, "totalTokenCount": 360,
                "promptTokensDetails": details,
            }),
        ),
        (
            "openai",
            json!({
                "prompt_tokens": 320, "completion_tokens": 40, "total_tokens": 360,
                "prompt_tokens_details": { "audio_tokens": 300 },
                "completion_tokens_details": { "audio_tokens": 0 },
            }),
        ),
    ] {
        let upstream = Upstream::start().await;
        let gateway = gateway_with(api, &upstream).await;
        let client = gateway.client();
        for stream in [false, true] {
            let text = [json!({ "type": "text", "text": "What do you hear?" })];
            let audio = [
                json!({ "type": "input_audio", "input_audio": { "data": "AQID", "format": "wav" } }),
            ];
            let ask = async |parts: &[Value]| {
                upstream.will(reply(&case(api, usage.clone(), [0; 5]), stream));
                let question = json!({
                    "model": "tiers", "stream": stream, "messages": [{ "role": "user", "content": parts }],
                });
                let answer = client.post("/v1/chat/completions", &question).await;
                assert_eq!(answer.status, 200, "{}", answer.text());
                last_charge(&client).await
            };
            let charged = ask(&[&text[..], &audio].concat()).await;
            assert_eq!(
                charged,
                (20 * 2_000 + 300 * 6_000 + 40 * 10_000) * 14 / 10,
                "{api}"
            );
            // Without audio in the request, the report is not believed.
            let padded = [json!({ "type": "text", "text": "word ".repeat(200) })];
            let charged = ask(&padded).await;
            assert_eq!(charged, (320 * 2_000 + 40 * 10_000) * 14 / 10, "{api}");
        }
    }
}
