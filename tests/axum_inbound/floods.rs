//! Floods of requests cost the store and the process a bounded amount.
//!
//! The tests call the service, as connections would take longer than everything else.

use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use tokio::time::Instant;
use tower::{Layer as _, Service, service_fn};
use tower_throttle::store::MemoryStore;
use tower_throttle::{FailureMode, HeldBody, Limiter, Quota, ThrottleLayer};

use crate::axum_inbound::server::build;
use support::command_stats::CommandStats;
use support::redis_server::RedisServer;

/// The client is the number in the path.
fn protected(
    limiter: &Limiter,
) -> impl Service<
    Request<()>,
    Response = Response<HeldBody<String>>,
    Error = Infallible,
    Future: Future<Output = Result<Response<HeldBody<String>>, Infallible>>,
> + Clone {
    let key = |request: &Request<()>| request.uri().path().to_owned();
    let layer = ThrottleLayer::new(limiter.clone()).inbound(key, FailureMode::Closed);
    layer.layer(service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(String::new()))
    }))
}

fn from(client: u64) -> Request<()> {
    // Ipv6 addresses, of which each is another key.
    let address = u128::from(client).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let path = format!("/{}", std::net::Ipv6Addr::from(address));
    Request::get(path).body(()).expect("a request")
}

#[tokio::test]
async fn refused_requests_cost_the_store_a_call_per_second() {
    const FLOOD: usize = 50_000;
    let redis = RedisServer::start();
    let store = redis.store().await;
    let limiter = build(Limiter::builder().quota(Quota::per_hour(2)).store(store));
    let mut service = protected(&limiter);
    let before = CommandStats::of(&redis);
    let (mut granted, begun) = (0, Instant::now());
    for _ in 0..FLOOD {
        let response = service.call(from(1)).await.expect("infallible");
        match response.status() {
            StatusCode::OK => granted += 1,
            status => {
                assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
                assert!(response.headers().contains_key("retry-after"));
            }
        }
    }
    assert_eq!(granted, 2);
    let calls = CommandStats::of(&redis).since(&before).script_calls();
    let most = 4 + begun.elapsed().as_secs();
    assert!((3..=most).contains(&calls), "{calls} calls, at most {most}");
    // Other clients are served.
    let other = service.call(from(2)).await.expect("infallible");
    assert_eq!(other.status(), StatusCode::OK);
}

/// Each request is from an address of its own, 10,000 in a second.
#[tokio::test(start_paused = true)]
async fn memory_is_bounded_under_a_flood_of_addresses() {
    const PER_SECOND: u64 = 10_000;
    let store = MemoryStore::new();
    let quota = Quota::per_second(1);
    let limiter = build(Limiter::builder().quota(quota).store(store.clone()));
    let mut service = protected(&limiter);
    for address in 0..100_000 {
        let response = service.call(from(address)).await.expect("infallible");
        assert_eq!(response.status(), StatusCode::OK);
        if address % PER_SECOND == 0 {
            tokio::time::advance(Duration::from_secs(1)).await;
            let keys = store.len() as u64;
            // The keys of two seconds, and as many that were not swept yet.
            assert!(keys <= PER_SECOND * 4 + 2_048, "{keys} keys");
        }
    }
    assert_eq!(limiter.queues(), 0);
}
