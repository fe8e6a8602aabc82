//! Requests of a higher priority depart first, in all processes.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::future::join_all;
use http::{Request, Response};
use support::redis_server::RedisServer;
use support::spend::build;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::{Instant, sleep, timeout};
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_throttle::store::{MemoryStore, Store};
use tower_throttle::test_util::FailingStore;
use tower_throttle::test_util::history::History;
use tower_throttle::{FailureMode, Limiter, Priority, Quota, ThrottleLayer, key};

const SECOND: Duration = Duration::from_secs(1);

const LEVELS: [Priority; 5] = [
    Priority::Lowest,
    Priority::Low,
    Priority::Normal,
    Priority::High,
    Priority::Highest,
];

fn limiter(quota: Quota, store: impl Store) -> Limiter {
    build(Limiter::builder().quota(quota).store(store))
}

/// Spends the quota. Then requests of all levels join, the lowest first, two of each. Returns them in the order of their
/// departures.
async fn departures(limiters: &[Limiter]) -> Vec<(Priority, usize)> {
    let spent = limiters[0].acquire("a").cost(2).await;
    spent.expect("a permit");
    let (departed, mut departures) = unbounded_channel();
    for nth in 0..2 {
        for (level, priority) in LEVELS.into_iter().enumerate() {
            let acquire = limiters[level % limiters.len()].acquire("a");
            let departed = departed.clone();
            tokio::spawn(async move {
                acquire.priority(priority).await.expect("a permit");
                departed.send((priority, nth)).expect("a receiver");
            });
            sleep(SECOND / 100).await;
        }
    }
    let mut order = Vec::new();
    for _ in 0..10 {
        let next = timeout(60 * SECOND, departures.recv()).await;
        order.push(next.expect("a departure").expect("a sender"));
    }
    order
}

fn expected() -> Vec<(Priority, usize)> {
    let levels = LEVELS.into_iter().rev();
    levels.flat_map(|level| [(level, 0), (level, 1)]).collect()
}

#[tokio::test(start_paused = true)]
async fn levels_are_strict_and_keep_the_order_of_arrival() {
    let quota = Quota::new(2, SECOND);
    let embedded = limiter(quota, MemoryStore::new());
    assert_eq!(departures(&[embedded]).await, expected());
    let dispatched = limiter(quota, FailingStore::new(MemoryStore::new()));
    assert_eq!(departures(&[dispatched]).await, expected());
    let shared = FailingStore::new(MemoryStore::new());
    let limiters = [(); 3].map(|()| limiter(quota, shared.clone()));
    assert_eq!(departures(&limiters).await, expected());
}

