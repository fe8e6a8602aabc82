//! Each event is emitted once for what happened, however many requests it concerns, and counted.

use tower_throttle::feedback::{Advice, Feedback as _, Headers};
use tower_throttle::test_util::ManualClock;
use tracing::Level;

use super::figures::Figures;
use super::metered::far;
use super::seen::{Fields, Seen};
use super::stores::Sharded;
use crate::client::served;
use crate::prelude::*;

/// The fields of the only event with this message.
#[track_caller]
fn once(seen: &Seen, message: &str) -> Fields {
    let told = seen.told(message);
    assert_eq!(told.len(), 1, "{:?}", seen.messages());
    told[0].fields.clone()
}

pub(super) async fn outage(seen: &Seen) {
    let store = Sharded::default();
    let limiter = build(far(&store));
    limiter.acquire("a").await.expect("an answer");
    store.out(&["a"]);
    let requests = (0..1_000).map(|_| limiter.acquire("a").max_wait(SECOND * 3));
    for answer in join_all(requests).await {
        assert!(answer.is_err_and(|error| error.is_store()));
    }
    let out = once(seen, "the store is out");
    let fields = ["policy", "error"].map(|name| out.text(name));
    assert_eq!(fields, ["ten", "the store cannot be reached"]);
    store.out(&[]);
    limiter.acquire("a").await.expect("an answer");
    let back = once(seen, "the store is back");
    assert!(back.number("lasted") >= 3.0, "{back:?}");
    assert_eq!(seen.messages().len(), 2, "{:?}", seen.messages());
}

pub(super) async fn lost_leases(seen: &Seen) {
    let store = Sharded::default();
    let limiter = build(under(&["3 concurrent lease=2s"]).store(store.clone()));
    let place = limiter.acquire("a").await.expect("an answer").hold();
    store.out(&["a"]);
    sleep(SECOND * 5).await;
    assert!(place.is_lost());
    let message = "the lease of requests in progress has ended";
    assert_eq!(once(seen, message).number("places"), 1.0);
    store.out(&[]);
    sleep(SECOND * 2).await;
}

pub(super) async fn shards(seen: &Seen) {
    let (figures, store) = (Figures::new(), Sharded::default());
    let limiter = figures.build(far(&store));
    let all: Vec<_> = ('a'..='z').map(String::from).collect();
    let all: Vec<_> = all.iter().map(String::as_str).collect();
    store.out(&all);
    for _ in 0..3 {
        let asked = all.iter().map(|&key| limiter.try_acquire(key));
        assert!(join_all(asked).await.iter().all(Result::is_err));
    }
    assert_eq!(seen.told("the store is out").len(), 1);
    let others = seen.told("another shard of the store is out");
    assert_eq!(others.len(), all.len() - 1);
    figures.assert_numbers(
        "store_out{policy=ten} 26
        outages_total{policy=ten} 1",
    );
    store.out(&[]);
    for answer in join_all(all.iter().map(|&key| limiter.acquire(key))).await {
        answer.expect("a permit");
    }
    let back = seen.told("a shard of the store is back, and others are out");
    assert_eq!(back.len(), all.len() - 1);
    assert_eq!(seen.told("the store is back").len(), 1);
    for result in ["ok", "out"] {
        let pings = format!("store_calls_total{{operation=ping,policy=ten,result={result}}}");
        assert!(figures.number(&pings) >= 1.0);
    }
    store.out(&["b"]);
    limiter.try_acquire("b").await.expect_err("it is out");
    let _ = limiter.try_acquire("a").await.expect("another shard");
    figures.assert_numbers("store_out{policy=ten} 1");
    assert_eq!(limiter.health().shards_out(), 1);
    drop(limiter);
    // Its probes end.
    sleep(SECOND * 5).await;
    figures.assert_numbers("store_out{policy=ten} 0");
}

