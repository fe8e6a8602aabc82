//! Bounds of the rate, the order, the calls and the shares in simulations of several processes.

use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::simulation::{
    Done, Job, Kind, Outcome, Process, Scenario, burst, millis, of_rank, of_share, processes,
};
use super::*;

/// Processes with requests at random times, so many per second each.
fn random(count: usize, rate: f64, seconds: u64, costs: &[u32]) -> Vec<Process> {
    let mut rng = StdRng::seed_from_u64(7);
    let mut jobs = || {
        let mut at = 0.0;
        let next = || {
            at -= (1.0 - rng.random::<f64>()).ln() / rate * 1e3;
            let cost = costs[rng.random_range(0..costs.len())];
            let job = Job::at(at as u64);
            Some(Job { cost, ..job })
        };
        let jobs = std::iter::from_fn(next);
        jobs.take_while(|it| it.arrival < seconds * 1_000).collect()
    };
    let process = |_| Process {
        round_trip: 1,
        jobs: jobs(),
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

#[derive(Clone, Copy)]
struct Bounds {
    /// Seconds between which the rate is measured.
    span: (f64, f64),
    rate: f64,
    unfair: f64,
    /// The most calls for each request.
    calls: f64,
}

const USUAL: Bounds = Bounds {
    span: (3.0, 19.0),
    rate: 0.97,
    unfair: 0.001,
    calls: 0.6,
};

impl Bounds {
    fn rate(mut self, rate: f64, unfair: f64) -> Self {
        (self.rate, self.unfair) = (rate, unfair);
        self
    }

    fn calls(self, calls: f64) -> Self {
        Self { calls, ..self }
    }

    fn span(mut self, from: f64, until: f64) -> Self {
        self.span = (from, until);
        self
    }
}

#[track_caller]
fn assert_within(name: &str, quotas: &str, processes: Vec<Process>, bounds: Bounds) {
    let scenario = Scenario::new(quotas, processes);
    let out = scenario.run();
    let rate = out.rate(&scenario.parts.quotas, bounds.span.0, bounds.span.1);
    let fails = |it: &Process| it.killed.is_some() || it.stopped.is_some();
    let unfair = out.unfair(scenario.processes.iter().position(fails));
    let calls = out.calls as f64 / out.done.len() as f64;
    let measured = format!("{name}: rate {rate:.3}, unfair {unfair:.4}, calls {calls:.3}");
    assert!(rate >= bounds.rate && unfair <= bounds.unfair, "{measured}");
    assert!(calls <= bounds.calls, "{measured}");
    assert_eq!(out.refused, 0, "{name}");
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
        let bounds = USUAL.rate(rate, unfair);
        assert_within(&format!("{round_trips:?} ms"), "100/s", processes, bounds);
    }
}

#[test]
fn lost_calls_failing_processes_and_cancelled_requests_do_not_hold_back_the_others() {
    let lost = three(|_, it| it.lost_percent = 5);
    assert_within("lost", "100/s", lost, USUAL.rate(0.97, 0.03));
    let bounds = USUAL.span(7.0, 11.0);
    let stopped = three(|nth, it| it.stopped = (nth == 1).then_some((6_000, 9_500)));
    assert_within("stopped", "100/s", stopped, bounds);
    let killed = three(|nth, it| it.killed = (nth == 1).then_some(6_000));
    assert_within("killed", "100/s", killed, bounds);
    let mut oldest = three(|_, it| it.jobs = burst(100, 1_000, 0));
    oldest[0].jobs = burst(0, 1_000, 0);
    oldest[0].killed = Some(2_000);
    // The processes behind it do not poll until it no longer counts.
    let bounds = USUAL.calls(0.06);
    assert_within("oldest 1,000 killed", "100/s", oldest, bounds);
    let mut alike = three(|_, it| it.jobs = burst(100, 1_000, 0));
    alike[0].killed = Some(1_000);
    let bounds = USUAL.calls(0.06).span(2.0, 19.0);
    assert_within("one of 3 x 1,000 killed", "100/s", alike, bounds);
    let mut cancelled = three(|_, it| it.jobs = burst(100, 500, 0));
    cancelled[0].jobs = burst(0, 2_000, 0);
    let each = cancelled[0].jobs.iter_mut().skip(100);
    each.for_each(|it| it.kind = Kind::Cancelled(2_000));
    assert_within("cancelled", "200/s", cancelled, USUAL.span(0.5, 5.5));
    // Only processes that can use what was returned call.
    let mut returned = random(200, 0.7, 20, &[1]);
    let each = returned.iter_mut().step_by(10).flat_map(|it| &mut it.jobs);
    each.for_each(|it| (it.cost, it.kind) = (4, Kind::Forfeits));
    let bounds = USUAL.rate(0.94, 0.01).calls(3.0);
    assert_within("returned", "100/s", returned, bounds);
}

#[test]
fn a_thousand_processes_reach_the_rate() {
    let bounds = USUAL.span(2.0, 4.0).calls(8.0);
    let processes = random(1_000, 0.3, 4, &[1]);
    assert_within("1,000 processes", "100/s", processes, bounds);
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
        let bounds = USUAL.rate(0.95, unfair).calls(5.0);
        assert_within(quotas, quotas, random(3, rate, 20, &[1]), bounds);
    }
}

