//! Compiles components that arrive at run time, in a child process of the same binary.
//!
//! wasmtime makes no promise about hostile input to its compiler: the compiler may take all memory, never end, or
//! abort. A child process may do so: it has its own limits on memory and time, a lower priority, and an empty
//! environment. The child's output is trusted as the compiler's is; the child guards only against exhaustion and
//! crashes.

use std::io::Read;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;

use crate::child::{self, ChildError, ChildWork};
use crate::engine;
use crate::limits::COMPONENT_BYTES;

/// The hidden command that a child runs.
pub const COMMAND: &str = "compile-plugin";

/// Maximum bytes of compiled code from a child.
pub(crate) const CODE_BYTES: u64 = 128 << 20;

/// Threads of a child. Each takes address space, which is limited, so the number does not grow with the cores.
const THREADS: u32 = 4;

/// Ratio of the longest time by the clock to the processor time: a child that takes so long hangs, or has a machine where
/// it gets a tenth of a core.
const CLOCK_FACTOR: u32 = 10;

/// Bounds on one compilation. Configured under `plugins.compile`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CompileLimits {
    /// Milliseconds of processor time to compile a component, in whole seconds, and a tenth of the longest time by the clock.
    /// Default: 120,000.
    pub timeout_ms: NonZeroU64,
    /// MiB of address space to compile a component. Default: 4,096.
    pub memory_mib: NonZeroU64,
}

impl Default for CompileLimits {
    fn default() -> Self {
        Self {
            timeout_ms: const { NonZeroU64::new(120_000).unwrap() },
            memory_mib: const { NonZeroU64::new(4_096).unwrap() },
        }
    }
}

/// A compiler that uses child processes.
#[derive(Debug, Clone)]
pub struct Compiler {
    program: PathBuf,
    limits: CompileLimits,
}

/// The reason that there is no compiled code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// The compiler rejected the component, with this reason.
    #[error("{0}")]
    Refused(String),
    /// The compilation took too long.
    #[error(
        "the compilation took more than {} s of processor time (`plugins.compile.timeout_ms`)",
        .0.as_secs_f64()
    )]
    TooLong(Duration),
    /// The child died, most likely from lack of memory.
    #[error(
        "the compiler ended with {0}; it may have {1} MiB of memory (`plugins.compile.memory_mib`)"
    )]
    Died(ExitStatus, u64),
    /// The child did not start, or cannot work.
    #[error("the compiler cannot be run: {0}")]
    NotRun(String),
}

impl Compiler {
    /// A compiler that runs this process's binary, even if its file has been replaced since.
    pub fn new(limits: CompileLimits) -> Self {
        Self::with_program(child::THIS_PROGRAM.into(), limits)
    }

    /// A compiler that runs another weir binary, for a process of another program.
    pub fn with_program(program: PathBuf, limits: CompileLimits) -> Self {
        Self { program, limits }
    }

    /// Returns the limit of processor time of one compilation.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.limits.timeout_ms.get())
    }

    /// Returns the program that children run.
    pub fn program(&self) -> &Path {
        &self.program
    }

    pub(crate) async fn compile(&self, component: &[u8]) -> Result<Vec<u8>, CompileError> {
        let memory_mib = self.limits.memory_mib.get();
        let seconds = self.limits.timeout_ms.get().div_ceil(1_000);
        let work = ChildWork {
            arguments: &[COMMAND, &memory_mib.to_string(), &seconds.to_string()],
            environment: &[("RAYON_NUM_THREADS", &THREADS.to_string())],
            input: vec![Bytes::copy_from_slice(component)],
            output_bytes: CODE_BYTES,
            timeout: self.timeout().saturating_mul(CLOCK_FACTOR),
        };
        work.run(&self.program).await.map_err(|error| match error {
            ChildError::Refused(why) => CompileError::Refused(why),
            ChildError::TooLarge => {
                CompileError::Refused(format!("its code has more than {CODE_BYTES} bytes"))
            }
            ChildError::TooLong => CompileError::TooLong(self.timeout()),
            ChildError::Died(status) => CompileError::Died(status, memory_mib),
            ChildError::NotRun(why) => CompileError::NotRun(why),
        })
    }
}

/// Runs the child: reads a component from standard input, writes compiled code to standard output.
pub fn run_in_child(memory_mib: u64, seconds: u64) -> ExitCode {
    child::work(memory_mib, seconds, compile_input)
}

fn compile_input() -> std::io::Result<Result<Vec<u8>, String>> {
    let mut component = Vec::new();
    std::io::stdin()
        .take(COMPONENT_BYTES as u64 + 1)
        .read_to_end(&mut component)?;
    Ok(engine::compile(&component).map_err(|error| format!("{error:#}")))
}
