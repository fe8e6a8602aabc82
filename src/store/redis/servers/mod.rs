//! The Redis servers behind one store: [`Servers`].
//!
//! | module | subject |
//! | --- | --- |
//! | `target` | a server to connect to, or a way to find it |
//! | `connection` | one connection, and which server answers on it |
//! | `node` | one server: its shared connection and its pool |
//! | `attempts` | one connection attempt at a time, with backoff |
//! | `cluster`, `slots` | the servers of a cluster, redirections |
//! | `sentinel` | the primary that sentinels name |
//! | `subscription` | nudges |
//! | `errors` | what an error means to the caller |

use std::sync::Arc;

use async_trait::async_trait;
use redis::{ConnectionInfo, Pipeline, ServerError, Value};
use tokio::time::Instant;

use self::node::Node;
use self::target::Target;
use crate::store::StoreError;

#[cfg(feature = "redis-cluster")]
pub(crate) use self::cluster::{cluster, cluster_at};
pub(crate) use self::connection::send;
pub(crate) use self::errors::{moved, refused};
pub(crate) use self::node::{Exclusive, exclusive};
#[cfg(feature = "redis-sentinel")]
pub(crate) use self::sentinel::{by_sentinel_client, by_sentinels};
pub(crate) use self::subscription::Subscription;

mod attempts;
#[cfg(feature = "redis-cluster")]
mod cluster;
mod connection;
mod errors;
mod node;
#[cfg(feature = "redis-sentinel")]
mod sentinel;
#[cfg(feature = "redis-cluster")]
mod slots;
mod subscription;
mod target;
#[cfg(test)]
mod tests;

/// The servers behind one store: one server, the primary that sentinels name, or a cluster. Clones are cheap.
///
/// Connections are made on first use, on the runtime of the caller. If that runtime shuts down, the next call makes
/// new ones.
pub(crate) type Servers = Arc<dyn Topology>;

/// The answer to one command.
#[derive(Debug, Clone)]
pub(crate) struct CommandAnswer {
    /// [`Value::ServerError`] if the server refused this command; see [`refused`].
    pub(crate) value: Value,
    pub(crate) origin: AnswerOrigin,
}

/// An answer for each command.
pub(crate) type Answers = Result<Vec<CommandAnswer>, StoreError>;

impl CommandAnswer {
    /// The value, or the error of a command that the server refused.
    pub(crate) fn into_value(self) -> Result<Value, StoreError> {
        self.refusal().map_or(Ok(self.value), Err)
    }

    /// The error of a command that the server refused.
    pub(crate) fn refusal(&self) -> Option<StoreError> {
        self.server_error().map(refused)
    }

    pub(crate) fn server_error(&self) -> Option<&ServerError> {
        match &self.value {
            Value::ServerError(error) => Some(error),
            _ => None,
        }
    }
}

/// The server that answered, and when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnswerOrigin {
    /// A number of the server process, the same for all clients. It is 0 if unknown: where the user may not call
    /// `INFO` on a single server, and on a connection that was handed in.
    ///
    /// Without `INFO`, the number of a server behind sentinels or in a cluster stays the same after a restart.
    pub(crate) server: u64,
    /// Right before the pipeline was sent.
    pub(crate) sent: Instant,
    /// Right after its last answer arrived.
    pub(crate) received: Instant,
}

/// Finds the servers for keys. In all methods, `name` is that of a Redis key.
#[async_trait]
pub(crate) trait Topology: Send + Sync {
    /// A number of the server that holds this key, from what is known without a call. It is 0 where there is only one
    /// server, never in a cluster, and [`u64::MAX`] if no server is known for the key.
    fn shard(&self, _name: &str) -> u64 {
        0
    }

    /// The end of a name in the slot that holds this key; empty where there are no slots.
    fn slot_suffix(&self, _name: &str) -> String {
        String::new()
    }

    /// Sends a pipeline to the server that holds this key, and returns an answer for each command.
    ///
    /// In a cluster, the keys of a batch may lie in several slots of that server. Each command may use keys of one
    /// slot. Commands whose slot has moved are sent again to the new server, because the old one did not execute
    /// them. They may run in another order there. Nothing else is sent twice, so the pipeline must not be atomic, except
    /// on an [`Exclusive`](node::Exclusive) connection.
    ///
    /// # Errors
    ///
    /// Fails if there is no connection, or no answer until the deadline. The outcome is unknown if the pipeline was
    /// sent.
    async fn run(&self, name: &str, commands: &Pipeline, deadline: Instant) -> Answers;

    /// The server that holds this key.
    async fn node(&self, _name: &str, _deadline: Instant) -> Result<Node, StoreError> {
        let none = "transactions need connections of their own: connect by a URL or a client";
        Err(StoreError::new(none).no_outage())
    }

    /// The number of the server that holds this key; see [`AnswerOrigin::server`].
    async fn server(&self, name: &str, deadline: Instant) -> Result<u64, StoreError> {
        let node = self.node(name, deadline).await?;
        Ok(node.shared(deadline).await?.server)
    }

    /// Connects to any server before the first call, so that a wrong address or password is found out.
    async fn connect(&self) -> Result<(), StoreError> {
        let node = self.node("", Instant::now()).await?;
        let deadline = Instant::now() + node.target().timeout;
        node.shared(deadline).await.map(drop)
    }

    /// Any server, to subscribe to; `None` for a connection that was handed in, which cannot be shared with [`exclusive`] calls.
    fn any_node(&self) -> Option<Node> {
        None
    }

    /// False if this server holds no slot of the cluster any more.
    fn has(&self, _node: &Node) -> bool {
        true
    }

    /// Every primary of a cluster; empty where there is only one server.
    async fn primaries(&self, _deadline: Instant) -> Result<Vec<Node>, StoreError> {
        Ok(Vec::new())
    }

    /// Notes which keys moved, according to an answer of this server. Returns true if it redirects a command.
    fn note(&self, _node: &Node, _answer: &Answers) -> bool {
        false
    }
}

/// The server at this URL, such as `redis://user:password@host:6379/2`, `rediss://host` or `unix:///run/redis.sock`.
pub(crate) fn at(url: &str) -> Result<Servers, StoreError> {
    Ok(of(target::info(url)?))
}

/// The server at this address, with certificates and settings that no URL has.
pub(crate) fn of(info: ConnectionInfo) -> Servers {
    Arc::new(Node::new(Target::at(info)))
}
