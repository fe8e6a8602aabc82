//! What all rules of a limiter share: the store, and what is known of it.

use std::time::Duration;

use futures_util::future::{join, join_all};
use futures_util::poll;
use tokio::time::{Instant, sleep, timeout};
use tower_throttle::rules::Rule;
use tower_throttle::store::MemoryStore;
use tower_throttle::test_util::{FailingStore, ManualClock};
use tower_throttle::{Limiter, Outage, Quota, Recovery};

use crate::reload::on;
use crate::support::redis_server::RedisServer;
use crate::support::switched::{Mode, Switched};
use crate::{PATIENCE, per_hour, rules};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn an_outage_that_one_rule_has_seen_is_known_to_all_and_so_is_its_end() {
    let store = Switched::default();
    let table = rules([per_hour("one", 1).path("/a"), per_hour("other", 1)]);
    let builder = Limiter::builder().store(store.clone()).rules(table);
    let limiter = builder.build().expect("a limiter");
    let [one, other] = ["one", "other"].map(|name| limiter.rule(name).expect("a rule"));
    store.switch(Mode::Refuses);
    let error = one.acquire("a").max_wait(SECOND).await.unwrap_err();
    assert!(
        error.is_store() && error.policy_name() == Some("one"),
        "{error}"
    );
    assert!(limiter.health().is_out() && other.health().is_out());
    let (_, asked) = store.asked();
    let error = other.acquire("a").max_wait(SECOND).await.unwrap_err();
    assert!(
        error.is_store() && error.policy_name() == Some("other"),
        "{error}"
    );
    assert_eq!(store.asked().1, asked, "nobody asks for slots meanwhile");
    let (mut first, mut second) = (Box::pin(one.acquire("a")), Box::pin(other.acquire("a")));
    assert!(poll!(&mut first).is_pending() && poll!(&mut second).is_pending());
    sleep(SECOND).await;
    store.switch(Mode::Works);
    let (first, second) = timeout(PATIENCE, join(first, second))
        .await
        .expect("both go on");
    assert!(first.is_ok() && second.is_ok());
    assert!(!limiter.health().is_out());
}

#[tokio::test(start_paused = true)]
async fn what_becomes_of_requests_while_the_store_is_out_may_be_reloaded_meanwhile() {
    let store = Switched::default();
    let table = |outage| rules([per_hour("all", 4).outage(outage)]);
    let builder = Limiter::builder()
        .store(store.clone())
        .rules(table(Outage::Deny));
    let limiter = builder.build().expect("a limiter");
    store.switch(Mode::Refuses);
    let mut waiting = Box::pin(limiter.acquire("a").max_wait(PATIENCE));
    assert!(poll!(&mut waiting).is_pending());
    sleep(SECOND).await;
    limiter
        .reload(table(Outage::Local { share: 0.5 }))
        .expect("rules");
    for _ in 0..2 {
        limiter
            .acquire("a")
            .await
            .expect("a permit of this process's share");
    }
    let mut local = Box::pin(limiter.acquire("a"));
    assert!(poll!(&mut local).is_pending());
    limiter.reload(table(Outage::Allow)).expect("rules");
    let permit = limiter.acquire("a").await.expect("a permit");
    assert!(!permit.is_counted());
    store.switch(Mode::Works);
    let (waiting, local) = timeout(PATIENCE, join(waiting, local))
        .await
        .expect("both go home");
    assert!(waiting.expect("a permit").is_counted() && local.expect("a permit").is_counted());
}

