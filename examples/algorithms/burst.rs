//! One burst of requests, and how they depart: [`run`].

use std::time::Duration;

use anyhow::Context as _;
use tokio::time::Instant;
use tower_throttle::store::{MemoryStore, Store as _};
use tower_throttle::{Limiter, Quota};

pub(crate) const LIMIT: u32 = 10;
pub(crate) const WINDOW: Duration = Duration::from_secs(10);

/// When requests are made, in seconds from the beginning of a window of the clock, and how many.
///
/// Two find all quiet; then many come at once, in the second half of the window; and some more do
/// while the others wait, and when nobody waits any more.
const ARRIVALS: [(u64, usize); 7] = [(1, 1), (3, 1), (6, 35), (30, 1), (45, 1), (46, 1), (47, 1)];

/// What became of the burst. All times are since the beginning of a window of the clock.
#[derive(Debug, Default)]
pub(crate) struct Run {
    /// When each request was made.
    pub(crate) arrivals: Vec<Duration>,
    /// When each departed that was not refused, in order.
    pub(crate) departures: Vec<Duration>,
    /// When each was made that was refused, in order.
    pub(crate) refusals: Vec<Duration>,
}

impl Run {
    /// When each was made that was not refused.
    pub(crate) fn accepted(&self) -> Vec<Duration> {
        let mut accepted = self.arrivals.clone();
        for refused in &self.refusals {
            if let Some(place) = accepted.iter().position(|at| at == refused) {
                accepted.remove(place);
            }
        }
        accepted
    }

    /// When each was made that was refused, and how many had been made by then. Of those made at
    /// once, the last were.
    pub(crate) fn refused(&self) -> impl Iterator<Item = (usize, Duration)> {
        let alike = self.refusals.chunk_by(|a, b| a == b);
        alike.flat_map(|refused| {
            let made = self.arrivals.partition_point(|at| *at <= refused[0]);
            (1..=made)
                .rev()
                .zip(refused)
                .map(|(number, at)| (number, *at))
        })
    }
}

/// Sends the burst through a limiter with this quota, in paused time.
pub(crate) async fn run(store: &MemoryStore, quota: Quota) -> anyhow::Result<Run> {
    let limiter = Limiter::builder()
        .store(store.clone())
        .quota(quota)
        .build()?;
    let into_window = store.ping(&"clock".into()).await?.now % micros(WINDOW);
    tokio::time::advance(WINDOW - Duration::from_micros(into_window)).await;

    let start = Instant::now();
    let mut requests = Vec::new();
    for (seconds, count) in ARRIVALS {
        let at = Duration::from_secs(seconds);
        for _ in 0..count {
            // Another key than that of the quota before, whose departures would count.
            let (limiter, key) = (limiter.clone(), quota.to_string());
            let request = tokio::spawn(async move {
                tokio::time::sleep_until(start + at).await;
                let permit = limiter.acquire(key).await;
                (permit, start.elapsed())
            });
            requests.push((at, request));
        }
    }
    let mut run = Run::default();
    for (arrival, request) in requests {
        run.arrivals.push(arrival);
        match request.await? {
            (Ok(_departs), at) => run.departures.push(at),
            (Err(error), _) if error.is_limited() => run.refusals.push(arrival),
            (Err(error), _) => return Err(error).context("a request failed"),
        }
    }
    run.departures.sort_unstable();
    Ok(run)
}

/// A store whose clock shows a whole millisecond whenever tokio's timer ticks.
///
/// The store's clock starts with the system's, to the microsecond. Who waits wakes with a tick, and
/// where between two ticks a slot lies would differ from run to run.
pub(crate) async fn store_in_step() -> anyhow::Result<MemoryStore> {
    loop {
        let store = MemoryStore::new();
        if store.ping(&"clock".into()).await?.now.is_multiple_of(1_000) {
            return Ok(store);
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
