//! The schemes of the field, one test each: what each of them promises, without its known faults,
//! against a real Redis.
//!
//! Redis runs on this host, so the time at which a request departs, by the system's clock, is on the
//! store's clock.

mod support;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt as _};
use support::child;
use support::command_stats::CommandStats;
use support::keyspace::{assert_all_expire, names, start_cluster, wait_until_empty};
use support::monitor::Monitor;
use support::redis_server::RedisServer;
use tokio::time::sleep;
use tower_throttle::key::{self, Extracted, Key, KeyExtractor as _};
use tower_throttle::store::{Ask, Outcome, RedisStore, Release, Reserve, Reserved, Slot, Store};
use tower_throttle::test_util::history::History;
use tower_throttle::{Algorithm, Decision, Limiter, LimiterBuilder, Policy, Quota, WindowStart};

/// What a machine may need that does many other things; nothing here waits so long.
const PATIENCE: Duration = Duration::from_secs(20);

/// So long that what is done in one test falls into one window.
const LONG: Duration = Duration::from_secs(600);

const SECOND: Duration = Duration::from_secs(1);

const MS: fn(u64) -> Duration = Duration::from_millis;

async fn store(server: &RedisServer) -> RedisStore {
    let store = RedisStore::connect(&server.url()).await;
    store.expect("a connection").timeout(PATIENCE)
}

async fn limiter(server: &RedisServer, builder: LimiterBuilder) -> Limiter {
    let builder = builder.store(store(server).await);
    builder.build().expect("a valid policy")
}

fn quota(limit: u32, window: Duration, algorithm: Algorithm) -> LimiterBuilder {
    Limiter::builder().quota(Quota::new(limit, window).algorithm(algorithm))
}

fn policy(builder: LimiterBuilder) -> Arc<Policy> {
    builder.build().expect("a valid policy").policy()
}

fn since_epoch() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("a sensible clock")
}

/// Departs once, and says when: at a moment at which the permit was valid.
async fn depart(limiter: &Limiter, key: &str) -> Duration {
    loop {
        let permit = limiter.acquire(key).await.expect("a permit");
        let at = since_epoch();
        if permit.is_valid() {
            return at;
        }
        permit.forfeit();
    }
}

async fn reserve(store: &RedisStore, key: &Key, policy: &Policy, asks: &[Ask]) -> Reserved {
    let mut reserve = Reserve::new(key, policy);
    reserve.asks = asks;
    store.reserve(&reserve).await.expect("an answer")
}

async fn slots(store: &RedisStore, key: &Key, policy: &Policy, count: u32) -> Vec<Slot> {
    granted(&reserve(store, key, policy, &[ask(count, u64::MAX)]).await)
}

fn ask(count: u32, max_wait: u64) -> Ask {
    Ask {
        count,
        cost: 1,
        max_wait,
    }
}

fn granted(answer: &Reserved) -> Vec<Slot> {
    let outcomes = answer.outcomes().iter();
    let slot = |outcome: &Outcome| match outcome {
        Outcome::Granted(slot) => Some(slot.clone()),
        Outcome::Refused { .. } => None,
    };
    outcomes.filter_map(slot).collect()
}

fn waits(answer: &Reserved) -> Vec<u64> {
    let outcomes = answer.outcomes().iter();
    let wait = |outcome: &Outcome| match outcome {
        Outcome::Granted(_) => None,
        Outcome::Refused { wait } => Some(*wait),
    };
    outcomes.filter_map(wait).collect()
}

/// Departures at the slots; at the ends of their guards; and at the one or the other, by turns.
fn histories(slots: &[Slot]) -> [History; 3] {
    let history = |at: fn(usize, &Slot) -> u64| {
        let times = slots.iter().enumerate();
        times
            .map(|(place, slot)| Duration::from_micros(at(place, slot)))
            .collect()
    };
    [
        history(|_, slot| slot.at),
        history(|_, slot| slot.record),
        history(|place, slot| [slot.at, slot.record][place % 2]),
    ]
}

