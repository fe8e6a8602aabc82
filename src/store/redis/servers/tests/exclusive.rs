//! Exclusive connections.

use super::super::Topology as _;
use super::*;

async fn take(servers: &Servers) -> super::super::node::Exclusive {
    exclusive(servers, "key", soon()).await.unwrap()
}

#[tokio::test]
async fn released_connections_are_reused_and_others_are_closed() {
    let (_server, proxy, servers) = proxied();
    let (one, other) = (take(&servers).await, take(&servers).await);
    assert!(!one.is_reused && !other.is_reused);
    // One more for the shared connection.
    assert_eq!(proxy.made(), 3);
    one.release();
    drop(other);
    assert!(take(&servers).await.is_reused);
    assert!(!take(&servers).await.is_reused);
    assert_eq!(proxy.made(), 4);
}

#[tokio::test]
async fn a_broken_connection_is_not_reused() {
    let (mut server, _proxy, servers) = proxied();
    let [one, other] = [take(&servers).await, take(&servers).await];
    other.release();
    server.restart();
    let ping = pipe(&[&["PING"]]);
    assert!(one.run("", &ping, soon()).await.unwrap_err().is_outage());
    get_until_up(&servers).await;
    let fresh = take(&servers).await;
    assert!(!fresh.is_reused);
    fresh.run("", &ping, soon()).await.unwrap();
}

#[test]
fn pooled_connections_of_a_runtime_that_ended_are_dropped() {
    let (_server, _proxy, servers) = proxied();
    start_runtime().block_on(async { take(&servers).await.release() });
    let runtime = start_runtime();
    assert!(!runtime.block_on(take(&servers)).is_reused);
}
