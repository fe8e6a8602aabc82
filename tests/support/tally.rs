//! [`Tally`]: what came of the requests of a process, and what it took.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::sync::{Mutex, MutexGuard};

use serde::{Deserialize, Serialize};
use tower_throttle::Error;
use tower_throttle::store::StoreError;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Count {
    Asked,
    Departed,
    Expired,
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
    Calls,
    /// Calls whose answers were lost.
    LostCalls,
}

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
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Tally(Mutex<BTreeMap<Count, u64>>);
impl Tally {
    pub fn of(&self, count: Count) -> u64 {
        self.lock().get(&count).copied().unwrap_or(0)
    }

    pub fn one(&self, count: Count) {
        self.add(count, 1);
    }

    /// Adds to a count, or to the longest so far if it is of that kind.
    pub fn add(&self, count: Count, number: u64) {
        let mut counts = self.lock();
        let it = counts.entry(count).or_default();
        *it = match count {
            Count::Longest => number.max(*it),
            _ => number + *it,
        };
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Count, u64>> {
        self.0.lock().expect("no panic")
    }
    pub fn join(self, other: &Self) -> Self {
        for (&count, &number) in &*other.lock() {
            self.add(count, number);
        }
        self
    }

    /// Requests that got an answer.
    pub fn answered(&self) -> u64 {
        use Count::{Departed, Limited, Other, Out, Unknown};
        self.sum(&[Departed, Limited, Out, Unknown, Other])
    }

    fn sum(&self, counts: &[Count]) -> u64 {
        counts.iter().map(|&count| self.of(count)).sum()
    }

    /// Asserts that each request of a process has one outcome, and that only those with a permit depart. So many arrived.
    #[track_caller]
    pub fn assert_accounts(&self, process: usize, arrived: u64) {
        use Count::{Dropped, Expired, Forfeited, Refused};
        let ended = self.answered() + self.sum(&[Expired, Forfeited, Dropped, Refused]);
        let lost = [self.of(Count::Lost), self.of(Count::Other)];
        assert_eq!(lost, [0, 0], "lost, and others, in process {process}");
        let asked = [self.of(Count::Asked), self.of(Count::Departed)];
        let ended = [ended, arrived];
        assert_eq!(ended, asked, "ended and arrived, in process {process}");
    }
}
