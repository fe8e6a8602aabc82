//! Requests of a higher priority depart first, in all processes.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::future::join_all;
use http::{Request, Response};
use support::redis_server::RedisServer;
use support::spend::build;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, sleep, timeout};
use tower::{Layer as _, Service, ServiceExt as _, service_fn};
use tower_throttle::rules::{KeyPart, Rule, Rules};
use tower_throttle::store::{MemoryStore, Store};
use tower_throttle::test_util::FailingStore;
use tower_throttle::test_util::history::History;
use tower_throttle::{
    BuildError, ErrorKind, FailureMode, Limiter, Priority, Quota, Share, ThrottleLayer, key,
};

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

/// The order in which requests of these tenants depart that arrive at the same time, under a quota of one.
async fn tenants<S>(service: S, mut departures: UnboundedReceiver<char>) -> String
where
    S: Service<Request<()>> + Clone + Send + 'static,
    S::Future: Send,
    S::Response: Send,
    S::Error: Send,
{
    let tenants = "aaaaaaabbb";
    for tenant in tenants.chars() {
        let request = Request::get("https://a/").header("x-tenant", tenant.to_string());
        let request = request.body(()).expect("a request");
        tokio::spawn(service.clone().oneshot(request));
        sleep(SECOND / 100).await;
    }
    let mut order = String::new();
    for _ in tenants.chars() {
        order.extend(departures.recv().await);
    }
    order
}

fn tenant<Q>(request: &Request<Q>) -> Option<&str> {
    request.headers().get("x-tenant")?.to_str().ok()
}

#[tokio::test(start_paused = true)]
async fn adapters_and_rules_read_the_share_of_a_request() {
    let recorder = || {
        let (departed, departures) = unbounded_channel();
        let service = service_fn(move |request: Request<()>| {
            let tenant = tenant(&request).and_then(|it| it.chars().next());
            departed
                .send(tenant.expect("a tenant"))
                .expect("a receiver");
            async { Ok::<_, Infallible>(Response::new(String::new())) }
        });
        (service, departures)
    };
    let store = || FailingStore::new(MemoryStore::new());
    let one = || limiter(Quota::per_second(1), store());
    let share = |request: &Request<()>| Some(Share::new(tenant(request)?, 1));
    // The first departs at once. Then one of each tenant departs in two seconds.
    let is_fair = |order: &str| order[..7].matches('b').count() == 3;

    let (service, departures) = recorder();
    let plain = ThrottleLayer::new(one()).layer(service);
    assert_eq!(tenants(plain, departures).await, "aaaaaaabbb");

    let (service, departures) = recorder();
    let layered = ThrottleLayer::new(one()).share(share).layer(service);
    let order = tenants(layered, departures).await;
    assert!(is_fair(&order), "{order}");

    let (service, departures) = recorder();
    let inner = ThrottleLayer::new(one()).layer(service);
    let extended = tower::util::MapRequest::new(inner, move |mut request: Request<()>| {
        let share = share(&request).expect("a tenant");
        request.extensions_mut().insert(share);
        request
    });
    let order = tenants(extended, departures).await;
    assert!(is_fair(&order), "{order}");

    let (service, departures) = recorder();
    let inbound = ThrottleLayer::new(one())
        .inbound(key::constant("a"), FailureMode::Closed)
        .max_wait(60 * SECOND)
        .share(share)
        .layer(service);
    let order = tenants(inbound, departures).await;
    assert!(is_fair(&order), "{order}");

    let (service, departures) = recorder();
    let rule = Rule::named("all").quota(Quota::per_second(1));
    let rule = rule.share(KeyPart::Header("x-tenant".into())).weight(3);
    let rules = Rules::new([rule]).expect("rules");
    let ruled = build(Limiter::builder().rules(rules).store(store()));
    let order = tenants(ThrottleLayer::new(ruled).layer(service), departures).await;
    assert!(is_fair(&order), "{order}");
}

