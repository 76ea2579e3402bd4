//! Playing times in nanoseconds.

/// Nanoseconds of a second.
pub(super) const SECOND: u64 = 1_000_000_000;

/// The playing time of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AudioLength {
    /// Nanoseconds.
    pub(super) nanos: u64,
    /// Whether all decoders find this length.
    pub(super) is_exact: bool,
}

/// Returns the time of samples at a rate that is not zero.
pub(super) fn in_nanos(samples: u64, rate: u32) -> u64 {
    let nanos = u128::from(samples) * u128::from(SECOND) / u128::from(rate.max(1));
    u64::try_from(nanos).unwrap_or(u64::MAX)
}
