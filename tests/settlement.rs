//! Limits in several units, and costs that are corrected after the departure.

use std::time::Duration;

use support::proxy::Proxy;
use support::redis_server::RedisServer;
use support::spend::build;
use tokio::time::{Instant, sleep, timeout};
use tower_throttle::store::{MemoryStore, RedisStore, Store};
use tower_throttle::test_util::{FailingStore, Fault};
use tower_throttle::{Charge, Cost, ErrorKind, Limiter, Quota};

mod adapters;

const SECOND: Duration = Duration::from_secs(1);

/// So many requests and tokens per window.
fn limiter(window: Duration, requests: u32, tokens: u32, store: impl Store) -> Limiter {
    let quota = |limit| Quota::new(limit, window);
    let builder = Limiter::builder().quota(quota(requests));
    build(builder.quota(quota(tokens).unit("tokens")).store(store))
}

async fn depart(limiter: &Limiter, tokens: u32) -> Charge {
    let permit = limiter.acquire("a").cost_of("tokens", tokens).await;
    permit.expect("a permit").into_charge()
}

async fn left(limiter: &Limiter) -> (u32, Option<u32>) {
    let snapshot = limiter.peek("a").await.expect("a look");
    (snapshot.remaining(), snapshot.remaining_of("tokens"))
}

/// The embedded store, one that is asked by the dispatcher, and Redis.
async fn on_each_store<F: Future>(test: impl Fn(Box<dyn Fn(Duration, u32, u32) -> Limiter>) -> F) {
    test(Box::new(|window, requests, tokens| {
        limiter(window, requests, tokens, MemoryStore::new())
    }))
    .await;
    test(Box::new(|window, requests, tokens| {
        limiter(
            window,
            requests,
            tokens,
            FailingStore::new(MemoryStore::new()),
        )
    }))
    .await;
    let redis = RedisServer::start();
    let store = redis.store().await;
    test(Box::new(move |window, requests, tokens| {
        limiter(window, requests, tokens, store.clone())
    }))
    .await;
    let store = redis
        .store()
        .await
        .prefix("transactions")
        .expect("a prefix");
    let store = store.scripting(false).expect("a store");
    test(Box::new(move |window, requests, tokens| {
        limiter(window, requests, tokens, store.clone())
    }))
    .await;
}

#[tokio::test]
async fn all_quotas_are_taken_together_or_not_at_all() {
    on_each_store(|limiter| async move {
        let limiter = limiter(60 * SECOND, 10, 100);
        let attempt = |tokens| limiter.try_acquire("a").cost_of("tokens", tokens);
        assert!(attempt(60).await.unwrap().is_granted());
        assert!(!attempt(60).await.unwrap().is_granted());
        assert_eq!(left(&limiter).await, (9, Some(40)));
        let free = limiter.try_acquire("a").cost(Cost::from(2).of("tokens", 0));
        assert!(free.await.unwrap().is_granted());
        assert_eq!(left(&limiter).await, (7, Some(40)));
    })
    .await;
}

/// Also if it arrives later, and many wait.
#[tokio::test]
async fn a_request_waits_only_for_the_units_in_which_it_costs_something() {
    on_each_store(|limiter| async move {
        let limiter = limiter(60 * SECOND, 10, 100);
        let charge = depart(&limiter, 100).await;
        let waiting: Vec<_> = (0..20)
            .map(|_| tokio::spawn(limiter.acquire("a").cost_of("tokens", 50)))
            .collect();
        sleep(SECOND / 5).await;
        for _ in 0..8 {
            let free = limiter.acquire("a").cost_of("tokens", 0);
            let permit = timeout(5 * SECOND, free).await.expect("no wait");
            permit.expect("a permit");
        }
        // One request is kept for the first of those that wait.
        let free = limiter.try_acquire("a").cost_of("tokens", 0);
        assert!(!free.await.expect("an answer").is_granted());
        assert_eq!(left(&limiter).await, (1, Some(0)));
        assert!(waiting.iter().all(|it| !it.is_finished()));

        // A request that waits for tokens departs first, once it can.
        let later = tokio::spawn(limiter.acquire("a").cost_of("tokens", 0));
        sleep(SECOND / 5).await;
        charge.refund();
        let departed = || waiting.iter().filter(|it| it.is_finished()).count();
        let first = async {
            loop {
                if departed() > 0 {
                    break;
                }
                sleep(SECOND / 100).await;
            }
        };
        timeout(5 * SECOND, first).await.expect("no wait");
        sleep(SECOND / 5).await;
        assert_eq!((departed(), later.is_finished()), (2, false));
    })
    .await;
}

