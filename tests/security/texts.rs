//! Any text as a key, a name or a prefix.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use tokio::runtime::Runtime;
use tower_throttle::Limiter;
use tower_throttle::key::Key;
use tower_throttle::store::RedisStore;
use tower_throttle::store::inspect::StoredKey;

use crate::security::{LONG, quotas};
use support::keyspace::{names, start_cluster};
use support::monitor::{Monitor, Seen};
use support::redis_server::RedisServer;
use support::spend::spend_by;

/// The documented commands of clients and scripts, without those that set up a connection.
const CALLS: [&str; 7] = [
    "client",
    "del",
    "eval",
    "evalsha",
    "info",
    "subscribe",
    "time",
];
const COMMANDS: [&str; 8] = [
    "time", "get", "getrange", "set", "setrange", "pexpire", "del", "publish",
];

/// Texts that try to be something else.
const NASTY: [&str; 16] = [
    "\r\nFLUSHALL\r\n",
    "*1\r\n$8\r\nFLUSHALL\r\n",
    "$-1\r\n",
    "\0",
    "a\0b",
    "{",
    "}",
    "{}",
    "a}b{c",
    "throttle:{a}:5/10m",
    "'); redis.call('FLUSHALL') --",
    "]] redis.call('FLUSHALL') --",
    "\"\\x00\\r\\n",
    "*?[a-z]",
    "%sha256:00",
    "\u{202e}\u{feff}\u{10ffff}",
];

/// Any text, or a nasty one between others, or one longer than a name.
fn text() -> impl Strategy<Value = String> {
    let nasty = (
        any::<String>(),
        prop::sample::select(&NASTY[..]),
        any::<String>(),
    );
    prop_oneof![
        2 => any::<String>(),
        3 => nasty.prop_map(|(before, it, after)| [&before, it, &after].concat()),
        2 => prop::sample::select(&NASTY[..]).prop_map(str::to_owned),
        1 => (prop::sample::select(&NASTY[..]), 1..40_usize).prop_map(|(it, times)| it.repeat(times)),
    ]
    .prop_filter("the limiter refuses the empty key", |text| !text.is_empty())
}

/// Does everything with a key.
async fn use_key(limiter: &Limiter, key: &Key) {
    spend_by(limiter, key.as_str(), 3).await;
    limiter.peek(key).await.expect("an answer");
    let until = tokio::time::Instant::now() + LONG;
    limiter.pause(key, until).await.expect("an answer");
}

async fn delete(store: &RedisStore, key: &Key, policy: Option<&str>) {
    let stored = StoredKey::new(key, policy);
    store.delete(&stored).await.expect("an answer");
}

fn assert_only_ours(seen: &Seen) {
    for sent in &seen.commands {
        let expected = if sent.sender == "lua" {
            &COMMANDS[..]
        } else {
            &CALLS
        };
        assert!(expected.contains(&sent.name.as_str()), "{sent:?}");
    }
}

#[test]
fn no_key_becomes_a_command_or_shares_a_name() {
    let runtime = Runtime::new().expect("a runtime");
    let server = runtime.block_on(start_cluster());
    let store = runtime.block_on(server.store());
    let monitor = Monitor::start(&server);
    let run = |(one, other): (String, String)| {
        let (one, other) = (Key::from(one), Key::from(other));
        runtime.block_on(async {
            // A limiter of its own, so that no later call is of an earlier key.
            let limiter = quotas()
                .store(store.clone())
                .build()
                .expect("a valid policy");
            use_key(&limiter, &one).await;
            let first = own_names(&server);
            prop_assert_eq!(first.len(), 1);
            if one != other {
                use_key(&limiter, &other).await;
                prop_assert_eq!(own_names(&server).len(), 2);
                delete(&store, &other, None).await;
                prop_assert_eq!(&own_names(&server), &first);
            }
            drop(limiter);
            delete(&store, &one, None).await;
            prop_assert!(names(&server).is_empty());
            Ok(())
        })
    };
    check(100, (text(), text()), run);
    assert_only_ours(&monitor.finish(&server).without(&["keys"]));
}

fn check<S: Strategy>(
    cases: u32,
    strategy: S,
    run: impl Fn(S::Value) -> Result<(), TestCaseError>,
) {
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    if let Err(error) = TestRunner::new(config).run(&strategy, run) {
        panic!("{error}");
    }
}

/// All names, each of the documented form.
fn own_names(server: &RedisServer) -> BTreeSet<String> {
    let names = names(server);
    for name in &names {
        let rest = name.strip_prefix("throttle:{").expect("a prefix");
        let tag = rest.strip_suffix('}').expect("a tag");
        assert!(!tag.is_empty() && tag.len() <= 80, "{name}");
        assert!(
            tag.bytes()
                .all(|it| it.is_ascii_alphanumeric() || b".-_~:/@%".contains(&it)),
            "{name}"
        );
    }
    names
}

/// Names and prefixes are a part of the names of Redis keys as they are.
#[test]
fn a_name_or_prefix_is_refused_unless_it_leaves_the_tag_alone() {
    let runtime = Runtime::new().expect("a runtime");
    let server = runtime.block_on(start_cluster());
    let store = runtime.block_on(server.store());
    let monitor = Monitor::start(&server);
    let texts = prop_oneof![text(), "[!-~]{1,20}", "[ -~]{1,20}"];
    check(100, (texts, any::<bool>()), |(text, is_prefix)| {
        let visible = |byte: u8| byte.is_ascii_graphic() && !b"{}".contains(&byte);
        let is_fine = text.len() <= 128 && text.bytes().all(visible);
        let _context = runtime.enter();
        let (store, builder) = if is_prefix {
            let store = store.clone().prefix(&text);
            prop_assert_eq!(store.is_ok(), is_fine, "{:?}", text);
            let Ok(store) = store else { return Ok(()) };
            (store, quotas())
        } else {
            (store.clone(), quotas().name(&text))
        };
        let limiter = builder.store(store.clone()).build();
        prop_assert_eq!(limiter.is_ok(), is_fine, "{:?}", text);
        let Ok(limiter) = limiter else { return Ok(()) };
        let key = Key::from("a");
        runtime.block_on(async {
            use_key(&limiter, &key).await;
            let names = names(&server);
            let has_tag =
                |name: &String| name.contains(":{a}") && name.matches(['{', '}']).count() == 2;
            prop_assert!(names.len() == 1 && names.iter().all(has_tag), "{:?}", names);
            let listed = store
                .keys()
                .next_page()
                .await
                .expect("a page")
                .expect("one");
            let stored = StoredKey::new(&key, limiter.policy().name());
            prop_assert_eq!(listed, [stored]);
            delete(&store, &key, limiter.policy().name()).await;
            Ok(())
        })
    });
    assert_only_ours(&monitor.finish(&server).without(&["keys", "scan"]));
}
