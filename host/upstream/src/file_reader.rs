//! Reads strangers' files for their lengths, in a [child process](weir_sandbox::child).
//!
//! The readers are linear in the bytes of a file, but their input is hostile: a fault of a reader ends its child, which has
//! limits on memory, on processor time, and on time by the clock. A request without such files starts no child.
//!
//! **Invariant:** a child ends with its request: the drop of the future kills it.

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use weir_sandbox::child::{self, ChildError, ChildWork};

use crate::audio_length::{self, RecordingLength};
use crate::{pages, pdf_text};

/// The hidden command that a child runs.
pub const COMMAND: &str = "read-files";

/// The kinds of files, as arguments of the command.
const RECORDINGS: &str = "recordings";
const DOCUMENTS: &str = "documents";

/// The maximum time of a child by the clock.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum processor time of a child in seconds. 32 MiB take a small part of it.
const CPU_SECONDS: u64 = 5;

/// MiB of address space of a child: mostly the program itself.
const MEMORY_MIB: u64 = 1_024;

/// The maximum bytes of a child's input, above any request's body.
const INPUT_BYTES: u64 = 256 << 20;

/// The maximum bytes of a child's result.
const OUTPUT_BYTES: u64 = 4 << 20;

/// The size of a document for its tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentSize {
    /// Maximum pages.
    pub pages: u64,
    /// Maximum bytes of text.
    pub text_bytes: u64,
}

/// Returns the size of a PDF; `None` if a reader could find more than weir.
pub fn document_size(pdf: &[u8]) -> Option<DocumentSize> {
    Some(DocumentSize {
        pages: pages::count(pdf)?,
        text_bytes: pdf_text::bytes(pdf)?,
    })
}

/// Reads files. At most as many children run as the machine has cores; clones share them.
#[derive(Debug, Clone)]
pub struct FileReader {
    program: PathBuf,
    children: Arc<Semaphore>,
}

impl FileReader {
    /// A reader that runs this weir binary.
    pub fn new(program: PathBuf) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            program,
            children: Arc::new(Semaphore::new(cores)),
        }
    }

    /// Reads the length of a recording; `None` if it cannot be read.
    pub async fn recording(&self, file: Bytes) -> Result<Option<RecordingLength>, ChildError> {
        let lengths = self.read(RECORDINGS, [file].into()).await?;
        Ok(lengths.into_iter().next().flatten())
    }

    /// Reads the sizes of documents, in order; `None` for each that cannot be counted.
    pub async fn documents(
        &self,
        files: Vec<Bytes>,
    ) -> Result<Vec<Option<DocumentSize>>, ChildError> {
        self.read(DOCUMENTS, files).await
    }

    async fn read<T: DeserializeOwned>(
        &self,
        kind: &str,
        files: Vec<Bytes>,
    ) -> Result<Vec<Option<T>>, ChildError> {
        let count = files.len();
        let _turn = self.children.acquire().await;
        let pieces = files.into_iter().flat_map(|file| {
            let length = (file.len() as u64).to_le_bytes();
            [Bytes::copy_from_slice(&length), file]
        });
        let work = ChildWork {
            arguments: &[COMMAND, kind],
            environment: &[],
            input: pieces.collect(),
            output_bytes: OUTPUT_BYTES,
            timeout: TIMEOUT,
        };
        let result = match work.run(&self.program).await {
            // The files caused it.
            Err(error @ (ChildError::Died(_) | ChildError::TooLong | ChildError::TooLarge)) => {
                tracing::warn!(kind, %error, "cannot read the files of a request");
                return Ok((0..count).map(|_| None).collect());
            }
            result => result?,
        };
        match serde_json::from_slice::<Vec<Option<T>>>(&result) {
            Ok(sizes) if sizes.len() == count => Ok(sizes),
            _ => Err(ChildError::NotRun("its result is not complete".into())),
        }
    }
}

/// Runs the child: reads files from standard input, each behind its length, and writes their sizes as JSON.
pub fn run_in_child(kind: &str) -> ExitCode {
    child::work(MEMORY_MIB, CPU_SECONDS, || {
        let mut input = Vec::new();
        std::io::stdin().take(INPUT_BYTES).read_to_end(&mut input)?;
        let files = split(&input);
        let sizes = match kind {
            RECORDINGS => serde_json::to_vec(&files.map(audio_length::read).collect::<Vec<_>>()),
            DOCUMENTS => serde_json::to_vec(&files.map(document_size).collect::<Vec<_>>()),
            _ => return Ok(Err("an unknown kind of files".to_owned())),
        };
        Ok(Ok(sizes?))
    })
}

/// Splits the input of a child into files.
fn split(mut input: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = input.split_first_chunk()?;
        let (file, rest) =
            rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
        input = rest;
        Some(file)
    })
}
