//! Time as milliseconds since the Unix epoch, and where it comes from.

use jiff::Timestamp;

/// Milliseconds since the Unix epoch: what the database stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Millis(pub i64);

impl Millis {
    /// This moment.
    pub fn now() -> Self {
        Self(Timestamp::now().as_millisecond())
    }

    /// A later moment.
    #[must_use]
    pub fn plus_days(self, days: i64) -> Self {
        Self(self.0 + days * 86_400_000)
    }

    /// Whole seconds, as OpenAI's `created` fields have them.
    pub fn seconds(self) -> i64 {
        self.0.div_euclid(1000)
    }
}
