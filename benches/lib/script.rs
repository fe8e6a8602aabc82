//! A script of a peer: [`Script`].

use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue};

/// A loaded script, and the connection that calls it.
#[derive(Clone)]
pub struct Script {
    sha: String,
    connection: MultiplexedConnection,
}

impl Script {
    pub async fn load(mut connection: MultiplexedConnection, text: &str) -> anyhow::Result<Self> {
        let mut load = redis::cmd("SCRIPT");
        let sha = load.arg("LOAD").arg(text).query_async(&mut connection);
        Ok(Self {
            sha: sha.await?,
            connection,
        })
    }

    /// A call with one key. The caller adds arguments.
    pub fn call(&self, key: &str) -> Cmd {
        let mut call = redis::cmd("EVALSHA");
        call.arg(&self.sha).arg(1).arg(key);
        call
    }

    pub async fn send<T: FromRedisValue>(&self, call: &Cmd) -> anyhow::Result<T> {
        Ok(call.query_async(&mut self.connection.clone()).await?)
    }
}
