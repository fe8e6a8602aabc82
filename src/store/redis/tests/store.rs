//! The store on a real server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use redis::Pipeline;
use tokio::time::Instant;

use super::*;
use crate::algorithm::{Demand, Mode, State, Take};
use crate::store::Store as _;
use crate::store::redis::servers::{self, AnswerOrigin, Answers, CommandAnswer, Servers, Topology};
use crate::store::redis::{Reading, RedisStore, StoredKey};
use support::command_stats::CommandStats;
use support::errors::until_ok;

fn store(server: &RedisServer) -> RedisStore {
    let store = RedisStore::on(servers::at(&server.url()).unwrap());
    store.timeout(Duration::from_secs(10))
}

fn call(key: impl Into<Key>, quota: &str) -> Call {
    let take = Operation::Take(Take::one(Mode::Try, 1));
    Call::new(&key.into(), &policy(quota), &take)
}

#[tokio::test]
async fn keys_of_several_slots_are_served_if_the_store_does_not_know_of_slots() {
    let server = support::cluster::start_one().await;
    let store = store(&server);
    let calls = (0..20).map(|nth| call(format!("key-{nth}"), "1/m"));
    for answer in store.call(calls.collect()).await.unwrap().answers {
        assert_eq!(answer.unwrap().grants.len(), 1);
    }
}

/// Servers that fail: the function returns the answer to the nth pipeline, or `None` if the servers answer it.
struct Failing {
    servers: Servers,
    pipelines: AtomicUsize,
    fault: Fault,
}

type Fault = Box<dyn Fn(usize, Instant) -> Option<Result<Value, StoreError>> + Send + Sync>;

#[async_trait]
impl Topology for Failing {
    async fn run(&self, name: &str, commands: &Pipeline, deadline: Instant) -> Answers {
        let nth = self.pipelines.fetch_add(1, Ordering::Relaxed);
        let Some(value) = (self.fault)(nth, deadline) else {
            return self.servers.run(name, commands, deadline).await;
        };
        let value = value?;
        let origin = answered(0, Instant::now(), Instant::now());
        Ok(vec![CommandAnswer { value, origin }])
    }
}

fn answered(server: u64, sent: Instant, received: Instant) -> AnswerOrigin {
    AnswerOrigin {
        server,
        sent,
        received,
    }
}

fn failing(server: &RedisServer, fault: Fault) -> RedisStore {
    RedisStore::on(Arc::new(Failing {
        servers: servers::at(&server.url()).unwrap(),
        pipelines: AtomicUsize::new(0),
        fault,
    }))
}

/// Otherwise the limiter would send the corrections of an executed call twice.
#[tokio::test]
async fn a_call_keeps_its_answer_if_others_of_its_batch_have_to_be_repeated_and_fail() {
    let server = RedisServer::start();
    let out = |nth, _| (nth == 2).then(|| Err(StoreError::new("redis cannot be reached")));
    let store = failing(&server, Box::new(out));
    store.call(vec![call("a", "1/m")]).await.unwrap();
    // The server has to be sent this script again, and gets the other one for the first time.
    server.command::<()>(&["SCRIPT", "FLUSH"]);
    let calls = vec![call("b", "2/m"), call("c", "2/m gcra burst=2")];
    let answers = store.call(calls).await.unwrap().answers;
    assert!(answers[0].as_ref().unwrap_err().is_outage());
    assert_eq!(answers[1].as_ref().unwrap().grants.len(), 1);
}