pub(super) async fn commands(seen: &Seen) {
    let (figures, store) = (Figures::new(), Sharded::default());
    let limiter = figures.build(far(&store));
    let other = build(far(&store));
    let until = Instant::now() + SECOND * 10;
    limiter.pause("a", until).await.expect("an answer");
    let decision = other.try_acquire("a").await.expect("an answer");
    assert!(!decision.is_granted());
    limiter.resume("a").await.expect("an answer");
    limiter.reset("a").await.expect("an answer");
    let messages = ["a key was paused", "a key was resumed", "a key was reset"];
    assert_eq!(seen.messages(), messages);
    for event in seen.events() {
        let fields = (event.fields.text("policy"), event.fields.text("key"));
        assert_eq!(fields, ("ten", "a"));
    }
    let lasts = seen.events()[0].fields.number("lasts");
    assert!((9.5..=10.0).contains(&lasts), "{lasts}");
    limiter.acquire("a").await.expect("a permit");
    limiter.peek("a").await.expect("an answer");
    store.out(&["b"]);
    limiter.try_acquire("b").await.expect_err("it is out");
    limiter.peek("b").await.expect_err("it is out");
    limiter.reset("b").await.expect_err("it is out");
    assert_eq!(seen.told("a key was reset").len(), 1);
    // The first call follows a ping.
    figures.assert_numbers(
        "store_calls_total{operation=ping,policy=ten,result=ok} 1
        store_calls_total{operation=take,policy=ten,result=ok} 1
        store_calls_total{operation=peek,policy=ten,result=ok} 1
        store_calls_total{operation=control,policy=ten,result=ok} 3
        store_calls_total{operation=control,policy=ten,result=out} 1
        store_calls_total{operation=take,policy=ten,result=out} 1
        store_calls_total{operation=peek,policy=ten,result=out} 1
        store_calls_total{operation=take,policy=ten,result=error} 0
        pauses_total{policy=ten} 1",
    );
}

pub(super) async fn misses(seen: &Seen) {
    let figures = Figures::new();
    let limiter = figures.build(far(&Sharded::default()));
    figures.assert_numbers("guard_seconds{policy=ten} 0.012");
    for _ in 0..10 {
        limiter.acquire("a").await.expect("a permit");
    }
    let waiting = tokio::spawn(limiter.acquire("a"));
    // The next call is due half a horizon before the departure.
    sleep(SECOND * 98 / 100).await;
    // The process stops for a moment.
    advance(SECOND / 10).await;
    waiting.await.expect("no panic").expect("a permit");
    let fields = once(seen, "a grant was missed");
    assert_eq!((fields.text("policy"), fields.text("key")), ("ten", "a"));
    assert!((0.04..0.1).contains(&fields.number("late")), "{fields:?}");
    assert!(fields.number("guard") > 0.02, "{fields:?}");
    assert!(figures.number("guard_seconds{policy=ten}") > 0.02);
    figures.assert_numbers("missed_total{policy=ten} 1");
    let returned = || figures.number("returned_total{policy=ten}");
    let before = returned();
    let permits = join_all([limiter.acquire("b"), limiter.acquire("b")]).await;
    permits.into_iter().flatten().for_each(|it| it.forfeit());
    sleep(SECOND / 5).await;
    assert_eq!(returned(), before + 2.0);
}

pub(super) async fn long_waits(seen: &Seen) {
    let limiter = build(far(&Sharded::default()));
    let until = Instant::now() + SECOND * 90;
    limiter.pause("a", until).await.expect("an answer");
    seen.forget();
    // With a bound it is refused, and nothing waits.
    let refused = limiter.acquire("a").max_wait(SECOND * 80).await;
    refused.expect_err("a refusal");
    assert!(seen.messages().is_empty(), "{:?}", seen.messages());
    for departed in join_all((0..5).map(|_| limiter.acquire("a"))).await {
        departed.expect("a permit");
    }
    let message = "a request has to wait for more than a minute; set max_wait to refuse it";
    let wait = once(seen, message).number("wait");
    assert!((89.0..91.0).contains(&wait), "{wait}");
}

