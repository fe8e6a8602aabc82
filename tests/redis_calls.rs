//! The calls that a limiter makes, servers that fail or do not answer, and transactions that are overtaken.

use std::net::TcpListener;

use futures_util::StreamExt as _;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use support::redis_server::connect;
use tower_throttle::store::Store as _;

use crate::prelude::*;

/// The commands that the server runs during the work: those of scripts, and of clients, except to set up and check connections.
async fn observed(server: &RedisServer, work: impl Future<Output = ()>) -> [Vec<String>; 2] {
    const END: &str = "the monitor ends here";
    let monitor = server.client().get_async_monitor().await;
    let lines = monitor.expect("a connection").into_on_message::<String>();
    work.await;
    server.command::<String>(&["ECHO", END]);
    let lines = lines.take_while(|line| ready(!line.contains(END)));
    let lines: Vec<_> = bounded(lines.collect()).await;
    // `1700000000.123456 [0 127.0.0.1:5555] "evalsha" "6b1b…" "0"`, and `[0 lua]` for scripts.
    let name = |line: &String| line.split('"').nth(1).expect("a name").to_ascii_lowercase();
    let (scripted, sent): (Vec<_>, Vec<_>) = lines.iter().partition(|it| it.contains(" lua] "));
    let setup = |name: &String| ["client", "info", "subscribe", "ping"].contains(&&**name);
    let sent = sent.into_iter().map(name).filter(|name| !setup(name));
    [sent.collect(), scripted.into_iter().map(name).collect()]
}

#[tokio::test]
async fn sends_nothing_but_one_script_for_each_call_once_the_server_knows_it() {
    let documented = "time get getrange set setrange pexpire del publish";
    let server = RedisServer::start();
    for builder in [
        under(&["10/h"]),
        under(&["10/h", "100/h", "50/h spacing", "100/h gcra burst=50"]),
    ] {
        server.command::<()>(&["FLUSHALL"]);
        // On a busy machine, a request that is polled too late would call once more.
        let builder = builder.guard(Duration::from_secs(2));
        let limiter = build(builder.store(server.store().await));
        limiter.acquire("first").await.expect("a permit");
        let mut permits = Vec::new();
        let acquire = async {
            for key in ["a", "b"] {
                permits.push(limiter.acquire(key).await.expect("a permit"));
            }
        };
        let [sent, _] = observed(&server, acquire).await;
        assert_eq!(sent, ["evalsha"; 2]);

        let forfeit = async {
            permits.remove(0).forfeit();
            eventually("it is returned", async || limiter.queues() == 0).await;
        };
        let [sent, scripted] = observed(&server, forfeit).await;
        assert!(sent.iter().all(|name| name == "evalsha"), "{sent:?}");
        let is_documented = |name: &String| documented.split(' ').any(|it| it == name);
        assert!(scripted.iter().all(is_documented), "{scripted:?}");
    }
}

/// To open the connection, which the proxy does not delay; to name the client; for the identity of the server; for its clock;
/// for the permit, with the text of the script. A busy machine may delay it.
#[tokio::test]
async fn the_first_permit_of_a_process_takes_five_round_trips() {
    const ROUND_TRIP: Duration = Duration::from_millis(400);
    let server = RedisServer::start();
    let first = async || {
        server.command::<()>(&["SCRIPT", "FLUSH"]);
        let proxy = Proxy::start(server.port());
        proxy.delay(ROUND_TRIP / 2);
        let begun = Instant::now();
        let store = RedisStore::connect_lazy(&proxy.url()).expect("a URL");
        let limiter = build(under(&["100/s"]).store(store.timeout(PATIENCE)));
        bounded(limiter.acquire("a")).await.expect("a permit");
        begun.elapsed() < ROUND_TRIP * 9 / 2
    };
    eventually("it takes five round trips", first).await;
}

