//! What an upstream has said: that for a while no more than so many requests may depart, or none at all.
//!
//! A hold stands beside the quotas of a key and is asked as they are. It ends by itself. A *pause* is a
//! hold that lets nothing through; what is left of an *allowance* sinks with every departure.

use super::ledger::Receipt;
use super::{Count, Taken};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(super) kind: Kind,
    /// Before then, no more may depart than is left.
    pub(crate) until: u64,
    /// When that was said.
    pub(crate) since: u64,
    pub(super) left: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// The state is not what it was: see [`Lived`](super::ledger::Lived). Nobody can take that back.
    Rest,
    Pause,
    Allowance,
}

impl Count for Hold {
    fn earliest(&self, x: u64, _late: u64, cost: u32) -> u64 {
        if x < self.until && self.left < cost {
            self.until
        } else {
            x
        }
    }

    fn take(&mut self, taken: Taken) -> Receipt {
        if taken.at < self.until {
            self.left = self.left.saturating_sub(taken.cost);
        }
        Receipt::default()
    }

    fn is_last(&self, _: Taken, _: &[u64]) -> bool {
        true
    }

    /// What has been given back may have been handed out before the upstream spoke: so it stays gone.
    fn give_back(&mut self, _: Taken, _: &[u64], _now: u64) {}

    fn remaining(&self, now: u64, _late: u64) -> u32 {
        if now < self.until {
            self.left
        } else {
            u32::MAX
        }
    }

    /// What was said still holds.
    fn clear(&mut self) {}

    fn expires(&self) -> u64 {
        self.until
    }
}
