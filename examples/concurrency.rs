//! Replicas read streamed answers: under a rate alone, and under a rate and a limit of how many are in progress.
//!
//! ```sh
//! cargo run --example concurrency                                  # in one process
//! REDIS_URL=redis://127.0.0.1/ cargo run --example concurrency     # over Redis
//! ```

use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{convert, env, process};

use anyhow::ensure;
use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use futures_util::future::try_join_all;
use futures_util::stream;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use tokio::net::TcpListener;
use tokio::time::sleep;
use tower_throttle::store::{MemoryStore, RedisStore};
use tower_throttle::{Limiter, LimiterBuilder, Quota, ThrottleMiddleware};

/// The upstream allows so many requests at once, and so many per second.
const LIMIT: u32 = 5;
const RATE: u32 = 20;

/// Limiters, as in so many replicas, and the requests of each.
const REPLICAS: usize = 3;
const REQUESTS: usize = 10;

/// An answer is a stream of so many parts, one each so often.
const PARTS: u32 = 4;
const PART: Duration = Duration::from_millis(100);

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let (url, in_progress) = upstream().await?;
    let rate = Limiter::builder().quota(Quota::per_second(RATE));
    let both = rate.clone().quota(Quota::concurrent(LIMIT));

    send_all(rate.name("rate"), &url).await?;
    let most = in_progress.take_most();
    println!("under {RATE} per second alone: {most} in progress at once");
    ensure!(most > LIMIT, "a rate does not limit them");

    send_all(both.name("both"), &url).await?;
    let most = in_progress.take_most();
    println!("most in progress at once: {most} (limit {LIMIT})");
    ensure!(most <= LIMIT, "more were in progress than allowed");
    Ok(())
}

/// Sends the requests of all replicas at once, and reads the answers.
async fn send_all(builder: LimiterBuilder, url: &str) -> anyhow::Result<()> {
    let clients = clients(builder).await?;
    let requests = clients.iter().flat_map(|client| {
        (0..REQUESTS).map(move |_| async move {
            let response = client.get(url).send().await?.error_for_status()?;
            // The request is in progress until its body has ended.
            let body = response.bytes().await?;
            ensure!(body.len() == PARTS as usize, "a part is missing");
            Ok(())
        })
    });
    try_join_all(requests).await?;
    Ok(())
}

/// Clients whose limiters share a store.
async fn clients(builder: LimiterBuilder) -> anyhow::Result<Vec<ClientWithMiddleware>> {
    let builder = match env::var("REDIS_URL") {
        Ok(url) => {
            // Nothing is left of an earlier run.
            let prefix = format!("example-{}", process::id());
            builder.store(RedisStore::connect(&url).await?.prefix(&prefix)?)
        }
        Err(_) => builder.store(MemoryStore::new()),
    };
    let clients = (0..REPLICAS).map(|_| {
        let throttle = ThrottleMiddleware::new(builder.clone().build()?);
        // The upstream is local, so ignore proxy settings of the environment.
        let plain = reqwest::Client::builder().no_proxy().build()?;
        let client = ClientBuilder::new(plain).with(throttle);
        anyhow::Ok(client.build())
    });
    clients.collect()
}

/// The requests that the upstream works on: how many there are, and the most so far.
#[derive(Clone, Default)]
struct InProgress(Arc<Mutex<(u32, u32)>>);

impl InProgress {
    fn begin(&self) -> Working {
        let mut counts = self.0.lock().expect("no panic while counting");
        counts.0 += 1;
        counts.1 = counts.1.max(counts.0);
        Working(self.clone())
    }

    /// The most since the last call.
    fn take_most(&self) -> u32 {
        let mut counts = self.0.lock().expect("no panic while counting");
        std::mem::take(&mut counts.1)
    }
}

/// A request that the upstream works on.
struct Working(InProgress);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.0.lock().expect("no panic while counting").0 -= 1;
    }
}

/// A local server that streams its answers.
async fn upstream() -> anyhow::Result<(String, InProgress)> {
    let in_progress = InProgress::default();
    let counted = in_progress.clone();
    let app = Router::new().fallback(async move || {
        let working = counted.begin();
        let parts = stream::unfold((0, Some(working)), async |(sent, working)| {
            let working = working?;
            sleep(PART).await;
            // The work ends before the last part is sent, and so before the client can have read it.
            let working = match sent + 1 {
                PARTS => None,
                _ => Some(working),
            };
            let part = Ok::<_, convert::Infallible>(Bytes::from_static(b"."));
            Some((part, (sent + 1, working)))
        });
        Body::from_stream(parts)
    });
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok((url, in_progress))
}
