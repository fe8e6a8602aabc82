//! The calls that a limiter makes.

use support::command_stats::CommandStats;
use support::errors::{PATIENCE, bounded, eventually};
use support::monitor::{Monitor, Sent};
use support::proxy::Proxy;
use support::redis_server::RedisServer;
use support::spend::{build, under};
use tower_throttle::store::RedisStore;

/// The commands that clients sent, but for those that set up a connection; and those that scripts ran.
async fn finish(monitor: Monitor, server: &RedisServer) -> [Vec<String>; 2] {
    let seen = monitor.finish(server).await.into_iter();
    let setup = |it: &Sent| ["client", "info", "subscribe"].contains(&&*it.name);
    let (scripted, sent): (Vec<_>, Vec<_>) = seen.partition(|it| it.is_scripted);
    let sent = sent.into_iter().filter(|it| !setup(it));
    let names = |it: Sent| it.name;
    [
        sent.map(names).collect(),
        scripted.into_iter().map(names).collect(),
    ]
}

#[tokio::test]
async fn sends_nothing_but_one_script_for_each_call_once_the_server_knows_it() {
    let documented = [
        "time", "get", "getrange", "set", "setrange", "pexpire", "del", "publish",
    ];
    let server = RedisServer::start();
    for builder in [
        under(&["10/h"]),
        under(&["10/h", "100/h", "50/h spacing", "100/h gcra burst=50"]),
    ] {
        server.command::<()>(&["FLUSHALL"]);
        let limiter = build(builder.store(server.store().await));
        limiter.acquire("first").await.expect("a permit");
        let monitor = Monitor::start(&server).await;
        let permit = limiter.acquire("a").await.expect("a permit");
        limiter.acquire("b").await.expect("a permit");
        let [sent, _] = finish(monitor, &server).await;
        assert_eq!(sent, ["evalsha"; 2]);

        let before = CommandStats::of(&server).script_calls();
        let monitor = Monitor::start(&server).await;
        permit.forfeit();
        let calls = async || CommandStats::of(&server).script_calls() > before;
        eventually("the departure is returned", calls).await;
        let [sent, scripted] = finish(monitor, &server).await;
        assert!(sent.iter().all(|name| name == "evalsha"), "{sent:?}");
        let is_documented = |name: &String| documented.contains(&&**name);
        assert!(scripted.iter().all(is_documented), "{scripted:?}");
    }
}

/// To open the connection; to name the client; for the identity of the server; for its clock; for the permit, with the
/// text of the script. Nudges have a connection of their own. A request that a busy machine delays may take another call.
#[tokio::test]
async fn the_first_permit_of_a_process_takes_five_round_trips() {
    let server = RedisServer::start();
    for lazily in [false, true] {
        let first = async || {
            server.command::<()>(&["SCRIPT", "FLUSH"]);
            let proxy = Proxy::start(server.port());
            let store = match lazily {
                true => RedisStore::connect_lazy(&proxy.url()),
                false => RedisStore::connect(&proxy.url()).await,
            };
            let store = store.expect("a store").timeout(PATIENCE);
            let limiter = build(under(&["100/s"]).store(store));
            bounded(limiter.acquire("a")).await.expect("a permit");
            let round_trips = proxy.round_trips();
            *round_trips.iter().max().expect("a connection") < 5
        };
        eventually("it takes five round trips", first).await;
    }
}

/// Without the message, they would look for a place every 120 ms.
#[tokio::test]
async fn a_released_place_is_announced_to_the_processes_that_wait() {
    let server = RedisServer::start();
    for scripting in [true, false] {
        let limiter = async || {
            let store = server.store().await.scripting(scripting);
            build(under(&["1 concurrent"]).store(store.expect("a store")))
        };
        let (one, other) = (limiter().await, limiter().await);
        let place = one.acquire("a").await.expect("a permit").hold();
        let waiting = tokio::spawn(other.acquire("a"));
        let calls = || {
            let stats = CommandStats::of(&server);
            stats.script_calls() + stats.calls("exec")
        };
        let enough = calls() + 3;
        eventually("the other process waits", async || calls() >= enough).await;
        let published = || CommandStats::of(&server).calls("publish");
        let before = published();
        drop(place);
        let permit = bounded(waiting).await.expect("no panic");
        assert!(published() > before, "scripts: {scripting}");
        permit.expect("a permit").forfeit();
    }
}
