//! Processes with round trips and failures share a key, in paused time: safety, rate, order and calls.

use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::*;
use crate::priority::{Priority, Share};
use crate::quota::Algorithm;
use crate::test_util::history::History;

/// A process and its failures. Times are milliseconds from the start.
#[derive(Debug, Clone, Default)]
struct Process {
    round_trip: u64,
    /// The arrival and the cost of each request.
    arrivals: Vec<(u64, u32)>,
    /// The arrival of each request of a high priority, which costs 1.
    high: Vec<u64>,
    /// The arrival of each request of another priority or of a share, which costs 1.
    ranked: Vec<(u64, Rank)>,
    /// The share of calls that are lost, half of them after they were executed.
    lost_percent: u64,
    /// The process does not reach the store from a time to another.
    stopped: Option<(u64, u64)>,
    /// From a time on, all requests are gone but so many.
    cancelled: Option<(u64, usize)>,
    killed: Option<u64>,
}

#[derive(Debug, Clone)]
struct Departed {
    process: usize,
    arrival: Duration,
    at: Duration,
    cost: u32,
    rank: Rank,
}

#[derive(Default)]
struct Outcome {
    departed: Vec<Departed>,
    calls: u64,
    guard: Duration,
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// So many requests at this time.
fn burst(at: u64, count: usize) -> Vec<(u64, u32)> {
    vec![(at, 1); count]
}

/// Processes with requests at random times, so many per second each.
fn random(count: usize, rate: f64, seconds: u64, costs: &[u32]) -> Vec<Process> {
    let mut rng = StdRng::seed_from_u64(7);
    let mut arrivals = || {
        let mut at = 0.0;
        let next = || {
            at -= (1.0 - rng.random::<f64>()).ln() / rate * 1e3;
            Some((at as u64, costs[rng.random_range(0..costs.len())]))
        };
        let arrivals = std::iter::from_fn(next);
        arrivals.take_while(|it| it.0 < seconds * 1_000).collect()
    };
    let process = |_| Process {
        round_trip: 1,
        arrivals: arrivals(),
        ..Process::default()
    };
    (0..count).map(process).collect()
}

/// Three processes with half of a quota of 100 per second each.
fn three(change: impl Fn(usize, &mut Process)) -> Vec<Process> {
    let mut processes = random(3, 50.0, 20, &[1]);
    let each = processes.iter_mut().enumerate();
    each.for_each(|(nth, process)| change(nth, process));
    processes
}

/// Runs until all requests have ended, and asserts the bounds of the quotas.
#[track_caller]
fn run(quotas: &[Quota], processes: &[Process]) -> Outcome {
    run_with(quotas, [0.0; 5], processes)
}

#[track_caller]
fn run_with(quotas: &[Quota], reserves: [f64; 5], processes: &[Process]) -> Outcome {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    let ends = async { timeout(600 * SECOND, run_all(quotas, reserves, processes)).await };
    let out = runtime.block_on(ends).expect("no request waits for ever");
    quotas.iter().for_each(|quota| assert_safe(*quota, &out));
    out
}

async fn run_all(quotas: &[Quota], reserves: [f64; 5], processes: &[Process]) -> Outcome {
    let (memory, start) = (MemoryStore::new(), Instant::now());
    let parts = PolicyParts {
        quotas: quotas.iter().copied().collect(),
        reserves,
        ..PolicyParts::default()
    };
    let plan = parts.plan().expect("a policy");
    let (mut tasks, mut handles) = (Vec::new(), Vec::new());
    for (process, it) in processes.iter().enumerate() {
        let store = Remote::on(memory.clone(), millis(it.round_trip));
        store.set(Fault::Loses(it.lost_percent));
        let dispatcher = Dispatcher::new(store.clone(), None, "".into());
        let handle = Handle::new(&dispatcher, plan.clone(), Settings::default(), 100);
        let normal = it.arrivals.iter();
        let normal = normal.map(|&(arrival, cost)| (arrival, cost, Rank::default()));
        let high = it.high.iter().map(|&it| (it, 1, Priority::High.into()));
        let ranked = it.ranked.iter();
        let ranked = ranked.map(|(arrival, rank)| (*arrival, 1, rank.clone()));
        for (nth, (arrival, cost, rank)) in normal.chain(high).chain(ranked).enumerate() {
            let cancelled = it.cancelled.filter(|(_, kept)| nth >= *kept);
            let ends = cancelled.map(|(at, _)| at).or(it.killed);
            let (handle, arrival) = (handle.clone(), millis(arrival));
            tasks.push(tokio::spawn(async move {
                tokio::time::sleep_until(start + arrival).await;
                let departs = async {
                    let place = Position::new(Instant::now());
                    let request = (&cost.into(), &rank);
                    let waiting = handle.join(Mode::Wait, &key(), request, place, None);
                    waiting?.await.map(|_| Instant::now())
                };
                let departed: Result<Result<_, Refusal>, _> = match ends {
                    Some(at) => timeout(millis(at).saturating_sub(arrival), departs).await,
                    None => Ok(departs.await),
                };
                let at = departed.ok()?.unwrap() - start;
                Some(Departed {
                    process,
                    arrival,
                    at,
                    cost,
                    rank,
                })
            }));
        }
        let stopped = it.stopped.map(|span| (Fault::Out, span));
        let killed = it.killed.map(|at| (Fault::Silent, (at, 1 << 30)));
        if let Some((fault, (from, until))) = killed.or(stopped) {
            let (store, lost) = (store.clone(), it.lost_percent);
            tokio::spawn(async move {
                // Just before the requests of a killed process end.
                tokio::time::sleep_until(start + millis(from) - millis(1)).await;
                store.set(fault);
                tokio::time::sleep_until(start + millis(until)).await;
                store.set(Fault::Loses(lost));
            });
        }
        handles.push((handle, store));
    }
    let mut out = Outcome::default();
    for task in tasks {
        out.departed.extend(task.await.unwrap());
    }
    out.departed.sort_by_key(|it| it.at);
    out.calls = handles.iter().map(|(_, store)| store.calls()).sum();
    let guards = handles.iter().map(|(handle, _)| handle.guard.current());
    out.guard = guards.min().unwrap();
    out
}

/// Asserts the bound of a quota.
#[track_caller]
fn assert_safe(quota: Quota, out: &Outcome) {
    let events = out.departed.iter().map(|it| (it.at, it.cost.into()));
    let (history, limit): (History, _) = (events.collect(), quota.limit().into());
    let (window, interval) = (quota.window(), quota.window() / quota.limit());
    let is_safe = match quota.counted_by() {
        Algorithm::Spacing | Algorithm::LeakyBucket { .. } => history.too_close(interval).is_none(),
        Algorithm::Gcra { burst } => history.burst(interval) <= burst.into(),
        Algorithm::FixedWindow { .. } => history.fits_windows(limit, window),
        _ => history.most_in_any(window) <= limit,
    };
    assert!(is_safe, "{quota}: {history:?}");
}

impl Outcome {
    /// The units per second, of N / (W + guard), that depart between two seconds.
    fn rate(&self, quotas: &[Quota], from: f64, until: f64) -> f64 {
        let ideal = quotas.iter().map(|quota| {
            let hold = match quota.counted_by() {
                Algorithm::SlidingLog | Algorithm::SlidingBuckets { .. } => self.guard,
                Algorithm::Spacing => self.guard * quota.limit(),
                _ => Duration::ZERO,
            };
            f64::from(quota.limit()) / (quota.window() + hold).as_secs_f64()
        });
        let is_inside = |it: &&Departed| (from..until).contains(&it.at.as_secs_f64());
        let inside = self.departed.iter().filter(is_inside);
        let units: u32 = inside.map(|it| it.cost).sum();
        f64::from(units) / (until - from) / ideal.fold(f64::MAX, f64::min)
    }

