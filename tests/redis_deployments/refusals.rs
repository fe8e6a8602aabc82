//! Servers that refuse a call, and whether that is an outage.

use std::path::PathBuf;

use crate::prelude::*;
use support::redis_server::{connect, installed, redis_6_2, valkey};

/// All kinds of servers, each with and without scripts.
fn all() -> impl Iterator<Item = (PathBuf, bool)> {
    let binaries = [redis_6_2(), installed(), valkey()].into_iter();
    binaries.flat_map(|binary| [(binary.clone(), true), (binary, false)])
}

async fn limiters(url: &str, scripting: bool) -> [Limiter; 2] {
    let store = connect(url).await;
    let store = store.scripting(scripting).expect("its own connections");
    // A log that is read whole, and joint quotas with a ring. Each remembers nothing, and has a state of its own.
    let quotas = [("one", &["10/h"][..]), ("other", &["1000/h", "10/h"])];
    quotas.map(|(name, quotas)| {
        let store = store.clone().prefix(name).expect("a prefix");
        build(under(quotas).denial_cache(0).store(store))
    })
}

async fn try_once(limiter: &Limiter) -> Result<u32, StoreError> {
    match bounded(limiter.try_acquire("a")).await {
        Ok(decision) => Ok(decision.permit().expect("a permit").remaining()),
        Err(error) => Err(store_error(&error).clone()),
    }
}

async fn are_refused(limiters: &[Limiter], code: &str, is_outage: bool) {
    for limiter in limiters {
        let error = try_once(limiter).await.expect_err(code);
        let text = everything(&error);
        assert_eq!(error.is_outage(), is_outage, "{code}: {text}");
        assert!(!error.is_outcome_unknown(), "{code}: {text}");
        assert_readable(&error);
    }
}

/// Each lets one request depart, and refusals have consumed nothing.
async fn recover(limiters: &[Limiter], left: u32) {
    for limiter in limiters {
        let remaining = until_ok(async || try_once(limiter).await).await;
        assert_eq!(remaining, left);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_takes_no_writes_or_clients_for_now_is_out_and_refusals_consume_nothing() {
    for (binary, scripting) in all() {
        let server = RedisServer::start_as(binary, |_| Vec::new());
        let limiters = limiters(&server.url(), scripting).await;
        recover(&limiters, 9).await;
        let set = |name: &str, value: &str| server.command::<()>(&["CONFIG", "SET", name, value]);
        for (code, name, on, off, left) in [
            ("OOM", "maxmemory", "1", "0", 8),
            ("NOREPLICAS", "min-replicas-to-write", "1", "0", 7),
        ] {
            set(name, on);
            are_refused(&limiters, code, true).await;
            set(name, off);
            recover(&limiters, left).await;
        }
        server.command::<()>(&["REPLICAOF", "127.0.0.1", "1"]);
        are_refused(&limiters, "READONLY", true).await;
        set("replica-serve-stale-data", "no");
        are_refused(&limiters, "MASTERDOWN", true).await;
        server.command::<()>(&["REPLICAOF", "NO", "ONE"]);
        recover(&limiters, 6).await;
        let urls = [server.user(&["+@all"]), server.url()];
        set("maxclients", "1");
        for url in urls {
            let error = bounded(RedisStore::connect(&url)).await.expect_err("full");
            assert!(error.is_outage() && !error.is_outcome_unknown());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_right_or_password_is_no_outage() {
    for (binary, scripting) in all() {
        let server = RedisServer::start_as(binary.clone(), |_| Vec::new());
        let user = server.user(&["+@all", "-get", "-eval", "-evalsha"]);
        let limited = limiters(&user, scripting).await;
        are_refused(&limited, "NOPERM", false).await;
        server.user(&["+@all"]);
        recover(&limited, 9).await;
        server.command::<()>(&["CONFIG", "SET", "requirepass", "hunter2"]);
        let urls = [user.replace("secret", "wrong"), user + "999", server.url()];
        for (url, cause) in urls.iter().zip(["to AUTH", "DB index", "NOAUTH"]) {
            let error = bounded(RedisStore::connect(url)).await;
            let error = error.expect_err("refused");
            assert_eq!(error.to_string(), "redis refused the connection");
            assert!(!error.is_outage() && everything(&error).contains(cause));
            assert_readable(&error);
        }

        let renamed = ["EVAL", "EVALSHA", "WATCH"].map(|it| ["--rename-command", it, ""]);
        let renamed = renamed.as_flattened().iter().map(ToString::to_string);
        let server = RedisServer::start_as(binary, |_| renamed.clone().collect());
        let limiters = limiters(&server.url(), scripting).await;
        are_refused(&limiters, "unknown command", false).await;
    }
}
