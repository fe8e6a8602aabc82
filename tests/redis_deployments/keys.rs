//! The keys in a Redis: each is listed, wherever it is, and its state is shown.

use tower_throttle::store::inspect::{KeyState, Keys, StoredKey};

use super::rights::{additional, connect, set_user};
use crate::prelude::*;

async fn all(mut keys: Keys) -> BTreeSet<StoredKey> {
    let mut found = BTreeSet::new();
    while let Some(page) = bounded(keys.next_page()).await.expect("a page") {
        found.extend(page);
    }
    found
}

async fn look(store: &RedisStore, key: &StoredKey) -> Result<Option<KeyState>, StoreError> {
    store.look(std::slice::from_ref(key)).await.remove(0)
}

/// Spends one unit of each of so many keys and one long one, with a named policy and one without a name in turn.
async fn spend_many(store: &RedisStore, count: usize) -> BTreeSet<StoredKey> {
    let named = under(&["5/h gcra burst=5"]).name("a:b+c");
    let limiters = [under(&["10/h"]), named].map(|it| build(it.store(store.clone())));
    let keys = (0..count).map(|number| format!("key {number} {{é}}"));
    let keys = keys.chain(["long ".repeat(30)]);
    let mut spent = BTreeSet::new();
    for (key, limiter) in keys.zip(limiters.iter().cycle()) {
        spend_by(limiter, &key, 1).await;
        spent.insert(StoredKey::new(&Key::from(key), limiter.policy().name()));
    }
    spent
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_key_is_listed_and_nothing_else() {
    let server = RedisServer::start();
    let store = server.store().await;
    let spent = spend_many(&store, 3_000).await;
    for name in ["throttle:created", "throttle:{a}b", "other"] {
        server.command::<()>(&["SET", name, "1"]);
    }
    let other = store.clone().prefix("throttle?").expect("a prefix");
    spend_many(&other, 50).await;
    let before = CommandStats::of(&server);
    assert_eq!(all(store.keys()).await, spent);
    let after = CommandStats::of(&server).since(&before);
    assert_eq!(after.calls("keys"), 0);
    assert!((4..=8).contains(&after.calls("scan")), "{after:?}");
    assert_eq!(all(store.keys().page_size(100)).await, spent);
    assert_eq!(all(other.keys()).await.len(), 51);

    let key = Key::from("key 17 {é}");
    let of_key = all(store.keys().of(&key)).await;
    assert_eq!(of_key, [StoredKey::new(&key, Some("a:b+c"))].into());
    let mut digests = spent.iter().filter(|stored| stored.key().is_none());
    let digest = digests.next().expect("the long one").encoded();
    assert!(digest.starts_with("%sha256:"), "{digest}");
    assert!(all(store.keys().of(&"key".into())).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_survives_a_lost_connection_and_a_dropped_future() {
    let server = RedisServer::start();
    let store = server.store().await;
    let spent = spend_many(&store, 300).await;
    let mut keys = store.keys().page_size(10);
    let mut listed = Vec::new();
    for _ in 0..15 {
        let page = bounded(keys.next_page()).await.expect("a page");
        listed.extend(page.expect("more"));
    }
    server.sigstop();
    let dropped = tokio::time::timeout(Duration::from_millis(20), keys.next_page()).await;
    assert!(dropped.is_err());
    server.sigcont();
    let page = bounded(keys.next_page()).await.expect("a page");
    listed.extend(page.expect("more"));
    // The list has not started again.
    let looked_at = keys.looked_at();
    assert!((150..200).contains(&looked_at), "{looked_at}");
    server.command::<()>(&["CLIENT", "KILL", "TYPE", "normal"]);
    let mut pages = 0;
    loop {
        match bounded(keys.next_page()).await {
            Ok(None) => break,
            Ok(Some(page)) => listed.extend(page),
            Err(error) => assert!(error.is_outage(), "{error:?}"),
        }
        pages += 1;
        assert!(pages < 1_000);
    }
    assert_eq!(BTreeSet::from_iter(listed), spent);
}

/// Quotas, and the costs of the requests that depart.
const LOOKS: [(&str, &[u32]); 8] = [
    ("10/h", &[1, 4]),
    ("200/h", &[1, 150]),
    ("3000/h", &[1, 500, 2_400]),
    ("2000/h sliding-buckets buckets=1000", &[1, 700]),
    ("10/h gcra burst=5", &[1, 3]),
    ("10/h fixed-window start=first-request", &[1, 9]),
    ("10/h spacing", &[1]),
    ("10/h leaky-bucket capacity=1000", &[1]),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_shows_what_a_limiter_knows() {
    let server = RedisServer::start();
    let store = server.store().await;
    for (text, costs) in LOOKS {
        let limiter = build(under(&[text]).store(store.clone()));
        let stored = StoredKey::new(&Key::from(text), None);
        assert!(look(&store, &stored).await.expect("a look").is_none());
        let mut spent = 0;
        for &cost in costs {
            spend_by(&limiter, text, cost).await;
            spent += cost;
            let peek = bounded(limiter.peek(text)).await.expect("a look");
            let seen = look(&store, &stored).await.expect("a look").expect("state");
            let context = format!("{text}, {spent}: {seen:?}, {peek:?}");
            // A unit may become available in between.
            let more = seen.snapshot.remaining().checked_sub(peek.remaining());
            assert!(more.is_some_and(|more| more <= 1), "{context}");
            for (one, other) in [
                (seen.snapshot.reset(), peek.reset()),
                (seen.snapshot.delay(), peek.delay()),
            ] {
                assert!(one.abs_diff(other) < Duration::from_secs(5), "{context}");
            }
            let quota = seen.quotas[0];
            let least = spent.min(quota.capacity);
            assert!((least..=spent + 1).contains(&quota.used), "{context}");
            assert!(seen.bytes > 0 && seen.expiry.is_some(), "{context}");
            assert_eq!(seen.waiting, [], "{context}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_that_is_not_recognized_is_an_error_of_that_key_alone() {
    let server = RedisServer::start();
    let store = server.store().await;
    spend(&store, under(&["10/h"]), "sound", 1).await;
    let huge = "tt".repeat(1_000_000);
    server.command::<()>(&["SET", "throttle:{huge}", &huge]);
    server.command::<()>(&["RPUSH", "throttle:{list}", "a"]);
    let keys = ["huge", "sound", "list"].map(|key| StoredKey::new(&key.into(), None));
    let before = CommandStats::of(&server);
    let states = store.look(&keys).await;
    let calls = CommandStats::of(&server).since(&before);
    assert_eq!(calls.calls("getrange"), 3);
    for (key, state) in keys.iter().zip(states) {
        match state {
            Ok(state) => assert_eq!((key.encoded(), state.is_some()), ("sound", true)),
            Err(error) => {
                assert!(error.is_unrecognized_value() && !error.is_outage());
                let name = format!("throttle:{{{key}}}");
                assert!(everything(&error).contains(&name), "{}", everything(&error));
                store.delete(key).await.expect("the right to it");
                assert!(look(&store, key).await.expect("a look").is_none());
            }
        }
    }
    assert_eq!(server.command::<u8>(&["DBSIZE"]), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listing_takes_the_additional_rights_in_the_guide() {
    let server = RedisServer::start();
    set_user(&server, "throttle-plain", &[]);
    let store = connect(&server, "throttle-plain").await;
    let spent = spend_many(&store, 10).await;
    let error = store.keys().next_page().await.expect_err("no right to it");
    assert!(!error.is_outage(), "{error:?}");
    let one = spent.first().expect("a key");
    let error = look(&store, one).await.expect_err("no right to it");
    assert!(!error.is_outage(), "{error:?}");
    set_user(&server, "throttle-plain", &additional("listing keys"));
    assert_eq!(all(store.keys()).await, spent);
    look(&store, one).await.expect("a look");
}
