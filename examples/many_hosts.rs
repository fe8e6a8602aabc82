//! One client for many hosts, with limits from a file that can be reloaded.
//!
//! ```sh
//! cargo run --example many_hosts
//! ```

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use futures_util::future::try_join_all;
use http::header::HOST;
use http::{HeaderMap, Uri};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use tokio::net::TcpListener;
use tower_throttle::rules::Rules;
use tower_throttle::test_util::history::History;
use tower_throttle::{Departure, Limiter, ThrottleMiddleware};

/// The number of simultaneous requests to each host and path.
const REQUESTS: [(usize, &str, &str); 4] = [
    (4, "api.example.com", "/search"),
    (6, "api.example.com", "/users/1"),
    (6, "shop.example.org", "/"),
    (20, "billing.internal.example", "/"),
];

/// Reads the rules. The error lists all mistakes with their places.
fn read(file: &Path) -> anyhow::Result<Rules> {
    let text = std::fs::read_to_string(file)?;
    let rules = Rules::read(toml::Deserializer::parse(&text)?)?;
    for warning in rules.warnings() {
        eprintln!("{}: {warning}", file.display());
    }
    Ok(rules)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    // A copy, because the example changes it.
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("rules.toml");
    std::fs::copy(
        concat!(env!("CARGO_MANIFEST_DIR"), "/examples/many_hosts.toml"),
        &file,
    )?;

    let limiter = Limiter::builder().rules(read(&file)?).build()?;
    let (address, arrivals) = serve().await?;
    let client = client(&limiter, address)?;

    send(&client, address).await?;
    check(&arrivals, "api.example.com/search", 4, 2)?;

    // In a real client, a signal, a timer or a file watcher triggers the reload.
    let text = std::fs::read_to_string(&file)?;
    std::fs::write(&file, text.replace(r#""2/s""#, r#""3/s""#))?;
    limiter.reload(read(&file)?)?;

    send(&client, address).await?;
    check(&arrivals, "api.example.com/search", 4, 3)?;
    check(&arrivals, "api.example.com/users/1", 12, 4)?;
    check(&arrivals, "shop.example.org/", 12, 4)
}

fn client(limiter: &Limiter, upstream: SocketAddr) -> anyhow::Result<ClientWithMiddleware> {
    let mut plain = reqwest::Client::builder().no_proxy();
    // All hosts resolve to the local server.
    for (_, host, _) in REQUESTS {
        plain = plain.resolve(host, upstream);
    }
    let throttle = ThrottleMiddleware::new(limiter.clone());
    Ok(ClientBuilder::new(plain.build()?).with(throttle).build())
}

async fn send(client: &ClientWithMiddleware, upstream: SocketAddr) -> anyhow::Result<()> {
    let all = REQUESTS.into_iter();
    let requests = all.flat_map(|(count, host, path)| std::iter::repeat_n((host, path), count));
    try_join_all(requests.map(async |(host, path)| {
        let url = format!("http://{host}:{}{path}", upstream.port());
        let response = client.get(&url).send().await?.error_for_status()?;
        let departure = response.extensions().get::<Departure>();
        // Exempt requests depart without a permit.
        anyhow::ensure!(departure.is_none() == host.contains(".internal."), "{url}");
        Ok(())
    }))
    .await?;
    Ok(())
}

type Arrivals = BTreeMap<String, History>;

/// One server for all hosts, which records the time, host and path of each request.
async fn serve() -> anyhow::Result<(SocketAddr, Arc<Mutex<Arrivals>>)> {
    let (start, arrivals) = (Instant::now(), Arc::new(Mutex::new(Arrivals::new())));
    let record = arrivals.clone();
    let app = Router::new().fallback(async move |headers: HeaderMap, uri: Uri| {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        let host = host.and_then(|host| host.split(':').next());
        let target = format!("{}{}", host.unwrap_or_default(), uri.path());
        let mut record = record.lock().unwrap_or_else(PoisonError::into_inner);
        record.entry(target).or_default().push(start.elapsed());
    });
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok((address, arrivals))
}

/// Checks the requests to one target since the previous check.
fn check(
    arrivals: &Mutex<Arrivals>,
    target: &str,
    requests: usize,
    limit: u64,
) -> anyhow::Result<()> {
    let mut arrivals = arrivals.lock().unwrap_or_else(PoisonError::into_inner);
    let history = arrivals.remove(target).unwrap_or_default();
    let second = Duration::from_secs(1);
    let most = history.most_in_any(second);
    println!(
        "{target}: {} requests, most in any {second:?} window: {most} (limit {limit})",
        history.len()
    );
    anyhow::ensure!(history.len() == requests, "expected {requests} requests");
    // The simultaneous requests use the whole limit.
    anyhow::ensure!(most == limit, "{most} arrived, not {limit}");
    Ok(())
}
