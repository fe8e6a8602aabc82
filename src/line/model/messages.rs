//! What processes and the store tell each other.

use std::time::Duration;

use smallvec::SmallVec;

use crate::store::{Ask, Notice, Outcome, Slot, Word};

/// To the store.
#[derive(Debug, Clone)]
pub(super) enum Call {
    Reserve {
        asks: SmallVec<[Ask; 2]>,
        not_before: u64,
        guard: Duration,
        least_guard: Duration,
        round_trip: Duration,
        /// What was on its way back by then.
        given_back: Vec<Slot>,
    },
    Release(u64, Vec<Slot>),
    Look(u64),
    Heed(Word),
}

/// From the store.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    Reserved(u64, Vec<Outcome>),
    Released(u64),
    Looked(u64, Notice),
    Heeded(Notice),
    /// None, as the call was lost, or its answer was.
    Lost(Kind),
}

/// Which call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Reserve,
    Release(u64),
    Look(u64),
    Heed,
}
