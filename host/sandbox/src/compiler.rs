//! Compiles components that arrive at run time, in a child process of the same binary.
//!
//! wasmtime makes no promise about hostile input to its compiler: the compiler may take all memory, never end, or
//! abort. A child process may do so: it has its own limits on memory and time, a lower priority, and an empty
//! environment. The child's output is trusted as the compiler's is; the child guards only against exhaustion and
//! crashes.

use std::io::{Read, Write};
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, nice, setrlimit};
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use crate::engine;
use crate::limits::COMPONENT_BYTES;

/// The hidden command that a child runs.
pub const COMMAND: &str = "compile-plugin";

/// Maximum bytes of compiled code from a child.
const CODE_BYTES: u64 = 128 << 20;

/// Maximum bytes of a child's error text.
const COMPLAINT_BYTES: u64 = 4 << 10;

/// Threads of a child. Each takes address space, which is limited, so the number does not grow with the cores.
const THREADS: u32 = 4;

/// Difference between a child's niceness and the gateway's.
const NICENESS: i32 = 10;

/// Bounds on one compilation. Configured under `plugins.compile`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CompileLimits {
    /// Milliseconds to compile a component. Default: 60,000.
    pub timeout_ms: NonZeroU64,
    /// MiB of address space to compile a component. Default: 4,096.
    pub memory_mib: NonZeroU64,
}

impl Default for CompileLimits {
    fn default() -> Self {
        Self {
            timeout_ms: const { NonZeroU64::new(60_000).unwrap() },
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
    #[error("the compilation took more than {} s (`plugins.compile.timeout_ms`)", .0.as_secs_f64())]
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
        Self::with_program("/proc/self/exe".into(), limits)
    }

    /// A compiler that runs another weir binary, for a process of another program.
    pub fn with_program(program: PathBuf, limits: CompileLimits) -> Self {
        Self { program, limits }
    }

    /// Returns the time limit of one compilation.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.limits.timeout_ms.get())
    }

    /// Compiles a component.
    pub(crate) async fn compile(&self, component: &[u8]) -> Result<Vec<u8>, CompileError> {
        let timeout = self.timeout();
        tokio::time::timeout(timeout, self.run_child(component))
            .await
            // The drop kills the child.
            .unwrap_or(Err(CompileError::TooLong(timeout)))
    }

    async fn run_child(&self, component: &[u8]) -> Result<Vec<u8>, CompileError> {
        let not_run = |error: std::io::Error| CompileError::NotRun(error.to_string());
        let mut child = Command::new(&self.program)
            .arg(COMMAND)
            .arg(self.limits.memory_mib.get().to_string())
            .arg(self.limits.timeout_ms.get().div_ceil(1_000).to_string())
            .env_clear()
            .env("RAYON_NUM_THREADS", THREADS.to_string())
            // By default the allocator reserves 1 GiB of address space at once, which is too much under the child's
            // limit.
            .env("MIMALLOC_ARENA_RESERVE", "32MiB")
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(not_run)?;
        let (Some(mut stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(CompileError::NotRun("it has no pipes".into()));
        };
        let (mut code, mut complaint) = (Vec::new(), Vec::new());
        let feed = async move {
            // The exit status of a child that dies early has the reason.
            let _ = stdin.write_all(component).await;
        };
        let (_, read, _) = tokio::join!(
            feed,
            async {
                let mut stdout = stdout.take(CODE_BYTES + 1);
                stdout.read_to_end(&mut code).await
            },
            async {
                let mut stderr = stderr.take(COMPLAINT_BYTES);
                stderr.read_to_end(&mut complaint).await
            },
        );
        read.map_err(not_run)?;
        if code.len() as u64 > CODE_BYTES {
            return Err(CompileError::Refused(format!(
                "its code has more than {CODE_BYTES} bytes"
            )));
        }
        let status = child.wait().await.map_err(not_run)?;
        match status.code() {
            Some(0) if !code.is_empty() => Ok(code),
            Some(REFUSED) => {
                let complaint = String::from_utf8_lossy(&complaint);
                Err(CompileError::Refused(complaint.trim().to_owned()))
            }
            Some(UNABLE) => Err(CompileError::NotRun(
                String::from_utf8_lossy(&complaint).trim().to_owned(),
            )),
            _ => Err(CompileError::Died(status, self.limits.memory_mib.get())),
        }
    }
}

/// Exit code of a child whose compiler rejects the component. Neither a panic nor a signal uses it.
const REFUSED: i32 = 3;

/// Exit code of a child that could not run its compiler.
const UNABLE: i32 = 4;

/// Runs the child: reads a component from standard input, writes compiled code to standard output.
pub fn run_in_child(memory_mib: u64, seconds: u64) -> ExitCode {
    match limit_self(memory_mib, seconds).and_then(|()| compile_input()) {
        Ok(Ok(code)) => match std::io::stdout().write_all(&code) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Ok(Err(complaint)) => {
            let _ = std::io::stderr().write_all(complaint.as_bytes());
            ExitCode::from(REFUSED as u8)
        }
        Err(error) => {
            let _ = std::io::stderr().write_all(error.to_string().as_bytes());
            ExitCode::from(UNABLE as u8)
        }
    }
}

fn limit_self(memory_mib: u64, seconds: u64) -> std::io::Result<()> {
    // If the kernel kills a process for lack of memory, it must not be the gateway.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let limit = |resource, number: u64| {
        // The inherited limit may be lower, and cannot be raised.
        let inherited = getrlimit(resource).maximum;
        let number = Some(inherited.map_or(number, |inherited| inherited.min(number)));
        let limits = Rlimit {
            current: number,
            maximum: number,
        };
        setrlimit(resource, limits)
    };
    limit(Resource::As, memory_mib.saturating_mul(1 << 20))?;
    // Limit on all threads together, for a child whose parent no longer enforces the timeout.
    let seconds = seconds.saturating_mul(THREADS.into());
    limit(Resource::Cpu, seconds.max(1))?;
    limit(Resource::Core, 0)?;
    limit(Resource::Fsize, 0)?;
    nice(NICENESS)?;
    Ok(())
}

fn compile_input() -> std::io::Result<Result<Vec<u8>, String>> {
    let mut component = Vec::new();
    std::io::stdin()
        .take(COMPONENT_BYTES as u64 + 1)
        .read_to_end(&mut component)?;
    Ok(engine::compile(&component).map_err(|error| format!("{error:#}")))
}
