//! The limiters to compare: [`Contestant`].

use tower_throttle::key::Key;
use tower_throttle::{Limiter, Quota};
use tower_throttle_benches::peers::Peer;
use tower_throttle_benches::support::RedisServer;

use crate::RATE;

/// A limiter that decides without waiting.
#[derive(Clone)]
pub(crate) enum Contestant {
    Ours(Limiter),
    Peer(Peer),
}

impl Contestant {
    /// This crate first, then the peers.
    pub(crate) async fn all(server: &RedisServer) -> anyhow::Result<Vec<Self>> {
        let limiter = Limiter::builder()
            .store(server.store().await?)
            .quota(Quota::new(RATE.limit, RATE.window))
            // Redis decides each request, as it does for the peers.
            .denial_cache(0)
            .build()?;
        let mut all = vec![Self::Ours(limiter)];
        all.extend(Peer::all(server, RATE).await?.into_iter().map(Self::Peer));
        Ok(all)
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Ours(_) => "tower-throttle",
            Self::Peer(peer) => peer.name,
        }
    }

    /// True if this user's request may depart.
    pub(crate) async fn ask(&self, user: &Key) -> anyhow::Result<bool> {
        match self {
            Self::Ours(limiter) => Ok(limiter.try_acquire(user.clone()).await?.is_granted()),
            Self::Peer(peer) => peer.ask(user.as_str()).await,
        }
    }
}

/// The keys of the users, with names of the same length.
pub(crate) fn names(users: u32) -> Vec<Key> {
    let names = (100_000..100_000 + users).map(|user| Key::new(format!("user:{user}")));
    names.collect()
}