/// Without the message, they would look for a place every 120 ms.
#[tokio::test]
async fn a_released_place_is_announced_to_the_processes_that_wait() {
    for scripting in [true, false] {
        let server = RedisServer::start();
        let channels = || server.command::<Vec<String>>(&["PUBSUB", "CHANNELS"]);
        let limiter = async || {
            let store = server.store().await.scripting(scripting);
            build(under(&["1 concurrent"]).store(store.expect("a store")))
        };
        let one = limiter().await;
        let place = one.acquire("a").await.expect("a permit").hold();
        eventually("it subscribes", async || channels().len() > 1).await;
        let (others, other) = (channels(), limiter().await);
        let is_its_own = |channel: &String| !others.contains(channel);
        let subscribes = async || channels().iter().any(is_its_own);
        let waiting = tokio::spawn(other.acquire("a"));
        eventually("the other process subscribes", subscribes).await;
        let calls = || {
            let stats = CommandStats::of(&server);
            stats.script_calls() + stats.calls("exec")
        };
        let enough = calls() + 3;
        eventually("the other process waits", async || calls() >= enough).await;
        let messages = server.client().get_async_pubsub().await;
        let mut messages = messages.expect("a connection");
        messages.psubscribe("*").await.expect("a subscription");
        drop(place);
        let message = bounded(messages.on_message().next()).await;
        let channel = message.expect("a message").get_channel_name().to_owned();
        let is_subscribed = channels().contains(&channel);
        assert!(is_subscribed && is_its_own(&channel), "{channel}");
        let departed = bounded(waiting).await.expect("no panic");
        departed.expect("a permit");
    }
}

#[tokio::test]
async fn connecting_to_a_server_that_never_answers_fails_after_two_seconds() {
    // The system accepts connections, and no process reads from them.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("redis://{}/", silent.local_addr().expect("an address"));
    let start = Instant::now();
    let error = bounded(RedisStore::connect(&url)).await;
    let error = error.expect_err("no such server");
    assert!(error.is_outage() && !error.is_outcome_unknown());
    assert_readable(&error);
    assert!(start.elapsed() >= Duration::from_millis(1_900));
}

#[test]
fn connecting_takes_a_runtime() {
    let connecting = RedisStore::connect("redis://127.0.0.1:1/").now_or_never();
    let error = connecting.expect("no wait").expect_err("no runtime");
    assert!(!error.is_outage(), "{error:?}");
}

/// The store's timeout applies, and not one that the connection has.
#[tokio::test]
async fn the_timeout_bounds_every_call() {
    let server = RedisServer::start();
    let default = RedisStore::connect(&server.url()).await;
    let multiplexed = server.client().get_multiplexed_async_connection().await;
    let stores = [
        default.expect("a connection"),
        multiplexed.expect("a connection").into(),
    ];
    server.sigstop();
    for store in &stores {
        let start = Instant::now();
        let error = bounded(store.ping(&"any".into())).await;
        assert!(error.expect_err("no answer in time").is_outage());
        assert!(start.elapsed() >= Duration::from_millis(900));
    }
    let [one, other] = stores.map(|it| it.timeout(PATIENCE));
    let wake = async {
        sleep(Duration::from_millis(1_300)).await;
        server.sigcont();
    };
    let key = "any".into();
    let (one, other, ()) = tokio::join!(one.ping(&key), other.ping(&key), wake);
    one.and(other).expect("late answers");
}

#[tokio::test]
async fn without_the_right_to_the_time_calls_fail_unless_the_hosts_clocks_take_its_place() {
    let server = RedisServer::start();
    let store = connect(&server.user(&["+@all", "-time"])).await;
    let limiter = build(under(&["10/h"]).store(store.clone()));
    let error = bounded(limiter.acquire("a")).await.expect_err("no time");
    assert!(!store_error(&error).is_outage(), "{error:?}");
    assert!(everything(&error).contains("time"), "{error:?}");
    for scripting in [true, false] {
        for recovery in [Recovery::Immediate, Recovery::Strict] {
            let store = store.clone().scripting(scripting).expect("a store");
            let store = store.server_time(false);
            let builder = under(&["10/200ms"]).recovery(recovery);
            let limiter = build(builder.store(store));
            bounded(limiter.acquire("a")).await.expect("a permit");
        }
    }
}

