//! Commands, lost answers, and calls that arrive out of order.

use std::mem::discriminant;

use proptest::prelude::*;

use super::super::{Command, Counter, Demand, Fixed, Gcra, Mode, Settlement, State, Take, Window};
use super::histories::quota;
use super::judge;
use super::simulation::{MILLI, SECOND, START};

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
    state
        .take(0, take, now)
        .grants
        .iter()
        .map(|it| it.requests)
        .sum()
}

#[test]
fn a_lost_answer_costs_nothing_once_the_process_has_called_again() {
    for quota in counters() {
        let mut clean = State::new(std::slice::from_ref(&quota));
        let first = granted(&mut clean, &take(1, 1, 3), START);
        assert!(first > 0);
        let mut state = clean.clone();
        // The answers to calls 1 and 2 are lost.
        granted(
            &mut state,
            &Take {
                lost: 1,
                ..take(1, 2, 3)
            },
            START,
        );
        let again = granted(
            &mut state,
            &Take {
                lost: 1,
                ..take(1, 3, 3)
            },
            START,
        );
        assert_eq!(again, first, "{quota:?}");
        // A time cannot go back behind the recorded one, so that these lose the guard.
        if !matches!(quota, Counter::Gcra(_)) {
            assert_eq!(state.counters, clean.counters);
        }
    }
}

#[test]
fn an_answer_that_arrived_is_not_taken_back() {
    for quota in counters() {
        let mut state = State::new(&[quota]);
        granted(&mut state, &take(1, 1, 3), START);
        granted(&mut state, &take(1, 2, 0), START + 1);
        let before = state.counters.clone();
        // Call 3 was lost, call 2 was not.
        granted(
            &mut state,
            &Take {
                lost: 3,
                ..take(1, 4, 0)
            },
            START + 1,
        );
        assert_eq!(state.counters, before);
    }
}

#[test]
fn an_outdated_call_changes_nothing() {
    for number in [1, 2, 3] {
        let mut state = State::new(&counters()[..1]);
        granted(&mut state, &take(1, 3, 9), START);
        let before = state.clone();
        assert!(state.take(0, &take(1, number, 9), START).is_outdated);
        assert_eq!(state, before);
    }
}

#[test]
fn a_reset_forgets_departures_whose_answer_was_lost() {
    for quota in counters() {
        let mut state = State::new(&[quota]);
        granted(&mut state, &take(1, 1, 3), START);
        state.control(Command::Reset, START);
        granted(&mut state, &take(2, 1, 3), START);
        let before = state.counters.clone();
        granted(
            &mut state,
            &Take {
                lost: 1,
                ..take(1, 2, 0)
            },
            START,
        );
        assert_eq!(state.counters, before);
    }
}

#[test]
fn a_reset_ends_pauses_and_makes_all_units_available() {
    for quota in counters() {
        let mut state = State::new(&[quota]);
        let first = granted(&mut state, &take(1, 1, 9), START);
        state.control(
            Command::Pause {
                span: SECOND,
                evidence: u64::MAX,
            },
            START,
        );
        assert_eq!(granted(&mut state, &take(1, 2, 9), START), 0);
        state.control(Command::Reset, START);
        assert_eq!(granted(&mut state, &take(1, 3, 9), START), first);
    }
}

#[test]
fn an_answer_older_than_the_last_command_is_ignored() {
    let mut state = State::new(&counters()[..1]);
    state.control(Command::Resume, START);
    state.control(
        Command::Pause {
            span: SECOND,
            evidence: START - 1,
        },
        START + 1,
    );
    assert_eq!(state.paused_until(), 0);
    state.control(
        Command::Pause {
            span: SECOND,
            evidence: START,
        },
        START + 1,
    );
    assert_eq!(state.paused_until(), START + 1 + SECOND);
}

#[test]
fn a_pause_holds_though_an_allowance_came_between() {
    let mut state = State::new(&counters()[..1]);
    let evidence = START;
    let (units, span) = (3, SECOND);
    state.control(
        Command::Allow {
            units,
            span,
            evidence,
        },
        START + 1,
    );
    state.control(Command::Pause { span, evidence }, START + 2);
    assert_eq!(state.paused_until(), START + 2 + SECOND);
}

#[test]
fn an_allowance_bounds_departures_of_all_processes() {
    for quota in counters() {
        let mut state = State::new(&[quota]);
        state.control(
            Command::Allow {
                units: 1,
                span: 300 * MILLI,
                evidence: u64::MAX,
            },
            START,
        );
        assert_eq!(granted(&mut state, &take(1, 1, 9), START), 1);
        assert_eq!(granted(&mut state, &take(2, 1, 9), START), 0);
        assert!(granted(&mut state, &take(1, 2, 9), START + 300 * MILLI) > 0);
    }
}

