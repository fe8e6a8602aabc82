//! The keys of a server.

use crate::errors::eventually;
use crate::redis_server::RedisServer;

/// Looks in one step, so that no key expires in between.
#[track_caller]
pub fn assert_all_expire(server: &RedisServer) {
    const EVERLASTING: &str = "local found = {}
        for _, key in ipairs(redis.call('KEYS', '*')) do
          local left = redis.call('PTTL', key)
          if left < 0 then found[#found + 1] = key .. ' ' .. left end
        end
        return found";
    let found: Vec<String> = server.command(&["EVAL", EVERLASTING, "0"]);
    assert!(found.is_empty(), "without an expiry: {found:?}");
}

/// A cluster of one server, which refuses a command whose keys lie in several hash slots.
pub async fn start_cluster() -> RedisServer {
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