/// The simple way serves one request at a time; here any number waits, and each is told its time.
#[tokio::test]
async fn spacing_serves_any_number_of_waiters_one_interval_apart() {
    let server = RedisServer::start();
    let builder = quota(50, SECOND, Algorithm::Spacing);
    let replicas = [
        limiter(&server, builder.clone()).await,
        limiter(&server, builder).await,
    ];
    let waiters = replicas
        .iter()
        .flat_map(|it| (0..30).map(move |_| depart(it, "a")));
    let departed: History = join_all(waiters).await.into_iter().collect();
    assert_eq!(departed.len(), 60);
    departed.assert_at_most(1, SECOND / 50);
}

/// Elsewhere the first request sets the counter and then its expiry; who dies in between leaves a
/// key that never goes, and who reads in between lets too many through.
#[tokio::test]
async fn a_window_from_the_first_request_holds_its_limit_and_always_expires() {
    let server = RedisServer::start();
    let (limit, window) = (5, MS(100));
    let start = WindowStart::FirstRequest;
    let policy = policy(quota(limit, window, Algorithm::FixedWindow { start }));
    let key = Key::from("a");
    let (one, other) = (store(&server).await, store(&server).await);
    let calls =
        (0..40).map(|call| slots([&one, &other][call % 2], &key, &policy, 1 + call as u32 % 3));
    let mut slots = join_all(calls).await.concat();
    slots.sort_by_key(|slot| slot.at);
    assert_eq!(slots.len(), 79);
    let (mut end, mut count) = (0, 0);
    for slot in &slots {
        if slot.at >= end {
            (end, count) = (slot.at + window.as_micros() as u64, 0);
        }
        count += 1;
        assert!(count <= limit && slot.record < end, "{slot:?} of {slots:?}");
    }

    wait_until_empty(&server).await;
    for _ in 0..3 {
        let spender = child::spawn("spends_without_end", &server.url(), &[]);
        for _ in 0..3 {
            spender.next_line(PATIENCE);
        }
        spender.kill9();
        assert_all_expire(&server);
    }
    assert!(names(&server).len() >= 300);
}

#[tokio::test]
#[ignore = "started by another test as a process of its own"]
async fn spends_without_end() {
    let Some(url) = child::role() else { return };
    let start = WindowStart::FirstRequest;
    let builder = quota(1, LONG, Algorithm::FixedWindow { start });
    let store = RedisStore::connect(&url).await.expect("a connection");
    let limiter = builder.store(store).build().expect("a valid policy");
    for round in 0.. {
        let all = (0..100).map(|key| limiter.try_acquire(format!("{round}-{key}")));
        join_all(all).await;
        child::say(round);
    }
}

/// Elsewhere each user has a key per minute, or three that take turns.
#[tokio::test]
async fn windows_of_the_clock_take_one_key_per_user() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let (limit, window) = (3, MS(100));
    let start = WindowStart::Clock;
    let policy = policy(quota(limit, window, Algorithm::FixedWindow { start }));
    let users = ["alice", "bob", "carol"];
    let mut handed_out = vec![Vec::new(); users.len()];
    for _ in 0..8 {
        for (user, all) in users.iter().zip(&mut handed_out) {
            all.extend(slots(&store, &Key::from(*user), &policy, 4).await);
        }
        let names = names(&server);
        for user in users {
            let of_user = names
                .iter()
                .filter(|name| name.contains(&format!("{{{user}}}")));
            assert!(of_user.count() <= 1, "{names:?}");
        }
        assert_all_expire(&server);
        sleep(window / 3).await;
    }
    for slots in handed_out {
        assert_eq!(slots.len(), 32);
        for history in histories(&slots) {
            assert!(history.most_in_aligned(window) <= limit.into(), "{slots:?}");
        }
    }
    wait_until_empty(&server).await;
}

