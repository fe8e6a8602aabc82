//! [`Tally`]: what came of the requests of a process, and what it took.

use std::error::Error as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tower_throttle::Error;
use tower_throttle::store::StoreError;

#[derive(Debug, Clone, Copy)]
pub enum Count {
    Asked,
    Departed,
    Expired,
    Forfeited,
    Dropped,
    /// Requests that were not to wait, and were refused.
    Refused,
    /// Errors that say that the wait would be longer than the caller's bound.
    Limited,
    /// Errors of the store that say that nothing was consumed.
    Out,
    /// Errors of the store that cannot say so.
    Unknown,
    Other,
    /// Requests that got neither a permit nor an error.
    Lost,
    /// The longest that a request took, in microseconds.
    Longest,
    Calls,
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
pub struct Tally([AtomicU64; Count::LostCalls as usize + 1]);

impl Tally {
    pub fn of(&self, count: Count) -> u64 {
        self.0[count as usize].load(Ordering::SeqCst)
    }

    pub fn one(&self, count: Count) {
        self.add(count, 1);
    }

    pub fn add(&self, count: Count, number: u64) {
        self.0[count as usize].fetch_add(number, Ordering::SeqCst);
    }

    pub fn took(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).expect("less than ages");
        self.0[Count::Longest as usize].fetch_max(micros, Ordering::SeqCst);
    }

    pub fn join(self, other: &Self) -> Self {
        let longest = other.of(Count::Longest).max(self.of(Count::Longest));
        for (count, more) in self.0.iter().zip(&other.0) {
            count.fetch_add(more.load(Ordering::SeqCst), Ordering::SeqCst);
        }
        self.0[Count::Longest as usize].store(longest, Ordering::SeqCst);
        self
    }

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
