//! The store on a real server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::*;
use crate::algorithm::{Command, Demand, Mode, Settlement, State, Strict, Take};
use crate::store::redis::servers::{AnswerOrigin, Servers};
use crate::store::redis::{Options, Reading, RedisStore};
use crate::store::{Nudged, Store as _};

fn store(server: &RedisServer, scripting: bool) -> RedisStore {
    let options = Options {
        scripting,
        timeout: Duration::from_secs(10),
        ..Options::default()
    };
    RedisStore::on(Servers::at(&server.url()).unwrap(), options)
}

fn take(process: u64, number: u64, count: usize) -> Take {
    Take {
        process,
        number,
        round_trip: 1_000,
        guard: 10_000,
        horizon: 100_000,
        demand: Demand::new((0..count).map(|_| (1, 1))),
        ..Take::one(Mode::Try, 1)
    }
}

async fn call(
    store: &RedisStore,
    key: &str,
    policy: &Policy,
    operation: Operation,
) -> Result<Taken, StoreError> {
    let call = Call::new(&Key::new(key), policy, &operation);
    store.call(vec![call]).await.unwrap().answers.remove(0)
}

fn granted(taken: &Taken) -> u32 {
    taken.grants.iter().map(|grant| grant.requests).sum()
}

#[tokio::test]
async fn keys_that_share_a_script_have_answers_of_their_own() {
    let server = RedisServer::start();
    let store = store(&server, true);
    let _: () = server.command(&["LPUSH", "throttle:{key-3}", "a"]);
    let _: () = server.command(&["SET", "throttle:{key-5}", "another value"]);
    let policy = policy("3/m");
    for (number, expected) in [(1, 2), (2, 1), (3, 0)] {
        let calls = (0..40).map(|nth| {
            let take = take(1, number, 2 - usize::from(nth % 7 == 0));
            Call::new(
                &Key::new(format!("key-{nth}")),
                &policy,
                &Operation::Take(take),
            )
        });
        let answers = store.call(calls.collect()).await.unwrap().answers;
        assert_eq!(answers.len(), 40);
        for (nth, answer) in answers.iter().enumerate() {
            match answer {
                answer if matches!(nth, 3 | 5) => {
                    assert!(!answer.as_ref().unwrap_err().is_outage(), "{answer:?}");
                }
                Err(error) => panic!("{nth}: {error}"),
                Ok(taken) if nth % 7 == 0 => assert_eq!(granted(taken), 1, "{nth}"),
                Ok(taken) => assert_eq!(granted(taken), expected, "{nth}"),
            }
        }
    }
    let info: String = server.command(&["INFO", "commandstats"]);
    assert!(info.contains("cmdstat_evalsha:calls=9,"), "{info}");
}

#[tokio::test]
async fn values_of_others_are_reported_and_never_overwritten() {
    let server = RedisServer::start();
    let name = "throttle:{key}";
    let value = |quotas: &str| State::new(policy(quotas).counters()).encode();
    let mut later = value("10/s");
    later[2] = 2;
    let whole = value("10/s");
    let ring = value("100/s");
    let mut values = vec![
        b"".to_vec(),
        b"1".to_vec(),
        b"a text that is somewhat longer".to_vec(),
        later,
    ];
    values.extend((3..whole.len()).map(|end| whole[..end].to_vec()));
    values.extend([3, 10, 18, 30, 57].map(|end| ring[..end].to_vec()));
    let mut connection = server.client().get_connection().unwrap();
    for scripting in [true, false] {
        let store = store(&server, scripting);
        for quotas in [
            "10/s",
            "100/s",
            "10/s gcra burst=2",
            "10/s fixed-window",
            "10/s + 100/m",
        ] {
            let policy = policy(quotas);
            for value in &values {
                if value.is_empty() {
                    continue;
                }
                redis::cmd("SET")
                    .arg(name)
                    .arg(value)
                    .exec(&mut connection)
                    .unwrap();
                let error = call(&store, "key", &policy, Operation::Take(take(1, 1, 1))).await;
                let error = error.expect_err("an error");
                assert!(
                    error.is_unrecognized_value() && !error.is_outage(),
                    "{value:?}: {error:?}"
                );
                assert!(format!("{error:?}").contains(name), "{error:?}");
                let kept: Vec<u8> = redis::cmd("GET").arg(name).query(&mut connection).unwrap();
                assert_eq!(&kept, value);
            }
            let _: () = server.command(&["DEL", name]);
            let _: () = server.command(&["LPUSH", name, "a"]);
            let error = call(&store, "key", &policy, Operation::Take(take(1, 1, 1))).await;
            let error = error.expect_err("an error");
            assert!(
                error.is_unrecognized_value() && format!("{error:?}").contains(name),
                "{error:?}"
            );
            let _: () = server.command(&["DEL", name]);
        }
    }
}

