//! A complete tower stack: timeout, retries, throttle, concurrency limit, and hyper's client.
//!
//! ```sh
//! cargo run --example tower_client
//! ```

use std::future::{Ready, ready};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::response::IntoResponse as _;
use bytes::Bytes;
use futures_util::future::try_join_all;
use http::{Request, StatusCode};
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tokio::time::sleep;
use tower::retry::Policy;
use tower::timeout::error::Elapsed;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt as _};
use tower_throttle::test_util::history::History;
use tower_throttle::{Algorithm, Departure, HeldBody, Limiter, Quota, ThrottleLayer};

const LIMIT: u32 = 10;
const CONCURRENT: usize = 3;

type Body = Empty<Bytes>;
type Answer = http::Response<HeldBody<hyper::body::Incoming>>;

fn client(
    limiter: Limiter,
) -> impl Service<Request<Body>, Response = Answer, Error = BoxError> + Clone {
    ServiceBuilder::new()
        // Limits the total time: all waits and all attempts.
        .timeout(Duration::from_secs(60))
        // Outside the throttle, so that each attempt needs its own permit.
        .retry(Retries { left: 3 })
        .layer(ThrottleLayer::new(limiter))
        // Inside the throttle, so that requests waiting for a permit do not count.
        .concurrency_limit(CONCURRENT)
        // Limits the time of one attempt, from its departure on.
        .timeout(Duration::from_secs(10))
        .service(Client::builder(TokioExecutor::new()).build_http())
}

/// Retries after timeouts, server errors and 429.
#[derive(Clone)]
struct Retries {
    left: u32,
}

impl<B> Policy<Request<Body>, http::Response<B>, BoxError> for Retries {
    /// No backoff: the throttle delays the next attempt, also for the `retry-after` of the upstream.
    type Future = Ready<()>;

    fn retry(
        &mut self,
        _: &mut Request<Body>,
        result: &mut Result<http::Response<B>, BoxError>,
    ) -> Option<Ready<()>> {
        let failed = match result {
            Ok(response) => response.status().is_server_error() || response.status() == 429,
            // Errors of the limiter are not retried, because it would refuse the request again.
            Err(error) => error.is::<Elapsed>(),
        };
        self.left = self.left.checked_sub(1).filter(|_| failed)?;
        Some(ready(()))
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        Some(request.clone())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let limiter = Limiter::builder()
        // Even spacing: the concurrency limit would not let a burst depart anyway.
        .quota(Quota::per_second(LIMIT).algorithm(Algorithm::Spacing))
        .buffer(Duration::from_millis(50))
        .build()?;
    let client = client(limiter);
    let record = Arc::default();
    let url = upstream(&record).await?;

    let requests = (1..=12).map(async |number| {
        let request = Request::get(&url).body(Body::new())?;
        let response = client.clone().oneshot(request).await;
        let response = response.map_err(anyhow::Error::from_boxed)?;
        let departure = response.extensions().get::<Departure>();
        let waited = departure.map(Departure::waited).unwrap_or_default();
        println!(
            "request {number:>2}: {}, the last attempt waited {waited:.2?}",
            response.status()
        );
        anyhow::ensure!(response.status() == 200, "request {number} failed");
        Ok(())
    });
    try_join_all(requests).await?;

    let record = record.lock().expect("no panic while recording");
    let second = Duration::from_secs(1);
    let most = record.arrivals.most_in_any(second);
    println!("most in any {second:?} window, with retries: {most} (limit {LIMIT})");
    anyhow::ensure!(
        most <= u64::from(LIMIT),
        "more arrived than the limit allows"
    );
    println!(
        "most concurrent requests: {} (limit {CONCURRENT})",
        record.max_concurrent
    );
    anyhow::ensure!(
        record.max_concurrent <= CONCURRENT,
        "too many concurrent requests"
    );
    Ok(())
}

/// Arrival times and concurrency of requests.
#[derive(Default)]
struct Record {
    arrivals: History,
    concurrent: usize,
    max_concurrent: usize,
}

/// A local server that is slow at first, and refuses every seventh request.
async fn upstream(record: &Arc<Mutex<Record>>) -> anyhow::Result<String> {
    let (start, record) = (Instant::now(), record.clone());
    let app = Router::new().fallback(async move || {
        let number = {
            let mut record = record.lock().expect("no panic while recording");
            record.arrivals.push(start.elapsed());
            record.concurrent += 1;
            record.max_concurrent = record.max_concurrent.max(record.concurrent);
            record.arrivals.len()
        };
        let takes = if number < 7 { 900 } else { 100 };
        sleep(Duration::from_millis(takes)).await;
        record.lock().expect("no panic while recording").concurrent -= 1;
        if number % 7 == 0 {
            (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "1")]).into_response()
        } else {
            StatusCode::OK.into_response()
        }
    });
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(url)
}
