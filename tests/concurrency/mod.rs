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

#[test]
fn a_process_that_was_idle_has_returned_its_places_and_corrected_its_costs() {
    let server = RedisServer::start();
    let quotas = ["3 concurrent", "100/h unit=tokens"];
    let new = || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().expect("a runtime")
    };
    let process = async || build(under(&quotas).store(server.store().await));
    for (key, is_idle_later) in [("a", false), ("b", true)] {
        // The runtime of a process ends with its `main`.
        let limiter = new().block_on(async {
            let limiter = process().await;
            let permit = limiter.acquire(key).cost_of("tokens", 90).await;
            let (charge, place) = permit.expect("a permit").into_parts();
            let mut idle = Box::pin(limiter.idle());
            assert!(poll!(&mut idle).is_pending());
            charge.settle("tokens", 30).expect("a cost");
            drop(place);
            if !is_idle_later {
                bounded(idle).await;
            }
            limiter.clone()
        });
        new().block_on(async {
            if is_idle_later {
                bounded(limiter.idle()).await;
            }
            let state = process().await.peek(key).await.expect("a look");
            assert_eq!(state.remaining_of("tokens"), Some(70));
            assert_eq!(state.places().map(|it| it.held), Some(0));
        });
    }
}
