//! A quick hash of addresses whose seed no client knows.
//!
//! Runs in: gates, site workers, filters; pure, but for the seed, which the standard library draws. Sees: addresses,
//! which clients choose. Never: is told to anybody, which would help to find addresses that collide.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Makes hashers of one seed.
#[derive(Clone, Debug)]
pub struct SeededState(u64);

impl Default for SeededState {
    fn default() -> Self {
        Self(RandomState::new().build_hasher().finish())
    }
}

impl BuildHasher for SeededState {
    type Hasher = Folding;
    fn build_hasher(&self) -> Folding {
        Folding(self.0)
    }
}

/// Multiplies, and folds the two halves of the product: every bit of either factor bears on every bit of the result.
pub struct Folding(u64);

impl Hasher for Folding {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }
    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }
    fn write_u64(&mut self, number: u64) {
        // An odd number without a pattern: the fraction of the golden ratio.
        let product = u128::from(self.0 ^ number) * 0x9e37_79b9_7f4a_7c15;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// The table looks at the lowest and at the highest bits.
    #[test]
    fn neighbours_are_far_apart() {
        let seed = SeededState::default();
        for shift in [0, 8, 16, 32, 40, 56] {
            let hashes: Vec<u64> = (0..256_u64).map(|number| seed.hash_one(number << shift)).collect();
            let low: HashSet<u64> = hashes.iter().map(|hash| hash & 0xff).collect();
            let high: HashSet<u64> = hashes.iter().map(|hash| hash >> 57).collect();
            assert!(low.len() > 100 && high.len() > 70, "{shift}: {} {}", low.len(), high.len());
        }
        assert_ne!(SeededState::default().hash_one(1_u64), SeededState::default().hash_one(1_u64));
    }
}
