//! The store on a real server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::*;
use crate::algorithm::{Costs, Demand, Mode, State, Take};
use crate::store::Store as _;
use crate::store::redis::servers::{AnswerOrigin, Servers};
use crate::store::redis::{Reading, RedisStore};
use support::command_stats::CommandStats;

fn store(server: &RedisServer, scripting: bool) -> RedisStore {
    let store = RedisStore::on(Servers::at(&server.url()).unwrap());
    let store = store.timeout(Duration::from_secs(10));
    store.scripting(scripting).unwrap()
}

fn take(process: u64, number: u64, count: usize) -> Operation {
    Operation::Take(Take {
        demand: Demand::new((0..count).map(|_| (1, 1))),
        ..take_of(process, number)
    })
}

fn take_of(process: u64, number: u64) -> Take {
    Take {
        process,
        number,
        round_trip: 1_000,
        guard: 10_000,
        horizon: 100_000,
        ..Take::one(Mode::Try, 1)
    }
}

async fn call(store: &RedisStore, key: &str, policy: &Policy, operation: Operation) -> Taken {
    let call = Call::new(&Key::new(key), policy, &operation);
    let answered = store.call(vec![call]).await.unwrap();
    answered.answers.into_iter().next().unwrap().unwrap()
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
    let whole = State::new(policy.counters()).encode();
    let mut connection = server.client().get_connection().unwrap();
    let mut cut = redis::cmd("SET");
    cut.arg("throttle:{key-8}").arg(&whole[..whole.len() - 4]);
    cut.exec(&mut connection).unwrap();
    for (number, expected) in [(1, 2), (2, 1), (3, 0)] {
        let calls = (0..40).map(|nth| {
            let take = take(1, number, 2 - usize::from(nth % 7 == 0));
            Call::new(&Key::new(format!("key-{nth}")), &policy, &take)
        });
        let answers = store.call(calls.collect()).await.unwrap().answers;
        assert_eq!(answers.len(), 40);
        for (nth, answer) in answers.iter().enumerate() {
            match answer {
                answer if matches!(nth, 3 | 5 | 8) => {
                    let error = answer.as_ref().unwrap_err();
                    let name = format!("throttle:{{key-{nth}}}");
                    assert!(!error.is_outage() && format!("{error:?}").contains(&name));
                }
                Err(error) => panic!("{nth}: {error}"),
                Ok(taken) if nth % 7 == 0 => assert_eq!(granted(taken), 1, "{nth}"),
                Ok(taken) => assert_eq!(granted(taken), expected, "{nth}"),
            }
        }
    }
    let calls = CommandStats::of(&server);
    // The first one carries the text of the script.
    assert_eq!((calls.calls("eval"), calls.calls("evalsha")), (1, 2));
}

#[tokio::test]
async fn keys_of_several_slots_are_served_if_the_store_does_not_know_of_slots() {
    let server = support::keyspace::start_cluster().await;
    let store = store(&server, true);
    let (policy, take) = (policy("1/m"), take(1, 1, 1));
    let calls = (0..20).map(|nth| Call::new(&Key::new(format!("key-{nth}")), &policy, &take));
    for answer in store.call(calls.collect()).await.unwrap().answers {
        assert_eq!(granted(&answer.unwrap()), 1);
    }
}

#[tokio::test]
async fn scripts_that_the_server_forgets_are_sent_again() {
    let server = RedisServer::start();
    let store = store(&server, true);
    let mut connection = server.client().get_connection().unwrap();
    let ends = Arc::new(AtomicBool::new(false));
    let has_ended = ends.clone();
    let flushes = std::thread::spawn(move || {
        while !has_ended.load(Ordering::Relaxed) {
            let mut flush = redis::cmd("SCRIPT");
            flush.arg("FLUSH").exec(&mut connection).unwrap();
        }
    });
    let policy = policy("1000/h");
    for number in 1..=300 {
        let taken = call(&store, "key", &policy, take(1, number, 1)).await;
        assert_eq!(granted(&taken), 1);
    }
    ends.store(true, Ordering::Relaxed);
    flushes.join().unwrap();
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
    let first = reading(1, 5_000_000, 1_000, 1_002);
    // The clock of the second server agrees, or is 400 ms ahead or behind.
    for (second, server, now, sent, received) in [
        ((1, 5_003_000), 1, 5_003_000, 1_000, 1_005),
        ((2, 5_403_000), 0, 5_000_000, 599, 1_002),
        ((2, 4_603_000), 0, 5_000_000, 1_000, 1_402),
    ] {
        let second = reading(second.0, second.1, 1_002, 1_005);
        let both = first.and(second);
        assert_eq!((both.origin.server, both.now), (server, now));
        let times = (both.origin.sent, both.origin.received);
        assert_eq!(times, (after(sent), after(received)));
    }
}