#[test]
fn mixed_costs_keep_the_rate() {
    let bounds = USUAL.rate(0.92, 0.03).calls(2.0);
    let mixed = random(3, 8.0, 100, &[1, 1, 1, 5, 20]);
    assert_within("costs of 1 to 20", "100/s", mixed, bounds.span(3.0, 99.0));
    let mut costly = random(3, 45.0, 60, &[1]);
    costly[0] = random(1, 0.6, 60, &[50]).remove(0);
    assert_within("a cost of 50", "100/s", costly, bounds.span(3.0, 59.0));
}

/// If each request needs its whole estimate to be free, 83% can be used, and 52% without settlements.
#[test]
fn settled_costs_use_the_quota_and_never_exceed_it_whatever_is_lost() {
    for (lost_percent, killed, least) in [(0, None, 0.7), (10, Some(9_000), 0.5)] {
        let mut rng = StdRng::seed_from_u64(7);
        let mut processes = processes([1; 3]);
        for process in &mut processes {
            process.lost_percent = lost_percent;
            process.jobs = burst(0, 60, 0);
            for job in &mut process.jobs {
                job.takes = rng.random_range(100..1_000);
                job.tokens = Some((2_000, rng.random_range(100..=2_000)));
            }
        }
        // For a window, what it has not settled counts.
        processes[2].killed = killed;
        let scenario = Scenario::new("60/3s + 20000/3s unit=tokens", processes);
        let used = scenario.run().rate(&scenario.parts.quotas[1..], 12.0, 24.0);
        assert!(used >= least, "{used:.2} used");
    }
}

#[test]
fn replicas_whose_requests_arrive_at_once_make_few_calls() {
    for (quota, requests, until, calls) in [
        ("200/s", 2_000, 29.0, 0.1),
        ("50/s", 1_000, 59.0, 0.1),
        ("100/5s", 500, 70.0, 0.1),
        ("1/s", 10, 29.0, 3.0),
    ] {
        let bounds = USUAL.span(0.0, until).calls(calls);
        let replicas = three(|_, it| it.jobs = burst(1, requests, 0));
        assert_within(quota, quota, replicas, bounds);
    }
}

/// The longest time in which requests waited though a quota of this limit and window, in seconds, was not used up.
fn unused(out: &Outcome, limit: usize, window: u64) -> Duration {
    let unused = out.done.iter().enumerate().map(|(nth, it)| {
        let left = out.done[nth..].iter();
        let left = left.filter(|it| it.job.kind == Kind::Departs);
        let since = left.map(|it| it.arrival).min().unwrap_or(it.from);
        let free = nth.checked_sub(limit).map(|nth| out.done[nth].from);
        let free = free.map_or(since, |from| since.max(from + millis(window * 1_000)));
        it.from.saturating_sub(free)
    });
    unused.max().unwrap_or_default()
}

