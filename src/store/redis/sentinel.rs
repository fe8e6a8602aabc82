//! The primary that sentinels name: [`Sentinels`].

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use redis::sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType};
use redis::{Client, ConnectionAddr, ConnectionInfo, RedisResult, TlsMode};
use tokio::sync::Mutex;

use super::connect::{home, info, tcp_settings};
use super::link::Link;
use super::redact::Secrets;
use super::source::Source;
use super::{RedisStore, tls};
use crate::store::StoreError;

impl RedisStore {
    /// Connects to the primary that the sentinels at these URLs name.
    ///
    /// `primary` is its name, such as `mymaster`. Where the servers ask for a password, have another database
    /// number or speak TLS, it is a URL with that name for a host, such as `redis://user:password@mymaster/2`
    /// or `rediss://mymaster`. What the URLs of the sentinels say is for the sentinels alone.
    ///
    /// They are asked again for each connection, so that calls go to the new primary after a failover. In
    /// between they fail, as they do where the old one answers that it is a replica by now.
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
    /// Fails if a URL is not valid, if no sentinel names a primary that can be reached within five seconds, and
    /// if that refuses the user, the password or the database.
    pub async fn connect_sentinel<U: AsRef<str>>(
        sentinels: impl IntoIterator<Item = U>,
        primary: &str,
    ) -> Result<Self, StoreError> {
        let sentinels = sentinels.into_iter().map(|url| info(url.as_ref()));
        let sentinels: Vec<_> = sentinels.collect::<Result<_, _>>()?;
        let is_url = primary.contains("://");
        let (name, node, settings) = if is_url {
            let info = info(primary)?;
            let (name, node) = named(&info)?;
            (name, node, Some(info.redis_settings().clone()))
        } else {
            let node = SentinelNodeConnectionInfo::default();
            (primary.to_owned(), node, None)
        };
        let node = node.set_tcp_settings(tcp_settings());
        let secrets = Secrets::of(
            sentinels
                .iter()
                .map(|it| it.redis_settings())
                .chain(&settings),
        );
        let role = SentinelServerType::Master;
        let client = SentinelClient::build(sentinels, name, Some(node), role);
        // What is wrong is no secret here, as the URLs are read already.
        let client = client.map_err(|error| {
            let invalid = StoreError::new("these are no sentinels to ask");
            invalid.caused_by(error).invalid_url()
        })?;
        Self::connect_to(client, secrets).await
    }

    /// The same, by a client that you have made, for certificates of your own. It has to ask for the primary,
    /// [`SentinelServerType::Master`].
    ///
    /// # Errors
    ///
    /// As for [`connect_sentinel`](Self::connect_sentinel). What a server answers is not quoted, as the client does
    /// not show which passwords it sends.
    pub async fn connect_sentinel_with(client: SentinelClient) -> Result<Self, StoreError> {
        Self::connect_to(client, Secrets::Unknown).await
    }

    async fn connect_to(client: SentinelClient, secrets: Secrets) -> Result<Self, StoreError> {
        tls::prepare_any();
        let client = Mutex::new(client);
        let link = Link::connect(home()?, Sentinels { client, secrets }).await?;
        Ok(Self::to(link).await)
    }
}

/// The name that stands for a host, and how to connect.
fn named(info: &ConnectionInfo) -> Result<(String, SentinelNodeConnectionInfo), StoreError> {
    let node = SentinelNodeConnectionInfo::default();
    let node = node.set_redis_connection_info(info.redis_settings().clone());
    match info.addr() {
        ConnectionAddr::Tcp(name, _) => Ok((name.clone(), node)),
        ConnectionAddr::TcpTls { host, insecure, .. } => {
            let mode = if *insecure {
                TlsMode::Insecure
            } else {
                TlsMode::Secure
            };
            Ok((host.clone(), node.set_tls_mode(mode)))
        }
        _ => Err(StoreError::new("no sentinel names a unix socket").no_outage()),
    }
}

/// Asks the sentinels each time.
struct Sentinels {
    client: Mutex<SentinelClient>,
    /// Theirs, and those of the servers that they name.
    secrets: Secrets,
}

impl Source for Sentinels {
    fn client(&self) -> BoxFuture<'_, RedisResult<Client>> {
        async { self.client.lock().await.async_get_client().await }.boxed()
    }

    fn secrets(&self) -> Secrets {
        self.secrets.clone()
    }

    /// First a sentinel, then whoever it names, and that one again.
    fn patience(&self) -> Duration {
        Duration::from_secs(5)
    }
}
