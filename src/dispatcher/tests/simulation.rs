//! Processes with round trips and failures that share a key, in paused time: [`Scenario`].

use super::*;
use crate::charge::Charge;
use crate::permit::Permit;
use crate::priority::Share;
use crate::quota::{Algorithm, CONCURRENT, REQUESTS};
use crate::test_util::history::History;
use support::progress::at_once;

/// Times are milliseconds from the start.
#[derive(Debug, Clone, Default)]
pub(super) struct Scenario {
    pub(super) parts: PolicyParts,
    /// The processes get no nudges.
    pub(super) is_deaf: bool,
    pub(super) processes: Vec<Process>,
    /// From this time on, one process after the other has another policy for two seconds.
    pub(super) change: Option<(u64, PolicyParts)>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Process {
    pub(super) round_trip: u64,
    /// Calls take up to so much longer to arrive.
    pub(super) jitter: u64,
    pub(super) jobs: Vec<Job>,
    /// The share of calls that are lost, half of them after they were executed.
    pub(super) lost_percent: u64,
    /// The process does not reach the store from a time to another.
    pub(super) stopped: Option<(u64, u64)>,
    pub(super) killed: Option<u64>,
}

#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) arrival: u64,
    pub(super) cost: u32,
    pub(super) rank: Rank,
    /// How long it is in progress.
    pub(super) takes: u64,
    pub(super) kind: Kind,
    /// The estimate of its tokens, and how many it has used in the end.
    pub(super) tokens: Option<(u32, u32)>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Departs,
    /// It is cancelled if it has waited so long.
    Cancelled(u64),
    /// It fails if it would wait longer.
    Bounded(u64),
    Forfeits,
}

#[derive(Debug, Clone)]
pub(super) struct Done {
    pub(super) process: usize,
    pub(super) job: Job,
    pub(super) arrival: Duration,
    pub(super) from: Duration,
    pub(super) until: Duration,
    /// Its work was dropped, as its place was lost.
    pub(super) is_aborted: bool,
}

enum End {
    Done(Done),
    Refused,
    Gone,
}

#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// By departure.
    pub(super) done: Vec<Done>,
    pub(super) refused: usize,
    pub(super) calls: u64,
    guard: Duration,
    /// Places that are held a minute later.
    pub(super) leaked: u32,
}

pub(super) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(super) fn burst(arrival: u64, count: usize, takes: u64) -> Vec<Job> {
    let jobs = std::iter::repeat_n(arrival, count).map(Job::at);
    jobs.map(|job| Job { takes, ..job }).collect()
}

pub(super) fn of_rank(rank: impl Into<Rank>, times: impl Iterator<Item = u64>) -> Vec<Job> {
    let rank = rank.into();
    let job = |at| Job {
        rank: rank.clone(),
        ..Job::at(at)
    };
    times.map(job).collect()
}

pub(super) fn of_share(name: &str, weight: u32) -> Rank {
    Rank {
        share: Some(Share::new(name, weight)),
        ..Rank::default()
    }
}

pub(super) fn processes<const N: usize>(round_trips: [u64; N]) -> Vec<Process> {
    let process = |round_trip| Process {
        round_trip,
        ..Process::default()
    };
    round_trips.map(process).into()
}

impl Job {
    pub(super) fn at(arrival: u64) -> Self {
        Self {
            arrival,
            cost: 1,
            rank: Rank::default(),
            takes: 0,
            kind: Kind::Departs,
            tokens: None,
        }
    }

    /// The units of a quota that it has used.
    fn used(&self, quota: &Quota) -> u32 {
        let tokens = self.tokens.filter(|_| quota.unit_name() == "tokens");
        tokens.map_or(self.cost, |(_, used)| used)
    }