/// Groups of requests arrive within milliseconds in several processes. Some groups are cancelled, or do not use their permits.
/// A process may die, and takes a window along. Where no nudges arrive, each process has a few requests that arrive at once, and all depart.
#[test]
fn no_departure_stays_unused_while_requests_wait() {
    // In the last two, a process with several shares dies.
    for seed in (0..300).chain([9_003, 81_711]) {
        let mut rng = StdRng::seed_from_u64(seed);
        let (limit, window) = [(1, 1), (3, 2), (10, 1), (2, 5)][rng.random_range(0..4)];
        let (is_deaf, is_killed) = (seed % 2 == 0, seed % 3 == 0 && seed % 2 == 1);
        let mut processes = processes([1, 5, 40, 1, 5]);
        processes.truncate(rng.random_range(2..6));
        let groups = if is_deaf { 1 } else { 3 };
        for nth in 0..groups * processes.len() {
            let at = rng.random_range(0..if is_deaf { 1 } else { 8_000 });
            let count = [1, 2, 8, 20][rng.random_range(0..if is_deaf { 3 } else { 4 })];
            let mut time = |_| at + rng.random_range(0..10);
            let times: Vec<_> = (0..count).map(&mut time).collect();
            let rank = match seed % 4 {
                1 => LEVELS[rng.random_range(0..5)].into(),
                3 => of_share(["a", "b", "c"][rng.random_range(0..3)], 1),
                _ => Rank::default(),
            };
            let mut jobs = of_rank(rank, times.into_iter());
            if !is_deaf && rng.random_bool(0.4) {
                let cancelled = Kind::Cancelled(rng.random_range(0..8_000));
                let kind = [cancelled, Kind::Forfeits][rng.random_range(0..2)];
                jobs.iter_mut().for_each(|it| it.kind = kind);
            }
            let process = nth % processes.len();
            processes[process].jobs.extend(jobs);
            processes[process].jitter = 9;
        }
        processes[0].killed = is_killed.then(|| rng.random_range(100..9_000));
        let mut scenario = Scenario::new(&format!("{limit}/{window}s"), processes);
        scenario.is_deaf = is_deaf;
        let unused = unused(&scenario.run(), limit, window);
        let most = millis(500 + if is_killed { window * 1_000 } else { 0 });
        assert!(unused <= most, "{limit}/{window}s, {seed}: {unused:?}");
    }
}

/// The process with most of the requests dies, and others expect to wait for it. Either no nudge arrives, or the requests
/// right behind its own are cancelled just before it is overdue.
#[test]
fn no_departure_stays_unused_after_a_process_was_killed() {
    let mut deaf = processes([1; 3]);
    for (process, nth) in deaf.iter_mut().zip(0..) {
        process.jobs = burst(nth * 300, [60, 10, 10][nth as usize], 0);
    }
    deaf[0].killed = Some(2_400);
    let mut behind = processes([20, 60, 1]);
    behind[0].jobs = burst(0, 40, 0);
    behind[0].killed = Some(4_950);
    behind[1].jobs = burst(1_000, 8, 0);
    let each = behind[1].jobs.iter_mut();
    each.for_each(|it| it.kind = Kind::Cancelled(4_000));
    behind[1].jobs.extend(burst(3_000, 8, 0));
    behind[2].jobs = burst(2_000, 5, 0);
    // The dead process has requests of each level.
    let mut in_lanes = behind.clone();
    let each = in_lanes.iter_mut().flat_map(|it| &mut it.jobs);
    each.for_each(|it| it.rank = Priority::Lowest.into());
    for (jobs, level) in in_lanes[0].jobs.chunks_mut(8).zip(LEVELS) {
        jobs.iter_mut().for_each(|it| it.rank = level.into());
    }
    for (processes, is_deaf) in [(deaf, true), (behind, false), (in_lanes, false)] {
        let mut scenario = Scenario::new("1/s", processes);
        scenario.is_deaf = is_deaf;
        let unused = unused(&scenario.run(), 1, 1);
        assert!(unused <= millis(500), "{unused:?}");
    }
}

const LEVELS: [Priority; 5] = [
    Priority::Highest,
    Priority::High,
    Priority::Normal,
    Priority::Low,
    Priority::Lowest,
];

#[test]
fn levels_are_strict_and_keep_the_order_of_arrival() {
    for quota in ["2/s", "2 concurrent"] {
        let mut processes = processes([1; 3]);
        processes[0].jobs = burst(0, 2, 1_000);
        // Once they have spent the quota, two of each level join, the lowest first.
        for nth in 0..10 {
            let mut request = of_rank(LEVELS[4 - nth % 5], std::iter::once(100 + 10 * nth as u64));
            request[0].takes = 1_000;
            processes[nth % 5 % 3].jobs.extend(request);
        }
        let out = Scenario::new(quota, processes).run();
        let departed = out.done[2..].iter();
        let level = |it: &Done| it.job.rank.priority as usize;
        let departed: Vec<_> = departed.map(|it| (level(it), it.arrival)).collect();
        assert!(departed.is_sorted(), "{quota}: {departed:?}");
    }
}

