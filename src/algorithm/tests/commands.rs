//! Windows that begin with a request, and quotas that change.

use proptest::prelude::*;

use super::super::{Counter, Demand, Fixed, Gcra, Mode, State, Take, Window};
use super::histories::quota;
use super::judge;
use super::{MILLI, SECOND, START};

fn counters() -> [Counter; 5] {
    [
        Counter::Window(Window::new(4, SECOND)),
        Counter::Gcra(Gcra::new(4, SECOND / 4, false)),
        Counter::Gcra(Gcra::new(4, SECOND / 4, true)),
        Counter::Fixed(Fixed::new(4, SECOND, true)),
        Counter::Fixed(Fixed::new(4, SECOND, false)),
    ]
}

fn take(process: u64, number: u64, requests: usize) -> Take {
    Take {
        process,
        number,
        guard: 5 * MILLI,
        horizon: 100 * MILLI,
        demand: Demand::new((0..requests).map(|nth| (START + nth as u64, 1))),
        ..Take::one(Mode::Wait, 1)
    }
}

fn granted(state: &mut State, take: &Take, now: u64) -> u32 {
    let taken = state.take(0, take, now);
    taken.grants.iter().map(|it| it.requests).sum()
}

proptest! {
    #![proptest_config(super::config(200))]

    /// As while one process after the other gets a new algorithm, or other quotas.
    #[test]
    fn processes_with_different_quotas_each_keep_to_theirs(
        first in quota(),
        second in quota(),
        steps in prop::collection::vec((any::<bool>(), 1usize..5, 0..40 * MILLI), 1..200),
    ) {
        // An interval that changes moves the time that a bucket holds.
        prop_assume!(!matches!((&first, &second), (Counter::Gcra(_), Counter::Gcra(_))));
        let quotas = [first, second];
        let mut departed = [Vec::new(), Vec::new()];
        let (mut state, mut now) = (State::new(&quotas[..1]), START);
        for (number, (which, requests, span)) in (1..).zip(steps) {
            now += span;
            let which = usize::from(which);
            state.continue_as(&quotas[which..=which]);
            let attempt = Take { horizon: 0, guard: 0, ..take(which as u64, number, requests) };
            let taken = state.take(0, &attempt, now);
            let units = taken.grants.iter().map(|it| u64::from(it.requests)).sum();
            if units > 0 {
                departed[which].push((now - START, units));
            }
            super::assert_round_trip(&state);
        }
        for (quota, times) in quotas.iter().zip(&departed) {
            let fault = judge::fault(quota, times);
            prop_assert!(fault.is_none(), "{:?}", fault);
        }
    }
}

#[test]
fn former_quotas_are_forgotten_once_they_are_over() {
    let quotas = counters();
    let mut state = State::new(&quotas[..1]);
    for turn in 0..40 {
        let which = turn % quotas.len();
        state.continue_as(&quotas[which..=which]);
        granted(&mut state, &take(1, turn as u64 + 1, 4), START);
        assert!(state.former.len() <= 3, "{state:?}");
    }
    state.drop_expired(START + 60 * SECOND);
    assert_eq!(state.former, []);
}