    async fn run(self, process: usize, handle: Arc<Handle>, ends: Instant, start: Instant) -> End {
        tokio::time::sleep_until(start + millis(self.arrival)).await;
        let arrival = start.elapsed();
        let is_limited = handle.policy().units.contains(&CONCURRENT);
        let unit = if is_limited { CONCURRENT } else { REQUESTS };
        let mut acquire = Acquire::new(handle, key()).cost_of(unit, self.cost);
        acquire.rank = self.rank.clone();
        if let Some((estimate, _)) = self.tokens {
            acquire = acquire.cost_of("tokens", estimate);
        }
        let mut gone = ends;
        match self.kind {
            Kind::Bounded(wait) => acquire = acquire.max_wait(millis(wait)),
            Kind::Cancelled(wait) => gone = gone.min(Instant::now() + millis(wait)),
            Kind::Departs | Kind::Forfeits => {}
        }
        let permit: Permit = match tokio::time::timeout_at(gone, acquire).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) => return End::Refused,
            Err(_) => return End::Gone,
        };
        if self.kind == Kind::Forfeits {
            permit.forfeit();
            return End::Gone;
        }
        let (from, charge) = (start.elapsed(), Charge::of(&permit));
        let work = permit.hold().run(tokio::time::sleep(millis(self.takes)));
        let worked = tokio::time::timeout_at(ends, work).await;
        if let (Some((_, used)), Ok(_)) = (self.tokens, &worked) {
            charge.settle("tokens", used).unwrap();
        }
        End::Done(Done {
            process,
            job: self,
            arrival,
            from,
            until: start.elapsed(),
            is_aborted: matches!(worked, Ok(Err(_))),
        })
    }
}

impl Process {
    async fn fail(self, store: Arc<Remote>, start: Instant) {
        store.set(Fault::Loses(self.lost_percent));
        let stopped = self.stopped.map(|span| (Fault::Out, span));
        let killed = self.killed.map(|at| (Fault::Silent, (at, 1 << 30)));
        if let Some((fault, (from, until))) = killed.or(stopped) {
            // Just before the requests of a killed process end.
            tokio::time::sleep_until(start + millis(from) - millis(1)).await;
            store.set(fault);
            tokio::time::sleep_until(start + millis(until)).await;
            store.set(Fault::Loses(self.lost_percent));
        }
    }
}

impl Scenario {
    pub(super) fn new(quotas: &str, processes: Vec<Process>) -> Self {
        Self {
            parts: PolicyParts::of(quotas),
            processes,
            ..Self::default()
        }
    }

    /// Runs until all requests have ended, and asserts the bounds of the quotas.
    #[track_caller]
    pub(super) fn run(&self) -> Outcome {
        let ends = async { timeout(900 * SECOND, self.run_all()).await };
        let out = runtime(true).block_on(ends);
        let out = out.expect("no request waits for ever");
        for quota in &self.parts.quotas {
            let done = out.done.iter();
            let events = done.map(|it| (it.from, it.job.used(quota).into()));
            let fault = events.collect::<History>().fault(quota);
            assert_eq!(fault, None, "{quota}: {:?}", out.done);
        }
        out
    }

    async fn run_all(&self) -> Outcome {
        let (memory, network, start) = (MemoryStore::new(), Network::default(), Instant::now());
        let policy = Arc::new(self.parts.clone().build().unwrap());
        let (mut tasks, mut processes) = (Vec::new(), Vec::new());
        for (number, it) in self.processes.iter().enumerate() {
            let store = Arc::new(Remote {
                memory: memory.clone(),
                round_trip: millis(it.round_trip),
                jitter: it.jitter,
                network: (!self.is_deaf).then(|| network.clone()),
                ..Remote::default()
            });
            let handle = process(&store, policy.clone());
            let ends = start + millis(it.killed.unwrap_or(1 << 40));
            for job in it.jobs.iter().cloned() {
                tasks.push(tokio::spawn(job.run(number, handle.clone(), ends, start)));
            }
            tokio::spawn(it.clone().fail(store.clone(), start));
            if let Some((at, parts)) = self.change.clone() {
                let (handle, policy) = (handle.clone(), policy.clone());
                tokio::spawn(async move {
                    pass(at + 300 * number as u64).await;
                    handle.set_policy(parts.build().unwrap().into());
                    pass(2_000).await;
                    handle.set_policy(policy);
                });
            }
            processes.push((store, handle));
        }
        let mut out = Outcome::default();
        for task in tasks {
            match task.await.unwrap() {
                End::Done(done) => out.done.push(done),
                End::Refused => out.refused += 1,
                End::Gone => {}
            }
        }
        out.done.sort_by_key(|it| it.from);
        out.calls = processes.iter().map(|(store, _)| store.calls()).sum();
        let guards = processes.iter().map(|(_, it)| it.guard.current());
        out.guard = guards.min().unwrap();
        // Everything is released, and everything forgotten, also of processes that are dead.
        pass(60_000).await;
        for (process, (_, handle)) in self.processes.iter().zip(&processes) {
            let is_idle = process.killed.is_some() || handle.key_count() == 0;
            assert!(is_idle, "a queue is left");
        }
        out.leaked = held(&memory, policy).await;
        out
    }
}

