//! Quotas that change, and state that is lost.

use super::super::{
    Counter, Demand, Fixed, Gcra, Known, Mode, Origin, State, Strict, Take, Window,
};
use super::simulation::{MILLI, SECOND, START};

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
    for (old, new, within) in [
        (
            Counter::Gcra(Gcra::new(1, HOUR, true)),
            Counter::Gcra(Gcra::new(10, SECOND / 10, true)),
            1,
        ),
        (
            Counter::Gcra(Gcra::new(10, HOUR / 10, false)),
            Counter::Gcra(Gcra::new(10, SECOND / 10, false)),
            1,
        ),
        (fixed(HOUR, true), fixed(60 * SECOND, true), 60),
        (fixed(HOUR, false), fixed(60 * SECOND, false), 60),
        (
            Counter::Window(Window::new(10, HOUR)),
            Counter::Window(Window::new(10, 60 * SECOND)),
            60,
        ),
    ] {
        let (mut state, now) = (State::default(), START + SECOND);
        assert!(departs(&mut state, &old, &attempt(10), now) > 0);
        let later = now + within * SECOND + 6 * MILLI;
        assert!(
            departs(&mut state, &new, &attempt(1), later) == 1,
            "{new:?}"
        );
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

fn strict(known: Option<Known>, requests: usize) -> Take {
    Take {
        strict: Some(Strict {
            known,
            clock_was_set: false,
        }),
        ..attempt(requests)
    }
}

fn known(state: &State) -> Option<Known> {
    let life = state.life.as_ref()?;
    Some(Known {
        generation: life.generation,
        version: life.version,
    })
}

#[test]
fn a_process_that_knows_the_state_finds_a_loss_that_another_one_has_not_seen() {
    let quota = Counter::Window(Window::new(10, 60 * SECOND));
    let mut state = State::default();
    assert_eq!(departs(&mut state, &quota, &strict(None, 10), START), 10);
    let seen = known(&state);
    // The key is lost.
    let mut state = State::default();
    assert_eq!(
        departs(&mut state, &quota, &strict(None, 1), START + SECOND),
        1
    );
    let later = START + 2 * SECOND;
    assert_eq!(departs(&mut state, &quota, &strict(seen, 10), later), 0);
    let quarantine = strict(None, 1).quarantine(std::slice::from_ref(&quota), 0);
    let later = START + SECOND + quarantine;
    assert_eq!(departs(&mut state, &quota, &strict(seen, 10), later), 10);
}

#[test]
fn a_process_with_a_longer_window_prolongs_the_quarantine() {
    let short = Counter::Window(Window::new(10, SECOND));
    let long = Counter::Window(Window::new(10, HOUR));
    let mut state = State::default();
    assert_eq!(departs(&mut state, &long, &strict(None, 10), START), 10);
    let of_long = known(&state);
    departs(&mut state, &short, &strict(of_long, 1), START + SECOND);
    let of_short = known(&state);
    // The key is lost.
    let mut state = State::default();
    let lost = START + 2 * SECOND;
    assert_eq!(departs(&mut state, &short, &strict(of_short, 1), lost), 0);
    let later = START + 60 * SECOND;
    assert_eq!(departs(&mut state, &long, &strict(of_long, 10), later), 0);
}

#[test]
fn a_demand_of_many_costly_requests_can_be_read_again() {
    let quota = Counter::Window(Window::new(u32::MAX, HOUR));
    let requests = (0..700).map(|nth| (START + nth as u64, 2_000_000_000));
    let take = Take {
        number: 1,
        demand: Demand::new(requests),
        ..attempt(0)
    };
    let take = Take {
        mode: Mode::Wait,
        ..take
    };
    let mut state = State::default();
    assert_eq!(departs(&mut state, &quota, &take, START), 2);
}
