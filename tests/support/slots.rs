//! Slots straight from a store.

use tower_throttle::Policy;
use tower_throttle::key::Key;
use tower_throttle::store::{Ask, Outcome, Reserve, Slot, Store};

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
