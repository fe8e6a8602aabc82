//! The events of a limiter and its Redis.

use std::time::Duration;

use futures_util::future::join_all;
use tower_throttle::store::RedisStore;
use tower_throttle::{Limiter, LimiterBuilder, Quota, Recovery};
use tracing::Level;

use super::seen::Seen;
use super::until;
use support::redis_server::RedisServer;

/// No event contains it.
const PASSWORD: &str = "hunter2hunter2";

async fn limiter(server: &RedisServer) -> LimiterBuilder {
    let url = format!("redis://throttle:{PASSWORD}@127.0.0.1:{}/", server.port());
    let store = RedisStore::connect(&url).await.expect("a connection");
    let quota = Quota::new(10, Duration::from_millis(200));
    // Only a server that is gone is out.
    let store = store.timeout(Duration::from_secs(20));
    Limiter::builder().quota(quota).name("redis").store(store)
}

fn assert_discreet(seen: &Seen, server: &RedisServer) {
    let text = format!("{:?} {:?}", seen.events(), seen.spans());
    assert!(!text.contains(PASSWORD), "{text}");
    assert!(!text.contains("redis://"), "{text}");
    // Digits alone may be those of some time.
    assert!(!text.contains(&format!(":{}", server.port())), "{text}");
}

pub(super) async fn restart(seen: &Seen) {
    let password = format!(">{PASSWORD}");
    let user = ["--user", "throttle", "on", &password, "~*", "&*", "+@all"];
    let mut server = RedisServer::start_with(&user);
    let limiter = limiter(&server).await.build().expect("a valid policy");
    limiter.acquire("a").await.expect("a permit");
    until("nudges arrive", || !seen.told("nudges arrive").is_empty()).await;
    limiter.acquire("a").await.expect("a permit");
    // A busy machine may miss grants.
    let events = seen.events().into_iter();
    let loud = events.filter(|it| it.level < Level::DEBUG);
    assert_eq!(loud.count(), 1, "{:?}", seen.messages());
    server.kill9();
    let lost = || !seen.told("nudges no longer arrive").is_empty();
    until("the subscription is lost", lost).await;
    let waiting = tokio::spawn(limiter.acquire("a").max_wait(Duration::from_secs(60)));
    let out = || !seen.told("the store is out").is_empty();
    until("the store is out", out).await;
    let event = seen.told("the store is out").remove(0);
    assert!(event.fields.has("cause"), "{event:?}");
    server.restart();
    waiting.await.expect("no panic").expect("a permit");
    let subscribed = || seen.told("nudges arrive").len() >= 2;
    until("there is another subscription", subscribed).await;
    let back = || !seen.told("the store is back").is_empty();
    until("the store is back", back).await;
    // A busy machine may take too long for a probe.
    for (message, level) in [
        ("the store is out", Level::WARN),
        ("the store is back", Level::INFO),
        ("nudges no longer arrive", Level::WARN),
        ("nudges arrive", Level::INFO),
        ("a connection to redis was replaced", Level::INFO),
    ] {
        let told = seen.told(message);
        assert!((1..=3).contains(&told.len()), "{message}: {told:?}");
        assert_eq!(told[0].level, level, "{message}");
    }
    assert_discreet(seen, &server);
}

pub(super) async fn loss(seen: &Seen) {
    const MESSAGE: &str = "a key is in quarantine, as the store has lost its state";
    let server = RedisServer::start();
    let mut limiters = Vec::new();
    for _ in 0..2 {
        let store = server.store().await;
        let quota = Quota::new(10, Duration::from_millis(200));
        let limiter = Limiter::builder().quota(quota).store(store);
        let limiter = limiter.recovery(Recovery::Strict).name("strict");
        let limiter = limiter.max_wait(Duration::from_secs(5)).build();
        limiters.push(limiter.expect("a valid policy"));
    }
    let ask = async || {
        for limiter in &limiters {
            limiter.acquire("a").await.expect("a permit");
        }
    };
    // The server is new, so the key is in quarantine at first.
    ask().await;
    seen.forget();
    ask().await;
    assert!(seen.told(MESSAGE).is_empty());
    let keys: Vec<String> = server.command(&["KEYS", "*{a}*"]);
    for key in keys {
        server.command::<()>(&["DEL", &key]);
    }
    let asked = limiters.iter().map(|limiter| limiter.acquire("a"));
    for permit in join_all(asked).await {
        permit.expect("a permit");
    }
    let lost = seen.told(MESSAGE);
    assert_eq!(lost.len(), 2, "{:?}", seen.events());
    assert_eq!(lost[0].level, Level::WARN);
    assert_eq!(lost[0].fields.text("key"), "a");
    // A window and a second.
    let rests = lost[0].fields.number("rests");
    assert!((0.2..2.0).contains(&rests), "{rests}");
}
