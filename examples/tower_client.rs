//! A tower stack in order: a timeout, retries, the throttle, a limit on concurrency, and hyper's client.
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
use tower_throttle::{Algorithm, Departure, Limiter, Quota, ThrottleLayer};

const LIMIT: u32 = 10;
const CONCURRENT: usize = 3;

type Body = Empty<Bytes>;
type Answer = http::Response<hyper::body::Incoming>;

fn client(
    limiter: Limiter,
) -> impl Service<Request<Body>, Response = Answer, Error = BoxError> + Clone {
    ServiceBuilder::new()
        // All that a caller waits for: its turn, each attempt, and what lies between them.
        .timeout(Duration::from_secs(60))
        // Outside of the throttle, so that each attempt departs by a slot of its own.
        .retry(Retries { left: 3 })
        .layer(ThrottleLayer::new(limiter))
        // Inside, so that nobody takes up a place who waits for a slot.
        .concurrency_limit(CONCURRENT)
        // The time that one attempt takes, from its departure on.
        .timeout(Duration::from_secs(10))
        .service(Client::builder(TokioExecutor::new()).build_http())
}

/// So many more attempts, if the upstream is at fault.
#[derive(Clone)]
struct Retries {
    left: u32,
}

impl<B> Policy<Request<Body>, http::Response<B>, BoxError> for Retries {
    /// Without a backoff: the next attempt waits for a slot, and for as long as the upstream said.
    type Future = Ready<()>;

    fn retry(
        &mut self,
        _: &mut Request<Body>,
        result: &mut Result<http::Response<B>, BoxError>,
    ) -> Option<Ready<()>> {
        let failed = match result {
            Ok(response) => response.status().is_server_error() || response.status() == 429,
            // Not what the limiter refuses: it would refuse that again.
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
        // Evenly, as a burst beyond the limit on concurrency could not depart at once anyway.
        .quota(Quota::per_second(LIMIT).algorithm(Algorithm::Spacing))
        .buffer(Duration::from_millis(50))
        .build()?;
    let client = client(limiter);
    let seen = Arc::default();
    let url = upstream(&seen).await?;

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
        anyhow::ensure!(response.status() == 200, "request {number} was not served");
        Ok(())
    });
    try_join_all(requests).await?;

    let seen = seen.lock().expect("no panic while recording");
    let second = Duration::from_secs(1);
    let most = seen.arrivals.most_in_any(second);
    println!("most in any {second:?} window, all attempts counted: {most} (limit {LIMIT})");
    anyhow::ensure!(
        most <= u64::from(LIMIT),
        "more arrived than the limit allows"
    );
    println!("most at once: {} (limit {CONCURRENT})", seen.most_at_once);
    anyhow::ensure!(seen.most_at_once <= CONCURRENT, "more were there at once");
    Ok(())
}

/// When requests arrived, and how many were there at once.
#[derive(Default)]
struct Seen {
    arrivals: History,
    at_once: usize,
    most_at_once: usize,
}

/// A server on this machine that is slow at first, and too busy for every seventh request.
async fn upstream(seen: &Arc<Mutex<Seen>>) -> anyhow::Result<String> {
    let (start, seen) = (Instant::now(), seen.clone());
    let app = Router::new().fallback(async move || {
        let number = {
            let mut seen = seen.lock().expect("no panic while recording");
            seen.arrivals.push(start.elapsed());
            seen.at_once += 1;
            seen.most_at_once = seen.most_at_once.max(seen.at_once);
            seen.arrivals.len()
        };
        let takes = if number < 7 { 900 } else { 100 };
        sleep(Duration::from_millis(takes)).await;
        seen.lock().expect("no panic while recording").at_once -= 1;
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
