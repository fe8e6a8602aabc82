//! The code of the peers in the migration guide, to check that it compiles.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::Method;
use axum::routing::get;
use leaky_bucket::RateLimiter;
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;
use tower_governor::key_extractor::SmartIpKeyExtractor;

async fn form() {}

async fn login() {}

async fn fetch(path: &str) -> io::Result<String> {
    Ok(path.to_owned())
}

#[allow(
    clippy::let_and_return,
    clippy::unwrap_used,
    reason = "the same code as in the guide"
)]
pub fn tower_governor() -> Router {
    let config = GovernorConfigBuilder::default()
        .per_second(4)
        .burst_size(2)
        .key_extractor(SmartIpKeyExtractor)
        .methods(vec![Method::POST])
        .finish()
        .unwrap();
    let app = Router::new()
        .route("/login", get(form).post(login))
        .layer(GovernorLayer::new(config));
    app
}

pub async fn leaky_bucket() -> io::Result<[String; 2]> {
    let limiter = Arc::new(
        RateLimiter::builder()
            .initial(10)
            .refill(10)
            .interval(Duration::from_secs(1))
            .max(10)
            .build(),
    );
    limiter.acquire_one().await;
    let order = fetch("/orders/1").await?;
    limiter.acquire(5).await;
    let report = fetch("/report").await?;
    Ok([order, report])
}
