//! The calls of an inbound service to the service inside, in paused time, without a server.

use std::pin::pin;

use http_body_util::BodyExt as _;
use tower_test::mock;
use tower_throttle::key::{Extracted, KeyExtractor, header};

use crate::client::served;
use crate::limiter::{self, GUARD};
use crate::prelude::*;
use crate::tower_contract::settle;

fn per_second(limit: u32) -> Limiter {
    build(limiter::per_second(limit))
}

fn inbound(limiter: &Limiter) -> InboundLayer<Key> {
    ThrottleLayer::new(limiter.clone()).inbound(key::constant("all"), FailureMode::Closed)
}

/// How many more may depart, once what is given back has come to the store.
async fn remaining(limiter: &Limiter) -> u32 {
    settle().await;
    limiter.peek("all").await.expect("an answer").remaining()
}

#[tokio::test(start_paused = true)]
async fn a_departure_that_expires_while_the_service_gets_ready_can_be_taken_by_another() {
    for (is_taken, observes, status) in [(false, false, 200), (true, false, 429), (true, true, 200)]
    {
        let limiter = per_second(1);
        let (mock, mut handle) = mock::pair::<Request<u32>, Response<String>>();
        let layer = inbound(&limiter);
        let mut service = match observes {
            true => layer.observe_only().layer(mock),
            false => layer.layer(mock),
        };
        handle.allow(0);
        let mut response = Box::pin(service.call(Request::new(1)));
        assert!(poll!(&mut response).is_pending());
        assert_eq!(remaining(&limiter).await, 0);
        sleep(GUARD * 2).await;
        assert!(poll!(&mut response).is_pending());
        assert_eq!(remaining(&limiter).await, 1);
        if is_taken {
            let other = limiter.try_acquire("all").await.expect("a decision");
            assert!(other.is_granted());
        }
        handle.allow(1);
        let response = tokio::spawn(response);
        if status == 200 {
            let (_, respond) = handle.next_request().await.expect("a call");
            assert_eq!(remaining(&limiter).await, 0);
            respond.send_response(Response::default());
        }
        let response = response.await.expect("no panic").expect("no error");
        assert_eq!(response.status(), status, "{is_taken}, {observes}");
        assert!(poll!(Box::pin(handle.next_request())).is_pending());
    }
}

#[tokio::test(start_paused = true)]
async fn the_error_of_the_service_stays_what_it_is_and_its_request_counts() {
    let limiter = per_second(3);
    let broken = service_fn(|_: Request<u32>| async { Err::<Response<String>, _>("broken") });
    let service = inbound(&limiter).charge_when(|_| false).layer(broken);
    assert_eq!(service.oneshot(Request::new(1)).await.err(), Some("broken"));
    assert_eq!(remaining(&limiter).await, 2);
}

