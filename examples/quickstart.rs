//! One limit for two clients: a reqwest client and a tower client share 5 requests per second.
//!
//! ```sh
//! cargo run --example quickstart
//! ```

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use clap::Parser;
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tower::{ServiceBuilder, ServiceExt as _};
use tower_throttle::store::RedisStore;
use tower_throttle::test_util::history::History;
use tower_throttle::{Departure, Limiter, Quota, ThrottleLayer, ThrottleMiddleware, key};

const LIMIT: u32 = 5;
const REQUESTS: usize = 15;

/// Sends 15 requests at once through two clients that share a limit of 5 per second, and shows how
/// long each one waited.
#[derive(Parser)]
struct Args {
    /// Share the limit through this Redis, such as redis://127.0.0.1/: try it in two terminals
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
}

// In one thread, the requests are made in the order in which they are spawned, so this is also the
// order in which they depart: the line is first come, first served.
#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let upstream = Upstream::start().await?;
    let url = format!("http://{}/", upstream.address);

    // Requests depart exactly by the limit, but one takes longer to arrive than another. They are
    // kept this much further apart, so that the limit holds at the upstream, too: 50 ms will do for
    // most, and this even where all runs on one busy machine.
    let mut builder = Limiter::builder()
        .quota(Quota::per_second(LIMIT))
        .buffer(Duration::from_millis(500));
    if let Some(redis) = &args.redis {
        builder = builder.store(RedisStore::connect(redis).await?);
    }
    let limiter = builder.build()?;

    // The key would be the upstream's host, but each process starts an upstream of its own here.
    let reqwest_client = reqwest_middleware::ClientBuilder::new(
        // The upstream is on this machine, whatever proxy the environment names.
        reqwest::Client::builder().no_proxy().build()?,
    )
    .with(ThrottleMiddleware::new(limiter.clone()).key(key::constant("quickstart")))
    .build();

    let tower_client = ServiceBuilder::new()
        .layer(ThrottleLayer::new(limiter.clone()).key(key::constant("quickstart")))
        .service(Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>());

    let mut requests = Vec::new();
    for number in 1..=REQUESTS {
        if number % 2 == 1 {
            let request = reqwest_client.get(&url);
            let waited = tokio::spawn(async move { waited(request.send().await?.extensions()) });
            requests.push(("reqwest", waited));
        } else {
            let request = http::Request::get(&url).body(Empty::new())?;
            let response = tower_client.clone().oneshot(request);
            let waited = tokio::spawn(async move {
                waited(
                    response
                        .await
                        .map_err(anyhow::Error::from_boxed)?
                        .extensions(),
                )
            });
            requests.push(("tower", waited));
        }
    }

    let policy = limiter.policy();
    println!(
        "{LIMIT} in any {:?}, {:?} of a guard and {:?} of a buffer",
        policy.quotas()[0].window(),
        policy.guard(),
        policy.buffer()
    );
    println!("request  client    waited   one column for every 50 ms");
    for (number, (client, waited)) in (1..).zip(requests) {
        let waited = waited.await??.as_secs_f64();
        let column = (waited / 0.05) as usize;
        println!(
            "{number:>7}  {client:<7}  {waited:>5.2} s  |{:column$}#",
            ""
        );
    }

    let second = Duration::from_secs(1);
    let most = upstream.arrivals().most_in_any(second);
    println!("most in any {second:?} window: {most} (limit {LIMIT})");
    anyhow::ensure!(
        most <= u64::from(LIMIT),
        "more arrived than the limit allows"
    );
    Ok(())
}

/// How long the limiter kept the request; both clients say so in the extensions of the response.
fn waited(extensions: &http::Extensions) -> anyhow::Result<Duration> {
    let departure = extensions.get::<Departure>();
    Ok(departure
        .context("the response does not say how its request departed")?
        .waited())
}

/// A local server that remembers when requests arrived.
struct Upstream {
    address: SocketAddr,
    arrivals: Arc<Mutex<History>>,
}

impl Upstream {
    async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let arrivals = Arc::new(Mutex::new(History::new()));
        let (origin, record) = (Instant::now(), arrivals.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let record = record.clone();
                let answer = hyper::service::service_fn(move |_| {
                    record
                        .lock()
                        .expect("no panic while recording")
                        .push(origin.elapsed());
                    async { anyhow::Ok(http::Response::new(Empty::<Bytes>::new())) }
                });
                let server = hyper::server::conn::http1::Builder::new();
                tokio::spawn(server.serve_connection(TokioIo::new(stream), answer));
            }
        });
        Ok(Self { address, arrivals })
    }

    fn arrivals(&self) -> History {
        self.arrivals
            .lock()
            .expect("no panic while recording")
            .clone()
    }
}
