//! What a store wants to see again should a slot be given back: [`Receipt`].

use std::fmt;
use std::slice;

/// Numbers of a store's own, which mean nothing to others.
#[derive(Clone, Default)]
pub struct Receipt(Numbers);

/// As many as a quota needs stand in their place. How many is no field of its own, since an enum
/// without small fields is moved in whole words.
#[derive(Clone, Default)]
enum Numbers {
    #[default]
    None,
    One(u64),
    Two([u64; 2]),
    Three([u64; 3]),
    Many(Vec<u64>),
}

impl Receipt {
    /// The numbers, as they were collected.
    #[must_use]
    pub fn as_slice(&self) -> &[u64] {
        match &self.0 {
            Numbers::None => &[],
            Numbers::One(number) => slice::from_ref(number),
            Numbers::Two(numbers) => numbers,
            Numbers::Three(numbers) => numbers,
            Numbers::Many(numbers) => numbers,
        }
    }

    #[inline]
    fn push(&mut self, number: u64) {
        self.0 = match std::mem::take(&mut self.0) {
            Numbers::None => Numbers::One(number),
            Numbers::One(a) => Numbers::Two([a, number]),
            Numbers::Two([a, b]) => Numbers::Three([a, b, number]),
            Numbers::Three([a, b, c]) => Numbers::Many(vec![a, b, c, number]),
            Numbers::Many(mut numbers) => {
                numbers.push(number);
                Numbers::Many(numbers)
            }
        }
    }
}

impl From<[u64; 1]> for Receipt {
    #[inline]
    fn from([number]: [u64; 1]) -> Self {
        Self(Numbers::One(number))
    }
}

impl From<[u64; 3]> for Receipt {
    #[inline]
    fn from(numbers: [u64; 3]) -> Self {
        Self(Numbers::Three(numbers))
    }
}

impl PartialEq for Receipt {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Receipt {}

impl Extend<u64> for Receipt {
    #[inline]
    fn extend<I: IntoIterator<Item = u64>>(&mut self, numbers: I) {
        numbers.into_iter().for_each(|number| self.push(number));
    }
}

impl FromIterator<u64> for Receipt {
    fn from_iter<I: IntoIterator<Item = u64>>(numbers: I) -> Self {
        let mut receipt = Self::default();
        receipt.extend(numbers);
        receipt
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Receipt").field(&self.as_slice()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_all_numbers_in_their_order() {
        for count in 0..10 {
            let numbers: Vec<u64> = (1..=count).collect();
            let receipt: Receipt = numbers.iter().copied().collect();
            assert_eq!(receipt.as_slice(), numbers);
            assert_eq!(receipt, receipt.clone());
            assert_ne!(receipt, (0..count + 1).collect());
        }
    }
}
