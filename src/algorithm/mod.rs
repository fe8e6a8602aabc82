//! How departures are counted, each way once in Rust and once in Lua.
//!
//! An algorithm is two functions over its state: `earliest`, the first time from which one more
//! request may depart, and `take`, which records a departure. A third, `give_back`, forgets a
//! departure that did not come about. The rest is bookkeeping. [`ledger`] joins the quotas of one
//! key, in Rust and in Lua alike.
//!
//! All times are whole microseconds on the store's clock, in a `u64` here and in a double there,
//! which holds them exactly for as long as this calendar matters. A departure is recorded not at
//! its slot but at the latest moment at which it can reach the upstream: see [`ledger`].

mod fixed_window;
mod gcra;
mod hold;
mod leaky_bucket;
pub(crate) mod ledger;
mod number;
mod receipt;
#[cfg(test)]
mod reference;
mod rule;
#[cfg(test)]
pub(crate) mod simulation;
mod sliding_buckets;
mod sliding_log;
mod spacing;
#[cfg(feature = "redis")]
mod spent;
#[cfg(feature = "redis")]
pub(crate) mod state;

pub(crate) use self::rule::Rule;
use self::{
    fixed_window::FixedWindow, gcra::Gcra, hold::Hold, leaky_bucket::LeakyBucket, ledger::Receipt,
    sliding_buckets::SlidingBuckets, sliding_log::SlidingLog, spacing::Spacing,
};

/// A departure that was reserved.
#[derive(Debug, Clone, Copy)]
struct Taken {
    /// The time from which the request may depart.
    at: u64,
    /// The latest moment at which it can reach the upstream.
    record: u64,
    cost: u32,
}

/// The state of one quota of one key.
trait Count {
    /// Forgets what has no influence any more from `now` on.
    fn trim(&mut self, _now: u64) {}

    /// The first time, not before `x`, at which requests worth `cost` may depart at once, if they
    /// are recorded `late` after that; for a quota that minds whether they are.
    fn earliest(&self, x: u64, late: u64, cost: u32) -> u64;

    /// The least that the next departure may be recorded at.
    fn last_record(&self) -> u64 {
        0
    }

    /// Records a departure; yields what [`give_back`](Self::give_back) needs to know.
    fn take(&mut self, taken: Taken) -> Receipt;

    /// How many numbers `take` yields.
    fn receipts(&self) -> usize {
        0
    }

    /// Whether nothing has been taken since this departure, or nothing that is in its way.
    fn is_last(&self, taken: Taken, receipt: &[u64]) -> bool;

    /// Forgets this departure, as far as the state allows it.
    fn give_back(&mut self, taken: Taken, receipt: &[u64], now: u64);

    /// How many requests of cost 1 may depart at `now`, if they are recorded `late` after that.
    fn remaining(&self, now: u64, late: u64) -> u32;

    /// The time from which the state has no influence any more.
    fn expires(&self) -> u64;

    /// Forgets everything.
    fn clear(&mut self);

    /// The longest wait that the quota allows a request recorded `margin` after its slot.
    fn longest_wait(&self, _margin: u64) -> u64 {
        u64::MAX
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Counter {
    SlidingLog(SlidingLog),
    SlidingBuckets(SlidingBuckets),
    Spacing(Spacing),
    LeakyBucket(LeakyBucket),
    Gcra(Gcra),
    FixedWindow(FixedWindow),
    Hold(Hold),
}

/// Calls a method of whichever algorithm counts: by a match, not by a virtual call, as every request
/// passes here several times.
macro_rules! each {
    ($counter:expr, $count:ident => $call:expr) => {
        match $counter {
            Counter::SlidingLog($count) => $call,
            Counter::SlidingBuckets($count) => $call,
            Counter::Spacing($count) => $call,
            Counter::LeakyBucket($count) => $call,
            Counter::Gcra($count) => $call,
            Counter::FixedWindow($count) => $call,
            Counter::Hold($count) => $call,
        }
    };
}
use each;

impl Count for Counter {
    fn trim(&mut self, now: u64) {
        each!(self, count => count.trim(now));
    }

    fn earliest(&self, x: u64, late: u64, cost: u32) -> u64 {
        each!(self, count => count.earliest(x, late, cost))
    }

    fn last_record(&self) -> u64 {
        each!(self, count => count.last_record())
    }

    fn take(&mut self, taken: Taken) -> Receipt {
        each!(self, count => count.take(taken))
    }

    fn receipts(&self) -> usize {
        each!(self, count => count.receipts())
    }

    fn is_last(&self, taken: Taken, receipt: &[u64]) -> bool {
        each!(self, count => count.is_last(taken, receipt))
    }

    fn give_back(&mut self, taken: Taken, receipt: &[u64], now: u64) {
        each!(self, count => count.give_back(taken, receipt, now));
    }

    fn remaining(&self, now: u64, late: u64) -> u32 {
        each!(self, count => count.remaining(now, late))
    }

    fn expires(&self) -> u64 {
        each!(self, count => count.expires())
    }

    fn clear(&mut self) {
        each!(self, count => count.clear());
    }

    fn longest_wait(&self, margin: u64) -> u64 {
        each!(self, count => count.longest_wait(margin))
    }
}

pub(crate) const fn micros(duration: std::time::Duration) -> u64 {
    let micros = duration.as_micros();
    if micros > u64::MAX as u128 {
        u64::MAX
    } else {
        micros as u64
    }
}
