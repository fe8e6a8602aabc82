//! All adapters go by the rules of their limiter without another word.

use crate::client::{ADAPTERS, served};
use crate::prelude::*;
use crate::rules::{get, limiter, per_hour, rules};

/// Nobody waits, so that the next request over a limit is refused by it.
fn at_once(rule: Rule) -> Rule {
    rule.max_wait(std::time::Duration::ZERO)
}

fn table() -> Vec<Rule> {
    let search = per_hour("search", 2).host("127.0.0.1");
    let reports = per_hour("reports", 5).method(Method::POST);
    let users = per_hour("users", 100).quota(Quota::per_day(2));
    vec![
        at_once(search.path("/search/{*rest}")),
        Rule::exempt().path("/health"),
        at_once(reports.path("/reports").cost(2)),
        at_once(users.path("/users/{id}")).key(KeyPart::Route),
        at_once(per_hour("others", 3)),
    ]
}

fn refused_by(error: &Error) -> String {
    assert!(error.is_limited(), "{error}");
    let name = error.policy_name().expect("a name").to_owned();
    let start = format!("`{name}`: rate limited");
    assert!(error.to_string().starts_with(&start), "{error}");
    name
}

#[tokio::test]
async fn each_adapter_goes_by_the_rules_and_follows_a_reload() {
    for adapter in ADAPTERS {
        let upstream = Upstream::start().await;
        let limiter = limiter(table());
        let sender = adapter(&limiter);
        let send = async |method: &Method, path: &str| {
            let request = (method.clone(), upstream.uri() + path);
            let error = sender.clone().oneshot(request).await.err();
            error.map(|it| refused_by(Error::find(&*it).expect("the limiter's")))
        };
        // How many requests depart, and which rule refuses the next one.
        for (method, path, departing, refused_by) in [
            (Method::GET, "/search/a", 2, Some("search")),
            (Method::POST, "/reports", 2, Some("reports")),
            (Method::GET, "/users/1", 1, None),
            (Method::GET, "/users/2", 1, Some("users")),
            (Method::GET, "/reports", 3, Some("others")),
            (Method::GET, "/health", 20, None),
        ] {
            for _ in 0..departing {
                assert_eq!(send(&method, path).await, None, "{path}");
            }
            if let Some(rule) = refused_by {
                assert_eq!(send(&method, path).await.as_deref(), Some(rule), "{path}");
            }
        }
        limiter.reload(rules([Rule::exempt()])).expect("rules");
        assert_eq!(send(&Method::GET, "/search/a").await, None);
    }
}

#[tokio::test]
async fn a_cost_in_a_unit_that_its_rule_does_not_count_is_ignored() {
    let tokens = Quota::per_hour(10).unit("tokens");
    let chat = per_hour("chat", 9).path("/chat").quota(tokens);
    let limiter = limiter([at_once(chat), at_once(per_hour("others", 2))]);
    let cost = |tokens| Cost::from(("tokens", tokens)).of("images", 1);
    let throttle = ThrottleLayer::new(limiter)
        .cost(move |_: &Request<()>| cost(6))
        .settle(move |_: &Response<String>| Some(cost(1)));
    let service = throttle.layer(service_fn(served::<()>));
    for (path, is_limited) in [
        ("/chat", false),
        ("/chat", false),
        ("/", false),
        ("/", false),
        ("/", true),
    ] {
        let request = Request::get(format!("http://a{path}")).body(());
        let answer = service.clone().oneshot(request.expect("a request")).await;
        let error = answer.as_ref().err().map(|it| Error::find(&**it));
        let error = error.map(|it| it.expect("the limiter's").is_limited());
        assert_eq!(error, is_limited.then_some(true), "{path}");
    }
}

#[tokio::test]
async fn a_request_without_a_key_is_refused_by_its_rule() {
    let tenants = per_hour("tenants", 1).key(KeyPart::Header("x-tenant".into()));
    let service = ThrottleLayer::new(limiter([tenants])).layer(service_fn(served::<()>));
    let error = service.oneshot(get("/")).await.unwrap_err();
    let problem = "`tenants`: the request has no key: the request has no x-tenant header";
    assert_eq!(error.to_string(), problem);
}

#[tokio::test]
async fn what_an_upstream_says_of_one_rule_is_no_matter_of_another() {
    let limiter = limiter([
        at_once(per_hour("search", 100).path("/search")),
        at_once(per_hour("others", 100)),
    ]);
    let busy = service_fn(|request: Request<()>| async move {
        let mut answer = Response::builder();
        if request.uri().path() == "/search" {
            answer = answer.status(429).header("retry-after", "60");
        }
        Ok::<_, Infallible>(answer.body(()).expect("a response"))
    });
    let service = ThrottleLayer::new(limiter).layer(busy);
    let send = async |path: &str| {
        let request = get(&format!("https://api.example.com{path}"));
        let answer = service.clone().oneshot(request).await;
        answer.map(|answer| answer.status())
    };
    assert_eq!(send("/search").await.expect("an answer"), 429);
    let paused = send("/search").await.unwrap_err();
    let paused = Error::find(&*paused).expect("the limiter's");
    assert_eq!(refused_by(paused), "search");
    assert_eq!(send("/").await.expect("an answer"), 200);
}

#[tokio::test]
async fn who_has_no_request_goes_by_the_last_rule() {
    let exempts = limiter([per_hour("search", 1).path("/search"), Rule::exempt()]);
    for _ in 0..100 {
        let permit = exempts.acquire("a").await.expect("a permit");
        assert!(!permit.is_counted());
    }
    let search = exempts.rule("search").expect("a rule");
    assert!(search.acquire("a").await.expect("a permit").is_counted());
    assert!(exempts.rule("others").is_none());

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
    let error = Error::find(&*error).expect("the limiter's");
    assert_eq!(refused_by(error), "others");
}

#[tokio::test]
async fn a_server_answers_each_request_by_its_rule() {
    let limiter = limiter(table());
    let key = (limiter.by_rules(), key::constant("client"));
    let service = ThrottleLayer::new(limiter)
        .inbound(key, FailureMode::Closed)
        .layer(service_fn(served::<()>));
    // Each report costs two. An exempt request is answered as if there were no layer.
    for (method, path, status, policy) in [
        ("POST", "/reports", 200, Some("\"reports\"")),
        ("POST", "/reports", 200, Some("\"reports\"")),
        ("POST", "/reports", 429, Some("\"reports\"")),
        ("GET", "/reports", 200, Some("\"others\"")),
        ("GET", "/health", 200, None),
    ] {
        let request = Request::builder().method(method).uri(path);
        let request = request.header("host", "api.example").body(());
        let answer = service.clone().oneshot(request.expect("a request")).await;
        let answer = answer.expect("infallible");
        let row = format!("{method} {path}: {answer:?}");
        assert_eq!(answer.status(), status, "{row}");
        let header = answer.headers().get("ratelimit");
        let header = header.map(|it| it.to_str().expect("text"));
        assert_eq!(header.and_then(|it| it.split(';').next()), policy, "{row}");
        let refused = answer.extensions().get::<Refused>();
        let refused = refused.map(|it| it.policy().label().to_owned());
        let expected = (status == 429).then_some("reports");
        assert_eq!(refused.as_deref(), expected, "{row}");
    }
}
