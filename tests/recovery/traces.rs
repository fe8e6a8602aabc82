//! What a process remembers of what it has let depart, whatever it does besides.

use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tower_throttle::store::RedisStore;
use tower_throttle::{Algorithm, Limiter, Quota, Recovery, WindowStart};

use super::support::redis_server::RedisServer;

const LIMIT: u32 = 4;

/// Long enough for all that a busy machine does in between.
const WINDOW: Duration = Duration::from_secs(6);

fn quota(limit: u32) -> Quota {
    Quota::new(limit, WINDOW)
}

async fn limiter(server: &RedisServer, quota: Quota) -> Limiter {
    let store = RedisStore::connect(&server.url()).await;
    // As if it had been in use for long.
    server.command::<()>(&["SET", "throttle:born", "1"]);
    let builder = Limiter::builder().store(store.expect("a connection"));
    let builder = builder.recovery(Recovery::Strict).quota(quota);
    builder.build().expect("a valid policy")
}

/// How many of so many may depart at once.
async fn depart(limiter: &Limiter, most: u32) -> u32 {
    let mut departed = 0;
    for _ in 0..most {
        let decision = limiter.try_acquire("a").await.expect("an answer");
        // However late it is: it is not used.
        departed += u32::from(decision.is_granted());
    }
    departed
}

fn delete(server: &RedisServer) {
    let names: Vec<String> = server.command(&["KEYS", "throttle:{a}:*"]);
    assert!(!names.is_empty());
    let words = ["DEL"].into_iter().chain(names.iter().map(String::as_str));
    server.command::<()>(&words.collect::<Vec<_>>());
}

/// Within one window, no more than the limit depart, though the state is deleted.
async fn misses(quota: Quota, then: impl AsyncFnOnce(&RedisServer, &Limiter) -> u32) {
    let server = RedisServer::start();
    let limiter = limiter(&server, quota).await;
    let begun = Instant::now();
    let departed = then(&server, &limiter).await;
    delete(&server);
    let after = depart(&limiter, LIMIT).await;
    assert!(begun.elapsed() < WINDOW, "the machine is too slow for this");
    assert!(
        departed > 0 && after == 0,
        "{quota}: {departed}, then {after}"
    );
}

#[tokio::test]
async fn whatever_counts() {
    let slow = Quota::new(1, WINDOW);
    for quota in [
        quota(LIMIT),
        quota(LIMIT).algorithm(Algorithm::FixedWindow {
            start: WindowStart::FirstRequest,
        }),
        quota(LIMIT).algorithm(Algorithm::SlidingBuckets { buckets: 6 }),
        slow.algorithm(Algorithm::Gcra { burst: 4 }),
        slow.algorithm(Algorithm::Spacing),
    ] {
        misses(quota, async |_, limiter| depart(limiter, LIMIT).await).await;
    }
}

#[tokio::test]
async fn quotas_that_change_and_change_back() {
    misses(quota(LIMIT), async |_, limiter| {
        let departed = depart(limiter, LIMIT).await;
        limiter.set_quota(quota(LIMIT + 1)).expect("a valid quota");
        sleep(Duration::from_millis(50)).await;
        limiter.set_quota(quota(LIMIT)).expect("a valid quota");
        departed
    })
    .await;
}

#[tokio::test]
async fn a_permit_that_is_forfeited() {
    misses(quota(LIMIT), async |_, limiter| {
        let departed = depart(limiter, LIMIT - 1).await;
        let last = limiter.try_acquire("a").await.expect("an answer");
        last.permit().expect("a permit").forfeit();
        departed
    })
    .await;
}

#[tokio::test]
async fn a_loss_and_somebody_who_resumes() {
    misses(quota(LIMIT), async |server, limiter| {
        let departed = depart(limiter, LIMIT).await;
        delete(server);
        assert_eq!(depart(limiter, 1).await, 0);
        limiter.resume("a").await.expect("an answer");
        assert_eq!(depart(limiter, LIMIT).await, 0);
        departed
    })
    .await;
}

/// Not even if somebody else writes it anew who does not mind.
#[tokio::test]
async fn a_log_that_is_gone_while_the_rest_is_there() {
    let server = RedisServer::start();
    let (known, newcomer) = (
        limiter(&server, quota(LIMIT)).await,
        limiter(&server, quota(LIMIT)).await,
    );
    assert_eq!(depart(&known, LIMIT).await, LIMIT);
    let name = format!("throttle:{{a}}:{}", known.policy().id());
    assert_eq!(server.command::<i64>(&["DEL", &name]), 1);
    let moment = Instant::now() + Duration::from_millis(5);
    known.pause("a", moment).await.expect("an answer");
    sleep_until(moment).await;
    assert_eq!(depart(&newcomer, LIMIT).await, 0);
}

/// That is no loss, to nobody.
#[tokio::test]
async fn a_key_that_is_reset_begins_anew_for_all() {
    let server = RedisServer::start();
    let limiters = [
        limiter(&server, quota(LIMIT)).await,
        limiter(&server, quota(LIMIT)).await,
    ];
    for (one, other) in [(0, 1), (1, 0), (0, 0)] {
        assert_eq!(depart(&limiters[0], LIMIT / 2).await, LIMIT / 2);
        assert_eq!(depart(&limiters[1], LIMIT).await, LIMIT / 2);
        limiters[one].reset("a").await.expect("an answer");
        // Where it was refused before, it has to hear of that.
        let hears = async {
            while depart(&limiters[other], 1).await == 0 {
                // Whoever is refused by what is known here does not yield.
                yield_now().await;
            }
        };
        timeout(WINDOW / 2, hears).await.expect("it does");
        limiters[other].reset("a").await.expect("an answer");
    }
}

/// The state of other quotas is another, and who waits under those goes on.
#[tokio::test]
async fn a_loss_under_some_quotas_holds_up_nobody_under_others() {
    let server = RedisServer::start();
    let short = |limit| Quota::new(limit, Duration::from_millis(200));
    let limiter = limiter(&server, short(1)).await;
    let wait = || {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.acquire("a").await.map(drop) })
    };
    let before: Vec<_> = (0..20).map(|_| wait()).collect();
    sleep(Duration::from_millis(300)).await;
    limiter.set_quota(short(2)).expect("a valid quota");
    let after: Vec<_> = (0..4).map(|_| wait()).collect();
    sleep(Duration::from_millis(100)).await;
    // Of those that are set now alone.
    let names: Vec<String> = server.command(&["KEYS", "throttle:{a}:2/200ms*"]);
    let words = ["DEL"].into_iter().chain(names.iter().map(String::as_str));
    server.command::<()>(&words.collect::<Vec<_>>());
    assert_eq!(depart(&limiter, 1).await, 0);
    for waiter in before.into_iter().chain(after) {
        let permit = timeout(WINDOW * 4, waiter).await.expect("it goes on");
        permit.expect("no panic").expect("a permit");
    }
}
