//! How a [`RedisStore`] is connected.

use std::sync::Arc;

use redis::io::tcp::TcpSettings;
use redis::{Client, ConnectionInfo, IntoConnectionInfo as _};
use tokio::runtime::Handle;

use super::link::Link;
use super::server::Server;
use super::{RedisStore, notices, tls};
use crate::store::StoreError;

impl RedisStore {
    /// Connects to the server at this URL.
    ///
    /// | URL | for |
    /// | --- | --- |
    /// | `redis://127.0.0.1:6379/` | a server, port 6379 unless said otherwise |
    /// | `redis://user:password@host/2` | a user, and database number 2 |
    /// | `redis://:password@host` | the password of the default user |
    /// | `rediss://host` | TLS, with the feature `redis-tls` |
    /// | `unix:///run/redis.sock?db=2&user=USER&pass=PASSWORD` | a unix socket, `redis+unix://` as well |
    ///
    /// One connection serves all calls, and a second hears of pauses. A connection that breaks is replaced
    /// when it is needed next, as is one whose server has become a replica, or does not answer a call in time
    /// nor give a sign of life. The host name is resolved anew each time. Where that fails, calls
    /// fail at once until it is tried again, after 25 ms at least and about a second at most.
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
    /// Fails if the URL is not valid, if the server cannot be reached within two seconds, and if it refuses the
    /// user, the password or the database.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::connect_with(client(url)?).await
    }

    /// Connects by a client that you have made, for what a URL does not say: certificates of your own,
    /// TCP settings.
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
    /// As for [`connect`](Self::connect).
    pub async fn connect_with(client: Client) -> Result<Self, StoreError> {
        tls::prepare([&client]);
        let link = Link::connect(home()?, client).await?;
        Ok(Self::to(link).await)
    }

    /// A store whose server makes its own connections.
    pub(super) async fn to(server: impl Server + 'static) -> Self {
        let mut store = Self::on(Arc::new(server));
        let server = store.couriers.server().clone();
        if let Some(opener) = server.opener() {
            let channel = notices::channel(&store.prefix);
            let subscription = notices::subscribe(opener, &channel).await;
            store.hear(subscription);
        }
        store
    }
}

/// The runtime in which connections live.
pub(super) fn home() -> Result<Handle, StoreError> {
    let none = |_| StoreError::new("it takes a runtime of tokio to connect").no_outage();
    Handle::try_current().map_err(none)
}

/// A client of the server at this URL.
pub(super) fn client(url: &str) -> Result<Client, StoreError> {
    Client::open(info(url)?).map_err(|_| no_url())
}

/// What a URL says, with a connection that does not hold back a call until what was sent before is
/// acknowledged.
pub(super) fn info(url: &str) -> Result<ConnectionInfo, StoreError> {
    let info = url.into_connection_info().map_err(|_| no_url())?;
    Ok(info.set_tcp_settings(tcp_settings()))
}

pub(super) fn tcp_settings() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

/// The cause is kept back, as it may quote the URL and the password in it.
fn no_url() -> StoreError {
    const URL: &str = "the url is not one of a redis server: redis://host:port/, unix:///path, or \
         rediss://host:port/ with the feature redis-tls";
    StoreError::new(URL).invalid_url()
}
