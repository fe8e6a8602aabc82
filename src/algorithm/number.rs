//! A state that is one number: a time that every departure pushes on.

/// What spacing and GCRA have in common: a time, and how far each request pushes it on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) interval: u64,
    pub(super) time: u64,
}

impl Number {
    pub(super) fn new(interval: u64) -> Self {
        Self { interval, time: 0 }
    }

    /// Records a departure and returns what the time was before.
    pub(super) fn take(&mut self, record: u64, cost: u32) -> u64 {
        let before = self.time;
        self.time = self.after(before, record, cost);
        before
    }

    /// Whether nothing has been taken since this departure.
    pub(super) fn is_last(&self, record: u64, cost: u32, before: Option<u64>) -> bool {
        before.is_some_and(|before| self.after(before, record, cost) == self.time)
    }

    /// Forgets this departure if it is the last; none can be taken out of the middle.
    pub(super) fn give_back(&mut self, record: u64, cost: u32, before: Option<u64>) {
        if let Some(before) = before.filter(|_| self.is_last(record, cost, before)) {
            self.time = before;
        }
    }

    fn after(&self, before: u64, record: u64, cost: u32) -> u64 {
        before.max(record) + self.interval * u64::from(cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_whether_anything_was_taken_since() {
        let mut number = Number::new(100);
        let first = Some(number.take(10, 1));
        assert!(number.is_last(10, 1, first));
        number.take(110, 1);
        assert!(!number.is_last(10, 1, first));
    }
}
