//! What several keys ask of one store at once goes to Redis in few calls: each gets its own answer, and
//! what is wrong with one of them, or with who carries the call, is no matter of the others.

mod support;

use std::time::Duration;

use futures_util::future::join_all;
use futures_util::poll;
use support::command_stats::CommandStats;
use support::keyspace;
use support::redis_server::RedisServer;
use support::slots::slots;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};
use tower_throttle::key::Key;
use tower_throttle::store::{RedisStore, Reserve, Slot, Store};
use tower_throttle::test_util::history::History;
use tower_throttle::{Decision, Limiter, LimiterBuilder, Quota};

/// So long that what is done in one test falls into one window.
const LONG: Duration = Duration::from_secs(600);

/// Far less than that, and more than a busy machine needs.
const PATIENCE: Duration = Duration::from_secs(60);

async fn connect(server: &RedisServer) -> RedisStore {
    let store = RedisStore::connect(&server.url()).await;
    // A busy machine answers late; what happens then is another test's matter.
    store
        .expect("a connection")
        .timeout(Duration::from_secs(30))
}

fn quota(limit: u32) -> LimiterBuilder {
    Limiter::builder().quota(Quota::new(limit, LONG))
}

fn limiter(store: &RedisStore, limit: u32) -> Limiter {
    // However late a busy machine wakes, no permit expires.
    let builder = quota(limit).guard(LONG / 60).store(store.clone());
    builder.build().expect("a valid policy")
}

#[tokio::test]
async fn a_key_that_asks_several_times_in_one_call_gets_no_slot_twice() {
    let server = RedisServer::start();
    let store = connect(&server).await;
    for limit in [1, 3, 10, 16, 17, 100] {
        let policy = quota(limit).build().expect("a valid policy").policy();
        let key = Key::from(format!("key {limit}"));
        let requests = (0..limit * 2).map(|_| slots(&store, &key, &policy, 1));
        let taken = join_all(requests).await.concat();
        let first = taken.iter().map(|slot: &Slot| slot.at).min();
        let end = first.expect("slots") + LONG.as_micros() as u64;
        let departing = taken.iter().filter(|slot| slot.at < end).count();
        assert_eq!(departing, limit as usize, "{taken:?}");
    }
}

#[tokio::test]
async fn limiters_that_share_a_store_share_their_quotas() {
    let server = RedisServer::start();
    let store = connect(&server).await;
    for limit in [1, 3, 16] {
        let limiters: Vec<_> = (0..50).map(|_| limiter(&store, limit)).collect();
        let decisions = limiters.iter().map(|limiter| limiter.try_acquire("a"));
        let decisions = join_all(decisions).await;
        let is_granted = |decision: &_| matches!(decision, Ok(Decision::Granted(_)));
        let granted = decisions.iter().filter(|it| is_granted(it)).count();
        assert_eq!(granted, limit as usize, "{decisions:?}");
    }
}

#[tokio::test]
async fn many_keys_that_ask_at_once_share_calls() {
    let server = RedisServer::start();
    let limiter = limiter(&connect(&server).await, 10);
    limiter.acquire("the script").await.expect("a permit");
    let before = CommandStats::of(&server);
    let permits = (0..500).map(|number| limiter.acquire(format!("key {number}")));
    for permit in join_all(permits).await {
        permit.expect("a permit");
    }
    let calls = CommandStats::of(&server).since(&before).script_calls();
    assert!((1..20).contains(&calls), "{calls}");
}

/// Lets those that are about to ask do so, and the calls go out.
async fn settle() {
    for _ in 0..20 {
        yield_now().await;
    }
}

