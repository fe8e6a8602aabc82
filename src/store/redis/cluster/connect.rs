//! How a `RedisStore` is connected to a cluster.

use redis::Client;

use super::Cluster;
use crate::store::redis::connect::{client, home};
use crate::store::redis::tls;
use crate::store::{RedisStore, StoreError};

impl RedisStore {
    /// Connects to the cluster that the servers at these URLs are part of.
    ///
    /// One that answers is enough; it tells of the others, which are connected to as it is: by the user, the
    /// password and the TLS of the first URL. All that is kept for a key lies in one slot. Calls for keys of
    /// different slots go out at the same time, each to its server, and one that is out is no concern of the
    /// others. Redirections are followed, and the map of the slots is asked for anew when a call fails. There is
    /// one connection to each primary that is asked for something, and one to any server for pauses.
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
    /// Fails if a URL is not valid, if no server answers within four seconds, and if those that do are no
    /// cluster or refuse the user or the password.
    pub async fn connect_cluster<U: AsRef<str>>(
        nodes: impl IntoIterator<Item = U>,
    ) -> Result<Self, StoreError> {
        let clients = nodes.into_iter().map(|url| client(url.as_ref()));
        let clients: Vec<_> = clients.collect::<Result<_, _>>()?;
        Self::connect_cluster_with(clients).await
    }

    /// The same, by clients that you have made, for certificates of your own. All servers are connected to as
    /// by the first of them, but for the address.
    ///
    /// # Errors
    ///
    /// As for [`connect_cluster`](Self::connect_cluster).
    pub async fn connect_cluster_with(
        clients: impl IntoIterator<Item = Client>,
    ) -> Result<Self, StoreError> {
        let clients: Vec<_> = clients.into_iter().collect();
        tls::prepare(&clients);
        let cluster = Cluster::connect(home()?, clients).await?;
        Ok(Self::to(cluster).await)
    }
}
