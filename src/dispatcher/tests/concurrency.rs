//! Requests in progress, in several processes with round trips and failures, in paused time.

use proptest::prelude::*;

use super::*;
use crate::acquire::Acquire;
use crate::permit::Permit;
use crate::policy::{Lost, Outage};
use crate::priority::Priority;

/// A request: its process, its arrival, and how long its work takes, in milliseconds.
type Job = (usize, u64, u64);

/// A failure of a process.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Failure {
    /// It dies at this time, with its work.
    Killed(u64),
    /// It does not reach the store from a time to another.
    Cut(u64, u64),
    /// So many of 100 of its calls are lost.
    Loses(u64),
}

/// Work that was done: its process, its begin and its end.
#[derive(Debug, Clone, Copy)]
struct Done {
    process: usize,
    arrival: Duration,
    from: Duration,
    until: Duration,
}

#[derive(Debug, Clone)]
struct Scenario {
    quotas: Vec<Quota>,
    lost: Lost,
    outage: Outage,
    has_nudges: bool,
    round_trips: Vec<u64>,
    failures: Vec<(usize, Failure)>,
    jobs: Vec<Job>,
}

impl Scenario {
    fn new(quotas: &str, round_trips: &[u64]) -> Self {
        Self {
            quotas: quotas.split(" + ").map(|it| it.parse().unwrap()).collect(),
            lost: Lost::default(),
            outage: Outage::default(),
            has_nudges: true,
            round_trips: round_trips.to_vec(),
            failures: Vec::new(),
            jobs: Vec::new(),
        }
    }

    fn run(&self) -> Outcome {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        let ends = async { timeout(900 * SECOND, self.run_all()).await };
        runtime.block_on(ends).expect("no request waits for ever")
    }

    async fn run_all(&self) -> Outcome {
        let (memory, start, network) = (MemoryStore::new(), Instant::now(), Network::default());
        let parts = PolicyParts {
            quotas: self.quotas.iter().copied().collect(),
            lost: self.lost,
            outage: self.outage,
            ..PolicyParts::default()
        };
        let plan = parts.plan().unwrap();
        let processes = self.round_trips.iter().map(|&round_trip| {
            let mut store = Remote::new_on(memory.clone(), Duration::from_millis(round_trip));
            store.network = self.has_nudges.then(|| network.clone());
            let store = Arc::new(store);
            let dispatcher = Dispatcher::new(store.clone(), None, "".into());
            let handle = Handle::new(&dispatcher, plan.clone(), Settings::default(), 100);
            (store, handle)
        });
        let processes: Vec<_> = processes.collect();
        let at = move |millis| start + Duration::from_millis(millis);
        for &(process, failure) in &self.failures {
            let store = processes[process].0.clone();
            let faults = match failure {
                Failure::Killed(from) => vec![(from, Fault::Silent)],
                Failure::Cut(from, until) => vec![(from, Fault::Out), (until, Fault::None)],
                Failure::Loses(percent) => vec![(0, Fault::Loses(percent))],
            };
            tokio::spawn(async move {
                for (from, fault) in faults {
                    tokio::time::sleep_until(at(from)).await;
                    store.set(fault);
                }
            });
        }
        let mut tasks = Vec::new();
        for &(process, arrival, takes) in &self.jobs {
            let handle = processes[process].1.clone();
            let killed = self
                .failures
                .iter()
                .find_map(|(it, failure)| match failure {
                    Failure::Killed(at) if *it == process => Some(*at),
                    _ => None,
                });
            let killed = killed.map_or(at(1 << 40), at);
            tasks.push(tokio::spawn(async move {
                tokio::time::sleep_until(at(arrival)).await;
                let acquire = tokio::time::timeout_at(killed, Acquire::new(handle, key()));
                let place = acquire.await.ok()?.ok().map(Permit::hold)?;
                let from = start.elapsed();
                let work = tokio::time::sleep(Duration::from_millis(takes));
                // The work of a process that dies ends with it.
                let ended = tokio::time::timeout_at(killed, place.run(work)).await;
                let until = start.elapsed();
                Some((
                    Done {
                        process,
                        arrival: at(arrival) - start,
                        from,
                        until,
                    },
                    ended.is_ok_and(|ended| ended.is_err()),
                ))
            }));
        }
        let mut out = Outcome::default();
        for task in tasks {
            if let Some((done, aborted)) = task.await.unwrap() {
                out.done.push(done);
                out.aborted += usize::from(aborted);
            }
        }
        out.calls = processes.iter().map(|(store, _)| store.calls()).sum();
        // Everything is released, and everything forgotten, also of processes that are dead.
        pass(60_000).await;
        let look = Remote::on(memory.clone(), Duration::ZERO);
        let dispatcher = Dispatcher::new(look, None, "".into());
        let handle = Handle::new(&dispatcher, plan, Settings::default(), 0);
        let snapshot = crate::peek::Peek::new(handle, key()).await.unwrap();
        out.leaked = snapshot.places().unwrap().held;
        let idle = processes.iter().all(|(_, handle)| handle.queues() == 0);
        assert!(idle || !self.failures.is_empty(), "queues are left");
        out
    }
}

