//! Quotas that change, and state that is lost.

use proptest::prelude::*;

use super::super::{
    Announcement, Costs, Counter, Demand, Known, LANE_BITS, Mode, Origin, State, Strict, Take,
    Units, number_units,
};
use super::histories::quota;
use super::{MILLI, SECOND, START, counter, judge};

const HOUR: u64 = 3_600 * SECOND;

fn attempt(requests: usize) -> Take {
    Take {
        process: 1,
        guard: 5 * MILLI,
        demand: Demand::new((0..requests).map(|nth| (START + nth as u64, 1))),
        ..Take::one(Mode::Try, 1)
    }
}

fn call(process: u64, number: u64, lost: u64, requests: usize) -> Take {
    let mut take = attempt(requests);
    (take.process, take.number) = (process, number);
    take.corrections.lost = lost;
    take
}

fn departs(state: &mut State, quota: &Counter, take: &Take, now: u64) -> u32 {
    let quotas = std::slice::from_ref(quota);
    let origin = Origin {
        server: 7,
        since: START - 1_000 * HOUR,
    };
    state.continue_as(quotas, now);
    state.verify(0, take, origin, now);
    let taken = state.take(0, take, now);
    *state = State::decode(&state.encode()).expect("an encoded state");
    taken.grants.iter().map(|it| it.requests).sum()
}

#[test]
fn a_raised_quota_does_not_wait_for_the_old_interval() {
    for (algorithm, window, within) in [
        ("spacing", "s", 1),
        ("gcra burst=10", "s", 1),
        ("fixed-window", "m", 60),
        ("fixed-window start=first-request", "m", 60),
        ("sliding-log", "m", 60),
    ] {
        let [old, new] = ["h", window].map(|window| counter(&format!("10/{window} {algorithm}")));
        let (mut state, now) = (State::default(), START + SECOND);
        assert!(departs(&mut state, &old, &attempt(10), now) > 0);
        let later = now + within * SECOND + 6 * MILLI;
        let departed = departs(&mut state, &new, &attempt(1), later);
        assert_eq!(departed, 1, "{new:?}");
    }
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
    let mut take = attempt(requests);
    take.strict = strict;
    let departed = departs(state, quota, &take, now);
    *known = state.generation.as_ref().map(|generation| Known {
        generation: generation.began,
        version: generation.version,
    });
    departed
}

#[test]
fn a_process_with_a_longer_window_prolongs_the_quarantine() {
    let [short, long] = ["10/s", "10/h"].map(counter);
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
    let quota = counter(&format!("{}/h", u32::MAX));
    let requests = (0..700).map(|nth| (START + nth as u64, 2_000_000_000));
    let mut take = call(1, 1, 0, 0);
    (take.mode, take.demand) = (Mode::Wait, Demand::new(requests));
    let mut state = State::default();
    assert_eq!(departs(&mut state, &quota, &take, START), 2);
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
        let quotas = [first, second];
        let mut departed = [Vec::new(), Vec::new()];
        let (mut state, mut now) = (State::new(&quotas[..1]), START);
        for (number, (which, requests, span)) in (1..).zip(steps) {
            now += span;
            let which = usize::from(which);
            state.continue_as(&quotas[which..=which], now);
            let mut take = call(which as u64, number, 0, requests);
            (take.mode, take.guard) = (Mode::Wait, 0);
            let units = state.take(0, &take, now).granted();
            if units > 0 {
                departed[which].push((now - START, units));
            }
            super::assert_round_trip(&state);
        }
        for (quota, times) in quotas.iter().zip(&departed) {
            prop_assert_eq!(judge::fault(quota, times), None);
        }
    }

    /// As in a rolling deployment that changes windows: each process counts the departures of the other.
    #[test]
    fn processes_with_other_windows_count_all_departures(
        quotas in prop::array::uniform2((1u64..20, 1u64..60)),
        steps in prop::collection::vec((any::<bool>(), 1usize..5, 0..40 * MILLI), 1..200),
    ) {
        let counters = quotas.map(|(limit, span)| counter(&format!("{limit}/{}ms", 10 * span)));
        let (mut state, mut now, mut departed) = (State::new(&counters[..1]), START, Vec::new());
        state.continue_as(&counters[1..], START);
        for (number, (which, requests, span)) in (1..).zip(steps) {
            now += span;
            let which = usize::from(which);
            let mut take = call(which as u64, number, 0, requests);
            take.guard = 0;
            let units = departs(&mut state, &counters[which], &take, now);
            departed.extend((0..units).map(|_| now));
            let (limit, span) = quotas[which];
            let within = departed.iter().filter(|&&at| at + 10 * span * MILLI > now).count() as u64;
            prop_assert!(units == 0 || within <= limit, "{} in {}", within, 10 * span);
        }
    }
}

