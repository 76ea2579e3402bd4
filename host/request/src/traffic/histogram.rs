//! Histograms of times with fixed buckets.

/// The upper bounds of the buckets in milliseconds: five for each factor of ten, as in the series R5 of ISO 3. The last
/// bucket has no bound.
const BOUNDS_MS: [i64; 24] = [
    10, 16, 25, 40, 63, 100, 160, 250, 400, 630, 1_000, 1_600, 2_500, 4_000, 6_300, 10_000, 16_000,
    25_000, 40_000, 63_000, 100_000, 160_000, 250_000, 400_000,
];

pub(super) const BUCKETS: usize = BOUNDS_MS.len() + 1;

/// The number of times in each bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Histogram(pub(super) [i64; BUCKETS]);

impl Histogram {
    /// Adds a time.
    pub(super) fn observe(&mut self, ms: i64) {
        let bucket = BOUNDS_MS.partition_point(|bound| *bound < ms);
        self.0[bucket] += 1;
    }

    /// Adds the times of another histogram.
    pub(super) fn add(&mut self, other: &Self) {
        for (bucket, more) in self.0.iter_mut().zip(other.0) {
            *bucket = bucket.saturating_add(more);
        }
    }

    /// Estimates a quantile in milliseconds, as Prometheus does: times are spread evenly within a bucket. `None` without
    /// times; the last bound if the quantile is above it.
    pub fn quantile(&self, share: f64) -> Option<i64> {
        let all: i64 = self.0.iter().sum();
        if all <= 0 {
            return None;
        }
        let rank = share * all as f64;
        let (mut below, mut lower) = (0, 0);
        for (bound, count) in BOUNDS_MS.into_iter().zip(self.0) {
            if count > 0 && (below + count) as f64 >= rank {
                let part = (rank - below as f64) / count as f64;
                return Some(lower + (part * (bound - lower) as f64).round() as i64);
            }
            below += count;
            lower = bound;
        }
        Some(lower)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(times: &[i64]) -> Histogram {
        let mut histogram = Histogram::default();
        for ms in times {
            histogram.observe(*ms);
        }
        histogram
    }

    #[test]
    fn a_quantile_lies_in_the_bucket_of_its_time() {
        assert_eq!(Histogram::default().quantile(0.5), None);
        let times: Vec<_> = (1..=1_000).collect();
        let histogram = of(&times);
        for (share, exact) in [(0.5, 500), (0.95, 950), (0.01, 10), (1.0, 1_000)] {
            let found = histogram.quantile(share).expect("times");
            assert!((found - exact).abs() <= exact / 20, "{share}: {found}");
        }
        assert_eq!(of(&[10]).quantile(1.0), Some(10));
        assert_eq!(of(&[11]).quantile(1.0), Some(16));
        assert_eq!(of(&[500_000, 900_000]).quantile(0.5), Some(400_000));
    }

    #[test]
    fn sums_of_nodes_give_the_quantiles_of_all_times() {
        let mut one = of(&[20, 30, 5_000]);
        one.add(&of(&[70, 800]));
        assert_eq!(one, of(&[20, 30, 70, 800, 5_000]));
    }
}
