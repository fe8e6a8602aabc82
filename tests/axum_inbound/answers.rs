//! The answers of a server: to refused requests, where a limit only observes, where only failures count, and in a flood.

use std::net::Ipv6Addr;

use axum::Extension;
use axum::extract::{Path, Request, State};
use axum::routing::get;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Semaphore;
use tower_throttle::key::KeyExtractor;

use crate::axum_inbound::server::{Client, by_client, limiter};
use crate::prelude::*;

const FIELDS: [&str; 6] = [
    "ratelimit-policy",
    "ratelimit",
    "retry-after",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
];

fn hello<K>(layer: InboundLayer<K>) -> Router
where
    K: KeyExtractor<Request> + Clone + Send + Sync + 'static,
{
    Router::new().route("/", get(async || "hello")).layer(layer)
}

#[tokio::test]
async fn over_the_limit_it_answers_429_and_says_until_when() {
    let builder = Limiter::builder().name("api").quota(Quota::per_minute(2));
    let app = hello(by_client(&build(builder.quota(Quota::per_hour(3)))));
    let client = Client::new(&app, "a");
    for remaining in [1, 0] {
        let answer = client.get("/").await;
        assert_eq!((answer.status, &answer.body[..]), (StatusCode::OK, "hello"));
        // Joint quotas leave the time out, as another quota than the tightest may have it.
        assert_eq!(answer.rate_limit(), ("api", remaining, 0));
        assert!(!answer.has("retry-after"));
    }
    let refused = client.get("/").await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    let (name, r, t) = refused.rate_limit();
    assert_eq!((name, r), ("api", 0));
    assert!((50..=61).contains(&t), "{t}");
    assert_eq!(refused.number("retry-after"), t);
    let problem = json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Quota Exceeded",
        "status": 429,
        "violated-policies": ["api"],
    });
    assert_eq!(refused.problem(), problem);

    let policies = r#""api";q=2, "api:2/m";q=2;w=60, "api:3/h";q=3;w=3600"#;
    assert_eq!(refused.text("ratelimit-policy"), policies);
    assert_eq!(Client::new(&app, "b").get("/").await.status, StatusCode::OK);
}