#[derive(Debug, Default)]
struct Outcome {
    done: Vec<Done>,
    aborted: usize,
    calls: u64,
    leaked: u32,
}

impl Outcome {
    /// The most in progress at once, between two times.
    fn most(&self, from: Duration, until: Duration) -> usize {
        let begins = self.done.iter().map(|it| (it.from, 1));
        let ends = self.done.iter().map(|it| (it.until, -1));
        let mut events: Vec<(Duration, i32)> = begins.chain(ends).collect();
        events.sort_unstable();
        let (mut count, mut most) = (0, 0);
        for (nth, &(at, more)) in events.iter().enumerate() {
            count += more;
            let next = events.get(nth + 1).map_or(Duration::MAX, |next| next.0);
            if at < until && next > from {
                most = most.max(count);
            }
        }
        most as usize
    }

    fn most_ever(&self) -> usize {
        self.most(Duration::ZERO, Duration::MAX)
    }

    /// The part of the time between two seconds in which the limit is in use.
    fn used(&self, limit: u32, from: f64, until: f64) -> f64 {
        let overlap = |it: &Done| {
            let (start, end) = (it.from.as_secs_f64(), it.until.as_secs_f64());
            (end.min(until) - start.max(from)).max(0.0)
        };
        let sum: f64 = self.done.iter().map(overlap).sum();
        sum / (until - from) / f64::from(limit)
    }
}

/// So many jobs at once.
fn burst(process: usize, arrival: u64, count: usize, takes: u64) -> Vec<Job> {
    vec![(process, arrival, takes); count]
}

#[test]
fn places_are_handed_over_at_once_where_nudges_arrive_and_within_100_ms_where_not() {
    for (has_nudges, least) in [(true, 0.97), (false, 0.85)] {
        let mut scenario = Scenario::new("20 concurrent", &[1, 5, 20]);
        scenario.has_nudges = has_nudges;
        scenario.jobs = (0..3).flat_map(|it| burst(it, 0, 400, 500)).collect();
        let out = scenario.run();
        let (most, used) = (out.most_ever(), out.used(20, 1.0, 25.0));
        println!("nudges {has_nudges}: used {used:.3}, {} calls", out.calls);
        assert_eq!(most, 20);
        assert!(used > least, "{used}");
        assert_eq!((out.done.len(), out.leaked), (1_200, 0));
    }
}

#[test]
fn requests_of_several_processes_depart_in_order_of_arrival() {
    let mut scenario = Scenario::new("5 concurrent", &[1, 1, 1]);
    scenario.jobs = (0..600).map(|it| (it as usize % 3, it * 10, 100)).collect();
    let out = scenario.run();
    let mut done = out.done.clone();
    done.sort_by_key(|it| it.from);
    let overtakes = |(nth, it): (usize, &Done)| {
        let later = done[nth + 1..].iter();
        later
            .filter(|other| other.arrival + SECOND / 4 < it.arrival)
            .count()
    };
    let unfair: usize = done.iter().enumerate().map(overtakes).sum();
    assert_eq!((out.most_ever(), unfair), (5, 0));
    println!("calls: {}", out.calls);
}

