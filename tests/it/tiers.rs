//! The charge of each tier of tokens, as vendors count them: in each dialect, plain and streamed.
//!
//! The fields are those of openai-python 3.52.0 (`types/completion_usage.py`, `types/responses/response_usage.py`),
//! anthropic-sdk-python 2.12.0 (`types/usage.py`), python-genai 3.6.1 (`types.py`,
//! `GenerateContentResponseUsageMetadata`), botocore 1.44.8 (`bedrock-runtime`, `TokenUsage`) and Ollama's API documentation. `docs.x.ai`, `api-docs.deepseek.com`,
//! `docs.mistral.ai` and `platform.moonshot.ai` describe the fields of these vendors.

use std::collections::BTreeMap;

use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use tests::gateway::Builder;
use tests::scenario::{RESPONSES, aws_stream};
use tests::speaker::Speaker;
use tests::{Client, Gateway, Reply, Upstream};

/// A part of the usage with its own count. Its tokens are in no other part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Tier {
    Uncached,
    CacheRead,
    CacheWriteShort,
    CacheWriteLong,
    /// Input of pictures.
    Picture,
    /// Results of tools that the provider runs.
    ToolResults,
    AudioInput,
    Output,
    Reasoning,
    AudioOutput,
    ImageOutput,
    /// Searches, not tokens.
    Searches,
}

use Tier::{
    AudioInput, AudioOutput, CacheRead, CacheWriteLong, CacheWriteShort, ImageOutput, Output,
    Picture, Reasoning, Searches, ToolResults, Uncached,
};

impl Tier {
    /// Its tokens, if it is in a case. No other set of tiers has the same sum.
    fn count(self) -> u64 {
        match self {
            Uncached => 301,
            CacheRead => 602,
            CacheWriteShort => 203,
            CacheWriteLong => 154,
            Picture => 265,
            ToolResults => 26,
            AudioInput => 77,
            Output => 50,
            Reasoning => 31,
            AudioOutput => 13,
            ImageOutput => 17,
            Searches => 2,
        }
    }

    /// The provider's price in nano-USD, as [`PRICE`] says.
    fn price(self) -> u64 {
        match self {
            Uncached | Picture | ToolResults => 2_000,
            CacheRead => 200,
            CacheWriteShort => 2_500,
            CacheWriteLong => 4_000,
            AudioInput => 6_000,
            Output | Reasoning => 10_000,
            AudioOutput => 20_000,
            ImageOutput => 30_000,
            Searches => 10_000_000,
        }
    }
}

/// USD for a million tokens, and for a search.
const PRICE: &str = "price = { input = 2, cache_read = 0.2, cache_write_short = 2.5, cache_write_long = 4, output = 10, \
                     audio_input = 6, audio_output = 20, image_output = 30, search = 0.01 }\n";

/// The tiers of a case, with their counts.
#[derive(Debug, Clone)]
struct Counts(BTreeMap<Tier, u64>);

impl Counts {
    /// Sum over these tiers.
    fn of(&self, tiers: &[Tier]) -> u64 {
        let counts = tiers.iter().filter_map(|tier| self.0.get(tier));
        counts.sum()
    }

    fn has(&self, tier: Tier) -> bool {
        self.0.contains_key(&tier)
    }

    fn input(&self) -> u64 {
        self.of(&[
            Uncached,
            CacheRead,
            CacheWriteShort,
            CacheWriteLong,
            Picture,
            ToolResults,
            AudioInput,
        ])
    }

    fn output(&self) -> u64 {
        self.of(&[Output, Reasoning, AudioOutput, ImageOutput])
    }

    /// The customer pays 1.4 times the provider's price. A micro-credit is a nano-USD.
    fn charge(&self) -> u64 {
        let costs = self.0.iter().map(|(tier, count)| count * tier.price());
        (costs.sum::<u64>() * 14).div_ceil(10)
    }
}

/// A vendor's way of counting.
struct Counting {
    vendor: &'static str,
    api: &'static str,
    /// The tiers that its usage may have, besides uncached input and output.
    tiers: &'static [Tier],
    usage: fn(&Counts) -> Value,
}