/// The server has answered before, so it is not out. Otherwise the limiter would also send corrections twice.
#[tokio::test]
async fn a_change_without_an_answer_in_time_is_a_conflict_of_unknown_outcome() {
    let server = RedisServer::start();
    let other = store(&server).call(vec![call("a", "9/m gcra burst=2")]);
    other.await.unwrap();
    // A script finds the value of another algorithm, which is then read and written. Another process changes it at first.
    // The script is tried again, and then the value is read and written.
    for late in [3, 5] {
        let fault = move |nth, deadline| match nth {
            2 => Some(Ok(Value::Nil)),
            _ if nth == late => {
                std::thread::sleep(deadline - Instant::now());
                Some(Err(StoreError::new("late").outcome_unknown()))
            }
            _ => None,
        };
        // On a busy machine, the answers before the late one take a while.
        let store = failing(&server, Box::new(fault)).timeout(Duration::from_secs(2));
        let error = store.call(vec![call("a", "9/m")]).await.unwrap_err();
        assert!(error.is_conflict() && error.is_outcome_unknown(), "{late}");
    }
    // The server is not out if other calls of this process take too long.
    let store = store(&server).timeout(Duration::from_secs(2));
    let _turns = join_all(store.turns.iter().map(|turn| turn.lock())).await;
    let error = store.call(vec![call("a", "9/m")]).await.unwrap_err();
    assert!(error.is_conflict() && !error.is_outcome_unknown());
}

/// A limiter drops it then, and the connection would not be replaced.
#[tokio::test]
async fn a_call_ends_after_less_than_five_seconds_however_long_the_timeout() {
    let out = |_, deadline| {
        assert!(deadline < Instant::now() + Duration::from_secs(5));
        Some(Err(StoreError::new("redis cannot be reached")))
    };
    let store = failing(&RedisServer::start(), Box::new(out)).timeout(Duration::MAX);
    assert!(store.ping(&Key::new("a")).await.is_err());
}

/// Otherwise each probe of it would end the outage, and each call begin another.
#[tokio::test]
async fn a_server_that_refuses_writes_fails_a_ping() {
    let server = RedisServer::start();
    let (store, key) = (store(&server), Key::new("a"));
    for setting in ["maxmemory", "min-replicas-to-write"] {
        store.ping(&key).await.unwrap();
        server.command::<()>(&["CONFIG", "SET", setting, "1"]);
        assert!(store.ping(&key).await.unwrap_err().is_outage(), "{setting}");
        server.command::<()>(&["CONFIG", "SET", setting, "0"]);
    }
    store.ping(&key).await.unwrap();
    store.call(Vec::new()).await.unwrap();
    assert_eq!(server.command::<u64>(&["DBSIZE"]), 0);
}

/// Its answers on the shared connection would end the outage at once, too.
#[tokio::test]
async fn a_server_that_refuses_a_connection_for_a_transaction_fails_a_ping() {
    let server = RedisServer::start();
    let (store, key) = (store(&server), Key::new("a"));
    store.ping(&key).await.unwrap();
    let mut other = server.client().get_connection().unwrap();
    let mut let_in = |most: u64| {
        let mut config = redis::cmd("CONFIG");
        let set = config.arg("SET").arg("maxclients").arg(most);
        set.exec(&mut other).unwrap();
    };
    // The shared connection, and this one.
    let_in(2);
    let plain = store.clone().scripting(false).unwrap();
    let error = plain.ping(&key).await.unwrap_err();
    assert!(error.is_outage(), "{error:?}");
    store.ping(&key).await.unwrap();
    let_in(100);
    plain.ping(&key).await.unwrap();
    let answered = plain.call(vec![call("a", "1/m")]).await.unwrap();
    assert_eq!(answered.answers[0].as_ref().unwrap().granted(), 1);
}

/// Otherwise strict recovery would take it for another server for as long as the new connection lasts.
#[tokio::test]
async fn a_server_that_is_busy_is_out_and_keeps_its_number() {
    let server = RedisServer::start_with(&["--lua-time-limit", "10"]);
    let [known, new] = [(); 2].map(|()| store(&server).server_time(false));
    let key = Key::new("a");
    let number = known.ping(&key).await.unwrap().server;
    let mut busy = server.client().get_connection().unwrap();
    let mut script = redis::cmd("EVAL");
    let script = script.arg("while true do end").arg(0).get_packed_command();
    busy.send_packed_command(&script).unwrap();
    for store in [&known, &new] {
        assert!(store.ping(&key).await.unwrap_err().is_outage());
    }
    server.command::<()>(&["SCRIPT", "KILL"]);
    let answered = until_ok(async || new.ping(&key).await).await;
    assert_eq!(answered.server, number);
}

