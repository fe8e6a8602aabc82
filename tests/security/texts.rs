//! Any text as a key, a name or a prefix.

use std::cell::Cell;
use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use tokio::runtime::Runtime;
use tower_throttle::Policy;
use tower_throttle::key::Key;
use tower_throttle::store::{RedisStore, Release, Store, Word};

use crate::support::keyspace::{names, start_cluster};
use crate::support::monitor::{Monitor, Seen};
use crate::support::redis_server::RedisServer;
use crate::support::slots::slots;
use crate::{connect, quotas};

/// What clients and scripts may send, as the documentation of the store lists it, besides what sets a connection
/// up.
const CALLS: [&str; 6] = ["client", "del", "evalsha", "script", "subscribe", "publish"];
const COMMANDS: [&str; 12] = [
    "time", "exists", "get", "mget", "getrange", "strlen", "set", "psetex", "setrange", "pexpire",
    "del", "publish",
];

/// What tries to be something else.
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

/// Everything that a store can be asked for a key.
async fn ask_everything(store: &RedisStore, key: &Key, policy: &Policy) {
    let held = slots(store, key, policy, 6).await;
    let release = Release::new(key, policy, &held[3..]);
    store.release(&release).await.expect("an answer");
    let word = Word::Pause {
        span: 1_000_000,
        departed: u64::MAX,
    };
    let notice = store.heed(key, policy, word).await.expect("an answer");
    assert!(notice.until > 0);
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

/// In a cluster, a command whose names lie in different slots is refused.
#[test]
fn no_key_becomes_a_command_or_leaves_its_slot_or_shares_a_name() {
    let runtime = Runtime::new().expect("a runtime");
    let server = runtime.block_on(start_cluster());
    let store = runtime.block_on(connect(&server));
    let policy = quotas().build().expect("a valid policy").policy();
    let monitor = Monitor::start(&server);
    let calls = Cell::new(0);
    let run = |(one, other): (String, String)| {
        let (one, other) = (Key::from(one), Key::from(other));
        runtime.block_on(async {
            ask_everything(&store, &one, &policy).await;
            let first = own_names(&server, &policy);
            if one != other {
                ask_everything(&store, &other, &policy).await;
                calls.set(calls.get() + 3);
                let both = own_names(&server, &policy);
                prop_assert_eq!(both.len(), 2 * first.len(), "{:?}", both);
                store.reset(&other, &policy).await.expect("an answer");
                prop_assert_eq!(&own_names(&server, &policy), &first);
            }
            store.reset(&one, &policy).await.expect("an answer");
            prop_assert!(names(&server).is_empty());
            calls.set(calls.get() + 3);
            Ok(())
        })
    };
    check(100, (text(), text()), run);

    let seen = monitor.finish(&server).without(&["keys"]);
    assert_only_ours(&seen);
    // Each script was loaded once, and its first call repeated.
    assert!((calls.get()..calls.get() + 6).contains(&seen.calls("evalsha")));
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

/// All names there are, each of them of the form that is documented, with one tag.
fn own_names(server: &RedisServer, policy: &Policy) -> BTreeSet<String> {
    let names = names(server);
    for name in &names {
        let rest = name.strip_prefix("throttle:{").expect("a prefix");
        let (tag, rest) = rest.split_once('}').expect("a tag");
        assert!(!tag.is_empty() && tag.len() <= 80, "{name}");
        assert!(
            tag.bytes()
                .all(|it| it.is_ascii_alphanumeric() || b".-_~:/@%".contains(&it)),
            "{name}"
        );
        assert!(rest.starts_with(&format!(":{}", policy.id())), "{name}");
        assert!(!rest.contains(['{', '}']), "{name}");
    }
    names
}

#[tokio::test]
async fn a_key_of_a_megabyte_is_one_name_of_usual_length() {
    let server = RedisServer::start();
    let store = connect(&server).await;
    let policy = quotas().build().expect("a valid policy").policy();
    let monitor = Monitor::start(&server);
    let long = "{\r\nFLUSHALL}".repeat(100_000);
    let longer = format!("{long}!");
    for key in [&long, &longer] {
        let key = Key::from(key);
        slots(&store, &key, &policy, 3).await;
    }
    assert_eq!(own_names(&server, &policy).len(), 4);
    assert_only_ours(&monitor.finish(&server).without(&["keys"]));
}

/// Names and prefixes stand in the names of keys as they are: so not every text is one.
#[test]
fn a_name_or_prefix_is_refused_unless_it_leaves_the_tag_alone() {
    let runtime = Runtime::new().expect("a runtime");
    let server = runtime.block_on(start_cluster());
    let store = runtime.block_on(connect(&server));
    let monitor = Monitor::start(&server);
    let texts = prop_oneof![text(), "[!-~]{1,20}", "[ -~]{1,20}"];
    check(100, (texts, any::<bool>()), |(text, is_prefix)| {
        let visible = |byte: u8| byte.is_ascii_graphic() && !b"{}".contains(&byte);
        let is_fine = text.len() <= 128 && text.bytes().all(visible);
        let _context = runtime.enter();
        let (store, policy) = if is_prefix {
            let store = store.clone().prefix(&text);
            prop_assert_eq!(store.is_ok(), is_fine, "{:?}", text);
            let Ok(store) = store else { return Ok(()) };
            (store, quotas().build().expect("a valid policy").policy())
        } else {
            let limiter = quotas().name(&text).build();
            prop_assert_eq!(limiter.is_ok(), is_fine, "{:?}", text);
            let Ok(limiter) = limiter else { return Ok(()) };
            (store.clone(), limiter.policy())
        };
        let key = Key::from("a");
        runtime.block_on(async {
            ask_everything(&store, &key, &policy).await;
            let names = names(&server);
            let tag =
                |name: &String| name.contains(":{a}:") && name.matches(['{', '}']).count() == 2;
            prop_assert!(names.len() > 2 && names.iter().all(tag), "{:?}", names);
            store.reset(&key, &policy).await.expect("an answer");
            Ok(())
        })
    });
    assert_only_ours(&monitor.finish(&server).without(&["keys"]));
}