/// Some grants may be out when a request arrives, for at most a horizon.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn levels_are_strict_across_limiters_on_redis() {
    let redis = RedisServer::start();
    let quota = Quota::new(2, SECOND * 3 / 2);
    for scripting in [true, false] {
        let store = redis
            .store()
            .await
            .prefix(if scripting { "scripts" } else { "none" });
        let store = store
            .expect("a prefix")
            .scripting(scripting)
            .expect("a store");
        let limiters = [(); 3].map(|()| limiter(quota, store.clone()));
        let order = departures(&limiters).await;
        let levels =
            |order: &[(Priority, usize)]| -> Vec<_> { order.iter().map(|it| it.0).collect() };
        assert_eq!(
            levels(&order),
            levels(&expected()),
            "{scripting}: {order:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_takes_the_grant_of_a_lower_level_and_fails_at_its_own_bound() {
    let quota = Quota::per_second(10).algorithm(tower_throttle::Algorithm::Spacing);
    let limiter = limiter(quota, FailingStore::new(MemoryStore::new()));
    let begun = Instant::now();
    let mut low = Vec::new();
    for _ in 0..20 {
        low.push(tokio::spawn(
            limiter
                .acquire("a")
                .max_wait(SECOND * 21 / 10)
                .priority(Priority::Low),
        ));
    }
    sleep(SECOND / 2).await;
    // It is the next to depart, though the next grants are given to others.
    let at = Instant::now();
    limiter
        .acquire("a")
        .priority(Priority::High)
        .await
        .expect("a permit");
    assert!(
        at.elapsed() <= SECOND / 10 + SECOND / 20,
        "{:?}",
        at.elapsed()
    );
    for _ in 0..5 {
        limiter
            .acquire("a")
            .priority(Priority::High)
            .await
            .expect("a permit");
    }
    let outcomes = join_all(low).await;
    let failed = outcomes
        .iter()
        .filter(|it| it.as_ref().expect("no panic").is_err());
    // Six of them no longer depart within 2.1 seconds; guards add to the spacing.
    assert!((3..=8).contains(&failed.count()), "{outcomes:?}");
    assert!(begun.elapsed() < SECOND * 3);
}

#[tokio::test(start_paused = true)]
async fn adapters_read_the_priority_of_a_request() {
    let order = |limiter: Limiter, by_extension: bool, inbound: bool| async move {
        let (departed, mut departures) = unbounded_channel();
        let service = service_fn(move |request: Request<Priority>| {
            departed.send(*request.body()).expect("a receiver");
            async { Ok::<_, Infallible>(Response::new(String::new())) }
        });
        let service = if inbound {
            let layer = ThrottleLayer::new(limiter.clone());
            let layer = layer.inbound(key::constant("a"), FailureMode::Closed);
            let layer = layer.max_wait(60 * SECOND);
            match by_extension {
                true => tower::util::BoxCloneService::new(layer.layer(service).map_err(Into::into)),
                false => {
                    let layer = layer.priority(|request: &Request<Priority>| *request.body());
                    tower::util::BoxCloneService::new(layer.layer(service).map_err(Into::into))
                }
            }
        } else {
            let layer = ThrottleLayer::new(limiter.clone());
            match by_extension {
                true => tower::util::BoxCloneService::new(layer.layer(service)),
                false => {
                    let layer = layer.priority(|request: &Request<Priority>| *request.body());
                    tower::util::BoxCloneService::new(layer.layer(service))
                }
            }
        };
        let mut answers = Vec::new();
        for priority in [Priority::Normal, Priority::Low, Priority::High] {
            let mut request = Request::get("https://a/")
                .body(priority)
                .expect("a request");
            if by_extension {
                request.extensions_mut().insert(priority);
            }
            answers.push(tokio::spawn(service.clone().oneshot(request)));
            tokio::task::yield_now().await;
        }
        for answer in answers {
            let _: Result<_, tower_throttle::tower::BoxError> = answer.await.expect("no panic");
        }
        [
            departures.recv().await,
            departures.recv().await,
            departures.recv().await,
        ]
        .map(Option::unwrap)
    };
    for (by_extension, inbound) in [(true, false), (false, false), (true, true), (false, true)] {
        let limiter = limiter(Quota::per_second(1), MemoryStore::new());
        let order = order(limiter, by_extension, inbound).await;
        let expected = [Priority::Normal, Priority::High, Priority::Low];
        assert_eq!(order, expected, "{by_extension} {inbound}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_waiting_requests_do_not_delay_those_of_a_higher_level() {
    const WINDOW: Duration = Duration::from_millis(500);
    let redis = RedisServer::start();
    let store = redis.store().await;
    let limiters = [(); 3].map(|()| limiter(Quota::new(25, WINDOW), store.clone()));
    let (departed, mut departures) = unbounded_channel();
    let begun = Instant::now();
    for _ in 0..100 {
        for limiter in &limiters {
            let (acquire, departed) = (
                limiter.acquire("a").priority(Priority::Low),
                departed.clone(),
            );
            tokio::spawn(async move {
                acquire.await.expect("a permit");
                departed.send(begun.elapsed()).expect("a receiver");
            });
        }
    }
    sleep(SECOND / 2).await;
    let mut waits = Vec::new();
    for nth in 0..15 {
        let at = Instant::now();
        let acquire = limiters[nth % 3].acquire("a").priority(Priority::High);
        acquire.await.expect("a permit");
        waits.push(at.elapsed());
        departed.send(begun.elapsed()).expect("a receiver");
        sleep(SECOND / 5).await;
    }
    waits.sort();
    // A window passes until there is room, and a horizon is granted already. The low ones take six seconds.
    assert!(waits[waits.len() / 2] < SECOND, "{waits:?}");
    let mut all = Vec::new();
    while all.len() < 315 {
        let next = timeout(60 * SECOND, departures.recv()).await;
        all.push(next.expect("a departure").expect("a sender"));
    }
    let history: History = all.into_iter().collect();
    assert!(history.most_in_any(WINDOW) <= 25, "{history:?}");
}
