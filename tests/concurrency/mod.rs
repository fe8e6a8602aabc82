//! Limits of how many requests are in progress, behind the adapters.
//!
//! ```sh
//! cargo test -p tower-throttle-tests --test faults requests_in_progress -- --nocapture  # while Redis or a process fails
//! ```

use crate::prelude::*;

mod adapters;
mod streams;

async fn held(limiter: &Limiter, key: &str) -> u32 {
    let snapshot = limiter.peek(key).await.expect("a snapshot");
    snapshot.places().expect("a limit of places").held
}

/// Waits until so many places are held, for what another task or the other end of a connection has to notice.
async fn wait_for_held(limiter: &Limiter, key: &str, count: u32) {
    let is_so = async || held(limiter, key).await == count;
    eventually(&format!("{count} places of {key} are held"), is_so).await;
}