#[cfg(feature = "redis-cluster")]
#[tokio::test]
async fn a_transaction_whose_slot_moves_after_the_value_was_read_is_a_conflict() {
    let cluster = support::cluster::Cluster::start_with(0);
    let store = RedisStore::connect_cluster(cluster.urls()).await.unwrap();
    let [key, other, _] = cluster.keys_of_each();
    let [from, to] = [&key, &other].map(|it| &cluster.servers[cluster.primary_of(it)]);
    let slot = to.command::<u16>(&["CLUSTER", "KEYSLOT", &key]).to_string();
    let [id, old] = [to, from].map(|it| it.command::<String>(&["CLUSTER", "MYID"]));
    to.command::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &old]);
    from.command::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id]);
    let deadline = Instant::now() + Duration::from_secs(9);
    let exclusive = servers::exclusive(&store.servers, &key, deadline);
    let mut write = redis::pipe();
    write.atomic().set(&key, 1);
    let result = exclusive.await.unwrap().run(&key, &write, deadline).await;
    assert!(result.is_err_and(|error| error.is_conflict() && !error.is_outcome_unknown()));
}

#[test]
fn answers_of_two_servers_teach_no_clock() {
    let start = Instant::now();
    let after = |millis| start + Duration::from_millis(millis);
    let reading = |server, now, sent, received| Reading {
        now,
        origin: answered(server, after(sent), after(received)),
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

/// Without `MULTI`, the commands of a transaction would be executed one by one.
#[tokio::test]
async fn a_user_without_the_right_to_transactions_writes_nothing() {
    let server = RedisServer::start();
    let url = server.user(&["~*", "+@all"]);
    let used = RedisStore::connect(&url).await.unwrap();
    let used = used.scripting(false).unwrap();
    used.call(vec![call("other", "1/m")]).await.unwrap();
    server.command::<()>(&["ACL", "SETUSER", "user", "-multi"]);
    let new = RedisStore::connect(&url).await.unwrap();
    for store in [used, new.scripting(false).unwrap()] {
        let answered = store.call(vec![call("a", "1/m")]).await.unwrap();
        let error = answered.answers[0].as_ref().unwrap_err();
        assert!(!error.is_outage() && !error.is_outcome_unknown());
        assert!(!server.command::<bool>(&["EXISTS", "throttle:{a}"]));
    }
}

/// A script leaves keys to another call, as other commands wait. One key it always serves.
#[tokio::test]
async fn keys_of_any_number_of_processes_are_served_in_few_calls() {
    let server = RedisServer::start();
    let store = store(&server);
    for (keys, processes, most) in [(1, 4_000, 1), (64, 20, 1), (64, 100, 64)] {
        let policy = policy("10/m");
        let waits = |process: u64| Take {
            demand: Demand::new([(1, 1); 2].into_iter()),
            process: process << 11,
            number: 7,
            horizon: 100_000,
            ..Take::one(Mode::Wait, 1)
        };
        // The sixth waits, and all behind it are like it.
        let mut state = State::new(&policy.counters);
        for process in 1..=6 {
            let now = support::child::now().as_micros() as u64;
            state.take(0, &waits(process), now);
        }
        for process in 7..=processes {
            let mut last = state.announced[5].clone();
            last.process = process << 11;
            state.announced.push(last);
        }
        let value = state.encode();
        let mut connection = server.client().get_connection().unwrap();
        for nth in 0..keys {
            let mut set = redis::cmd("SET");
            let set = set.arg(format!("throttle:{{key-{nth}}}")).arg(&value);
            set.exec(&mut connection).unwrap();
        }
        let calls = || CommandStats::of(&server).script_calls();
        let before = calls();
        let all = (0..keys).map(|nth| {
            let key = Key::new(format!("key-{nth}"));
            Call::new(&key, &policy, &Operation::Take(waits(5_000)))
        });
        let answered = store.call(all.collect()).await.unwrap();
        assert!(answered.answers.iter().all(Result::is_ok));
        let made = calls() - before;
        assert!((1..=most).contains(&made), "{keys} {processes}: {made}");
        let stored = StoredKey::new(&Key::new("key-0"), None);
        assert!(matches!(store.look(&[stored]).await[..], [Ok(Some(_))]));
    }
}