#[tokio::test]
async fn scripts_that_the_server_forgets_are_sent_again() {
    let server = RedisServer::start();
    let store = store(&server, true);
    let (client, ends) = (server.client(), Arc::new(AtomicBool::new(false)));
    let has_ended = ends.clone();
    let flushes = std::thread::spawn(move || {
        let mut connection = client.get_connection().unwrap();
        while !has_ended.load(Ordering::Relaxed) {
            redis::cmd("SCRIPT")
                .arg("FLUSH")
                .exec(&mut connection)
                .unwrap();
        }
    });
    let policy = policy("1000/h");
    for number in 1..=300 {
        let taken = call(&store, "key", &policy, Operation::Take(take(1, number, 1))).await;
        assert_eq!(granted(&taken.unwrap()), 1);
    }
    ends.store(true, Ordering::Relaxed);
    flushes.join().unwrap();
}

#[tokio::test]
async fn scripts_and_transactions_share_a_quota() {
    let server = RedisServer::start();
    let policy = policy("100/h + 60/d gcra burst=60");
    let stores = [
        store(&server, true),
        store(&server, false),
        store(&server, false),
    ];
    let mut tasks = Vec::new();
    for (process, store) in (1..).zip(stores) {
        let policy = policy.clone();
        tasks.push(tokio::spawn(async move {
            let mut departed = 0;
            for number in 1..=40 {
                let taken = call(
                    &store,
                    "key",
                    &policy,
                    Operation::Take(take(process, number, 1)),
                )
                .await;
                departed += granted(&taken.unwrap());
            }
            departed
        }));
    }
    let mut departed = 0;
    for task in tasks {
        departed += task.await.unwrap();
    }
    assert_eq!(departed, 60);
}

#[tokio::test]
async fn every_key_expires() {
    let server = RedisServer::start();
    let mut connection = server.client().get_connection().unwrap();
    for scripting in [true, false] {
        let store = store(&server, scripting);
        for quotas in [
            "10/s",
            "100/s",
            "10/s gcra burst=2",
            "10/s fixed-window",
            "10/s + 100/m",
        ] {
            let policy = policy(quotas);
            let operations = [
                Operation::Take(Take {
                    mode: Mode::Wait,
                    ..take(1, 1, 30)
                }),
                Operation::Take(Take {
                    strict: Some(Strict::default()),
                    ..take(2, 1, 30)
                }),
                Operation::Take(Take {
                    mode: Mode::Peek,
                    ..take(3, 1, 30)
                }),
                Operation::Control(Command::Pause {
                    span: 500_000,
                    evidence: u64::MAX,
                }),
                Operation::Control(Command::Reset),
                Operation::Take(take(1, 2, 3)),
                Operation::Take(Take {
                    settlements: vec![Settlement {
                        recorded: 1,
                        difference: -1,
                    }],
                    ..take(1, 3, 0)
                }),
            ];
            for operation in operations {
                call(&store, "key", &policy, operation).await.unwrap();
                let names: Vec<String> = server.command(&["KEYS", "*"]);
                for name in &names {
                    let lifetime: i64 = server.command(&["PTTL", name]);
                    assert!(lifetime > 0, "{name} of {quotas}: {lifetime}");
                    if name.ends_with("created") {
                        continue;
                    }
                    let value: Vec<u8> =
                        redis::cmd("GET").arg(name).query(&mut connection).unwrap();
                    let expires = State::decode(&value).unwrap().expires();
                    let (seconds, micros): (u64, u64) = server.command(&["TIME"]);
                    let left = expires.saturating_sub(seconds * 1_000_000 + micros) / 1_000;
                    assert!(
                        lifetime.unsigned_abs() >= left,
                        "{quotas}: {lifetime} < {left}"
                    );
                    assert!(
                        lifetime.unsigned_abs() <= left * 5 / 4 + 15_000,
                        "{quotas}: {lifetime} > {left}"
                    );
                }
            }
            let _: () = server.command(&["FLUSHALL"]);
        }
    }
}

