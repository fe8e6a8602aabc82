//! Floods of addresses take a bounded amount of memory.

use std::net::Ipv6Addr;
use std::time::Duration;

use tower_throttle::store::MemoryStore;
use tower_throttle::{Limiter, Quota};

use crate::axum_inbound::server::build;

/// Each request is from an address of its own, 10,000 in a second.
#[tokio::test(start_paused = true)]
async fn memory_is_bounded_under_a_flood_of_addresses() {
    const PER_SECOND: u64 = 10_000;
    let store = MemoryStore::new();
    let builder = Limiter::builder().quota(Quota::per_second(1));
    let limiter = build(builder.store(store.clone()));
    for client in 0..200_000 {
        let address = Ipv6Addr::from(u128::from(client));
        let permit = limiter.acquire(address.to_string()).await;
        permit.expect("a permit");
        if client % PER_SECOND == 0 {
            tokio::time::advance(Duration::from_secs(1)).await;
            let keys = store.len() as u64;
            // The keys of two seconds, and as many that were not swept yet.
            assert!(keys <= PER_SECOND * 4 + 2_048, "{keys} keys");
        }
    }
    assert_eq!(limiter.queues(), 0);
}