/// Elsewhere an entry is named by its time, so that those of one microsecond are one; or the refused
/// are entered too, and keep the next ones out.
#[tokio::test]
async fn a_log_counts_all_of_one_microsecond_and_never_a_refused_one() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let (limit, key) = (100, Key::from("a"));
    let policy = policy(quota(limit, LONG, Algorithm::SlidingLog));
    // One answer has one time.
    let answer = reserve(&store, &key, &policy, &[ask(limit + 50, 0)]).await;
    let slots = granted(&answer);
    assert_eq!(slots.len(), limit as usize);
    assert!(slots.iter().all(|slot| slot.at == answer.now()));
    let promised = answer.now() + waits(&answer)[0];

    let state = || {
        let names = names(&server);
        let name = names.first().expect("one");
        (
            names.len(),
            server.command::<Vec<u8>>(&["GETRANGE", name, "0", "-1"]),
        )
    };
    let before = state();
    let refused = (0..200).map(|_| reserve(&store, &key, &policy, std::slice::from_ref(&AT_ONCE)));
    for answer in join_all(refused).await {
        assert_eq!((answer.remaining(), granted(&answer).len()), (0, 0));
        assert_eq!(answer.now() + waits(&answer)[0], promised);
    }
    assert_eq!(state(), before);
}

const AT_ONCE: Ask = Ask {
    count: 1,
    cost: 1,
    max_wait: 0,
};

/// The usual way without scripts adds itself, counts, and removes itself again: callers get into each
/// other's way, and all of them wake at the same moment to try once more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_scripts_the_limit_holds_and_who_waits_sends_nothing() {
    let server = RedisServer::start();
    let user = ["ACL", "SETUSER", "plain", "on", ">secret", "~*"];
    server.command::<()>(&[&user[..], &["+@all", "-@scripting"]].concat());
    let url = format!("redis://plain:secret@127.0.0.1:{}/", server.port());
    let mut departures = Vec::new();
    for _ in 0..3 {
        let store = RedisStore::connect(&url).await.expect("a connection");
        let store = store.timeout(PATIENCE).scripting(false);
        let builder = quota(10, MS(300), Algorithm::SlidingLog);
        let builder = builder.store(store.expect("a store that connected"));
        let limiter = builder.build().expect("a valid policy");
        departures.extend((0..20).map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { depart(&limiter, "a").await })
        }));
    }
    let departures = join_all(departures).await.into_iter();
    let history: History = departures.map(|at| at.expect("no panic")).collect();
    assert_eq!(history.len(), 60);
    history.assert_at_most(10, MS(300));
    let info = server.command::<String>(&["INFO", "commandstats"]);
    let attempts = info
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_watch:calls="));
    let attempts = attempts.and_then(|line| line.split(',').next()?.parse().ok());
    assert!(
        attempts.is_some_and(|attempts: usize| attempts < 60),
        "{attempts:?}"
    );
}

/// Elsewhere a field per tick, all of which are read, and the oldest counts in part.
#[tokio::test]
async fn buckets_hold_any_limit_in_a_bounded_number_of_counts() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let (limit, window, buckets) = (5_000, MS(400), 10);
    let policy = policy(quota(limit, window, Algorithm::SlidingBuckets { buckets }));
    let key = Key::from("a");
    let mut all = Vec::new();
    for _ in 0..60 {
        let answer = reserve(&store, &key, &policy, &[ask(300, 100_000)]).await;
        all.extend(granted(&answer));
        for name in names(&server) {
            // Those of the last window and of what is to come, and each a few bytes.
            let bound = 2 * u64::from(buckets) * 8;
            let length = server.command::<u64>(&["STRLEN", &name]);
            assert!(length <= bound, "{length} bytes, where {bound} would do");
        }
        sleep(window / 50).await;
    }
    assert!(all.len() > limit as usize, "{}", all.len());
    for history in histories(&all) {
        history.assert_at_most(limit.into(), window);
    }
}