impl Outcome {
    pub(super) fn aborted(&self) -> usize {
        self.done.iter().filter(|it| it.is_aborted).count()
    }

    fn between(&self, from: f64, until: f64) -> impl Iterator<Item = &Done> {
        let is_inside = move |it: &&Done| (from..until).contains(&it.from.as_secs_f64());
        self.done.iter().filter(is_inside)
    }

    /// The units per second, of N / (W + guard), that depart between two seconds.
    pub(super) fn rate(&self, quotas: &[Quota], from: f64, until: f64) -> f64 {
        let ideal = quotas.iter().map(|quota| {
            let hold = match quota.counted_by() {
                Algorithm::SlidingLog | Algorithm::SlidingBuckets { .. } => self.guard,
                Algorithm::Spacing => self.guard * quota.limit(),
                _ => Duration::ZERO,
            };
            f64::from(quota.limit()) / (quota.window() + hold).as_secs_f64()
        });
        let inside = self.between(from, until);
        let units: u32 = inside.map(|it| it.job.used(&quotas[0])).sum();
        f64::from(units) / (until - from) / ideal.fold(f64::MAX, f64::min)
    }

    /// The part of some requests in all departures between two seconds.
    pub(super) fn part(&self, from: f64, until: f64, of: impl Fn(&Rank) -> bool) -> f64 {
        let inside = self.between(from, until).filter(|it| of(&it.job.rank));
        inside.count() as f64 / self.between(from, until).count() as f64
    }

    pub(super) fn part_of(&self, name: &str, from: f64, until: f64) -> f64 {
        let is_of = |it: &Rank| it.share.as_ref().is_some_and(|it| it.name() == name);
        self.part(from, until, is_of)
    }

    /// The share of requests that overtake one that arrived more than 250 ms, and a tenth of its wait, earlier.
    pub(super) fn unfair(&self, excused: Option<usize>) -> f64 {
        let overtakes = |(nth, it): &(usize, &Done)| {
            self.done[nth + 1..].iter().any(|other| {
                let is_earlier = other.arrival + millis(250) < it.arrival;
                is_earlier
                    && Some(other.process) != excused
                    && other.from > it.from + millis(20)
                    && it.arrival - other.arrival > (other.from - other.arrival) / 10
            })
        };
        let unfair = self.done.iter().enumerate().filter(overtakes).count();
        unfair as f64 / self.done.len() as f64
    }

    /// The most in progress at once, between two times.
    pub(super) fn most(&self, from: Duration, until: Duration) -> usize {
        let units = |it: &Done| std::iter::repeat_n((it.from, it.until), it.job.cost as usize);
        let works: Vec<_> = self.done.iter().flat_map(units).collect();
        let begins = works.iter().map(|it| it.0.max(from));
        let begins = begins.filter(|at| *at < until);
        begins.map(|at| at_once(&works, at)).max().unwrap_or(0)
    }

    pub(super) fn most_ever(&self) -> usize {
        self.most(Duration::ZERO, Duration::MAX)
    }

    /// The part of the time between two seconds in which the limit is in use.
    pub(super) fn used(&self, limit: u32, from: f64, until: f64) -> f64 {
        let overlap = |it: &Done| {
            let (start, end) = (it.from.as_secs_f64(), it.until.as_secs_f64());
            (end.min(until) - start.max(from)).max(0.0)
        };
        let sum: f64 = self.done.iter().map(overlap).sum();
        sum / (until - from) / f64::from(limit)
    }
}
