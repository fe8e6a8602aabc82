//! What happens, told once.

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tokio::time::{Instant, advance, sleep};
use tower_throttle::{Limiter, LimiterBuilder, Outage, Quota};
use tracing::Level;

use super::seen::Seen;
use super::stores::{Parted, Shifted};

fn ten(store: &Parted) -> LimiterBuilder {
    Limiter::builder()
        .quota(Quota::per_second(10))
        .name("ten")
        .store(store.clone())
}

/// However many requests it concerns.
#[tokio::test(start_paused = true)]
async fn an_outage_is_a_handful_of_events() {
    let (seen, _guard) = Seen::begin();
    outage(&seen).await;
}

pub(super) async fn outage(seen: &Seen) {
    let store = Parted::default();
    let limiter = ten(&store)
        .outage(Outage::Local { share: 0.5 })
        .build()
        .expect("a valid policy");
    limiter.acquire("a").await.expect("an answer");
    store.out(&["a"]);
    let requests = (0..1_000).map(|_| {
        let acquire = limiter.acquire("a").max_wait(Duration::from_secs(3));
        async move { drop(acquire.await) }
    });
    join_all(requests).await;
    let out = seen.told("the store is out");
    assert_eq!(out.len(), 1, "{:?}", seen.messages());
    assert_eq!(out[0].level, Level::WARN);
    assert_eq!(out[0].fields.text("policy"), "ten");
    assert_eq!(out[0].fields.text("error"), "it is out");
    assert_eq!(out[0].fields.text("cause"), "a test");
    assert_eq!(out[0].fields.text("stand_in"), "share");
    store.out(&[]);
    let start = Instant::now();
    while limiter.health().is_out() {
        limiter.acquire("a").await.expect("an answer");
        sleep(Duration::from_millis(50)).await;
        assert!(start.elapsed() < Duration::from_secs(60));
    }
    limiter.acquire("a").await.expect("an answer");
    assert_eq!(seen.told("the store gives a sign of life").len(), 1);
    let back = seen.told("the store is back");
    assert_eq!((back.len(), back[0].level), (1, Level::INFO));
    assert!(back[0].fields.number("lasted") >= 1.0, "{back:?}");
    let messages = seen.messages();
    assert!(messages.len() <= 5, "{messages:?}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_only_gives_signs_of_life_is_one_outage() {
    let (seen, _guard) = Seen::begin();
    lifeless(&seen).await;
}

pub(super) async fn lifeless(seen: &Seen) {
    let store = Parted::default();
    let limiter = ten(&store).build().expect("a valid policy");
    store.out(&["a"]);
    store.alive(&["a"]);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(60) {
        drop(limiter.acquire("a").await);
    }
    assert_eq!(seen.told("the store is out").len(), 1);
    let again = seen.told("the store gives signs of life, and answers no calls");
    assert!((1..=150).contains(&again.len()), "{}", again.len());
    assert!(
        seen.events()
            .iter()
            .all(|it| it.level <= Level::WARN || it.level == Level::DEBUG)
    );
    assert!(seen.told("the store is back").is_empty());
    // Long after a sign of life, it is another.
    store.out(&[]);
    limiter.acquire("a").await.expect("an answer");
    sleep(Duration::from_secs(60)).await;
    store.out(&["a"]);
    drop(limiter.try_acquire("a").await);
    drop(limiter.try_acquire("a").await);
    assert_eq!(
        seen.told("the store is out").len(),
        2,
        "{:?}",
        seen.messages()
    );
}

#[tokio::test(start_paused = true)]
async fn many_parts_that_are_out_are_one_outage() {
    let (seen, _guard) = Seen::begin();
    parts(&seen).await;
}

pub(super) async fn parts(seen: &Seen) {
    let store = Parted::default();
    let limiter = ten(&store).build().expect("a valid policy");
    let all: Vec<_> = ('a'..='z').map(String::from).collect();
    let all: Vec<_> = all.iter().map(String::as_str).collect();
    store.out(&all);
    for _ in 0..3 {
        let asked = all.iter().map(|&key| limiter.try_acquire(key));
        assert!(join_all(asked).await.iter().all(Result::is_err));
    }
    assert_eq!(seen.told("the store is out").len(), 1);
    let others = seen.told("another part of the store is out");
    assert_eq!(others.len(), all.len() - 1);
    assert!(others.iter().all(|it| it.level == Level::DEBUG));
    store.out(&[]);
    for answer in join_all(all.iter().map(|&key| limiter.acquire(key))).await {
        answer.expect("a permit");
    }
    let back = seen.told("a part of the store is back, and others are not");
    assert_eq!((back.len(), back[0].level), (all.len() - 1, Level::DEBUG));
    assert_eq!(seen.told("the store is back").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pause_is_told_of_once_by_each_limiter_that_hears_of_it() {
    let (seen, _guard) = Seen::begin();
    pause(&seen).await;
}

pub(super) async fn pause(seen: &Seen) {
    let store = Parted::default();
    // Both share the quota, and with it what is said.
    let (here, other) = (
        ten(&store).build().expect("a valid policy"),
        ten(&store).build().expect("a valid policy"),
    );
    let acquired = join_all([here.acquire("a"), other.acquire("a")]).await;
    assert!(acquired.iter().all(Result::is_ok));
    let by = |message: &str| {
        let told = seen.told(message);
        assert!(
            told.iter()
                .all(|it| it.level == Level::INFO && it.fields.text("key") == "a")
        );
        let by = told.iter().map(|it| it.fields.text("by").to_owned());
        let mut by: Vec<_> = by.collect();
        by.sort_unstable();
        by
    };
    let start = Instant::now();
    for seconds in [10, 10, 5] {
        here.pause("a", start + Duration::from_secs(seconds))
            .await
            .expect("an answer");
    }
    assert_eq!(
        by("a key is paused"),
        ["elsewhere", "here"],
        "{:?}",
        seen.events()
    );
    let lasts = seen.told("a key is paused")[0].fields.number("lasts");
    assert!((9.5..=10.0).contains(&lasts), "{lasts}");
    assert!(seen.told("a pause is extended").is_empty());
    other
        .pause("a", start + Duration::from_secs(20))
        .await
        .expect("an answer");
    assert_eq!(by("a pause is extended"), ["elsewhere", "here"]);
    here.resume("a").await.expect("an answer");
    assert_eq!(by("a pause is over before its time"), ["elsewhere", "here"]);
    here.resume("a").await.expect("an answer");
    assert_eq!(seen.events().len(), 6, "{:?}", seen.messages());
}

#[tokio::test(start_paused = true)]
async fn permits_that_are_forfeited_together_are_one_event() {
    let (seen, _guard) = Seen::begin();
    forfeits(&seen).await;
}

pub(super) async fn forfeits(seen: &Seen) {
    let limiter = ten(&Parted::default()).build().expect("a valid policy");
    let waiting = join_all((0..20).map(|_| limiter.acquire("a")));
    let waiting = tokio::spawn(waiting);
    sleep(Duration::from_millis(200)).await;
    // The process stops.
    advance(Duration::from_secs(2)).await;
    for answer in waiting.await.expect("no panic") {
        answer.expect("a permit");
    }
    let told = seen.told("permits came too late and were forfeited");
    assert_eq!((told.len(), told[0].level), (1, Level::DEBUG), "{told:?}");
    let fields = &told[0].fields;
    assert_eq!((fields.text("policy"), fields.text("key")), ("ten", "a"));
    assert_eq!(fields.number("count"), 10.0);
    assert!((0.9..2.0).contains(&fields.number("late")), "{fields:?}");
    assert!(fields.number("guard") > 0.02, "{fields:?}");
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_is_told_of_with_its_direction() {
    let (seen, _guard) = Seen::begin();
    clock(&seen).await;
}

pub(super) async fn clock(seen: &Seen) {
    let store = Shifted::default();
    let limiter = Limiter::builder().quota(Quota::per_second(10)).name("ten");
    let limiter = limiter
        .store(store.clone())
        .build()
        .expect("a valid policy");
    for seconds in [0, 60, -60] {
        store.set(seconds);
        for _ in 0..3 {
            limiter.acquire("a").await.expect("an answer");
        }
    }
    let told = seen.told("somebody has set the store's clock");
    let ahead: Vec<_> = told
        .iter()
        .map(|it| it.fields.number("ahead").round())
        .collect();
    assert_eq!(ahead, [60.0, -120.0]);
    assert!(told.iter().all(|it| it.level == Level::WARN));
}

/// A subscriber may ask the limiter of which it hears.
#[tokio::test(start_paused = true)]
async fn events_are_told_without_a_lock() {
    let (seen, _guard) = Seen::begin();
    let store = Parted::default();
    let limiter = ten(&store).build().expect("a valid policy");
    let waiting = join_all((0..20).map(|_| limiter.acquire("a")));
    let waiting = tokio::spawn(waiting);
    sleep(Duration::from_millis(200)).await;
    let asked = limiter.clone();
    seen.whenever(move || {
        // Each takes the locks of the circuit, of what is paused, and of the line.
        let _ = (asked.health(), asked.lines());
        let answer = asked.acquire("a").now_or_never();
        assert!(answer.is_none_or(|it| it.is_err()), "others wait");
    });
    advance(Duration::from_secs(2)).await;
    waiting.await.expect("no panic");
    let until = Instant::now() + Duration::from_secs(1);
    limiter.pause("a", until).await.expect("an answer");
    limiter.resume("a").await.expect("an answer");
    store.out(&["a"]);
    drop(limiter.acquire("a").await);
    let heard = seen.messages();
    assert!(heard.len() >= 4, "{heard:?}");
    seen.whenever(|| {});
}
