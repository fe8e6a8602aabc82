//! What happens between a limiter and its Redis, told once.

use std::time::Duration;

use tower_throttle::store::RedisStore;
use tower_throttle::{Limiter, LimiterBuilder, Quota, Recovery};
use tracing::Level;

use super::seen::Seen;
use super::support::redis_server::RedisServer;
use super::until;

/// What no event is to tell.
const PASSWORD: &str = "hunter2hunter2";

async fn limiter(server: &RedisServer) -> LimiterBuilder {
    let url = format!("redis://throttle:{PASSWORD}@127.0.0.1:{}/", server.port());
    let store = RedisStore::connect(&url).await.expect("a connection");
    let quota = Quota::new(10, Duration::from_millis(200));
    // So that only a server that is gone is out.
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

#[tokio::test]
async fn a_server_that_is_started_anew_is_told_of_and_no_password_is() {
    let (seen, _guard) = Seen::begin();
    restart(&seen).await;
}

pub(super) async fn restart(seen: &Seen) {
    let password = format!(">{PASSWORD}");
    let user = ["--user", "throttle", "on", &password, "~*", "&*", "+@all"];
    let mut server = RedisServer::start_with(&user);
    let limiter = limiter(&server).await.build().expect("a valid policy");
    limiter.acquire("a").await.expect("a permit");
    let loaded = || {
        seen.told("a redis did not know the scripts, and has loaded them")
            .len()
    };
    assert_eq!(loaded(), 1);
    limiter.acquire("a").await.expect("a permit");
    // But for permits that come too late on a busy machine.
    let loud = seen
        .events()
        .into_iter()
        .filter(|it| it.level < Level::DEBUG);
    assert_eq!(loud.count(), 1, "{:?}", seen.messages());
    server.kill9();
    let lost = || !seen.told("what others say is heard no more").is_empty();
    until("the subscription is lost", lost).await;
    let waiting = tokio::spawn(limiter.acquire("a").max_wait(Duration::from_secs(60)));
    let out = || !seen.told("the store is out").is_empty();
    until("the store is out", out).await;
    let event = seen.told("the store is out").remove(0);
    assert_eq!(event.fields.text("stand_in"), "none");
    assert!(event.fields.has("cause"), "{event:?}");
    server.restart();
    waiting.await.expect("no panic").expect("a permit");
    let heard = || !seen.told("what others say is heard").is_empty();
    until("there is another subscription", heard).await;
    until("the store is back", || {
        !seen.told("the store is back").is_empty()
    })
    .await;
    // Once, or once more where a busy machine takes too long for a sign of life.
    let once = |message: &str, level| {
        let told = seen.told(message);
        assert!((1..=3).contains(&told.len()), "{message}: {told:?}");
        assert_eq!(told[0].level, level, "{message}");
    };
    once("the store is out", Level::WARN);
    once("the store is back", Level::INFO);
    once("what others say is heard no more", Level::WARN);
    once("what others say is heard", Level::INFO);
    once("a connection to redis was replaced", Level::INFO);
    assert!(loaded() >= 2);
    assert_discreet(seen, &server);
}

#[tokio::test]
async fn a_state_that_is_lost_is_told_of_by_who_finds_it_and_by_who_hears_of_it() {
    let (seen, _guard) = Seen::begin();
    loss(&seen).await;
}

pub(super) async fn loss(seen: &Seen) {
    let server = RedisServer::start();
    // It is not young.
    server.command::<()>(&["SET", "throttle:born", "1"]);
    let mut limiters = Vec::new();
    for _ in 0..2 {
        let store = RedisStore::connect(&server.url())
            .await
            .expect("a connection");
        let quota = Quota::new(10, Duration::from_millis(200));
        let limiter = Limiter::builder().quota(quota).store(store);
        let limiter = limiter.recovery(Recovery::Strict).name("strict");
        let limiter = limiter.max_wait(Duration::from_secs(5)).build();
        limiters.push(limiter.expect("a valid policy"));
    }
    for limiter in &limiters {
        limiter.acquire("a").await.expect("a permit");
    }
    assert!(
        seen.told("a key rests, as the store knows nothing of its state")
            .is_empty()
    );
    let keys: Vec<String> = server.command(&["KEYS", "*{a}*"]);
    for key in keys {
        server.command::<()>(&["DEL", &key]);
    }
    limiters[0].acquire("a").await.expect("a permit");
    let lost = seen.told("a key rests, as the store knows nothing of its state");
    assert_eq!(
        (lost.len(), lost[0].level),
        (1, Level::WARN),
        "{:?}",
        seen.events()
    );
    assert_eq!(lost[0].fields.text("key"), "a");
    // A window, and until all have heard.
    let rests = lost[0].fields.number("rests");
    assert!((3.0..4.0).contains(&rests), "{rests}");
    let voided = || {
        !seen
            .told("slots of a key are void, as its state was lost or reset")
            .is_empty()
    };
    until("the other hears of it", voided).await;
    assert!(
        seen.told("a key is paused").is_empty(),
        "nobody has said so"
    );
}
