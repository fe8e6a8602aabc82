//! A state that is one number: a time that every departure pushes on.

use super::Taken;
use super::ledger::Receipt;

/// What spacing, the leaky bucket and GCRA have in common: a time, and how far each request pushes it on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) interval: u64,
    pub(super) time: u64,
}

impl Number {
    pub(super) fn new(interval: u64) -> Self {
        Self { interval, time: 0 }
    }

    #[inline]
    pub(super) fn take(&mut self, taken: Taken) -> Receipt {
        let before = self.time;
        self.time = self.after(before, taken);
        Receipt::from([before])
    }

    /// Whether nothing has been taken since this departure.
    pub(super) fn is_last(&self, taken: Taken, receipt: &[u64]) -> bool {
        matches!(*receipt, [before] if self.after(before, taken) == self.time)
    }

    /// Forgets this departure if it is the last; none can be taken out of the middle.
    pub(super) fn give_back(&mut self, taken: Taken, receipt: &[u64]) {
        if self.is_last(taken, receipt) {
            self.time = receipt[0];
        }
    }

    #[inline]
    fn after(&self, before: u64, taken: Taken) -> u64 {
        before.max(taken.record) + self.interval * u64::from(taken.cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_whether_anything_was_taken_since() {
        let mut number = Number::new(100);
        let taken = |at| Taken {
            at,
            record: at,
            cost: 1,
        };
        let receipt = number.take(taken(10));
        assert!(number.is_last(taken(10), receipt.as_slice()));
        number.take(taken(110));
        assert!(!number.is_last(taken(10), receipt.as_slice()));
    }
}
