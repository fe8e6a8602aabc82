//! A connection that the user has made: [`UserConnection`].

use async_trait::async_trait;
use redis::Pipeline;
use redis::aio::{ConnectionLike, ConnectionManager, MultiplexedConnection};
use tokio::time::{Duration, Instant};

use super::connection::{next_number, send};
use super::{Answers, Servers, Topology};
use crate::store::StoreError;

/// A connection that nothing here replaces. The identity of its server is unknown.
struct UserConnection<C> {
    redis: C,
    /// 0 if the connection may be replaced without notice.
    number: u64,
}

impl From<ConnectionManager> for Servers {
    fn from(redis: ConnectionManager) -> Self {
        Self::on(UserConnection { redis, number: 0 })
    }
}

impl From<MultiplexedConnection> for Servers {
    fn from(mut redis: MultiplexedConnection) -> Self {
        // Deadlines bound every call.
        redis.set_response_timeout(Duration::MAX);
        let number = next_number();
        Self::on(UserConnection { redis, number })
    }
}

#[async_trait]
impl<C: ConnectionLike + Clone + Send + Sync> Topology for UserConnection<C> {
    async fn run(&self, _name: &str, commands: &Pipeline, deadline: Instant) -> Answers {
        let mut redis = self.redis.clone();
        send(&mut redis, (0, self.number), commands, deadline).await
    }

    async fn server(&self, _name: &str, _deadline: Instant) -> Result<u64, StoreError> {
        Ok(0)
    }
}
