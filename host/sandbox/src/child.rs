//! Child processes of the same binary, for work on bytes that may exhaust or crash it.
//!
//! A child has its own limits on memory and processor time, a lower priority, and an empty environment. It reads its
//! standard input and writes its result to its standard output.
//!
//! A limit of processor time bounds the work: on a busy machine, the clock says little about it. The clock only catches a child
//! that hangs.
//!
//! **Invariant:** a child ends with the future that waits for it: the drop kills it. If its parent dies, its limit of
//! processor time and the end of its pipes end it.

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use bytes::Bytes;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, nice, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

/// Maximum bytes of a child's error text.
const COMPLAINT_BYTES: u64 = 4 << 10;

/// Difference between a child's niceness and the gateway's.
const NICENESS: i32 = 10;

/// Exit code of a child that rejects its input. Neither a panic nor a signal uses it.
const REFUSED: i32 = 3;

/// Exit code of a child that could not do its work.
const UNABLE: i32 = 4;

/// The program of this process, even if its file has been replaced since.
pub const THIS_PROGRAM: &str = "/proc/self/exe";

#[derive(Debug)]
pub struct ChildWork<'a> {
    /// The hidden command, and its arguments.
    pub arguments: &'a [&'a str],
    pub environment: &'a [(&'a str, &'a str)],
    /// The standard input, in pieces.
    pub input: Vec<Bytes>,
    /// The maximum bytes of the result.
    pub output_bytes: u64,
    /// The maximum time by the clock.
    pub timeout: Duration,
}

/// The reason that a child has no result.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// The child rejects its input, with this reason.
    #[error("{0}")]
    Refused(String),
    /// The work took too much processor time, or too long by the clock.
    #[error("it took too long")]
    TooLong,
    /// The result is too large.
    #[error("its result is too large")]
    TooLarge,
    /// The child died, most likely from lack of memory.
    #[error("it ended with {0}")]
    Died(ExitStatus),
    /// The child did not start, or cannot work.
    #[error("it cannot be run: {0}")]
    NotRun(String),
}

impl ChildWork<'_> {
    pub async fn run(self, program: &Path) -> Result<Vec<u8>, ChildError> {
        let timeout = self.timeout;
        tokio::time::timeout(timeout, self.run_child(program))
            .await
            // The drop kills the child.
            .unwrap_or(Err(ChildError::TooLong))
    }

    async fn run_child(self, program: &Path) -> Result<Vec<u8>, ChildError> {
        let not_run = |error: std::io::Error| ChildError::NotRun(error.to_string());
        let mut child = Command::new(program)
            .args(self.arguments)
            .env_clear()
            .envs(self.environment.iter().copied())
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
            return Err(ChildError::NotRun("it has no pipes".into()));
        };
        let (mut result, mut complaint) = (Vec::new(), Vec::new());
        let input = self.input;
        let feed = async move {
            for piece in input {
                // The exit status of a child that dies early has the reason.
                if stdin.write_all(&piece).await.is_err() {
                    break;
                }
            }
        };
        let output_bytes = self.output_bytes;
        let (_, read, _) = tokio::join!(
            feed,
            async {
                let mut stdout = stdout.take(output_bytes + 1);
                stdout.read_to_end(&mut result).await
            },
            async {
                let mut stderr = stderr.take(COMPLAINT_BYTES);
                stderr.read_to_end(&mut complaint).await
            },
        );
        read.map_err(not_run)?;
        if result.len() as u64 > output_bytes {
            return Err(ChildError::TooLarge);
        }
        let status = child.wait().await.map_err(not_run)?;
        let complaint = || String::from_utf8_lossy(&complaint).trim().to_owned();
        match status.code() {
            Some(0) if !result.is_empty() => Ok(result),
            Some(REFUSED) => Err(ChildError::Refused(complaint())),
            Some(UNABLE) => Err(ChildError::NotRun(complaint())),
            None if status.signal() == Some(Signal::XCPU.as_raw()) => Err(ChildError::TooLong),
            _ => Err(ChildError::Died(status)),
        }
    }
}

/// Runs in the child: limits this process, does the work, and writes its result. An inner error rejects the input, an
/// outer one means that the work could not be done.
pub fn work(
    memory_mib: u64,
    cpu_seconds: u64,
    work: impl FnOnce() -> std::io::Result<Result<Vec<u8>, String>>,
) -> ExitCode {
    match limit_self(memory_mib, cpu_seconds).and_then(|()| work()) {
        Ok(Ok(result)) => match std::io::stdout().write_all(&result) {
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

fn limit_self(memory_mib: u64, cpu_seconds: u64) -> std::io::Result<()> {
    // If the kernel kills a process for lack of memory, it must not be the gateway.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let limit = |resource, current: u64, maximum: u64| {
        // The inherited limit may be lower, and cannot be raised.
        let inherited = getrlimit(resource).maximum;
        let at_most = |number| Some(inherited.map_or(number, |inherited| inherited.min(number)));
        let limits = Rlimit {
            current: at_most(current),
            maximum: at_most(maximum),
        };
        setrlimit(resource, limits)
    };
    let memory = memory_mib.saturating_mul(1 << 20);
    limit(Resource::As, memory, memory)?;
    // At the lower limit, a signal names the reason of the end.
    let cpu_seconds = cpu_seconds.max(1);
    limit(Resource::Cpu, cpu_seconds, cpu_seconds.saturating_add(1))?;
    limit(Resource::Core, 0, 0)?;
    limit(Resource::Fsize, 0, 0)?;
    nice(NICENESS)?;
    Ok(())
}
