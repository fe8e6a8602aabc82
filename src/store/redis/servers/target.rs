//! Where connections lead: [`Target`].

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use redis::aio::{MultiplexedConnection, PubSub};
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, IntoConnectionInfo as _, RedisResult};

use super::errors::{Secrets, of_attempt};
use crate::store::StoreError;

/// A server to connect to, or a way to find it.
pub(super) trait Target: Send + Sync {
    /// A client of the server as of now. Host names are resolved when it connects.
    fn client(&self) -> BoxFuture<'_, RedisResult<Client>>;

    fn secrets(&self) -> Secrets;

    /// The least time that an attempt to connect gets.
    fn timeout(&self) -> Duration {
        Duration::from_secs(2)
    }

    /// True if the server is one of several, and all processes call it by the same address.
    fn is_known_by_address(&self) -> bool {
        false
    }
}

/// The server that a client leads to.
pub(super) struct Fixed(pub(super) Client);

impl Target for Fixed {
    fn client(&self) -> BoxFuture<'_, RedisResult<Client>> {
        ready(Ok(self.0.clone())).boxed()
    }

    fn secrets(&self) -> Secrets {
        Secrets::of([self.0.get_connection_info().redis_settings()])
    }
}

/// Connects, and returns the address as well.
pub(super) async fn connect(
    target: &dyn Target,
) -> Result<(MultiplexedConnection, String), StoreError> {
    // Callers set the bounds.
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    let connecting = async {
        let client = target.client().await?;
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        let address = client.get_connection_info().addr().to_string();
        RedisResult::Ok((connection.await?, address))
    };
    let explain = |error| of_attempt(error, &target.secrets());
    connecting.await.map_err(explain)
}

pub(super) async fn subscribe(target: &dyn Target, channel: &str) -> RedisResult<PubSub> {
    let mut connection = target.client().await?.get_async_pubsub().await?;
    connection.subscribe(channel).await?;
    Ok(connection)
}

pub(super) fn client(url: &str) -> Result<Client, StoreError> {
    Client::open(info(url)?).map_err(|_| invalid_url())
}

pub(super) fn info(url: &str) -> Result<ConnectionInfo, StoreError> {
    let info = url.into_connection_info().map_err(|_| invalid_url())?;
    Ok(info.set_tcp_settings(tcp_settings()))
}

/// Without Nagle's algorithm, which holds back a call until the previous one is acknowledged.
pub(super) fn tcp_settings() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

/// The cause is left out, because it may quote the URL and the password in it.
fn invalid_url() -> StoreError {
    const URL: &str = "the url is not one of a redis server: redis://host:port/, unix:///path, or \
         rediss://host:port/ with the feature redis-tls";
    StoreError::new(URL).invalid_url()
}