/// Others, which need one unit each, take turns with it.
#[tokio::test(start_paused = true)]
async fn a_request_that_needs_two_units_is_not_starved() {
    let quota = |unit| Quota::new(1, 10 * SECOND).unit(unit);
    let builder = || Limiter::builder().quota(quota("a")).quota(quota("b"));
    let limiters = [
        build(builder()),
        build(builder().store(FailingStore::new(MemoryStore::new()))),
    ];
    for limiter in limiters {
        let spend = |unit: &'static str| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                loop {
                    let cost = Cost::default().of("a", 0).of("b", 0).of(unit, 1);
                    limiter.acquire("a").cost(cost).await.expect("a permit");
                }
            })
        };
        let a = spend("a");
        sleep(5 * SECOND).await;
        let b = spend("b");
        sleep(30 * SECOND).await;
        let both = Cost::default().of("a", 1).of("b", 1);
        let departed = timeout(60 * SECOND, limiter.acquire("a").cost(both)).await;
        departed.expect("its turn").expect("a permit");
        a.abort();
        b.abort();
    }
}

#[tokio::test]
async fn a_lower_cost_lets_the_next_request_depart_at_once() {
    on_each_store(|limiter| async move {
        let limiter = limiter(60 * SECOND, 10, 100);
        let charge = depart(&limiter, 80).await;
        let waits = tokio::spawn({
            let limiter = limiter.clone();
            async move { depart(&limiter, 70).await }
        });
        sleep(SECOND / 5).await;
        assert!(!waits.is_finished());
        charge.settle("tokens", 30).unwrap();
        let departed = timeout(5 * SECOND, waits).await.expect("no wait").unwrap();
        assert_eq!(departed.cost_of("tokens"), Some(70));
        assert_eq!(left(&limiter).await, (8, Some(0)));
    })
    .await;
}

