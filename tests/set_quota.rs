//! Quotas that change while requests wait: those made before the change keep theirs, those made
//! after it have the new ones, and neither spends what is the other's.

mod support;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use futures_util::poll;
use http::{Request, Response};
use support::redis_server::RedisServer;
use tokio::time::{Instant, advance, sleep, timeout};
use tower::{Layer as _, ServiceExt as _};
use tower_test::mock;
use tower_throttle::key::{self, Key};
use tower_throttle::store::{MemoryStore, RedisStore, Release, Reply, Reserve, Reserved, Store};
use tower_throttle::test_util::history::History;
use tower_throttle::{
    Acquire, Algorithm, Decision, Limited, Limiter, LimiterBuilder, Permit, Policy, Quota,
    ThrottleLayer,
};

const SECOND: Duration = Duration::from_secs(1);
const GUARD: Duration = Duration::from_millis(10);

/// How far slots lie apart with a limit of 1.
const STEP: Duration = Duration::from_millis(1_010);

/// What a machine may need that does many other things; nothing here waits so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// So long that what is done in one test falls into one window.
const LONG: Duration = Duration::from_secs(600);

fn per_second(limit: u32) -> LimiterBuilder {
    Limiter::builder()
        .quota(Quota::per_second(limit))
        .guard(GUARD)
}

fn build(builder: LimiterBuilder) -> Limiter {
    builder.build().expect("a valid policy")
}

fn set(limiter: &Limiter, quota: Quota) {
    limiter.set_quota(quota).expect("a valid quota");
}

/// A request that has its place in the line.
async fn waiter(limiter: &Limiter) -> Pin<Box<Acquire>> {
    let mut waiter = Box::pin(limiter.acquire("a"));
    assert!(poll!(&mut waiter).is_pending());
    waiter
}

async fn granted(limiter: &Limiter) -> Permit {
    match limiter.try_acquire("a").await.expect("a decision") {
        Decision::Granted(permit) => permit,
        Decision::Limited(limited) => panic!("{limited:?}"),
    }
}

async fn limited(limiter: &Limiter) -> Limited {
    match limiter.try_acquire("a").await.expect("a decision") {
        Decision::Granted(permit) => panic!("{permit:?}"),
        Decision::Limited(limited) => limited,
    }
}

/// Waits until no line is left, so that nothing more will change.
async fn settle(limiter: &Limiter) {
    let no_line = async {
        while limiter.lines() > 0 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, no_line).await.expect("no line is left");
}

/// When so many requests depart that are made now.
async fn departures(limiter: &Limiter, count: u32) -> History {
    let start = Instant::now();
    let departs = (0..count).map(|_| async {
        limiter.acquire("a").await.expect("a permit");
        start.elapsed()
    });
    join_all(departs).await.into_iter().collect()
}

