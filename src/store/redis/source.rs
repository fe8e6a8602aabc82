//! Where connections come from: [`Source`].

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, RedisResult};

use super::failure::explain_attempt;
use super::redact::Secrets;
use crate::store::StoreError;

/// Knows which server to connect to.
pub(super) trait Source: Send + Sync {
    /// A client of that server, as of now. Host names are resolved only when it connects.
    fn client(&self) -> BoxFuture<'_, RedisResult<Client>>;

    /// What is sent on the way to such a client, and afterwards by it.
    fn secrets(&self) -> Secrets;

    /// How long it may take to connect.
    fn patience(&self) -> Duration {
        Duration::from_secs(2)
    }
}

impl Source for ConnectionInfo {
    fn client(&self) -> BoxFuture<'_, RedisResult<Client>> {
        ready(Client::open(self.clone())).boxed()
    }

    fn secrets(&self) -> Secrets {
        Secrets::of([self.redis_settings()])
    }
}

impl Source for Client {
    fn client(&self) -> BoxFuture<'_, RedisResult<Client>> {
        ready(Ok(self.clone())).boxed()
    }

    fn secrets(&self) -> Secrets {
        self.get_connection_info().secrets()
    }
}

/// A connection that leaves it to who uses it to set bounds.
pub(super) async fn connect(source: &dyn Source) -> Result<MultiplexedConnection, StoreError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    let client = source.client().await;
    let client = client.map_err(|error| explain_attempt(error, &source.secrets()))?;
    let connecting = client.get_multiplexed_async_connection_with_config(&config);
    let explain = |error| explain_attempt(error, &client.secrets());
    connecting.await.map_err(explain)
}