pub(super) async fn clock(seen: &Seen) {
    let clock = ManualClock::running();
    let store = FailingStore::new(MemoryStore::with_clock(clock.clone()));
    let limiter = build(per_second(10).store(store));
    let ask = async || {
        for _ in 0..3 {
            let _ = limiter.try_acquire("a").await.expect("an answer");
            sleep(SECOND).await;
        }
    };
    ask().await;
    clock.advance(SECOND * 60);
    ask().await;
    clock.set_back(SECOND * 120);
    ask().await;
    let told = seen.told("the clock of the store was set").into_iter();
    let ahead: Vec<_> = told.map(|it| it.fields.number("ahead").round()).collect();
    assert_eq!(ahead, [60.0, -120.0]);
}

pub(super) async fn unknown_units(seen: &Seen) {
    let limiter = build(under(&["10/s unit=tokens default_cost=5"]).name("ten"));
    let layer = ThrottleLayer::new(limiter)
        .key(key::constant("a"))
        .settle(|_: &http::Response<String>| Some(Cost::from(("token", 1))));
    let service = layer.layer(service_fn(served::<()>));
    for _ in 0..2 {
        let response = service.clone().oneshot(http::Request::new(())).await;
        response.expect("a response");
    }
    let fields = once(seen, "a cost was not corrected");
    let expected = "`ten`: cannot settle token, as the quotas count tokens";
    assert_eq!(fields.text("error"), expected);
}

pub(super) async fn no_addresses(seen: &Seen) {
    let limiter = build(per_second(10));
    let layer = ThrottleLayer::new(limiter).inbound(key::client_ip(), FailureMode::Open);
    let service = layer.layer(service_fn(served::<()>));
    for _ in 0..2 {
        let response = service.clone().oneshot(http::Request::new(())).await;
        assert_eq!(response.expect("a response").status(), 500);
    }
    let event = "requests have no key, as the server is not set up for it";
    let fields = once(seen, event);
    let reason = fields.text("reason");
    assert!(reason.contains("into_make_service_with_connect_info"));
}