#[test]
fn other_former_quotas_do_not_displace_those_in_use() {
    let counters =
        |quotas: &[&str]| -> Vec<Counter> { quotas.iter().map(|it| counter(it)).collect() };
    let limited = counters(&["3/100ms gcra burst=3", "1000/h"]);
    for (first, other) in [
        (&["20/s"][..], &["20/s", "10/s"][..]),
        (
            &["9/m", "9/2m", "9/3m", "9/4m", "9/5m", "9/6m", "9/7m"],
            &["20/s", "10/2s"],
        ),
    ] {
        let policies = [counters(other), limited.clone()];
        let mut state = State::new(&counters(first));
        let departed = (1..60).map(|number| {
            state.continue_as(&policies[number as usize % 2], START);
            let taken = state.take(0, &call(number % 2, number, 0, 1), START);
            if number % 2 == 1 { taken.granted() } else { 0 }
        });
        assert!(departed.sum::<u64>() <= 3, "{other:?}");
    }
}

#[test]
fn a_new_quota_continues_with_a_counter_that_has_all_departures() {
    // Used for an hour, when the first quota is no longer in use.
    let [first, second, third] = ["10/h", "20/s", "30/m"].map(counter);
    let mut state = State::new(std::slice::from_ref(&first));
    let mut now = START;
    for number in 1..3_700 {
        now += SECOND + 10 * MILLI;
        departs(&mut state, &second, &call(1, number, 0, 20), now);
    }
    let take = call(1, 4_000, 0, 30);
    assert_eq!(departs(&mut state, &third, &take, now + MILLI), 10);
    // The slowest bucket holds one unit.
    let quotas = ["1000/s gcra burst=1000", "1/m gcra burst=1"].map(counter);
    let third = counter("500/s gcra burst=500");
    let mut state = State::new(&quotas[..1]);
    departs(&mut state, &quotas[0], &call(1, 1, 0, 900), START);
    departs(&mut state, &quotas[1], &call(1, 2, 0, 1), START);
    let departed = departs(&mut state, &third, &call(1, 3, 0, 1), START + MILLI);
    assert_eq!(departed, 0);
}

#[test]
fn a_charge_for_an_earlier_departure_counts_in_another_bucket() {
    let [one, other] = ["1/s gcra burst=10", "2/s gcra burst=10"].map(counter);
    let mut state = State::new(std::slice::from_ref(&one));
    departs(&mut state, &other, &call(2, 1, 0, 1), START);
    let mut now = START;
    for (number, requests) in (1..20).zip([4].into_iter().chain(std::iter::repeat(1))) {
        now += SECOND;
        let take = call(1, number, 0, requests);
        assert_eq!(departs(&mut state, &one, &take, now) as usize, requests);
    }
    let mut take = call(2, 2, 0, 0);
    let settlement = super::settlement(START + 5 * MILLI, 10);
    take.corrections.settlements.push(settlement);
    departs(&mut state, &other, &take, now);
    assert_eq!(departs(&mut state, &one, &call(1, 20, 0, 2), now), 0);
}

#[test]
fn spacing_waits_for_an_interval_after_departures_under_other_quotas() {
    let slow = counter("10/h spacing");
    for (fast, has_begun) in [
        ("100/s spacing", true),
        ("100/s gcra burst=100", true),
        ("100/s gcra burst=100", false),
    ] {
        let fast = counter(fast);
        let mut state = State::default();
        if has_begun {
            state.continue_as(std::slice::from_ref(&slow), START);
        }
        for number in 1..200 {
            let now = START + number * 5 * MILLI;
            departs(&mut state, &fast, &call(1, number, 0, 1), now);
        }
        for (minutes, departed) in [(6, 0), (7, 1)] {
            let (take, now) = (call(1, 300 + minutes, 0, 1), START + minutes * 60 * SECOND);
            assert_eq!(departs(&mut state, &slow, &take, now), departed, "{fast:?}");
        }
    }
}

#[test]
fn a_quota_that_returns_counts_what_departed_in_between() {
    let [first, longer] = ["100/h", "1000/2h"].map(counter);
    let mut state = State::new(std::slice::from_ref(&first));
    let (a, b) = (&first, &longer);
    let steps = [(b, 0, 1), (b, 3_599, 1), (b, 5_400, 500), (a, 5_401, 9)];
    let departed = steps.map(|(quota, seconds, requests)| {
        let take = call(1, seconds, 0, requests);
        departs(&mut state, quota, &take, START + seconds * SECOND)
    });
    assert_eq!(departed, [1, 1, 500, 0]);
}