fn job() -> impl Strategy<Value = Job> {
    let cost = prop_oneof![4 => Just(1_u32), 1 => 1..4_u32];
    let takes = prop::sample::select(vec![0, 1, 50, 900]);
    let kind = prop_oneof![
        5 => Just(Kind::Departs),
        1 => (0..800_u64).prop_map(Kind::Cancelled),
        1 => prop_oneof![Just(0), 0..100_u64].prop_map(Kind::Bounded),
        1 => Just(Kind::Forfeits),
    ];
    let rank = prop::option::weighted(0.3, (0..5_usize, 0..4_u32));
    (0..4_000_u64, cost, rank, takes, kind).prop_map(|(arrival, cost, rank, takes, kind)| {
        let (level, share) = rank.unwrap_or((2, 0));
        let shared = of_share(&share.to_string(), share);
        let rank = Rank {
            priority: LEVELS[level],
            share: shared.share.filter(|_| share > 0),
        };
        Job {
            cost,
            rank,
            takes,
            kind,
            ..Job::at(arrival)
        }
    })
}

fn process() -> impl Strategy<Value = Process> {
    let round_trip = prop::sample::select(vec![0, 1, 20, 150]);
    let jobs = prop::collection::vec(job(), 0..40);
    let lost = prop::sample::select(vec![0, 0, 10]);
    let time = || prop::option::weighted(0.2, 1..4_000_u64);
    (round_trip, jobs, lost, time(), time()).prop_map(
        |(round_trip, jobs, lost_percent, stopped, killed)| Process {
            round_trip,
            jitter: 0,
            jobs,
            lost_percent,
            // Else an outage may last for five seconds, and requests fail.
            stopped: stopped.filter(|_| lost_percent == 0).map(|at| (at, at)),
            killed,
        },
    )
}

fn quotas() -> impl Strategy<Value = String> {
    let rates = vec![
        "4/10ms",
        "9/200ms",
        "20/s",
        "7/s sliding-buckets buckets=3",
        "10/s gcra burst=4",
        "50/s spacing",
        "9/s fixed-window start=first-request",
        "30/2s",
    ];
    let places = vec![
        "3 concurrent lease=6s",
        "1 concurrent lease=5s",
        "5 concurrent lease=5s + 20/s",
        "4 concurrent lease=5s + 10/s gcra burst=2",
    ];
    prop_oneof![
        prop::sample::subsequence(rates, 1..3).prop_map(|it| it.join(" + ")),
        prop::sample::select(places).prop_map(String::from),
    ]
}

proptest! {
    #![proptest_config({
        let default = ProptestConfig::default();
        ProptestConfig { cases: default.cases / 2, failure_persistence: None, ..default }
    })]

    /// Each lease is renewed in time, as no process is stopped for long.
    #[test]
    fn all_requests_depart_within_the_quotas_and_none_leaks_whatever_fails(
        quotas in quotas(),
        processes in prop::collection::vec(process(), 1..5),
        reserves in prop::sample::select(vec![[0.0; 5], [0.0, 0.0, 0.3, 0.0, 0.2], [0.0, 0.0, 0.0, 0.0, 1.0]]),
        (is_deaf, aborts, changes) in (any::<bool>(), any::<bool>(), prop::option::weighted(0.3, 0..4_000_u64)),
    ) {
        let mut scenario = Scenario::new(&quotas, processes);
        let has_places = quotas.contains("concurrent");
        let limit = scenario.parts.quotas.iter().map(Quota::largest_cost).min().unwrap();
        // Costs count in one unit only.
        let most = if has_places && quotas.contains('+') { 1 } else { limit };
        for process in &mut scenario.processes {
            let stops = if has_places { 200 } else { 1_000 };
            process.stopped = process.stopped.map(|(at, _)| (at, at + stops));
            process.jobs.iter_mut().for_each(|it| it.cost = it.cost.min(most));
        }
        scenario.is_deaf = is_deaf;
        scenario.parts.reserves = reserves;
        scenario.parts.lost = if aborts { Lost::Abort } else { Lost::Continue };
        let changed = format!("{} + 1000/s + 5000/m", quotas.replace("=5s", "=9s"));
        scenario.change = changes.map(|at| (at, PolicyParts::of(&changed)));
        let out = scenario.run();
        for (nth, process) in scenario.processes.iter().enumerate() {
            let departs = |kind| kind == Kind::Departs;
            let departed = out.done.iter().filter(|it| it.process == nth && departs(it.job.kind));
            let asked = process.jobs.iter().filter(|it| departs(it.kind));
            prop_assert!(process.killed.is_some() || departed.count() == asked.count());
        }
        let limit = scenario.parts.quotas[0].limit();
        prop_assert!(!has_places || out.most_ever() <= limit as usize, "{} in progress", out.most_ever());
        prop_assert_eq!((out.aborted(), out.leaked), (0, 0));
    }
}

