//! Servers that refuse a call, and whether that is an outage.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use tokio::time::{Duration, Instant, sleep};
use tower_throttle::LimiterBuilder;
use tower_throttle::store::{RedisStore, Store as _, StoreError};

use crate::redis_deployments::promises::LONG;
use support::errors::{assert_readable, bounded, everything, store_error};
use support::redis_server::{RedisServer, installed, redis_6_2, valkey};
use support::spend::under;

/// All kinds of servers, each with and without scripts.
fn all() -> [(PathBuf, bool); 6] {
    let system = installed();
    let binaries = [redis_6_2(), system, valkey()];
    let [a, b, c] = binaries;
    [
        (a.clone(), true),
        (a, false),
        (b.clone(), true),
        (b, false),
        (c.clone(), true),
        (c, false),
    ]
}

/// A log that is read whole, and joint quotas with a ring.
fn policies() -> [LimiterBuilder; 2] {
    [under(&["10/h"]), under(&["1000/h", "10/h gcra burst=10"])]
}

async fn connect(url: &str, scripting: bool) -> RedisStore {
    let store = bounded(RedisStore::connect(url)).await;
    let store = store.expect("a connection").timeout(LONG);
    store.scripting(scripting).expect("its own connections")
}

/// Tries one request by a limiter of its own.
async fn try_once(store: &RedisStore, builder: LimiterBuilder) -> Result<(), StoreError> {
    let limiter = builder
        .store(store.clone())
        .build()
        .expect("a valid policy");
    match bounded(limiter.try_acquire("a")).await {
        Ok(_) => Ok(()),
        Err(error) => Err(store_error(&error).clone()),
    }
}

async fn is_refused(store: &RedisStore, code: &str, is_outage: bool) {
    for builder in policies() {
        let error = try_once(store, builder).await.expect_err(code);
        let text = everything(&error);
        assert_eq!(error.is_outage(), is_outage, "{code}: {text}");
        assert!(!error.is_outcome_unknown(), "{code}: {text}");
        assert_readable(&error);
    }
}

async fn recovers(store: &RedisStore) {
    let deadline = Instant::now() + LONG;
    for builder in policies() {
        while let Err(error) = try_once(store, builder.clone()).await {
            assert!(Instant::now() < deadline, "{error:?}");
            sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_takes_no_writes_for_now_is_out() {
    for (binary, scripting) in all() {
        let server = RedisServer::start_as(binary, |_| Vec::new());
        let store = connect(&server.url(), scripting).await;
        recovers(&store).await;
        let set = |name: &str, value: &str| server.command::<()>(&["CONFIG", "SET", name, value]);
        for (code, name, on, off) in [
            ("OOM", "maxmemory", "1", "0"),
            ("NOREPLICAS", "min-replicas-to-write", "1", "0"),
        ] {
            set(name, on);
            is_refused(&store, code, true).await;
            set(name, off);
            recovers(&store).await;
        }
        server.command::<()>(&["REPLICAOF", "127.0.0.1", "1"]);
        is_refused(&store, "READONLY", true).await;
        set("replica-serve-stale-data", "no");
        is_refused(&store, "MASTERDOWN", true).await;
        server.command::<()>(&["REPLICAOF", "NO", "ONE"]);
        recovers(&store).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_busy_with_a_script_is_out() {
    for (binary, scripting) in all() {
        let server = RedisServer::start_as(binary, |_| {
            ["--lua-time-limit", "50"].map(ToString::to_string).to_vec()
        });
        let store = connect(&server.url(), scripting).await;
        let of_database = connect(&format!("{}3", server.url()), scripting).await;
        recovers(&store).await;
        let mut endless = Command::new(std::env::var_os("REDIS_CLI").unwrap_or("redis-cli".into()))
            .args([
                "-p",
                &server.port().to_string(),
                "EVAL",
                "while true do end",
                "0",
            ])
            .stdout(Stdio::null())
            .spawn()
            .expect("a redis-cli");
        let deadline = Instant::now() + LONG;
        let is_busy = || {
            let pong = server.try_command::<String>(&["PING"]);
            pong.is_err_and(|error| error.code() == Some("BUSY"))
        };
        while !is_busy() {
            assert!(Instant::now() < deadline, "it is not busy");
            sleep(Duration::from_millis(10)).await;
        }
        is_refused(&store, "BUSY", true).await;
        is_refused(&of_database, "BUSY", true).await;
        let error = bounded(store.ping(&"any".into())).await;
        assert!(error.expect_err("it is busy").is_outage());
        server.command::<()>(&["SCRIPT", "KILL"]);
        endless.wait().expect("our own child");
        recovers(&store).await;
        recovers(&of_database).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_loads_its_data_is_out() {
    for (binary, scripting) in all() {
        let mut server = RedisServer::start_as(binary, |_| {
            let words = ["--rdbcompression", "no", "--key-load-delay", "20000"];
            words.map(ToString::to_string).to_vec()
        });
        let store = connect(&server.url(), scripting).await;
        recovers(&store).await;
        let big = "x".repeat(200_000);
        for number in 0..150 {
            server.command::<()>(&["SET", &format!("big-{number}"), &big]);
        }
        server.command::<()>(&["SAVE"]);
        server.begin_restart();
        let deadline = Instant::now() + LONG;
        loop {
            match try_once(&store, policies()[0].clone()).await {
                Ok(_) => panic!("it was never seen to load"),
                Err(error) if everything(&error).contains("LOADING") => break,
                Err(_) => assert!(Instant::now() < deadline, "it does not load"),
            }
            sleep(Duration::from_millis(10)).await;
        }
        recovers(&store).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_right_or_password_is_no_outage() {
    for (binary, scripting) in all() {
        let server = RedisServer::start_as(binary.clone(), |_| Vec::new());
        let rights = [
            "on", ">hunter2", "~*", "&*", "+@all", "-get", "-eval", "-evalsha",
        ];
        server.command::<()>(&[&["ACL", "SETUSER", "limited"][..], &rights].concat());
        let with = |before: &str, behind: &str| {
            format!("redis://{before}127.0.0.1:{}/{behind}", server.port())
        };
        let limited = connect(&with("limited:hunter2@", ""), scripting).await;
        is_refused(&limited, "NOPERM", false).await;
        for url in [with("limited:wrong@", ""), with("", "999")] {
            let error = bounded(RedisStore::connect(&url))
                .await
                .expect_err("refused");
            assert_eq!(error.to_string(), "redis refused the connection");
            assert!(!error.is_outage(), "{}", everything(&error));
            assert_readable(&error);
        }
        server.command::<()>(&["CONFIG", "SET", "requirepass", "secret"]);
        let error = bounded(RedisStore::connect(&with("", ""))).await;
        let error = error.expect_err("a password is needed");
        assert!(!error.is_outage(), "{}", everything(&error));

        let server = RedisServer::start_as(binary, |_| {
            let words = [
                "--rename-command",
                "EVAL",
                "",
                "--rename-command",
                "EVALSHA",
                "",
                "--rename-command",
                "WATCH",
                "",
            ];
            words.map(ToString::to_string).to_vec()
        });
        let store = connect(&server.url(), scripting).await;
        is_refused(&store, "unknown command", false).await;
    }
}
