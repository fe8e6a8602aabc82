//! Measures permits on random keys of a million.

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::runtime::Handle;
use tower_throttle_benches::*;

use crate::contestant::GOVERNOR;

const KEYS: u32 = 1_000_000;
const LIMIT: u32 = 1_000;
const HOUR: Duration = Duration::from_secs(3_600);
const ROUNDS: usize = 15;
const BLOCK: usize = 50_000;

/// Makes one request of each of these keys, and returns the number of permits.
type Visit = Box<dyn Fn(&[usize]) -> usize>;

pub(crate) fn measure(output: &mut Output) -> anyhow::Result<()> {
    let keys = output.count(KEYS) as usize;
    let gcra = Algorithm::Gcra { burst: LIMIT };
    let (gcra, log) = (ours(gcra, keys)?, ours(Algorithm::SlidingLog, keys)?);
    let all = [
        ("tower-throttle, GCRA, try_acquire", gcra),
        ("tower-throttle, sliding log, try_acquire", log),
        (GOVERNOR, governor(keys)?),
    ];
    let each: Vec<usize> = (0..keys).collect();
    let mut bytes = Vec::new();
    for (_, visit) in &all {
        let allocated = allocation_counter::measure(|| {
            visit(&each);
        });
        bytes.push(allocated.bytes_current as f64 / keys as f64);
    }
    let mut times = Rounds::new(all.len());
    let mut departures = vec![1; keys];
    for (round, place) in turns(ROUNDS, all.len()) {
        let mut random = SmallRng::seed_from_u64(round as u64);
        let visits: Vec<_> = (0..BLOCK).map(|_| random.random_range(0..keys)).collect();
        if place == 0 {
            visits.iter().for_each(|key| departures[*key] += 1);
        }
        let (name, visit) = &all[place];
        let start = Instant::now();
        let granted = visit(&visits);
        times.push(place, start.elapsed().as_secs_f64() * 1e9 / BLOCK as f64);
        ensure!(granted == BLOCK, "{name}: {granted} permits of {BLOCK}");
    }
    let most = departures.into_iter().max().unwrap_or(0);
    ensure!(most <= LIMIT, "{most} departures of one key");
    let mut table = Table::new(
        "nanoseconds per permit on random keys of a million",
        "call | ns per permit | relative to governor | heap bytes per key",
    );
    for (place, (name, _)) in all.iter().enumerate() {
        let time = figure(times.median(place));
        let to_governor = ratio(times.ratio(place, all.len() - 1));
        table.row([text(*name), time, to_governor, figure(bytes[place])]);
    }
    println!("{table}");
    Ok(())
}

fn ours(algorithm: Algorithm, keys: usize) -> anyhow::Result<Visit> {
    let quota = Quota::new(LIMIT, HOUR).algorithm(algorithm);
    let limiter = Limiter::builder().quota(quota).build()?;
    let keys: Vec<Key> = names(keys).map(Key::new).collect();
    Ok(Box::new(move |visits| {
        Handle::current().block_on(async {
            let mut granted = 0;
            for key in visits {
                let decision = limiter.try_acquire(keys[*key].clone()).await;
                granted += usize::from(decision.is_ok_and(|it| it.is_granted()));
            }
            granted
        })
    }))
}

fn governor(keys: usize) -> anyhow::Result<Visit> {
    let limiter = tower_throttle_benches::governor(LIMIT, HOUR / LIMIT)?;
    let keys: Vec<String> = names(keys).collect();
    Ok(Box::new(move |visits| {
        let is_granted = |key: &&usize| limiter.check_key(&keys[**key]).is_ok();
        visits.iter().filter(is_granted).count()
    }))
}

fn names(keys: usize) -> impl Iterator<Item = String> {
    (1_000_000..1_000_000 + keys).map(|user| format!("user:{user}"))
}
