//! Keys made of secrets.

use std::fmt::Debug;

use tokio::time::Instant;
use tower_throttle::Limiter;
use tower_throttle::key::{self, Extracted, Key, KeyExtractor};

use crate::security::{LONG, quotas};
use support::errors::everything;
use support::keyspace::names;
use support::monitor::Monitor;
use support::redis_server::RedisServer;

const SECRET: &str = "sk-live-4eC39HqLyjWDarjtT1zdp7dc";

fn request() -> http::Request<()> {
    http::Request::get("https://api.example.com/")
        .header("authorization", format!("Bearer {SECRET}"))
        .header("x-api-key", SECRET)
        .body(())
        .expect("a valid request")
}

fn extracted(extractor: &impl KeyExtractor<http::Request<()>>) -> Key {
    match extractor.extract(&request()) {
        Extracted::Key(key) => key,
        other => panic!("{other:?}"),
    }
}

fn shown(it: &dyn Debug) -> String {
    format!("{it:?} {it:#?}")
}

/// Everything that a limiter does with a key, and all that it says of it.
async fn use_key(limiter: &Limiter, key: &Key) -> String {
    let mut says = shown(key);
    for _ in 0..5 {
        let permit = limiter.acquire(key).await.expect("a permit");
        says += &shown(&permit);
    }
    let refused = limiter.acquire(key).max_wait(LONG / 2).await;
    says += &everything(&refused.expect_err("more than the quota"));
    says += &everything(
        &limiter
            .acquire(key)
            .cost(100)
            .await
            .expect_err("too costly"),
    );
    says += &shown(&limiter.try_acquire(key).await.expect("an answer"));
    says += &shown(&limiter.peek(key).await.expect("an answer"));
    says += &shown(&limiter.acquire(key));
    limiter
        .pause(key, Instant::now() + LONG)
        .await
        .expect("a pause");
    limiter.resume(key).await.expect("an answer");
    says
}

#[tokio::test]
async fn a_hashed_secret_is_seen_nowhere() {
    let server = RedisServer::start();
    let store = server.store().await;
    let limiter = quotas().store(store).build().expect("a valid policy");
    let api_key = key::header("x-api-key");
    let tuple = (key::host(), key::bearer_token());
    let keys = [
        extracted(&key::bearer_token()),
        extracted(&api_key),
        extracted(&tuple),
    ];
    let mut says = shown(&api_key) + &shown(&limiter);
    let monitor = Monitor::start(&server).await;
    for key in &keys[1..] {
        says += &use_key(&limiter, key).await;
    }
    let stored = names(&server);
    let seen = monitor.finish(&server).await;
    assert!(!says.contains(SECRET), "{says}");
    let scripts = seen.iter().filter(|it| it.name == "evalsha");
    assert!(stored.len() > 1 && scripts.count() > 10);
    let sent = seen.iter().map(|sent| &sent.text);
    for text in stored.iter().chain(sent) {
        assert!(!text.contains(SECRET), "{text}");
    }
    // The token is one, however it is carried; and the hash is what is seen.
    assert_eq!(keys[0], keys[1]);
    assert!(
        stored.iter().any(|name| name.contains(keys[0].as_str())),
        "{stored:?}"
    );
}
