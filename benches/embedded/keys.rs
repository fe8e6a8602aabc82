//! Measures permits on random keys of a million.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use governor::{DefaultKeyedRateLimiter, RateLimiter};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::runtime::Handle;
use tower_throttle::key::Key;
use tower_throttle::{Algorithm, Limiter, Quota};
use tower_throttle_benches::rounds::{Rounds, turns};
use tower_throttle_benches::support::{Cell, Output, Table};

const KEYS: u64 = 1_000_000;
const LIMIT: u32 = 1_000;
const HOUR: Duration = Duration::from_secs(3_600);
const ROUNDS: usize = 15;
/// Number of requests of each limiter in a round.
const BLOCK: usize = 50_000;

enum Contestant {
    Ours(&'static str, Limiter, Vec<Key>),
    Governor(DefaultKeyedRateLimiter<String>, Vec<String>),
}

/// The first request of each key: its time, and its memory on the heap.
struct First {
    nanos: f64,
    bytes: f64,
}

pub(crate) fn measure(output: &mut Output) -> anyhow::Result<()> {
    let keys = output.options().count(KEYS) as usize;
    let contestants = [
        ours(
            "gcra, try_acquire(Key)",
            Algorithm::Gcra { burst: LIMIT },
            keys,
        )?,
        ours("sliding log, try_acquire(Key)", Algorithm::SlidingLog, keys)?,
        governor(keys)?,
    ];
    let mut firsts = Vec::new();
    for contestant in &contestants {
        firsts.push(first(contestant, keys)?);
    }
    let mut times = Rounds::new(contestants.len());
    for round in 0..ROUNDS {
        let mut random = SmallRng::seed_from_u64(round as u64);
        let visits: Vec<usize> = (0..BLOCK).map(|_| random.random_range(0..keys)).collect();
        for place in turns(round, contestants.len()) {
            let start = Instant::now();
            contestants[place].visit(visits.iter().copied())?;
            times.push(place, start.elapsed().as_secs_f64() * 1e9 / BLOCK as f64);
        }
    }
    let mut table = Table::new(
        "nanoseconds per permit on random keys of a million",
        &[
            "call",
            "ns per permit",
            "relative to governor",
            "ns for the first request of a key",
            "heap bytes per key",
        ],
    );
    let governor = contestants.len() - 1;
    for (place, (contestant, first)) in contestants.iter().zip(firsts).enumerate() {
        table.row([
            Cell::text(contestant.name()),
            Cell::Figure(times.median(place)),
            Cell::Ratio(times.ratio(place, governor)),
            Cell::Figure(first.nanos),
            Cell::Figure(first.bytes),
        ]);
    }
    output.table(&table);
    Ok(())
}

fn first(contestant: &Contestant, keys: usize) -> anyhow::Result<First> {
    let start = Instant::now();
    let mut visited = Ok(());
    let allocated = allocation_counter::measure(|| visited = contestant.visit(0..keys));
    visited?;
    Ok(First {
        nanos: start.elapsed().as_secs_f64() * 1e9 / keys as f64,
        bytes: allocated.bytes_current as f64 / keys as f64,
    })
}

fn ours(name: &'static str, algorithm: Algorithm, keys: usize) -> anyhow::Result<Contestant> {
    let quota = Quota::new(LIMIT, HOUR).algorithm(algorithm);
    let limiter = Limiter::builder().quota(quota).build()?;
    let names = names(keys).map(Key::new).collect();
    Ok(Contestant::Ours(name, limiter, names))
}

fn governor(keys: usize) -> anyhow::Result<Contestant> {
    let limit = NonZeroU32::new(LIMIT).context("the limit is zero")?;
    let quota = governor::Quota::with_period(HOUR / LIMIT).context("the window is zero")?;
    let limiter = RateLimiter::dashmap(quota.allow_burst(limit));
    Ok(Contestant::Governor(limiter, names(keys).collect()))
}

fn names(keys: usize) -> impl Iterator<Item = String> {
    (1_000_000..1_000_000 + keys).map(|user| format!("user:{user}"))
}

impl Contestant {
    fn name(&self) -> &'static str {
        match self {
            Self::Ours(name, ..) => name,
            Self::Governor(..) => crate::contestant::GOVERNOR,
        }
    }

    fn visit(&self, places: impl Iterator<Item = usize> + Clone) -> anyhow::Result<()> {
        let count = places.clone().count();
        let granted = match self {
            Self::Ours(_, limiter, keys) => Handle::current().block_on(async {
                let mut granted = 0;
                for place in places {
                    let decision = limiter.try_acquire(keys[place].clone()).await;
                    granted += usize::from(decision.is_ok_and(|it| it.is_granted()));
                }
                granted
            }),
            Self::Governor(limiter, keys) => places
                .filter(|place| limiter.check_key(&keys[*place]).is_ok())
                .count(),
        };
        ensure!(granted == count, "{}: {granted} of {count}", self.name());
        Ok(())
    }
}
