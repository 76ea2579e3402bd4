//! Why a component was refused: the step that failed, and what to change.

use crate::compiler::CompileError;
use crate::guest::GuestError;
use crate::limits::COMPONENT_BYTES;

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
    /// A core module, which toolchains make where they are not told otherwise.
    #[error(
        "parse: not a WebAssembly component but a core module: build it for `wasm32-wasip2`, or make it a component with \
         `wasm-tools component new`"
    )]
    CoreModule,
    /// Something else altogether.
    #[error("parse: not a WebAssembly component: it begins with \"{0}\" instead of \"\\0asm\"")]
    NoWasm(String),
    /// It could not be compiled within its limits.
    #[error("compile: {0}")]
    Compile(CompileError),
    /// It asks for something that plugins are not given.
    #[error(
        "imports: the component imports what plugins are not given: {}; they may import: {}", .refused.join(", "),
        .allowed.join(", ")
    )]
    Imports {
        /// The names of what it is not given, in its order.
        refused: Vec<String>,
        /// What plugins of its world are given, by what the names begin with.
        allowed: Vec<String>,
    },
    /// It does not export its world, or exports it with other types.
    #[error("world: the component does not fit the world {world}: {why}")]
    World {
        /// Which world, e.g. `weir:plugin/provider@0.2`.
        world: &'static str,
        /// What does not fit.
        why: String,
    },
    /// It failed before it could say what it is.
    #[error("describe: {0}")]
    Describe(GuestError),
    /// What it says of itself makes no sense.
    #[error("describe: {0}")]
    Description(String),
    /// It claims to be another plugin.
    #[error("describe: it calls itself {0:?}, which is the name of another slot")]
    NameOfAnother(String),
    /// It failed what every component of its world must be able to do.
    #[error("self-test: {0}")]
    SelfTest(String),
}

impl LoadError {
    /// The step that failed, as in the error's text.
    pub fn step(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "size",
            Self::Parse(_) | Self::CoreModule | Self::NoWasm(_) => "parse",
            Self::Compile(_) => "compile",
            Self::Imports { .. } => "imports",
            Self::World { .. } => "world",
            Self::Describe(_) | Self::Description(_) | Self::NameOfAnother(_) => "describe",
            Self::SelfTest(_) => "self-test",
        }
    }
}
