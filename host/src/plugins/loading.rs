//! From bytes to an adapter that can serve: size → parse and compile → imports and world → instantiate
//! and `describe` → self-test. Each refusal names its step and what to change.
//!
//! Only components that were compiled into the binary come through here so far, so that compiling in
//! this process is safe; bytes from elsewhere must be compiled by a child process.

use std::sync::Arc;

use super::bindings::ProviderPre;
use super::bindings::adapter::{CredentialSlot, Description, Failure, Request, Step};
use super::bindings::chat;
use super::code_cache::CodeCache;
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
    /// It could not translate a stock request.
    #[error("self-test: {0}")]
    SelfTest(String),
}

/// Runs every load step.
pub async fn load(
    engine: &Engine,
    cache: Option<&CodeCache>,
    limits: &Limits,
    name: &str,
    bytes: &[u8],
) -> Result<Adapter, LoadError> {
    if bytes.len() > COMPONENT_BYTES {
        return Err(LoadError::TooLarge { bytes: bytes.len() });
    }
    let digest = Digest::of(bytes);
    let component = match cache.and_then(|cache| cache.load(engine, &digest)) {
        Some(component) => component,
        None => {
            let component = engine
                .compile(bytes)
                .map_err(|error| LoadError::Parse(printable(&format!("{error:#}"), 400)))?;
            if let Some(cache) = cache {
                cache.store(engine, &digest, &component);
            }
            component
        }
    };
    for (import, _) in component.component_type().imports(&engine.wasm) {
        let wasi_other = import.starts_with("wasi:") && !import.contains("@0.2.");
        if wasi_other || !IMPORTS.iter().any(|allowed| import.starts_with(allowed)) {
            return Err(LoadError::Import(printable(import, 200)));
        }
    }
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
        program,
    };
    self_test(&adapter).await.map_err(LoadError::SelfTest)?;
    Ok(adapter)
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