/// Elsewhere in whole seconds, so that more requests than seconds are counted wrong; under a lock per
/// call, and who does not get it is refused.
#[tokio::test]
async fn gcra_is_exact_to_the_microsecond_and_takes_no_lock() {
    let server = RedisServer::start();
    let stores = [
        store(&server).await,
        store(&server).await,
        store(&server).await,
    ];
    slots(
        &stores[0],
        &Key::from("warm-up"),
        &policy(gcra(1, SECOND)),
        1,
    )
    .await;
    for (limit, window) in [(300, SECOND * 2), (1_000, SECOND), (7, MS(30)), (2, SECOND)] {
        let (key, policy) = (Key::from("a"), policy(gcra(limit, window)));
        let monitor = Monitor::start(&server);
        let calls = (0..50).map(|call| slots(&stores[call % 3], &key, &policy, 10));
        let mut slots = join_all(calls).await.concat();
        let seen = monitor.finish(&server);
        assert_eq!((seen.client_commands(), seen.calls("evalsha")), (50, 50));

        slots.sort_by_key(|slot| slot.at);
        assert_eq!(slots.len(), 500);
        let interval = (window.as_micros() as u64).div_ceil(limit.into());
        for (place, first) in slots.iter().enumerate() {
            for (count, last) in (1..).zip(&slots[place..]) {
                let span = last.at.saturating_sub(first.record);
                assert!(
                    count <= u64::from(BURST) + span / interval,
                    "{first:?}, {last:?}"
                );
            }
        }
        // From the burst on, they come no later than that either, but for the drift of clocks.
        let (first, last) = (&slots[100], &slots[499]);
        let even = 399 * interval;
        let span = last.at - first.at;
        assert!(
            (even..=even + even / 1_000 + 100).contains(&span),
            "{span} for {even}"
        );
    }
}

const BURST: u32 = 5;

fn gcra(limit: u32, window: Duration) -> LimiterBuilder {
    // The full rate needs a burst that is worth the guard.
    quota(limit, window, Algorithm::Gcra { burst: BURST }).guard(MS(1))
}

/// Elsewhere a queue, and a process that empties it.
#[tokio::test]
async fn a_leaky_bucket_refuses_when_it_is_full_and_leaks_by_itself() {
    let server = RedisServer::start();
    let capacity = 5;
    let builder = quota(4, LONG, Algorithm::LeakyBucket { capacity }).guard(PATIENCE);
    let here = limiter(&server, builder.clone()).await;
    let there = limiter(&server, builder).await;
    depart(&here, "a").await;
    let mut waiting: Vec<_> = (0..capacity).map(|_| Box::pin(here.acquire("a"))).collect();
    for waiter in &mut waiting {
        assert!(futures_util::poll!(waiter).is_pending());
    }
    for limiter in [&here, &there] {
        let error = limiter.acquire("a").await.expect_err("it is full");
        assert!(
            error.is_limited() && error.wait() > Some(LONG / 4 * capacity),
            "{error}"
        );
    }
    drop(waiting);

    let algorithm = Algorithm::LeakyBucket { capacity: 2 };
    let (key, policy) = (Key::from("b"), policy(quota(10, SECOND, algorithm)));
    let one = store(&server).await;
    let answer = reserve(&one, &key, &policy, &[ask(7, u64::MAX)]).await;
    assert_eq!(granted(&answer).len(), 3);
    let empty = *waits(&answer).last().expect("four are refused");
    drop(one);
    let before = CommandStats::of(&server);
    sleep(Duration::from_micros(empty)).await;
    assert_eq!(CommandStats::of(&server).since(&before).script_calls(), 0);
    let answer = reserve(&store(&server).await, &key, &policy, &[ask(7, u64::MAX)]).await;
    let slots = granted(&answer);
    assert_eq!((slots.len(), slots[0].at), (3, answer.now()));
}

