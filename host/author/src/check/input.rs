//! The input of all suites of checks.

use super::difference::difference;
use crate::conformance::Conformance;
use crate::input::PluginInput;
use crate::recordings::AuthorRecording;

/// The `user-agent` of weir's requests, and its replacement in snapshots: a new version of weir must not change them.
const USER_AGENT: [&str; 2] = [
    concat!("\"user-agent\":\"weir/", env!("CARGO_PKG_VERSION"), "\""),
    "\"user-agent\":\"weir\"",
];

/// The author's input beside the component.
pub(super) struct SuiteInput<'a> {
    pub(super) plugin: &'a PluginInput,
    pub(super) recordings: &'a [AuthorRecording],
    /// True to write snapshots.
    pub(super) accept: bool,
    pub(super) conformance: Conformance,
}

impl SuiteInput<'_> {
    /// Compares the output of a recording with its snapshot. The inner error is the difference.
    pub(super) fn compare(
        &self,
        recording: &AuthorRecording,
        printed: &str,
    ) -> anyhow::Result<Result<&'static str, String>> {
        let [own_agent, any_agent] = USER_AGENT;
        let printed = &printed.replace(own_agent, any_agent);
        if self.accept {
            recording.accept(printed)?;
            return Ok(Ok("its snapshot is written"));
        }
        Ok(match recording.expected() {
            None => Ok("it has no snapshot: --accept writes one"),
            Some(expected) => difference(&expected, printed)
                .map_or(Ok("as in its snapshot"), |difference| {
                    Err(format!("{difference}, by its snapshot; --accept takes it"))
                }),
        })
    }
}
