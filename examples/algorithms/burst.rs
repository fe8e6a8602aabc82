//! Sends a burst of requests, and records their departures: [`run`].

use std::time::Duration;

use anyhow::Context as _;
use tokio::time::Instant;
use tower_throttle::store::{MemoryStore, Store as _};
use tower_throttle::{Limiter, Quota};

pub(crate) const LIMIT: u32 = 10;
pub(crate) const WINDOW: Duration = Duration::from_secs(10);

/// Arrival times, in seconds after the start of an aligned window, and numbers of requests.
///
/// Two requests arrive on an idle limiter, then a burst in the second half of the window, one request while the burst
/// waits, and three after the queue is empty.
const ARRIVALS: [(u64, usize); 7] = [(1, 1), (3, 1), (6, 35), (30, 1), (45, 1), (46, 1), (47, 1)];

/// The outcome of the burst. All times are relative to the start of an aligned window.
#[derive(Debug, Default)]
pub(crate) struct Run {
    /// Arrival times of all requests.
    pub(crate) arrivals: Vec<Duration>,
    /// Departure times of the accepted requests, in order.
    pub(crate) departures: Vec<Duration>,
    /// Arrival times of the refused requests, in order.
    pub(crate) refusals: Vec<Duration>,
}

impl Run {
    /// Arrival times of the accepted requests.
    pub(crate) fn accepted(&self) -> Vec<Duration> {
        let mut accepted = self.arrivals.clone();
        for refused in &self.refusals {
            if let Some(place) = accepted.iter().position(|at| at == refused) {
                accepted.remove(place);
            }
        }
        accepted
    }

    /// Number and arrival time of each refused request. The last of several simultaneous requests are refused.
    pub(crate) fn refused(&self) -> impl Iterator<Item = (usize, Duration)> {
        let simultaneous = self.refusals.chunk_by(|a, b| a == b);
        simultaneous.flat_map(|refused| {
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
            // Each quota uses its own key, so that earlier departures do not count.
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
/// The store's clock starts with the system's, to the microsecond. Waiting requests wake with a tick, so without this,
/// the time from a granted departure to the next tick would differ from run to run.
pub(crate) async fn aligned_store() -> anyhow::Result<MemoryStore> {
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
