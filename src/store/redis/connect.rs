//! Ways to connect a [`RedisStore`].

use tokio::runtime::Handle;

use super::RedisStore;
use super::servers::{self, Servers};
use crate::store::StoreError;

impl RedisStore {
    /// Connects to the server at this URL.
    ///
    /// | URL | for |
    /// | --- | --- |
    /// | `redis://127.0.0.1:6379/` | a server; the default port is 6379 |
    /// | `redis://user:password@host/2` | a user, and database number 2 |
    /// | `redis://:password@host` | the password of the default user |
    /// | `rediss://host` | TLS, with the feature `redis-tls` |
    /// | `unix:///run/redis.sock?db=2&user=USER&pass=PASSWORD` | a unix socket; also `redis+unix://` |
    ///
    /// All calls share one connection. A second one subscribes to nudges. Host names are resolved for each connection.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use tower_throttle::store::RedisStore;
    ///
    /// # async fn example() -> Result<(), tower_throttle::store::StoreError> {
    /// let store = RedisStore::connect("redis://127.0.0.1/").await?;
    /// let store = store.timeout(Duration::from_millis(500));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the URL is invalid, if the server cannot be reached within 2 s, if it refuses the user, the password
    /// or the database, and outside of a tokio runtime.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::open(servers::at(url)?).await
    }

    /// Does not wait for a connection to the server at this URL, so that a process starts while Redis is out. The first call
    /// connects. While it cannot, the [outage policy](crate::Outage) of the limiter applies. The connection for nudges is
    /// opened when a limiter is built in a tokio runtime, or else with the first call.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::store::RedisStore;
    /// use tower_throttle::{Limiter, Outage, Quota};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = RedisStore::connect_lazy("redis://127.0.0.1:6379/")?
    ///     .prefix("billing")?
    ///     .timeout(Duration::from_millis(500));
    /// let limiter = Limiter::builder()
    ///     .store(store)
    ///     .quota(Quota::per_second(10))
    ///     .outage(Outage::Local { share: 0.5 })
    ///     .build()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the URL is invalid.
    pub fn connect_lazy(url: &str) -> Result<Self, StoreError> {
        Ok(Self::on(servers::at(url)?))
    }

    /// Connects to the cluster that the servers at these URLs are part of.
    ///
    /// One server that answers is enough. The store connects to the others with the user, the password and the TLS
    /// settings of the first URL. It follows redirections, and reads the map of the slots again when a call fails.
    /// Each server is a shard: while it is down, keys of the others are served.
    ///
    /// ```no_run
    /// use tower_throttle::store::RedisStore;
    ///
    /// # async fn example() -> Result<(), tower_throttle::store::StoreError> {
    /// let nodes = ["redis://10.0.0.1:6379/", "redis://10.0.0.2:6379/", "redis://10.0.0.3:6379/"];
    /// let store = RedisStore::connect_cluster(nodes).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if a URL is invalid, if no server answers within 4 s, if the servers are not a cluster or refuse the user
    /// or the password, and outside of a tokio runtime.
    #[cfg(feature = "redis-cluster")]
    pub async fn connect_cluster<U: AsRef<str>>(
        nodes: impl IntoIterator<Item = U>,
    ) -> Result<Self, StoreError> {
        Self::open(servers::cluster(nodes)?).await
    }

    /// Connects to the primary that the sentinels at these URLs name.
    ///
    /// `primary` is its name, such as `mymaster`. If the servers need a password, a database number or TLS, it is a URL
    /// with that name as its host, such as `redis://user:password@mymaster/2` or `rediss://mymaster`. The settings in
    /// the sentinels' URLs apply to the sentinels only.
    ///
    /// The store asks the sentinels for each connection. So calls reach the new primary after a failover, and fail
    /// until then.
    ///
    /// ```no_run
    /// use tower_throttle::store::RedisStore;
    ///
    /// # async fn example() -> Result<(), tower_throttle::store::StoreError> {
    /// let sentinels = ["redis://10.0.0.1:26379/", "redis://10.0.0.2:26379/", "redis://10.0.0.3:26379/"];
    /// let store = RedisStore::connect_sentinel(sentinels, "mymaster").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if a URL is invalid, if no sentinel names a primary that can be reached within 5 s, if that refuses the
    /// user, the password or the database, and outside of a tokio runtime.
    #[cfg(feature = "redis-sentinel")]
    pub async fn connect_sentinel<U: AsRef<str>>(
        sentinels: impl IntoIterator<Item = U>,
        primary: &str,
    ) -> Result<Self, StoreError> {
        Self::open(servers::by_sentinels(sentinels, primary)?).await
    }

    pub(super) async fn open(servers: Servers) -> Result<Self, StoreError> {
        let no_runtime = |_| {
            StoreError::new("there is no tokio runtime: connect in one, or use `connect_lazy`")
                .no_outage()
        };
        Handle::try_current().map_err(no_runtime)?;
        servers.connect().await?;
        Ok(Self::on(servers))
    }
}
