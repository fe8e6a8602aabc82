//! A reqwest client and a tower client share one limit of 10 requests per second. For comparison, the same requests run
//! under a token bucket of 10 per second.
//!
//! ```sh
//! cargo run -p quickstart
//! ```

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::try_join_all;
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tower::{ServiceBuilder, ServiceExt as _};
use tower_throttle::test_util::history::History;
use tower_throttle::{Algorithm, Limiter, Quota, ThrottleLayer, ThrottleMiddleware};

const LIMIT: u32 = 10;
const REQUESTS: usize = 40;
const SECOND: Duration = Duration::from_secs(1);

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let exact = Limiter::builder()
        .quota(Quota::per_second(LIMIT))
        // Allows for requests that take up to 50 ms longer to the server than others.
        .buffer(Duration::from_millis(50))
        .build()?;
    let bucket = Quota::per_second(LIMIT).algorithm(Algorithm::Gcra { burst: LIMIT });
    let bucket = Limiter::builder().quota(bucket).build()?;

    println!("{REQUESTS} requests at once, {LIMIT} per second. Each column is 50 ms.\n");
    let (exact, bucket) = tokio::try_join!(arrivals(&exact), arrivals(&bucket))?;
    println!("tower-throttle  |{}", timeline(&exact));
    println!("a token bucket  |{}\n", timeline(&bucket));

    println!(
        "most in any 1s window of the token bucket: {}",
        bucket.most_in_any(SECOND)
    );
    let most = exact.most_in_any(SECOND);
    println!("most in any 1s window: {most} (limit {LIMIT})");
    anyhow::ensure!(
        most <= LIMIT.into(),
        "more requests arrived than the limit allows"
    );
    Ok(())
}

/// Sends half of the requests with a reqwest client and half with a tower client. Returns their arrival times.
async fn arrivals(limiter: &Limiter) -> anyhow::Result<History> {
    let (address, arrivals) = upstream().await?;
    let url = format!("http://{address}/");

    // The server is local, so ignore proxy settings of the environment.
    let client = reqwest::Client::builder().no_proxy().build()?;
    let reqwest_client = reqwest_middleware::ClientBuilder::new(client)
        .with(ThrottleMiddleware::new(limiter.clone()))
        .build();
    let tower_client = ServiceBuilder::new()
        .layer(ThrottleLayer::new(limiter.clone()))
        .service(Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>());

    let requests = (0..REQUESTS).map(async |number| {
        if number % 2 == 0 {
            reqwest_client.get(&url).send().await?;
        } else {
            let request = http::Request::get(&url).body(Empty::new())?;
            let response = tower_client.clone().oneshot(request).await;
            response.map_err(anyhow::Error::from_boxed)?;
        }
        anyhow::Ok(())
    });
    try_join_all(requests).await?;
    let arrivals = arrivals.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(arrivals.clone())
}

/// Starts a server, and records when requests arrive.
async fn upstream() -> anyhow::Result<(SocketAddr, Arc<Mutex<History>>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let arrivals = Arc::new(Mutex::new(History::new()));
    let (start, record) = (Instant::now(), arrivals.clone());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let record = record.clone();
            let answer = hyper::service::service_fn(move |_| {
                let mut arrivals = record.lock().unwrap_or_else(PoisonError::into_inner);
                arrivals.push(start.elapsed());
                async { anyhow::Ok(http::Response::new(Empty::<Bytes>::new())) }
            });
            let server = hyper::server::conn::http1::Builder::new();
            tokio::spawn(server.serve_connection(TokioIo::new(stream), answer));
        }
    });
    Ok((address, arrivals))
}

/// How many requests arrived in each 50 ms, as bars.
fn timeline(arrivals: &History) -> String {
    let column = |at: Duration| (at.as_millis() / 50) as usize;
    let first = arrivals.times().map(column).min().unwrap_or(0);
    let mut counts = Vec::new();
    for at in arrivals.times() {
        let place = column(at) - first;
        counts.resize(counts.len().max(place + 1), 0);
        counts[place] += 1;
    }
    let limit = LIMIT as usize;
    let bars = ['·', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let bar = |count: usize| bars[(count.min(limit) * 8).div_ceil(limit)];
    counts.into_iter().map(bar).collect()
}
