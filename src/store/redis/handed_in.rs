//! Stores on clients and connections of the crate `redis`, version 1.

use std::sync::Arc;

use async_trait::async_trait;
use redis::aio::{ConnectionLike, ConnectionManager, MultiplexedConnection};
use redis::{Client, Pipeline};
use tokio::time::{Duration, Instant};

use super::RedisStore;
use super::servers::{self, Answers, Topology, send};
use crate::store::StoreError;

impl RedisStore {
    /// Connects by a client, for settings that a URL does not have: your own certificates, TCP settings.
    ///
    /// ```no_run
    /// use redis::{Client, TlsCertificates};
    /// use tower_throttle::store::RedisStore;
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let certificates = TlsCertificates {
    ///     client_tls: None,
    ///     root_cert: Some(std::fs::read("/etc/redis/ca.pem")?),
    /// };
    /// let client = Client::build_with_tls("rediss://redis.internal/", certificates)?;
    /// let store = RedisStore::connect_with(client).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails like [`connect`](Self::connect).
    pub async fn connect_with(client: Client) -> Result<Self, StoreError> {
        Self::open(servers::of(client.get_connection_info().clone())).await
    }

    /// Connects to a cluster by clients, for your own certificates. Only the address is used of all but the first.
    ///
    /// # Errors
    ///
    /// Fails like [`connect_cluster`](Self::connect_cluster).
    #[cfg(feature = "redis-cluster")]
    pub async fn connect_cluster_with(
        clients: impl IntoIterator<Item = Client>,
    ) -> Result<Self, StoreError> {
        let infos = clients.into_iter();
        let infos = infos.map(|client| client.get_connection_info().clone());
        Self::open(servers::cluster_at(infos.collect())?).await
    }

    /// Connects by a sentinel client, for your own certificates. It has to ask for the primary,
    /// [`SentinelServerType::Master`](redis::sentinel::SentinelServerType::Master).
    ///
    /// # Errors
    ///
    /// Fails like [`connect_sentinel`](Self::connect_sentinel).
    #[cfg(feature = "redis-sentinel")]
    pub async fn connect_sentinel_with(
        client: redis::sentinel::SentinelClient,
    ) -> Result<Self, StoreError> {
        Self::open(servers::by_sentinel_client(client)).await
    }
}

impl From<ConnectionManager> for RedisStore {
    /// A store on a connection of yours. Both the manager's response timeout and the store's apply. The store
    /// receives no nudges, and needs scripts.
    fn from(redis: ConnectionManager) -> Self {
        Self::on(Arc::new(UserConnection(redis)))
    }
}

impl From<MultiplexedConnection> for RedisStore {
    /// A store on a connection of yours, which is not replaced when it breaks. The store receives no nudges, and needs
    /// scripts.
    fn from(mut redis: MultiplexedConnection) -> Self {
        // Deadlines bound every call.
        redis.set_response_timeout(Duration::MAX);
        Self::on(Arc::new(UserConnection(redis)))
    }
}

/// A connection that nothing here replaces. The identity of its server is unknown.
struct UserConnection<C>(C);

#[async_trait]
impl<C: ConnectionLike + Clone + Send + Sync> Topology for UserConnection<C> {
    async fn run(&self, _name: &str, commands: &Pipeline, deadline: Instant) -> Answers {
        send(&mut self.0.clone(), 0, commands, deadline).await
    }

    async fn server(&self, _name: &str, _deadline: Instant) -> Result<u64, StoreError> {
        Ok(0)
    }
}
