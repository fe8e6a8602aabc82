//! Limits in several units, and costs that are corrected after the departure.

use support::redis_server::connect;

use crate::prelude::*;

mod adapters;

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

/// Limiters of 10 requests and 100 tokens per minute: on the embedded store, on one that is asked by the dispatcher, and on
/// Redis with scripts and without.
async fn on_each_store<F: Future>(redis: &RedisServer, test: impl Fn(Limiter) -> F) {
    let minute = || under(&["10/m", "100/m unit=tokens"]);
    let scripts = redis.store().await;
    let plain = scripts.clone().prefix("transactions").expect("a prefix");
    let plain = plain.scripting(false).expect("a store");
    for limiter in [
        build(minute()),
        build(minute().store(FailingStore::new(MemoryStore::new()))),
        build(minute().store(scripts)),
        build(minute().store(plain)),
    ] {
        test(limiter).await;
    }
}

/// A request that waits departs at once when another costs less in the end, and then not more do.
#[tokio::test]
async fn quotas_are_taken_together_and_requests_wait_only_for_units_in_which_they_cost_something() {
    let redis = RedisServer::start();
    on_each_store(&redis, async |limiter| {
        let attempt = |tokens| limiter.acquire("a").cost_of("tokens", tokens).now();
        let permit = attempt(80).await.unwrap().permit().expect("a permit");
        let charge = permit.into_charge();
        assert!(!attempt(60).await.unwrap().is_granted());
        assert_eq!(left(&limiter).await, (9, Some(20)));
        let free = Cost::from(2).of("tokens", 0);
        let free = limiter.acquire("a").cost(free).now().await;
        assert!(free.unwrap().is_granted());
        assert_eq!(left(&limiter).await, (7, Some(20)));

        let waiting = [(); 5].map(|()| tokio::spawn(limiter.acquire("a").cost_of("tokens", 30)));
        sleep(SECOND / 5).await;
        for _ in 0..6 {
            let free = limiter.acquire("a").cost_of("tokens", 0);
            bounded(free).await.expect("a permit");
        }
        assert!(!attempt(0).await.unwrap().is_granted());
        assert_eq!(left(&limiter).await, (1, Some(20)));
        assert!(waiting.iter().all(|it| !it.is_finished()));

        charge.settle("tokens", 30).unwrap();
        let [first, others @ ..] = waiting;
        let departed = bounded(first).await.unwrap().expect("a permit");
        assert_eq!(departed.into_charge().cost_of("tokens"), Some(30));
        assert_eq!(left(&limiter).await, (0, Some(40)));
        others.iter().for_each(|it| it.abort());
    })
    .await;
}

