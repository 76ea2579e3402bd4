//! Problems of the configuration.

/// An invalid setting.
#[derive(Debug, PartialEq, Eq)]
pub struct Problem {
    /// The setting's path, e.g. `models."gpt-4o".upstreams[0].provider`.
    pub setting: String,
    /// The problem, as the end of a sentence.
    pub what: String,
}