#[test]
fn the_places_of_a_process_that_dies_are_free_when_its_lease_ends() {
    let mut scenario = Scenario::new("20 concurrent lease=10s", &[1, 1, 1]);
    scenario.failures = vec![(0, Failure::Killed(5_000))];
    scenario.jobs = burst(0, 0, 8, 60_000);
    scenario
        .jobs
        .extend((1..3).flat_map(|it| burst(it, 100, 300, 2_000)));
    let out = scenario.run();
    assert_eq!(out.most_ever(), 20);
    // Until then, the others use the rest.
    assert!(out.used(12, 6.0, 10.0) > 0.9);
    let used = out.used(20, 16.0, 30.0);
    assert!(used > 0.95, "{used}");
    assert_eq!(out.leaked, 0);
}

#[test]
fn a_process_that_dies_while_it_waits_holds_up_the_others_for_200_ms() {
    let mut scenario = Scenario::new("1 concurrent", &[1, 1, 1]);
    scenario.failures = vec![(1, Failure::Killed(500))];
    // The first one releases its place after the one that is next has died.
    scenario.jobs = vec![(0, 0, 1_000), (1, 100, 1_000), (2, 200, 1_000)];
    let out = scenario.run();
    let third = out.done.iter().find(|it| it.process == 2).unwrap();
    assert!(third.from < Duration::from_millis(1_210), "{third:?}");
}

#[test]
fn a_rate_is_not_spent_by_requests_that_find_no_place() {
    let mut scenario = Scenario::new("5 concurrent + 600/m", &[1, 1]);
    scenario.jobs = (0..2).flat_map(|it| burst(it, 0, 60, 1_000)).collect();
    let out = scenario.run();
    assert_eq!((out.done.len(), out.most_ever()), (120, 5));
    // All have departed within a minute, so each has spent one.
    let last = out.done.iter().map(|it| it.from).max().unwrap();
    assert!(last < 26 * SECOND, "{last:?}");
}

#[test]
fn a_process_that_cannot_renew_starts_nothing_and_its_work_goes_on_or_is_dropped() {
    for (lost, most) in [(Lost::Continue, 8), (Lost::Abort, 4)] {
        let mut scenario = Scenario::new("4 concurrent lease=3s", &[1, 1]);
        scenario.lost = lost;
        scenario.failures = vec![(0, Failure::Cut(1_000, 20_000))];
        scenario.jobs = burst(0, 0, 12, 10_000);
        scenario.jobs.extend(burst(1, 500, 60, 1_000));
        let out = scenario.run();
        assert_eq!(out.most_ever(), most, "{lost:?}");
        let started = |it: &&Done| it.process == 0 && it.from > SECOND && it.from < 20 * SECOND;
        assert_eq!(out.done.iter().filter(started).count(), 0);
        let aborted = if lost == Lost::Abort { 4 } else { 0 };
        assert_eq!((out.aborted, out.leaked), (aborted, 0));
    }
}

