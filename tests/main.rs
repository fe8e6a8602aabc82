//! The promises of the documentation, on real servers and processes.

mod adapters;
mod algorithms;
mod axum_inbound;
mod client;
mod concurrency;
mod denials;
mod feedback;
mod limiter;
mod ordering;
mod outage;
mod pauses;
mod priorities;
mod recovery;
mod redis_calls;
mod redis_deployments;
mod rules;
mod security;
mod set_quota;
mod settlement;
mod telemetry;
mod test_util;
mod tower_contract;

mod prelude {
    pub(crate) use std::time::Duration;

    pub(crate) use futures_util::future::join_all;
    pub(crate) use futures_util::poll;
    pub(crate) use support::errors::{bounded, eventually};
    pub(crate) use support::redis_server::RedisServer;
    pub(crate) use support::spend::{attempt, build, per_second, under};
    pub(crate) use tokio::time::{Instant, advance, sleep, timeout};
    pub(crate) use tower_throttle::store::{MemoryStore, RedisStore};
    pub(crate) use tower_throttle::test_util::history::History;
    pub(crate) use tower_throttle::test_util::{FailingStore, Fault};
    pub(crate) use tower_throttle::{Limiter, LimiterBuilder, Quota};

    pub(crate) const MS: Duration = Duration::from_millis(1);
    pub(crate) const SECOND: Duration = Duration::from_secs(1);
    pub(crate) const HOUR: Duration = Duration::from_secs(3_600);
}
