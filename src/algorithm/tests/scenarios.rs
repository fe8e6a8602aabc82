//! The scenarios of the design with their bounds: rate, order, and calls for each request.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::super::{Counter, Fixed, Gcra, Window};
use super::judge;
use super::simulation::{MILLI, Outcome, SECOND, START, Setup};

fn per_second(limit: u32) -> Vec<Counter> {
    vec![Counter::Window(Window::new(limit, SECOND))]
}

/// Requests at random times, `rate` a second.
fn poisson(seed: u64, rate: f64, span: u64, cost: impl Fn(&mut StdRng) -> u32) -> Vec<(u64, u32)> {
    let mut rng = StdRng::seed_from_u64(seed);
    let (mut arrivals, mut at) = (Vec::new(), 0.0);
    loop {
        at += -(1.0 - rng.random::<f64>()).ln() / rate;
        let time = (at * 1e6) as u64;
        if time >= span {
            return arrivals;
        }
        arrivals.push((time, cost(&mut rng)));
    }
}

/// Three processes with half of the quota each.
fn three(seed: u64, seconds: u64) -> Vec<Vec<(u64, u32)>> {
    let process = |nth| poisson(3 * seed + nth, 50.0, seconds * SECOND, |_| 1);
    (0..3).map(process).collect()
}

/// The bounds of a scenario.
struct Bounds {
    /// The least rate, of N / (W + guard + buffer).
    rate: f64,
    unfair: f64,
    /// The most calls for each request.
    calls: f64,
}

const USUAL: Bounds = Bounds {
    rate: 0.97,
    unfair: 0.001,
    calls: 0.6,
};

/// The units that depart in a second, of the ideal.
fn rate(setup: &Setup, out: &Outcome, from: f64, to: f64) -> f64 {
    let hold = (out.guard + setup.buffer) as f64;
    let ideal = setup.quotas.iter().map(|quota| match quota {
        Counter::Window(it) => f64::from(it.limit) / (it.window as f64 + hold),
        Counter::Fixed(it) => f64::from(it.limit) / it.window as f64,
        Counter::Gcra(it) => {
            let slack = (f64::from(it.burst) - 1.0) * it.interval as f64;
            let slack = if it.spaced { 0.0 } else { slack };
            1.0 / (it.interval as f64 + (hold - slack).max(0.0))
        }
    });
    let ideal = ideal.fold(f64::MAX, f64::min) * 1e6;
    let inside = |at: u64| (from..to).contains(&((at - START) as f64 / 1e6));
    let inside = out.departed.iter().filter(|it| inside(it.at));
    let units: u32 = inside.map(|it| it.cost).sum();
    f64::from(units) / (to - from) / ideal
}

/// Runs a scenario and asserts safety and these bounds; the rate from one second to another.
#[track_caller]
fn assert_within(
    name: &str,
    setup: &Setup,
    span: (f64, f64),
    excused: &[usize],
    bounds: &Bounds,
) -> Outcome {
    let setups = std::slice::from_ref(setup);
    let mut outcomes = assert_mean_within(name, setups, span, excused, bounds);
    outcomes.remove(0)
}

/// Runs a scenario with several seeds and asserts safety, and these bounds of the means.
#[track_caller]
fn assert_mean_within(
    name: &str,
    setups: &[Setup],
    (from, to): (f64, f64),
    excused: &[usize],
    bounds: &Bounds,
) -> Vec<Outcome> {
    let outcomes: Vec<Outcome> = setups.iter().map(Setup::run).collect();
    let (mut rates, mut unfair, mut calls) = (0.0, 0.0, 0.0);
    for (setup, out) in setups.iter().zip(&outcomes) {
        judge::assert_safe(setup, out);
        rates += rate(setup, out, from, to);
        unfair += judge::unfair_share(out, excused);
        calls += out.calls as f64 / out.departed.len() as f64;
    }
    let count = setups.len() as f64;
    let (rate, unfair, calls) = (rates / count, unfair / count, calls / count);
    println!(
        "{name}: rate {:.1}%, unfair {:.2}%, calls {calls:.3}, forfeits {}, departed {}",
        100.0 * rate,
        100.0 * unfair,
        outcomes.iter().map(|out| out.forfeits).sum::<usize>(),
        outcomes.iter().map(|out| out.departed.len()).sum::<usize>()
    );
    assert!(rate >= bounds.rate, "{name}: a rate of {rate}");
    assert!(unfair <= bounds.unfair, "{name}: {unfair} are unfair");
    assert!(calls <= bounds.calls, "{name}: {calls} calls a request");
    outcomes
}

