//! Compiles components that arrive at run time, in a child process of the same binary.
//!
//! wasmtime promises nothing about hostile input to its compiler: it may take all memory, never end, or abort.
//! A child may: it has limits of its own on memory and time, a lower priority, and an empty environment. Its output
//! is trusted as the compiler's is; what a child guards against is exhaustion and crashes.

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

/// Bytes of compiled code that are taken from a child.
const CODE_BYTES: u64 = 128 << 20;

/// Bytes of a child's complaint.
const COMPLAINT_BYTES: u64 = 4 << 10;

/// Threads of a child: each takes address space, which is limited, however many cores there are.
const THREADS: u32 = 4;

/// How much lower than the gateway's a child's priority is.
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

/// Compiles in child processes.
#[derive(Debug, Clone)]
pub struct Compiler {
    program: PathBuf,
    limits: CompileLimits,
}

/// Why there is no compiled code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// The compiler says what is wrong with the component.
    #[error("{0}")]
    Refused(String),
    /// It took too long.
    #[error("compiling it took more than {} s (`plugins.compile.timeout_ms`)", .0.as_secs_f64())]
    TooLong(Duration),
    /// It died, most likely for want of memory.
    #[error(
        "the compiler ended with {0}; it may have {1} MiB of memory (`plugins.compile.memory_mib`)"
    )]
    Died(ExitStatus, u64),
    /// There is no child, or it cannot work.
    #[error("the compiler cannot be run: {0}")]
    NotRun(String),
}

impl Compiler {
    /// A compiler that runs this very binary, whatever has become of its file since.
    pub fn new(limits: CompileLimits) -> Self {
        Self::with_program("/proc/self/exe".into(), limits)
    }

    /// A compiler that runs another weir, for a process that is none.
    pub fn with_program(program: PathBuf, limits: CompileLimits) -> Self {
        Self { program, limits }
    }

    /// Compiles a component.
    pub(crate) async fn compile(&self, component: &[u8]) -> Result<Vec<u8>, CompileError> {
        let timeout = Duration::from_millis(self.limits.timeout_ms.get());
        tokio::time::timeout(timeout, self.run_child(component))
            .await
            // The child is killed where it is dropped.
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
            // The allocator takes a GiB of address space at first otherwise, which here is limited.
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
            // A child that dies early says why by its end.
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

/// A child's exit code for a component that its compiler refuses. No panic's, and no signal's.
const REFUSED: i32 = 3;

/// The same for one that it could not try.
const UNABLE: i32 = 4;

/// What a child does: compiled code on standard output for a component on standard input.
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
    // Where the kernel has to end somebody for want of memory, it should not be the gateway.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let limit = |resource, number: u64| {
        // What it inherits may be less, and cannot be raised.
        let inherited = getrlimit(resource).maximum;
        let number = Some(inherited.map_or(number, |inherited| inherited.min(number)));
        let limits = Rlimit {
            current: number,
            maximum: number,
        };
        setrlimit(resource, limits)
    };
    limit(Resource::As, memory_mib.saturating_mul(1 << 20))?;
    // Of all threads together, for one whose parent is no longer there to look at the clock.
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