#[tokio::test]
async fn the_answer_names_the_unit_that_is_exhausted_and_a_pause_is_not_busy() {
    let tokens = Quota::per_hour(100).unit("tokens");
    let builder = Limiter::builder().name("api").quota(Quota::per_hour(60));
    let layer = by_client(&build(builder.quota(tokens)));
    let app = hello(layer.cost(|_: &Request<Body>| ("tokens", 60)));
    let client = Client::new(&app, "a");
    client.get("/").await;
    let refused = client.get("/").await;
    let problem = refused.problem();
    assert_eq!(problem["violated-policies"], json!(["api:tokens"]));

    let limiter = limiter(Quota::concurrent(2));
    let until = tokio::time::Instant::now() + Duration::from_secs(30);
    limiter.pause("a", until).await.expect("a pause");
    let refused = Client::new(&hello(by_client(&limiter)), "a").get("/").await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn each_kind_of_header_can_be_switched() {
    for (rate_limit, retry_after, x) in [
        (true, true, true),
        (true, false, false),
        (false, true, false),
        (false, false, true),
    ] {
        let quota = "2/h fixed-window start=first-request".parse();
        let layer = by_client(&limiter(quota.expect("a quota")))
            .rate_limit_headers(rate_limit)
            .retry_after(retry_after)
            .x_rate_limit_headers(x);
        let client = Client::new(&hello(layer), "a");
        let granted = client.get("/").await;
        client.get("/").await;
        let refused = client.get("/").await;
        for (answer, retry_after, remaining) in [(granted, false, 1), (refused, retry_after, 0)] {
            let has = FIELDS.map(|name| answer.has(name));
            assert_eq!(has, [rate_limit, rate_limit, retry_after, x, x, x]);
            if x {
                assert_eq!(answer.number("x-ratelimit-limit"), 2);
                assert_eq!(answer.number("x-ratelimit-remaining"), remaining);
                let reset = answer.number("x-ratelimit-reset");
                assert!((3_590..=3_602).contains(&reset), "{reset}");
            }
        }
    }
}

#[tokio::test]
async fn a_closure_answers_instead_and_the_headers_stay() {
    let inner = by_client(&limiter(Quota::per_hour(10))).cost(|_: &Request<Body>| 6);
    let inner = inner.refusal(|refused: &Refused| {
        let (policy, key) = (refused.policy(), refused.key().expect("a key"));
        assert!(refused.error().is_limited() && refused.delay().is_some());
        let text = format!("{} {key}", policy.label());
        let response = Response::builder().status(StatusCode::SERVICE_UNAVAILABLE);
        response.body(Body::from(text)).expect("a response")
    });
    let outer = by_client(&limiter(Quota::per_hour(9))).rate_limit_headers(false);
    let app = Router::new().route("/", get(async || "hello"));
    let app = app.layer(tower::ServiceBuilder::new().layer(outer).layer(inner));
    let client = Client::new(&app, "a");
    client.get("/").await;
    let refused = client.get("/").await;
    let answer = (refused.status, &*refused.body);
    assert_eq!(answer, (StatusCode::SERVICE_UNAVAILABLE, "10/h a"));
    let after = refused.number("retry-after");
    assert_eq!(refused.rate_limit(), ("10/h", 4, after));
}

#[tokio::test]
async fn without_a_key_it_answers_400_and_the_reason_unless_that_is_exempt() {
    let client = |key| {
        let layer =
            ThrottleLayer::new(limiter(Quota::per_hour(1))).inbound(key, FailureMode::Closed);
        Client::new(&hello(layer.x_rate_limit_headers(true)), None)
    };
    let answer = client(key::header("x-client")).get("/").await;
    let detail = "the request has no x-client header";
    let problem = json!({ "title": "Bad Request", "status": 400, "detail": detail });
    assert_eq!(answer.problem(), problem);
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert!(!answer.has("ratelimit") && !answer.has("retry-after"));
    assert!(answer.has("ratelimit-policy"));

    let exempt = client(key::header("x-client").or_exempt());
    for _ in 0..5 {
        let answer = exempt.get("/").await;
        assert_eq!(answer.status, StatusCode::OK);
        assert!(FIELDS.iter().all(|name| !answer.has(name)));
    }
}

/// Tells whether the request that reached it would have been refused.
async fn verdict(refused: Option<Extension<Refused>>) -> String {
    match refused {
        Some(Extension(refused)) => {
            assert!(!refused.is_enforced());
            refused.error().to_string()
        }
        None => "granted".to_owned(),
    }
}

type Reports = Arc<Mutex<Vec<String>>>;

/// A server with this layer, and the keys of the requests that it reports.
fn observed<K>(layer: InboundLayer<K>) -> (Router, Reports)
where
    K: KeyExtractor<Request> + Clone + Send + Sync + 'static,
{
    let reports = Reports::default();
    let push = reports.clone();
    let layer = layer.on_refused(move |refused: &Refused| {
        let key = refused.key().map(ToString::to_string).unwrap_or_default();
        push.lock().expect("no panic").push(key);
    });
    (Router::new().route("/", get(verdict)).layer(layer), reports)
}

#[tokio::test]
async fn nothing_is_refused_and_everything_is_reported_that_is_not_exempt() {
    let layer = by_client(&limiter(Quota::per_hour(2)));
    let layer = layer.max_wait(Duration::from_secs(100_000));
    let (app, reports) = observed(layer.observe_only().rate_limit_headers(true));
    let client = Client::new(&app, "a");
    for number in 0..6 {
        let answer = client.get("/").await;
        assert_eq!(answer.status, StatusCode::OK);
        let departed = answer.extensions.get::<Departure>().is_some();
        let status = answer.extensions.get().map(Refused::status);
        assert_eq!([answer.body == "granted", departed], [number < 2; 2]);
        let limited = StatusCode::TOO_MANY_REQUESTS;
        assert_eq!(status, (number >= 2).then_some(limited));
        // The headers are those of a layer that refuses.
        let (_, r, t) = answer.rate_limit();
        assert_eq!(r, u64::from(number == 0));
        let within = if number < 2 { 0..=0 } else { 3_590..=3_601 };
        assert!(within.contains(&t), "{t}");
        assert!(!answer.has("retry-after"));
    }
    assert_eq!(*reports.lock().expect("no panic"), ["a"; 4]);

    let answer = Client::new(&app, None).get("/").await;
    assert_eq!(answer.status, StatusCode::OK, "also without a key");
    assert_eq!(reports.lock().expect("no panic").len(), 5);
    let layer = ThrottleLayer::new(limiter(Quota::per_hour(1)));
    let exempt = |_: &http::Request<Body>| None::<String>;
    let (app, reports) = observed(layer.inbound(exempt, FailureMode::Closed).observe_only());
    for _ in 0..3 {
        assert_eq!(Client::new(&app, "a").get("/").await.body, "granted");
    }
    assert!(reports.lock().expect("no panic").is_empty());
}

const FAILURES: u32 = 3;

/// A login whose answers wait until it is open.
struct Login {
    open: Semaphore,
    attempts: AtomicUsize,
}

/// The password is the word "right".
async fn login(State(login): State<Arc<Login>>, Path(password): Path<String>) -> StatusCode {
    login.attempts.fetch_add(1, Ordering::SeqCst);
    let _open = login.open.acquire().await.expect("never closed");
    match &*password {
        "right" => StatusCode::OK,
        _ => StatusCode::UNAUTHORIZED,
    }
}

/// A client of a login that answers so many attempts at once, and of which only failures count.
fn client(quota: Quota, permits: usize) -> (Client, Arc<Login>) {
    let state = Arc::new(Login {
        open: Semaphore::new(permits),
        attempts: AtomicUsize::new(0),
    });
    let failed = |head: &http::response::Parts| head.status == StatusCode::UNAUTHORIZED;
    let app = Router::new()
        .route("/login/{password}", get(login))
        .with_state(state.clone())
        .layer(by_client(&limiter(quota)).charge_when(failed));
    (Client::new(&app, "a"), state)
}

#[tokio::test]
async fn only_failed_logins_count() {
    let (client, _) = client(Quota::per_hour(FAILURES), 100);
    let status = async |path| client.get(path).await.status;
    for _ in 0..FAILURES {
        for _ in 0..4 {
            assert_eq!(status("/login/right").await, StatusCode::OK);
        }
        assert_eq!(status("/login/wrong").await, StatusCode::UNAUTHORIZED);
    }
    assert_eq!(status("/login/right").await, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn attempts_at_the_same_time_are_no_more_than_the_limit() {
    let (client, login) = client(Quota::per_hour(FAILURES), 0);
    let mut attempts: FuturesUnordered<_> = (0..10).map(|_| client.get("/login/wrong")).collect();
    let failures = FAILURES as usize;
    for _ in failures..10 {
        let answer = attempts.next().await.expect("an attempt");
        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    }
    login.open.add_permits(failures);
    while let Some(answer) = attempts.next().await {
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    }
    assert_eq!(login.attempts.load(Ordering::SeqCst), failures);
}

#[tokio::test]
async fn an_attempt_whose_client_hangs_up_counts() {
    let (client, login) = client(Quota::per_hour(FAILURES), 0);
    for attempt in 1..=FAILURES as usize {
        let mut attempting = Box::pin(client.get("/login/wrong"));
        assert!(poll!(&mut attempting).is_pending());
        assert_eq!(login.attempts.load(Ordering::SeqCst), attempt);
    }
    let answer = client.get("/login/right").await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test(start_paused = true)]
async fn memory_is_bounded_under_a_flood_of_addresses() {
    const PER_SECOND: u64 = 10_000;
    let store = MemoryStore::new();
    let builder = Limiter::builder().quota(Quota::per_second(1));
    let limiter = build(builder.store(store.clone()));
    for client in 0..200_000 {
        let address = Ipv6Addr::from(u128::from(client));
        let permit = limiter.acquire(address.to_string()).await;
        permit.expect("a permit");
        if client % PER_SECOND == 0 {
            tokio::time::advance(Duration::from_secs(1)).await;
            let keys = store.key_count() as u64;
            // The keys of two seconds, and as many that were not swept yet.
            assert!(keys <= PER_SECOND * 4 + 2_048, "{keys} keys");
        }
    }
    assert_eq!(limiter.queues(), 0);
    // Without new keys, the others are dropped within a minute.
    for _ in 0..2 {
        for client in 0..1_000 {
            limiter.acquire(client.to_string()).await.expect("a permit");
        }
        tokio::time::advance(Duration::from_secs(61)).await;
    }
    assert!(store.key_count() <= 1_000, "{} keys", store.key_count());
}