/// By the share of this process, though new requests have none; and from there back to the store.
#[tokio::test(start_paused = true)]
async fn who_waits_where_something_stands_in_does_so_whatever_outage_is_reloaded() {
    let store = Switched::default();
    let rule = || Rule::named("all").quota(Quota::new(4, SECOND * 2));
    let table = |outage| rules([rule().max_wait(PATIENCE).outage(outage)]);
    let half = Outage::Local { share: 0.5 };
    let builder = Limiter::builder().store(store.clone()).rules(table(half));
    let limiter = builder.build().expect("a limiter");
    store.switch(Mode::Refuses);
    let start = Instant::now();
    let wait = || {
        let acquire = limiter.acquire("a");
        tokio::spawn(async move {
            acquire.await.expect("a permit");
            start.elapsed()
        })
    };
    let by_share: Vec<_> = (0..5).map(|_| wait()).collect();
    sleep(SECOND).await;
    limiter.reload(table(Outage::Deny)).expect("rules");
    let new = wait();
    sleep(SECOND * 2).await;
    let has_departed: Vec<_> = by_share.iter().map(|it| it.is_finished()).collect();
    assert_eq!(has_departed, [true, true, true, true, false]);
    assert!(!new.is_finished(), "it waits for the store");
    store.switch(Mode::Works);
    let last = timeout(PATIENCE, join_all(by_share))
        .await
        .expect("all depart");
    let last = last
        .into_iter()
        .next_back()
        .expect("a fifth")
        .expect("no panic");
    let new = timeout(PATIENCE, new).await.expect("it departs");
    assert!(last >= SECOND * 3, "by the store: {last:?}");
    assert!(last <= new.expect("no panic"), "in order of arrival");
}

/// The answer that shows it is one request's: those that come after it agree with the clock as it is by then.
#[tokio::test(start_paused = true)]
async fn a_clock_that_one_rule_finds_to_be_set_rests_the_keys_of_all() {
    const HOUR: Duration = Duration::from_secs(3_600);
    for by in [-2, 2] {
        let clock = ManualClock::running();
        let store = FailingStore::new(MemoryStore::with_clock(clock.clone()));
        let strict = |name| {
            per_hour(name, 1)
                .recovery(Recovery::Strict)
                .max_wait(SECOND)
        };
        let table = || rules([strict("one").path("/a"), strict("other")]);
        let limiters = [(); 2].map(|()| {
            let builder = Limiter::builder().store(store.clone()).rules(table());
            builder.build().expect("a limiter")
        });
        let rule = |place: usize, name| limiters[place].rule(name).expect("a rule");
        let is_granted = async |place, name, key: &str| {
            let decision = rule(place, name).try_acquire(key).await;
            decision.expect("a decision").is_granted()
        };
        assert!(is_granted(0, "other", "a").await);
        assert!(is_granted(0, "one", "a").await);
        let start = Instant::now();
        match by {
            ..0 => clock.set_back(HOUR * 2),
            _ => clock.advance(HOUR * 2),
        }
        // Whatever becomes of this one, it reads the clock.
        is_granted(0, "one", "b").await;
        sleep(SECOND).await;
        // Who knows of no other clock is told by the store.
        assert!(!is_granted(1, "other", "a").await);
        assert!(!is_granted(0, "other", "a").await);
        while !is_granted(1, "other", "a").await {
            sleep(SECOND * 10).await;
        }
        let rested = start.elapsed();
        assert!((HOUR..HOUR + SECOND * 60).contains(&rested), "{rested:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_rules_share_one_connection_on_which_pauses_are_heard() {
    let redis = RedisServer::start();
    let table = || rules((0..20).map(|place| per_hour(&format!("rule-{place}"), 1)));
    let limiters = [on(&redis, &table()).await, on(&redis, &table()).await];
    let [one, other] = limiters
        .each_ref()
        .map(|it| it.rule("rule-7").expect("a rule"));
    let until = Instant::now() + Duration::from_secs(600);
    one.pause("a", until).await.expect("a store");
    let is_granted = async || {
        other
            .try_acquire("a")
            .await
            .expect("a decision")
            .is_granted()
    };
    assert!(!is_granted().await);
    for limiter in &limiters {
        limiter.reload(table()).expect("a limiter with rules");
    }
    let channels: Vec<String> = redis.command(&["PUBSUB", "CHANNELS"]);
    let [channel] = &channels[..] else {
        panic!("{channels:?}")
    };
    let (_, listening): (String, usize) = redis.command(&["PUBSUB", "NUMSUB", channel]);
    assert_eq!(listening, limiters.len());
    // Without a word of it, the other would refuse by what it knows.
    one.resume("a").await.expect("a store");
    let granted = async {
        while !is_granted().await {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, granted).await.expect("it hears");
}
