//! A store that tells how many slots it has handed out: [`Counting`].

use std::sync::Arc;

use tokio::sync::watch;
use tower_throttle::store::{Outcome, RedisStore, Reply, Reserve, Reserved, Store};

use crate::pass_on::pass_on;

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
    pass_on!(redis: release, peek, heed, reset, listen, is_listening, told_until, check, part);

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
}