#[test]
fn a_refund_never_returns_more_than_was_recorded() {
    for quota in counters() {
        let mut state = State::new(std::slice::from_ref(&quota));
        let taken = state.take(0, &take(1, 1, 1), START);
        let recorded = taken.grants[0].recorded;
        let refund = Settlement {
            recorded,
            difference: -1,
        };
        state.settle(&refund);
        let once = state.counters.clone();
        state.settle(&refund);
        if !matches!(quota, Counter::Gcra(_)) {
            assert_eq!(state.counters, once);
        }
    }
}

#[test]
fn a_try_leaves_no_demand() {
    let mut state = State::new(&counters()[..1]);
    let attempt = Take {
        mode: Mode::Try,
        number: 0,
        ..take(1, 0, 9)
    };
    assert_eq!(granted(&mut state, &attempt, START), 4);
    assert!(state.announced.is_empty());
    let refused = state.take(0, &attempt, START);
    assert_eq!((refused.grants.len(), refused.next_call), (0, 0));
    assert_eq!(refused.expected[0], START + 5 * MILLI + SECOND);
}

#[test]
fn one_call_grants_by_arrival_across_processes() {
    let mut state = State::new(&counters()[..1]);
    granted(&mut state, &take(9, 1, 4), START);
    // A later process waits first.
    let later = Take {
        demand: Demand::new([(START + 9, 1); 4].into_iter()),
        ..take(1, 1, 0)
    };
    let next_call = state.take(0, &later, START + 10).next_call;
    let older = Take {
        demand: Demand::new([(START + 5, 1); 3].into_iter()),
        ..take(2, 1, 0)
    };
    state.take(0, &older, START + 20);
    let open = next_call;
    assert_eq!(granted(&mut state, &Take { number: 2, ..later }, open), 1);
    assert_eq!(granted(&mut state, &Take { number: 2, ..older }, open), 3);
}

/// A window of 2 a second that began with a request at the start, recorded 5 ms later.
fn begun_window() -> State {
    let mut state = State::new(&[Counter::Fixed(Fixed::new(2, SECOND, false))]);
    assert_eq!(granted(&mut state, &take(1, 1, 1), START), 1);
    state
}

#[test]
fn nothing_departs_too_late_for_a_window_that_began_early() {
    let mut state = begun_window();
    // At 998 ms, the guard reaches beyond a window after the start.
    let taken = state.take(0, &take(1, 2, 1), START + 998 * MILLI);
    assert_eq!(taken.grants[0].at, START + SECOND + 5 * MILLI);
}

#[test]
fn a_window_begins_later_if_its_first_request_is_given_back() {
    let mut state = begun_window();
    granted(&mut state, &take(1, 2, 1), START + 500 * MILLI);
    let recorded = START + 5 * MILLI;
    let refund = Settlement {
        recorded,
        difference: -1,
    };
    state.settle(&refund);
    let taken = state.take(0, &take(1, 3, 2), START + SECOND + 450 * MILLI);
    let at: Vec<_> = taken.grants.iter().map(|it| it.at).collect();
    assert_eq!(at, [START + SECOND + 505 * MILLI]);
}

#[test]
fn quotas_keep_their_departures_when_others_are_added_or_removed() {
    let second = Counter::Window(Window::new(10, SECOND));
    let minute = Counter::Window(Window::new(100, 60 * SECOND));
    let hour = Counter::Window(Window::new(5_000, 3_600 * SECOND));
    let mut state = State::new(&[second.clone(), minute.clone()]);
    for nth in 0..5 {
        granted(&mut state, &take(1, nth + 1, 10), START + nth * 2 * SECOND);
    }
    let now = START + 10 * SECOND;
    state.continue_as(std::slice::from_ref(&minute));
    assert_eq!(granted(&mut state.clone(), &take(1, 9, 99), now), 50);
    state.continue_as(&[second, minute.clone(), hour]);
    assert_eq!(granted(&mut state.clone(), &take(1, 9, 99), now), 10);
    state.continue_as(&[minute]);
    assert_eq!(granted(&mut state, &take(1, 9, 99), now), 50);
}

proptest! {
    #![proptest_config(super::config(200))]

    /// As while one process after the other gets a new algorithm, or other quotas.
    #[test]
    fn processes_with_different_algorithms_each_keep_to_their_quota(
        first in quota(),
        second in quota(),
        steps in prop::collection::vec((any::<bool>(), 1usize..5, 0..40 * MILLI), 1..200),
    ) {
        prop_assume!(discriminant(&first) != discriminant(&second));
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