const COUNTINGS: &[Counting] = &[
    // Everything is inside of the two sums.
    Counting {
        vendor: "OpenAI",
        api: "openai",
        tiers: &[
            CacheRead,
            CacheWriteShort,
            Picture,
            AudioInput,
            Reasoning,
            AudioOutput,
        ],
        usage: |of| {
            chat(
                of.input(),
                of.output(),
                json!({
                    "prompt_tokens_details": {
                        "cached_tokens": of.of(&[CacheRead]), "cache_write_tokens": of.of(&[CacheWriteShort]),
                        "audio_tokens": of.of(&[AudioInput]), "image_tokens": of.of(&[Picture]),
                        "text_tokens": of.input() - of.of(&[AudioInput, Picture]),
                    },
                    "completion_tokens_details": {
                        "reasoning_tokens": of.of(&[Reasoning]), "audio_tokens": of.of(&[AudioOutput]),
                        "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0,
                    },
                }),
            )
        },
    },
    Counting {
        vendor: "DeepSeek",
        api: "openai",
        tiers: &[CacheRead, Reasoning],
        usage: |of| {
            chat(
                of.input(),
                of.output(),
                json!({
                    "prompt_cache_hit_tokens": of.of(&[CacheRead]), "prompt_cache_miss_tokens": of.of(&[Uncached]),
                    "completion_tokens_details": { "reasoning_tokens": of.of(&[Reasoning]) },
                }),
            )
        },
    },
    // Reasoning is beside the output.
    Counting {
        vendor: "xAI",
        api: "openai",
        tiers: &[CacheRead, Picture, Reasoning],
        usage: |of| {
            let mut usage = chat(
                of.input(),
                of.of(&[Output]),
                json!({
                    "prompt_tokens_details": {
                        "cached_tokens": of.of(&[CacheRead]), "image_tokens": of.of(&[Picture]),
                        "text_tokens": of.input() - of.of(&[Picture]), "audio_tokens": 0,
                    },
                    "completion_tokens_details": { "reasoning_tokens": of.of(&[Reasoning]), "audio_tokens": 0 },
                }),
            );
            usage["total_tokens"] = (of.input() + of.output()).into();
            usage
        },
    },
    // Audio is beside the input.
    Counting {
        vendor: "Mistral",
        api: "openai",
        tiers: &[CacheRead, Picture, AudioInput],
        usage: |of| {
            let mut usage = chat(
                of.input() - of.of(&[AudioInput]),
                of.output(),
                json!({
                    "num_cached_tokens": of.of(&[CacheRead]),
                    "prompt_tokens_details": { "audio_tokens": of.of(&[AudioInput]) },
                }),
            );
            usage["total_tokens"] = (of.input() + of.output()).into();
            usage
        },
    },
    Counting {
        vendor: "Moonshot",
        api: "openai",
        tiers: &[CacheRead, Picture],
        usage: |of| {
            chat(
                of.input(),
                of.output(),
                json!({ "cached_tokens": of.of(&[CacheRead]) }),
            )
        },
    },
    Counting {
        vendor: "LiteLLM as a proxy of Anthropic",
        api: "openai",
        tiers: &[CacheRead, CacheWriteShort, Picture, Reasoning],
        usage: |of| {
            chat(
                of.input(),
                of.output(),
                json!({
                    "prompt_tokens_details": {
                        "cached_tokens": of.of(&[CacheRead]), "cache_creation_tokens": of.of(&[CacheWriteShort]),
                    },
                    "completion_tokens_details": { "reasoning_tokens": of.of(&[Reasoning]) },
                }),
            )
        },
    },
    Counting {
        vendor: "OpenAI",
        api: RESPONSES,
        tiers: &[
            CacheRead,
            CacheWriteShort,
            CacheWriteLong,
            Picture,
            Reasoning,
        ],
        usage: |of| {
            let written = of.of(&[CacheWriteShort, CacheWriteLong]);
            json!({
                "input_tokens": of.input(), "output_tokens": of.output(), "total_tokens": of.input() + of.output(),
                "input_tokens_details": {
                    "cached_tokens": of.of(&[CacheRead]), "cache_write_tokens": written,
                    "cache_write_tokens_details": {
                        "ttl_30m_tokens": of.of(&[CacheWriteShort]), "ttl_12h_tokens": of.of(&[CacheWriteLong]),
                    },
                },
                "output_tokens_details": { "reasoning_tokens": of.of(&[Reasoning]) },
            })
        },
    },
    // Cached tokens are beside the input, reasoning is inside of the output.
    Counting {
        vendor: "Anthropic",
        api: "anthropic",
        tiers: &[
            CacheRead,
            CacheWriteShort,
            CacheWriteLong,
            Picture,
            Reasoning,
            Searches,
        ],
        usage: |of| {
            json!({
                "input_tokens": of.of(&[Uncached, Picture]), "cache_read_input_tokens": of.of(&[CacheRead]),
                "cache_creation_input_tokens": of.of(&[CacheWriteShort, CacheWriteLong]),
                "cache_creation": {
                    "ephemeral_5m_input_tokens": of.of(&[CacheWriteShort]),
                    "ephemeral_1h_input_tokens": of.of(&[CacheWriteLong]),
                },
                "output_tokens": of.output(), "output_tokens_details": { "thinking_tokens": of.of(&[Reasoning]) },
                "server_tool_use": { "web_search_requests": of.of(&[Searches]), "web_fetch_requests": 0 },
            })
        },
    },
    // Older servers do not divide the written tokens.
    Counting {
        vendor: "Anthropic without lifetimes",
        api: "anthropic",
        tiers: &[CacheRead, CacheWriteShort],
        usage: |of| {
            json!({
                "input_tokens": of.of(&[Uncached]), "cache_read_input_tokens": of.of(&[CacheRead]),
                "cache_creation_input_tokens": of.of(&[CacheWriteShort]), "output_tokens": of.output(),
            })
        },
    },
    // Cached tokens are inside of the prompt, thoughts and results of tools beside the two sums. Zeros are left out.
    Counting {
        vendor: "Google",
        api: "gemini",
        tiers: &[
            CacheRead,
            Picture,
            ToolResults,
            AudioInput,
            Reasoning,
            AudioOutput,
            ImageOutput,
        ],
        usage: |of| {
            // A part of the cache is audio, and costs what the cache costs.
            let has_cached_audio = of.has(CacheRead) && of.has(AudioInput);
            let cached_audio = if has_cached_audio { 111 } else { 0 };
            let prompt = of.input() - of.of(&[ToolResults]);
            let audio = of.of(&[AudioInput]) + cached_audio;
            let picture = of.of(&[Picture]);
            let visible = of.output() - of.of(&[Reasoning]);
            let mut usage = json!({
                "promptTokenCount": prompt, "candidatesTokenCount": visible,
                "totalTokenCount": of.input() + of.output(),
                "promptTokensDetails": modalities(prompt - audio - picture, audio, picture),
                "candidatesTokensDetails":
                    modalities(of.of(&[Output]), of.of(&[AudioOutput]), of.of(&[ImageOutput])),
            });
            for (name, tier) in [
                ("cachedContentTokenCount", CacheRead),
                ("toolUsePromptTokenCount", ToolResults),
                ("thoughtsTokenCount", Reasoning),
            ] {
                if of.has(tier) {
                    usage[name] = of.of(&[tier]).into();
                }
            }
            if of.has(CacheRead) {
                let text = of.of(&[CacheRead]) - cached_audio;
                usage["cacheTokensDetails"] = modalities(text, cached_audio, 0);
            }
            usage
        },
    },
    // Bedrock counts cached tokens beside the input, as Anthropic does.
    Counting {
        vendor: "Amazon Bedrock",
        api: "bedrock",
        tiers: &[CacheRead, CacheWriteShort, CacheWriteLong, Picture],
        usage: |of| {
            json!({
                "inputTokens": of.of(&[Uncached, Picture]), "outputTokens": of.output(),
                "totalTokens": of.input() + of.output(), "cacheReadInputTokens": of.of(&[CacheRead]),
                "cacheWriteInputTokens": of.of(&[CacheWriteShort, CacheWriteLong]),
                "cacheDetails": [
                    { "ttl": "1h", "inputTokens": of.of(&[CacheWriteLong]) },
                    { "ttl": "5m", "inputTokens": of.of(&[CacheWriteShort]) },
                ],
            })
        },
    },
    Counting {
        vendor: "Ollama",
        api: "ollama",
        tiers: &[Picture],
        usage: |of| json!({ "prompt_eval_count": of.input(), "eval_count": of.output() }),
    },
];

