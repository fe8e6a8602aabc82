//! Never more than the quota allows, whatever is lost.

use redis::Value;

use super::load::Load;
use super::{LIMIT, WINDOW, strict};
use support::redis_server::RedisServer;

/// As when a replica takes over that had not received the last writes.
#[tokio::test]
async fn the_last_writes() {
    let mut server = RedisServer::start();
    let mut load = Load::new();
    for _ in 0..3 {
        load.add(&strict(&server).await);
    }
    load.goes_on(LIMIT as usize * 3).await;
    for _ in 0..3 {
        let name = "throttle:{a}";
        let raw: Value = server.command(&["GET", name]);
        load.goes_on(LIMIT as usize / 2).await;
        let Value::BulkString(raw) = raw else {
            panic!("no value: {raw:?}");
        };
        let mut connection = server.client().get_connection().expect("a connection");
        let set = redis::cmd("SET")
            .arg(name)
            .arg(raw)
            .arg("PX")
            .arg(5_000)
            .clone();
        set.exec(&mut connection).expect("the old state");
        load.goes_on(LIMIT as usize * 3).await;
    }
    let history = load.history().await;
    history.assert_at_most(LIMIT.into(), WINDOW);
    server.stop();
}
