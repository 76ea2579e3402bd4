//! An author's own recordings: a folder of requests, of what was answered to them, and of what must come of that.
//!
//! `NAME.json` is a request, or a tool's arguments; `NAME.http` is the answer to it, and `NAME.2.http`, `NAME.3.http` …
//! those to what is asked next; `NAME.events` are the events of an answer that a filter is shown. An answer without a request is read
//! for the plainest one. `NAME.snap` has the lines that `weir plugin try` prints.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::given;
use super::recording::Recording;

/// A recorded exchange.
pub(super) struct Own {
    pub(super) name: String,
    /// What is asked; the plainest request where there is none.
    pub(super) request: Option<Vec<u8>>,
    pub(super) answers: Vec<Recording>,
    /// Of a filter: lines of events.
    pub(super) events: Option<Vec<u8>>,
    snapshot: PathBuf,
}

impl Own {
    /// What must be printed, where that has been said.
    pub(super) fn expected(&self) -> Option<String> {
        std::fs::read_to_string(&self.snapshot).ok()
    }

    /// Has this be what must be printed.
    pub(super) fn accept(&self, printed: &str) -> anyhow::Result<()> {
        std::fs::write(&self.snapshot, printed)
            .with_context(|| format!("writing {}", self.snapshot.display()))
    }
}

/// The recordings of a folder, by name.
pub(super) fn recordings(folder: &Path) -> anyhow::Result<Vec<Own>> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut requests = BTreeMap::new();
    let mut events = BTreeMap::new();
    // Sorted by the place of an answer in its exchange.
    let mut answers = BTreeMap::<String, BTreeMap<u32, PathBuf>>::new();
    for entry in entries {
        let path = entry?.path();
        let Some(stem) = path.file_stem().and_then(|stem| stem.to_str()) else {
            continue;
        };
        let ending = path.extension().and_then(|ending| ending.to_str());
        match ending {
            Some("json") => {
                requests.insert(stem.to_owned(), path.clone());
            }
            Some("events") => {
                events.insert(stem.to_owned(), path.clone());
            }
            Some("http") => {
                let numbered = stem.rsplit_once('.').and_then(|(name, number)| {
                    let number = number.parse().ok().filter(|number| *number > 1)?;
                    Some((name, number))
                });
                let (name, number) = numbered.unwrap_or((stem, 1));
                let of_name = answers.entry(name.to_owned()).or_default();
                of_name.insert(number, path.clone());
            }
            _ => {}
        }
    }
    let mut names: Vec<_> = requests
        .keys()
        .chain(events.keys())
        .chain(answers.keys())
        .cloned()
        .collect();
    names.sort();
    names.dedup();
    let read = |name: String| {
        let request = requests.get(&name).map(|path| given::read(path));
        let events = events.get(&name).map(|path| given::read(path));
        let answers = answers.get(&name).into_iter().flat_map(BTreeMap::values);
        Ok(Own {
            request: request.transpose()?,
            events: events.transpose()?,
            answers: answers
                .map(|path| given::read_recording(path))
                .collect::<anyhow::Result<_>>()?,
            snapshot: folder.join(format!("{name}.snap")),
            name,
        })
    };
    names.into_iter().map(read).collect()
}