#[test]
fn former_quotas_are_in_use_until_the_processes_that_wait_have_called() {
    let [old, new] = ["10/m", "10/s"].map(counter);
    let mut state = State::new(&[old]);
    state.announced.push(Announcement {
        deadline: START + HOUR,
        ..Announcement::default()
    });
    state.continue_as(&[new], START);
    assert_eq!(state.in_use_until, START + HOUR);
}

#[test]
fn a_former_window_forgets_what_has_left_it() {
    let [short, long] = ["200/s", "400/2s"].map(counter);
    let mut state = State::new(std::slice::from_ref(&short));
    for number in 1..2_000 {
        let now = START + number * 10 * MILLI;
        assert_eq!(departs(&mut state, &long, &call(1, number, 0, 1), now), 1);
    }
    let now = START + 20 * SECOND;
    assert_eq!(departs(&mut state, &short, &call(2, 1, 0, 1), now), 1);
}

#[test]
fn a_process_that_waits_counts_what_departs_between_its_calls() {
    let quotas = ["20/2h", "10/h"].map(counter);
    let (mut state, mut departed) = (State::default(), Vec::new());
    let mut next = [START, START + SECOND];
    for number in 1..300 {
        // The first process asks every two minutes, and the second one when it has to.
        let which = usize::from(next[1] <= next[0]);
        let (quota, now) = (&quotas[which..=which], next[which]);
        state.continue_as(quota, now);
        let mut take = call(which as u64, number, 0, 3);
        take.mode = [Mode::Try, Mode::Wait][which];
        let taken = state.take(0, &take, now);
        next[which] = [now + 120 * SECOND, taken.next_call.max(now + SECOND)][which];
        departed.extend((0..taken.granted()).map(|_| now));
        let within = departed.iter().filter(|&&at| at + HOUR > now).count();
        assert!(which == 0 || taken.granted() == 0 || within <= 10);
    }
}

#[test]
fn a_call_that_arrives_late_neither_strands_places_nor_frees_those_in_use() {
    let quotas = [counter("20 concurrent lease=30s")];
    let mut state = State::new(&quotas);
    // The connection of a call stalls, its request is cancelled, and the next call says so. It strands no place.
    assert_eq!(state.take(0, &call(16, 2, 1, 0), START).granted(), 0);
    state.take(0, &call(16, 1, 0, 20), START);
    assert_eq!(state.take(0, &call(32, 1, 0, 5), START).granted(), 5);
    // The next call reports another one as lost, and gets the other places.
    assert_eq!(state.take(0, &call(16, 4, 3, 15), START).granted(), 15);
    for seconds in [1, 12, 25] {
        let now = START + seconds * SECOND;
        assert!(state.take(0, &call(16, 3, 0, 1), now).is_outdated);
        let look = Take::one(Mode::Peek, 1);
        assert_eq!(state.take(0, &look, now).remaining.0[0], 0);
    }
}

#[test]
fn a_call_nudges_the_processes_that_can_use_what_it_set_free() {
    for (quotas, costs, free, first, nudged) in [
        ("2/m", [[1, 0]; 2], [2, 0], 1, &[1, 2, 3][..]),
        // The first three are lanes of one process, which may be dead.
        ("2/m", [[1, 0]; 2], [2, 0], 3, &[3, 3, 4]),
        ("9/s + 2/m unit=t", [[1, 1]; 2], [0, 2], 1, &[1, 2, 3]),
        // Every second one waits for a unit that is not free.
        ("1/m + 2/m unit=t", [[5, 0], [0, 1]], [0, 2], 1, &[2, 4]),
        ("1/m + 2/m unit=t", [[0, 1]; 2], [0, 0], 1, &[1, 2, 4]),
    ] {
        let mut counters: Vec<_> = quotas.split(" + ").map(counter).collect();
        number_units(&mut counters);
        let mut state = State::new(&counters);
        state.announced.extend((1..6).map(|nth| {
            let [requests, tokens] = costs[(nth as usize + 1) % 2];
            Announcement {
                process: nth.max(first) << LANE_BITS | nth,
                // The third watches the second as it is.
                deadline: START + (nth - nth / 3) * HOUR,
                demand: Demand::new([(nth, Costs([requests, tokens, 0, 0]))].into_iter()),
                ..Announcement::default()
            }
        }));
        let (take, free) = (call(96, 1, 0, 0), Units([free[0], free[1], 0, 0]));
        let times = take.times(0, START);
        let mut next = state.nudge(&times, &take.demand, &take, free, false);
        next.iter_mut().for_each(|it| *it >>= LANE_BITS);
        assert_eq!(next, nudged);
    }
}