/// The usage of Chat Completions, with more fields.
fn chat(input: u64, output: u64, more: Value) -> Value {
    let mut usage = more;
    usage["prompt_tokens"] = input.into();
    usage["completion_tokens"] = output.into();
    usage["total_tokens"] = (input + output).into();
    usage
}

/// A list of `ModalityTokenCount`.
fn modalities(text: u64, audio: u64, image: u64) -> Value {
    let counts = [("TEXT", text), ("AUDIO", audio), ("IMAGE", image)];
    let counts = counts.into_iter().filter(|(_, count)| *count > 0);
    counts
        .map(|(modality, count)| json!({ "modality": modality, "tokenCount": count }))
        .collect()
}

/// A set of tiers, as a vendor counts it.
struct Case {
    counting: &'static Counting,
    counts: Counts,
}

/// Every combination of each vendor's tiers.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for counting in COUNTINGS {
        for set in 0..1_usize << counting.tiers.len() {
            let more = counting.tiers.iter().enumerate();
            let more = more.filter(|(bit, _)| set & (1 << bit) != 0);
            let tiers = more.map(|(_, tier)| *tier).chain([Uncached, Output]);
            let counts = tiers.map(|tier| (tier, tier.count())).collect();
            cases.push(Case {
                counting,
                counts: Counts(counts),
            });
        }
    }
    cases
}

