//! Retries within the limit. Each attempt counts, and waits for the `retry-after` of the previous response.
//!
//! ```sh
//! cargo run --example reqwest_retry
//! ```

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::Router;
use axum::response::IntoResponse as _;
use futures_util::future::try_join_all;
use http::StatusCode;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use reqwest_retry::RetryTransientMiddleware;
use reqwest_retry::policies::ExponentialBackoff;
use tokio::net::TcpListener;
use tower_throttle::test_util::history::History;
use tower_throttle::{Algorithm, Error, Limiter, Quota, ThrottleMiddleware};

const LIMIT: u32 = 10;

fn client() -> anyhow::Result<ClientWithMiddleware> {
    let limiter = Limiter::builder()
        .quota(Quota::per_second(LIMIT).algorithm(Algorithm::Spacing))
        .buffer(Duration::from_millis(50))
        // Requests with a longer expected wait, also because of a pause by the upstream, fail immediately.
        .max_wait(Duration::from_secs(20))
        .build()?;
    // The limiter delays the next attempt. The backoff adds to that delay, so it is short.
    let backoff = ExponentialBackoff::builder()
        .retry_bounds(Duration::from_millis(10), Duration::from_millis(100))
        .build_with_max_retries(3);
    // The upstream is local, so ignore proxy settings of the environment.
    let plain = reqwest::Client::builder().no_proxy().build()?;
    Ok(ClientBuilder::new(plain)
        // First, so outermost: each attempt passes through the middleware below.
        .with(RetryTransientMiddleware::new_with_policy(backoff))
        // Last, so innermost: it throttles each attempt and reads each response.
        .with(ThrottleMiddleware::new(limiter))
        .build())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arrivals = Arc::default();
    let url = upstream(&arrivals).await?;
    let client = client()?;

    println!("12 simultaneous requests, with some failing attempts:");
    let requests = (0..12).map(async |_| {
        let response = client.get(&url).send().await?;
        anyhow::Ok(response.error_for_status()?)
    });
    try_join_all(requests).await?;
    check(&arrivals.lock().expect("no panic while recording"))?;

    println!("one more request, while the upstream asks for a pause of ten minutes:");
    let error = client.get(&url).send().await.err();
    // The retry middleware wraps the error of the limiter.
    let refusal = error.as_ref().and_then(|error| Error::find(error));
    let refusal = refusal.filter(|refusal| refusal.is_limited());
    println!("{}", refusal.context("the request was not refused")?);
    Ok(())
}

/// The response to each arriving request: its status, and the seconds in `retry-after`.
fn answer(number: usize) -> (StatusCode, Option<u64>) {
    match number {
        4 => (StatusCode::SERVICE_UNAVAILABLE, Some(1)),
        8 => (StatusCode::BAD_GATEWAY, None),
        11 => (StatusCode::TOO_MANY_REQUESTS, Some(1)),
        16.. => (StatusCode::TOO_MANY_REQUESTS, Some(600)),
        _ => (StatusCode::OK, None),
    }
}

/// A local server that records when requests arrive.
async fn upstream(arrivals: &Arc<Mutex<Vec<Duration>>>) -> anyhow::Result<String> {
    let (start, arrivals) = (Instant::now(), arrivals.clone());
    let app = Router::new().fallback(async move || {
        let mut arrivals = arrivals.lock().expect("no panic while recording");
        let at = start.elapsed();
        arrivals.push(at);
        let (status, pause) = answer(arrivals.len());
        let note = pause.map_or_else(String::new, |it| format!(", retry after {it} s"));
        println!("{:>6.2} s  {status}{note}", at.as_secs_f64());
        match pause {
            Some(pause) => (status, [("retry-after", pause.to_string())]).into_response(),
            None => status.into_response(),
        }
    });
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(url)
}

fn check(arrivals: &[Duration]) -> anyhow::Result<()> {
    let history: History = arrivals.iter().copied().collect();
    let second = Duration::from_secs(1);
    let most = history.most_in_any(second);
    println!("most in any {second:?} window, with retries: {most} (limit {LIMIT})");
    anyhow::ensure!(
        most <= u64::from(LIMIT),
        "more arrived than the limit allows"
    );
    for (number, &at) in (1..).zip(arrivals) {
        if let (_, Some(pause)) = answer(number) {
            // Requests that departed before the pause arrive in its first half.
            let pause = Duration::from_secs(pause);
            let second_half = (at + pause / 2)..(at + pause);
            let violated = arrivals.iter().any(|at| second_half.contains(at));
            anyhow::ensure!(
                !violated,
                "requests arrived during the pause after request {number}"
            );
        }
    }
    Ok(())
}
