//! Quotas that change, and state that is lost.

use super::super::{
    Counter, Demand, Fixed, Gcra, Known, Mode, Origin, State, Strict, Take, Window,
};
use super::{MILLI, SECOND, START};

const HOUR: u64 = 3_600 * SECOND;

/// Asks for the departures of so many requests at once.
fn attempt(requests: usize) -> Take {
    Take {
        process: 1,
        guard: 5 * MILLI,
        demand: Demand::new((0..requests).map(|nth| (START + nth as u64, 1))),
        ..Take::one(Mode::Try, 1)
    }
}

/// How many of these requests depart under a quota.
fn departs(state: &mut State, quota: &Counter, take: &Take, now: u64) -> u32 {
    let quotas = std::slice::from_ref(quota);
    let origin = Origin {
        server: 7,
        since: START - 1_000 * HOUR,
    };
    state.continue_as(quotas);
    state.verify(0, take, origin, now);
    let taken = state.take(0, take, now);
    *state = State::decode(&state.encode()).expect("an encoded state");
    taken.grants.iter().map(|it| it.requests).sum()
}

#[test]
fn a_raised_quota_does_not_wait_for_the_old_interval() {
    let fixed = |window, aligned| Counter::Fixed(Fixed::new(10, window, aligned));
    let window = |seconds| Counter::Window(Window::new(10, seconds * SECOND));
    let gcra = |seconds| Counter::Gcra(Gcra::new(10, seconds * SECOND / 10, false));
    let spaced = |seconds| Counter::Gcra(Gcra::new(10, seconds * SECOND / 10, true));
    for (old, new, within) in [
        (spaced(3_600), spaced(1), 1),
        (gcra(3_600), gcra(1), 1),
        (fixed(HOUR, true), fixed(60 * SECOND, true), 60),
        (fixed(HOUR, false), fixed(60 * SECOND, false), 60),
        (window(3_600), window(60), 60),
    ] {
        let (mut state, now) = (State::default(), START + SECOND);
        assert!(departs(&mut state, &old, &attempt(10), now) > 0);
        let later = now + within * SECOND + 6 * MILLI;
        let departed = departs(&mut state, &new, &attempt(1), later);
        assert_eq!(departed, 1, "{new:?}");
    }
}

#[test]
fn processes_with_different_windows_each_keep_to_their_quota() {
    let windows = |window| Counter::Window(Window::new(5, window));
    let fixed = |window| Counter::Fixed(Fixed::new(5, window, true));
    for [short, long] in [
        [windows(SECOND), windows(HOUR)],
        [fixed(SECOND), fixed(HOUR)],
    ] {
        let (mut state, mut of_short, mut of_long) = (State::default(), 0, 0);
        for round in 0..20 {
            let now = START + round * 2 * SECOND;
            of_long += departs(&mut state, &long, &attempt(5), now);
            of_short += departs(&mut state, &short, &attempt(1), now + SECOND + SECOND / 2);
        }
        assert_eq!(of_long, 5, "{long:?}");
        assert!(of_short >= 15, "{of_short} under {short:?}");
    }
}

#[test]
fn a_lost_answer_is_not_taken_back_from_another_counter() {
    let old = Counter::Window(Window::new(10, SECOND));
    let new = Counter::Fixed(Fixed::new(10, HOUR, true));
    let call = |process, number, lost| Take {
        process,
        number,
        lost,
        ..attempt(10)
    };
    let (mut state, now) = (State::default(), START + SECOND);
    assert_eq!(departs(&mut state, &old, &call(1, 1, 0), now), 10);
    assert_eq!(departs(&mut state, &new, &call(2, 1, 0), now), 10);
    assert_eq!(departs(&mut state, &new, &call(1, 2, 1), now), 0);
}

/// Calls under strict recovery, with the state that the process knows and learns; returns how many requests depart.
fn departs_strictly(
    state: &mut State,
    quota: &Counter,
    known: &mut Option<Known>,
    requests: usize,
    now: u64,
) -> u32 {
    let strict = Some(Strict {
        known: *known,
        clock_was_set: false,
    });
    let take = Take {
        strict,
        ..attempt(requests)
    };
    let departed = departs(state, quota, &take, now);
    *known = state.life.as_ref().map(|life| Known {
        generation: life.generation,
        version: life.version,
    });
    departed
}

#[test]
fn a_process_that_knows_the_state_finds_a_loss_that_another_one_has_not_seen() {
    let quota = Counter::Window(Window::new(10, 60 * SECOND));
    let (mut one, mut other, mut state) = (None, None, State::default());
    let departs = |state: &mut State, known: &mut _, requests, now| {
        departs_strictly(state, &quota, known, requests, now)
    };
    assert_eq!(departs(&mut state, &mut one, 10, START), 10);
    // The key is lost.
    state = State::default();
    let lost = START + SECOND;
    assert_eq!(departs(&mut state, &mut other, 1, lost), 1);
    assert_eq!(departs(&mut state, &mut one.clone(), 10, lost + SECOND), 0);
    let quarantine = attempt(1).quarantine(std::slice::from_ref(&quota), 0);
    assert_eq!(departs(&mut state, &mut one, 10, lost + quarantine), 10);
}

#[test]
fn a_process_with_a_longer_window_prolongs_the_quarantine() {
    let [short, long] = [SECOND, HOUR].map(|window| Counter::Window(Window::new(10, window)));
    let (mut of_long, mut state) = (None, State::default());
    let departed = departs_strictly(&mut state, &long, &mut of_long, 10, START);
    assert_eq!(departed, 10);
    let mut of_short = of_long;
    departs_strictly(&mut state, &short, &mut of_short, 1, START + SECOND);
    // The key is lost.
    state = State::default();
    let lost = START + 2 * SECOND;
    let departed = departs_strictly(&mut state, &short, &mut of_short, 1, lost);
    assert_eq!(departed, 0);
    let later = START + 60 * SECOND;
    let departed = departs_strictly(&mut state, &long, &mut of_long, 10, later);
    assert_eq!(departed, 0);
}

#[test]
fn a_demand_of_many_costly_requests_can_be_read_again() {
    let quota = Counter::Window(Window::new(u32::MAX, HOUR));
    let requests = (0..700).map(|nth| (START + nth as u64, 2_000_000_000));
    let take = Take {
        number: 1,
        mode: Mode::Wait,
        demand: Demand::new(requests),
        ..attempt(0)
    };
    let mut state = State::default();
    assert_eq!(departs(&mut state, &quota, &take, START), 2);
}
