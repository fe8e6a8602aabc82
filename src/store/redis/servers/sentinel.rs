//! The primary that sentinels name.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use redis::sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType};
use redis::{Client, ConnectionAddr, ConnectionInfo, RedisResult, TlsMode};
use tokio::sync::Mutex;

use super::Servers;
use super::node::Node;
use super::target::{Target, info, prepare_tls, tcp_settings};
use crate::store::StoreError;

/// The primary that the sentinels at these URLs name.
///
/// `primary` is its name, such as `mymaster`, or a URL with that name as its host, such as
/// `rediss://user:password@mymaster/2`. The settings in the sentinels' URLs apply to the sentinels only.
pub(crate) fn by_sentinels<U: AsRef<str>>(
    sentinels: impl IntoIterator<Item = U>,
    primary: &str,
) -> Result<Servers, StoreError> {
    let sentinels = sentinels.into_iter().map(|url| info(url.as_ref()));
    let sentinels: Vec<_> = sentinels.collect::<Result<_, _>>()?;
    let (name, node) = match primary.contains("://") {
        true => named(&info(primary)?)?,
        false => (primary.to_owned(), SentinelNodeConnectionInfo::default()),
    };
    let node = Some(node.set_tcp_settings(tcp_settings()));
    // A client of its own for each attempt: one on a runtime that is not polled any more holds up no other.
    let build = move || {
        let (sentinels, name, node) = (sentinels.clone(), name.clone(), node.clone());
        SentinelClient::build(sentinels, name, node, SentinelServerType::Master)
    };
    // The URLs are valid by now, so that the cause quotes none.
    let invalid = "the sentinels are invalid: pass at least one URL, all of one kind";
    build().map_err(|it| StoreError::new(invalid).caused_by(it).invalid_url())?;
    Ok(found_by(move || {
        let client = build();
        async move { client?.async_get_client().await }.boxed()
    }))
}

/// The primary that this client finds, for each connection. It has to ask for [`SentinelServerType::Master`].
pub(crate) fn by_sentinel_client(client: SentinelClient) -> Servers {
    let client = Arc::new(Mutex::new(client));
    found_by(move || {
        let client = client.clone();
        async move { client.lock().await.async_get_client().await }.boxed()
    })
}

fn found_by(
    find: impl Fn() -> BoxFuture<'static, RedisResult<Client>> + Send + Sync + 'static,
) -> Servers {
    prepare_tls();
    Arc::new(Node::new(Target {
        find: Box::new(find),
        // An attempt connects to a sentinel and twice to the server.
        timeout: Duration::from_secs(5),
        is_known_by_address: true,
        host: String::new(),
        number: 0,
    }))
}

/// The name in place of a host, and the settings.
fn named(info: &ConnectionInfo) -> Result<(String, SentinelNodeConnectionInfo), StoreError> {
    let node = SentinelNodeConnectionInfo::default();
    let node = node.set_redis_connection_info(info.redis_settings().clone());
    match info.addr() {
        ConnectionAddr::Tcp(name, _) => Ok((name.clone(), node)),
        ConnectionAddr::TcpTls { host, insecure, .. } => {
            let mode = match insecure {
                true => TlsMode::Insecure,
                false => TlsMode::Secure,
            };
            Ok((host.clone(), node.set_tls_mode(mode)))
        }
        _ => {
            let socket = "the primary is not a unix socket: pass its name, or redis://NAME";
            Err(StoreError::new(socket).invalid_url())
        }
    }
}