/// Elsewhere who is refused is told whole seconds, or nothing.
#[tokio::test]
async fn waits_or_refuses_as_the_caller_chooses_with_the_exact_delay() {
    let server = RedisServer::start();
    let builder = quota(1, SECOND / 2, Algorithm::SlidingLog).guard(MS(800));
    let limiter = limiter(&server, builder).await;
    let first = depart(&limiter, "a").await;
    // Each refusal says when the next may depart, as closely as the call's duration tells.
    let (mut earliest, mut latest) = (first + SECOND / 2, Duration::MAX);
    for _ in 0..20 {
        let sent = since_epoch();
        let Decision::Limited(limited) = limiter.try_acquire("a").await.expect("a decision") else {
            assert!(since_epoch() + CLOCK >= earliest, "granted too early");
            break;
        };
        let received = since_epoch();
        earliest = earliest.max(sent + limited.delay());
        latest = latest.min(received + limited.delay());
        assert!(earliest <= latest + CLOCK, "{earliest:?} to {latest:?}");
    }
    let impatient = limiter.acquire("a").max_wait(MS(1));
    let early = since_epoch() + MS(1) < earliest;
    match impatient.await {
        Err(error) => assert!(error.is_limited() && error.wait() > Some(MS(1)), "{error}"),
        Ok(_) => assert!(!early, "granted too early"),
    }
    let departed = depart(&limiter, "a").await;
    assert!(
        departed + CLOCK >= earliest,
        "{departed:?}, promised {earliest:?}"
    );
}

/// As closely as a system's clock, which may be slewed, keeps to the time that passes.
const CLOCK: Duration = Duration::from_millis(1);

/// Elsewhere the processes share by convention; here also what they leave behind.
#[test]
fn three_processes_share_one_quota_under_one_prefix_and_leave_nothing() {
    let server = RedisServer::start();
    let url = server.url();
    let monitor = Monitor::start(&server);
    let mut replicas = [(); 3].map(|()| child::spawn("replica", &url, &[]));
    replicas.iter_mut().for_each(|replica| replica.tell("go"));
    let departed = replicas.map(|replica| replica.finish(PATIENCE)).concat();
    let micros = departed.iter().map(|at| at.parse().expect("a number"));
    let history: History = micros.map(Duration::from_micros).collect();
    assert_eq!(history.len(), 90);
    history.assert_at_most(20, MS(300));

    let seen = monitor.finish(&server);
    let calls = seen.commands.iter().filter(|sent| sent.name == "evalsha");
    let mut senders = BTreeSet::new();
    for call in calls {
        assert!(call.text.contains("\"fleet:{a}:"), "{}", call.text);
        senders.extend((call.sender != "lua").then_some(&call.sender));
    }
    assert_eq!(senders.len(), 3);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(wait_until_empty(&server));
}

#[tokio::test]
#[ignore = "started by another test as a process of its own"]
async fn replica() {
    let Some(url) = child::role() else { return };
    let store = RedisStore::connect(&url).await.expect("a connection");
    let store = store
        .prefix("fleet")
        .expect("a valid prefix")
        .timeout(PATIENCE);
    let builder = quota(20, MS(300), Algorithm::SlidingLog).store(store);
    let limiter = builder.build().expect("a valid policy");
    assert_eq!(child::hear(), "go");
    for at in join_all((0..30).map(|_| depart(&limiter, "a"))).await {
        child::say(at.as_micros());
    }
}

/// By the user's name where there is one; all others share one quota, and nobody gets at it by its
/// name.
#[tokio::test]
async fn what_remains_is_told_and_those_without_a_name_share_one_key() {
    let server = RedisServer::start();
    let builder = quota(3, LONG, Algorithm::SlidingLog).guard(PATIENCE);
    let limiter = limiter(&server, builder).await;
    let user = key::header("x-user").or("anonymous");
    let ask = async |name: Option<&str>| {
        let request = http::Request::get("/");
        let request = match name {
            Some(name) => request.header("x-user", name),
            None => request,
        };
        let request = request.body(()).expect("a valid request");
        let Extracted::Key(key) = user.extract(&request) else {
            panic!("every request has a key");
        };
        match limiter.try_acquire(key).await.expect("a decision") {
            Decision::Granted(permit) => Some((permit.remaining(), permit.reset())),
            Decision::Limited(limited) => {
                assert!(limited.remaining() == 0 && limited.delay() <= limited.reset());
                None
            }
        }
    };
    for name in [None, Some("alice"), Some("anonymous")] {
        for expected in [2, 1, 0] {
            let (remaining, reset) = ask(name).await.expect("it remains");
            assert_eq!(remaining, expected);
            assert!(reset > LONG / 2 && reset < LONG + PATIENCE * 2, "{reset:?}");
        }
    }
    for name in [None, Some("alice"), Some("anonymous"), None] {
        assert_eq!(ask(name).await, None);
    }
}

