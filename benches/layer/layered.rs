//! The layers to compare: [`Layered`].

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use axum::body::Body;
use http::{Request, Response, StatusCode};
use tokio::runtime::Runtime;
use tower::limit::RateLimitLayer;
use tower::{BoxError, Layer as _, Service, ServiceExt as _, service_fn};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;
use tower_governor::key_extractor::GlobalKeyExtractor;
use tower_throttle::{Algorithm, Limiter, Quota, ThrottleLayer, key};
use tower_throttle_benches::rounds::median;

const BURST: u32 = 1_000_000_000;

/// A service with or without a layer.
pub(crate) struct Layered {
    name: &'static str,
    bound: bool,
    calls: Calls,
}

/// Calls the service this many times.
type Calls = Box<dyn FnMut(&Runtime, u64) -> Result<(), BoxError>>;

impl Layered {
    /// The bare service, the layers of this crate, and then the peers.
    pub(crate) fn all() -> anyhow::Result<Vec<Self>> {
        let gcra = Quota::per_second(1_000_000).algorithm(Algorithm::Gcra { burst: BURST });
        let gcra = Limiter::builder().quota(gcra).build()?;
        let log = Limiter::builder()
            .quota(Quota::new(20_000, Duration::from_micros(500)))
            .guard(Duration::from_micros(500))
            .build()?;
        let ours = |limiter: &Limiter| {
            ThrottleLayer::new(limiter.clone())
                .key(key::constant("all"))
                .unreported()
        };
        let reported = ThrottleLayer::new(gcra.clone()).key(key::constant("all"));
        let config = GovernorConfigBuilder::default()
            .period(Duration::from_micros(1))
            .burst_size(BURST)
            .key_extractor(GlobalKeyExtractor)
            .finish();
        let governor = GovernorLayer::new(config.context("the burst or the period is zero")?);
        let bare = service_fn(answer);
        let tower = RateLimitLayer::new(u64::from(BURST) * 1_000, Duration::from_secs(1));
        Ok(vec![
            Self::new("none", false, bare),
            Self::new("Throttle, gcra", true, ours(&gcra).layer(bare)),
            Self::new("Throttle, sliding log", true, ours(&log).layer(bare)),
            Self::new(
                "Throttle, gcra, with Departure",
                false,
                reported.layer(bare),
            ),
            Self::new("tower 0.5, RateLimit", false, tower.layer(bare)),
            Self::new("tower_governor 0.8", false, governor.layer(bare)),
        ])
    }

    fn new<S, B>(name: &'static str, bound: bool, mut service: S) -> Self
    where
        S: Service<Request<()>, Response = Response<B>> + 'static,
        S::Error: Into<BoxError>,
    {
        let calls = move |runtime: &Runtime, calls| {
            runtime.block_on(async {
                for _ in 0..calls {
                    let service = service.ready().await.map_err(Into::into)?;
                    let response = service.call(Request::new(())).await;
                    let response = response.map_err(Into::into)?;
                    if response.status() != StatusCode::OK {
                        return Err(format!("unexpected status: {}", response.status()).into());
                    }
                }
                Ok(())
            })
        };
        Self {
            name,
            bound,
            calls: Box::new(calls),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// True if the bounds apply to this layer.
    pub(crate) fn is_bound(&self) -> bool {
        self.bound
    }

    pub(crate) fn call(&mut self, runtime: &Runtime, calls: u64) -> anyhow::Result<()> {
        (self.calls)(runtime, calls).map_err(|error| anyhow!("{}: {error}", self.name))
    }

    /// Median of allocations per call, because a call that is interrupted for longer than the guard has to wait.
    pub(crate) fn allocations(&mut self, runtime: &Runtime) -> anyhow::Result<f64> {
        const CALLS: u64 = 1_000;
        let mut counts = Vec::new();
        for _ in 0..21 {
            let mut called = Ok(());
            let allocated = allocation_counter::measure(|| called = self.call(runtime, CALLS));
            called?;
            counts.push(allocated.count_total as f64 / CALLS as f64);
        }
        Ok(median(counts))
    }
}

fn answer(_: Request<()>) -> Ready<Result<Response<Body>, Infallible>> {
    ready(Ok(Response::new(Body::empty())))
}
