//! Random numbers that a seed reproduces.

/// SplitMix64: small, and good enough to choose the next step.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A generator whose choices depend on the seed alone.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d))
    }

    /// Draws any number.
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Draws a number below `bound`; 0 if that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        if bound == 0 {
            0
        } else {
            (self.any() % bound as u64) as usize
        }
    }

    /// Draws an amount from 0 to `most`; 0 if that is negative.
    pub fn up_to(&mut self, most: i64) -> i64 {
        (self.any() % (most.max(0).unsigned_abs() + 1)) as i64
    }

    /// Returns true with this probability in per cent.
    pub fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Chooses an element.
    pub fn choose<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.below(from.len()))
    }
}
