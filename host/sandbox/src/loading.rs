//! The load steps, from bytes to a working plugin: size → parse and compile → imports and world → the self-test of
//! its world. Each refusal names its step and the necessary change.
//!
//! **Invariant:** a child compiles every uploaded component ([`arrived_code`]). A child also compiles bundled
//! components, and this process does so only if no child can ([`own_code`]): the compiler's memory ends with the
//! child.

use std::sync::Arc;

use bytes::Bytes;
use wasmtime::component::Component;

use crate::code_cache::CodeCache;
use crate::compiler::{CompileError, Compiler};
use crate::digest::Digest;
use crate::engine::Engine;
use crate::limits::{COMPONENT_BYTES, GuestLimits};
pub use crate::load_error::LoadError;
use crate::printable::printable;
use crate::world::{LoadedCode, Program, Sandbox, World};

/// Imports of a component of any world: WASI 0.2, as linked with an empty context.
const IMPORTS: [&str; 6] = [
    "wasi:cli/",
    "wasi:clocks/",
    "wasi:filesystem/",
    "wasi:io/",
    "wasi:random/",
    "wasi:sockets/",
];

/// The version in the names of these imports.
const WASI_VERSION: &str = "@0.2.";

/// Maximum number of imports in an error.
const LISTED_IMPORTS: usize = 20;

/// Runs every load step on a bundled component, in this process.
pub async fn load<W: World>(
    sandbox: &Sandbox<W>,
    cache: Option<&CodeCache>,
    limits: &GuestLimits,
    name: &str,
    bytes: &[u8],
) -> Result<W::Plugin, LoadError> {
    check_form(bytes)?;
    let (engine, digest) = (sandbox.engine(), Digest::of(bytes));
    let code = match cache.and_then(|cache| cache.load(engine, &digest)) {
        Some(component) => Code { digest, component },
        None => compile_here(engine, cache, bytes, digest)?,
    };
    finish(sandbox, limits, name, code).await
}

/// A component's compiled code, before its kind is known.
pub struct Code {
    digest: Digest,
    component: Component,
}

impl Code {
    /// Returns whether it exports the interface of this world, in any version.
    pub fn is_of<W: World>(&self, engine: &Engine) -> bool {
        versions::<W>(engine, &self.component).next().is_some()
    }
}

/// The first steps for a bundled component: if no child can compile it, this process does.
pub async fn own_code(
    engine: &Engine,
    compiler: &Compiler,
    cache: Option<&Arc<CodeCache>>,
    own: &UploadedComponent,
) -> Result<Code, LoadError> {
    match arrived_code(engine, compiler, cache, own).await {
        Err(LoadError::Compile(error)) => {
            tracing::warn!(%error, "a bundled plugin is compiled without a child process");
            compile_here(engine, cache.map(Arc::as_ref), &own.bytes, own.digest)
        }
        code => code,
    }
}

fn compile_here(
    engine: &Engine,
    cache: Option<&CodeCache>,
    bytes: &[u8],
    digest: Digest,
) -> Result<Code, LoadError> {
    let component = engine.compile(bytes).map_err(|error| parse_error(&error))?;
    if let Some(cache) = cache {
        match component.serialize() {
            Ok(code) => cache.store(engine, &digest, &code),
            Err(error) => tracing::warn!(%error, "compiled code cannot be kept"),
        }
    }
    Ok(Code { digest, component })
}

/// The first steps for an uploaded component: a child process compiles it.
pub async fn arrived_code(
    engine: &Engine,
    compiler: &Compiler,
    cache: Option<&Arc<CodeCache>>,
    arrived: &UploadedComponent,
) -> Result<Code, LoadError> {
    check_form(&arrived.bytes)?;
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
            let code = compile(engine, compiler, cache, arrived).await?;
            let engine = engine.clone();
            aside(move || engine.take_compiled(&code))
                .await
                .map_err(|error| parse_error(&error))?
        }
    };
    Ok(Code { digest, component })
}