#[test]
fn requests_of_a_high_priority_do_not_wait_behind_thousands_of_others() {
    let at = |nth: u64| 1_000 + nth * 200 + nth * 37 % 100;
    let scenario = |count: usize, rank: Rank| {
        let mut processes = vec![processes([1]).remove(0); count];
        let each = processes.iter_mut();
        each.for_each(|it| it.jobs = burst(0, 2_100 / count, 0));
        processes[0].jobs.extend(of_rank(rank, (0..175).map(at)));
        Scenario::new("50/s gcra burst=5", processes).run()
    };
    for (count, most) in [(3, millis(200)), (1, millis(40))] {
        let out = scenario(count, Priority::High.into());
        let high = out.done.iter();
        let high = high.filter(|it| it.job.rank.priority == Priority::High);
        let mut waits: Vec<_> = high.map(|it| it.from - it.arrival).collect();
        waits.sort();
        // That of 99%.
        let wait = waits[(waits.len() * 99).div_ceil(100) - 1];
        assert!(wait <= most, "{count}: {wait:?}");
        let without = scenario(count, Rank::default());
        let last = |out: &Outcome| out.done.last().unwrap().from.as_secs_f64();
        let rate = last(&without) / last(&out);
        assert!(rate >= 0.99, "{count}: {rate}");
    }
}

#[test]
fn requests_whose_turns_a_higher_level_takes_keep_their_order() {
    let mut all = processes([1]);
    let high = (1..6).map(|nth| nth * 1_012 - 45);
    all[0].jobs = of_rank(Priority::Low, 0..40);
    all[0].jobs.append(&mut of_rank(Priority::High, high));
    let mut low = Scenario::new("5/s", all).run().done;
    low.retain(|it| it.job.rank.priority == Priority::Low);
    assert!(low.is_sorted_by_key(|it| it.arrival));
}

#[test]
fn a_departure_that_a_level_does_not_use_goes_to_the_next_level_in_all_processes_and_shares() {
    for count in [1, 2] {
        let of = |share, priority, times| {
            let share = of_share(share, 1);
            of_rank(Rank { priority, ..share }, times)
        };
        let mut all = processes([1, 1]);
        all.truncate(count);
        let mut unused = of("a", Priority::High, 10..30);
        unused.iter_mut().for_each(|it| it.kind = Kind::Forfeits);
        let lowest = of("a", Priority::Lowest, 30..40);
        all[0].jobs = [of("a", Priority::Highest, 0..10), unused, lowest].concat();
        let normal = of("b", Priority::Normal, 30..40);
        all[count - 1].jobs.extend(normal);
        let out = Scenario::new("10/1s", all).run();
        let levels = out.done.iter().map(|it| it.job.rank.priority);
        assert_eq!(out.done.len(), 30);
        assert!(levels.is_sorted(), "{count}: {:?}", out.done);
    }
}

#[test]
fn requests_without_tokens_do_not_wait_for_those_with_tokens() {
    let mut all = processes([1]);
    for (tokens, nth) in
        (0..50).flat_map(|nth| (0..21).map(move |it| (it.min(1) as u32, 20 * nth + it)))
    {
        let mut job = Job::at(7 * nth);
        job.tokens = Some((tokens, tokens));
        all[0].jobs.push(job);
    }
    let scenario = Scenario::new("200/s + 20/s gcra burst=5 unit=tokens", all);
    let mut free = scenario.run().done;
    free.retain(|it| it.job.tokens == Some((0, 0)));
    assert!(free.iter().all(|it| it.from - it.arrival < SECOND / 2));
}

