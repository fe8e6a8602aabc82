//! Counts distinct values: [`Tally`].

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash};

/// Maximum sample size; each hash takes 8 bytes.
const MAX_SAMPLE: usize = 65_536;

/// Counts distinct values: exactly up to [`MAX_SAMPLE`], and then by a sample, with an error of about 0.5%.
///
/// The sample keeps only hashes with `zeros` trailing zeros, so each represents `2^zeros` values. This is [adaptive
/// sampling](https://doi.org/10.1007/BF02241657), by Wegman.
pub(super) struct Tally {
    hasher: RandomState,
    sample: HashSet<u64>,
    zeros: u32,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            sample: HashSet::new(),
            zeros: 0,
        }
    }

    pub(super) fn add(&mut self, it: &impl Hash) {
        let hash = self.hasher.hash_one(it);
        if hash.trailing_zeros() < self.zeros {
            return;
        }
        self.sample.insert(hash);
        while self.sample.len() > MAX_SAMPLE {
            self.zeros += 1;
            let zeros = self.zeros;
            self.sample.retain(|hash| hash.trailing_zeros() >= zeros);
        }
    }

    pub(super) fn count(&self) -> usize {
        self.sample.len() << self.zeros
    }

    pub(super) fn is_exact(&self) -> bool {
        self.zeros == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_counts_are_exact_and_large_counts_are_estimates() {
        let mut tally = Tally::new();
        for number in (0..MAX_SAMPLE).chain(0..MAX_SAMPLE) {
            tally.add(&number);
        }
        assert!(tally.is_exact());
        assert_eq!(tally.count(), MAX_SAMPLE);
        let all = 1_000_000;
        for number in (0..all).chain(0..all) {
            tally.add(&number);
        }
        assert!(!tally.is_exact() && tally.sample.len() <= MAX_SAMPLE);
        // Ten times the usual error.
        assert!(tally.count().abs_diff(all) < all / 20, "{}", tally.count());
    }
}
