//! The limiters and the semaphore that tasks wait for: [`Target`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tower_throttle::key::Key;
use tower_throttle::{Limiter, Quota};
use tower_throttle_benches::support::RedisServer;

/// The kind of a [`Target`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A future that never completes.
    Pending,
    /// A permit of the embedded store.
    Memory,
    /// A permit of Redis.
    Redis,
    Semaphore,
}

/// The target that all tasks of a run wait for.
pub(crate) enum Target {
    Pending,
    Limiter {
        limiter: Limiter,
        key: Key,
        /// The time when the limit was spent.
        spent: Instant,
    },
    Semaphore(Arc<Semaphore>),
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pending => "nothing",
            Self::Memory => "tower-throttle, embedded",
            Self::Redis => "tower-throttle, Redis",
            Self::Semaphore => "tokio's Semaphore",
        }
    }
}

impl Target {
    /// Spends the limit, so that no task departs before the end of the window and the guard, `span` each.
    pub(crate) async fn new(
        kind: Kind,
        limit: u32,
        span: Duration,
        server: &RedisServer,
    ) -> anyhow::Result<Self> {
        let limiter = Limiter::builder()
            .quota(Quota::new(limit, span))
            .guard(span);
        let limiter = match kind {
            Kind::Pending => return Ok(Self::Pending),
            Kind::Semaphore => return Ok(Self::Semaphore(Arc::new(Semaphore::new(0)))),
            Kind::Memory => limiter.build()?,
            Kind::Redis => limiter.store(server.store().await?).build()?,
        };
        let key = Key::new("shared");
        limiter.reset(key.clone()).await?;
        limiter.acquire(key.clone()).cost(limit).await?;
        Ok(Self::Limiter {
            limiter,
            key,
            spent: Instant::now(),
        })
    }

    /// The time when the limit was spent, for a limiter.
    pub(crate) fn spent(&self) -> Option<Instant> {
        match self {
            Self::Limiter { spent, .. } => Some(*spent),
            Self::Pending | Self::Semaphore(_) => None,
        }
    }
}
