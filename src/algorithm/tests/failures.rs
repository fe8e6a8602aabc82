//! Random simulations: failures of every kind, over random quotas.

use proptest::prelude::*;

use super::super::{Counter, Fixed, Gcra, Window};
use super::histories::quotas;
use super::judge;
use super::simulation::{MILLI, SECOND, Setup};

fn largest_cost(quotas: &[Counter]) -> u32 {
    let costs = quotas.iter().map(|quota| match quota {
        Counter::Window(it) => it.limit,
        Counter::Gcra(it) => it.burst,
        Counter::Fixed(it) => it.limit,
    });
    costs.min().unwrap_or(1)
}

fn setup() -> impl Strategy<Value = Setup> {
    let request = (0..2 * SECOND, prop_oneof![4 => Just(1u32), 1 => 1u32..8]);
    let arrivals = prop::collection::vec(prop::collection::vec(request, 0..25), 1..5);
    let round_trip = prop_oneof![Just(MILLI), Just(20 * MILLI), Just(150 * MILLI)];
    let faults = (
        prop_oneof![Just(0.0), Just(0.1)],
        prop::bool::ANY,
        prop::option::of(0..2 * SECOND),
    );
    let kill = prop::option::of((0..2 * SECOND, 0usize..4));
    let cancel = prop::option::of((0..2 * SECOND, 0usize..4, 0usize..3));
    let rest = (
        any::<u64>(),
        prop_oneof![Just(0), Just(3 * MILLI)],
        prop_oneof![Just(0.0), Just(0.9)],
    );
    (quotas(), arrivals, round_trip, faults, kill, cancel, rest).prop_map(
        |(
            quotas,
            mut arrivals,
            round_trip,
            (lost, is_fast, stop),
            kill,
            cancel,
            (seed, buffer, random),
        )| {
            let most = largest_cost(&quotas);
            for requests in &mut arrivals {
                requests.iter_mut().for_each(|it| it.1 = it.1.min(most));
                requests.sort_unstable();
            }
            let count = arrivals.len();
            let mut setup = Setup::new(quotas, arrivals).round_trip(round_trip);
            setup.lost = lost;
            setup.timeout = if is_fast { 400 * MILLI } else { SECOND };
            setup.stop = stop.map(|at| (at, 0, SECOND));
            setup.kill = kill
                .map(|(at, which)| (at, which % count))
                .into_iter()
                .collect();
            setup.cancel = cancel.map(|(at, which, keep)| (at, which % count, keep));
            (setup.seed, setup.buffer, setup.random) = (seed, buffer, random);
            setup
        },
    )
}

/// How long all requests may take: every unit in a window of its own, and the failures.
fn patience(setup: &Setup) -> u64 {
    let units: u64 = setup
        .arrivals
        .iter()
        .flatten()
        .map(|it| u64::from(it.1))
        .sum();
    let hold = 2 * SECOND + setup.buffer;
    let spans = setup.quotas.iter().map(|quota| match quota {
        Counter::Window(it) => 2 * (it.window + it.grain) / u64::from(it.limit),
        Counter::Gcra(it) => it.interval,
        Counter::Fixed(it) => 2 * it.window / u64::from(it.limit),
    });
    60 * SECOND + units * (spans.sum::<u64>() + hold)
}

proptest! {
    #![proptest_config(super::config(150))]

    #[test]
    fn whatever_fails_all_others_depart_and_no_promise_breaks(setup in setup()) {
        let mut setup = setup;
        setup.until = patience(&setup);
        let out = setup.run();
        judge::assert_safe(&setup, &out);
        let is_excused = |process: usize| {
            let is_killed = setup.kill.iter().any(|it| it.1 == process);
            is_killed || setup.cancel.is_some_and(|it| it.1 == process)
        };
        let live = (0..setup.arrivals.len()).filter(|&it| !is_excused(it));
        for process in live {
            let departed = out.departed.iter().filter(|it| it.process == process).count();
            prop_assert_eq!(departed, setup.arrivals[process].len(), "of process {}", process);
        }
    }
}

/// 3 processes wait for 100 a minute; after 90 s it becomes 60 a minute.
#[test]
fn a_lowered_quota_holds_from_the_change_on() {
    let minute = 60 * SECOND;
    let quota = |limit| vec![Counter::Window(Window::new(limit, minute))];
    let arrivals = vec![(0, 1); 200];
    let mut setup = Setup::new(quota(100), vec![arrivals; 3]);
    let change = 90 * SECOND;
    setup.change = Some((change, quota(60)));
    let out = setup.run();
    assert_eq!(out.departed.len(), 600);
    judge::assert_safe(&setup, &out);
    // Grants from before the change depart within the horizon and the guard.
    let mut after = judge::times(&out.departed, |it| it.at);
    after.retain(|it| it.0 >= change + 120 * MILLI);
    assert_eq!(judge::most_in_any(&after, minute), 60);
}

/// Other algorithms and windows: the new quota holds for departures after the change.
#[test]
fn a_changed_quota_holds_after_the_change() {
    let window = |limit, window| Counter::Window(Window::new(limit, window));
    let gcra = |burst, interval| Counter::Gcra(Gcra::new(burst, interval, false));
    let aligned = |limit| Counter::Fixed(Fixed::new(limit, SECOND, true));
    let changes = [
        (vec![window(20, SECOND)], vec![window(5, 2 * SECOND)]),
        (vec![window(2_000, 10 * SECOND)], vec![window(20, SECOND)]),
        (
            vec![window(20, SECOND)],
            vec![window(2_000, 10 * SECOND), window(10, SECOND)],
        ),
        (vec![gcra(20, 50 * MILLI)], vec![gcra(5, 100 * MILLI)]),
        (vec![aligned(20)], vec![aligned(10)]),
        (vec![window(20, SECOND)], vec![gcra(5, 100 * MILLI)]),
    ];
    for (before, quotas) in changes {
        let change = 3 * SECOND;
        let mut setup = Setup::new(before, vec![vec![(0, 1); 60]; 3]);
        setup.change = Some((change, quotas.clone()));
        let mut out = setup.run();
        assert_eq!(out.departed.len(), 180);
        out.departed
            .retain(|it| it.at >= super::simulation::START + change + 120 * MILLI);
        setup.quotas = quotas;
        judge::assert_safe(&setup, &out);
    }
}