#[tokio::test]
async fn a_reset_nudges_subscribers() {
    struct Noted(Mutex<Vec<Key>>);
    impl Nudged for Noted {
        fn nudged(&self, key: &Key) {
            self.0.lock().push(key.clone());
        }
    }
    let server = RedisServer::start();
    for scripting in [true, false] {
        let (one, other) = (store(&server, scripting), store(&server, true));
        let noted = Arc::new(Noted(Mutex::default()));
        let subscriber: Arc<dyn Nudged> = noted.clone();
        other.subscribe(Arc::downgrade(&subscriber));
        let policy = policy("10/s");
        let key = "x".repeat(100);
        for _ in 0..500 {
            call(&one, &key, &policy, Operation::Control(Command::Reset))
                .await
                .unwrap();
            if !noted.0.lock().is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(noted.0.lock().first(), Some(&Key::new(&key)));
    }
}

#[tokio::test]
async fn another_shape_keeps_the_history() {
    let server = RedisServer::start();
    let store = store(&server, true);
    let try_all = |number| Operation::Take(take(1, number, 500));
    let mut departed = 0;
    for (number, quotas, most) in [
        (1, "10/h", 10),
        (2, "200/h", 200),
        (3, "20/h", 200),
        (4, "900/h", 900),
    ] {
        departed += granted(
            &call(&store, "key", &policy(quotas), try_all(number))
                .await
                .unwrap(),
        );
        let more = call(&store, "key", &policy(quotas), try_all(number + 10))
            .await
            .unwrap();
        departed += granted(&more);
        assert_eq!(departed, most, "{quotas}");
    }
}

#[tokio::test]
async fn a_new_server_puts_keys_in_quarantine_under_strict_recovery() {
    let mut server = RedisServer::start();
    for scripting in [true, false] {
        let store = store(&server, scripting);
        let policy = policy("10/200ms");
        let strict = |number, known| {
            let strict = Some(Strict {
                known,
                clock_was_set: false,
            });
            Operation::Take(Take {
                strict,
                ..take(1, number, 1)
            })
        };
        let first = call(&store, "key", &policy, strict(1, None)).await.unwrap();
        assert!(first.quarantined_until > 0 && first.grants.is_empty());
        // The state expires with the quarantine, so the process no longer counts on it.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        let second = call(&store, "key", &policy, strict(2, None)).await.unwrap();
        assert_eq!(granted(&second), 1);
        // The server has known of every call for long enough.
        let other = call(&store, "other", &policy, strict(3, None))
            .await
            .unwrap();
        assert_eq!(granted(&other), 1);
        server.kill9();
        server.restart();
        let mut number = 3;
        let after = loop {
            number += 1;
            match store.call(Vec::new()).await {
                Ok(_) => {}
                Err(_) => continue,
            }
            let operation = strict(number, second.known);
            let lone = Call::new(&Key::new("key"), &policy, &operation);
            if let Ok(answered) = store.call(vec![lone]).await
                && let Ok(taken) = &answered.answers[0]
            {
                break taken.clone();
            }
        };
        assert!(after.quarantined_until > 0 && after.grants.is_empty());
        let _: () = server.command(&["FLUSHALL"]);
    }
}

#[test]
fn answers_of_two_servers_teach_no_clock() {
    let start = Instant::now();
    let after = |millis| start + Duration::from_millis(millis);
    let reading = |server, now, sent, received| Reading {
        now,
        origin: AnswerOrigin {
            server,
            connection: server,
            sent: after(sent),
            received: after(received),
        },
    };
    let [first, later] = [(5_000_000, 1_000, 1_002), (5_003_000, 1_002, 1_005)]
        .map(|(now, sent, received)| reading(1, now, sent, received));
    let same = first.and(later).answered(Vec::new());
    assert_eq!((same.server, same.now), (1, 5_003_000));
    assert_eq!((same.sent, same.received), (after(1_000), after(1_005)));

    // The clock of the second server is 400 ms ahead, or behind.
    for (now, sent, received) in [(5_403_000, 599, 1_002), (4_603_000, 1_000, 1_402)] {
        let both = first
            .and(reading(2, now, 1_002, 1_005))
            .answered(Vec::new());
        assert_eq!((both.server, both.now), (0, 5_000_000));
        assert_eq!((both.sent, both.received), (after(sent), after(received)));
    }
}

#[test]
fn a_full_log_takes_at_most_12_kilobytes() {
    let server = RedisServer::start();
    let mut lua = Lua::new(&server, true);
    for quotas in ["1000000/h", "10000/h", "1000/h", "100000/10s"] {
        lua.set(None);
        let policy = policy(quotas);
        let window = policy.quotas()[0].window().as_micros() as u64;
        let mut now = 1_763_000_000_000_000;
        for number in 1..3_000 {
            now += window / 1_500;
            let count = policy.largest_cost() / 1_500;
            let operation = Operation::Take(Take {
                guard: 1_000,
                ..take(1, number, count.max(1) as usize)
            });
            if lua.run(&policy, &operation, 0, now).is_none() {
                // The ring has no room.
                let (value, origin) = (lua.value(), Origin::default());
                let applied = apply(&policy, &operation, value.as_deref(), origin, now);
                lua.set(applied.unwrap().1.as_deref());
            }
        }
        let value = lua.value().unwrap();
        let entries = format!("{:?}", State::decode(&value).unwrap())
            .matches("Entry {")
            .count();
        assert!(entries > 600, "{quotas}: {entries} entries");
        assert!(value.len() <= 12_000, "{quotas}: {} bytes", value.len());
        let memory: u64 = server.command(&["MEMORY", "USAGE", "key"]);
        assert!(memory <= 12_400, "{quotas}: {memory} bytes of memory");
    }
}