#[test]
fn the_rate_and_the_order_hold_for_round_trips_up_to_50_ms() {
    for round_trip in [1, 5, 50] {
        let setup = Setup::new(per_second(100), three(1, 20)).round_trip(round_trip * MILLI);
        assert_within(
            &format!("RTT {round_trip} ms"),
            &setup,
            (3.0, 19.0),
            &[],
            &USUAL,
        );
    }
}

#[test]
fn a_round_trip_of_150_ms_costs_at_most_a_twentieth_of_the_rate() {
    let bounds = Bounds {
        rate: 0.95,
        unfair: 0.01,
        ..USUAL
    };
    let setup = Setup::new(per_second(100), three(2, 20)).round_trip(150 * MILLI);
    assert_within("RTT 150 ms", &setup, (3.0, 19.0), &[], &bounds);
}

#[test]
fn different_round_trips_share_the_rate() {
    let mut setup = Setup::new(per_second(100), three(3, 20));
    setup.round_trips[2] = 150 * MILLI;
    let bounds = Bounds {
        rate: 0.9,
        unfair: 0.03,
        ..USUAL
    };
    assert_within("RTT 1, 1 and 150 ms", &setup, (3.0, 19.0), &[], &bounds);
}

#[test]
fn lost_calls_and_answers_cost_little() {
    for timeout in [SECOND, 100 * MILLI] {
        let setup = |seed| Setup {
            lost: 0.05,
            timeout,
            seed,
            ..Setup::new(per_second(100), three(seed, 30))
        };
        let setups: Vec<_> = (1..17).map(setup).collect();
        let bounds = Bounds {
            unfair: 0.03,
            ..USUAL
        };
        let name = format!("5% lost, timeout {timeout}");
        assert_mean_within(&name, &setups, (3.0, 29.0), &[], &bounds);
    }
}

#[test]
fn a_stopped_process_does_not_hold_back_the_others() {
    let mut setup = Setup::new(per_second(100), three(5, 20));
    setup.stop = Some((6 * SECOND, 1, 5 * SECOND));
    assert_within("stopped", &setup, (7.0, 11.0), &[1], &USUAL);
}

#[test]
fn a_killed_process_does_not_hold_back_the_others() {
    let mut setup = Setup::new(per_second(100), three(6, 20));
    setup.kill = vec![(6 * SECOND, 1)];
    assert_within("killed", &setup, (7.0, 11.0), &[1], &USUAL);
    let burst = |at: u64, count| vec![(at, 1); count];
    let arrivals = vec![
        burst(0, 1_000),
        burst(100 * MILLI, 1_500),
        burst(100 * MILLI, 1_500),
    ];
    let mut setup = Setup::new(per_second(100), arrivals);
    setup.kill = vec![(2 * SECOND, 0)];
    setup.until = 20 * SECOND;
    // The processes behind it do not poll until it no longer counts.
    let bounds = Bounds {
        calls: 0.05,
        ..USUAL
    };
    assert_within("oldest 1,000 killed", &setup, (3.0, 20.0), &[0], &bounds);
}

#[test]
fn cancelled_requests_leave_no_gap() {
    let burst = |at: u64, count| vec![(at, 1); count];
    let arrivals = vec![
        burst(0, 2_000),
        burst(100 * MILLI, 500),
        burst(100 * MILLI, 500),
    ];
    let mut setup = Setup::new(per_second(200), arrivals);
    setup.cancel = Some((2 * SECOND, 0, 100));
    let out = assert_within("cancelled", &setup, (0.5, 5.5), &[], &USUAL);
    // Requests that were granted when the others were cancelled departed too.
    assert!(out.departed.len() <= 1_100 + 600);
}

#[test]
fn a_thousand_processes_reach_the_rate() {
    let process = |nth| poisson(nth, 0.3, 8 * SECOND, |_| 1);
    let mut setup = Setup::new(per_second(100), (0..1_000).map(process).collect());
    setup.until = 9 * SECOND;
    let bounds = Bounds {
        calls: 8.0,
        ..USUAL
    };
    assert_within("1,000 processes", &setup, (3.0, 8.0), &[], &bounds);
}

#[test]
fn joint_quotas_reach_the_lower_rate() {
    let arrivals = || {
        (0..3)
            .map(|nth| poisson(nth, 1.2, 300 * SECOND, |_| 1))
            .collect()
    };
    let minute = Counter::Window(Window::new(100, 60 * SECOND));
    let quotas = vec![Counter::Window(Window::new(10, SECOND)), minute.clone()];
    let bounds = Bounds {
        calls: 5.0,
        ..USUAL
    };
    let setup = Setup::new(quotas, arrivals());
    assert_within("10/s and 100/min", &setup, (60.0, 299.0), &[], &bounds);
    let spaced = Counter::Gcra(Gcra::new(10, SECOND / 10, true));
    let fixed = Counter::Fixed(Fixed::new(150, 60 * SECOND, true));
    let setup = Setup::new(vec![spaced, minute, fixed], arrivals());
    assert_within(
        "spaced, 100/min, fixed",
        &setup,
        (60.0, 299.0),
        &[],
        &bounds,
    );
}