/// Calls with this many requests, at these times; returns the state, and the bytes of the largest value.
fn fill(
    (lua, policy): (&mut Lua, &Policy),
    steps: impl Iterator<Item = (u64, u64)>,
    cost: impl Fn(u64) -> Costs,
) -> (State, usize) {
    lua.set(None);
    let (mut now, mut largest) = (1_763_000_000_000_000, 0);
    for (number, (span, count)) in (1..).zip(steps) {
        now += span;
        let requests = (0..count).map(|nth| (now - span + nth, cost(number + nth)));
        let operation = Operation::Take(Take {
            mode: Mode::Wait,
            demand: Demand::new(requests.collect::<Vec<_>>().into_iter()),
            ..take_of(1 + number % 3, number)
        });
        if lua.run(policy, &operation, 0, now).is_none() {
            // The ring has no room.
            let (value, origin) = (lua.value(), Origin::default());
            let applied = apply(policy, &operation, value.as_deref(), origin, now);
            lua.set(applied.unwrap().1.as_deref());
        }
        largest = largest.max(lua.value().unwrap().len());
    }
    (State::decode(&lua.value().unwrap()).unwrap(), largest)
}

#[test]
fn full_logs_take_at_most_10_kilobytes_for_each_unit() {
    let server = RedisServer::start();
    let mut lua = Lua::new(&server, true);
    // Longer limits share entries.
    for (quotas, least, most) in [
        ("1000000/h", 600, 10_500),
        ("1000/h", 600, 12_000),
        ("100000/10s", 600, 10_500),
        ("1000/m + 2000000/m unit=tokens", 1_400, 20_000),
    ] {
        let policy = policy(quotas);
        let window = policy.quotas()[0].window().as_micros() as u64;
        let units = policy.quotas()[0].limit() / 1_500;
        let has_tokens = policy.units().len() > 1;
        let tokens = |nth: u64| u32::from(has_tokens) * (1 + (nth * 977 % 4_000) as u32);
        let cost = |nth: u64| Costs([units.max(1), tokens(nth), 0, 0]);
        let step = |nth| match (has_tokens, nth < 1_000) {
            (false, _) => (window / 1_500, 1),
            (true, true) => (window / 1_000, 1),
            // Once the log is full, requests wait.
            (true, false) => (window / 3_000, 100),
        };
        let (state, largest) = fill((&mut lua, &policy), (0..3_000).map(step), cost);
        let entries = format!("{state:?}").matches("Entry {").count();
        let memory: usize = server.command(&["MEMORY", "USAGE", "key"]);
        println!("{quotas}: {entries} entries, {largest} bytes, {memory} of memory");
        assert!(entries > least && largest <= most, "{quotas}");
        assert!(memory <= most + 600, "{quotas}: {memory} bytes of memory");
    }
}

/// A script leaves keys to another call, as other commands wait. One key it always serves.
#[tokio::test]
async fn keys_of_any_number_of_processes_are_served_in_few_calls() {
    let server = RedisServer::start();
    let store = store(&server, true);
    for (keys, processes, most) in [(1, 3_000, 1), (64, 20, 1), (64, 100, 64)] {
        let policy = policy("10/m");
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.unwrap().as_micros() as u64;
        let waits = |process: u64| {
            Operation::Take(Take {
                mode: Mode::Wait,
                demand: Demand::new([(1, 1); 2].into_iter()),
                ..take_of(process << 11, 7)
            })
        };
        let mut value = None;
        for process in 1..=processes {
            let call = Call::new(&Key::new("key"), &policy, &waits(process));
            let (_, written) = call.apply_strict(value.as_deref(), now, 1, 0).unwrap();
            value = written.map(|(value, _)| value);
        }
        let mut connection = server.client().get_connection().unwrap();
        for nth in 0..keys {
            let mut set = redis::cmd("SET");
            set.arg(format!("throttle:{{key-{nth}}}")).arg(&value);
            set.exec(&mut connection).unwrap();
        }
        let calls = || CommandStats::of(&server).script_calls();
        let before = calls();
        let all = (0..keys).map(|nth| {
            let key = Key::new(format!("key-{nth}"));
            Call::new(&key, &policy, &waits(5_000))
        });
        let answered = store.call(all.collect()).await.unwrap();
        assert!(answered.answers.iter().all(Result::is_ok));
        let made = calls() - before;
        assert!((1..=most).contains(&made), "{keys} {processes}: {made}");
    }
}
