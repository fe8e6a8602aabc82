//! Values that this crate did not write: each is an error of its key, and is never overwritten.

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use tokio::time::{Duration, Instant};
use tower_throttle::Error;
use tower_throttle::Limiter;
use tower_throttle::key::Key;
use tower_throttle::store::{RedisStore, StoredKey};

use support::errors::{PATIENCE, assert_readable, bounded, everything, store_error};
use support::redis_server::{RedisServer, redis_6_2};
use support::spend::{spend_by, under};

const NAME: &str = "throttle:{a}";

const POLICIES: [&[&str]; 5] = [
    &["10/h"],
    &["100/h"],
    &["10/h gcra burst=2"],
    &["10/h fixed-window"],
    &["10/h", "100/h"],
];

/// Commands that write a value of another type.
const OTHER_TYPES: [&[&str]; 5] = [
    &["RPUSH", NAME, "a", "b"],
    &["HSET", NAME, "a", "b"],
    &["SADD", NAME, "a", "b"],
    &["ZADD", NAME, "1", "a"],
    &["XADD", NAME, "1-1", "a", "b"],
];

fn set(server: &RedisServer, value: &[u8]) {
    let mut connection = server.client().get_connection().expect("a connection");
    let set = redis::cmd("SET").arg(NAME).arg(value).exec(&mut connection);
    set.expect("an answer");
}

fn dump(server: &RedisServer) -> Vec<u8> {
    server.command(&["DUMP", NAME])
}

async fn limiters(server: &RedisServer, scripting: bool) -> (RedisStore, Vec<Limiter>) {
    let store = RedisStore::connect(&server.url()).await;
    let store = store.expect("a connection").timeout(PATIENCE);
    let store = store.scripting(scripting).expect("its own connections");
    let limiters = POLICIES.iter().map(|quotas| {
        let builder = under(quotas).store(store.clone());
        builder.build().expect("a valid policy")
    });
    let limiters = limiters.collect();
    (store, limiters)
}

/// Does everything with the key.
async fn call(limiter: &Limiter) -> [Result<(), Error>; 6] {
    let until = Instant::now() + Duration::from_secs(60);
    [
        bounded(limiter.try_acquire("a")).await.map(drop),
        bounded(limiter.acquire("a").max_wait(Duration::from_millis(100)))
            .await
            .map(drop),
        bounded(limiter.peek("a")).await.map(drop),
        bounded(limiter.pause("a", until)).await,
        bounded(limiter.resume("a")).await,
        bounded(limiter.reset("a")).await,
    ]
}

async fn every_caller_fails(store: &RedisStore, limiters: &[Limiter], server: &RedisServer) {
    let before = dump(server);
    for limiter in limiters {
        for outcome in call(limiter).await {
            let error = outcome.expect_err("the value is not recognized");
            let error = store_error(&error);
            assert!(
                error.is_unrecognized_value() && !error.is_outage(),
                "{error:?}"
            );
            assert!(!error.is_outcome_unknown(), "{error:?}");
            assert!(everything(error).contains(NAME), "{}", everything(error));
            assert_readable(error);
        }
        spend_by(limiter, "sound", 1).await;
        limiter.reset("sound").await.expect("a fresh start");
    }
    let stored = StoredKey::new(&Key::new("a"), None);
    let looked = store.look(std::slice::from_ref(&stored)).await.remove(0);
    assert!(looked.expect_err("not recognized").is_unrecognized_value());
    assert_eq!(dump(server), before);
    server.command::<()>(&["DEL", NAME]);
    for limiter in limiters {
        spend_by(limiter, "a", 1).await;
        limiter.reset("a").await.expect("a fresh start");
    }
    server.command::<()>(&["DEL", NAME]);
}

async fn are_errors_and_stay(server: RedisServer) {
    for scripting in [true, false] {
        let (store, limiters) = limiters(&server, scripting).await;
        for words in OTHER_TYPES {
            server.command::<()>(words);
            every_caller_fails(&store, &limiters, &server).await;
        }
        for value in [&b"1"[..], b"hello, world", b"tt", b"tt\x02", &[0xff; 100]] {
            set(&server, value);
            every_caller_fails(&store, &limiters, &server).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_others_are_errors_and_stay() {
    are_errors_and_stay(RedisServer::start()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_others_are_errors_and_stay_in_redis_6_2() {
    are_errors_and_stay(RedisServer::start_as(redis_6_2(), |_| Vec::new())).await;
}

/// Some damage is not noticed. If it is, the value stays as it is; and nothing panics or hangs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_values_cause_no_panic_and_are_not_overwritten_if_noticed() {
    let server = RedisServer::start();
    let mut runner = TestRunner::deterministic();
    let damage = prop_oneof![
        (0.0..1.0_f64).prop_map(|cut| (cut, None)),
        (0.0..1.0_f64, any::<u8>()).prop_map(|(place, byte)| (place, Some(byte))),
    ];
    let mut noticed = 0;
    for scripting in [true, false] {
        let (_, writers) = limiters(&server, scripting).await;
        let (store, readers) = limiters(&server, scripting).await;
        for round in 0..30 {
            for (writer, reader) in writers.iter().zip(&readers) {
                server.command::<()>(&["DEL", NAME]);
                spend_by(writer, "a", 1 + round % 2).await;
                let value: Vec<u8> = server.command(&["GET", NAME]);
                let (place, byte) = damage.new_tree(&mut runner).expect("damage").current();
                let place = (value.len() as f64 * place) as usize;
                let mut damaged = value.clone();
                match byte {
                    Some(byte) => damaged[place] = byte,
                    None => damaged.truncate(place.max(1)),
                }
                set(&server, &damaged);
                let stored = StoredKey::new(&Key::new("a"), None);
                let looked = store.look(std::slice::from_ref(&stored)).await.remove(0);
                let outcome = bounded(reader.try_acquire("a")).await;
                if let Err(error) = outcome {
                    assert!(store_error(&error).is_unrecognized_value(), "{error:?}");
                    assert_eq!(server.command::<Vec<u8>>(&["GET", NAME]), damaged);
                    noticed += 1;
                }
                if let Err(error) = looked {
                    assert!(error.is_unrecognized_value(), "{error:?}");
                }
            }
        }
    }
    assert!(noticed > 50, "{noticed}");
}