#[test]
fn what_requests_with_tokens_need_until_the_horizon_is_kept_for_them() {
    let mut all = processes([1, 60]);
    for tokens in [0, 1] {
        let times = (0..10).map(|nth| nth * 9).chain(200..210);
        all[0].jobs.append(&mut of_rank(Priority::High, times));
        let new = &mut all[0].jobs[20 * tokens as usize..];
        (new.iter_mut()).for_each(|it| it.tokens = Some((tokens, tokens)));
    }
    all[1].jobs = of_rank(Priority::Normal, 210..230);
    (all[1].jobs.iter_mut()).for_each(|it| it.tokens = Some((0, 0)));
    let done = Scenario::new("20/s + 10/s unit=tokens", all).run().done;
    let first = done[..40].iter().map(|it| it.job.rank.priority);
    assert_eq!(first.filter(|it| *it != Priority::High).count(), 0);
}

#[test]
fn requests_without_tokens_are_not_refused_for_those_with_tokens_that_arrived_later() {
    let mut all = processes([1, 1]);
    all[0].jobs = of_rank(Priority::Normal, (0..100).map(|nth| nth * 10));
    (all[0].jobs.iter_mut()).for_each(|it| it.tokens = Some((1, 1)));
    all[1].jobs = of_rank(Priority::Normal, (0..5).map(|nth| 201 + nth * 30));
    for job in &mut all[1].jobs {
        (job.tokens, job.kind) = (Some((0, 0)), Kind::Bounded(3_000));
    }
    let out = Scenario::new("10/s + 20/s unit=tokens", all).run();
    assert_eq!(out.refused, 0);
}

/// Requests of a lower level take over within a second, and none starves.
#[test]
fn a_process_of_a_high_priority_that_is_killed_or_stopped_does_not_hold_back_the_others() {
    for (killed, stopped) in [(Some(4_000), None), (None, Some((4_000, 7_500)))] {
        let mut processes = processes([1; 3]);
        let each = processes.iter_mut();
        each.for_each(|it| it.jobs = burst(0, 400, 0));
        // It has half of the quota.
        processes[0].jobs = of_rank(Priority::High, (0..400).map(|nth| nth * 20));
        (processes[0].killed, processes[0].stopped) = (killed, stopped);
        let out = Scenario::new("100/s", processes).run();
        let rate = out.rate(&[Quota::per_second(100)], 5.0, 7.5);
        assert!(rate >= 0.97, "{rate}");
        let normal = out.done.iter().filter(|it: &&Done| it.process > 0);
        assert_eq!(normal.count(), 800);
    }
}

