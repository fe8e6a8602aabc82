//! [`Case`]: a quota, and what has to be seen of it upstream, whatever client sends.

use std::time::Duration;

use tower_throttle::store::RedisStore;
use tower_throttle::{Limiter, LimiterBuilder, Quota};

use crate::child;
use crate::redis_server::RedisServer;
use crate::upstream::Upstream;

/// Arrivals are judged, and on a busy machine one request is under way much longer than another.
const BUFFER: Duration = Duration::from_millis(300);

/// A quota, and how many requests make more than three windows' worth of it.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub quota: Quota,
    pub requests: usize,
}

/// At most so many requests in any window.
pub fn at_most(limit: u32, window_ms: u64, requests: usize) -> Case {
    let quota = Quota::new(limit, Duration::from_millis(window_ms));
    Case { quota, requests }
}

impl Case {
    pub fn limiter(self) -> LimiterBuilder {
        Limiter::builder().quota(self.quota).buffer(BUFFER)
    }

    pub async fn limiter_on(self, redis: &str) -> Limiter {
        let store = RedisStore::connect(redis).await.expect("a connection");
        // A busy machine answers late; what happens then is another test's matter.
        let store = store.timeout(Duration::from_secs(20));
        self.limiter().store(store).build().expect("a valid policy")
    }

    pub fn assert_kept(self, upstream: &Upstream) {
        let history = upstream.history();
        assert_eq!(
            history.len(),
            self.requests,
            "{self:?}: not all arrived, each once"
        );
        history.assert_at_most(self.quota.limit().into(), self.quota.window());
    }

    /// Three processes keep to it together, each the test `replica`, which gets the case, and in
    /// `REDIS` and `UPSTREAM` where to ask and to send.
    pub async fn assert_kept_by_three_processes(self, replica: &str, redis: &RedisServer) {
        let upstream = Upstream::start().await;
        let (redis, url) = (redis.url(), upstream.uri());
        let environment = [("REDIS", redis.as_str()), ("UPSTREAM", url.as_str())];
        let mut replicas = [0; 3].map(|_| child::spawn(replica, &self.text(), &environment));
        for replica in &replicas {
            assert_eq!(replica.next_line(Duration::from_secs(60)), "ready");
        }
        replicas.iter_mut().for_each(|replica| replica.tell("go"));
        for replica in replicas {
            replica.finish(Duration::from_secs(120));
        }
        self.assert_kept(&upstream);
    }

    /// For a child: what `parse` reads.
    pub fn text(self) -> String {
        format!("{}, {}", self.quota, self.requests)
    }

    pub fn parse(text: &str) -> Self {
        let (quota, requests) = text.split_once(", ").expect("two parts");
        Self {
            quota: quota.parse().expect("a quota"),
            requests: requests.parse().expect("a number"),
        }
    }
}
