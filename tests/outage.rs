//! Requests while the store is out, under each outage policy, on a paused clock.

use crate::limiter::{departures as departed, queue};
use crate::prelude::*;

const LIMIT: u32 = 10;
const WINDOW: Duration = Duration::from_secs(1);

/// A store that cannot be reached, one that hangs, and one that accepts no writes.
const FAULTS: [Fault; 3] = [Fault::Unreachable, Fault::LostReply, Fault::ReadOnly];

fn store() -> FailingStore {
    FailingStore::new(MemoryStore::new()).latency(MS)
}

/// A call to a store that hangs fails after a second.
fn fail(store: &FailingStore, fault: Fault) {
    let latency = match fault {
        Fault::LostReply => SECOND,
        _ => MS,
    };
    store.clone().latency(latency).fail_with(fault);
}

fn recover(store: &FailingStore) {
    store.clone().latency(MS).recover();
}

fn limiter(store: &FailingStore, outage: Outage) -> Limiter {
    let builder = Limiter::builder().quota(Quota::new(LIMIT, WINDOW));
    build(builder.store(store.clone()).outage(outage))
}

fn assert_out<T: std::fmt::Debug>(answer: Result<T, Error>) {
    let error = answer.expect_err("the store is out");
    assert!(error.is_store(), "{error:?}");
    let message = "the store is out, and cannot say when the request may depart";
    assert_eq!(error.to_string(), message);
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_until_its_bound_or_for_five_seconds() {
    for fault in FAULTS {
        let store = store();
        let limiter = limiter(&store, Outage::Deny);
        fail(&store, fault);
        // The first time, the limiter does not know of the outage yet.
        for slack in [1_000, 100] {
            let bounds = [Some(200), Some(2_000), Some(20_000)];
            let waiting = bounds.into_iter().chain([None; 100]).map(async |bound| {
                let (start, acquire) = (Instant::now(), limiter.acquire("a"));
                let (bound, slack) = match bound.map(Duration::from_millis) {
                    Some(bound) => {
                        assert_out(acquire.max_wait(bound).await);
                        (bound, slack)
                    }
                    None => {
                        assert_out(acquire.await);
                        (Duration::from_secs(5), 1_100)
                    }
                };
                let most = bound + Duration::from_millis(slack);
                let waited = start.elapsed();
                assert!((bound..=most).contains(&waited), "{fault:?}: {waited:?}");
            });
            join_all(waiting).await;
        }
        recover(&store);
        sleep(Duration::from_secs(2)).await;
        assert_eq!(limiter.queues(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_does_not_wait_fails_at_once() {
    let store = store();
    let limiter = limiter(&store, Outage::Deny);
    fail(&store, Fault::LostReply);
    assert_out(limiter.try_acquire("a").await);
    let start = Instant::now();
    for _ in 0..100 {
        assert_out(limiter.try_acquire("a").await);
        assert_out(limiter.acquire("a").max_wait(Duration::ZERO).await);
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
}

/// By the share alone, the last would depart after twelve seconds.
#[tokio::test(start_paused = true)]
async fn when_the_store_is_back_all_go_on_in_their_order() {
    let denied = FAULTS.map(|fault| (fault, Outage::Deny));
    for (fault, outage) in denied.into_iter().chain([(Fault::Unreachable, LOCAL)]) {
        let store = store();
        let limiter = limiter(&store, outage);
        fail(&store, fault);
        let start = Instant::now();
        let queue = queue(&limiter, 4 * LIMIT as usize).await;
        sleep(Duration::from_millis(3_500)).await;
        recover(&store);
        let departed = departed(queue).await;
        assert!(departed.is_sorted(), "{departed:?}");
        // The outage, a second until a probe, and four windows.
        let last = departed[departed.len() - 1] - start;
        assert!(last < Duration::from_secs(9), "{fault:?}: {last:?}");
        assert!(!limiter.health().is_out());
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_holds_in_this_process() {
    let store = store();
    let limiter = limiter(&store, Outage::Allow);
    fail(&store, Fault::Unreachable);
    limiter.acquire("a").await.expect("everything departs");
    let until = Instant::now() + Duration::from_secs(3);
    let pause = limiter.pause("a", until).await;
    pause.expect_err("the store does not get it");
    limiter.acquire("a").await.expect("after the pause");
    assert!(Instant::now() >= until);
}

const SHARE: u32 = 3;
const LOCAL: Outage = Outage::Local { share: 0.3 };

#[tokio::test(start_paused = true)]
async fn looks_pauses_and_costs_are_those_of_the_share() {
    let store = store();
    let limiter = limiter(&store, LOCAL);
    let look = async || limiter.peek("a").await.expect("an answer");
    fail(&store, Fault::Unreachable);
    assert_out(limiter.acquire("a").cost(SHARE + 1).await);
    limiter.acquire("a").await.expect("its share");
    assert_eq!(look().await.remaining(), SHARE - 1);
    let pause = limiter.pause("a", Instant::now() + 5 * WINDOW).await;
    pause.expect_err("the store is out");
    assert!(look().await.delay() > 4 * WINDOW);
    limiter.resume("a").await.expect_err("the store is out");
    assert!(look().await.delay().is_zero());
}

/// A share of less than one request keeps the rate.
#[tokio::test(start_paused = true)]
async fn as_many_depart_together_as_the_quota_allows_or_one_of_each_replica() {
    const SECONDS: u32 = 10;
    for (quota, replicas, together) in [
        ("10/s", 20, 20),
        ("10/s", 3, 9),
        ("10/s gcra burst=6", 3, 6),
        ("10/s leaky-bucket capacity=2", 5, 5),
    ] {
        let quota: Quota = quota.parse().expect("a quota");
        let store = store();
        fail(&store, Fault::Unreachable);
        let share = 1.0 / f64::from(replicas);
        let limiters = (0..replicas).map(|_| {
            let builder = Limiter::builder().quota(quota).store(store.clone());
            build(builder.outage(Outage::Local { share }))
        });
        let limiters: Vec<_> = limiters.collect();
        let start = Instant::now();
        let mut departed = 0;
        while start.elapsed() < WINDOW * SECONDS {
            let mut now = 0;
            for limiter in &limiters {
                while attempt(limiter, "a", 1).await.is_ok() {
                    now += 1;
                }
            }
            departed += now;
            assert!(now <= together, "{quota} by {replicas}: {now} at once");
            sleep(WINDOW / 100).await;
        }
        let most = together + quota.limit() * SECONDS;
        let is_expected = (most / 2..=most).contains(&departed);
        assert!(is_expected, "{quota} by {replicas}: {departed} of {most}");
    }
}

/// Half a second to a second apart, after the first few.
#[tokio::test(start_paused = true)]
async fn a_store_that_is_out_is_probed_once_for_each_pause() {
    for (outage, fault, most) in [
        (Outage::Deny, Fault::Unreachable, 20),
        (Outage::Allow, Fault::Unreachable, 20),
        (LOCAL, Fault::Unreachable, 20),
        (Outage::Deny, Fault::ReadOnly, 20),
    ] {
        let store = store();
        let limiter = limiter(&store, outage);
        fail(&store, fault);
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(30) {
            let requests = (0..20).map(|key| {
                let acquire = limiter.acquire(key.to_string());
                acquire.max_wait(Duration::from_millis(100))
            });
            join_all(requests).await;
            sleep(Duration::from_millis(100)).await;
        }
        let (pings, calls) = (store.pings(), store.calls());
        assert!(calls <= most, "{outage:?}, {fault:?}: {calls} calls");
        let is_probed = (28..=70).contains(&pings);
        assert!(is_probed, "{outage:?}, {fault:?}: {pings} pings");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_that_fail_together_count_as_one_for_the_next_probe() {
    let store = store();
    let limiter = limiter(&store, Outage::Deny);
    fail(&store, Fault::Unreachable);
    join_all((0..20).map(|_| limiter.peek("a"))).await;
    recover(&store);
    let departed = timeout(SECOND / 10, limiter.acquire("a")).await;
    departed.expect("it is probed soon").expect("a permit");
}

#[tokio::test(start_paused = true)]
async fn health_reports_the_outage_its_cause_and_its_end() {
    let store = store();
    let limiter = limiter(&store, Outage::Deny);
    assert!(!limiter.health().is_out() && limiter.health().since().is_none());
    sleep(Duration::from_secs(1)).await;
    let start = Instant::now();
    fail(&store, Fault::Unreachable);
    assert_out(limiter.try_acquire("a").await);
    sleep(Duration::from_secs(60)).await;
    let health = limiter.health();
    assert!(health.is_out() && health.since() >= Some(start));
    assert!(health.since() < Some(start + Duration::from_secs(1)));
    let error = health.error().expect("it is out");
    assert_eq!(error.to_string(), "the store cannot be reached");
    recover(&store);
    sleep(Duration::from_secs(1)).await;
    assert!(!limiter.health().is_out());
    fail(&store, Fault::ReadOnly);
    assert_out(limiter.try_acquire("a").await);
    let health = limiter.health();
    let error = health.error().expect("it is out");
    assert_eq!(error.to_string(), "the store accepts no writes");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_refused_just_before_is_not_refused_during_the_outage() {
    let store = store();
    let limiter = limiter(&store, Outage::Allow);
    let is_granted = async |key| {
        let decision = limiter.try_acquire(key).await;
        decision.expect("a decision").is_granted()
    };
    for nth in 0..=LIMIT {
        assert_eq!(is_granted("a").await, nth < LIMIT);
    }
    fail(&store, Fault::Unreachable);
    // The first request notices the outage.
    assert!(is_granted("b").await && is_granted("a").await);
}