#[test]
fn places_that_were_lost_are_counted_again_when_the_store_is_back() {
    let mut scenario = Scenario::new("4 concurrent lease=2s", &[1, 1]);
    scenario.failures = vec![(0, Failure::Cut(1_000, 6_000))];
    scenario.jobs = burst(0, 0, 4, 12_000);
    scenario.jobs.extend(burst(1, 3_500, 40, 500));
    let out = scenario.run();
    assert_eq!(out.most(Duration::ZERO, 6 * SECOND), 8);
    // From then on, nothing departs while four are in progress.
    assert_eq!(out.most(8 * SECOND, 12 * SECOND), 4);
    assert_eq!((out.done.len(), out.leaked), (44, 0));
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_a_place_until_its_bound_and_no_longer() {
    let memory = MemoryStore::new();
    let new = || {
        remote(
            &Remote::on(memory.clone(), SECOND / 500),
            "1 concurrent".parse().unwrap(),
            None,
        )
    };
    let (first, second) = (new(), new());
    let place = Acquire::new(first, key()).await.unwrap().hold();
    for millis in [20, 60, 300] {
        let start = Instant::now();
        let acquire = Acquire::new(second.clone(), key());
        let refused = acquire.max_wait(Duration::from_millis(millis)).await;
        assert!(refused.unwrap_err().is_limited());
        assert_since(start, millis..millis + 10);
    }
    drop(place);
}

#[test]
fn places_that_are_released_together_reach_all_who_wait() {
    let mut scenario = Scenario::new("5 concurrent", &[1; 6]);
    scenario.jobs = burst(0, 0, 5, 1_400);
    scenario.jobs.extend((1..6).map(|it| (it, 100, 1_000)));
    let out = scenario.run();
    let last = out.done.iter().map(|it| it.from).max().unwrap();
    assert!(last < Duration::from_millis(1_450), "{last:?}");
    assert_eq!((out.most_ever(), out.leaked), (5, 0));
}

#[test]
fn places_that_are_released_in_an_outage_are_free_when_it_ends() {
    for outage in [Outage::Deny, Outage::Local { share: 0.5 }] {
        let mut scenario = Scenario::new("3 concurrent lease=20s", &[1, 1]);
        scenario.outage = outage;
        scenario.failures = vec![(0, Failure::Cut(1_000, 4_000))];
        // One request fails in the outage, so that the store is known to be out when the others end.
        scenario.jobs = burst(0, 0, 3, 2_500);
        scenario.jobs.push((0, 1_500, 1));
        scenario.jobs.extend(burst(1, 500, 3, 1_000));
        let out = scenario.run();
        let last = out.done.iter().filter(|it| it.process == 1);
        let last = last.map(|it| it.from).max().unwrap();
        assert!(last < 6 * SECOND, "{outage:?}: {last:?}");
        assert_eq!((out.most_ever(), out.leaked), (3, 0));
    }
}

#[test]
fn a_process_with_many_keys_renews_them_in_few_calls() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let store = Remote::new(Duration::from_millis(1));
        let handle = remote(&store, "9 concurrent lease=6s".parse().unwrap(), None);
        let mut places = Vec::new();
        for nth in 0..60 {
            pass(37).await;
            let permit = Acquire::new(handle.clone(), Key::new(format!("{nth}"))).await;
            places.push(permit.unwrap().hold());
        }
        let before = store.calls();
        pass(60_000).await;
        // Each key is renewed after two thirds of its lease, and those in between at the same times.
        let calls = store.calls() - before;
        assert!((10..=32).contains(&calls), "{calls}");
        assert!(places.iter().all(|place| !place.is_lost()));
    });
}

