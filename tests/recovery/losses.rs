//! Never more than the quota allows, whatever is lost.

use redis::Value;
use tower_throttle::Recovery;

use super::load::Load;
use super::support::redis_server::RedisServer;
use super::{LIMIT, WINDOW, limiter, strict};

/// Under load from three, something is lost three times; afterwards, all go on.
async fn survives(server: &mut RedisServer, mut lose: impl FnMut(&mut RedisServer)) {
    let mut load = Load::new();
    for _ in 0..3 {
        load.add(&strict(server).await);
    }
    load.goes_on(LIMIT as usize * 3).await;
    for _ in 0..3 {
        lose(server);
        load.goes_on(LIMIT as usize * 4).await;
    }
    let history = load.history().await;
    history.assert_at_most(LIMIT.into(), WINDOW);
}

#[tokio::test]
async fn a_server_that_is_emptied() {
    let mut server = RedisServer::start();
    survives(&mut server, |server| server.command(&["FLUSHALL"])).await;
}

#[tokio::test]
async fn a_server_that_is_restarted_empty() {
    let mut server = RedisServer::start();
    survives(&mut server, RedisServer::restart).await;
}

#[tokio::test]
async fn a_key_that_is_evicted() {
    let mut server = RedisServer::start();
    survives(&mut server, |server| {
        let names: Vec<String> = server.command(&["KEYS", "throttle:{a}:*"]);
        assert!(!names.is_empty());
        for name in names {
            server.command::<()>(&["DEL", &name]);
        }
    })
    .await;
}

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
        let name = format!("throttle:{{a}}:{LIMIT}/400ms");
        let raw: Value = server.command(&["GET", &name]);
        load.goes_on(LIMIT as usize / 2).await;
        let Value::BulkString(raw) = raw else {
            panic!("there is a log, and not {raw:?}");
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

/// Who has just started knows of nothing that could be missed.
#[tokio::test]
async fn who_comes_first_after_a_loss_cannot_run_ahead() {
    let server = RedisServer::start();
    let mut load = Load::new();
    load.add(&strict(&server).await);
    load.goes_on(LIMIT as usize * 3).await;
    for _ in 0..3 {
        let newcomer = strict(&server).await;
        server.command::<()>(&["FLUSHALL"]);
        load.add(&newcomer);
        load.goes_on(LIMIT as usize * 2).await;
    }
    let history = load.history().await;
    history.assert_at_most(LIMIT.into(), WINDOW);
}

#[tokio::test]
async fn by_default_a_window_holds_at_most_twice_as_many() {
    let server = RedisServer::start();
    let mut load = Load::new();
    for _ in 0..3 {
        load.add(&limiter(&server, Recovery::Immediate).await);
    }
    load.goes_on(LIMIT as usize * 3).await;
    for _ in 0..3 {
        server.command::<()>(&["FLUSHALL"]);
        load.goes_on(LIMIT as usize * 6).await;
    }
    let history = load.history().await;
    history.assert_at_most(2 * u64::from(LIMIT), WINDOW);
    assert!(
        history.most_in_any(WINDOW) > LIMIT.into(),
        "nothing was lost"
    );
}

/// Without scripts it is the same.
#[tokio::test]
async fn a_server_that_is_emptied_and_knows_no_scripts() {
    let server = RedisServer::start();
    let mut load = Load::new();
    for _ in 0..2 {
        let store = tower_throttle::store::RedisStore::connect(&server.url()).await;
        let store = store.expect("a connection").scripting(false);
        let builder = tower_throttle::Limiter::builder().recovery(Recovery::Strict);
        let quota = tower_throttle::Quota::new(LIMIT, WINDOW);
        let builder = builder.quota(quota).max_wait(super::MAX_WAIT);
        let limiter = builder.store(store.expect("it was connected")).build();
        load.add(&limiter.expect("a valid policy"));
    }
    load.goes_on(LIMIT as usize * 2).await;
    server.command::<()>(&["FLUSHALL"]);
    load.goes_on(LIMIT as usize * 3).await;
    let history = load.history().await;
    history.assert_at_most(LIMIT.into(), WINDOW);
}
