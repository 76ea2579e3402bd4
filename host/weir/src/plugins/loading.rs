//! From bytes to an adapter that can serve: size → parse and compile → imports and world → instantiate
//! and `describe` → self-test. Each refusal names its step and what to change.
//!
//! **Invariant:** only what was built into the binary is compiled in this process ([`load`]); what comes from elsewhere
//! is compiled by a child ([`load_arrived`]).

use std::sync::Arc;

use bytes::Bytes;
use wasmtime::component::Component;

use super::bindings::ProviderPre;
use super::bindings::adapter::{CredentialSlot, Description, Failure, Request, Step};
use super::bindings::chat;
use super::code_cache::CodeCache;
use super::compiler::{CompileError, Compiler};
use super::engine::Engine;
use super::guest::{self, GuestError, GuestExchange};
use super::guest_log::printable;
use super::limits::Limits;
use super::{Adapter, Digest, Program};

/// Bytes of the largest component that is accepted; one written in Python has 18 MB.
pub const COMPONENT_BYTES: usize = 32 << 20;

/// What a component may import: its own contract, and WASI 0.2 as linked with an empty context.
const IMPORTS: [&str; 8] = [
    "weir:plugin/chat@0.1.",
    "weir:plugin/log@0.1.",
    "wasi:cli/",
    "wasi:clocks/",
    "wasi:filesystem/",
    "wasi:io/",
    "wasi:random/",
    "wasi:sockets/",
];

/// Why a component was refused.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file is larger than [`COMPONENT_BYTES`].
    #[error("size: the component has {bytes} bytes, more than {COMPONENT_BYTES}")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// Not a component, or one that needs a Wasm feature that is off.
    #[error("parse: not a WebAssembly component that can be compiled: {0}")]
    Parse(String),
    /// It could not be compiled within its limits.
    #[error("compile: {0}")]
    Compile(CompileError),
    /// It asks for something that plugins are not given.
    #[error("imports: the component imports {0:?}, which plugins are not given")]
    Import(String),
    /// It does not export the `provider` world, or exports it with other types.
    #[error("world: the component does not fit the world weir:plugin/provider@0.1: {0}")]
    World(String),
    /// It failed before it could say what it is.
    #[error("describe: {0}")]
    Describe(GuestError),
    /// What it says of itself makes no sense.
    #[error("describe: {0}")]
    Description(String),
    /// It claims to be another plugin.
    #[error("describe: it calls itself {0:?}, which is the name of another slot")]
    NameOfAnother(String),
    /// It could not translate a stock request.
    #[error("self-test: {0}")]
    SelfTest(String),
}

impl LoadError {
    /// The step that failed, as in the error's text.
    pub fn step(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "size",
            Self::Parse(_) => "parse",
            Self::Compile(_) => "compile",
            Self::Import(_) => "imports",
            Self::World(_) => "world",
            Self::Describe(_) | Self::Description(_) | Self::NameOfAnother(_) => "describe",
            Self::SelfTest(_) => "self-test",
        }
    }
}

/// Runs every load step on a component of the binary's own, and compiles it in this process.
pub async fn load(
    engine: &Engine,
    cache: Option<&CodeCache>,
    limits: &Limits,
    name: &str,
    bytes: &[u8],
) -> Result<Adapter, LoadError> {
    check_size(bytes)?;
    let digest = Digest::of(bytes);
    let component = match cache.and_then(|cache| cache.load(engine, &digest)) {
        Some(component) => component,
        None => {
            let component = engine.compile(bytes).map_err(|error| parse_error(&error))?;
            if let Some(cache) = cache {
                match component.serialize() {
                    Ok(code) => cache.store(engine, &digest, &code),
                    Err(error) => tracing::warn!(%error, "compiled code cannot be kept"),
                }
            }
            component
        }
    };
    finish(engine, limits, name, digest, component).await
}

/// Runs every load step on a component from elsewhere: a child process compiles it.
pub async fn load_arrived(
    engine: &Engine,
    compiler: &Compiler,
    cache: Option<&Arc<CodeCache>>,
    limits: &Limits,
    name: &str,
    arrived: Arrived,
) -> Result<Adapter, LoadError> {
    check_size(&arrived.bytes)?;
    let digest = arrived.digest;
    let cached = match cache.cloned() {
        Some(cache) => {
            let engine = engine.clone();
            aside(move || cache.load(&engine, &digest)).await
        }
        None => None,
    };
    let component = match cached {
        Some(component) => component,
        None => {
            let code = compile(engine, compiler, cache, &arrived).await?;
            let engine = engine.clone();
            aside(move || engine.take_compiled(&code))
                .await
                .map_err(|error| parse_error(&error))?
        }
    };
    finish(engine, limits, name, digest, component).await
}

/// A component from elsewhere.
pub struct Arrived {
    /// Its bytes.
    pub bytes: Bytes,
    /// Their digest.
    pub digest: Digest,
}

impl Arrived {
    /// Digests the bytes.
    pub async fn new(bytes: Bytes) -> Self {
        let digested = bytes.clone();
        let digest = aside(move || Digest::of(&digested)).await;
        Self { bytes, digest }
    }
}

/// Does what takes milliseconds for each megabyte where no request waits behind it.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

