//! A value that nobody of ours wrote, where a store keeps its own: an error to every caller, and left
//! alone, with scripts and without.

#[path = "../support/mod.rs"]
mod support;
mod values;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::{FromRedisValue, cmd};
use support::errors::{assert_readable, bounded, everything, store_error};
use support::redis_server::{RedisServer, redis_6_2};
use support::slots::slots;
use tower_throttle::key::Key;
use tower_throttle::store::{RedisStore, Release, Reserve, Store};
use tower_throttle::{Algorithm, Limiter, LimiterBuilder, Policy, Quota, WindowStart};
use values::{Foreign, no_buckets, no_logs, no_numbers, no_windows, nothing_aside, of_other_types};

/// So long that what is done in one test falls into one window.
const LONG: Duration = Duration::from_secs(600);

async fn connect(server: &RedisServer) -> RedisStore {
    let store = RedisStore::connect(&server.url()).await;
    store
        .expect("a connection")
        .timeout(Duration::from_secs(10))
}

fn quota(limit: u32) -> LimiterBuilder {
    Limiter::builder().quota(Quota::new(limit, LONG))
}

fn put<T: FromRedisValue>(server: &RedisServer, name: &str, foreign: &Foreign) -> T {
    let mut connection = server.client().get_connection().expect("a connection");
    let mut command = redis::Cmd::new();
    for word in &foreign.words {
        if word == b"KEY" {
            command.arg(name);
        } else {
            command.arg(word);
        }
    }
    command.query(&mut connection).expect("a valid command")
}

fn dump(server: &RedisServer, name: &str) -> Vec<u8> {
    let mut connection = server.client().get_connection().expect("a connection");
    cmd("DUMP")
        .arg(name)
        .query(&mut connection)
        .expect("a value")
}

/// The policy of all kinds, and the names under which its free slots and its quotas stand.
fn all_kinds() -> (Arc<Policy>, Vec<String>) {
    let counted_by = |algorithm| Quota::new(10, LONG).algorithm(algorithm);
    let builder = [
        Algorithm::SlidingBuckets { buckets: 10 },
        Algorithm::Spacing,
        Algorithm::LeakyBucket { capacity: 50 },
        Algorithm::Gcra { burst: 5 },
        Algorithm::FixedWindow {
            start: WindowStart::Clock,
        },
    ]
    .into_iter()
    .fold(quota(5), |builder, it| builder.quota(counted_by(it)));
    let builder = builder.name("all");
    let policy = builder.build().expect("a valid policy").policy();
    let base = format!("throttle:{{a}}:{}", policy.id());
    let quotas = policy.id().split('+').enumerate();
    let names = quotas.map(|(place, _)| format!("{base}:{place}"));
    let names = [format!("{base}:aside")].into_iter().chain(names).collect();
    (policy, names)
}

/// Where the state of a quota stands among the names whose text ends like this.
fn place(policy: &Policy, end: &str) -> usize {
    let mut quotas = policy.id().split('+');
    1 + quotas
        .position(|it| it.ends_with(end))
        .expect("such a quota")
}

/// Whatever stands under one name: each call fails, and neither it nor what stands under the others
/// is changed; with scripts and without.
async fn leaves_foreign_values_alone(quota: Option<&str>, foreign: Vec<Foreign>) {
    let server = RedisServer::start();
    let scripts = connect(&server).await;
    let transactions = scripts.clone().scripting(false).expect("a way to connect");
    let (policy, names) = all_kinds();
    let place = quota.map_or(0, |quota| place(&policy, quota));
    let key = Key::from("a");
    let mut held = slots(&scripts, &key, &policy, 6).await;
    let free = [held.remove(3)];
    let release = Release::new(&key, &policy, &free);
    scripts.release(&release).await.expect("an answer");
    let others: Vec<_> = names
        .iter()
        .enumerate()
        .filter(|(other, _)| *other != place)
        .collect();
    let dumps = || {
        others
            .iter()
            .map(|(_, name)| dump(&server, name))
            .collect::<Vec<_>>()
    };
    let before = dumps();
    for foreign in of_other_types().into_iter().chain(foreign) {
        server.command::<()>(&["DEL", &names[place]]);
        put::<redis::Value>(&server, &names[place], &foreign);
        let value = dump(&server, &names[place]);
        let what = foreign.what;
        for store in [&scripts, &transactions] {
            let reserve = Reserve::new(&key, &policy);
            let reserved = bounded(store.reserve(&reserve)).await;
            let Err(reserved) = reserved else {
                panic!("{what} at {place} is taken for state: {reserved:?}");
            };
            let peeked = bounded(store.peek(&reserve)).await.expect_err(what);
            let release = Release::new(&key, &policy, &held);
            let released = bounded(store.release(&release)).await;
            for error in [reserved, peeked, released.expect_err(what)] {
                let all = everything(&error);
                assert!(!error.is_outcome_unknown(), "{what}: {all}");
                let refused = error.to_string() == "redis refused the call";
                let foreign = error.to_string() == "redis holds what no throttle wrote";
                assert!(refused || foreign, "{what}: {all}");
                assert!(error.is_unrecognized_value(), "{what}: {all}");
                assert_readable(&error);
            }
            assert_eq!(dump(&server, &names[place]), value, "{what} is changed");
            assert_eq!(dumps(), before, "{what} at {place}: another's is changed");
        }
    }
}

