//! What tasks wait for: [`Line`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tower_throttle::key::Key;
use tower_throttle::{Limiter, Quota};
use tower_throttle_peers::support::RedisServer;

/// What tasks wait for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing, for ever.
    Pending,
    /// A permit, with the embedded store.
    Memory,
    /// A permit, with Redis.
    Redis,
    Semaphore,
}

/// What tasks of one run wait for.
pub(crate) enum Line {
    Pending,
    Limiter {
        limiter: Limiter,
        key: Key,
        /// When the limit was spent.
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

impl Line {
    /// Nobody can depart before the window and the guard are over, each this long.
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
        let key = Key::new("everybody");
        limiter.reset(key.clone()).await?;
        limiter.acquire(key.clone()).cost(limit).await?;
        Ok(Self::Limiter {
            limiter,
            key,
            spent: Instant::now(),
        })
    }

    /// When the limit was spent, for a limiter.
    pub(crate) fn spent(&self) -> Option<Instant> {
        match self {
            Self::Limiter { spent, .. } => Some(*spent),
            Self::Pending | Self::Semaphore(_) => None,
        }
    }
}
