//! What all rules of a limiter share: the store, and what is known of it.

use std::time::Duration;

use futures_util::future::join;
use futures_util::poll;
use tokio::time::{Instant, sleep, timeout};
use tower_throttle::{Limiter, Outage};

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