#[test]
fn shares_divide_capacity_by_their_weights_however_they_are_spread() {
    for (quota, span, least) in [
        ("10/s", 80, 0.97),
        ("100/s", 30, 0.97),
        ("50/s gcra burst=5", 30, 0.97),
        // Shares cost no part of the first one's rate. Spacing gives up a part of each grant to another process.
        ("100/5s", 60, 0.93),
        ("20/s spacing", 60, 0.8),
    ] {
        let mut processes = processes([1, 5, 20]);
        let quotas = [quota.parse::<Quota>().unwrap()];
        let rate = f64::from(quotas[0].limit()) / quotas[0].window().as_secs_f64();
        let count = |part: f64| (rate * f64::from(span) * part * 1.3) as usize;
        // The first has requests of all shares, the others of one or two.
        for (process, name, weight, part) in [
            (0, "a", 1, 0.04),
            (0, "b", 2, 0.20),
            (0, "c", 5, 0.10),
            (1, "a", 1, 0.09),
            (1, "b", 2, 0.05),
            (2, "c", 5, 0.53),
        ] {
            let times = std::iter::repeat_n(0, count(part));
            let jobs = of_rank(of_share(name, weight), times);
            processes[process].jobs.extend(jobs);
        }
        let out = Scenario::new(quota, processes).run();
        let rate = out.rate(&quotas, 1.0, f64::from(span) - 1.0);
        let calls = out.calls as f64 / out.done.len() as f64;
        let parts = ["a", "b", "c"].map(|name| out.part_of(name, 5.0, f64::from(span)));
        let measured = format!("{quota}: {parts:.4?}, rate {rate:.3}, calls {calls:.2}");
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
    for (count, returns) in [(1, 5), (3, 5), (3, 1)] {
        let mut processes = vec![processes([2]).remove(0); count];
        let last = count - 1;
        // It is done after 20 seconds, and returns 20 seconds later.
        for (process, name, weight, at, requests) in [
            (0, "a", 1, 0, 3_000),
            (last / 2, "b", 2, 0, 4_000),
            (last, "c", 5, 0, 20 * 100 * 5 / 8),
            (last, "c", returns, 40_000, 3_000),
        ] {
            let times = std::iter::repeat_n(at, requests);
            let jobs = of_rank(of_share(name, weight), times);
            processes[process].jobs.extend(jobs);
        }
        let out = Scenario::new("100/s", processes).run();
        let rate = out.rate(&[Quota::per_second(100)], 21.0, 39.0);
        assert!(rate >= 0.97, "{count}: {rate}");
        let total = f64::from(3 + returns);
        for (name, weight, from, until, total) in [
            ("a", 1.0, 21.5, 39.5, 3.0),
            ("b", 2.0, 21.5, 39.5, 3.0),
            ("a", 1.0, 41.0, 59.0, total),
            ("b", 2.0, 41.0, 59.0, total),
            ("c", f64::from(returns), 41.0, 59.0, total),
        ] {
            let relative = out.part_of(name, from, until) * total / weight;
            let is_fair = (0.95..=1.05).contains(&relative);
            assert!(is_fair, "{count}: {name} {from} {relative}");
        }
        let first = out.part_of("c", 40.0, 42.0) * total / f64::from(returns);
        // Within a second, a call may grant a part of a window to one share.
        assert!((0.8..=1.2).contains(&first), "{count}: {first}");
    }
}

#[test]
fn a_reserve_guarantees_its_part_and_no_more_under_a_flood_of_a_higher_level() {
    for (quota, count) in [
        ("50/s", 3),
        ("50/s gcra burst=5", 3),
        ("50/s gcra burst=5", 1),
        ("10/s", 3),
    ] {
        let mut processes = vec![processes([1]).remove(0); count];
        let limit = quota.parse::<Quota>().unwrap().limit();
        // A sixth more than the quota for half a minute, over a job of low priority.
        let gap = 1_000 / u64::from(limit) * 5 / 6;
        let flood = of_rank(Priority::High, (0..30_000 / gap).map(|nth| nth * gap));
        for (nth, request) in flood.into_iter().enumerate() {
            processes[nth % count].jobs.push(request);
        }
        let job = of_rank(Priority::Low, std::iter::repeat_n(0, 300));
        processes[count - 1].jobs.extend(job);
        let mut scenario = Scenario::new(quota, processes);
        let low = |out: &Outcome| out.part(2.0, 28.0, |it| it.priority == Priority::Low);
        let starved = low(&scenario.run());
        scenario.parts.reserves[Priority::Low as usize] = 0.1;
        let part = low(&scenario.run());
        assert!((0.09..=0.11).contains(&part), "{quota} {count}: {part}");
        assert!(starved < 0.02, "{quota} {count}: {starved}");
    }
}

#[test]
fn new_shares_do_not_hold_up_those_that_wait() {
    let mut processes = processes([0; 2]);
    for nth in 0..2_000 {
        let share = of_share(&format!("new {nth}"), 1);
        let request = of_rank(share, std::iter::once(nth * 8));
        processes[nth as usize % 2].jobs.extend(request);
    }
    let waiting = of_rank(of_share("waiting", 1), std::iter::repeat_n(1_000, 300));
    processes[0].jobs.extend(waiting);
    let out = Scenario::new("100/s gcra burst=5", processes).run();
    let part = out.part_of("waiting", 2.0, 10.0);
    assert!(part > 0.02, "{part}");
}

/// A request that takes a departure of another share is charged for it.
#[test]
fn shares_keep_their_parts_beside_requests_of_a_higher_level() {
    let mut processes = processes([1; 2]);
    for (process, name) in [(0, "y"), (1, "z")] {
        let rank = Rank {
            priority: Priority::Low,
            ..of_share(name, 1)
        };
        processes[process].jobs = of_rank(rank, std::iter::repeat_n(0, 900));
    }
    let high = of_rank(Priority::High, (0..300).map(|nth| 1_000 + nth * 66));
    processes[0].jobs.extend(high);
    let out = Scenario::new("50/s gcra burst=5", processes).run();
    let [y, z] = ["y", "z"].map(|name| out.part_of(name, 2.0, 18.0));
    assert!((0.9..=1.1).contains(&(y / z)), "{y} {z}");
}
