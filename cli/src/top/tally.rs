//! How many there are, however often each is told: [`Tally`].

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash};

/// So many are counted exactly, at 8 bytes each and some more.
const MOST: usize = 65_536;

/// Counts what differs: exactly as long as it is not too much, and then by a sample, which is off by about 0.5%.
///
/// Where there are more, only those count whose hash ends in a zero, then in two, and so on; each stands for as many
/// as the others of its kind are. That is [adaptive sampling](https://doi.org/10.1007/BF02241657), by Wegman.
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
        while self.sample.len() > MOST {
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
    fn some_are_counted_exactly_and_many_about() {
        let mut tally = Tally::new();
        for number in (0..MOST).chain(0..MOST) {
            tally.add(&number);
        }
        assert!(tally.is_exact());
        assert_eq!(tally.count(), MOST);
        let all = 1_000_000;
        for number in (0..all).chain(0..all) {
            tally.add(&number);
        }
        assert!(!tally.is_exact() && tally.sample.len() <= MOST);
        // Ten times as far off as it is wont to be.
        assert!(tally.count().abs_diff(all) < all / 20, "{}", tally.count());
    }
}
