//! [`Tally`]: what came of the requests of a process, and what it took.

use std::error::Error as _;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use tower_throttle::Error;
use tower_throttle::store::StoreError;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// Requests.
    Asked,
    /// Requests that departed with a permit.
    Departed,
    /// Permits that had expired.
    Expired,
    /// Permits that were given back.
    Forfeited,
    /// Requests that their callers dropped.
    Dropped,
    /// Requests that were not to wait, and were refused.
    Refused,
    /// Errors that say that the wait would be longer than the caller's bound.
    Limited,
    /// Errors of the store that say that nothing was consumed.
    Out,
    /// Errors of the store that cannot say so.
    Unknown,
    /// Errors of any other kind.
    Other,
    /// Requests that got neither a permit nor an error.
    Lost,
    /// The longest that a request took, in microseconds.
    Longest,
    /// Calls to the store.
    Calls,
    /// Calls whose answers were lost.
    LostCalls,
}

const COUNTS: usize = Count::LostCalls as usize + 1;

impl Count {
    /// The count of a request that got this error.
    pub fn of_error(error: &Error) -> Self {
        let store: Option<&StoreError> = error.source().and_then(|it| it.downcast_ref());
        match store {
            Some(store) if error.is_store() && store.is_outcome_unknown() => Self::Unknown,
            Some(_) if error.is_store() => Self::Out,
            None if error.is_limited() => Self::Limited,
            _ => Self::Other,
        }
    }
}

/// Counts that grow, from whatever thread.
#[derive(Debug, Default)]
pub struct Tally([AtomicU64; COUNTS]);

impl Tally {
    pub fn of(&self, count: Count) -> u64 {
        self.0[count as usize].load(Ordering::SeqCst)
    }

    pub fn one(&self, count: Count) {
        self.add(count, 1);
    }

    /// Adds to a count, or to the longest so far if it is of that kind.
    pub fn add(&self, count: Count, number: u64) {
        let counter = &self.0[count as usize];
        if count == Count::Longest {
            counter.fetch_max(number, Ordering::SeqCst);
        } else {
            counter.fetch_add(number, Ordering::SeqCst);
        }
    }

    /// The sum of both.
    pub fn join(self, other: &Self) -> Self {
        for (place, number) in other.0.iter().enumerate() {
            let number = number.load(Ordering::SeqCst);
            if place == Count::Longest as usize {
                self.add(Count::Longest, number);
            } else {
                self.0[place].fetch_add(number, Ordering::SeqCst);
            }
        }
        self
    }

    /// Requests that got an answer.
    pub fn answered(&self) -> u64 {
        let answers = [
            Count::Departed,
            Count::Limited,
            Count::Out,
            Count::Unknown,
            Count::Other,
        ];
        answers.into_iter().map(|answer| self.of(answer)).sum()
    }

    /// Reads what another process has [shown](fmt::Display).
    pub fn parse(text: &str) -> Self {
        let numbers = text.split(' ').map(|word| word.parse().expect("a number"));
        let counts: Vec<AtomicU64> = numbers.map(AtomicU64::new).collect();
        Self(counts.try_into().expect("all counts"))
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers = self
            .0
            .each_ref()
            .map(|it| it.load(Ordering::SeqCst).to_string());
        f.write_str(&numbers.join(" "))
    }
}
