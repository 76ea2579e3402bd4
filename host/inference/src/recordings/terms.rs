//! The terms of a recording, as every node follows them.

use weir_storage::clock::Millis;

/// The terms of a slot's recording.
#[derive(Debug, Clone, Copy)]
pub struct RecordingTerms {
    /// The start.
    pub begun_at: Millis,
    /// The share of exchanges, in parts of ten thousand.
    pub share: u16,
    /// The end.
    pub until: Millis,
}
