//! Where connections lead: [`Target`].

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use redis::aio::PubSub;
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, RedisResult};

use crate::store::StoreError;

/// How long a connection is unused before the system sends something on it.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// A server to connect to, or a way to find it.
pub(super) struct Target {
    /// Returns a client of the server as of now. Host names are resolved when it connects.
    pub(super) find: Box<dyn Fn() -> BoxFuture<'static, RedisResult<Client>> + Send + Sync>,
    /// The least time that an attempt to connect gets.
    pub(super) timeout: Duration,
    /// True if the server is one of several, and all processes call it by the same address.
    pub(super) is_known_by_address: bool,
    /// The host of a server in a cluster. The server leaves it out of its answers if it does not know it.
    #[allow(dead_code, reason = "only clusters read it")]
    pub(super) host: String,
    /// A number that no other server of the cluster has.
    #[allow(dead_code, reason = "only clusters read it")]
    pub(super) number: u64,
}

impl Target {
    /// The server at this address.
    pub(super) fn at(info: ConnectionInfo) -> Self {
        if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            prepare_tls();
        }
        Self {
            find: Box::new(move || ready(Client::open(info.clone())).boxed()),
            timeout: Duration::from_secs(2),
            is_known_by_address: false,
            host: String::new(),
            number: 0,
        }
    }

    pub(super) async fn subscribe(&self, channels: &BTreeSet<String>) -> RedisResult<PubSub> {
        let mut connection = (self.find)().await?.get_async_pubsub().await?;
        connection.subscribe(channels).await?;
        Ok(connection)
    }
}

pub(super) fn info(url: &str) -> Result<ConnectionInfo, StoreError> {
    // The cause is left out, because it may quote the URL and the password in it.
    const INVALID: &str = "the url is not redis://user:password@host:port/database-number, unix:///path, or with the \
         feature redis-tls rediss://…";
    let info = url.into_connection_info();
    let info = info.map_err(|_| StoreError::new(INVALID).invalid_url())?;
    Ok(info.set_tcp_settings(tcp_settings()))
}

/// Without Nagle's algorithm, which holds back a call until the previous one is acknowledged. A load balancer drops no
/// connection on which the system itself sends something now and then.
pub(super) fn tcp_settings() -> TcpSettings {
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE);
    let settings = TcpSettings::default().set_nodelay(true);
    settings.set_keepalive(keepalive)
}

/// Makes *ring* the cryptography provider of this process, unless there is one. Without a default, rustls panics
/// if dependencies have enabled several.
#[cfg(feature = "redis-tls")]
pub(super) fn prepare_tls() {
    // Fails if there is one.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

#[cfg(not(feature = "redis-tls"))]
pub(super) fn prepare_tls() {}