/// Elsewhere the request passes and the log has a line more.
#[tokio::test]
async fn an_outage_is_an_error_and_never_a_pass() {
    let mut server = RedisServer::start();
    let store = store(&server).await;
    let limiter = |timeout| {
        let builder = quota(1_000_000, LONG, Algorithm::SlidingLog);
        let builder = builder.store(store.clone().timeout(timeout));
        builder.build().expect("a valid policy")
    };
    let (patient, hasty) = (limiter(PATIENCE), limiter(SECOND / 10));
    let called = Mutex::new(0);
    let call = async || *called.lock().expect("no panic") += 1;
    patient.run("a", call).await.expect("a call");

    server.sigstop();
    let (acquired, tried) = (hasty.acquire("a").await, hasty.try_acquire("a").await);
    assert!(acquired.is_err_and(|error| error.is_store()));
    assert!(tried.is_err_and(|error| error.is_store()));
    let run = hasty.run("a", call).await;
    assert!(run.is_err_and(|error| error.is_store()));
    server.kill9();
    let (acquired, tried) = (patient.acquire("a").await, patient.try_acquire("a").await);
    assert!(acquired.is_err_and(|error| error.is_store()));
    assert!(tried.is_err_and(|error| error.is_store()));
    let run = patient.run("a", call).await;
    assert!(run.is_err_and(|error| error.is_store()));
    assert_eq!(*called.lock().expect("no panic"), 1);

    server.restart();
    let deadline = since_epoch() + PATIENCE;
    while let Err(error) = patient.run("a", call).await {
        assert!(error.is_store() && since_epoch() < deadline, "{error}");
        sleep(MS(10)).await;
    }
    assert_eq!(*called.lock().expect("no panic"), 2);
}

/// One by one and all at once, none is taken for another, and none is lost.
#[tokio::test]
async fn many_keys_are_all_counted_right() {
    const KEYS: usize = 20_000;
    let server = RedisServer::start();
    let store = store(&server).await;
    let policy = policy(quota(2, LONG, Algorithm::SlidingLog));
    let before = used_memory(&server);
    for (count, expected) in [(1, 1), (2, 1)] {
        let call = async |number: usize| {
            let key = Key::from(format!("user-{number}"));
            let answer = reserve(&store, &key, &policy, &[ask(count, 0)]).await;
            granted(&answer).len()
        };
        let granted = stream::iter(0..KEYS).map(call).buffer_unordered(500);
        let wrong = granted.filter(|&granted| async move { granted != expected });
        assert_eq!(wrong.count().await, 0);
    }
    assert_eq!(server.command::<usize>(&["DBSIZE"]), KEYS);
    let each = used_memory(&server).saturating_sub(before) / KEYS as u64;
    assert!(each < 300, "{each} bytes for each key");
    assert_all_expire(&server);
}

fn used_memory(server: &RedisServer) -> u64 {
    let info: String = server.command(&["INFO", "memory"]);
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:"));
    line.expect("a line").trim().parse().expect("a number")
}

/// A decorator, elsewhere, and of one language's functions.
#[tokio::test]
async fn a_limit_is_put_on_any_function() {
    struct Oracle(Mutex<Vec<Duration>>);

    impl Oracle {
        async fn ask(&self, question: u64) -> u64 {
            self.0.lock().expect("no panic").push(since_epoch());
            question + 1
        }
    }

    let server = RedisServer::start();
    let (limit, window) = (5, MS(100));
    // What may come between the permit and the reading of the clock when the machine is busy.
    let builder = quota(limit, window, Algorithm::SlidingLog).buffer(MS(400));
    let (one, other) = (
        limiter(&server, builder.clone()).await,
        limiter(&server, builder).await,
    );
    let oracle = Oracle(Mutex::default());
    let methods = (0..10).map(|question| {
        let oracle = &oracle;
        one.run("oracle", move || oracle.ask(question))
    });
    let closures = (10..20).map(|question| {
        let oracle = &oracle;
        other.run("oracle", async move || oracle.ask(question).await)
    });
    let (first, then) = futures_util::join!(join_all(methods), join_all(closures));
    let answers: Result<Vec<_>, _> = first.into_iter().chain(then).collect();
    assert_eq!(answers.expect("calls"), (1..=20).collect::<Vec<_>>());
    let history: History = oracle.0.lock().expect("no panic").drain(..).collect();
    assert_eq!(history.len(), 20);
    history.assert_at_most(limit.into(), window);
}

