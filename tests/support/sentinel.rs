//! [`Sentinels`]: a primary with two replicas, and three sentinels that watch it.

use std::fs;

use crate::redis_server::{RedisServer, installed, wait_until};

pub const NAME: &str = "the-primary";

/// Three servers, of which the first is the primary to begin with, and three sentinels.
///
/// Dropping it ends them all. All methods block the thread.
#[derive(Debug)]
pub struct Sentinels {
    pub servers: Vec<RedisServer>,
    pub sentinels: Vec<RedisServer>,
}

impl Sentinels {
    /// Starts all, and returns once each sentinel knows of all the others.
    pub fn start() -> Self {
        let primary = RedisServer::start_with(&["--repl-diskless-sync-delay", "0"]);
        let port = primary.port().to_string();
        let replica = |_| {
            let of = ["--replicaof", "127.0.0.1", &port];
            RedisServer::start_with(&[&of[..], &["--repl-diskless-sync-delay", "0"]].concat())
        };
        let servers: Vec<_> = [primary].into_iter().chain((0..2).map(replica)).collect();
        let binary = installed();
        let sentinels = (0..3).map(|_| {
            RedisServer::start_as(&binary, |dir| {
                let file = dir.join("sentinel.conf");
                let text = format!(
                    "sentinel monitor {NAME} 127.0.0.1 {port} 2\n\
                     sentinel down-after-milliseconds {NAME} 1500\n\
                     sentinel failover-timeout {NAME} 5000\n"
                );
                fs::write(&file, text).expect("a new file");
                vec![file.display().to_string(), "--sentinel".to_owned()]
            })
        });
        let all = Self {
            sentinels: sentinels.collect(),
            servers,
        };
        wait_until("the sentinels settle", || all.is_settled());
        all
    }

    pub fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(RedisServer::url).collect()
    }

    /// The server that the first sentinel takes for the primary.
    pub fn primary(&self) -> usize {
        let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME];
        let (_, port) = self.sentinels[0].command::<(String, u16)>(&words);
        let at = |it: &RedisServer| it.port() == port;
        self.servers.iter().position(at).expect("one of ours")
    }

    /// Waits until that sentinel names another primary than this one.
    pub fn fails_over(&self, from: usize) {
        wait_until("another server takes over", || self.primary() != from);
    }

    fn is_settled(&self) -> bool {
        let is_settled = |sentinel: &RedisServer| {
            let info = sentinel.try_command::<String>(&["INFO", "sentinel"]);
            info.is_ok_and(|it| it.contains("status=ok") && it.contains("slaves=2,sentinels=3"))
        };
        let is_linked = |server: &RedisServer| {
            let info = server.try_command::<String>(&["INFO", "replication"]);
            info.is_ok_and(|it| it.contains("master_link_status:up"))
        };
        self.sentinels.iter().all(is_settled) && self.servers[1..].iter().all(is_linked)
    }
}
