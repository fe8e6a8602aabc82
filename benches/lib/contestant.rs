//! Limiters that are compared by their decisions: [`Contestant`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tower_throttle::key::Key;
use tower_throttle::{Decision, Limiter, LimiterBuilder, Quota};

use crate::departures::Departures;
use crate::load::{Load, load};
use crate::peers::Peer;
use crate::redis::store;
use support::redis_server::RedisServer;

#[derive(Clone)]
pub enum Contestant {
    Ours(Limiter),
    Peer(Peer),
}

/// A key, and the departures through this crate if they are recorded.
pub type Recorded = (Key, Option<Departures>);

impl Contestant {
    /// A limiter of this crate first, then all peers, in a fixed order.
    pub async fn beside_peers(
        server: &RedisServer,
        rate: Quota,
        change: fn(LimiterBuilder) -> LimiterBuilder,
    ) -> anyhow::Result<Vec<Self>> {
        let limiter = Limiter::builder().store(store(server).await?).quota(rate);
        let limiter = change(limiter).build()?;
        let peers = Peer::all(server, rate).await?;
        let peers = peers.into_iter().map(Self::Peer);
        Ok([Self::Ours(limiter)].into_iter().chain(peers).collect())
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Ours(_) => "tower-throttle",
            Self::Peer(peer) => peer.name,
        }
    }

    /// Runs callers that ask for random keys, again and again without waiting. Returns their load, and the permits per second.
    pub async fn decide(
        &self,
        keys: &Arc<Vec<Recorded>>,
        callers: usize,
        time: Duration,
    ) -> anyhow::Result<(Load, f64)> {
        let granted = Arc::new(AtomicU64::new(0));
        let shared = Arc::new((self.clone(), keys.clone(), granted.clone()));
        let ask = move || {
            let shared = shared.clone();
            async move {
                let (contestant, keys, granted) = &*shared;
                let key = &keys[rand::random_range(0..keys.len())];
                if contestant.ask(key).await? {
                    granted.fetch_add(1, Ordering::Relaxed);
                }
                // A task that never waits still has to yield to others.
                tokio::task::consume_budget().await;
                Ok(())
            }
        };
        let load = load(callers, time, ask).await?;
        let permits = granted.load(Ordering::Relaxed) as f64;
        let per_second = permits / load.time.as_secs_f64();
        Ok((load, per_second))
    }

    async fn ask(&self, (key, departures): &Recorded) -> anyhow::Result<bool> {
        match self {
            Self::Ours(limiter) => match limiter.try_acquire(key.clone()).await? {
                Decision::Granted(permit) => {
                    departures.iter().for_each(|it| it.record(&permit));
                    Ok(true)
                }
                _ => Ok(false),
            },
            Self::Peer(peer) => peer.ask(key.as_str()).await,
        }
    }
}