#[tokio::test(start_paused = true)]
async fn requests_of_a_high_priority_get_the_next_place() {
    let handle = embedded("1 concurrent".parse().unwrap());
    let take = |priority| Acquire::new(handle.clone(), key()).priority(priority);
    let first = take(Priority::Low).await.unwrap().hold();
    let low = tokio::spawn(take(Priority::Low));
    pass(10).await;
    let high = tokio::spawn(take(Priority::High));
    pass(10).await;
    drop(first);
    let high = high.await.unwrap().unwrap();
    pass(1_000).await;
    assert!(!low.is_finished());
    drop(high);
    low.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn permits_that_are_dropped_forfeited_or_cancelled_leave_no_place() {
    let parts = PolicyParts {
        quotas: smallvec![Quota::concurrent(3), Quota::per_second(1_000)],
        ..PolicyParts::default()
    };
    let store = MemoryStore::new();
    let dispatcher = Dispatcher::new(Arc::new(store.clone()), Some(store), "".into());
    let handle = Handle::new(&dispatcher, parts.plan().unwrap(), Settings::default(), 0);
    let take = || Acquire::new(handle.clone(), key());
    let look = async || {
        let peek = crate::peek::Peek::new(handle.clone(), key()).await;
        peek.unwrap().places().unwrap().held
    };
    let permit = take().await.unwrap();
    assert_eq!(look().await, 1);
    drop(permit);
    assert_eq!(look().await, 0);
    take().await.unwrap().forfeit();
    assert_eq!(look().await, 0);
    let places = [take().await, take().await, take().await].map(|it| it.unwrap().hold());
    let waits = tokio::spawn(take());
    pass(10).await;
    waits.abort();
    pass(10).await;
    assert_eq!(look().await, 3);
    drop(places);
    assert_eq!(look().await, 0);
    assert_eq!(handle.queues(), 0);
}

fn scenario() -> impl Strategy<Value = Scenario> {
    let round_trip = prop::sample::select(vec![0, 1, 5, 40]);
    let round_trips = prop::collection::vec(round_trip, 1..4);
    let job = (
        0..3_usize,
        0..9_000_u64,
        prop::sample::select(vec![0, 1, 50, 900, 4_000]),
    );
    let jobs = prop::collection::vec(job, 1..80);
    let failure = prop_oneof![
        (0..8_000_u64).prop_map(Failure::Killed),
        (0..8_000_u64, 0..200_u64).prop_map(|(from, lasts)| Failure::Cut(from, from + lasts)),
        (1..20_u64).prop_map(Failure::Loses),
    ];
    let failures = prop::collection::vec((0..3_usize, failure), 0..3);
    let quotas = prop::sample::select(vec![
        "3 concurrent lease=6s",
        "1 concurrent lease=5s",
        "5 concurrent lease=5s + 20/s",
        "4 concurrent lease=5s + 10/s gcra burst=2",
    ]);
    let rest = (quotas, any::<bool>(), any::<bool>());
    (round_trips, jobs, failures, rest).prop_map(|(round_trips, jobs, failures, rest)| {
        let count = round_trips.len();
        let (quotas, has_nudges, aborts) = rest;
        let mut scenario = Scenario::new(quotas, &round_trips);
        scenario.has_nudges = has_nudges;
        scenario.lost = if aborts { Lost::Abort } else { Lost::Continue };
        scenario.jobs = jobs
            .into_iter()
            .map(|it| (it.0 % count, it.1, it.2))
            .collect();
        // One of each process.
        let failures = failures.into_iter().map(|it| (it.0 % count, it.1));
        scenario.failures = failures.collect::<HashMap<_, _>>().into_iter().collect();
        scenario
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Outages in these histories are short enough to renew each lease in time.
    #[test]
    fn never_more_are_in_progress_and_none_leak(scenario in scenario()) {
        let out = scenario.run();
        let limit = scenario.quotas[0].limit() as usize;
        prop_assert!(out.most_ever() <= limit, "{} of {limit}", out.most_ever());
        prop_assert_eq!(out.leaked, 0);
        prop_assert_eq!(out.aborted, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn shares_divide_the_places_by_their_weights() {
    let handle = embedded("4 concurrent".parse().unwrap());
    let started = Arc::new(Mutex::new(Vec::new()));
    let begun = Instant::now();
    for (name, weight) in [("a", 1), ("b", 3)] {
        for _ in 0..300 {
            let (handle, started) = (handle.clone(), started.clone());
            tokio::spawn(async move {
                let acquire = Acquire::new(handle, key()).share(name, weight);
                let place = acquire.await.unwrap().hold();
                started.lock().push((begun.elapsed(), name));
                pass(100).await;
                drop(place);
            });
        }
    }
    // Both wait all the time.
    pass(9_000).await;
    let started = started.lock();
    let of = |share| started.iter().filter(|(_, name)| *name == share).count();
    let (a, b) = (of("a"), of("b"));
    assert!(a + b >= 350, "{a} + {b}");
    let part = a as f64 / (a + b) as f64;
    assert!((0.24..0.27).contains(&part), "{part}");
}
