//! Who takes turns: [`Contestant`].

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use tower_throttle::key::Key;
use tower_throttle::{Limiter, Quota};
use tower_throttle_peers::load::{Load, load};
use tower_throttle_peers::peers::{Peer, Rate};
use tower_throttle_peers::support::RedisServer;

use crate::unguarded::Unguarded;

/// A limiter, its rate, and a key of its own.
#[derive(Clone)]
pub(crate) struct Contestant {
    rate: Rate,
    key: Key,
    limiter: By,
}

#[derive(Clone)]
enum By {
    Ours(Limiter, Unguarded),
    Peer(Peer),
}

impl Contestant {
    /// Ours, and then the peers.
    pub(crate) async fn all(server: &RedisServer, rate: Rate) -> anyhow::Result<Vec<Self>> {
        let store = Unguarded::new(server.store().await?);
        let limiter = Limiter::builder()
            .store(store.clone())
            .quota(Quota::new(rate.limit, rate.window))
            .build()?;
        let mut all = vec![By::Ours(limiter, store)];
        all.extend(Peer::all(server, rate).await?.into_iter().map(By::Peer));
        let all = all.into_iter().enumerate().map(|(number, limiter)| {
            let key = Key::new(format!("hot:{}:{number}", rate.limit));
            Self { rate, key, limiter }
        });
        Ok(all.collect())
    }

    pub(crate) fn name(&self) -> &'static str {
        match &self.limiter {
            By::Ours(..) => "tower-throttle",
            By::Peer(peer) => peer.name,
        }
    }

    pub(crate) fn rate(&self) -> Rate {
        self.rate
    }

    /// Lets so many ask for permits, which are there at once or once the store has answered. Each kind of
    /// limiter has a future of its own, as to move the larger of all would cost as much as a permit.
    pub(crate) async fn load(&self, callers: usize, time: Duration) -> anyhow::Result<Load> {
        let key = self.key.clone();
        match &self.limiter {
            By::Ours(limiter, _) => {
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

    /// Fails if what was reserved since the last time breaks the limit.
    pub(crate) fn judge(&self) -> anyhow::Result<()> {
        if let By::Ours(_, store) = &self.limiter {
            let Rate { limit, window } = self.rate;
            let most = store.most_in_any(window);
            ensure!(
                (1..=u64::from(limit)).contains(&most),
                "{most} slots lie within {window:?}, where {limit} may"
            );
        }
        Ok(())
    }
}
