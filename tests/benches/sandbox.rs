//! The cost of the sandbox: a fresh instance with a translation, a chunk, a start.
//!
//! `cargo bench -p tests` prints each figure beside the same translation in native code, measured alternately in one
//! run, and fails if a figure exceeds its limit. Figures are medians of batches, in processor time of the single
//! thread: other work of the machine must not count.

#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

mod measure;

use std::hint::black_box;
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use measure::{median, processor_time};
use tests::guests;
use tests::sandbox::{load, sandbox, sandbox_of};
use weir_adapter_openai::translate::OpenAi;
use weir_bundled::BUNDLE;
use weir_sandbox::adapter::bindings::adapter as contract;
use weir_sandbox::adapter::bindings::chat::{Content, Event, Fragment};
use weir_sandbox::adapter::{BegunExchange, GuestExchange, LoadedAdapter, long_texts};
use weir_sandbox::filter::bindings::filter as filters;
use weir_sandbox::filter::{FilterStep, FilterWorld, ScreeningContext};
use weir_sdk::adapter::Exchange;
use weir_upstream::destination::{self, BaseUrl, HostParts};

/// Number of measured batches; the median of their means is the figure. Each takes about 100 ms, since the kernel
/// counts processor time to some milliseconds.
const BATCHES: usize = 9;
const TRANSLATIONS: u32 = 5_000;
const NATIVE_TRANSLATIONS: u32 = 100_000;
const CHUNKS: u32 = 40_000;
const NATIVE_CHUNKS: u32 = 120_000;

/// Fresh instance and `begin` of a request with six messages.
const TRANSLATION_LIMIT: Duration = Duration::from_micros(25);

/// A fresh instance, `begin` of the same request with a prompt of 16 KiB, and the body for the upstream.
const LONG_PROMPT_LIMIT: Duration = Duration::from_micros(35);

/// One streamed chunk of an upstream.
const CHUNK_LIMIT: Duration = Duration::from_nanos(2_500);

/// Cost of a filter that does nothing for a request, and for each watched chunk.
const FILTER_LIMIT: Duration = Duration::from_micros(15);
const WATCHED_CHUNK_LIMIT: Duration = Duration::from_micros(3);

/// From the command to its first line, with plugins that an earlier start compiled.
const START_LIMIT: Duration = Duration::from_secs(1);

/// The adapter that is also measured as native code.
const NATIVE: &str = "openai";

/// A stream in a provider's form: its beginning, and a chunk that is read again and again.
struct Stream {
    adapter: &'static str,
    content_type: &'static str,
    first: &'static [u8],
    chunk: &'static [u8],
}

const STREAMS: [Stream; 4] = [
    Stream {
        adapter: "openai",
        content_type: "text/event-stream",
        first: b"",
        chunk: b"data: {\"id\":\"chatcmpl-CZ0Qy6pXw8nU3kJ1mT5sVbH2\",\"object\":\
\"chat.completion.chunk\",\"created\":1795180489,\"model\":\"gpt-4o-mini-2024-07-18\",\
\"service_tier\":\"default\",\"system_fingerprint\":\"fp_560af6e559\",\"choices\":[{\"index\":0,\
\"delta\":{\"content\":\" word\"},\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}\n\n",
    },
    Stream {
        adapter: "anthropic",
        content_type: "text/event-stream",
        first: b"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\
\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
        chunk: b"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\
\"delta\":{\"type\":\"text_delta\",\"text\":\" word\"}}\n\n",
    },
    Stream {
        adapter: "gemini",
        content_type: "text/event-stream",
        first: b"",
        // The counts come with every chunk.
        chunk: b"data: {\"candidates\": [{\"content\": {\"parts\": [{\"text\": \" word\"}],\"role\": \"model\"},\
\"index\": 0}],\"usageMetadata\": {\"promptTokenCount\": 8,\"totalTokenCount\": 31,\"promptTokensDetails\": \
[{\"modality\": \"TEXT\",\"tokenCount\": 8}],\"thoughtsTokenCount\": 23},\"modelVersion\": \"gemini-2.5-flash\",\
\"responseId\": \"mNzXaN-oKqWBz7IPmY7Y6AY\"}\r\n\r\n",
    },
    Stream {
        adapter: "ollama",
        content_type: "application/x-ndjson",
        first: b"",
        chunk: b"{\"model\":\"qwen3:8b\",\"created_at\":\"2025-10-05T09:00:00.123456Z\",\"message\":\
{\"role\":\"assistant\",\"content\":\" word\"},\"done\":false}\n",
    },
];

