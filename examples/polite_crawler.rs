//! A polite crawler. For each host, it keeps the crawl delay of `robots.txt` and pauses when the host asks for it. It
//! also limits concurrency over all hosts.
//!
//! ```sh
//! cargo run --example polite_crawler
//! ```

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::Router;
use axum::response::IntoResponse as _;
use futures_util::future::try_join_all;
use http::{StatusCode, Uri};
use reqwest::{Client, Method, Request, Url};
use tokio::net::TcpListener;
use tokio::time::sleep;
use tower::limit::ConcurrencyLimit;
use tower::{ServiceBuilder, ServiceExt as _};
use tower_throttle::store::MemoryStore;
use tower_throttle::test_util::history::History;
use tower_throttle::{Algorithm, Limiter, Quota, ThrottleLayer, key};

/// Maximum number of concurrent requests to all hosts together.
const CONCURRENT: usize = 2;

/// Delay between requests to a host without a `Crawl-delay`.
const DEFAULT_DELAY: Duration = Duration::from_millis(300);

/// State that all hosts share.
#[derive(Clone)]
struct Crawler {
    /// For crawlers in several processes, use a `RedisStore`.
    store: MemoryStore,
    client: ConcurrencyLimit<Client>,
}

impl Crawler {
    /// Fetches all pages of one host, one after another.
    async fn crawl(self, host: Url, pages: usize) -> anyhow::Result<()> {
        let robots = Request::new(Method::GET, host.join("/robots.txt")?);
        let robots = self.client.clone().oneshot(robots).await?;
        let delay = crawl_delay(&robots.text().await?).unwrap_or(DEFAULT_DELAY);
        let limiter = Limiter::builder()
            .quota(Quota::new(1, delay).algorithm(Algorithm::Spacing))
            .buffer(Duration::from_millis(400))
            .store(self.store)
            .build()?;
        // Counts the request for `robots.txt`, so that the next one keeps its distance.
        limiter.acquire(host.authority()).await?;

        let client = ServiceBuilder::new()
            .layer(ThrottleLayer::new(limiter).key(key::constant(host.authority())))
            // The concurrency limit is inside, so that requests waiting for a permit do not occupy it.
            .service(self.client);
        for page in 1..=pages {
            let url = host.join(&page.to_string())?;
            loop {
                let request = Request::new(Method::GET, url.clone());
                let response = client.clone().oneshot(request).await;
                let response = response.map_err(anyhow::Error::from_boxed)?;
                // On 429, the loop retries. The retry waits for the time in `retry-after`.
                if response.status() != StatusCode::TOO_MANY_REQUESTS {
                    response.error_for_status()?.bytes().await?;
                    break;
                }
            }
        }
        Ok(())
    }
}

/// The crawl delay of a host, within bounds. A real crawler looks for the section for its user agent.
fn crawl_delay(robots: &str) -> Option<Duration> {
    let mut lines = robots.lines();
    let seconds = lines.find_map(|line| line.strip_prefix("Crawl-delay:"))?;
    let seconds = seconds.trim().parse::<f64>().ok()?.clamp(0.1, 60.0);
    Some(Duration::from_millis((seconds * 1_000.0).ceil() as u64))
}

/// Local servers: name, `robots.txt`, response time in milliseconds, and number of pages.
const HOSTS: [(&str, &str, u64, usize); 3] = [
    ("brisk", "", 10, 4),
    ("slow", "", 1_000, 3),
    ("strict", "Crawl-delay: 0.6", 10, 3),
];

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    // The hosts are local, so ignore proxy settings of the environment.
    let client = Client::builder().no_proxy().build()?;
    let crawler = Crawler {
        store: MemoryStore::new(),
        client: ConcurrencyLimit::new(client, CONCURRENT),
    };
    let (start, seen) = (Instant::now(), Arc::new(Mutex::new(Record::default())));
    let mut crawls = Vec::new();
    for (number, (_, _, _, pages)) in HOSTS.into_iter().enumerate() {
        let url = serve(number, start, seen.clone()).await?;
        crawls.push(crawler.clone().crawl(url, pages));
    }
    try_join_all(crawls).await?;
    let seen = seen.lock().expect("no panic while recording");
    seen.check()
}

/// The request to which the strict host responds with 429, counted from 1, and the pause that it asks for, in seconds.
const REFUSED: usize = 3;
const PAUSE: u64 = 2;

/// Arrival times and concurrency of requests.
#[derive(Default)]
struct Record {
    arrivals: [History; HOSTS.len()],
    concurrent: usize,
    max_concurrent: usize,
}

async fn serve(number: usize, start: Instant, seen: Arc<Mutex<Record>>) -> anyhow::Result<Url> {
    let (name, robots, takes, _) = HOSTS[number];
    let app = Router::new().fallback(async move |uri: Uri| {
        println!("{:>6.2} s  {name}{uri}", start.elapsed().as_secs_f64());
        let requests = {
            let mut seen = seen.lock().expect("no panic while recording");
            seen.concurrent += 1;
            seen.max_concurrent = seen.max_concurrent.max(seen.concurrent);
            seen.arrivals[number].push(start.elapsed());
            seen.arrivals[number].len()
        };
        sleep(Duration::from_millis(takes)).await;
        seen.lock().expect("no panic while recording").concurrent -= 1;
        if name == "strict" && requests == REFUSED {
            return (
                StatusCode::TOO_MANY_REQUESTS,
                [("retry-after", PAUSE.to_string())],
            )
                .into_response();
        }
        robots.into_response()
    });
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = Url::parse(&format!("http://{}/", listener.local_addr()?))?;
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(url)
}

impl Record {
    fn check(&self) -> anyhow::Result<()> {
        for ((name, robots, _, pages), arrivals) in HOSTS.into_iter().zip(&self.arrivals) {
            let delay = crawl_delay(robots).unwrap_or(DEFAULT_DELAY);
            let most = arrivals.most_in_any(delay);
            println!("{name}: most in any {delay:?} window: {most} (limit 1)");
            anyhow::ensure!(most == 1, "requests to {name} were too close together");
            anyhow::ensure!(
                arrivals.len() > pages,
                "not all pages of {name} were fetched"
            );
        }
        println!(
            "most concurrent requests: {} (limit {CONCURRENT})",
            self.max_concurrent
        );
        anyhow::ensure!(
            self.max_concurrent <= CONCURRENT,
            "too many concurrent requests"
        );
        let [brisk, slow, strict] = &self.arrivals;
        let mut retry = strict.times().skip(REFUSED - 1);
        let pause = retry.next().zip(retry.next()).map(|(at, next)| next - at);
        let pause = pause.context("the strict host got no request after its 429")?;
        println!(
            "strict: the next request came {pause:.2?} after its 429, which asked for {PAUSE} s"
        );
        let is_left_alone = pause >= Duration::from_secs(PAUSE);
        anyhow::ensure!(is_left_alone, "the strict host was not left alone");
        let is_delayed = brisk.times().last() > slow.times().last();
        anyhow::ensure!(!is_delayed, "the slow host delayed the brisk one");
        Ok(())
    }
}
