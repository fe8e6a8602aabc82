//! Values: what is written is read again, and damaged values are refused or harmless.

use proptest::prelude::*;

use super::super::{Demand, Mode, State, Take, Tally};
use super::histories::{World, quotas, steps};
use super::{SECOND, START};
use super::{assert_round_trip, counter};

fn take(process: u64, number: u64, requests: usize, now: u64) -> Take {
    Take {
        process,
        number,
        guard: 5_000,
        horizon: 100_000,
        demand: Demand::new((0..requests).map(|_| (now, 1))),
        ..Take::one(Mode::Wait, 1)
    }
}

#[test]
fn a_log_of_any_length_is_written_and_read() {
    for (limit, step) in [(40, 1), (60, 1), (600, 1), (5_000, 1), (100_000, 900)] {
        let quota = counter(&format!("{limit}/s"));
        let mut state = State::new(&[quota]);
        for call in 0..1_500 {
            let now = START + call * step;
            state.take(0, &take(call % 3, call + 1, 1, now), now);
            if call % 100 == 0 {
                assert_round_trip(&state);
            }
        }
        assert_round_trip(&state);
        let Tally::Window(window) = &state.counters[0].tally else {
            panic!("the quota has a log");
        };
        assert!(window.log.len() <= 1_000 && state.encode().len() <= 12_400);
    }
}

#[test]
fn a_limit_above_1_000_holds_and_gives_up_little() {
    let (limit, window) = (20_000_u64, SECOND);
    let mut state = State::new(&[counter(&format!("{limit}/s"))]);
    let mut times = Vec::new();
    let mut now = START;
    for number in 1..=700 {
        let taken = state.take(0, &take(1, number, 500, now), now);
        for grant in &taken.grants {
            // As late as possible, then as early as possible.
            let is_late = number < 60;
            let at = if is_late { grant.recorded } else { grant.at };
            times.push((at - START, grant.requests.into()));
        }
        now += 7_123;
    }
    times.sort_unstable();
    assert!(super::judge::most_in_any(&times, window) <= limit);
    let units: u64 = times.iter().map(|it| it.1).sum();
    // Rounding delays each window by less than a hundredth.
    let windows = 1 + (now - START) / (window + 5_000 + window / 100);
    assert!(units >= windows * limit, "{units} in {windows}");
}

proptest! {
    #![proptest_config(super::config(300))]

    #[test]
    fn a_damaged_value_is_refused_or_harmless(
        quotas in quotas(),
        steps in steps(),
        damages in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let world = World::after(&quotas, &steps);
        let mut value = world.state.encode();
        for (index, byte) in &damages {
            // Most damage behind the magic and the version.
            let index = index.index(value.len());
            let index = if index < 3 { value.len() - 1 } else { index };
            value[index] = *byte;
        }
        if let Some(cut) = cut {
            value.truncate(cut.index(value.len()));
        }
        if let Ok(mut state) = State::decode(&value) {
            state.encode();
            state.expires();
            state.continue_as(&quotas, world.now);
            state.encode();
            for step in 0..4 {
                let now = world.now + step * 50_000;
                state.take(0, &take(step % 2 + 3, 1_000 + step, 3, now), now);
                state.encode();
            }
        }
    }
}
