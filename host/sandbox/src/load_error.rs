//! Refusals of a component: the step that failed, and the necessary change.

use crate::compiler::CompileError;
use crate::guest::GuestError;
use crate::limits::COMPONENT_BYTES;

/// The reason that a component was refused.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file is larger than [`COMPONENT_BYTES`].
    #[error("size: the component has {bytes} bytes, more than {COMPONENT_BYTES}")]
    TooLarge {
        /// Its size in bytes.
        bytes: usize,
    },
    /// Not a component, or one that needs a Wasm feature that is off.
    #[error("parse: not a WebAssembly component that can be compiled: {0}")]
    Parse(String),
    /// A core module, the default output of toolchains.
    #[error(
        "parse: not a WebAssembly component but a core module: build it for `wasm32-wasip2`, or make it a component with \
         `wasm-tools component new`"
    )]
    CoreModule,
    /// The file is not WebAssembly.
    #[error("parse: not a WebAssembly component: it begins with \"{0}\" instead of \"\\0asm\"")]
    NoWasm(String),
    /// The compilation failed or exceeded its limits.
    #[error("compile: {0}")]
    Compile(CompileError),
    /// The component has imports that plugins do not get.
    #[error(
        "imports: the component has imports that plugins do not get: {}; permitted imports: {}", .refused.join(", "),
        .allowed.join(", ")
    )]
    Imports {
        /// The refused imports, in the component's order.
        refused: Vec<String>,
        /// Prefixes of the imports that plugins of its world get.
        allowed: Vec<String>,
    },
    /// The component does not export its world, or exports it with other types.
    #[error("world: the component does not fit the world {world}: {why}")]
    World {
        /// The world, e.g. `weir:plugin/provider@0.2`.
        world: &'static str,
        /// The mismatch.
        why: String,
    },
    /// The component failed before it returned its description.
    #[error("describe: {0}")]
    Describe(GuestError),
    /// Its description is malformed.
    #[error("describe: {0}")]
    Description(String),
    /// Its description has another plugin's name.
    #[error("describe: its name is {0:?}, which is the name of another slot")]
    NameOfAnother(String),
    /// It failed the self-test of its world.
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