#[tokio::test]
async fn a_connection_manager_that_never_gives_up_and_one_that_is_made_lazily_survive_an_outage() {
    let mut server = RedisServer::start();
    let config = ConnectionManagerConfig::new().set_number_of_retries(1_000);
    let manager = ConnectionManager::new_with_config(server.client(), config).await;
    let url = server.url();
    server.kill9();
    let lazy = RedisStore::connect_lazy(&url).expect("a URL");
    let stores = [manager.expect("a connection").into(), lazy];
    let stores = stores.map(|it| it.timeout(Duration::from_millis(200)));
    for store in &stores {
        for _ in 0..3 {
            let error = bounded(store.ping(&"any".into())).await;
            assert!(error.expect_err("no server").is_outage());
        }
    }
    server.restart();
    for limiter in stores.map(|it| build(under(&["1000/h"]).store(it))) {
        eventually("it recovers", async || limiter.acquire("a").await.is_ok()).await;
    }
}

/// The old server may answer again, but gets no more messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_follows_the_connection_to_another_server() {
    let [old, new] = [(); 2].map(|()| RedisServer::start());
    let proxy = Proxy::start(old.port());
    let limiter = build(under(&["10/h"]).store(connect(&proxy.url()).await));
    let subscribed = async |server: &RedisServer| {
        let channels = || server.command::<Vec<String>>(&["PUBSUB", "CHANNELS"]);
        eventually("it subscribes", async || !channels().is_empty()).await;
    };
    limiter.acquire("a").await.expect("a permit");
    subscribed(&old).await;
    proxy.lead_to(new.port());
    old.command::<u64>(&["CLIENT", "KILL", "TYPE", "normal"]);
    limiter.acquire("a").await.expect("a permit");
    subscribed(&new).await;
}

/// Changes the watched value before each of the first `spoiled` transactions. Returns how many transactions there were.
fn spoil(proxy: &Proxy, server: &RedisServer, spoiled: usize) -> Arc<AtomicUsize> {
    let transactions = Arc::new(AtomicUsize::new(0));
    let all = transactions.clone();
    let mut other = server.client().get_connection().expect("a connection");
    proxy.inspect(move |sent| {
        let begins = sent.windows(5).any(|word| word == b"SET\r\n");
        let is_ping = sent.windows(5).any(|word| word == b"}ping");
        if begins && !is_ping && all.fetch_add(1, Ordering::SeqCst) < spoiled {
            // The value stays the same, but it was written.
            let mut change = redis::pipe();
            change.cmd("APPEND").arg("throttle:{a}").arg("x").ignore();
            change.cmd("DEL").arg("throttle:{a}").ignore();
            change.exec(&mut other).expect("a change");
        }
        None
    });
    transactions
}

#[tokio::test]
async fn a_call_that_is_overtaken_tries_again_and_fails_after_fifty_times() {
    for (spoiled, least, left) in [(7, 8, 1), (120, 121, 1), (usize::MAX, 50, 2)] {
        let server = RedisServer::start();
        let proxy = Proxy::start(server.port());
        let transactions = spoil(&proxy, &server, spoiled);
        let store = connect(&proxy.url()).await;
        let store = store.scripting(false).expect("its own connections");
        // On a busy machine, a request that is polled too late would call once more.
        let unhurried = under(&["2/h"]).guard(Duration::from_secs(2));
        let limiter = build(unhurried.store(store));
        if spoiled == 120 {
            // A request that waits calls again.
            limiter.acquire("a").await.expect("a permit");
        } else {
            match limiter.try_acquire("a").await {
                Ok(decision) => assert!(decision.is_granted() && spoiled == 7),
                Err(error) => {
                    let error = store_error(&error);
                    assert!(!error.is_outcome_unknown() && !error.is_outage());
                    let problem = "other processes changed the same key too often: allow scripts, or raise the timeout";
                    assert_eq!(error.to_string(), problem);
                }
            }
        }
        assert_eq!(transactions.load(Ordering::SeqCst), least);
        let remaining = limiter.peek("a").await.expect("a look").remaining();
        assert_eq!(remaining, left, "{spoiled}");
    }
}

#[tokio::test]
async fn a_value_of_another_window_is_not_overwritten_once_it_has_changed() {
    let server = RedisServer::start();
    let other = build(under(&["5/h"]).store(server.store().await));
    other.acquire("a").await.expect("a permit");
    let proxy = Proxy::start(server.port());
    spoil(&proxy, &server, 1);
    let limiter = build(under(&["2/2h"]).store(connect(&proxy.url()).await));
    limiter.acquire("a").await.expect("a permit");
    // The other departure was forgotten in between.
    assert_eq!(limiter.peek("a").await.expect("a look").remaining(), 1);
}
