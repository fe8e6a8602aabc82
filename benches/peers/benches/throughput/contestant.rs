//! Who takes turns: [`Contestant`].

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use tower_throttle::key::Key;
use tower_throttle::{Limiter, Quota};
use tower_throttle_peers::load::{Load, load};
use tower_throttle_peers::peers::Peer;
use tower_throttle_peers::support::RedisServer;

use crate::RATE;

/// A limiter, and a key of its own.
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
    /// Ours, and then the peers.
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

    /// Lets so many ask for permits, which are there at once or once the store has answered. Each kind of
    /// limiter has a future of its own, as to move the larger of all would cost as much as a permit.
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
                        ensure!(
                            granted,
                            "{} refuses, where its quota was not to count",
                            peer.name
                        );
                        Ok(1)
                    }
                };
                load(callers, time, ask).await
            }
        }
    }
}
