//! The limiters to compare: [`Refusing`].

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::Context as _;
use axum::body::Body;
use governor::{DefaultKeyedRateLimiter, RateLimiter};
use http::{Request, Response, StatusCode};
use support::redis_server::RedisServer;
use tower::util::BoxService;
use tower::{Layer as _, Service as _, ServiceExt as _, service_fn};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;
use tower_governor::key_extractor::GlobalKeyExtractor;
use tower_throttle::key::Key;
use tower_throttle::{Limiter, Quota};
use tower_throttle_benches::{Peer, Rate, store};

const HOUR: Duration = Duration::from_secs(3_600);

pub(crate) const TOWER_GOVERNOR: &str = "tower_governor 0.8";

/// A limiter, and the key that is over its limit.
pub(crate) struct Refusing {
    pub(crate) name: &'static str,
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
    pub(crate) async fn all(server: &RedisServer) -> anyhow::Result<Vec<Self>> {
        let refusing = |name, by| Self { name, by };
        let ours = || Limiter::builder().quota(Quota::new(1, HOUR));
        let key = Key::new("flood");
        let redis = ours().store(store(server).await?).build()?;
        let once = governor::Quota::with_period(HOUR)
            .context("the period is zero")?
            .allow_burst(NonZeroU32::MIN);
        let governor = RateLimiter::dashmap(once);
        let config = GovernorConfigBuilder::default()
            .period(HOUR)
            .burst_size(1)
            .key_extractor(GlobalKeyExtractor)
            .finish();
        let layer = GovernorLayer::new(config.context("the burst or the period is zero")?);
        let mut all = vec![
            refusing("tower-throttle, Redis", By::Ours(redis, key.clone())),
            refusing("tower-throttle, embedded", By::Ours(ours().build()?, key)),
            refusing("governor 0.10", By::Governor(governor, "flood".to_owned())),
            refusing(
                TOWER_GOVERNOR,
                By::Layer(BoxService::new(layer.layer(service_fn(answer)))),
            ),
        ];
        let rate = Rate {
            limit: 1,
            window: HOUR,
        };
        for peer in Peer::all(server, rate).await? {
            all.push(refusing(peer.name, By::Peer(peer)));
        }
        Ok(all)
    }

    /// Makes this many requests, and returns the number of permits.
    pub(crate) async fn granted(&mut self, asked: u32) -> anyhow::Result<u64> {
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