#[tokio::test]
async fn a_higher_cost_is_debt_until_the_window_has_room() {
    on_each_store(|limiter| async move {
        let limiter = limiter(2 * SECOND, 10, 100);
        let begun = Instant::now();
        let charge = depart(&limiter, 50).await;
        charge.settle("tokens", 170).unwrap();
        depart(&limiter, 10).await;
        assert!(begun.elapsed() >= 2 * SECOND, "{:?}", begun.elapsed());
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_charged_or_settled_says_why_and_records_nothing() {
    on_each_store(|limiter| async move {
        let limiter = limiter(60 * SECOND, 10, 100);
        for (cost, problem) in [
            (
                Cost::default(),
                "the request names no cost in tokens, and the quota has no default cost",
            ),
            (
                Cost::default().of("bytes", 1),
                "the request names a cost in bytes, and the quotas count requests, tokens",
            ),
            (Cost::from(0).of("tokens", 0), "a cost of 0 is no request"),
            (
                Cost::default().of("tokens", 101),
                "a cost of 101 tokens can never depart, as the quotas hold 100",
            ),
        ] {
            let error = limiter.acquire("a").cost(cost).await.unwrap_err();
            assert_eq!(
                (error.kind(), &*error.to_string()),
                (ErrorKind::InvalidCost, problem)
            );
        }
        assert_eq!(left(&limiter).await, (10, Some(100)));

        let charge = depart(&limiter, 40).await;
        let problem = |unit, cost| charge.settle(unit, cost).unwrap_err().to_string();
        assert_eq!(
            problem("bytes", 1),
            "cannot settle bytes, as the quotas count requests, tokens"
        );
        charge.settle("tokens", 30).unwrap();
        assert_eq!(problem("tokens", 20), "tokens were settled before");
        let error = charge.clone().settle_to(&Cost::from(0).of("tokens", 0));
        assert!(
            error
                .unwrap_err()
                .to_string()
                .starts_with("tokens were settled")
        );
        sleep(SECOND / 10).await;
        assert_eq!(left(&limiter).await, (9, Some(70)));
        charge.refund();
        sleep(SECOND / 10).await;
        assert_eq!(left(&limiter).await, (10, Some(70)));

        let charge = depart(&limiter, 40).await;
        let permit = limiter.acquire("a").cost_of("tokens", 10).await.unwrap();
        let points = Quota::new(100, 60 * SECOND).unit("points").default_cost(1);
        limiter.set_quotas([points]).unwrap();
        let error = charge.settle("tokens", 1).unwrap_err().to_string();
        let expected =
            "cannot settle tokens, as the quotas count differently since the request departed";
        assert_eq!(error, expected);
        // The request departed under the quotas that hold no more.
        assert_eq!(charge.cost_of("tokens"), Some(40));
        assert_eq!(permit.remaining_of("tokens"), Some(20));
    })
    .await;
}

#[tokio::test]
async fn requests_that_wait_while_the_units_change_keep_what_they_cost() {
    on_each_store(|limiter| async move {
        let limiter = limiter(60 * SECOND, 1, 100);
        depart(&limiter, 10).await;
        let waits = |cost: Cost| tokio::spawn(limiter.acquire("a").cost(cost));
        let both = waits(Cost::default().of("tokens", 30));
        sleep(SECOND / 5).await;
        let minute = Quota::per_minute;
        let images = minute(20).unit("images");
        limiter
            .set_quotas([minute(100).unit("tokens"), images.default_cost(2)])
            .unwrap();
        let permit = timeout(5 * SECOND, both)
            .await
            .expect("no wait")
            .unwrap()
            .unwrap();
        let charge = permit.into_charge();
        assert_eq!(charge.cost_of("tokens"), Some(30));
        assert_eq!(charge.cost_of("images"), Some(2));

        let waits = tokio::spawn(limiter.acquire("a").cost_of("tokens", 90));
        sleep(SECOND / 5).await;
        limiter
            .set_quotas([minute(100).unit("tokens"), minute(20).unit("bytes")])
            .unwrap();
        let error = timeout(5 * SECOND, waits)
            .await
            .expect("no wait")
            .unwrap()
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "the request names no cost in bytes, and the quota has no default cost"
        );
    })
    .await;
}

/// A refund whose answer was lost is not repeated, and a debt is: the limiter only becomes stricter.
#[tokio::test]
async fn lost_answers_to_corrections_only_make_the_limiter_stricter() {
    let redis = RedisServer::start();
    let proxy = Proxy::start(redis.port());
    let store = RedisStore::connect(&proxy.url()).await.unwrap();
    let store = store.timeout(Duration::from_millis(200));
    let limiter = limiter(60 * SECOND, 1_000, 10_000, store);
    for (estimate, actual, most) in [(500, 100, 500), (500, 900, 1_300)] {
        limiter.reset("a").await.unwrap();
        let charge = depart(&limiter, estimate).await;
        proxy.cut_reply(b"EVALSHA", 0);
        let cut = proxy.cut_replies();
        charge.settle("tokens", actual).unwrap();
        while proxy.cut_replies() == cut {
            sleep(Duration::from_millis(5)).await;
        }
        sleep(SECOND).await;
        let (_, tokens) = left(&limiter).await;
        let used = 10_000 - tokens.unwrap();
        assert!((actual..=most).contains(&used), "{used} used of {actual}");
    }
}

#[tokio::test]
async fn corrections_wait_for_the_end_of_an_outage() {
    let store = FailingStore::new(MemoryStore::new());
    let limiter = limiter(60 * SECOND, 10, 100, store.clone());
    let charges = [depart(&limiter, 50).await, depart(&limiter, 50).await];
    store.fail_with(Fault::Unreachable);
    charges[0].settle("tokens", 20).unwrap();
    sleep(SECOND / 10).await;
    charges[1].settle("tokens", 20).unwrap();
    sleep(SECOND / 10).await;
    store.recover();
    let departed = timeout(10 * SECOND, depart(&limiter, 60)).await;
    departed.expect("the corrections were sent");
}
