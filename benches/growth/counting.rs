//! A store that tells how many slots it has handed out: [`Counting`].

use std::sync::{Arc, Weak};

use tokio::sync::watch;
use tower_throttle::Policy;
use tower_throttle::key::Key;
use tower_throttle::store::{
    Listen, Notice, Outcome, RedisStore, Release, Reply, Reserve, Reserved, Store, Word,
};

/// Redis, and a count of the slots.
#[derive(Debug, Clone)]
pub(crate) struct Counting {
    redis: RedisStore,
    granted: Arc<watch::Sender<u32>>,
}

impl Counting {
    pub(crate) fn new(redis: RedisStore) -> Self {
        let granted = Arc::new(watch::Sender::new(0));
        Self { redis, granted }
    }

    pub(crate) fn forget(&self) {
        self.granted.send_replace(0);
    }

    /// Waits until so many slots have been handed out.
    pub(crate) async fn wait_for(&self, count: u32) {
        let mut granted = self.granted.subscribe();
        let enough = granted.wait_for(|granted| *granted >= count);
        // The sender is ours, so it is not gone.
        let _ = enough.await;
    }
}

impl Store for Counting {
    fn reserve(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        let (reply, granted) = (self.redis.reserve(reserve), self.granted.clone());
        Reply::pending(async move {
            let reserved = reply.await?;
            let slots = reserved.outcomes().iter();
            let slots = slots.filter(|outcome| matches!(outcome, Outcome::Granted(_)));
            granted.send_modify(|granted| *granted += slots.count() as u32);
            Ok(reserved)
        })
    }

    fn release(&self, release: &Release<'_>) -> Reply<()> {
        self.redis.release(release)
    }

    fn peek(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        self.redis.peek(reserve)
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Reply<()> {
        self.redis.reset(key, policy)
    }

    fn heed(&self, key: &Key, policy: &Policy, word: Word) -> Reply<Notice> {
        self.redis.heed(key, policy, word)
    }

    fn listen(&self, listener: Weak<dyn Listen>) {
        self.redis.listen(listener);
    }

    fn is_listening(&self) -> bool {
        self.redis.is_listening()
    }
}
