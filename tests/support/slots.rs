//! Slots straight from a store, and what they were by another clock.

use tower_throttle::Policy;
use tower_throttle::key::Key;
use tower_throttle::store::{Ask, Outcome, Reserve, Reserved, Slot, Store};

/// The slots of so many requests, however far ahead.
pub(crate) async fn slots(store: &impl Store, key: &Key, policy: &Policy, count: u32) -> Vec<Slot> {
    let asks = [Ask {
        count,
        cost: 1,
        max_wait: u64::MAX,
    }];
    let mut reserve = Reserve::new(key, policy);
    reserve.asks = &asks;
    let answer = store.reserve(&reserve).await.expect("an answer");
    let slot = |outcome: &Outcome| match outcome {
        Outcome::Granted(slot) => slot.clone(),
        Outcome::Refused { wait } => panic!("refused for a wait of {wait} us"),
    };
    answer.outcomes().iter().map(slot).collect()
}

/// The same slot by a clock that is so many microseconds ahead.
pub(crate) fn slot_ahead(slot: &Slot, by: i64) -> Slot {
    Slot {
        at: slot.at.saturating_add_signed(by),
        record: slot.record.saturating_add_signed(by),
        ..slot.clone()
    }
}

/// The same answer by such a clock.
pub(crate) fn answer_ahead(answer: &Reserved, by: i64) -> Reserved {
    let outcomes = answer.outcomes().iter().map(|outcome| match outcome {
        Outcome::Granted(slot) => Outcome::Granted(slot_ahead(slot, by)),
        refused => refused.clone(),
    });
    let now = answer.now().saturating_add_signed(by);
    Reserved::new(now, outcomes, answer.remaining(), answer.reset())
}
