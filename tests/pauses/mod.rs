//! A pause holds in all processes, and ends in all.

mod embedded;
mod remote;
mod replicas;

use std::time::Duration;

use futures_util::future::join_all;
pub(crate) use support::spend::{build, per_second};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tower_throttle::Limiter;
use tower_throttle::test_util::history::History;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MS: Duration = Duration::from_millis(1);

/// Requests in their order of arrival. Each task returns the time of its departure.
pub(crate) async fn line(limiter: &Limiter, count: usize) -> Vec<JoinHandle<Instant>> {
    let mut line = Vec::new();
    for _ in 0..count {
        let acquire = limiter.acquire("a");
        line.push(tokio::spawn(async move {
            let _departs = acquire.await.expect("a permit");
            Instant::now()
        }));
        // So that they arrive in this order.
        tokio::task::yield_now().await;
    }
    line
}

pub(crate) async fn departures(line: Vec<JoinHandle<Instant>>) -> Vec<Instant> {
    let departures = join_all(line).await.into_iter();
    departures.map(|it| it.expect("no panic")).collect()
}

pub(crate) fn history(departures: &[Instant], origin: Instant) -> History {
    departures.iter().map(|&at| at - origin).collect()
}
