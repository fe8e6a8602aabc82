//! [`Cluster`]: three primaries and their replicas, each a process of its own.

use std::env;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use redis::Value;

use crate::ports::spare_port;
use crate::redis_server::RedisServer;

/// How long it may take until all servers agree.
const PATIENCE: Duration = Duration::from_secs(60);

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

    /// With so many replicas for each primary.
    pub fn start_with(replicas: usize) -> Self {
        let mut buses = Vec::new();
        let servers: Vec<_> = (0..3 * (1 + replicas))
            .map(|_| {
                let bus = spare_port().to_string();
                let words = ["--cluster-enabled", "yes", "--cluster-port", &bus];
                let timeout = ["--cluster-node-timeout", NODE_TIMEOUT];
                // A replica takes over however long it has not heard from its primary.
                let validity = ["--cluster-replica-validity-factor", "0"];
                // The other servers serve their slots.
                let coverage = ["--cluster-require-full-coverage", "no"];
                let quick = ["--repl-diskless-sync-delay", "0"];
                let words = [&words[..], &timeout, &validity, &coverage, &quick];
                let server = RedisServer::start_with(&words.concat());
                buses.push(bus);
                server
            })
            .collect();
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
        cluster.settles();
        cluster
    }

    /// Waits until all servers that run agree that all slots are served, and until each replica has what its
    /// primary has.
    pub fn settles(&self) {
        let deadline = Instant::now() + PATIENCE;
        while !self.is_settled() {
            assert!(Instant::now() < deadline, "the cluster does not settle");
            thread::sleep(Duration::from_millis(50));
        }
    }

    pub fn urls(&self) -> Vec<String> {
        self.servers.iter().map(RedisServer::url).collect()
    }

    /// The server that holds this name, as those that run have it.
    pub fn primary_of(&self, name: &str) -> usize {
        let asked = self.running().next().expect("a server that runs");
        let slot: i64 = asked.command(&["CLUSTER", "KEYSLOT", name]);
        let ranges: Vec<(i64, i64, Vec<Value>)> = ranges(asked.command(&["CLUSTER", "SLOTS"]));
        let range = ranges.iter().find(|it| (it.0..=it.1).contains(&slot));
        let (_, _, primary) = range.expect("a range with the slot");
        let Value::Int(port) = primary[1] else {
            panic!("{primary:?}");
        };
        let at = |it: &RedisServer| i64::from(it.port()) == port;
        self.servers.iter().position(at).expect("one of ours")
    }

    /// Waits until another server than this one holds a name.
    pub fn fails_over(&self, name: &str, from: usize) {
        let deadline = Instant::now() + PATIENCE;
        while self.primary_of(name) == from {
            assert!(Instant::now() < deadline, "there is no failover");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Names of keys, each of another primary.
    pub fn keys_of_each(&self) -> [String; 3] {
        let mut keys: Vec<(usize, String)> = Vec::new();
        for number in 0.. {
            let key = format!("key-{number}");
            let primary = self.primary_of(&key);
            if keys.iter().all(|(it, _)| *it != primary) {
                keys.push((primary, key));
            }
            if keys.len() == 3 {
                break;
            }
        }
        let keys: Vec<_> = keys.into_iter().map(|(_, key)| key).collect();
        keys.try_into().expect("three")
    }

    /// The servers that run.
    pub fn running(&self) -> impl Iterator<Item = &RedisServer> {
        self.servers.iter().filter(|it| it.is_running())
    }

    fn is_settled(&self) -> bool {
        self.running().all(|server| {
            let info = server.try_command::<String>(&["CLUSTER", "INFO"]);
            let replication = server.try_command::<String>(&["INFO", "replication"]);
            info.is_ok_and(|it| it.contains("cluster_state:ok"))
                && replication.is_ok_and(|it| {
                    it.contains("master_link_status:up") || it.contains("role:master")
                })
                && server
                    .try_command::<Value>(&["CLUSTER", "SLOTS"])
                    .is_ok_and(|it| {
                        ranges(it).iter().map(|it| it.1 - it.0 + 1).sum::<i64>() == 16_384
                    })
        })
    }
}

/// From, to, and the primary.
fn ranges(answer: Value) -> Vec<(i64, i64, Vec<Value>)> {
    let Value::Array(ranges) = answer else {
        panic!("{answer:?}");
    };
    let range = |range| match range {
        Value::Array(parts) => match &parts[..] {
            [Value::Int(from), Value::Int(to), Value::Array(primary), ..] => {
                (*from, *to, primary.clone())
            }
            _ => panic!("{parts:?}"),
        },
        other => panic!("{other:?}"),
    };
    ranges.into_iter().map(range).collect()
}