/// Elsewhere `CROSSSLOT`, unless the user thinks of the braces.
#[tokio::test]
async fn all_keys_of_one_call_lie_in_one_hash_slot() {
    let server = start_cluster().await;
    let across = server.try_command::<i64>(&["EVAL", "return 1", "2", "a", "b"]);
    let refusal = across
        .expect_err("the server looks at hash slots")
        .to_string();
    assert!(refusal.to_lowercase().contains("slot"), "{refusal}");

    let connection = server.client().get_multiplexed_async_connection().await;
    let store = RedisStore::from(connection.expect("a connection")).timeout(PATIENCE);
    let all = [
        Algorithm::SlidingBuckets { buckets: 10 },
        Algorithm::Spacing,
        Algorithm::LeakyBucket { capacity: 50 },
        Algorithm::Gcra { burst: 5 },
        Algorithm::FixedWindow {
            start: WindowStart::Clock,
        },
    ];
    let joint = all.into_iter().fold(
        quota(10, LONG, Algorithm::SlidingLog),
        |joint, algorithm| joint.quota(Quota::new(10, LONG).algorithm(algorithm)),
    );
    let policy = policy(joint);
    let mut hash_slots = BTreeSet::new();
    let mut seen = BTreeSet::new();
    for text in [
        "a", "b", "user:7", "{a}", "}{", "a}b{c", "{}", "", "{a}{b}", "é", "*",
    ] {
        let key = Key::from(format!("{text}."));
        let held = slots(&store, &key, &policy, 5).await;
        // One from the middle, so that there is a key for free slots too.
        let release = Release::new(&key, &policy, &held[2..3]);
        store.release(&release).await.expect("an answer");
        let names = names(&server);
        let of_key: Vec<_> = names.difference(&seen).cloned().collect();
        assert_eq!(of_key.len(), 7, "{text:?} has names of its own: {of_key:?}");
        let slot_of = |name: &String| server.command::<u16>(&["CLUSTER", "KEYSLOT", name]);
        let slots: BTreeSet<_> = of_key.iter().map(slot_of).collect();
        assert_eq!(slots.len(), 1, "{of_key:?}");
        hash_slots.extend(slots);
        seen = names;
        store.reset(&key, &policy).await.expect("an answer");
        seen.retain(|name| !of_key.contains(name));
    }
    assert!(hash_slots.len() > 5, "keys are spread: {hash_slots:?}");
}

/// Elsewhere the text goes over the wire with every call.
#[tokio::test]
async fn scripts_are_sent_once_and_again_when_the_server_has_forgotten_them() {
    let server = RedisServer::start();
    // However late a busy machine wakes, no permit expires, and no slot is given back.
    let builder = quota(5_000, LONG, Algorithm::SlidingLog).guard(PATIENCE);
    let limiter = limiter(&server, builder).await;
    let loaded = async |calls: usize| {
        let monitor = Monitor::start(&server);
        for call in 0..calls {
            let decision = limiter.try_acquire(format!("key-{call}")).await;
            assert!(decision.expect("a decision").is_granted());
        }
        let seen = monitor.finish(&server);
        assert_eq!(seen.calls("eval"), 0);
        let again = seen.calls("script");
        assert_eq!(seen.calls("evalsha"), calls + again);
        again
    };
    assert_eq!(loaded(50).await, 1);
    assert_eq!(loaded(50).await, 0);
    server.command::<()>(&["SCRIPT", "FLUSH"]);
    assert_eq!(loaded(50).await, 1);
}
