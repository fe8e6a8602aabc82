//! A crawler that is polite to each host: one request at a time, as far apart as its `robots.txt` asks for,
//! and none while it wants to be left alone. In all, few at once.
//!
//! ```sh
//! cargo run --example polite_crawler
//! ```

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

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

/// How many requests are under way at once, to all hosts together.
const CONCURRENT: usize = 2;

/// How far apart requests to one host are, unless it says so itself.
const USUAL_DELAY: Duration = Duration::from_millis(300);

/// What is there once for all hosts.
#[derive(Clone)]
struct Crawler {
    /// For crawlers in several processes, a `RedisStore`.
    store: MemoryStore,
    client: ConcurrencyLimit<Client>,
}

impl Crawler {
    /// Fetches all pages of one host, one after the other.
    async fn crawl(self, host: Url, pages: usize) -> anyhow::Result<()> {
        let robots = Request::new(Method::GET, host.join("/robots.txt")?);
        let robots = self.client.clone().oneshot(robots).await?;
        let delay = crawl_delay(&robots.text().await?).unwrap_or(USUAL_DELAY);
        let limiter = Limiter::builder()
            .quota(Quota::new(1, delay).algorithm(Algorithm::Spacing))
            .buffer(Duration::from_millis(400))
            .store(self.store)
            .build()?;
        // That was the first request, after which the others keep their distance, too.
        limiter.acquire(host.authority()).await?;

        let client = ServiceBuilder::new()
            .layer(ThrottleLayer::new(limiter).key(key::constant(host.authority())))
            // Inside, so that who waits for a slot takes up none of the few places.
            .service(self.client);
        for page in 1..=pages {
            let url = host.join(&page.to_string())?;
            loop {
                let request = Request::new(Method::GET, url.clone());
                let response = client.clone().oneshot(request).await;
                let response = response.map_err(anyhow::Error::from_boxed)?;
                // Then once more, which waits for as long as the host has said.
                if response.status() != StatusCode::TOO_MANY_REQUESTS {
                    response.error_for_status()?.bytes().await?;
                    break;
                }
            }
        }
        Ok(())
    }
}

/// What a host asks for, within reason. A real crawler looks for what is meant for it.
fn crawl_delay(robots: &str) -> Option<Duration> {
    let mut lines = robots.lines();
    let seconds = lines.find_map(|line| line.strip_prefix("Crawl-delay:"))?;
    let seconds = seconds.trim().parse::<f64>().ok()?.clamp(0.1, 60.0);
    Some(Duration::from_millis((seconds * 1_000.0).ceil() as u64))
}

/// Servers on this machine: a name, a `robots.txt`, how many milliseconds an answer takes, and how many
/// pages there are.
const HOSTS: [(&str, &str, u64, usize); 3] = [
    ("brisk", "", 10, 4),
    ("slow", "", 1_000, 3),
    ("strict", "Crawl-delay: 0.6", 10, 3),
];

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    // The hosts are on this machine, whatever proxy the environment names.
    let client = Client::builder().no_proxy().build()?;
    let crawler = Crawler {
        store: MemoryStore::new(),
        client: ConcurrencyLimit::new(client, CONCURRENT),
    };
    let (start, seen) = (Instant::now(), Arc::new(Mutex::new(Seen::default())));
    let mut crawls = Vec::new();
    for (number, (_, _, _, pages)) in HOSTS.into_iter().enumerate() {
        let url = serve(number, start, seen.clone()).await?;
        crawls.push(crawler.clone().crawl(url, pages));
    }
    try_join_all(crawls).await?;
    let seen = seen.lock().expect("no panic while recording");
    seen.check()
}

/// When requests arrived, and how many were there at once.
#[derive(Default)]
struct Seen {
    arrivals: [History; HOSTS.len()],
    at_once: usize,
    most_at_once: usize,
}

async fn serve(number: usize, start: Instant, seen: Arc<Mutex<Seen>>) -> anyhow::Result<Url> {
    let (name, robots, takes, _) = HOSTS[number];
    let app = Router::new().fallback(async move |uri: Uri| {
        println!("{:>6.2} s  {name}{uri}", start.elapsed().as_secs_f64());
        let requests = {
            let mut seen = seen.lock().expect("no panic while recording");
            seen.at_once += 1;
            seen.most_at_once = seen.most_at_once.max(seen.at_once);
            seen.arrivals[number].push(start.elapsed());
            seen.arrivals[number].len()
        };
        sleep(Duration::from_millis(takes)).await;
        seen.lock().expect("no panic while recording").at_once -= 1;
        if name == "strict" && requests == 3 {
            return (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "1")]).into_response();
        }
        robots.into_response()
    });
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = Url::parse(&format!("http://{}/", listener.local_addr()?))?;
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(url)
}

impl Seen {
    fn check(&self) -> anyhow::Result<()> {
        for ((name, robots, _, pages), arrivals) in HOSTS.into_iter().zip(&self.arrivals) {
            let delay = crawl_delay(robots).unwrap_or(USUAL_DELAY);
            let most = arrivals.most_in_any(delay);
            println!("{name}: most in any {delay:?} window: {most} (limit 1)");
            anyhow::ensure!(most == 1, "{name} was not left alone for long enough");
            anyhow::ensure!(arrivals.len() > pages, "{name} was not crawled");
        }
        println!("most at once: {} (limit {CONCURRENT})", self.most_at_once);
        anyhow::ensure!(self.most_at_once <= CONCURRENT, "more were there at once");
        let [brisk, slow, _] = &self.arrivals;
        let held_up = brisk.times().last() > slow.times().last();
        anyhow::ensure!(!held_up, "the slow host held up the brisk one");
        Ok(())
    }
}