#[tokio::test]
async fn who_leaves_while_its_key_gathers_loses_no_slot_and_disturbs_nobody() {
    const ROUNDS: usize = 3;
    let server = RedisServer::start();
    let limiter = limiter(&connect(&server).await, 1);
    let keys: Vec<_> = (0..ROUNDS * 30).map(|it| format!("key {it}")).collect();
    let is_spent = |number: usize| number % 3 == 1;
    let leaves = |number: usize| number % 3 == 2;
    for number in (0..keys.len()).filter(|&it| is_spent(it)) {
        let permit = limiter.acquire(&*keys[number]).await;
        permit.expect("a permit");
    }
    server.sigstop();
    // Some are under way, some wait until those are back.
    let mut asking = Vec::new();
    for keys in keys.chunks(keys.len() / ROUNDS) {
        for key in keys {
            let mut decision = Box::pin(limiter.try_acquire(&**key));
            assert!(poll!(&mut decision).is_pending());
            asking.push(decision);
        }
        settle().await;
    }
    let staying: Vec<_> = asking
        .into_iter()
        .enumerate()
        .filter(|&(number, _)| !leaves(number))
        .collect();
    settle().await;
    server.sigcont();
    for (number, decision) in staying {
        let decision = timeout(PATIENCE, decision).await.expect("in time");
        let is_granted = decision.expect("a decision").is_granted();
        assert_eq!(is_granted, !is_spent(number), "{number}");
    }
    for number in (0..keys.len()).filter(|&it| leaves(it)) {
        let permit = timeout(PATIENCE, limiter.acquire(&*keys[number])).await;
        permit.expect("its slot is free").expect("a permit");
        let decision = limiter.try_acquire(&*keys[number]).await;
        assert!(!decision.expect("a decision").is_granted(), "{number}");
    }
    let closed = async {
        while limiter.lines() > 0 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, closed).await.expect("no line is left");
}

#[tokio::test]
async fn who_leaves_before_its_call_is_sent_is_not_asked_for() {
    let server = RedisServer::start();
    let store = connect(&server).await;
    let policy = quota(1).build().expect("a valid policy").policy();
    let ask = |key: String| {
        let key = Key::from(key);
        store.reserve(&Reserve::new(&key, &policy))
    };
    ask("the script".into()).await.expect("an answer");
    server.sigstop();
    let mut asking = Vec::new();
    for round in 0..3 {
        for number in 0..30 {
            let mut reply = ask(format!("{round}-{number}"));
            assert!(poll!(&mut reply).is_pending());
            asking.push(reply);
        }
        settle().await;
    }
    // Of those that were asked last, every other leaves.
    let mut number = 0;
    asking.retain(|_| {
        number += 1;
        number <= 60 || number % 2 == 0
    });
    server.sigcont();
    for answer in join_all(asking).await {
        let answer = answer.expect("an answer");
        assert_eq!(answer.remaining(), 0);
    }
    let names = keyspace::names(&server);
    assert_eq!(names.len(), 1 + 60 + 15, "{names:?}");
}

/// Departs when it may, and says when that was.
async fn depart(limiter: &Limiter, key: &str, start: Instant) -> Duration {
    loop {
        let permit = limiter.acquire(key).await.expect("a permit");
        let departed = start.elapsed();
        // If not, whatever held this up lies before the clock was read, or after.
        if permit.is_valid() {
            return departed;
        }
        permit.forfeit();
    }
}

#[tokio::test]
async fn what_gathers_while_the_server_hangs_is_answered_and_keeps_the_limit() {
    const LIMIT: u32 = 4;
    const WINDOW: Duration = Duration::from_millis(500);
    let server = RedisServer::start();
    let store = connect(&server).await;
    // Two that do not know of each other, so that a call asks for a key twice.
    let limiters = [0; 2].map(|_| {
        let builder = Limiter::builder().quota(Quota::new(LIMIT, WINDOW));
        let builder = builder.guard(WINDOW / 10).store(store.clone());
        builder.build().expect("a valid policy")
    });
    let start = Instant::now();
    let departures_of = async |key: String| {
        let requests = (0..6).flat_map(|_| &limiters);
        join_all(requests.map(|limiter| depart(limiter, &key, start))).await
    };
    let all = join_all((0..20).map(|number| departures_of(format!("key {number}"))));
    let hanging = async {
        for _ in 0..3 {
            server.sigstop();
            sleep(WINDOW / 2).await;
            server.sigcont();
            sleep(WINDOW / 2).await;
        }
    };
    let ((), all) = timeout(PATIENCE, async { tokio::join!(hanging, all) })
        .await
        .expect("an answer to all");
    for departures in all {
        assert_eq!(departures.len(), 12);
        let history: History = departures.into_iter().collect();
        history.assert_at_most(LIMIT.into(), WINDOW);
    }
}