#[tokio::test(start_paused = true)]
async fn rules_set_the_priority_and_the_reserve() {
    let quota = Quota::per_second(1);
    let rule = Rule::named("all").quota(quota).reserve(Priority::Low, 0.25);
    let rules = Rules::new([rule.priority(Priority::Low)]).expect("rules");
    let limiter = build(Limiter::builder().rules(rules).store(MemoryStore::new()));
    assert_eq!(limiter.policy().reserved(Priority::Low), 0.25);
    let (departed, mut departures) = unbounded_channel();
    let service = service_fn(move |request: Request<&'static str>| {
        departed.send(*request.body()).expect("a receiver");
        async { Ok::<_, Infallible>(Response::new(String::new())) }
    });
    let service = ThrottleLayer::new(limiter).layer(service);
    let request = |name, priority: Option<Priority>| {
        let mut request = Request::get("https://a/").body(name).expect("a request");
        request.extensions_mut().extend(
            priority
                .map(|it| {
                    let mut own = http::Extensions::new();
                    own.insert(it);
                    own
                })
                .unwrap_or_default(),
        );
        request
    };
    tokio::spawn(service.clone().oneshot(request("first", None)));
    sleep(SECOND / 100).await;
    for _ in 0..4 {
        tokio::spawn(service.clone().oneshot(request("low", None)));
    }
    for _ in 0..12 {
        let high = request("high", Some(Priority::High));
        tokio::spawn(service.clone().oneshot(high));
    }
    let mut order = Vec::new();
    for _ in 0..13 {
        order.extend(departures.recv().await);
    }
    let low = order.iter().filter(|it| **it == "low").count();
    assert!((2..=4).contains(&low), "{order:?}");
}

