//! The limiters to compare on one key: [`Contestant`].

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::Context as _;
use governor::RateLimiter;
use governor::clock::{Clock as _, DefaultClock};
use tokio::runtime::Handle;
use tower_throttle::key::Key;
use tower_throttle::{Algorithm, Limiter, Quota};
use tower_throttle_benches::rounds::median;

pub(crate) const GOVERNOR: &str = "governor 0.10, check_key";

/// The limit of the sliding log.
const LIMIT: u32 = 20_000;
const WINDOW: Duration = Duration::from_micros(500);
const GUARD: Duration = WINDOW;
/// The burst of GCRA, at a million per second.
const BURST: u32 = 1_000_000_000;
const NAME: &str = "api.example.com";

/// A limiter and a way of calling it.
pub(crate) struct Contestant {
    name: &'static str,
    kind: Kind,
    calls: Calls,
}

/// Makes this many calls, and returns the number of permits.
type Calls = Box<dyn Fn(u64) -> u64 + Send + Sync>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Log,
    Gcra,
    Peer,
}

impl Contestant {
    pub(crate) fn all() -> anyhow::Result<Vec<Self>> {
        let contestant = |name, kind, calls| Self { name, kind, calls };
        let log = limiter(Quota::new(LIMIT, WINDOW))?;
        let gcra = Quota::per_second(1_000_000).algorithm(Algorithm::Gcra { burst: BURST });
        let gcra = limiter(gcra)?;
        Ok(vec![
            contestant("gcra, try_acquire(Key)", Kind::Gcra, try_key(&gcra)),
            contestant("gcra, try_acquire(&str)", Kind::Gcra, try_text(&gcra)),
            contestant("gcra, acquire(Key)", Kind::Gcra, acquire(&gcra)),
            contestant("sliding log, try_acquire(Key)", Kind::Log, try_key(&log)),
            contestant("sliding log, try_acquire(&str)", Kind::Log, try_text(&log)),
            contestant("sliding log, acquire(Key)", Kind::Log, acquire(&log)),
            contestant(GOVERNOR, Kind::Peer, governor()?),
            contestant("leaky-bucket 1.1, try_acquire", Kind::Peer, try_bucket()),
            contestant("leaky-bucket 1.1, acquire_one", Kind::Peer, bucket()),
            contestant("reading our clock", Kind::Peer, our_clock()),
            contestant("reading governor's clock", Kind::Peer, governors_clock()),
        ])
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.kind != Kind::Peer
    }

    /// True for GCRA of this crate, which is comparable with `governor`.
    pub(crate) fn is_like_governor(&self) -> bool {
        self.kind == Kind::Gcra
    }

    pub(crate) fn call(&self, calls: u64) -> u64 {
        (self.calls)(calls)
    }

    /// Median of allocations per call, because a call that is interrupted for longer than the guard has to wait.
    pub(crate) fn allocations(&self) -> f64 {
        const CALLS: u64 = 1_000;
        let block = |_| {
            let allocated = allocation_counter::measure(|| {
                self.call(CALLS);
            });
            allocated.count_total as f64 / CALLS as f64
        };
        median((0..21).map(block).collect())
    }
}

fn limiter(quota: Quota) -> anyhow::Result<Limiter> {
    Ok(Limiter::builder().quota(quota).guard(GUARD).build()?)
}

fn repeat(call: impl Fn() -> bool + Send + Sync + 'static) -> Calls {
    Box::new(move |calls| (0..calls).map(|_| u64::from(call())).sum())
}

/// Calls that may wait; this thread polls them.
fn repeat_async(call: impl AsyncFn() -> bool + Send + Sync + 'static) -> Calls {
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

fn try_key(limiter: &Limiter) -> Calls {
    let (limiter, key) = (limiter.clone(), Key::new(NAME));
    repeat_async(async move || {
        let decision = limiter.try_acquire(key.clone()).await;
        decision.is_ok_and(|decision| decision.is_granted())
    })
}

fn try_text(limiter: &Limiter) -> Calls {
    let limiter = limiter.clone();
    repeat_async(async move || {
        let decision = limiter.try_acquire(NAME).await;
        decision.is_ok_and(|decision| decision.is_granted())
    })
}

fn acquire(limiter: &Limiter) -> Calls {
    let (limiter, key) = (limiter.clone(), Key::new(NAME));
    repeat_async(async move || limiter.acquire(key.clone()).await.is_ok())
}

fn governor() -> anyhow::Result<Calls> {
    let burst = NonZeroU32::new(BURST).context("the burst is zero")?;
    let between = Duration::from_micros(1);
    let quota = governor::Quota::with_period(between).context("the period is zero")?;
    let limiter = RateLimiter::dashmap(quota.allow_burst(burst));
    let key = NAME.to_owned();
    Ok(repeat(move || limiter.check_key(&key).is_ok()))
}

/// tokio's clock, which tests can pause.
fn our_clock() -> Calls {
    repeat(|| {
        black_box(tokio::time::Instant::now());
        true
    })
}

fn governors_clock() -> Calls {
    let clock = DefaultClock::default();
    repeat(move || {
        black_box(clock.now());
        true
    })
}

/// This limiter has no keys, and refills at most once per millisecond.
fn leaky_bucket() -> leaky_bucket::RateLimiter {
    let plenty = 1_000_000;
    leaky_bucket::RateLimiter::builder()
        .initial(plenty)
        .max(plenty)
        .refill(plenty)
        .interval(Duration::from_millis(1))
        .build()
}

fn try_bucket() -> Calls {
    let limiter = leaky_bucket();
    repeat(move || limiter.try_acquire(1))
}

fn bucket() -> Calls {
    let limiter = leaky_bucket();
    repeat_async(async move || {
        limiter.acquire_one().await;
        true
    })
}
