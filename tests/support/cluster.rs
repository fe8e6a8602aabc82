//! [`Cluster`]: three primaries and their replicas, each a process of its own.

use std::collections::BTreeMap;
use std::env;
use std::process::Command;

use tower_throttle::store::RedisStore;

use crate::errors::{bounded, eventually};
use crate::ports::spare_port;
use crate::redis_server::{PATIENCE, RedisServer, wait_until};

/// After how long a server that does not answer is given up, in milliseconds.
const NODE_TIMEOUT: &str = "1500";

/// A cluster of three primaries and their replicas, made with `redis-cli`: `$REDIS_CLI`, or the one on the `PATH`.
///
/// Dropping it ends them all. All methods block the thread.
#[derive(Debug)]
pub struct Cluster {
    pub servers: Vec<RedisServer>,
}

impl Cluster {
    /// Starts three primaries with a replica each, and returns once they agree on the slots.
    pub fn start() -> Self {
        Self::start_with(1)
    }

    pub fn start_with(replicas: usize) -> Self {
        let mut buses = Vec::new();
        let start = |_| {
            let bus = spare_port();
            buses.push(bus);
            // A replica takes over however long it has not heard from its primary, and the other servers serve their slots.
            let words = format!(
                "--cluster-enabled yes --cluster-port {bus} --cluster-node-timeout {NODE_TIMEOUT} \
                     --cluster-replica-validity-factor 0 --cluster-require-full-coverage no \
                     --repl-diskless-sync-delay 0"
            );
            RedisServer::start_with(&words.split(' ').collect::<Vec<_>>())
        };
        let servers: Vec<_> = (0..3 * (1 + replicas)).map(start).collect();
        let addresses = servers.iter().zip(buses);
        let addresses = addresses.map(|(it, bus)| format!("127.0.0.1:{}@{bus}", it.port()));
        let client = env::var_os("REDIS_CLI").unwrap_or_else(|| "redis-cli".into());
        let created = Command::new(client)
            .args(["--cluster", "create"])
            .args(addresses)
            .args(["--cluster-replicas", &replicas.to_string(), "--cluster-yes"])
            .output()
            .expect("a redis-cli on the PATH or in REDIS_CLI; scripts/test brings one");
        assert!(created.status.success(), "{created:?}");
        let cluster = Self { servers };
        wait_until("the cluster settles", || cluster.is_settled());
        cluster
    }

    pub fn urls(&self) -> Vec<String> {
        self.servers.iter().map(RedisServer::url).collect()
    }

    pub async fn store(&self) -> RedisStore {
        let store = bounded(RedisStore::connect_cluster(self.urls())).await;
        store.expect("a connection").timeout(PATIENCE)
    }

    pub fn primary_of(&self, name: &str) -> usize {
        self.holder(name).expect("a server that runs")
    }

    /// The server that serves this name. Others redirect to it.
    fn holder(&self, name: &str) -> Option<usize> {
        let serves = |it: &RedisServer| it.try_command::<u8>(&["EXISTS", name]).is_ok();
        self.servers.iter().position(serves)
    }

    /// Waits until another server than this one holds a name.
    pub fn fails_over(&self, name: &str, from: usize) {
        wait_until("another server takes over", || {
            self.holder(name).is_some_and(|it| it != from)
        });
    }

    /// Names of keys, each of another primary.
    pub fn keys_of_each(&self) -> [String; 3] {
        let keys = (0..20).map(|number| format!("key-{number}"));
        let found: BTreeMap<_, _> = keys.map(|key| (self.primary_of(&key), key)).collect();
        let keys: Vec<_> = found.into_values().collect();
        keys.try_into().expect("three")
    }

    pub fn running(&self) -> impl Iterator<Item = &RedisServer> {
        self.servers.iter().filter(|it| it.is_running())
    }

    /// All servers that run agree that all slots are served, and each replica has what its primary has.
    fn is_settled(&self) -> bool {
        self.running().all(|server| {
            let shows = |words: &[&str], parts: &[&str]| {
                let text = server.try_command::<String>(words);
                text.is_ok_and(|text| parts.iter().any(|it| text.contains(it)))
            };
            shows(&["CLUSTER", "INFO"], &["cluster_state:ok"])
                && shows(&["CLUSTER", "INFO"], &["cluster_slots_ok:16384"])
                && shows(&["INFO", "replication"], &["link_status:up", "role:master"])
        })
    }
}

/// A cluster of one server, which refuses a command whose keys lie in several hash slots.
pub async fn start_one() -> RedisServer {
    let server = RedisServer::start_with(&["--cluster-enabled", "yes"]);
    let slots: Vec<_> = (0..16_384).map(|slot: u16| slot.to_string()).collect();
    let mut add = vec!["CLUSTER", "ADDSLOTS"];
    add.extend(slots.iter().map(String::as_str));
    server.command::<()>(&add);
    let info = async || server.command::<String>(&["CLUSTER", "INFO"]);
    let is_ok = async || info().await.contains("cluster_state:ok");
    eventually("the cluster is up", is_ok).await;
    server
}
