//! The author's own recordings: a folder of requests, their responses, and the expected output.
//!
//! - `NAME.json`: a request, or the arguments of a tool.
//! - `NAME.http`: the first response; `NAME.2.http`, `NAME.3.http` …: the responses to the next requests of the exchange.
//!   For a filter, `NAME.http` is the response of its service.
//! - `NAME.events`: the events of a response, for a filter.
//! - `NAME.snap`: the lines that `weir plugin try` must print.
//!
//! If a response has no request, the commands use the simplest request.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::conformance::Conformance;
use crate::input;
use crate::recording::RecordedResponse;
use crate::trial::TrialRequest;

/// A recorded exchange of the author's.
#[derive(Debug)]
pub struct AuthorRecording {
    pub(crate) name: String,
    /// The request as JSON.
    pub(crate) request: Option<Vec<u8>>,
    pub(crate) responses: Vec<RecordedResponse>,
    /// For a filter: lines of events.
    pub(crate) events: Option<Vec<u8>>,
    snapshot: PathBuf,
}

impl AuthorRecording {
    /// Parses the request, or returns the simplest one.
    pub(crate) fn trial_request(&self, conformance: Conformance) -> anyhow::Result<TrialRequest> {
        match &self.request {
            Some(request) => input::read_request(request),
            None => conformance.request_for(&self.name),
        }
    }

    pub(crate) fn tool_arguments(&self) -> Option<String> {
        let arguments = self.request.as_deref()?;
        Some(String::from_utf8_lossy(arguments).into_owned())
    }

    /// Returns the expected output, if there is a snapshot.
    pub(crate) fn expected(&self) -> Option<String> {
        std::fs::read_to_string(&self.snapshot).ok()
    }

    /// Writes the snapshot.
    pub(crate) fn accept(&self, printed: &str) -> anyhow::Result<()> {
        std::fs::write(&self.snapshot, printed)
            .with_context(|| format!("writing {}", self.snapshot.display()))
    }
}

/// Reads the recordings of a folder, in the order of their names.
pub(crate) fn read_folder(folder: &Path) -> anyhow::Result<Vec<AuthorRecording>> {
    let files = RecordingFiles::list(folder)?;
    let read = |name: String| {
        let request = files.requests.get(&name).map(|path| input::read(path));
        let events = files.events.get(&name).map(|path| input::read(path));
        let responses = files.responses.get(&name).into_iter();
        let responses = responses.flat_map(BTreeMap::values);
        Ok(AuthorRecording {
            request: request.transpose()?,
            events: events.transpose()?,
            responses: responses
                .map(|path| input::read_recording(path))
                .collect::<anyhow::Result<_>>()?,
            snapshot: folder.join(format!("{name}.snap")),
            name,
        })
    };
    files.names().into_iter().map(read).collect()
}

/// The files of a folder, by the names of their recordings.
#[derive(Default)]
struct RecordingFiles {
    requests: BTreeMap<String, PathBuf>,
    events: BTreeMap<String, PathBuf>,
    /// By the place of a response in its exchange.
    responses: BTreeMap<String, BTreeMap<u32, PathBuf>>,
}

impl RecordingFiles {
    fn list(folder: &Path) -> anyhow::Result<Self> {
        let entries =
            std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
        let mut files = Self::default();
        for entry in entries {
            files.add(entry?.path());
        }
        Ok(files)
    }

    fn add(&mut self, path: PathBuf) {
        let Some(stem) = path.file_stem().and_then(|stem| stem.to_str()) else {
            return;
        };
        let stem = stem.to_owned();
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("json") => {
                self.requests.insert(stem, path);
            }
            Some("events") => {
                self.events.insert(stem, path);
            }
            Some("http") => {
                let numbered = stem.rsplit_once('.').and_then(|(name, number)| {
                    let number = number.parse().ok().filter(|number| *number > 1)?;
                    Some((name, number))
                });
                let (name, number) = numbered.unwrap_or((&stem, 1));
                let of_name = self.responses.entry(name.to_owned()).or_default();
                of_name.insert(number, path);
            }
            _ => {}
        }
    }

    fn names(&self) -> Vec<String> {
        let names = self.requests.keys().chain(self.events.keys());
        let mut names: Vec<_> = names.chain(self.responses.keys()).cloned().collect();
        names.sort();
        names.dedup();
        names
    }
}