/// Whether a request of the dialect can have the content that a tier needs.
fn can_ask(speaker: Speaker, tier: Tier) -> bool {
    match tier {
        AudioInput => matches!(speaker, Speaker::Chat | Speaker::Gemini),
        // Other dialects have other names for the provider's tool.
        Searches => speaker == Speaker::Messages,
        _ => true,
    }
}

/// An upstream's response with this usage.
fn reply(api: &str, usage: &Value, stream: bool) -> Reply {
    let events = |events: &[Value]| Reply::events(events.iter().map(Value::to_string));
    match (api, stream) {
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
            let mut parts = vec![json!({ "text": "So" })];
            if usage["candidatesTokensDetails"]
                .to_string()
                .contains("IMAGE")
            {
                parts.push(
                    json!({ "inlineData": { "mimeType": "image/png", "data": "iVBORw0KGgo=" } }),
                );
            }
            let answer = json!({
                "candidates": [{ "content": { "role": "model", "parts": parts }, "finishReason": "STOP" }],
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
    let model = "[models.tiers]\ncontext_window = 100000\nmax_output_tokens = 1000\ndefault_output_tokens = 200\n\
                 max_image_tokens = 1000\nsupports_tools = true\nsupports_vision = true\n\
                 upstreams = [{ provider = \"scripted\" }]\n";
    Gateway::builder()
        .provider("scripted", adapter, Some(upstream))
        .tables(option)
        .tables(&format!("{model}{PRICE}"))
}

/// Returns a request with the content that the tiers need, and text that is long enough for all other tokens.
fn question(speaker: Speaker, counts: &Counts, mark: &str, stream: bool) -> Value {
    let text = format!("{mark} {}", "word ".repeat(1_000));
    let mut question = speaker.question("tiers", &text, stream);
    let (png, wav) = ("iVBORw0KGgo=", "UklGRg==");
    let url = format!("data:image/png;base64,{png}");
    let (text, picture, audio) = match speaker {
        Speaker::Chat => (
            json!({ "type": "text", "text": text }),
            json!({ "type": "image_url", "image_url": { "url": url } }),
            json!({ "type": "input_audio", "input_audio": { "data": wav, "format": "wav" } }),
        ),
        Speaker::Messages => (
            json!({ "type": "text", "text": text }),
            json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": png } }),
            Value::Null,
        ),
        Speaker::Responses => (
            json!({ "type": "input_text", "text": text }),
            json!({ "type": "input_image", "image_url": url }),
            Value::Null,
        ),
        Speaker::Gemini => (
            json!({ "text": text }),
            json!({ "inlineData": { "mimeType": "image/png", "data": png } }),
            json!({ "inlineData": { "mimeType": "audio/wav", "data": wav } }),
        ),
    };
    let mut parts = vec![text];
    parts.extend(counts.has(Picture).then_some(picture));
    parts.extend(counts.has(AudioInput).then_some(audio));
    match speaker {
        Speaker::Chat => question["messages"][0]["content"] = parts.into(),
        Speaker::Messages => {
            question["messages"][0]["content"] = parts.into();
            question["max_tokens"] = 200.into();
            if counts.has(Searches) {
                let search =
                    json!({ "type": "web_search_20250305", "name": "web_search", "max_uses": 3 });
                question["tools"] = json!([question["tools"][0], search]);
            }
        }
        Speaker::Responses => question["input"][0]["content"] = parts.into(),
        Speaker::Gemini => question["contents"][0]["parts"] = parts.into(),
    }
    question
}

/// Returns the charge of the last request, in micro-credits.
async fn last_charge(client: &Client) -> u64 {
    let requests = client.get("/usage/requests").await.json();
    micro_credits(&requests["requests"][0])
}

fn micro_credits(request: &Value) -> u64 {
    let credits = request["credits"].as_f64().expect("a charge");
    (credits * 1e6).round() as u64
}

/// Requests of the oracle at once.
const AT_ONCE: usize = 8;

/// All cases, in all dialects that can ask for them, plain and streamed.
const CHECKED: usize = 2_080;

#[tokio::test]
async fn each_tier_of_tokens_is_charged_at_its_own_price_in_each_dialect() {
    let mut checked = 0;
    for api in ["openai", RESPONSES, "anthropic", "gemini", "ollama"] {
        let cases = cases().into_iter().filter(|case| case.counting.api == api);
        let cases: Vec<_> = cases.collect();
        let usages: Vec<_> = cases
            .iter()
            .map(|case| (case.counting.usage)(&case.counts))
            .collect();
        let upstream = Upstream::start().await;
        upstream.always_by(move |request| {
            let body = String::from_utf8_lossy(&request.body);
            let (_, rest) = body.split_once("case-").expect("a mark");
            let mut mark = rest.split([' ', '-']);
            let case: usize = mark
                .next()
                .and_then(|case| case.parse().ok())
                .expect("a case");
            reply(api, &usages[case], mark.next() == Some("streamed"))
        });
        let gateway = gateway_with(api, &upstream).await;
        let client = &gateway.client();
        let mut requests = Vec::new();
        for (index, case) in cases.iter().enumerate() {
            for speaker in Speaker::ALL {
                let mut tiers = case.counts.0.keys();
                if tiers.all(|tier| can_ask(speaker, *tier)) {
                    requests.extend([false, true].map(|stream| (index, case, speaker, stream)));
                }
            }
        }
        checked += requests.len();
        let checks = requests
            .into_iter()
            .map(|(index, case, speaker, stream)| async move {
                let form = if stream { "streamed" } else { "plain" };
                let vendor = case.counting.vendor;
                let name = format!(
                    "{vendor} by {api} to {speaker:?}, {form}: {:?}",
                    case.counts
                );
                let body = question(
                    speaker,
                    &case.counts,
                    &format!("case-{index}-{form}"),
                    stream,
                );
                // `post` reads a stream to its end.
                let answer = client.post(&speaker.path("tiers", stream), &body).await;
                assert_eq!(answer.status, 200, "{name}: {}", answer.text());
                let id = answer.headers["x-request-id"].to_str().expect("ASCII");
                let request = client.get(&format!("/usage/requests/{id}")).await.json();
                assert_eq!(micro_credits(&request), case.counts.charge(), "{name}");
            });
        stream::iter(checks)
            .buffer_unordered(AT_ONCE)
            .collect::<()>()
            .await;
    }
    assert_eq!(checked, CHECKED);
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
            upstream.will(reply("anthropic", &usage, stream));
            let question = json!({
                "model": "tiers", "max_tokens": 100, "stream": stream, "tools": tools,
                "messages": [{ "role": "user", "content": "Who won?" }],
            });
            let answer = client.post("/v1/messages", &question).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            let charged = last_charge(&client).await;
            // Nano-USD.
            let rest = 50 * Output.price() + charged_searches * 10_000_000;
            let all = (input * Uncached.price() + rest) * 14 / 10;
            if is_input_charged {
                assert_eq!(charged, all, "{tools}");
            } else {
                let results = charged_searches * 2 * 8_192;
                let most = ((results + most_without_results) * Uncached.price() + rest) * 14 / 10;
                assert!(
                    charged < all && charged <= most,
                    "{tools}: {charged} of {most}"
                );
                assert!(charged > results * Uncached.price(), "{tools}: {charged}");
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
    upstream.will(reply("anthropic", &usage, false));
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

/// Without audio in the request, reported audio costs the price of text.
#[tokio::test]
async fn audio_that_the_request_does_not_have_is_not_believed() {
    for api in ["gemini", "openai"] {
        let counting = COUNTINGS.iter().find(|counting| counting.api == api);
        let tiers = [Uncached, AudioInput, Output].map(|tier| (tier, tier.count()));
        let counts = Counts(tiers.into());
        let usage = (counting.expect("one").usage)(&counts);
        let upstream = Upstream::start().await;
        upstream.will(reply(api, &usage, false));
        let gateway = gateway_with(api, &upstream).await;
        let client = gateway.client();
        let without = Counts(BTreeMap::new());
        let body = question(Speaker::Chat, &without, "", false);
        let answer = client.post("/v1/chat/completions", &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let text = (counts.input() * Uncached.price() + counts.output() * Output.price()) * 14;
        assert_eq!(last_charge(&client).await, text.div_ceil(10), "{api}");
    }
}