/// The same request in the host's types and in the guest's, which are generated separately.
macro_rules! six_messages {
    ($chat:path) => {{
        use $chat as chat;
        let message = |role, text: &str| chat::Message {
            role,
            name: None,
            parts: vec![chat::Part {
                content: chat::Content::Text(text.into()),
                cache: None,
                signature: None,
                provider: None,
                extra: Vec::new(),
            }],
            extra: Vec::new(),
        };
        let long = "The quick brown fox jumps over the lazy dog. ".repeat(4);
        chat::ChatRequest {
            model: "gpt-4o-mini".into(),
            messages: vec![
                message(chat::Role::System, "You are a helpful assistant."),
                message(chat::Role::User, &long),
                message(chat::Role::Assistant, &long),
                message(chat::Role::User, "And then?"),
                message(chat::Role::Assistant, &long),
                message(chat::Role::User, "Tell me more about the dog."),
            ],
            tools: Vec::new(),
            tool_choice: chat::ToolChoice::Auto,
            parallel_tool_calls: None,
            response_format: chat::ResponseFormat::Text,
            reasoning: chat::ReasoningRequest {
                effort: None,
                budget_tokens: None,
                summary: None,
                adaptive: None,
            },
            modalities: Vec::new(),
            max_output_tokens: 1_000,
            temperature: Some(0.7),
            top_p: None,
            top_k: None,
            presence_penalty: None,
            frequency_penalty: None,
            seed: None,
            stop: Vec::new(),
            extra: Vec::new(),
            stream: true,
        }
    }};
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime starts");
    let sound = runtime.block_on(in_the_sandbox()) & runtime.block_on(through_a_filter()) & start();
    if sound {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

async fn in_the_sandbox() -> bool {
    let sandbox = sandbox(64);
    let request = contract::Request {
        task: contract::Task::Chat(six_messages!(weir_sandbox::adapter::bindings::chat)),
        attachments: Vec::new(),
        client: contract::Client {
            dialect: "openai-chat".into(),
            headers: Vec::new(),
            end_user: None,
        },
        attempt: 1,
        deadline_ms: 600_000,
    };
    let mut sound = true;
    for (name, bytes) in BUNDLE.adapters {
        let loaded = load(&sandbox, name, bytes).await;
        let adapter = loaded.expect("it loads");
        let configuration = adapter.configure(&[]).await.expect("it needs no options");
        sound &= translations(&adapter, &request, &configuration).await;
        sound &= long_prompt(&adapter, request.clone(), &configuration).await;
        let stream = STREAMS.iter().find(|stream| stream.adapter == *name);
        // The demo has no upstream.
        if let Some(stream) = stream {
            sound &= chunks(&adapter, &request, &configuration, stream).await;
        }
    }
    sound
}

/// A filter that does nothing: a fresh instance that inspects the request, and one more chunk.
async fn through_a_filter() -> bool {
    let sandbox = sandbox_of::<FilterWorld>(64);
    let loaded = load(&sandbox, "meddling", guests::meddling()).await;
    let filter = loaded.expect("it loads");
    let always = |word: &str| vec![("always".to_owned(), word.to_owned())];
    let (pass, watch) = (always("pass"), always("answer-pass"));
    let pass = filter.configure(&pass).await.expect("it takes that");
    let watch = filter.configure(&watch).await.expect("it takes that");
    let request = filters::Request {
        task: filters::Task::Chat(six_messages!(weir_sandbox::adapter::bindings::chat)),
        attachments: Vec::new(),
        dialect: "openai-chat".into(),
        plan: "free".into(),
        input_tokens: 150,
        upstreams: vec![filters::Upstream {
            provider: "openai".into(),
            model: "gpt-4o-mini".into(),
        }],
    };
    let screened = async |configuration: &[u8]| {
        let context = ScreeningContext {
            key_options: Vec::new(),
            account_options: Vec::new(),
            has_service: false,
            whole_bytes: 0,
        };
        let screened = filter.screen(&request, 0, &context, configuration).await;
        match screened.expect("no fault").expect("no refusal") {
            FilterStep::Decide(verdict) => verdict,
            _ => panic!("it decides at once"),
        }
    };
    let mut screens = Vec::new();
    for _ in 0..BATCHES {
        let started = processor_time();
        for _ in 0..TRANSLATIONS {
            assert!(black_box(screened(&pass).await).change.is_none());
        }
        screens.push((processor_time() - started) / TRANSLATIONS);
    }
    let mut watching = screened(&watch).await.watching.expect("it watches");
    let chunk = [Event::Fragment(Fragment {
        index: 0,
        text: " word".into(),
    })];
    let mut chunks = Vec::new();
    for _ in 0..BATCHES {
        let started = processor_time();
        for _ in 0..CHUNKS {
            let screened = watching.events(&chunk, 5).await.expect("no fault");
            assert_eq!(black_box(screened), filters::Screened::Pass);
        }
        chunks.push((processor_time() - started) / CHUNKS);
    }
    report(
        "a filter that does nothing: a request",
        screens,
        Vec::new(),
        FILTER_LIMIT,
    ) & report(
        "a filter that does nothing: a chunk",
        chunks,
        Vec::new(),
        WATCHED_CHUNK_LIMIT,
    )
}

fn native_request() -> weir_sdk::adapter::Request {
    weir_sdk::adapter::Request {
        task: weir_sdk::adapter::Task::Chat(six_messages!(weir_sdk::chat)),
        attachments: Vec::new(),
        client: weir_sdk::adapter::Client {
            dialect: "openai-chat".into(),
            headers: Vec::new(),
            end_user: None,
        },
        attempt: 1,
        deadline_ms: 600_000,
    }
}

/// A fresh instance with a translation of the request.
async fn translations(
    adapter: &LoadedAdapter,
    request: &contract::Request,
    configuration: &[u8],
) -> bool {
    let native_request = (*adapter.code().name == *NATIVE).then(native_request);
    let (mut sandboxed, mut native) = (Vec::new(), Vec::new());
    for _ in 0..BATCHES {
        let started = processor_time();
        for _ in 0..TRANSLATIONS {
            black_box(begun(adapter, request, configuration).await.step);
        }
        sandboxed.push((processor_time() - started) / TRANSLATIONS);
        let Some(native_request) = &native_request else {
            continue;
        };
        // The request is cloned here because the trait takes it; a sandbox copies it, too.
        let started = processor_time();
        for _ in 0..NATIVE_TRANSLATIONS {
            black_box(native_begun(native_request).step);
        }
        native.push((processor_time() - started) / NATIVE_TRANSLATIONS);
    }
    let what = format!("{}: fresh sandbox + translation", adapter.code().name);
    report(&what, sandboxed, native, TRANSLATION_LIMIT)
}

/// A fresh instance with a translation of the request with a long prompt, beside the same with the prompt in the guest.
async fn long_prompt(
    adapter: &LoadedAdapter,
    mut request: contract::Request,
    configuration: &[u8],
) -> bool {
    if !adapter.description.claims(long_texts::CAPABILITY) {
        return true;
    }
    let contract::Task::Chat(chat) = &mut request.task else {
        return false;
    };
    let line = "The quick \"brown\" fox jumps over the lazy dog.\n";
    let prompt = line.repeat((16 << 10) / line.len());
    chat.messages[0].parts[0].content = Content::Text(prompt);
    let base = BaseUrl::parse("https://upstream.invalid").expect("a URL");
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..BATCHES {
        for (most_bytes, figures) in [
            (long_texts::MOST_BYTES, &mut without),
            (usize::MAX, &mut with),
        ] {
            let started = processor_time();
            for _ in 0..TRANSLATIONS {
                let begun = GuestExchange::begin_without_texts(
                    adapter,
                    &mut request,
                    most_bytes,
                    0,
                    configuration,
                );
                let begun = begun.await.expect("no fault");
                let contract::Step::Send(asked) = begun.step else {
                    panic!("it sends a request");
                };
                let parts = HostParts {
                    attachments: &[],
                    texts: &begun.long_texts.of(&request),
                };
                let description = &adapter.description;
                let slot = &contract::CredentialSlot::None;
                let built = destination::build(Some(&base), slot, description, None, asked, parts);
                assert!(black_box(built).expect("a request").body().len() > 16 << 10);
            }
            figures.push((processor_time() - started) / TRANSLATIONS);
        }
    }
    let in_guest = median(with);
    let what = format!("{}: a prompt of 16 KiB", adapter.code().name);
    println!("{what} in the guest: {in_guest:.2?}");
    report(&what, without, Vec::new(), LONG_PROMPT_LIMIT)
}

/// One streamed chunk after another.
async fn chunks(
    adapter: &LoadedAdapter,
    request: &contract::Request,
    configuration: &[u8],
    stream: &Stream,
) -> bool {
    let headers = vec![("content-type".to_owned(), stream.content_type.to_owned())];
    let mut exchange = begun(adapter, request, configuration).await.exchange;
    let head = contract::HttpResponseHead {
        status: 200,
        headers: headers.clone(),
    };
    exchange.head(&head).await.expect("no failure");
    exchange.body(stream.first).await.expect("no fault");
    let mut native_exchange = (stream.adapter == NATIVE).then(|| {
        let mut exchange = native_begun(&native_request()).exchange;
        let status = 200;
        let head = weir_sdk::adapter::HttpResponseHead { status, headers };
        exchange.head(head).expect("no failure");
        exchange
    });
    let (mut sandboxed, mut native) = (Vec::new(), Vec::new());
    for _ in 0..BATCHES {
        let started = processor_time();
        for _ in 0..CHUNKS {
            let progress = exchange.body(stream.chunk).await.expect("no fault");
            assert!(!black_box(progress.events).is_empty());
        }
        sandboxed.push((processor_time() - started) / CHUNKS);
        let Some(native_exchange) = &mut native_exchange else {
            continue;
        };
        let started = processor_time();
        for _ in 0..NATIVE_CHUNKS {
            let mut events = Vec::new();
            let read = native_exchange.body(stream.chunk, &mut events);
            read.expect("no failure");
            assert!(!black_box(events).is_empty());
        }
        native.push((processor_time() - started) / NATIVE_CHUNKS);
    }
    let what = format!("{}: one streamed chunk", stream.adapter);
    report(&what, sandboxed, native, CHUNK_LIMIT)
}

async fn begun(
    adapter: &LoadedAdapter,
    request: &contract::Request,
    configuration: &[u8],
) -> BegunExchange {
    let begun = GuestExchange::begin(adapter, request, 0, configuration).await;
    begun.expect("no failure")
}

fn native_begun(
    request: &weir_sdk::adapter::Request,
) -> weir_sdk::adapter::StartedExchange<OpenAi> {
    OpenAi::begin(request.clone(), &[]).expect("no failure")
}

/// Starts the release binary twice in one folder; the second start finds the compiled plugins.
fn start() -> bool {
    let binary = tests::program::build_weir("release");
    let folder = tempfile::tempdir().expect("a folder");
    let mut took = Vec::new();
    for _ in 0..6 {
        let started = Instant::now();
        let mut child = Command::new(&binary)
            .args(["serve", "--listen", "127.0.0.1:0"])
            .current_dir(folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("weir runs");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("piped");
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("a greeting");
        took.push(started.elapsed());
        child
            .kill()
            .and_then(|()| child.wait().map(drop))
            .expect("it ends");
        assert!(line.contains("development mode"), "{line}");
    }
    let cold = took.remove(0);
    let warm = median(took);
    println!("start to ready: cold {cold:.0?}, warm {warm:.0?} (limit {START_LIMIT:.0?})");
    warm <= START_LIMIT
}

/// Prints a figure, beside the native one if there is one, and returns whether it is within its limit.
fn report(what: &str, sandboxed: Vec<Duration>, native: Vec<Duration>, limit: Duration) -> bool {
    let sandboxed = median(sandboxed);
    let beside = if native.is_empty() {
        String::new()
    } else {
        let native = median(native);
        let ratio = sandboxed.as_secs_f64() / native.as_secs_f64();
        format!(", native {native:.2?}, ratio {ratio:.1}")
    };
    println!("{what}: {sandboxed:.2?}{beside} (limit {limit:.1?})");
    sandboxed <= limit
}
