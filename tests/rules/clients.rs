//! Both adapters go by the rules of their limiter without another word.

use std::convert::Infallible;

use http::{Method, Request, Response, StatusCode};
use reqwest_middleware::ClientWithMiddleware;
use tower::{Layer as _, Service as _, ServiceExt as _, service_fn};
use tower_throttle::rules::{KeyPart, Rule};
use tower_throttle::tower::BoxError;
use tower_throttle::{Error, ErrorKind, Limiter, Quota, ThrottleLayer, ThrottleMiddleware, key};

use crate::rules::{get, limiter, per_hour, request, rules};
use support::upstream::Upstream;

/// Nobody waits, so that the next request over a limit is refused by it.
fn at_once(rule: Rule) -> Rule {
    rule.max_wait(std::time::Duration::ZERO)
}

fn table() -> Vec<Rule> {
    vec![
        at_once(
            per_hour("search", 2)
                .host("127.0.0.1")
                .path("/search/{*rest}"),
        ),
        Rule::exempt().path("/health"),
        at_once(
            per_hour("reports", 5)
                .method(Method::POST)
                .path("/reports")
                .cost(2),
        ),
        at_once(
            per_hour("users", 100)
                .quota(Quota::per_day(2))
                .path("/users/{id}"),
        )
        .key(KeyPart::Route),
        at_once(per_hour("others", 3)),
    ]
}

fn client(limiter: &Limiter) -> ClientWithMiddleware {
    let plain = reqwest::Client::builder().no_proxy().build();
    reqwest_middleware::ClientBuilder::new(plain.expect("a client"))
        .with(ThrottleMiddleware::new(limiter.clone()))
        .build()
}

/// The rule that refuses a request.
fn refused_by(error: &Error) -> Option<String> {
    assert!(error.is_limited(), "{error}");
    let name = error.policy_name().expect("a name").to_owned();
    assert!(
        error
            .to_string()
            .starts_with(&format!("`{name}`: rate limited")),
        "{error}"
    );
    Some(name)
}

async fn send(client: &ClientWithMiddleware, method: Method, url: String) -> Option<String> {
    match client.request(method, url).send().await {
        Ok(answer) => {
            assert_eq!(answer.status(), 200);
            None
        }
        Err(error) => refused_by(Error::find(&error).expect("an error of the limiter")),
    }
}

#[tokio::test]
async fn a_reqwest_client_goes_by_the_rules() {
    let upstream = Upstream::start().await;
    let client = client(&limiter(table()));
    let by = |rule: &str| Some(rule.to_owned());
    for (method, path, departing) in [
        (Method::GET, "/search/a", 2),
        (Method::POST, "/reports", 2),
        (Method::GET, "/users/1", 1),
        (Method::GET, "/users/2", 1),
        (Method::GET, "/", 3),
        (Method::GET, "/health", 20),
    ] {
        for _ in 0..departing {
            let url = upstream.uri() + path;
            assert_eq!(send(&client, method.clone(), url).await, None, "{path}");
        }
    }
    for (method, path, rule) in [
        (Method::GET, "/search/b", by("search")),
        (Method::POST, "/reports", by("reports")),
        (Method::GET, "/users/3", by("users")),
        (Method::GET, "/other", by("others")),
        (Method::GET, "/reports", by("others")),
        (Method::GET, "/health", None),
    ] {
        let url = upstream.uri() + path;
        assert_eq!(send(&client, method, url).await, rule, "{path}");
    }
    assert_eq!(upstream.history().len(), 2 + 2 + 2 + 3 + 20 + 1);
}

#[tokio::test]
async fn a_tower_service_goes_by_the_rules() {
    let limiter = limiter(table());
    let service = ThrottleLayer::new(limiter.clone()).layer(service_fn(|_: Request<()>| async {
        Ok::<_, Infallible>(Response::new(()))
    }));
    let send = async |method: Method, uri: &str| {
        let answer: Result<_, BoxError> = service.clone().oneshot(request(method, uri)).await;
        answer
            .err()
            .and_then(|it| refused_by(it.downcast_ref().expect("the limiter's")))
    };
    for _ in 0..2 {
        assert_eq!(send(Method::GET, "http://127.0.0.1/search/a").await, None);
        assert_eq!(send(Method::POST, "http://a.example/reports").await, None);
    }
    for _ in 0..10 {
        assert_eq!(
            send(Method::GET, "/health").await,
            None,
            "which needs no host, as it needs no key"
        );
    }
    let by = |rule: &str| Some(rule.to_owned());
    assert_eq!(
        send(Method::GET, "http://127.0.0.1/search/b").await,
        by("search")
    );
    assert_eq!(
        send(Method::POST, "http://a.example/reports").await,
        by("reports")
    );
    assert_eq!(
        send(Method::GET, "http://a.example/search/b").await,
        None,
        "of another host"
    );
    // Services that were made with the limiter follow it.
    limiter.reload(rules([Rule::exempt()])).expect("rules");
    assert_eq!(send(Method::POST, "http://a.example/reports").await, None);
}

