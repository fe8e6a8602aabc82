//! Compares how fast limiters refuse requests of a key over its limit, on one thread.
//!
//! The limit is one request per hour, and one has departed. Then one task on a runtime with one thread repeats the
//! request with each limiter in turn, and is refused each time: no other request may depart. This crate with Redis
//! caches that the key is over its limit. `governor` has no shared state; `tower_governor` responds with 429. Figures
//! and ratios are medians over the rounds.

use std::convert::Infallible;
use std::future::{Ready, ready};

use axum::body::Body;
use governor::DefaultKeyedRateLimiter;
use http::{Request, Response, StatusCode};
use tower::util::BoxService;
use tower::{Layer as _, Service as _, ServiceExt as _, service_fn};
use tower_governor::GovernorLayer;
use tower_throttle_benches::*;

const HOUR: Duration = Duration::from_secs(3_600);
const ONCE: Quota = Quota::new(1, HOUR);
const TOWER_GOVERNOR: &str = "tower_governor 0.8";

const ROUNDS: usize = 9;
const TIME: Duration = Duration::from_millis(250);
/// Number of requests between two readings of the clock.
const BLOCK: u32 = 100;

const LEAST_RATIO: f64 = 134.0;

fn main() -> anyhow::Result<()> {
    measure(0, run)
}

async fn run(output: &mut Output) -> anyhow::Result<()> {
    let server = RedisServer::start();
    let mut meter = Meter::new(&server).await?;
    let mut all = Refusing::all(&server).await?;
    for limiter in &mut all {
        let granted = limiter.granted(BLOCK).await?;
        ensure!(granted == 1, "{}: {granted} granted", limiter.name);
    }
    let [mut rate, mut calls] = Rounds::several(all.len());
    eprintln!("refusals");
    for (_, place) in turns(ROUNDS, all.len()) {
        let limiter = &mut all[place];
        let mark = meter.mark().await?;
        let (mut refused, start) = (0.0, Instant::now());
        while start.elapsed() < output.time(TIME) {
            let granted = limiter.granted(BLOCK).await?;
            ensure!(granted == 0, "{}: {granted} more granted", limiter.name);
            refused += f64::from(BLOCK);
            // A task that never waits still has to yield to others.
            tokio::task::yield_now().await;
        }
        rate.push(place, refused / start.elapsed().as_secs_f64());
        calls.push(place, meter.since(&mark).await?.calls / refused);
    }
    let mut table = Table::new(
        "refusals by one thread",
        "limiter | refusals per s | ours with Redis relative to this | calls to Redis per refusal",
    );
    for (place, limiter) in all.iter().enumerate() {
        let to_this = rate.ratio(0, place);
        table.row([
            text(limiter.name),
            count(rate.median(place)),
            ratio(to_this),
            ratio(calls.median(place)),
        ]);
        if limiter.name == TOWER_GOVERNOR {
            let claim = "refusals from the denial cache, to tower_governor";
            output.at_least(claim, to_this, LEAST_RATIO);
        }
    }
    println!("{table}");
    Ok(())
}

struct Refusing {
    name: &'static str,
    by: By,
}

enum By {
    Ours(Limiter, Key),
    Governor(DefaultKeyedRateLimiter<String>, String),
    Layer(BoxService<Request<()>, Response<Body>, Infallible>),
    Peer(Peer),
}

impl Refusing {
    /// This crate with Redis first.
    async fn all(server: &RedisServer) -> anyhow::Result<Vec<Self>> {
        let refusing = |name, by| Self { name, by };
        let ours = || Limiter::builder().quota(ONCE);
        let key = Key::new("flood");
        let redis = ours().store(store(server).await?).build()?;
        let governor = governor(1, HOUR)?;
        let layer = GovernorLayer::new(tower_governor(1, HOUR)?);
        let layer = BoxService::new(layer.layer(service_fn(answer)));
        let mut all = vec![
            refusing("tower-throttle, Redis", By::Ours(redis, key.clone())),
            refusing("tower-throttle, embedded", By::Ours(ours().build()?, key)),
            refusing("governor 0.10", By::Governor(governor, "flood".to_owned())),
            refusing(TOWER_GOVERNOR, By::Layer(layer)),
        ];
        for peer in Peer::all(server, ONCE).await? {
            all.push(refusing(peer.name, By::Peer(peer)));
        }
        Ok(all)
    }

    async fn granted(&mut self, asked: u32) -> anyhow::Result<u64> {
        let mut granted = 0;
        for _ in 0..asked {
            granted += u64::from(match &mut self.by {
                By::Ours(limiter, key) => limiter.try_acquire(key.clone()).await?.is_granted(),
                By::Governor(limiter, key) => limiter.check_key(key).is_ok(),
                By::Layer(layer) => {
                    let response = layer.ready().await?.call(Request::new(())).await?;
                    response.status() != StatusCode::TOO_MANY_REQUESTS
                }
                By::Peer(peer) => peer.ask(peer.name).await?,
            });
        }
        Ok(granted)
    }
}

fn answer(_: Request<()>) -> Ready<Result<Response<Body>, Infallible>> {
    ready(Ok(Response::new(Body::empty())))
}