/// Others, which need one unit each, take turns with it.
#[tokio::test(start_paused = true)]
async fn a_request_that_needs_two_units_is_not_starved() {
    let quota = |unit| Quota::new(1, 10 * SECOND).unit(unit);
    let builder = || Limiter::builder().quota(quota("a")).quota(quota("b"));
    let dispatched = builder().store(FailingStore::new(MemoryStore::new()));
    for limiter in [build(builder()), build(dispatched)] {
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
async fn what_cannot_be_charged_or_settled_says_why_and_records_nothing() {
    let redis = RedisServer::start();
    on_each_store(&redis, async |limiter| {
        let all = "the request names no cost in tokens, and the quota has no default cost
the request names a cost in bytes, and the quotas count requests, tokens
a cost of 0 is no request
a cost of 101 tokens can never depart, as the quotas hold 100";
        let bytes = Cost::default().of("bytes", 1);
        let none = Cost::from(0).of("tokens", 0);
        let many = Cost::default().of("tokens", 101);
        let costs = [Cost::default(), bytes, none, many];
        for (cost, problem) in costs.into_iter().zip(all.lines()) {
            let error = limiter.acquire("a").cost(cost).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidCost);
            assert_eq!(error.to_string(), problem);
        }
        assert_eq!(left(&limiter).await, (10, Some(100)));

        let charge = depart(&limiter, 40).await;
        let problem = |unit, cost| charge.settle(unit, cost).unwrap_err().to_string();
        let expected = "cannot settle bytes, as the quotas count requests, tokens";
        assert_eq!(problem("bytes", 1), expected);
        charge.settle("tokens", 30).unwrap();
        assert_eq!(problem("tokens", 20), "tokens were settled before");
        let again = charge.clone().settle_to(&Cost::from(0).of("tokens", 0));
        assert!(again.is_err());
        sleep(SECOND / 10).await;
        assert_eq!(left(&limiter).await, (9, Some(70)));
        charge.refund();
        // A look knows what was not sent yet.
        assert_eq!(left(&limiter).await, (10, Some(70)));
        let charge = depart(&limiter, 20).await;
        let tokens = Quota::new(100, 60 * SECOND).unit("tokens");
        let raised = Quota::new(11, 60 * SECOND);
        limiter.set_quotas([raised, tokens]).unwrap();
        charge.settle_to(&Cost::from(0).of("tokens", 10)).unwrap();
        sleep(SECOND / 10).await;
        assert_eq!(left(&limiter).await, (11, Some(60)));

        let charge = depart(&limiter, 40).await;
        let points = Quota::new(100, 60 * SECOND).unit("points").default_cost(1);
        limiter.set_quotas([points]).unwrap();
        assert_eq!(
            charge.settle("tokens", 1).unwrap_err().to_string(),
            "cannot settle tokens, as the quotas count differently since the request departed"
        );
        // The request departed under the quotas that hold no more.
        assert_eq!(charge.cost_of("tokens"), Some(40));
    })
    .await;
}

#[tokio::test]
async fn requests_that_wait_while_the_units_change_keep_what_they_cost() {
    let limiter = limiter(60 * SECOND, 1, 100, FailingStore::new(MemoryStore::new()));
    depart(&limiter, 10).await;
    let waits = |tokens| tokio::spawn(limiter.acquire("a").cost_of("tokens", tokens));
    let change = async |other: Quota| {
        sleep(SECOND / 5).await;
        let quotas = [Quota::per_minute(100).unit("tokens"), other];
        limiter.set_quotas(quotas).unwrap();
    };
    let both = waits(30);
    let other = |unit| Quota::per_minute(20).unit(unit);
    change(other("images").default_cost(2)).await;
    let charge = bounded(both).await.unwrap().unwrap().into_charge();
    assert_eq!(charge.cost_of("tokens"), Some(30));
    assert_eq!(charge.cost_of("images"), Some(2));

    let waits = waits(90);
    change(other("bytes")).await;
    let error = bounded(waits).await.unwrap().unwrap_err();
    let problem = "the request names no cost in bytes, and the quota has no default cost";
    assert_eq!(error.to_string(), problem);
}

/// A refund whose answer was lost is not repeated, and a debt is: the limiter only becomes stricter.
#[tokio::test]
async fn lost_answers_to_corrections_only_make_the_limiter_stricter() {
    let redis = RedisServer::start();
    let proxy = Proxy::start(redis.port());
    let store = connect(&proxy.url()).await;
    let limiter = limiter(60 * SECOND, 1_000, 10_000, store);
    for (estimate, actual, most) in [(500, 100, 500), (500, 900, 1_300)] {
        limiter.reset("a").await.unwrap();
        let charge = depart(&limiter, estimate).await;
        proxy.cut_reply(b"EVALSHA", 0);
        let cut = proxy.cut_replies();
        charge.settle("tokens", actual).unwrap();
        eventually("it is cut", async || proxy.cut_replies() > cut).await;
        sleep(SECOND).await;
        // On a busy machine, the outage that the cut began may last longer.
        let look = until_ok(async || limiter.peek("a").await).await;
        let used = 10_000 - look.remaining_of("tokens").unwrap();
        assert!((actual..=most).contains(&used), "{used} used of {actual}");
    }
}
