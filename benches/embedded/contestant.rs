//! The limiters and layers to compare: [`Contestant`].

use std::convert::Infallible;
use std::future::{Ready, ready};

use axum::body::Body;
use http::{Request, Response, StatusCode};
use tokio::runtime::Handle;
use tower::limit::RateLimitLayer;
use tower::{BoxError, Layer, Service, ServiceExt as _, service_fn};
use tower_governor::GovernorLayer;
use tower_throttle::{ThrottleLayer, key};
use tower_throttle_benches::*;

pub(crate) const GOVERNOR: &str = "governor 0.10, check_key";
pub(crate) const ACQUIRE: &str = "tower-throttle, GCRA, acquire";

/// The limit of the sliding log.
const LIMIT: u32 = 20_000;
const WINDOW: Duration = Duration::from_micros(500);
/// The burst of GCRA, and its rate per second.
const BURST: u32 = 1_000_000_000;
const RATE: u32 = 1_000_000;
const NAME: &str = "api.example.com";

pub(crate) struct Contestant {
    pub(crate) name: &'static str,
    pub(crate) is_layer: bool,
    /// Creates the calls of one thread; those of all threads share a limiter.
    pub(crate) start: Box<dyn Fn() -> Calls>,
}

/// Makes this many calls, and returns the number of permits.
pub(crate) type Calls = Box<dyn FnMut(u64) -> u64 + Send>;

impl Contestant {
    pub(crate) fn all() -> anyhow::Result<Vec<Self>> {
        let contestant = |name, start| Self {
            name,
            is_layer: false,
            start,
        };
        let gcra = Quota::per_second(RATE).algorithm(Algorithm::Gcra { burst: BURST });
        let gcra = Limiter::builder().quota(gcra).build()?;
        let log = Limiter::builder().quota(Quota::new(LIMIT, WINDOW));
        let log = log.guard(WINDOW).build()?;
        let mut all = vec![
            contestant("tower-throttle, GCRA, try_acquire", try_acquire(&gcra)),
            contestant(ACQUIRE, acquire(&gcra)),
            contestant(
                "tower-throttle, sliding log, try_acquire",
                try_acquire(&log),
            ),
            contestant("tower-throttle, sliding log, acquire", acquire(&log)),
            contestant(GOVERNOR, governor()?),
            contestant("leaky-bucket 1.1, try_acquire", leaky_bucket()),
        ];
        let ours = |limiter: &Limiter| {
            let layer = ThrottleLayer::new(limiter.clone());
            layer.key(key::constant(NAME)).unreported()
        };
        let reported = ThrottleLayer::new(gcra.clone()).key(key::constant(NAME));
        let governor = GovernorLayer::new(tower_governor(BURST, Duration::from_micros(1))?);
        let tower = RateLimitLayer::new(u64::from(BURST) * 1_000, Duration::from_secs(1));
        all.extend([
            Self::layer("none", || service_fn(answer)),
            Self::layer("Throttle, GCRA", with(ours(&gcra))),
            Self::layer("Throttle, sliding log", with(ours(&log))),
            Self::layer("Throttle, GCRA, with Departure", with(reported)),
            Self::layer("tower 0.5, RateLimit", with(tower)),
            Self::layer("tower_governor 0.8", with(governor)),
        ]);
        Ok(all)
    }

    fn layer<S, B>(name: &'static str, service: impl Fn() -> S + 'static) -> Self
    where
        S: Service<Request<()>, Response = Response<B>, Error: Into<BoxError>> + Send + 'static,
    {
        let start = move || {
            let mut service = service();
            repeat(async move || {
                let Ok(service) = service.ready().await else {
                    return false;
                };
                let response = service.call(Request::new(())).await;
                response.is_ok_and(|it| it.status() == StatusCode::OK)
            })
        };
        Self {
            name,
            is_layer: true,
            start: Box::new(start),
        }
    }

    /// Median of allocations per call, because a call that is interrupted for longer than the guard has to wait.
    pub(crate) fn allocations(&self) -> f64 {
        const CALLS: u64 = 1_000;
        let mut calls = (self.start)();
        let block = |_| {
            let allocated = allocation_counter::measure(|| {
                calls(CALLS);
            });
            allocated.count_total as f64 / CALLS as f64
        };
        median((0..21).map(block).collect())
    }
}

/// Calls that may wait; this thread polls them.
fn repeat(mut call: impl AsyncFnMut() -> bool + Send + 'static) -> Calls {
    Box::new(move |calls| {
        Handle::current().block_on(async {
            let mut granted = 0;
            for _ in 0..calls {
                granted += u64::from(call().await);
            }
            granted
        })
    })
}

fn try_acquire(limiter: &Limiter) -> Box<dyn Fn() -> Calls> {
    let limiter = limiter.clone();
    Box::new(move || {
        let (limiter, key) = (limiter.clone(), Key::new(NAME));
        repeat(async move || {
            let decision = limiter.try_acquire(key.clone()).await;
            decision.is_ok_and(|decision| decision.is_granted())
        })
    })
}

fn acquire(limiter: &Limiter) -> Box<dyn Fn() -> Calls> {
    let limiter = limiter.clone();
    Box::new(move || {
        let (limiter, key) = (limiter.clone(), Key::new(NAME));
        repeat(async move || limiter.acquire(key.clone()).await.is_ok())
    })
}

fn governor() -> anyhow::Result<Box<dyn Fn() -> Calls>> {
    let limiter = tower_throttle_benches::governor(BURST, Duration::from_micros(1))?;
    let limiter = std::sync::Arc::new(limiter);
    Ok(Box::new(move || {
        let (limiter, key) = (limiter.clone(), NAME.to_owned());
        Box::new(move |calls| {
            let granted = (0..calls).filter(|_| limiter.check_key(&key).is_ok());
            granted.count() as u64
        })
    }))
}

/// This limiter has no keys, and refills at most once per millisecond.
fn leaky_bucket() -> Box<dyn Fn() -> Calls> {
    let plenty = 1_000_000;
    let limiter = leaky_bucket::RateLimiter::builder()
        .initial(plenty)
        .max(plenty)
        .refill(plenty)
        .interval(Duration::from_millis(1))
        .build();
    let limiter = std::sync::Arc::new(limiter);
    Box::new(move || {
        let limiter = limiter.clone();
        Box::new(move |calls| (0..calls).map(|_| u64::from(limiter.try_acquire(1))).sum())
    })
}

type Bare = tower::util::ServiceFn<fn(Request<()>) -> Answer>;
type Answer = Ready<Result<Response<Body>, Infallible>>;

fn with<L: Layer<Bare>>(layer: L) -> impl Fn() -> L::Service {
    move || layer.layer(service_fn(answer as fn(_) -> _))
}

fn answer(_: Request<()>) -> Answer {
    ready(Ok(Response::new(Body::empty())))
}