/// Has a child compile a component, and keeps its code.
pub(super) async fn compile(
    engine: &Engine,
    compiler: &Compiler,
    cache: Option<&Arc<CodeCache>>,
    arrived: &Arrived,
) -> Result<Arc<[u8]>, LoadError> {
    let code = compiler
        .compile(&arrived.bytes)
        .await
        .map_err(|error| match error {
            CompileError::Refused(complaint) => LoadError::Parse(printable(&complaint, 400)),
            error => LoadError::Compile(error),
        })?;
    let code = Arc::<[u8]>::from(code);
    if let Some(cache) = cache.cloned() {
        let (engine, digest, code) = (engine.clone(), arrived.digest, code.clone());
        aside(move || cache.store(&engine, &digest, &code)).await;
    }
    Ok(code)
}

fn check_size(bytes: &[u8]) -> Result<(), LoadError> {
    match bytes.len() {
        0..=COMPONENT_BYTES => Ok(()),
        bytes => Err(LoadError::TooLarge { bytes }),
    }
}

fn parse_error(error: &wasmtime::Error) -> LoadError {
    LoadError::Parse(printable(&format!("{error:#}"), 400))
}

/// The steps from compiled code on, which run the component, but within its limits.
async fn finish(
    engine: &Engine,
    limits: &Limits,
    name: &str,
    digest: Digest,
    component: Component,
) -> Result<Adapter, LoadError> {
    for (import, _) in component.component_type().imports(&engine.wasm) {
        let wasi_other = import.starts_with("wasi:") && !import.contains("@0.2.");
        if wasi_other || !IMPORTS.iter().any(|allowed| import.starts_with(allowed)) {
            return Err(LoadError::Import(printable(import, 200)));
        }
    }
    let contract = contract_of(engine, &component);
    let component = engine
        .linker
        .instantiate_pre(&component)
        .and_then(ProviderPre::new)
        .map_err(|error| LoadError::World(printable(&format!("{error:#}"), 400)))?;
    let program = Program {
        name: Arc::from(name),
        digest,
        component,
        limits: limits.clone(),
        engine: engine.clone(),
    };
    let description = guest::describe(&program)
        .await
        .map_err(LoadError::Describe)?;
    check_description(&description).map_err(LoadError::Description)?;
    let adapter = Adapter {
        description,
        contract,
        counters: Arc::default(),
        program,
    };
    self_test(&adapter).await.map_err(LoadError::SelfTest)?;
    Ok(adapter)
}

/// The version of the contract that a component was built for, e.g. `0.1.0`; empty if it exports none.
fn contract_of(engine: &Engine, component: &Component) -> String {
    let ty = component.component_type();
    let mut versions = ty
        .exports(&engine.wasm)
        .filter_map(|(name, _)| name.strip_prefix("weir:plugin/adapter@"));
    versions.next().unwrap_or_default().to_owned()
}

fn check_description(description: &Description) -> Result<(), String> {
    let word = |text: &str| {
        !text.is_empty() && text.len() <= 64 && text.bytes().all(|byte| byte.is_ascii_graphic())
    };
    if !word(&description.name) || !word(&description.version) {
        return Err("its name and version must be 1 to 64 printable ASCII characters".into());
    }
    if !description.serves_chat && !description.serves_images {
        return Err("it serves neither chat nor images".into());
    }
    if description.options.len() > 64 || !description.options.iter().all(|name| word(name)) {
        return Err("its options must be at most 64 names of printable ASCII characters".into());
    }
    match &description.credential {
        CredentialSlot::Bearer | CredentialSlot::None => Ok(()),
        CredentialSlot::Header(name) => match http::HeaderName::try_from(name.as_str()) {
            Ok(name) if !crate::inference::destination::is_framing(&name) => Ok(()),
            _ => Err(format!(
                "its credential cannot travel in a header named {:?}",
                printable(name, 64)
            )),
        },
        CredentialSlot::Query(name) if word(name) => Ok(()),
        CredentialSlot::Query(_) => Err("its credential's query parameter needs a name".into()),
        CredentialSlot::HostSigned(scheme) => Err(format!(
            "it needs requests signed by {:?}, which this version cannot do",
            printable(scheme, 64)
        )),
    }
}

/// Translates a stock request: a component that cannot do this would fail every request.
async fn self_test(adapter: &Adapter) -> Result<(), String> {
    if !adapter.description.serves_chat {
        return Ok(());
    }
    let request = Request::Chat(stock_request());
    let failed = |failure: Failure| {
        format!(
            "a stock request was refused: {}",
            printable(&format!("{failure:?}"), 200)
        )
    };
    let mut exchange = GuestExchange::begin(adapter, &request, &[])
        .await
        .map_err(|error| error.to_string())?
        .map_err(failed)?;
    let step = exchange
        .next()
        .await
        .map_err(|error| error.to_string())?
        .map_err(failed)?;
    match step {
        Step::Send(request) => crate::inference::destination::check_path(&request.path)
            .map_err(|error| format!("a stock request goes to a path that is refused: {error}")),
        Step::Emit(_) | Step::Wait(_) => Ok(()),
        Step::Done => Err("a stock request was answered with nothing".into()),
    }
}

fn stock_request() -> chat::ChatRequest {
    chat::ChatRequest {
        model: "self-test".into(),
        messages: vec![chat::Message {
            role: chat::Role::User,
            name: None,
            parts: vec![chat::Part {
                content: chat::Content::Text("Hello".into()),
                cache: None,
                signature: None,
            }],
        }],
        tools: Vec::new(),
        tool_choice: chat::ToolChoice::Auto,
        parallel_tool_calls: None,
        response_format: chat::ResponseFormat::Text,
        reasoning: chat::ReasoningRequest::Unspecified,
        max_output_tokens: 16,
        temperature: None,
        top_p: None,
        top_k: None,
        presence_penalty: None,
        frequency_penalty: None,
        seed: None,
        stop: Vec::new(),
        extra: Vec::new(),
        stream: false,
    }
}