#[tokio::test(start_paused = true)]
async fn weights_and_reserves_that_cannot_hold_are_refused() {
    let limiter = limiter(Quota::per_second(1), MemoryStore::new());
    for weight in [0, 65_536] {
        let error = limiter.acquire("a").share("b", weight).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidShare);
        let problem =
            format!("the share \"b\" has the weight {weight}, which is not from 1 to 65,535");
        assert_eq!(error.to_string(), problem);
        let error = limiter.peek("a").share("b", weight).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidShare);
        let error = limiter
            .try_acquire("a")
            .share("b", weight)
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidShare);
    }
    let reserve = |parts: &[(Priority, f64)]| -> Result<_, BuildError> {
        let builder = Limiter::builder().quota(Quota::per_second(1));
        let parts = parts.iter().copied();
        parts
            .fold(builder, |it, (priority, part)| it.reserve(priority, part))
            .build()
    };
    let (low, lowest) = (Priority::Low, Priority::Lowest);
    for (parts, problem) in [
        (&[(low, -0.1)][..], "reserve: -0.1 is not from 0 to 1"),
        (&[(low, 1.5)], "reserve: 1.5 is not from 0 to 1"),
        (&[(low, f64::NAN)], "reserve: NaN is not from 0 to 1"),
        (
            &[(low, 0.75), (lowest, 0.5)],
            "reserve: 1.25 is reserved in all, which is more than 1",
        ),
    ] {
        assert_eq!(reserve(parts).unwrap_err().to_string(), problem);
    }
    assert!(reserve(&[(low, 0.7), (lowest, 0.3)]).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_refund_of_one_share_goes_to_all_others() {
    let quota = Quota::new(100, SECOND * 10);
    let limiter = limiter(quota, FailingStore::new(MemoryStore::new()));
    let big = limiter.acquire("a").share("big", 1).cost(90).await;
    let charge = big.expect("a permit").into_charge();
    let (departed, mut departures) = unbounded_channel();
    for _ in 0..100 {
        for share in ["b", "c"] {
            let (acquire, departed) = (limiter.acquire("a").share(share, 1), departed.clone());
            tokio::spawn(async move {
                acquire.await.expect("a permit");
                departed.send(share).expect("a receiver");
            });
        }
    }
    sleep(SECOND).await;
    let early = std::iter::from_fn(|| departures.try_recv().ok()).count();
    assert_eq!(early, 10);
    charge.refund();
    sleep(SECOND).await;
    let freed: Vec<_> = std::iter::from_fn(|| departures.try_recv().ok()).collect();
    let of_b = freed.iter().filter(|share| **share == "b").count();
    assert_eq!(freed.len(), 90);
    assert!((40..=50).contains(&of_b), "{of_b} of 90");
}

/// The part that requests of a low priority get under a flood of others, in what they cost in the end.
#[tokio::test(start_paused = true)]
async fn a_reserve_holds_where_costs_are_corrected_and_permits_are_given_back() {
    for gives_back in [false, true] {
        let builder = Limiter::builder().quota(Quota::per_second(50));
        let builder = builder.reserve(Priority::Low, 0.1);
        let limiter = build(builder.store(FailingStore::new(MemoryStore::new())));
        let (departed, mut departures) = unbounded_channel();
        for _ in 0..3_000 {
            let (acquire, departed) = (limiter.acquire("a"), departed.clone());
            tokio::spawn(async move {
                acquire.priority(Priority::High).await.expect("a permit");
                departed.send((Priority::High, 1)).expect("a receiver");
            });
        }
        for nth in 0..1_000 {
            let (acquire, departed) = (limiter.acquire("a").cost(2), departed.clone());
            tokio::spawn(async move {
                let permit = acquire.priority(Priority::Low).await.expect("a permit");
                if gives_back && nth % 2 == 0 {
                    return permit.forfeit();
                }
                sleep(SECOND / 20).await;
                permit
                    .into_charge()
                    .settle("requests", 1)
                    .expect("a correction");
                departed.send((Priority::Low, 1)).expect("a receiver");
            });
        }
        sleep(SECOND * 30).await;
        let (mut low, mut all) = (0, 0);
        while let Ok((priority, cost)) = departures.try_recv() {
            all += cost;
            low += cost * u32::from(priority == Priority::Low);
        }
        let part = f64::from(low) / f64::from(all);
        assert!((0.07..=0.13).contains(&part), "{gives_back}: {part}");
    }
}

/// A server refuses requests of lower levels and of shares that use more than their part first.
#[tokio::test(start_paused = true)]
async fn a_server_refuses_first_what_would_wait_longest() {
    let layer = ThrottleLayer::new(limiter(Quota::per_second(10), MemoryStore::new()));
    let layer = layer.inbound(key::constant("a"), FailureMode::Closed);
    let layer = layer.max_wait(SECOND * 21 / 10);
    let service = service_fn(|_: Request<(Priority, &'static str)>| async {
        Ok::<_, Infallible>(Response::new(String::new()))
    });
    let service = layer
        .priority(|request: &Request<(Priority, &str)>| request.body().0)
        .share(|request: &Request<(Priority, &str)>| Some(Share::new(request.body().1, 1)))
        .layer(service);
    let mut answers = Vec::new();
    let mut send = |priority, share, count| {
        for _ in 0..count {
            let request = Request::get("/")
                .body((priority, share))
                .expect("a request");
            let answer = tokio::spawn(service.clone().oneshot(request));
            answers.push((priority, share, answer));
        }
    };
    // Three times as much as can depart in time.
    send(Priority::Low, "c", 30);
    sleep(SECOND / 100).await;
    send(Priority::Normal, "a", 50);
    sleep(SECOND / 100).await;
    send(Priority::Normal, "b", 5);
    send(Priority::High, "c", 5);
    let mut refused = Vec::new();
    for (priority, share, answer) in answers {
        let answer = answer.await.expect("no panic").expect("an answer");
        if answer.status() != 200 {
            refused.push((priority, share));
        }
    }
    let count = |priority, share| {
        refused
            .iter()
            .filter(|it| **it == (priority, share))
            .count()
    };
    assert_eq!(count(Priority::High, "c"), 0, "{refused:?}");
    assert_eq!(count(Priority::Normal, "b"), 0, "{refused:?}");
    assert_eq!(count(Priority::Low, "c"), 20, "{refused:?}");
    assert!(count(Priority::Normal, "a") >= 30, "{refused:?}");
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