#[tokio::test(start_paused = true)]
async fn new_requests_depart_by_a_raised_or_lowered_quota() {
    for (before, after) in [(1, 3), (5, 2)] {
        let limiter = build(per_second(before));
        departures(&limiter, before * 2).await;
        set(&limiter, Quota::per_second(after));
        let history = departures(&limiter, after * 3).await;
        history.assert_at_most(after.into(), SECOND);
        let span = history.span().expect("departures");
        assert!(span >= STEP * 2 && span < STEP * 2 + GUARD, "{span:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_keep_their_slots() {
    for quota in [Quota::per_second(100), Quota::per_hour(1)] {
        let limiter = build(per_second(1));
        granted(&limiter).await;
        let waiters = [
            waiter(&limiter).await,
            waiter(&limiter).await,
            waiter(&limiter).await,
        ];
        set(&limiter, quota);
        // Nor do they keep others waiting.
        granted(&limiter).await;
        for (place, permit) in (1..).zip(join_all(waiters).await) {
            let waited = permit.expect("a permit").waited();
            let due = STEP * place;
            assert!(waited >= due && waited < due + GUARD, "{waited:?}");
        }
        settle(&limiter).await;
    }
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_for_an_answer_get_slots_of_the_old_quota() {
    let store = MemoryStore::new();
    let limiter = build(per_second(1).store(Labelled(store.clone())));
    let other = build(per_second(1).store(store));
    granted(&limiter).await;
    // No driver has looked yet.
    let waiter = waiter(&limiter).await;
    set(&limiter, Quota::per_minute(5));
    let permit = waiter.await.expect("a permit");
    assert_eq!(permit.reset(), SECOND, "the label of the old quota");
    assert!(limited(&other).await.delay() > SECOND - GUARD);
}

#[tokio::test(start_paused = true)]
async fn lines_are_counted_for_old_and_new_quotas() {
    let limiter = build(per_second(1));
    granted(&limiter).await;
    let old = waiter(&limiter).await;
    assert_eq!(limiter.lines(), 1);
    set(&limiter, Quota::per_minute(1));
    assert_eq!(limiter.lines(), 1);
    granted(&limiter).await;
    let new = waiter(&limiter).await;
    assert_eq!(limiter.lines(), 2);
    drop(new);
    old.await.expect("a permit");
    settle(&limiter).await;
}

#[tokio::test(start_paused = true)]
async fn a_permit_forfeited_after_a_change_goes_back_to_its_own_quota() {
    for waits in [false, true] {
        let store = MemoryStore::new();
        let limiter = build(per_second(1).store(store.clone()));
        let other = build(per_second(1).store(store));
        let mut permit = granted(&limiter).await;
        if waits {
            let waiter = waiter(&limiter).await;
            set(&limiter, Quota::per_second(2));
            permit = waiter.await.expect("a permit");
        } else {
            set(&limiter, Quota::per_second(2));
        }
        assert_eq!(granted(&limiter).await.remaining(), 1);
        limited(&other).await;
        permit.forfeit();
        settle(&limiter).await;
        granted(&other).await;
        assert_eq!(granted(&limiter).await.remaining(), 0);
        limited(&limiter).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_permit_of_the_new_quota_is_not_given_to_those_who_wait_for_the_old() {
    let limiter = build(per_second(1));
    granted(&limiter).await;
    let mut old = waiter(&limiter).await;
    set(&limiter, Quota::per_second(2));
    granted(&limiter).await.forfeit();
    assert!(poll!(&mut old).is_pending());
    assert_eq!(granted(&limiter).await.remaining(), 1);
    assert!(old.await.expect("a permit").waited() >= STEP);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_after_a_change_gives_its_slot_back_to_its_own_quota() {
    let store = MemoryStore::new();
    let limiter = build(per_second(1).store(store.clone()));
    let other = build(per_second(1).store(store));
    granted(&limiter).await;
    let leaves = [waiter(&limiter).await, waiter(&limiter).await];
    sleep(SECOND / 10).await;
    set(&limiter, Quota::per_second(2));
    assert!(limited(&other).await.delay() > STEP * 2);
    drop(leaves);
    settle(&limiter).await;
    assert!(limited(&other).await.delay() < SECOND);
    assert_eq!(granted(&limiter).await.remaining(), 1);
    assert_eq!(granted(&limiter).await.remaining(), 0);
    limited(&limiter).await;
}

#[tokio::test(start_paused = true)]
async fn a_late_wake_up_gets_another_slot_of_its_own_quota() {
    let limiter = build(per_second(1));
    granted(&limiter).await;
    let mut late = waiter(&limiter).await;
    sleep(SECOND / 2).await;
    set(&limiter, Quota::per_hour(1));
    granted(&limiter).await;
    // Everyone sleeps through the slot and its guard.
    advance(SECOND).await;
    assert!(poll!(&mut late).is_pending());
    let waited = late.await.expect("a permit").waited();
    assert!(waited < SECOND * 4, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_service_is_late_gets_another_slot_of_its_own_quota() {
    let (mock, mut handle) = mock::pair::<Request<()>, Response<()>>();
    handle.allow(0);
    let limiter = build(per_second(3));
    let service = ThrottleLayer::new(limiter.clone()).key(key::constant("a"));
    let mut response = Box::pin(service.layer(mock).oneshot(Request::new(())));
    assert!(poll!(&mut response).is_pending());
    set(&limiter, Quota::per_hour(1));
    granted(&limiter).await;
    // Longer than its permit is valid.
    assert!(timeout(SECOND * 2, &mut response).await.is_err());
    handle.allow(1);
    let answer = async {
        let (_, respond) = handle.next_request().await.expect("a service");
        respond.send_response(Response::new(()));
    };
    let (response, ()) = timeout(PATIENCE, async { tokio::join!(response, answer) })
        .await
        .expect("not the hour of the new quota");
    response.expect("a response");
    settle(&limiter).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_has_the_quotas_that_are_set_when_it_is_first_polled() {
    let limiter = build(per_second(1));
    let acquire = limiter.acquire("a");
    let decision = limiter.try_acquire("a");
    let run = limiter.run("a", || async {});
    set(&limiter, Quota::per_second(3));
    assert_eq!(acquire.await.expect("a permit").remaining(), 2);
    let decision = decision.await.expect("a decision");
    assert_eq!(decision.permit().expect("a permit").remaining(), 1);
    run.await.expect("a permit");
    limited(&limiter).await;
}

#[tokio::test(start_paused = true)]
async fn a_costly_request_that_waits_departs_though_the_new_quota_holds_less() {
    let limiter = build(per_second(5));
    granted(&limiter).await;
    let mut waiter = Box::pin(limiter.acquire("a").cost(5));
    assert!(poll!(&mut waiter).is_pending());
    set(&limiter, Quota::per_second(2));
    let error = limiter.acquire("a").cost(5).await.expect_err("too costly");
    assert!(error.is_invalid_cost());
    waiter.await.expect("a permit");
}

#[tokio::test(start_paused = true)]
async fn all_clones_see_the_change() {
    let limiter = build(per_second(1));
    let clone = limiter.clone();
    let service = tower::service_fn(|_: Request<()>| async {
        Ok::<_, std::convert::Infallible>(Response::new(()))
    });
    let service = ThrottleLayer::new(limiter.clone())
        .key(key::constant("a"))
        .layer(service);
    let quotas = [Quota::per_second(2), Quota::per_minute(9)];
    clone.set_quotas(quotas).expect("valid quotas");
    assert_eq!(limiter.policy().quotas(), quotas);
    assert_eq!(limiter.policy().id(), clone.policy().id());
    let start = Instant::now();
    for _ in 0..2 {
        let response = service.clone().oneshot(Request::new(())).await;
        response.expect("a response");
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    limited(&limiter).await;
    limited(&clone).await;
}

#[tokio::test(start_paused = true)]
async fn invalid_quotas_change_nothing_and_are_named() {
    let limiter = build(per_second(1));
    granted(&limiter).await;
    let waiter = waiter(&limiter).await;
    let before = limiter.policy();
    let good = Quota::per_second(7);
    let nine = (1..10).map(Quota::per_minute).collect();
    let spaced = Quota::new(11, Duration::from_micros(10)).algorithm(Algorithm::Spacing);
    for (quotas, problem) in [
        (vec![], "quota: at least one is needed"),
        (
            vec![good, Quota::per_second(0)],
            "quota `0/s`: the limit is zero",
        ),
        (
            vec![good, Quota::new(1, Duration::ZERO)],
            "quota `1/0ns`: the window is zero",
        ),
        (vec![good, good], "is given twice"),
        (nine, "quota: 9 were given, and at most 8 may be joined"),
        (vec![spaced, good], "less than a microsecond"),
    ] {
        let error = limiter.set_quotas(quotas).expect_err("invalid");
        assert!(error.to_string().contains(problem), "{error}");
        assert!(Arc::ptr_eq(&limiter.policy(), &before));
    }
    let error = limiter.set_quota(Quota::per_hour(0)).expect_err("invalid");
    assert!(error.to_string().contains("the limit is zero"), "{error}");
    assert!(limited(&limiter).await.delay() > STEP);
    let waited = waiter.await.expect("a permit").waited();
    assert!(waited >= STEP && waited < STEP + GUARD, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn the_rest_of_the_policy_stays() {
    let builder = per_second(1).name("search").buffer(GUARD * 3);
    let limiter = build(builder.max_wait(SECOND * 2).max_waiting(1));
    let short = Quota::new(1, SECOND / 2);
    limiter
        .set_quotas([short, Quota::per_hour(9)])
        .expect("valid");
    let policy = limiter.policy();
    assert_eq!(policy.name(), Some("search"));
    assert_eq!(policy.id(), "search:1/500ms+9/h");
    assert_eq!(policy.buffer(), GUARD * 3);
    assert_eq!(policy.guard(), GUARD);
    assert_eq!(policy.max_wait(), Some(SECOND * 2));
    assert_eq!(policy.max_waiting(), Some(1));

    granted(&limiter).await;
    let step = SECOND / 2 + GUARD * 4;
    assert_eq!(limited(&limiter).await.delay(), step);
    let _waits = waiter(&limiter).await;
    let error = limiter.acquire("a").await.expect_err("one waits already");
    assert!(error.is_line_full());
    set(&limiter, Quota::per_hour(1));
    granted(&limiter).await;
    let error = limiter.acquire("a").await.expect_err("an hour is too long");
    assert!(error.is_limited() && error.wait() > Some(SECOND * 2));
}

#[test]
fn a_guard_by_default_follows_the_quotas() {
    let guard = |quota: Quota| {
        let limiter = build(Limiter::builder().quota(quota));
        limiter.policy().guard()
    };
    let (short, long) = (Quota::new(5, SECOND / 10), Quota::per_hour(5));
    assert_ne!(guard(short), guard(long));
    let limiter = build(Limiter::builder().quota(long));
    for quota in [short, long, short] {
        set(&limiter, quota);
        assert_eq!(limiter.policy().guard(), guard(quota));
    }
}

#[tokio::test(start_paused = true)]
async fn quotas_set_back_find_their_state_and_their_line() {
    let limiter = build(per_second(1).max_waiting(2));
    granted(&limiter).await;
    let first = waiter(&limiter).await;
    set(&limiter, Quota::per_second(5));
    granted(&limiter).await;
    set(&limiter, Quota::per_second(1));
    assert!(limited(&limiter).await.delay() > STEP);
    let second = waiter(&limiter).await;
    assert_eq!(limiter.lines(), 1);
    let error = limiter.acquire("a").await.expect_err("two wait already");
    assert!(error.is_line_full());
    // Whoever came first gets what is given back.
    drop(first);
    let waited = second.await.expect("a permit").waited();
    assert!(waited >= STEP && waited < STEP + GUARD, "{waited:?}");
    settle(&limiter).await;
    // The line is gone, and what has departed still counts.
    set(&limiter, Quota::per_second(5));
    set(&limiter, Quota::per_second(1));
    assert!(limited(&limiter).await.delay() > SECOND - GUARD);
}

#[tokio::test(start_paused = true)]
async fn the_same_quotas_change_nothing() {
    let (second, minute) = (Quota::per_second(1), Quota::per_minute(30));
    let limiter = build(per_second(1).quota(minute));
    granted(&limiter).await;
    let waiters = [waiter(&limiter).await, waiter(&limiter).await];
    for quotas in [[second, minute], [minute, second]] {
        limiter.set_quotas(quotas).expect("valid quotas");
    }
    let last = waiter(&limiter).await;
    assert_eq!(limiter.lines(), 1);
    for (place, permit) in (1..).zip(join_all(waiters.into_iter().chain([last])).await) {
        let waited = permit.expect("a permit").waited();
        let due = STEP * place;
        assert!(waited >= due && waited < due + GUARD, "{waited:?}");
    }
}

#[test]
fn quotas_that_several_threads_set_are_never_torn() {
    let sets = [
        [Quota::per_second(1), Quota::per_minute(1)],
        [Quota::per_second(2), Quota::per_minute(2)],
    ];
    let limiter = build(per_second(1).quota(Quota::per_minute(1)));
    let (limiter, ended) = (&limiter, &AtomicBool::new(false));
    thread::scope(|scope| {
        let setters = sets.map(|quotas| {
            scope.spawn(move || {
                for _ in 0..2_000 {
                    limiter.set_quotas(quotas).expect("valid quotas");
                }
            })
        });
        scope.spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                let policy = limiter.policy();
                assert!(sets.iter().any(|quotas| policy.quotas() == quotas));
            }
        });
        for setter in setters {
            setter.join().expect("no panic");
        }
        ended.store(true, Ordering::Relaxed);
    });
    limiter.set_quotas(sets[1]).expect("valid quotas");
    assert_eq!(limiter.policy().quotas(), sets[1]);
}

#[tokio::test]
async fn another_limiter_on_the_same_redis_keeps_its_quota() {
    let server = RedisServer::start();
    let store = redis_store(&server).await;
    let quota = |limit| Quota::new(limit, LONG);
    let on_redis = || {
        // However late a busy machine wakes, no permit expires and none is reserved twice.
        let builder = Limiter::builder().quota(quota(2)).guard(PATIENCE);
        build(builder.store(store.clone()))
    };
    let (limiter, other) = (on_redis(), on_redis());
    granted(&limiter).await;
    let old = granted(&other).await;
    limited(&other).await;

    set(&limiter, quota(3));
    assert_eq!(other.policy().quotas(), [quota(2)]);
    for left in [2, 1, 0] {
        assert_eq!(granted(&limiter).await.remaining(), left);
    }
    limited(&limiter).await;
    limited(&other).await;
    old.forfeit();
    settle(&other).await;
    limited(&limiter).await;
    granted(&other).await;

    // Once told, it shares the quota; and once told back, the old one.
    set(&other, quota(3));
    limited(&other).await;
    set(&limiter, quota(2));
    limited(&limiter).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn quotas_that_change_all_the_time_lose_nobody_and_never_let_too_many_go() {
    change_all_the_time(MemoryStore::new()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn quotas_that_change_all_the_time_on_redis_lose_nobody_and_never_let_too_many_go() {
    let server = RedisServer::start();
    change_all_the_time(redis_store(&server).await).await;
}

async fn redis_store(server: &RedisServer) -> RedisStore {
    let store = RedisStore::connect(&server.url())
        .await
        .expect("a connection");
    store.timeout(PATIENCE)
}

/// Says by [`reset`](Permit::reset) which quota granted a permit: its window.
#[derive(Debug)]
struct Labelled<S>(S);

impl<S: Store> Store for Labelled<S> {
    fn reserve(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        let label = reserve.policy.quotas()[0].window();
        let reply = self.0.reserve(reserve);
        let answer = async move {
            let it = reply.await?;
            let outcomes = it.outcomes().to_vec();
            Ok(Reserved::new(it.now(), outcomes, it.remaining(), label))
        };
        if self.is_local() {
            Reply::ready(answer.now_or_never().expect("an answer at once"))
        } else {
            Reply::pending(answer)
        }
    }

    fn release(&self, release: &Release<'_>) -> Reply<()> {
        self.0.release(release)
    }

    fn peek(&self, reserve: &Reserve<'_>) -> Reply<Reserved> {
        self.0.peek(reserve)
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Reply<()> {
        self.0.reset(key, policy)
    }

    fn is_local(&self) -> bool {
        self.0.is_local()
    }
}

/// Many acquire, some of them leave, and the quotas change meanwhile.
async fn change_all_the_time(store: impl Store) {
    const KEYS: [&str; 2] = ["a", "b"];
    let quota = |limit, millis| Quota::new(limit, Duration::from_millis(millis));
    let quotas = [quota(5, 100), quota(20, 150), quota(40, 250)];
    let builder = Limiter::builder().quota(quotas[0]).guard(GUARD * 5);
    let limiter = build(builder.store(Labelled(store)));
    let start = Instant::now();

    let setter = tokio::spawn({
        let limiter = limiter.clone();
        async move {
            for turn in 0.. {
                set(&limiter, quotas[turn % quotas.len()]);
                if turn % 7 == 0 {
                    sleep(Duration::from_millis(1)).await;
                }
            }
        }
    });
    let callers = (0..16).map(|number: usize| {
        let limiter = limiter.clone();
        let key = KEYS[number % KEYS.len()];
        tokio::spawn(async move {
            let mut departed = Vec::new();
            while departed.len() < 40 {
                if number < 4 {
                    let patience = Duration::from_millis(departed.len() as u64);
                    let _ = timeout(patience, limiter.acquire(key)).await;
                }
                let permit = limiter.acquire(key).await.expect("a permit");
                let at = start.elapsed();
                // A busy machine may come too late, and does not depart then.
                if permit.is_valid() {
                    departed.push((key, permit.reset(), at));
                } else {
                    permit.forfeit();
                }
            }
            departed
        })
    });
    let callers = join_all(callers.collect::<Vec<_>>());
    let departed = timeout(PATIENCE, callers).await.expect("nobody is lost");
    setter.abort();
    assert!(setter.await.expect_err("has no end").is_cancelled());
    settle(&limiter).await;

    let mut histories = HashMap::<_, History>::new();
    for departed in departed {
        for (key, label, at) in departed.expect("no panic") {
            histories.entry((key, label)).or_default().push(at);
        }
    }
    assert_eq!(histories.len(), KEYS.len() * quotas.len());
    for ((_, label), history) in histories {
        let quota = quotas.iter().find(|quota| quota.window() == label);
        let limit = quota.expect("its quota").limit();
        history.assert_at_most(limit.into(), label);
    }
}
