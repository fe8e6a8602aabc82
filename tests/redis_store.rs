//! The calls that a limiter makes, and the keys that it leaves.

use std::time::Duration;

use futures_util::future::join_all;
use support::command_stats::CommandStats;
use support::errors::{PATIENCE, bounded};
use support::monitor::Monitor;
use support::proxy::Proxy;
use support::redis_server::RedisServer;
use support::spend::{build, under};
use tokio::time::{Instant, sleep};
use tower_throttle::store::RedisStore;
use tower_throttle::{Limiter, LimiterBuilder};

async fn limiter(server: &RedisServer, builder: LimiterBuilder) -> Limiter {
    build(builder.store(server.store().await))
}

/// Waits until the server has run so many scripts since `before`.
async fn runs_scripts(server: &RedisServer, before: &CommandStats, count: u64) {
    let begun = Instant::now();
    while CommandStats::of(server).since(before).script_calls() < count {
        assert!(begun.elapsed() < PATIENCE, "no further call");
        sleep(Duration::from_millis(1)).await;
    }
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
        let limiter = limiter(&server, builder).await;
        limiter.acquire("first").await.expect("a permit");
        let monitor = Monitor::start(&server);
        let permit = limiter.acquire("a").await.expect("a permit");
        limiter.acquire("b").await.expect("a permit");
        let seen = monitor
            .finish(&server)
            .without(&["client", "info", "subscribe"]);
        assert_eq!(
            (seen.calls("evalsha"), seen.client_commands()),
            (2, 2),
            "{seen:?}"
        );

        let before = CommandStats::of(&server);
        let monitor = Monitor::start(&server);
        permit.forfeit();
        runs_scripts(&server, &before, 1).await;
        let seen = monitor
            .finish(&server)
            .without(&["client", "info", "subscribe"]);
        assert_eq!(seen.calls("evalsha"), seen.client_commands(), "{seen:?}");
        let by_scripts = seen.commands.iter().filter(|sent| sent.sender == "lua");
        for sent in by_scripts {
            assert!(
                documented.contains(&&*sent.name),
                "a script runs {}",
                sent.text
            );
        }
    }
}

/// To open the connection; to name the client; for the identity of the server; for its clock; for the permit, with the
/// text of the script. Nudges have a connection of their own.
#[tokio::test]
async fn the_first_permit_of_a_process_takes_five_round_trips() {
    let server = RedisServer::start();
    for lazily in [false, true] {
        server.command::<()>(&["SCRIPT", "FLUSH"]);
        let proxy = Proxy::start(server.port());
        let store = match lazily {
            true => RedisStore::connect_lazy(&proxy.url()),
            false => RedisStore::connect(&proxy.url()).await,
        };
        let builder = under(&["10/s"]);
        let limiter = build(builder.store(store.expect("a store").timeout(PATIENCE)));
        bounded(limiter.acquire("a")).await.expect("a permit");
        let round_trips = proxy.round_trips();
        let most = round_trips.iter().max().expect("a connection");
        assert!(*most < 5, "{round_trips:?}");
    }
}

/// Requests that depart at once, and such that wait for two seconds: they cause no calls of their own. One that waits long
/// calls about once per second.
#[tokio::test]
async fn a_queue_costs_fewer_calls_than_it_has_requests() {
    let server = RedisServer::start();
    for (quota, requests, least, most) in [
        ("10000/h", 1_000, 1, 20),
        ("100/s", 300, 1, 150),
        ("1/3s", 1, 2, 12),
    ] {
        let limiter = limiter(&server, under(&[quota])).await;
        limiter.acquire(quota).await.expect("a permit");
        let before = CommandStats::of(&server);
        let all = (0..requests).map(|_| bounded(limiter.acquire(quota)));
        for permit in join_all(all).await {
            permit.expect("a permit");
        }
        let calls = CommandStats::of(&server).since(&before).script_calls();
        assert!((least..=most).contains(&calls), "{quota}: {calls} calls");
    }
}