#[tokio::test(start_paused = true)]
async fn each_request_spends_its_cost() {
    let limiter = per_second(10);
    let layer = inbound(&limiter).cost(|request: &Request<u32>| *request.body());
    let service = layer.layer(service_fn(served));
    for (cost, status, left) in [
        (1, 200, 9),
        (5, 200, 4),
        (0, 400, 4),
        (11, 400, 4),
        (5, 429, 4),
    ] {
        let answer = service.clone().oneshot(Request::new(cost)).await;
        let answer = answer.expect("infallible");
        assert_eq!(answer.status(), status);
        let detail = format!("a cost of {cost} ");
        assert_eq!(answer.body().get_ref().contains(&detail), status == 400);
        assert_eq!(remaining(&limiter).await, left);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_lacks_a_credential_gets_401_and_of_one_there_is_one() {
    type Extractor = Arc<dyn KeyExtractor<Request<()>> + Send + Sync>;
    let missing = |_: &Request<()>| Extracted::Refused("no user".into());
    let get = || Request::get("/");
    let twice = || get().header("x-api-key", "a").header("x-api-key", "b");
    let api_key = || header("x-api-key");
    let [bearer, by_api_key, cookie] = ["Bearer", "ApiKey", "Cookie"].map(Some);
    let rule = Rule::named("a").quota(Quota::per_second(1));
    let rules = Rules::new([rule.key(KeyPart::BearerToken)]).expect("rules");
    let ruled = build(Limiter::builder().rules(rules));
    let rows: [(Extractor, _, u16, Option<&str>); 14] = [
        (Arc::new(ruled.by_rules()), get(), 401, bearer),
        (Arc::new(key::bearer_token()), get(), 401, bearer),
        (Arc::new(header("authorization")), get(), 401, bearer),
        (Arc::new(api_key()), get(), 401, by_api_key),
        (Arc::new(header("cookie").plain()), get(), 401, cookie),
        (Arc::new((missing, api_key())), get(), 401, by_api_key),
        (Arc::new(header("x-client")), get(), 400, None),
        (Arc::new((missing, key::constant("a"))), get(), 400, None),
        (Arc::new(missing), get(), 400, None),
        (Arc::new(key::constant("")), get(), 400, None),
        (Arc::new(key::client_ip()), get(), 500, None),
        (Arc::new(api_key()), twice(), 400, None),
        (Arc::new(api_key().or("anonymous")), twice(), 400, None),
        (Arc::new(api_key().or("anonymous")), get(), 200, None),
    ];
    for (nth, (extractor, request, status, scheme)) in rows.into_iter().enumerate() {
        let layer = ThrottleLayer::new(per_second(1)).inbound(extractor, FailureMode::Closed);
        let service = layer.layer(service_fn(served));
        let answer = service.oneshot(request.body(()).expect("a request")).await;
        let answer = answer.expect("infallible");
        assert_eq!(answer.status(), status, "{nth}");
        let named = answer.headers().get("www-authenticate");
        assert_eq!(named.map(|it| it.to_str().expect("ASCII")), scheme);
        let has_detail = answer.body().get_ref().contains(r#""detail":"#);
        assert_eq!(has_detail, matches!(status, 400 | 401), "{nth}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_is_full_is_a_limit() {
    let builder = Limiter::builder().quota(Quota::per_hour(1)).max_waiting(2);
    let layer = inbound(&build(builder)).max_wait(5 * 3_600 * SECOND);
    let service = layer.layer(service_fn(served));
    let mut sent = [1, 2, 3].map(|it| Box::pin(service.clone().oneshot(Request::new(it))));
    assert!(poll!(&mut sent[0]).is_ready());
    assert!(poll!(&mut sent[1]).is_pending() && poll!(&mut sent[2]).is_pending());
    let refused = service.clone().oneshot(Request::new(4)).await;
    let refused = refused.expect("infallible");
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    let after = refused.headers()["retry-after"].to_str().expect("ASCII");
    // Behind the departure and the requests that wait. The estimate may be early.
    let after: u64 = after.parse().expect("a number");
    assert!((3_600..3 * 3_600 + 5).contains(&after), "{after}");
}

#[tokio::test(start_paused = true)]
async fn the_failure_mode_decides_on_requests_that_the_outage_policy_does_not() {
    use FailureMode::{Closed, Open};
    use Fault::{Refusal, Unreachable};
    let half = Outage::Local { share: 0.5 };
    for (mode, outage, fault, expected) in [
        (Open, Outage::Deny, Unreachable, [200; 3]),
        (Closed, Outage::Deny, Unreachable, [503; 3]),
        (Open, half, Unreachable, [200, 429, 429]),
        (Closed, half, Unreachable, [200, 429, 429]),
        (Closed, Outage::Allow, Unreachable, [200; 3]),
        (Open, half, Refusal, [200; 3]),
        (Closed, Outage::Allow, Refusal, [503; 3]),
    ] {
        let store = FailingStore::new(MemoryStore::new());
        store.fail_with(fault);
        let builder = Limiter::builder().quota(Quota::per_hour(2)).store(store);
        let layer = ThrottleLayer::new(build(builder.outage(outage)));
        let (reported, served) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (reports, calls) = (reported.clone(), served.clone());
        let layer = layer.inbound(key::header("x-client"), mode);
        let layer = layer.on_refused(move |_| {
            reports.fetch_add(1, Ordering::Relaxed);
        });
        let service = layer.layer(service_fn(move |_: Request<()>| {
            calls.fetch_add(1, Ordering::Relaxed);
            async { Ok::<_, Infallible>(Response::new(String::new())) }
        }));
        let request = || Request::get("/").header("x-client", "a");
        for status in expected {
            let response = service.clone().oneshot(request().body(()).unwrap());
            let response = response.await.expect("infallible");
            assert_eq!(response.status(), status, "{mode:?}, {outage:?}, {fault:?}");
            let refused: Option<&Refused> = response.extensions().get();
            let departure: Option<&Departure> = response.extensions().get();
            assert_eq!(refused.is_none(), departure.is_some());
            if let Some(refused) = refused {
                assert_eq!(refused.is_enforced(), status != 200);
                assert_eq!(refused.error().is_store(), status != 429);
            }
            if status == 503 {
                let problem = r#"{"title":"Service Unavailable","status":503}"#;
                assert_eq!(response.body().get_ref(), problem);
                assert!(!response.headers().contains_key("retry-after"));
            }
        }
        // A request without a key is refused in both modes.
        let response = service.oneshot(Request::new(())).await.expect("infallible");
        assert_eq!(response.status(), StatusCode::BAD_REQUEST);
        let passed = expected.iter().filter(|&&status| status == 200).count();
        assert_eq!(served.load(Ordering::Relaxed) as usize, passed);
        let departed = if fault == Refusal || outage == Outage::Deny {
            0
        } else {
            passed
        };
        assert_eq!(reported.load(Ordering::Relaxed) as usize, 4 - departed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_follows_the_headers_uses_the_quota() {
    for quota in ["10/s", "10/s spacing", "10/s gcra burst=10"] {
        let limiter = || build(Limiter::builder().quota(quota.parse().expect("a quota")));
        let server = inbound(&limiter()).layer(service_fn(served::<()>));
        let layer = ThrottleLayer::new(limiter()).key(key::constant("all"));
        let (client, mut sent) = (layer.layer(server), 0);
        let flood = async {
            loop {
                let answer = client.clone().oneshot(Request::new(())).await;
                sent += u32::from(answer.expect("an answer").status() == StatusCode::OK);
            }
        };
        let flood: Result<(), _> = timeout(20 * SECOND, flood).await;
        flood.expect_err("it goes on");
        assert!(sent >= 180, "{quota}: {sent}");
    }
}

#[test]
fn outside_of_a_runtime_a_service_gets_ready_and_a_body_ends() {
    let (mock, mut handle) = mock::pair::<_, Response<String>>();
    let service = inbound(&per_second(1)).layer(mock);
    handle.allow(0);
    let mut response = pin!(service.oneshot(Request::new(())));
    assert!(response.as_mut().now_or_never().is_none());
    handle.allow(1);
    assert!(response.now_or_never().is_none());
    let call = handle.next_request().now_or_never();
    call.expect("at once").expect("a call");

    let builder = Limiter::builder().quota(Quota::concurrent(1));
    let service = inbound(&build(builder.lost(Lost::Abort))).layer(service_fn(served));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let response = runtime.block_on(service.oneshot(Request::new(())));
    let body = response.expect("no error").into_body().collect();
    body.now_or_never().expect("an end").expect("a body");
}
