//! Commands, lost answers, and calls that arrive out of order.

use std::mem::discriminant;

use proptest::prelude::*;

use super::super::{Command, Counter, Demand, Fixed, Gcra, Mode, Settlement, State, Take, Window};
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

/// Returns a call of process 1 after the answer to its call `lost` was lost.
fn take_after(lost: u64, number: u64, requests: usize) -> Take {
    Take {
        lost,
        ..take(1, number, requests)
    }
}

fn granted(state: &mut State, take: &Take, now: u64) -> u32 {
    let taken = state.take(0, take, now);
    taken.grants.iter().map(|it| it.requests).sum()
}

fn pause(span: u64, evidence: u64) -> Command {
    Command::Pause { span, evidence }
}

fn refund(recorded: u64) -> Settlement {
    Settlement {
        unit: 0,
        recorded,
        difference: -1,
    }
}

#[test]
fn a_lost_answer_costs_nothing_once_the_process_has_called_again() {
    for quota in counters() {
        let mut clean = State::new(std::slice::from_ref(&quota));
        let first = granted(&mut clean, &take(1, 1, 3), START);
        assert!(first > 0);
        let mut state = clean.clone();
        // The answers to calls 1 and 2 are lost.
        granted(&mut state, &take_after(1, 2, 3), START);
        let again = granted(&mut state, &take_after(1, 3, 3), START);
        assert_eq!(again, first, "{quota:?}");
        // A time cannot go back behind the recorded one, so that these lose the guard.
        if !matches!(quota, Counter::Gcra(_)) {
            assert_eq!(state.counters, clean.counters);
        }
    }
}

#[test]
fn departures_that_arrived_or_were_reset_are_not_taken_back() {
    for quota in counters() {
        for is_reset in [false, true] {
            let mut state = State::new(std::slice::from_ref(&quota));
            granted(&mut state, &take(1, 1, 3), START);
            let mut lost = 1;
            if is_reset {
                state.control(Command::Reset, START);
                granted(&mut state, &take(2, 1, 3), START);
            } else {
                // Call 3 is lost, call 2 is not.
                granted(&mut state, &take(1, 2, 0), START);
                lost = 3;
            }
            let before = state.counters.clone();
            granted(&mut state, &take_after(lost, 4, 0), START);
            assert_eq!(state.counters, before);
        }
    }
}

#[test]
fn a_reset_ends_pauses_and_makes_all_units_available() {
    for quota in counters() {
        let mut state = State::new(&[quota]);
        let first = granted(&mut state, &take(1, 1, 9), START);
        state.control(pause(SECOND, u64::MAX), START);
        assert_eq!(granted(&mut state, &take(1, 2, 9), START), 0);
        state.control(Command::Reset, START);
        assert_eq!(granted(&mut state, &take(1, 3, 9), START), first);
    }
}

#[test]
fn an_answer_older_than_the_last_command_is_ignored() {
    let mut state = State::new(&counters()[..1]);
    state.control(Command::Resume, START);
    state.control(pause(SECOND, START - 1), START + 1);
    assert_eq!(state.paused_until(), 0);
    let allow = Command::Allow {
        unit: 0,
        units: 3,
        span: SECOND,
        evidence: START,
    };
    // An allowance is no such command.
    state.control(allow, START + 1);
    state.control(pause(SECOND, START), START + 2);
    assert_eq!(state.paused_until(), START + 2 + SECOND);
}

#[test]
fn a_refund_never_returns_more_than_was_recorded() {
    for quota in counters() {
        let mut state = State::new(std::slice::from_ref(&quota));
        let taken = state.take(0, &take(1, 1, 1), START);
        let refund = refund(taken.grants[0].recorded);
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
fn a_window_that_begins_with_a_request_may_begin_anywhere_in_its_guard() {
    let mut state = State::new(&[Counter::Fixed(Fixed::new(2, SECOND, false))]);
    assert_eq!(granted(&mut state, &take(1, 1, 1), START), 1);
    // At 998 ms, the guard reaches beyond a window after the start.
    let mut late = state.clone();
    let taken = late.take(0, &take(1, 2, 1), START + 998 * MILLI);
    assert_eq!(taken.grants[0].at, START + SECOND + 5 * MILLI);
    // The window begins later if its first request is given back.
    granted(&mut state, &take(1, 2, 1), START + 500 * MILLI);
    state.settle(&refund(START + 5 * MILLI));
    let taken = state.take(0, &take(1, 3, 2), START + SECOND + 450 * MILLI);
    let at: Vec<_> = taken.grants.iter().map(|it| it.at).collect();
    assert_eq!(at, [START + SECOND + 505 * MILLI]);
}

#[test]
fn quotas_keep_their_departures_when_others_are_added_or_removed() {
    let window = |limit, seconds| Counter::Window(Window::new(limit, seconds * SECOND));
    let (second, minute, hour) = (window(10, 1), window(100, 60), window(5_000, 3_600));
    let mut state = State::new(&[second.clone(), minute.clone()]);
    for nth in 0..5 {
        granted(&mut state, &take(1, nth + 1, 10), START + nth * 2 * SECOND);
    }
    for (quotas, expected) in [
        (vec![minute.clone()], 50),
        (vec![second, minute.clone(), hour], 10),
        (vec![minute], 50),
    ] {
        state.continue_as(&quotas);
        let now = START + 10 * SECOND;
        assert_eq!(granted(&mut state.clone(), &take(1, 9, 99), now), expected);
    }
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