    /// The share of requests that overtake one that arrived more than 250 ms, and a tenth of its wait, earlier.
    fn unfair(&self, excused: Option<usize>) -> f64 {
        let overtakes = |(nth, it): &(usize, &Departed)| {
            self.departed[nth + 1..].iter().any(|other| {
                let is_earlier = other.arrival + millis(250) < it.arrival;
                is_earlier
                    && Some(other.process) != excused
                    && other.at > it.at + millis(20)
                    && it.arrival - other.arrival > (other.at - other.arrival) / 10
            })
        };
        let unfair = self.departed.iter().enumerate().filter(overtakes).count();
        unfair as f64 / self.departed.len() as f64
    }
}

/// The bounds of a scenario.
#[derive(Clone, Copy)]
struct Bounds {
    /// Seconds between which the rate is measured.
    span: (f64, f64),
    rate: f64,
    unfair: f64,
    /// The most calls for each request.
    calls: f64,
    /// A process whose requests do not count as overtaken.
    excused: Option<usize>,
}

const USUAL: Bounds = Bounds {
    span: (3.0, 19.0),
    rate: 0.97,
    unfair: 0.001,
    calls: 0.6,
    excused: None,
};

#[track_caller]
fn assert_within(name: &str, quotas: &str, processes: &[Process], bounds: Bounds) {
    let quotas: Vec<Quota> = quotas.split(" + ").map(|it| it.parse().unwrap()).collect();
    let out = run(&quotas, processes);
    let rate = out.rate(&quotas, bounds.span.0, bounds.span.1);
    let unfair = out.unfair(bounds.excused);
    let calls = out.calls as f64 / out.departed.len() as f64;
    let measured = format!("{name}: rate {rate:.3}, unfair {unfair:.4}, calls {calls:.3}");
    println!("{measured}");
    assert!(rate >= bounds.rate && unfair <= bounds.unfair, "{measured}");
    assert!(calls <= bounds.calls, "{measured}");
}

#[test]
fn the_rate_and_the_order_hold_at_any_round_trip() {
    for (round_trips, rate, unfair) in [
        ([1, 1, 1], 0.97, 0.001),
        ([50, 50, 50], 0.97, 0.001),
        ([150, 150, 150], 0.95, 0.01),
        ([1, 1, 150], 0.9, 0.03),
    ] {
        let processes = three(|nth, it| it.round_trip = round_trips[nth]);
        let bounds = Bounds {
            rate,
            unfair,
            ..USUAL
        };
        assert_within(&format!("{round_trips:?} ms"), "100/s", &processes, bounds);
    }
}

#[test]
fn lost_calls_and_answers_cost_little() {
    let bounds = Bounds {
        unfair: 0.03,
        ..USUAL
    };
    assert_within("lost", "100/s", &three(|_, it| it.lost_percent = 5), bounds);
}

#[test]
fn a_stopped_or_killed_process_does_not_hold_back_the_others() {
    let bounds = Bounds {
        span: (7.0, 11.0),
        excused: Some(1),
        ..USUAL
    };
    let stopped = three(|nth, it| it.stopped = (nth == 1).then_some((6_000, 9_500)));
    assert_within("stopped", "100/s", &stopped, bounds);
    let killed = three(|nth, it| it.killed = (nth == 1).then_some(6_000));
    assert_within("killed", "100/s", &killed, bounds);
    let mut oldest = three(|_, it| it.arrivals = burst(100, 1_000));
    oldest[0].arrivals = burst(0, 1_000);
    oldest[0].killed = Some(2_000);
    // The processes behind it do not poll until it no longer counts.
    let bounds = Bounds {
        span: (3.0, 19.0),
        calls: 0.06,
        excused: Some(0),
        ..USUAL
    };
    assert_within("oldest 1,000 killed", "100/s", &oldest, bounds);
}

#[test]
fn cancelled_requests_leave_no_gap() {
    let mut processes = three(|_, it| it.arrivals = burst(100, 500));
    processes[0].arrivals = burst(0, 2_000);
    processes[0].cancelled = Some((2_000, 100));
    let bounds = Bounds {
        span: (0.5, 5.5),
        ..USUAL
    };
    assert_within("cancelled", "200/s", &processes, bounds);
}

#[test]
fn a_thousand_processes_reach_the_rate() {
    let bounds = Bounds {
        span: (3.0, 8.0),
        calls: 8.0,
        ..USUAL
    };
    let processes = random(1_000, 0.3, 8, &[1]);
    assert_within("1,000 processes", "100/s", &processes, bounds);
}

#[test]
fn every_policy_reaches_its_rate() {
    for (quotas, rate, unfair) in [
        ("2/10ms", 120.0, 0.001),
        ("50/s gcra burst=5", 20.0, 0.001),
        ("50/s spacing", 20.0, 0.001),
        // All units of a fixed window depart at its start, and are divided by what was announced before.
        ("50/s fixed-window start=first-request", 20.0, 0.1),
        ("50/s sliding-buckets buckets=100", 20.0, 0.001),
        ("2000/40s", 20.0, 0.001),
        ("10/s + 100/10s", 5.0, 0.001),
        ("10/s spacing + 100/10s + 150/15s", 5.0, 0.001),
    ] {
        let bounds = Bounds {
            rate: 0.95,
            unfair,
            calls: 5.0,
            ..USUAL
        };
        assert_within(quotas, quotas, &random(3, rate, 20, &[1]), bounds);
    }
}

#[test]
fn mixed_costs_keep_the_rate() {
    let bounds = Bounds {
        rate: 0.92,
        unfair: 0.03,
        calls: 2.0,
        span: (3.0, 99.0),
        ..USUAL
    };
    let mixed = random(3, 8.0, 100, &[1, 1, 1, 5, 20]);
    assert_within("costs of 1 to 20", "100/s", &mixed, bounds);
    let mut costly = random(3, 45.0, 60, &[1]);
    costly[0] = random(1, 0.6, 60, &[50]).remove(0);
    let bounds = Bounds {
        span: (3.0, 59.0),
        ..bounds
    };
    assert_within("a cost of 50", "100/s", &costly, bounds);
}

#[test]
fn replicas_whose_requests_arrive_at_once_make_few_calls() {
    for (quota, requests, until, calls) in [
        ("200/s", 2_000, 29.0, 0.1),
        ("50/s", 1_000, 59.0, 0.1),
        ("100/5s", 500, 70.0, 0.1),
        ("1/s", 10, 29.0, 3.0),
    ] {
        let bounds = Bounds {
            span: (0.0, until),
            calls,
            ..USUAL
        };
        let replicas = three(|_, it| it.arrivals = burst(1, requests));
        assert_within(quota, quota, &replicas, bounds);
    }
}

const LEVELS: [Priority; 5] = [
    Priority::Highest,
    Priority::High,
    Priority::Normal,
    Priority::Low,
    Priority::Lowest,
];

fn process() -> impl Strategy<Value = Process> {
    let costs = prop_oneof![4 => Just(1_u32), 1 => 1..4_u32];
    let arrivals = prop::collection::vec((0..2_000_u64, costs), 0..25);
    let round_trip = prop::sample::select(vec![1, 20, 150]);
    let time = || prop::option::weighted(0.2, 1..2_000_u64);
    let lost = prop::sample::select(vec![0, 0, 10]);
    let weighted = |(at, level, share): (u64, usize, u32)| {
        let priority = LEVELS[level];
        let share = (share > 0).then(|| Share::new(share.to_string(), share));
        (at, Rank { priority, share })
    };
    let ranked = (0..2_000_u64, 0..5_usize, 0..4_u32).prop_map(weighted);
    let ranked = prop::collection::vec(ranked, 0..8);
    (arrivals, ranked, round_trip, lost, time(), time(), time()).prop_map(
        |(arrivals, ranked, round_trip, lost_percent, stopped, killed, cancelled)| Process {
            arrivals,
            ranked,
            round_trip,
            lost_percent,
            // Else an outage may last for five seconds, and requests fail.
            stopped: stopped
                .filter(|_| lost_percent == 0)
                .map(|at| (at, at + 1_000)),
            killed,
            cancelled: cancelled.map(|at| (at, 2)),
            ..Process::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_requests_depart_within_the_quotas_whatever_fails(
        quotas in prop::sample::subsequence(vec![
            "4/10ms", "9/200ms", "20/s", "7/s sliding-buckets buckets=3", "10/s gcra burst=4",
            "50/s spacing", "9/s fixed-window start=first-request", "30/2s",
        ], 1..3),
        processes in prop::collection::vec(process(), 1..5),
        reserves in prop::sample::select(vec![[0.0; 5], [0.0, 0.0, 0.3, 0.0, 0.2], [0.0, 0.0, 0.0, 0.0, 1.0]]),
    ) {
        let quotas: Vec<Quota> = quotas.iter().map(|it| it.parse().unwrap()).collect();
        let mut processes = processes;
        let most = quotas.iter().map(Quota::largest_cost).min().unwrap_or(1);
        let arrivals = processes.iter_mut().flat_map(|it| &mut it.arrivals);
        arrivals.for_each(|it| it.1 = it.1.min(most));
        let out = run_with(&quotas, reserves, &processes);
        for (nth, process) in processes.iter().enumerate() {
            let departed = out.departed.iter().filter(|it| it.process == nth).count();
            let is_excused = process.killed.is_some() || process.cancelled.is_some();
            prop_assert!(is_excused || departed == process.arrivals.len() + process.ranked.len());
        }
    }
}

/// The wait that so many percent of the requests of a high priority do not exceed.
fn high_wait(out: &Outcome, percent: usize) -> Duration {
    let high = out
        .departed
        .iter()
        .filter(|it| it.rank.priority == Priority::High);
    let mut waits: Vec<_> = high.map(|it| it.at - it.arrival).collect();
    waits.sort();
    waits[(waits.len() * percent).div_ceil(100) - 1]
}

#[test]
fn requests_of_a_high_priority_do_not_wait_behind_thousands_of_others() {
    let quota = Quota::per_second(50).algorithm(Algorithm::Gcra { burst: 5 });
    let high: Vec<u64> = (0..275)
        .map(|nth| 1_000 + nth * 200 + nth * 37 % 100)
        .collect();
    let processes = |in_one: bool, has_priority: bool| {
        let mut processes = vec![Process::default(); if in_one { 1 } else { 3 }];
        let count = 3_000 / processes.len();
        for process in &mut processes {
            (process.round_trip, process.arrivals) = (1, burst(0, count));
        }
        match has_priority {
            true => processes[0].high = high.clone(),
            false => processes[0].arrivals.extend(high.iter().map(|&at| (at, 1))),
        }
        processes
    };
    for (in_one, most) in [(false, millis(200)), (true, millis(40))] {
        let out = run(&[quota], &processes(in_one, true));
        let wait = high_wait(&out, 99);
        assert!(wait <= most, "{in_one}: {wait:?}");
        let without = run(&[quota], &processes(in_one, false));
        let last = |out: &Outcome| out.departed.last().unwrap().at.as_secs_f64();
        let rate = last(&without) / last(&out);
        assert!(rate >= 0.99, "{in_one}: {rate}");
        eprintln!("{in_one} {wait:?} {rate} {:?}", high_wait(&out, 50));
    }
}

/// Requests of a lower level take over within a second, and none starves.
#[test]
fn a_process_of_a_high_priority_that_is_killed_or_stopped_does_not_hold_back_the_others() {
    let quota = Quota::per_second(100);
    for (killed, stopped) in [(Some(4_000), None), (None, Some((4_000, 7_500)))] {
        let mut processes = vec![Process::default(); 3];
        for process in &mut processes {
            (process.round_trip, process.arrivals) = (1, burst(0, 400));
        }
        // It has half of the quota.
        processes[0].arrivals.clear();
        processes[0].high = (0..400).map(|nth| nth * 20).collect();
        (processes[0].killed, processes[0].stopped) = (killed, stopped);
        let out = run(&[quota], &processes);
        let rate = out.rate(&[quota], 5.0, 7.5);
        assert!(rate >= 0.97, "{rate}");
        let normal = out.departed.iter().filter(|it| it.process > 0);
        assert_eq!(normal.count(), 800);
    }
}

/// Requests of a share at these times.
fn of_share(name: &str, weight: u32, times: impl Iterator<Item = u64>) -> Vec<(u64, Rank)> {
    let rank = Rank {
        share: Some(Share::new(name, weight)),
        ..Rank::default()
    };
    times.map(|at| (at, rank.clone())).collect()
}

/// The part of a share in all departures between two seconds.
fn part_of(out: &Outcome, name: &str, from: f64, until: f64) -> f64 {
    let is_inside = |it: &&Departed| (from..until).contains(&it.at.as_secs_f64());
    let inside = out.departed.iter().filter(is_inside);
    let of_share = |it: &&Departed| it.rank.share.as_ref().is_some_and(|it| it.name() == name);
    inside.clone().filter(of_share).count() as f64 / inside.count() as f64
}

#[test]
fn shares_divide_capacity_by_their_weights_however_they_are_spread() {
    for (quota, span, least) in [
        ("10/s", 80, 0.97),
        ("100/s", 60, 0.97),
        ("50/s gcra burst=5", 60, 0.97),
        // Shares cost no part of the first one's rate. Spacing gives up a part of each grant to another process.
        ("100/5s", 60, 0.93),
        ("20/s spacing", 60, 0.8),
    ] {
        let mut processes = vec![Process::default(); 3];
        let quota: Quota = quota.parse().unwrap();
        let rate = f64::from(quota.limit()) / quota.window().as_secs_f64();
        let count = |part: f64| (rate * f64::from(span) * part * 1.3) as u64;
        // The first has requests of all shares, the others of one or two.
        for (process, name, weight, part) in [
            (0, "a", 1, 0.04),
            (0, "b", 2, 0.20),
            (0, "c", 5, 0.10),
            (1, "a", 1, 0.09),
            (1, "b", 2, 0.05),
            (2, "c", 5, 0.53),
        ] {
            let it = &mut processes[process];
            it.round_trip = [1, 5, 20][process];
            it.ranked
                .extend(of_share(name, weight, (0..count(part)).map(|_| 0)));
        }
        let out = run(&[quota], &processes);
        let rate = out.rate(&[quota], 1.0, f64::from(span) - 1.0);
        let calls = out.calls as f64 / out.departed.len() as f64;
        let parts = ["a", "b", "c"].map(|name| part_of(&out, name, 5.0, f64::from(span)));
        let measured = format!("{quota}: {parts:.4?}, rate {rate:.3}, calls {calls:.2}");
        println!("{measured}");
        for (part, weight) in parts.into_iter().zip([1.0, 2.0, 5.0]) {
            let relative = part * 8.0 / weight;
            assert!((0.95..=1.05).contains(&relative), "{measured}");
        }
        assert!(rate >= least && calls <= 2.5, "{measured}");
    }
}

/// A share without demand leaves its part to the others, and saves nothing.
#[test]
fn a_share_that_returns_gets_its_part_and_no_more() {
    let quota = Quota::per_second(100);
    for (in_one, returns) in [(true, 5), (false, 5), (false, 1)] {
        let mut processes = vec![Process::default(); if in_one { 1 } else { 3 }];
        let last = processes.len() - 1;
        processes.iter_mut().for_each(|it| it.round_trip = 2);
        let burst = |at, count| std::iter::repeat_n(at, count);
        processes[0]
            .ranked
            .extend(of_share("a", 1, burst(0, 3_000)));
        processes[last / 2]
            .ranked
            .extend(of_share("b", 2, burst(0, 4_000)));
        // It is done after 20 seconds, and returns 20 seconds later.
        let times = burst(0, 20 * 100 * 5 / 8).chain(burst(40_000, 3_000));
        let (early, late): (Vec<_>, Vec<_>) = times.partition(|at| *at == 0);
        processes[last]
            .ranked
            .extend(of_share("c", 5, early.into_iter()));
        processes[last]
            .ranked
            .extend(of_share("c", returns, late.into_iter()));
        let out = run(&[quota], &processes);
        let rate = out.rate(&[quota], 21.0, 39.0);
        assert!(rate >= 0.97, "{in_one}: {rate}");
        let total = f64::from(3 + returns);
        for (name, weight, from, until, total) in [
            ("a", 1.0, 21.5, 39.5, 3.0),
            ("b", 2.0, 21.5, 39.5, 3.0),
            ("a", 1.0, 41.0, 59.0, total),
            ("b", 2.0, 41.0, 59.0, total),
            ("c", f64::from(returns), 41.0, 59.0, total),
        ] {
            let relative = part_of(&out, name, from, until) * total / weight;
            assert!(
                (0.95..=1.05).contains(&relative),
                "{in_one}: {name} {from} {relative}"
            );
        }
        let first = part_of(&out, "c", 40.0, 42.0) * total / f64::from(returns);
        // Within a second, a call may grant a part of a window to one share.
        assert!((0.8..=1.2).contains(&first), "{in_one}: {first}");
    }
}

fn of_level(priority: Priority, times: impl Iterator<Item = u64>) -> Vec<(u64, Rank)> {
    times.map(|at| (at, priority.into())).collect()
}

#[test]
fn a_reserve_guarantees_its_part_and_no_more_under_a_flood_of_a_higher_level() {
    let low = |out: &Outcome, from, until| {
        let is_inside = |it: &&Departed| (from..until).contains(&it.at.as_secs_f64());
        let inside = out.departed.iter().filter(is_inside);
        let of_level = |it: &&Departed| it.rank.priority == Priority::Low;
        inside.clone().filter(of_level).count() as f64 / inside.count() as f64
    };
    let mut reserves = [0.0; 5];
    reserves[Priority::Low as usize] = 0.1;
    for (quota, in_one) in [
        ("50/s", false),
        ("50/s", true),
        ("50/s gcra burst=5", false),
        ("50/s gcra burst=5", true),
        ("10/s", false),
    ] {
        let quota: Quota = quota.parse().unwrap();
        let mut processes = vec![Process::default(); if in_one { 1 } else { 3 }];
        let last = processes.len() - 1;
        processes.iter_mut().for_each(|it| it.round_trip = 1);
        // 60 per second for a minute, over a job of low priority.
        let gap = 1_000 / u64::from(quota.limit()) * 5 / 6;
        let flood = of_level(Priority::High, (0..60_000 / gap).map(|nth| nth * gap));
        for (nth, request) in flood.into_iter().enumerate() {
            processes[nth % (last + 1)].ranked.push(request);
        }
        let job = of_level(Priority::Low, std::iter::repeat_n(0, 500));
        processes[last].ranked.extend(job);
        let out = run_with(&[quota], reserves, &processes);
        let part = low(&out, 2.0, 58.0);
        println!("{quota} {in_one}: {part}");
        assert!((0.09..=0.11).contains(&part), "{quota} {in_one}: {part}");
        let without = run(&[quota], &processes);
        let starved = low(&without, 2.0, 58.0);
        assert!(starved < 0.02, "{quota} {in_one}: {starved}");
    }
}

/// Requests whose tenants are all new do not starve one that waits.
#[test]
fn new_shares_do_not_hold_up_those_that_wait() {
    let quota: Quota = "100/s gcra burst=5".parse().unwrap();
    let mut processes = vec![Process::default(); 2];
    for (nth, at) in (0..2_000).map(|nth| nth * 8).enumerate() {
        let name = format!("new {nth}");
        let request = of_share(&name, 1, std::iter::once(at));
        processes[nth % 2].ranked.extend(request);
    }
    let mut waiting = of_share("waiting", 1, std::iter::repeat_n(1_000, 300));
    processes[0].ranked.append(&mut waiting);
    let out = run(&[quota], &processes);
    let part = part_of(&out, "waiting", 2.0, 10.0);
    println!("{part}");
    assert!(part > 0.02, "{part}");
}

/// A request that takes a departure of another share is charged for it.
#[test]
fn shares_keep_their_parts_beside_requests_of_a_higher_level() {
    let quota: Quota = "50/s gcra burst=5".parse().unwrap();
    let mut processes = vec![Process::default(); 2];
    for (process, name) in [(0, "y"), (1, "z")] {
        let mut requests = of_share(name, 1, std::iter::repeat_n(0, 900));
        let low = requests.iter_mut();
        low.for_each(|(_, rank)| rank.priority = Priority::Low);
        processes[process].round_trip = 1;
        processes[process].ranked.append(&mut requests);
    }
    let high = of_level(Priority::High, (0..300).map(|nth| 1_000 + nth * 66));
    processes[0].ranked.extend(high);
    let out = run(&[quota], &processes);
    let (y, z) = (part_of(&out, "y", 2.0, 18.0), part_of(&out, "z", 2.0, 18.0));
    println!("{y} {z}");
    assert!((0.9..=1.1).contains(&(y / z)), "{y} {z}");
}
