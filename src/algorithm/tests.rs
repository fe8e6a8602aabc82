//! The promises of [`State`], for random histories of several processes.

use proptest::prelude::ProptestConfig;

use super::{Counter, Settlement, State, Tally};
use crate::Quota;

mod changes;
mod codec;
mod histories;
mod judge;
mod settlements;

const START: u64 = 1_760_000_000_000_000;
const MILLI: u64 = 1_000;
const SECOND: u64 = 1_000_000;

/// Asserts that a state is the same after it was written and read, and that its logs are in order.
#[track_caller]
fn assert_round_trip(state: &State) {
    let mut decoded = State::decode(&state.encode()).expect("an encoded state can be decoded");
    decoded.continue_as(&state.counters, START);
    // The grain is of the policy.
    for (decoded, counter) in decoded.former.iter_mut().zip(&state.former) {
        decoded.continue_as(counter, START);
    }
    assert_eq!(&decoded, state);
    for counter in &state.counters {
        if let Tally::Window(it) = &counter.tally {
            assert!(it.log.iter().is_sorted_by_key(|entry| entry.recorded));
            let units: u64 = it.log.iter().map(|entry| u64::from(entry.units)).sum();
            assert_eq!(it.used, units);
        }
    }
}

fn counter(quota: &str) -> Counter {
    Counter::new(&quota.parse::<Quota>().unwrap())
}

/// A correction of the cost of a departure, by the time that was recorded for it.
fn settlement(recorded: u64, difference: i64) -> Settlement {
    Settlement {
        recorded,
        unit: 0,
        difference,
    }
}

/// A configuration with this number of cases. `PROPTEST_CASES`, by default 256, scales it.
fn config(cases: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: cases * default.cases / 256,
        failure_persistence: None,
        ..default
    }
}