#[tokio::test]
async fn a_request_without_a_key_is_refused_by_its_rule() {
    let tenants = per_hour("tenants", 1).key(KeyPart::Header("x-tenant".into()));
    let mut service =
        ThrottleLayer::new(limiter([tenants])).layer(service_fn(|_: Request<()>| async {
            Ok::<_, Infallible>(Response::new(()))
        }));
    let error = service
        .ready()
        .await
        .expect("ready")
        .call(get("/"))
        .await
        .unwrap_err();
    let error: &Error = error.downcast_ref().expect("the limiter's");
    assert_eq!(error.kind(), ErrorKind::NoKey);
    assert_eq!(
        error.to_string(),
        "`tenants`: the request has no key: the request has no x-tenant header"
    );
}

#[tokio::test]
async fn what_an_upstream_says_of_one_rule_is_no_matter_of_another() {
    let limiter = limiter([
        at_once(per_hour("search", 100).path("/search")),
        at_once(per_hour("others", 100)),
    ]);
    let service =
        ThrottleLayer::new(limiter).layer(service_fn(|request: Request<()>| async move {
            let mut answer = Response::new(());
            if request.uri().path() == "/search" {
                *answer.status_mut() = StatusCode::TOO_MANY_REQUESTS;
                answer
                    .headers_mut()
                    .insert("retry-after", "60".parse().expect("a value"));
            }
            Ok::<_, Infallible>(answer)
        }));
    let send = async |path: &str| {
        let request = get(&format!("https://api.example.com{path}"));
        service
            .clone()
            .oneshot(request)
            .await
            .map(|answer| answer.status())
    };
    assert_eq!(send("/search").await.expect("an answer"), 429);
    let paused = send("/search").await.unwrap_err();
    let paused: &Error = paused.downcast_ref().expect("the limiter's");
    assert_eq!(refused_by(paused).as_deref(), Some("search"));
    assert_eq!(send("/").await.expect("an answer"), 200);
}

#[tokio::test]
async fn who_has_no_request_passes_if_the_last_rule_is_exempt() {
    let limiter = limiter([per_hour("search", 1).path("/search"), Rule::exempt()]);
    for _ in 0..100 {
        let permit = limiter.acquire("a").await.expect("a permit");
        assert!(!permit.is_counted());
    }
    let search = limiter.rule("search").expect("a rule");
    assert!(search.acquire("a").await.expect("a permit").is_counted());
    assert!(limiter.rule("others").is_none());
}

#[tokio::test]
async fn another_key_goes_by_the_last_rule_and_takes_any_request() {
    struct Job(&'static str);
    let limiter = limiter(table());
    let service = ThrottleLayer::new(limiter.clone())
        .key(|job: &Job| job.0)
        .unreported()
        .layer(service_fn(|_: Job| async { Ok::<_, Infallible>(()) }));
    for _ in 0..3 {
        let answer = service.clone().oneshot(Job("print")).await;
        answer.expect("a permit");
    }
    let error = service.oneshot(Job("print")).await.unwrap_err();
    let error = error.downcast_ref().expect("the limiter's");
    assert_eq!(refused_by(error).as_deref(), Some("others"));
    let snapshot = limiter.peek("print").await.expect("a snapshot");
    assert_eq!(snapshot.remaining(), 0);
}

#[tokio::test]
async fn rules_may_be_a_part_of_a_key() {
    let limiter = limiter([at_once(per_hour("all", 1))]);
    let service = ThrottleLayer::new(limiter.clone())
        .key((limiter.by_rules(), key::header("x-user")))
        .layer(service_fn(|_: Request<()>| async {
            Ok::<_, Infallible>(Response::new(()))
        }));
    let send = async |user: &'static str| {
        let mut request = get("https://a.example/");
        let user = user.parse().expect("a value");
        request.headers_mut().insert("x-user", user);
        service.clone().oneshot(request).await
    };
    send("a").await.expect("a permit");
    send("b").await.expect("a permit of another key");
    let error = send("a").await.unwrap_err();
    let error = error.downcast_ref().expect("the limiter's");
    assert_eq!(refused_by(error).as_deref(), Some("all"));
}
