//! Who takes turns: [`Contestant`].

use anyhow::ensure;
use tower_throttle::key::Key;
use tower_throttle::{Limiter, Quota};
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

    /// Asks for a permit, which is there at once or once the store has answered.
    pub(crate) async fn ask(&self) -> anyhow::Result<()> {
        match &self.limiter {
            By::Ours(limiter, _) => {
                limiter.acquire(self.key.clone()).await?;
            }
            By::Peer(peer) => {
                let granted = peer.ask(self.key.as_str()).await?;
                ensure!(
                    granted,
                    "{} refuses, where its quota was not to count",
                    peer.name
                );
            }
        }
        Ok(())
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