#[tokio::test]
async fn what_is_no_log_is_an_error_and_left_alone() {
    leaves_foreign_values_alone(Some("5/10m"), no_logs()).await;
}

#[tokio::test]
async fn what_is_no_number_is_an_error_and_left_alone() {
    for quota in ["spacing", "gcra-5", "leaky-50"] {
        leaves_foreign_values_alone(Some(quota), no_numbers()).await;
    }
}

#[tokio::test]
async fn what_is_no_bucket_is_an_error_and_left_alone() {
    leaves_foreign_values_alone(Some("buckets-10"), no_buckets()).await;
}

#[tokio::test]
async fn what_is_no_window_is_an_error_and_left_alone() {
    leaves_foreign_values_alone(Some("fixed"), no_windows()).await;
}

#[tokio::test]
async fn what_stands_aside_and_is_neither_holds_nor_free_slots_is_an_error_and_left_alone() {
    leaves_foreign_values_alone(None, nothing_aside()).await;
}

/// There is a short way for one quota alone, and one for many keys.
#[tokio::test]
async fn what_is_no_state_of_the_only_quota_is_an_error_and_left_alone() {
    let server = RedisServer::start();
    let store = connect(&server).await;
    let counted_by = |algorithm| Quota::new(10, LONG).algorithm(algorithm);
    let kinds = [
        (Quota::new(10, LONG), no_logs()),
        (Quota::new(100, LONG), no_logs()),
        (counted_by(Algorithm::Spacing), no_numbers()),
        (counted_by(Algorithm::Gcra { burst: 5 }), no_numbers()),
    ];
    for (quota, foreign) in kinds {
        let limiter = Limiter::builder().quota(quota).build();
        let policy = limiter.expect("a valid policy").policy();
        let name = format!("throttle:{{a}}:{}", policy.id());
        for foreign in of_other_types().into_iter().chain(foreign) {
            let what = foreign.what;
            server.command::<()>(&["DEL", &name]);
            put::<redis::Value>(&server, &name, &foreign);
            let value = dump(&server, &name);
            let ask = async |key: &str| {
                let key = Key::from(key);
                bounded(store.reserve(&Reserve::new(&key, &policy))).await
            };
            let answers = join_all(["a", "b", "a", "c", "d"].map(ask)).await;
            let answered: Vec<_> = answers.iter().map(Result::is_ok).collect();
            assert_eq!(answered, [false, true, false, true, true], "{what}");
            for error in answers.iter().filter_map(|answer| answer.as_ref().err()) {
                assert!(!error.is_outcome_unknown(), "{}", everything(error));
                assert_eq!(error.to_string(), "redis refused the call");
                assert_readable(error);
            }
            assert_eq!(dump(&server, &name), value, "{what} is changed");
        }
    }
}

#[tokio::test]
async fn a_foreign_value_is_an_error_to_every_caller_until_it_is_gone() {
    fails_until_it_is_gone(&RedisServer::start()).await;
}

#[tokio::test]
async fn a_foreign_value_is_an_error_to_every_caller_of_redis_6_2_until_it_is_gone() {
    fails_until_it_is_gone(&RedisServer::start_as(redis_6_2(), |_| Vec::new())).await;
}

async fn fails_until_it_is_gone(server: &RedisServer) {
    let store = connect(server).await;
    for scripting in [true, false] {
        let store = store.clone().scripting(scripting);
        let builder = quota(2).store(store.expect("a way to connect"));
        let limiter = builder.build().expect("a valid policy");
        let name = format!("throttle:{{a}}:{}", limiter.policy().id());
        server.command::<()>(&["DEL", &name]);
        server.command::<()>(&["RPUSH", &name, "mine"]);
        for _ in 0..3 {
            let error = bounded(limiter.acquire("a")).await;
            let error = error.expect_err("it is no log");
            assert!(!store_error(&error).is_outcome_unknown());
            assert!(store_error(&error).is_unrecognized_value());
            let all = everything(&error);
            assert!(all.contains("WRONGTYPE"), "{all}");
            let error = bounded(limiter.try_acquire("a")).await;
            store_error(&error.expect_err("it is no log"));
        }
        limiter.acquire("b").await.expect("other keys go on");
        limiter.reset("b").await.expect("a fresh start");
        server.command::<()>(&["DEL", &name]);
        // What failed has consumed nothing.
        for expected in [true, true, false] {
            let decision = bounded(limiter.try_acquire("a")).await;
            assert_eq!(decision.expect("a decision").is_granted(), expected);
        }
    }
}
