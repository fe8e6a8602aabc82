//! Never more than the quota allows, whatever is lost.

use std::time::Duration;

use futures_util::future::join_all;
use redis::Value;
use tokio::time::{Instant, sleep};
use tower_throttle::store::RedisStore;
use tower_throttle::test_util::history::History;
use tower_throttle::{Algorithm, Limiter, Quota, Recovery, WindowStart};

use super::load::Load;
use super::{LIMIT, WINDOW, limiter, rested, strict};
use support::proxy::Proxy;
use support::redis_server::RedisServer;

/// Under load from three processes, something is lost three times. Afterwards, all go on.
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
    survives(&mut server, |server| lose_key(server)).await;
}

fn lose_key(server: &RedisServer) {
    let names: Vec<String> = server.command(&["KEYS", "throttle:{a}*"]);
    assert!(!names.is_empty());
    for name in names {
        server.command::<()>(&["DEL", &name]);
    }
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

/// The last writes are lost, and a process calls first that has not seen them.
#[tokio::test]
async fn last_writes_that_another_process_has_seen() {
    let server = RedisServer::start();
    let long = WINDOW * 20;
    let limiter = async || {
        let store = RedisStore::connect(&server.url())
            .await
            .expect("a connection");
        let builder = Limiter::builder().quota(Quota::new(4, long)).store(store);
        let limiter = builder.recovery(Recovery::Strict).build();
        limiter.expect("a valid policy")
    };
    let (knows, other) = (limiter().await, limiter().await);
    let departures = async |limiter: &Limiter, most: usize| {
        let mut granted = 0;
        for _ in 0..most {
            let decision = limiter.try_acquire("a").await.expect("an answer");
            granted += usize::from(decision.is_granted());
        }
        granted
    };
    // The new server rests.
    while departures(&other, 1).await == 0 {
        sleep(Duration::from_millis(10)).await;
    }
    let start = Instant::now();
    let old = Old::of(&server);
    assert_eq!(departures(&knows, 3).await, 3);
    old.restore(&server);
    assert_eq!(
        departures(&other, 1).await,
        1,
        "no process has missed anything yet"
    );
    assert_eq!(departures(&knows, 4).await, 0);
    assert_eq!(departures(&other, 4).await, 0);
    assert!(start.elapsed() < long, "too slow a machine");
}

/// The values of the key.
struct Old(Vec<(String, Vec<u8>)>);

impl Old {
    fn of(server: &RedisServer) -> Self {
        let names: Vec<String> = server.command(&["KEYS", "throttle:{a}*"]);
        assert!(!names.is_empty());
        let mut connection = server.client().get_connection().expect("a connection");
        let mut get = |name| redis::cmd("GET").arg(name).query(&mut connection);
        let values = names
            .iter()
            .map(|name| get(name).expect("a value"))
            .collect::<Vec<_>>();
        Self(names.into_iter().zip(values).collect())
    }

    fn restore(self, server: &RedisServer) {
        let mut connection = server.client().get_connection().expect("a connection");
        for (name, value) in self.0 {
            let mut set = redis::cmd("SET");
            set.arg(name).arg(value).arg("PX").arg(60_000);
            set.exec(&mut connection).expect("it is set");
        }
    }
}

/// The answer takes long.
#[tokio::test]
async fn a_key_while_an_answer_is_on_its_way() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let quota = Quota::new(5, WINDOW);
    let limiter = async |url: &str| {
        let store = RedisStore::connect(url).await.expect("a connection");
        let builder = Limiter::builder().quota(quota);
        let builder = builder.store(store.timeout(Duration::from_secs(20)));
        let limiter = builder.recovery(Recovery::Strict).build();
        limiter.expect("a valid policy")
    };
    let (far, near) = (limiter(&proxy.url()).await, limiter(&server.url()).await);
    proxy.delay(Duration::from_millis(100));
    // So that it has measured the round trip.
    for _ in 0..3 {
        let _ = far.acquire("b").await;
    }
    let (mut history, start) = (History::new(), Instant::now());
    // The new server rests.
    rested(&near).await;
    history.push(start.elapsed());
    let asking = tokio::spawn(async move {
        let permit = far.acquire("a").cost(4).await.ok()?;
        let at = start.elapsed();
        permit.is_valid().then_some(at)
    });
    while near.peek("a").await.expect("an answer").remaining() > 0 {
        assert!(start.elapsed() < Duration::from_secs(30), "it does not ask");
    }
    lose_key(&server);
    while history.len() < 6 {
        assert!(start.elapsed() < Duration::from_secs(60), "nothing departs");
        let Ok(permit) = near.acquire("a").max_wait(WINDOW / 20).await else {
            sleep(Duration::from_millis(2)).await;
            continue;
        };
        let at = start.elapsed();
        if permit.is_valid() {
            history.push(at);
        }
    }
    if let Some(at) = asking.await.expect("no panic") {
        history.push_weighted(at, 4);
    }
    history.assert_at_most(5, WINDOW);
}

/// A process that has just started has seen no state.
#[tokio::test]
async fn a_new_process_after_a_loss_cannot_run_ahead() {
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

/// The state of the key is deleted within the window in which a request has departed.
async fn misses(quota: Quota, change: impl AsyncFnOnce(&Limiter)) {
    let server = RedisServer::start();
    let store = RedisStore::connect(&server.url()).await;
    let builder = Limiter::builder().store(store.expect("a connection"));
    let builder = builder.recovery(Recovery::Strict).quota(quota);
    let limiter = builder.build().expect("a valid policy");
    // The new server rests.
    limiter.acquire("a").await.expect("a permit");
    let begun = Instant::now();
    let departures = async || {
        let mut departed = 0;
        for _ in 0..10 {
            let decision = limiter.try_acquire("a").await.expect("an answer");
            // However late it is: it is not used.
            departed += u32::from(decision.is_granted());
        }
        departed
    };
    change(&limiter).await;
    lose_key(&server);
    let after = departures().await;
    let is_quick = begun.elapsed() < quota.window() / quota.limit();
    assert!(is_quick, "the machine is too slow for this");
    assert_eq!(after, 0, "{quota}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_under_each_algorithm() {
    let window = Duration::from_secs(4);
    let quotas = [
        Algorithm::SlidingLog,
        Algorithm::SlidingBuckets { buckets: 6 },
        Algorithm::Gcra { burst: 4 },
        Algorithm::Spacing,
        Algorithm::FixedWindow {
            start: WindowStart::FirstRequest,
        },
    ];
    let quotas = quotas.map(|algorithm| Quota::new(1, window).algorithm(algorithm));
    join_all(quotas.map(|quota| misses(quota, async |_| {}))).await;
}

#[tokio::test]
async fn a_key_whose_quota_changes_and_changes_back() {
    let quota = Quota::new(1, Duration::from_secs(4));
    misses(quota, async |limiter| {
        for limit in [2, 1] {
            let other = Quota::new(limit, quota.window());
            limiter.set_quota(other).expect("a valid quota");
            limiter.peek("a").await.expect("an answer");
        }
    })
    .await;
}