#[test]
fn mixed_costs_keep_the_rate() {
    let setup = |seed| {
        let cheap = |nth| poisson(10 * seed + nth, 45.0, 30 * SECOND, |_| 1);
        let costly = poisson(10 * seed, 0.6, 30 * SECOND, |_| 50);
        Setup {
            seed,
            ..Setup::new(per_second(100), vec![costly, cheap(1), cheap(2)])
        }
    };
    let bounds = Bounds {
        rate: 0.93,
        unfair: 0.03,
        ..USUAL
    };
    let setups: Vec<_> = (1..9).map(setup).collect();
    assert_mean_within("a cost of 50", &setups, (3.0, 29.0), &[], &bounds);
    let cost = |rng: &mut StdRng| [1, 1, 1, 5, 20][rng.random_range(0..5)];
    let arrivals = (0..3)
        .map(|nth| poisson(nth, 8.0, 30 * SECOND, cost))
        .collect();
    let setup = Setup::new(per_second(100), arrivals);
    let bounds = Bounds {
        rate: 0.92,
        unfair: 0.03,
        calls: 2.0,
    };
    assert_within("costs of 1 to 20", &setup, (3.0, 29.0), &[], &bounds);
}

#[test]
fn a_window_shorter_than_the_horizon_reaches_the_rate() {
    for limit in [2, 5] {
        let arrivals = (0..3)
            .map(|nth| poisson(nth, 120.0, 10 * SECOND, |_| 1))
            .collect();
        let quotas = vec![Counter::Window(Window::new(limit, 10 * MILLI))];
        let setup = Setup::new(quotas, arrivals);
        assert_within(
            &format!("{limit} per 10 ms"),
            &setup,
            (1.0, 9.0),
            &[],
            &USUAL,
        );
    }
}

#[test]
fn every_algorithm_reaches_its_rate() {
    let quotas = [
        ("GCRA", Counter::Gcra(Gcra::new(5, 20 * MILLI, false))),
        ("spacing", Counter::Gcra(Gcra::new(50, 20 * MILLI, true))),
        (
            "fixed, aligned",
            Counter::Fixed(Fixed::new(50, SECOND, true)),
        ),
        (
            "fixed, from the first request",
            Counter::Fixed(Fixed::new(50, SECOND, false)),
        ),
        (
            "buckets",
            Counter::Window(Window::with_buckets(50, SECOND, 100)),
        ),
        (
            "2,000 per 40 s",
            Counter::Window(Window::new(2_000, 40 * SECOND)),
        ),
    ];
    for (name, quota) in quotas {
        let arrivals = (0..3)
            .map(|nth| poisson(nth, 20.0, 20 * SECOND, |_| 1))
            .collect();
        let mut setup = Setup::new(vec![quota], arrivals);
        setup.buffer = 2 * MILLI;
        // All units of a fixed window depart at its start, and are divided by what was announced before.
        let unfair = if name.contains("fixed") { 0.05 } else { 0.001 };
        let bounds = Bounds {
            rate: 0.95,
            unfair,
            calls: 1.5,
        };
        assert_within(name, &setup, (2.0, 19.0), &[], &bounds);
    }
}

#[test]
fn replicas_whose_requests_arrive_at_once_make_few_calls() {
    let rows = [
        (200, SECOND, 60, 2_000, 0.1),
        (50, SECOND, 50, 1_000, 0.1),
        (100, 5 * SECOND, 50, 500, 0.1),
        (1, SECOND, 50, 10, 3.0),
    ];
    for (limit, window, buffer, requests, calls) in rows {
        let process = |nth| poisson(nth, 20_000.0, SECOND, |_| 1);
        let mut arrivals: Vec<_> = (0..3).map(process).collect();
        arrivals.iter_mut().for_each(|it| it.truncate(requests));
        let quotas = vec![Counter::Window(Window::new(limit, window))];
        let mut setup = Setup::new(quotas, arrivals);
        setup.buffer = buffer * MILLI;
        let windows = (3 * requests as u64).div_ceil(limit.into()) - 1;
        let until = (windows * window) as f64 / SECOND as f64;
        let bounds = Bounds { calls, ..USUAL };
        let name = format!("replicas, {limit} per {window} us");
        assert_within(&name, &setup, (0.0, until), &[], &bounds);
    }
}