pub(super) fn malformed_headers(seen: &Seen) {
    let reader = Headers::new();
    for value in ["many", "7"] {
        let response = http::Response::builder()
            .header("x-ratelimit-remaining-tokens", value)
            .header("x-ratelimit-reset-tokens", "6m0s")
            .body(())
            .expect("a response");
        let expected = match value {
            "7" => Advice::remaining_of("tokens", 7, SECOND * 360),
            _ => Advice::none(),
        };
        assert_eq!(reader.read(&response), expected);
    }
    let message = "a response states a limit in a malformed header, which is ignored";
    let header = "x-ratelimit-remaining-tokens";
    assert_eq!(once(seen, message).text("header"), header);
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_may_call_the_limiter() {
    let (seen, _guard) = Seen::begin();
    let store = Sharded::default();
    let limiter = build(far(&store));
    let waiting = join_all((0..20).map(|_| limiter.acquire("a")));
    let waiting = tokio::spawn(waiting);
    sleep(SECOND * 98 / 100).await;
    let asked = limiter.clone();
    seen.whenever(move || {
        // Each takes a lock of the limiter.
        let _ = (asked.health(), asked.queues());
        let answer = asked.acquire("a").now_or_never();
        assert!(answer.is_none_or(|it| it.is_err()), "others wait");
    });
    advance(SECOND * 2).await;
    waiting.await.expect("no panic");
    let until = Instant::now() + SECOND;
    limiter.pause("a", until).await.expect("an answer");
    limiter.resume("a").await.expect("an answer");
    store.out(&["a"]);
    drop(limiter.acquire("a").max_wait(SECOND / 10).await);
    for message in ["a grant was missed", "a key was paused", "the store is out"] {
        assert!(!seen.told(message).is_empty(), "{message}");
    }
    seen.whenever(|| {});
}

/// No event contains it.
const PASSWORD: &str = "hunter2hunter2";

pub(super) async fn restart(seen: &Seen) {
    let password = format!(">{PASSWORD}");
    let user = ["--user", "throttle", "on", &password, "~*", "&*", "+@all"];
    let mut server = RedisServer::start_with(&user);
    let url = format!("redis://throttle:{PASSWORD}@127.0.0.1:{}/", server.port());
    let store = RedisStore::connect(&url).await.expect("a connection");
    // Only a server that is gone is out.
    let limiter = build(under(&["10/200ms"]).store(store.timeout(SECOND * 20)));
    limiter.acquire("a").await.expect("a permit");
    seen.until("nudges arrive", 1).await;
    limiter.acquire("a").await.expect("a permit");
    // A busy machine may miss grants.
    let events = seen.events().into_iter();
    let loud = events.filter(|it| it.level < Level::DEBUG);
    assert_eq!(loud.count(), 1, "{:?}", seen.messages());
    server.kill9();
    seen.until("nudges no longer arrive", 1).await;
    let waiting = tokio::spawn(limiter.acquire("a").max_wait(Duration::from_secs(60)));
    seen.until("the store is out", 1).await;
    let event = seen.told("the store is out").remove(0);
    assert!(event.fields.has("cause"), "{event:?}");
    server.restart();
    waiting.await.expect("no panic").expect("a permit");
    seen.until("nudges arrive", 2).await;
    seen.until("the store is back", 1).await;
    // A busy machine may take too long for a probe.
    for message in [
        "the store is out",
        "the store is back",
        "nudges no longer arrive",
        "nudges arrive",
        "a connection to redis was replaced",
    ] {
        let told = seen.told(message);
        assert!((1..=3).contains(&told.len()), "{message}: {told:?}");
    }
    let text = format!("{:?} {:?}", seen.events(), seen.spans());
    assert!(!text.contains(PASSWORD), "{text}");
    assert!(!text.contains("redis://"), "{text}");
    // Digits alone may be those of some time.
    assert!(!text.contains(&format!(":{}", server.port())), "{text}");
}

pub(super) async fn loss(seen: &Seen) {
    const MESSAGE: &str = "a key is in quarantine, as the store has lost its state";
    let server = RedisServer::start();
    let mut limiters = Vec::new();
    for _ in 0..2 {
        let builder = under(&["10/200ms"]).recovery(Recovery::Strict);
        let builder = builder.max_wait(SECOND * 5).store(server.store().await);
        limiters.push(build(builder));
    }
    let ask = async || {
        let limiters = limiters.iter();
        let asked = limiters.flat_map(|it| ["a", "b"].map(|key| it.acquire(key)));
        for permit in join_all(asked).await {
            permit.expect("a permit");
        }
    };
    // The server is new, so the keys are in quarantine at first.
    ask().await;
    seen.forget();
    ask().await;
    assert!(seen.told(MESSAGE).is_empty());
    let keys: Vec<String> = server.command(&["KEYS", "*{*}*"]);
    for key in keys {
        server.command::<()>(&["DEL", &key]);
    }
    ask().await;
    let others = seen.told("another key is in quarantine").len();
    let lost = seen.told(MESSAGE);
    // Each limiter reports both keys. On a busy machine, the second one may expect a longer round trip, and prolong the
    // quarantine of a key. Then the first one reports the key once more.
    let all = lost.len() + others;
    let is_expected = lost.len() >= 2 && others >= 2 && all <= 6;
    assert!(is_expected, "{:?}", seen.events());
    // A window and a second.
    let rests = lost[0].fields.number("rests");
    assert!((0.2..2.0).contains(&rests), "{rests}");
}