pub struct UploadedComponent {
    pub bytes: Bytes,
    pub digest: Digest,
}

impl UploadedComponent {
    /// Digests the bytes.
    pub async fn new(bytes: Bytes) -> Self {
        let digested = bytes.clone();
        let digest = aside(move || Digest::of(&digested)).await;
        Self { bytes, digest }
    }
}

/// Runs work that takes milliseconds for each megabyte on a thread where no request waits behind it.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

/// Lets a child compile a component, and stores its code.
pub async fn compile(
    engine: &Engine,
    compiler: &Compiler,
    cache: Option<&Arc<CodeCache>>,
    arrived: &UploadedComponent,
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

/// Checks a component's form, and explains in plain words if it is not a component.
fn check_form(bytes: &[u8]) -> Result<(), LoadError> {
    const MAGIC: &[u8] = b"\0asm";
    const CORE_VERSION: [u8; 4] = [1, 0, 0, 0];
    if bytes.len() > COMPONENT_BYTES {
        return Err(LoadError::TooLarge { bytes: bytes.len() });
    }
    match bytes.strip_prefix(MAGIC) {
        Some(rest) if rest.starts_with(&CORE_VERSION) => Err(LoadError::CoreModule),
        Some(_) => Ok(()),
        None => {
            let first = &bytes[..bytes.len().min(16)];
            Err(LoadError::NoWasm(first.escape_ascii().to_string()))
        }
    }
}

fn parse_error(error: &wasmtime::Error) -> LoadError {
    LoadError::Parse(printable(&format!("{error:#}"), 400))
}

/// The steps after compilation, which run the component within its limits.
pub async fn finish<W: World>(
    sandbox: &Sandbox<W>,
    limits: &GuestLimits,
    name: &str,
    Code { digest, component }: Code,
) -> Result<W::Plugin, LoadError> {
    let engine = sandbox.engine();
    check_imports::<W>(engine, &component)?;
    let contract = versions::<W>(engine, &component).next().unwrap_or_default();
    let component = sandbox
        .prepare(&component)
        .map_err(|error| LoadError::World {
            world: W::NAME,
            why: printable(&format!("{error:#}"), 400),
        })?;
    let code = LoadedCode {
        name: Arc::from(name),
        digest,
        contract,
    };
    let program = Program::new(code, component, limits, engine);
    W::admit(program).await
}

fn check_imports<W: World>(engine: &Engine, component: &Component) -> Result<(), LoadError> {
    let component = component.component_type();
    let imports = component.imports(&engine.wasm).map(|(name, _)| name);
    let mut refused: Vec<_> = imports
        .filter(|import| {
            let is_wasi = IMPORTS.iter().any(|allowed| import.starts_with(allowed));
            let is_own = W::IMPORTS.iter().any(|allowed| import.starts_with(allowed));
            !(is_own || is_wasi && import.contains(WASI_VERSION))
        })
        .map(|import| printable(import, 200))
        .collect();
    if refused.is_empty() {
        return Ok(());
    }
    if refused.len() > LISTED_IMPORTS {
        let more = refused.split_off(LISTED_IMPORTS).len();
        refused.push(format!("and {more} more"));
    }
    let own = W::IMPORTS.iter().map(|import| format!("{import}*"));
    let wasi = IMPORTS
        .iter()
        .map(|import| format!("{import}*{WASI_VERSION}*"));
    Err(LoadError::Imports {
        refused,
        allowed: own.chain(wasi).collect(),
    })
}

/// The versions of the contract for which a component was built, e.g. `0.2.0`; empty if it is of another world.
fn versions<W: World>(engine: &Engine, component: &Component) -> impl Iterator<Item = String> {
    let ty = component.component_type();
    let versions: Vec<_> = ty
        .exports(&engine.wasm)
        .filter_map(|(name, _)| name.strip_prefix(W::EXPORT)?.strip_prefix('@'))
        .map(str::to_owned)
        .collect();
    versions.into_iter()
}
