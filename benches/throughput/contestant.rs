//! The limiters to compare: [`Contestant`].

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use tower_throttle::key::Key;
use tower_throttle::{Limiter, Quota};
use tower_throttle_benches::load::{Load, load};
use tower_throttle_benches::peers::Peer;
use tower_throttle_benches::support::RedisServer;

use crate::RATE;

/// A limiter and its key.
#[derive(Clone)]
pub(crate) struct Contestant {
    key: Key,
    limiter: By,
}

#[derive(Clone)]
enum By {
    Ours(Limiter),
    Peer(Peer),
}

impl Contestant {
    /// This crate first, then the peers.
    pub(crate) async fn all(server: &RedisServer) -> anyhow::Result<Vec<Self>> {
        let limiter = Limiter::builder()
            .store(server.store().await?)
            .quota(Quota::new(RATE.limit, RATE.window))
            .build()?;
        let mut all = vec![By::Ours(limiter)];
        all.extend(Peer::all(server, RATE).await?.into_iter().map(By::Peer));
        let all = all.into_iter().enumerate().map(|(number, limiter)| {
            let key = Key::new(format!("hot:{number}"));
            Self { key, limiter }
        });
        Ok(all.collect())
    }

    pub(crate) fn name(&self) -> &'static str {
        match &self.limiter {
            By::Ours(_) => "tower-throttle",
            By::Peer(peer) => peer.name,
        }
    }

    /// Runs this many callers. Each kind of limiter has its own future, because moving the larger one would cost as
    /// much as a permit.
    pub(crate) async fn load(&self, callers: usize, time: Duration) -> anyhow::Result<Load> {
        let key = self.key.clone();
        match &self.limiter {
            By::Ours(limiter) => {
                let limiter = limiter.clone();
                let ask = move || {
                    let permit = limiter.acquire(key.clone());
                    async move {
                        permit.await?;
                        Ok(1)
                    }
                };
                load(callers, time, ask).await
            }
            By::Peer(peer) => {
                let peer = Arc::new(peer.clone());
                let ask = move || {
                    let (peer, key) = (peer.clone(), key.clone());
                    async move {
                        let granted = peer.ask(key.as_str()).await?;
                        ensure!(granted, "{} refused a request below its limit", peer.name);
                        Ok(1)
                    }
                };
                load(callers, time, ask).await
            }
        }
    }
}
