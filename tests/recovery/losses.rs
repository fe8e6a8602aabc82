//! Never more than the quota allows, whatever is lost.

use redis::{Commands as _, RedisResult, Value};

use super::{LIMIT, WINDOW, strict};
use support::load::Load;
use support::redis_server::RedisServer;

/// As when a replica takes over that had not received the last writes.
#[tokio::test]
async fn the_last_writes() {
    let server = RedisServer::start();
    let limiters = [strict(&server).await, strict(&server).await];
    let load = Load::of("a", &limiters);
    load.goes_on(LIMIT as usize * 3).await;
    for _ in 0..3 {
        let name = "throttle:{a}";
        let raw: Value = server.command(&["GET", name]);
        load.goes_on(LIMIT as usize / 2).await;
        let Value::BulkString(raw) = raw else {
            panic!("no value: {raw:?}");
        };
        let mut connection = server.client().get_connection().expect("a connection");
        let set: RedisResult<()> = connection.pset_ex(name, raw, 5_000);
        set.expect("the old state");
        load.goes_on(LIMIT as usize * 3).await;
    }
    let history = load.history().await;
    history.assert_at_most(LIMIT.into(), WINDOW);
}
