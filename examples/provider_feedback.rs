//! Adapts to a provider that allows less than the client is configured for, by the headers of its responses.
//!
//! ```sh
//! cargo run --example provider_feedback
//! ```

use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use clap::Parser;
use futures_util::future::try_join_all;
use reqwest_middleware::ClientWithMiddleware;
use tokio::net::TcpListener;
use tower_throttle::store::RedisStore;
use tower_throttle::{
    Algorithm, Departure, FailureMode, Limiter, Quota, ThrottleLayer, ThrottleMiddleware, key,
};

/// Requests per second that the client is configured for, evenly spaced.
const CONFIGURED: u32 = 10;

/// Requests that the provider allows in two seconds.
const ALLOWED: u32 = 6;

const REQUESTS: usize = 10;

/// Sends 10 requests to a provider that allows fewer than the client is configured for, first without feedback, then
/// with.
#[derive(Parser)]
struct Args {
    /// Share pauses with other processes through this Redis, such as redis://127.0.0.1/
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let mut refusals = Vec::new();
    for feedback in [false, true] {
        let provider = provider().await?;
        let mut builder =
            Limiter::builder().quota(Quota::per_second(CONFIGURED).algorithm(Algorithm::Spacing));
        if let Some(redis) = &args.redis {
            builder = builder.store(RedisStore::connect(redis).await?);
        }
        let throttle = ThrottleMiddleware::new(builder.build()?);
        // The provider is local, so ignore proxy settings of the environment.
        let plain = reqwest::Client::builder().no_proxy().build()?;
        let client = reqwest_middleware::ClientBuilder::new(plain);
        let (client, headline) = if feedback {
            (client.with(throttle), "with feedback")
        } else {
            (client.with(throttle.without_feedback()), "without feedback")
        };
        let client = client.build();
        println!("{REQUESTS} requests, {headline}:");
        let start = Instant::now();
        let requests = (0..REQUESTS).map(|_| request(&client, &provider, start));
        let statuses = try_join_all(requests).await?;
        let refused = statuses.iter().filter(|status| **status == 429).count();
        println!(
            "{refused} refused, {:.1} s in total\n",
            start.elapsed().as_secs_f64()
        );
        refusals.push(refused);
    }
    anyhow::ensure!(
        refusals[1] < refusals[0],
        "feedback did not reduce the number of refusals"
    );
    Ok(())
}

async fn request(client: &ClientWithMiddleware, url: &str, start: Instant) -> anyhow::Result<u16> {
    let response = client.get(url).send().await?;
    let header = |name| {
        let value = response.headers().get(name).and_then(|it| it.to_str().ok());
        value.map_or_else(String::new, |value| format!("  {name}: {value}"))
    };
    let waited = response
        .extensions()
        .get::<Departure>()
        .map(Departure::waited);
    println!(
        "  {:>5.2} s  waited {:>5.2} s  {}{}{}",
        start.elapsed().as_secs_f64(),
        waited.unwrap_or_default().as_secs_f64(),
        response.status().as_u16(),
        header("ratelimit"),
        header("retry-after"),
    );
    Ok(response.status().as_u16())
}

/// A local server that limits its clients, with rate limit headers.
async fn provider() -> anyhow::Result<String> {
    let limiter = Limiter::builder()
        .name("api")
        .quota(Quota::new(ALLOWED, Duration::from_secs(2)))
        .build()?;
    let layer = ThrottleLayer::new(limiter).inbound(key::constant("all"), FailureMode::Closed);
    let app = Router::new()
        .route("/", get(|| async { "served" }))
        .layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(url)
}
