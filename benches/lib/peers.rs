//! Limiters of others: [`Peer`], which calls Redis for each permit, and [`governor`].

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use governor::DefaultKeyedRateLimiter;
use governor::middleware::NoOpMiddleware;
use redis::aio::{ConnectionManager, ConnectionManagerConfig, MultiplexedConnection};
use throttled::{RateLimiter as _, RedisRateLimiter};
use tower_governor::governor::{GovernorConfig, GovernorConfigBuilder};
use tower_governor::key_extractor::GlobalKeyExtractor;
use tower_throttle::Quota;

use crate::redis::{Script, connect};
use support::redis_server::RedisServer;

/// A limiter that calls Redis for each permit, and its rate.
///
/// The scripts are compact versions of common schemes, with the server's time, on one multiplexed connection. The crate
/// `throttled` supports all rates, also multiplexes, and uses GCRA. The crate `tower-rate-limit-redis` is missing,
/// because it counts in whole milliseconds, so the benchmark would only measure its limit of 1,000 per second.
#[derive(Clone)]
pub struct Peer {
    pub name: &'static str,
    rate: Quota,
    scheme: Scheme,
}

#[derive(Clone)]
enum Scheme {
    SortedSet(Script),
    Hash(Script),
    Gcra(Script),
    Throttled(Arc<RedisRateLimiter>),
}

impl Peer {
    /// All peers, each with its own connection.
    pub async fn all(server: &RedisServer, rate: Quota) -> anyhow::Result<Vec<Self>> {
        let mut all = Self::scripts(&connect(server).await?, rate).await?;
        let config = ConnectionManagerConfig::new().set_response_timeout(None);
        let manager = ConnectionManager::new_with_config(server.client(), config).await?;
        all.push(Self {
            name: "throttled 0.1 (crate)",
            rate,
            scheme: Scheme::Throttled(Arc::new(RedisRateLimiter::new(manager))),
        });
        Ok(all)
    }

    pub async fn scripts(
        connection: &MultiplexedConnection,
        rate: Quota,
    ) -> anyhow::Result<Vec<Self>> {
        let script = async |text| Script::load(connection.clone(), text).await;
        let sorted_set = script(include_str!("peers/sorted_set.lua")).await?;
        let hash = script(include_str!("peers/hash.lua")).await?;
        let gcra = script(include_str!("peers/gcra.lua")).await?;
        let schemes = [
            ("sorted set log", Scheme::SortedSet(sorted_set)),
            ("hash of coarse times", Scheme::Hash(hash)),
            ("gcra script", Scheme::Gcra(gcra)),
        ];
        let peers = schemes.map(|(name, scheme)| Self { name, rate, scheme });
        Ok(peers.into())
    }

    pub async fn ask(&self, key: &str) -> anyhow::Result<bool> {
        // Unique within this process.
        static MEMBER: AtomicU64 = AtomicU64::new(0);
        let limit = self.rate.limit();
        let window = self.rate.window().as_micros() as u64;
        let between = (window / u64::from(limit)).max(1);
        let (script, arguments) = match &self.scheme {
            Scheme::SortedSet(script) => {
                let member = MEMBER.fetch_add(1, Ordering::Relaxed);
                (script, vec![window, limit.into(), member])
            }
            Scheme::Hash(script) => (script, vec![window, (window / 10).max(1), limit.into()]),
            Scheme::Gcra(script) => (script, vec![between, between * u64::from(limit - 1)]),
            Scheme::Throttled(limiter) => {
                // That crate takes a rate per second, minute or hour, and a separate burst.
                let whole = |rate: f64| NonZeroU32::new(rate as u32).context("the rate is zero");
                let per_second = f64::from(limit) / self.rate.window().as_secs_f64();
                let rate = match per_second >= 1.0 {
                    true => throttled::Quota::per_second(whole(per_second)?),
                    false => throttled::Quota::per_hour(whole(per_second * 3_600.0)?),
                };
                let rate = rate.with_burst(whole(limit.into())?);
                return Ok(limiter.check(key, rate).await?.is_allowed());
            }
        };
        let granted: u8 = script.send(script.call(key).arg(&arguments)).await?;
        Ok(granted == 1)
    }
}

/// A limiter of that crate, whose keys have no shared state.
pub fn governor(burst: u32, interval: Duration) -> anyhow::Result<DefaultKeyedRateLimiter<String>> {
    let quota = governor::Quota::with_period(interval).context("the interval is zero")?;
    let burst = NonZeroU32::new(burst).context("the burst is zero")?;
    Ok(governor::RateLimiter::dashmap(quota.allow_burst(burst)))
}

type OneLimit = GovernorConfig<GlobalKeyExtractor, NoOpMiddleware>;

/// The settings of `tower_governor`, with one limit for all requests.
pub fn tower_governor(burst: u32, interval: Duration) -> anyhow::Result<OneLimit> {
    let mut config = GovernorConfigBuilder::default();
    let config = config.period(interval).burst_size(burst);
    let config = config.key_extractor(GlobalKeyExtractor).finish();
    config.context("the burst or the interval is zero")
}
