//! Hostile input does no harm, and secrets stay secret.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use support::keyspace::names;
use support::spend::spend;
use tokio::runtime::Runtime;
use tower_throttle::store::inspect::StoredKey;

use crate::prelude::*;

mod urls;

/// Two quotas that hold jointly.
pub(crate) fn quotas() -> LimiterBuilder {
    under(&["5/h", "7/h"])
}

fn shown(it: &dyn Debug) -> String {
    format!("{it:?} {it:#?}")
}

const CHANNEL: &str = "throttle:nudges";

/// Nudges are only hints: a flood of them, true or not, lets no request depart early.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn false_nudges_and_other_messages_change_nothing() {
    let server = RedisServer::start();
    let window = Duration::from_millis(300);
    let builder = under(&[]).quota(Quota::new(5, window)).buffer(window / 10);
    let limiter = build(builder.store(server.store().await));
    limiter.acquire("a").await.expect("a permit");
    let (client, has_ended) = (server.client(), Arc::new(AtomicBool::new(false)));
    let ended = has_ended.clone();
    let flood = std::thread::spawn(move || {
        let mut connection = client.get_connection().expect("a connection");
        let long = "x".repeat(100_000);
        let messages = [
            &b"a"[..],
            b"",
            b"b",
            &[0xff, 0, 0x80],
            long.as_bytes(),
            b"a\r\nPING",
        ];
        let mut received = 0;
        while !ended.load(Ordering::Relaxed) {
            for message in messages {
                let publish = redis::cmd("PUBLISH").arg(CHANNEL).arg(message).clone();
                let count: u64 = publish.query(&mut connection).expect("an answer");
                received += count;
            }
        }
        received
    });
    let start = Instant::now();
    let departures = (0..40).map(|_| async {
        bounded(limiter.acquire("a")).await.expect("a permit");
        start.elapsed()
    });
    let history: History = join_all(departures).await.into_iter().collect();
    has_ended.store(true, Ordering::Relaxed);
    assert!(flood.join().expect("no panic") > 0, "the store subscribes");
    history.assert_at_most(5, window);
}

/// Texts that try to be something else, and any others.
fn text() -> impl Strategy<Value = String> {
    let nasty = [
        "\r\nFLUSHALL\r\n",
        "$-1\r\n",
        "a\0b",
        "{}",
        "a}b{c",
        "'); redis.call('FLUSHALL') --",
        "*?[a-z]",
        "\u{202e}\u{feff}\u{10ffff}",
    ];
    let nasty = (prop::sample::select(nasty.to_vec()), 1..40_usize);
    let nasty = nasty.prop_map(|(it, times)| it.repeat(times));
    prop_oneof![nasty, "\\PC{1,200}", "[!-~]{1,20}", "[ -~]{1,20}"]
}

#[test]
fn a_name_or_prefix_is_refused_unless_it_leaves_the_tag_alone() {
    let runtime = Runtime::new().expect("a runtime");
    let server = RedisServer::start();
    let store = runtime.block_on(server.store());
    proptest!(ProptestConfig::with_cases(100), |(text in text(), is_prefix: bool)| {
        let visible = |byte: u8| byte.is_ascii_graphic() && !b"{}".contains(&byte);
        let is_fine = text.len() <= 128 && text.bytes().all(visible);
        let _context = runtime.enter();
        let (store, builder, name) = match is_prefix {
            true => match store.clone().prefix(&text) {
                Ok(store) => (store, quotas(), None),
                Err(_) => {
                    prop_assert!(!is_fine, "{:?}", text);
                    return Ok(());
                }
            },
            false => (store.clone(), quotas().name(&text), Some(&*text)),
        };
        prop_assert_eq!(builder.clone().build().is_ok(), is_fine, "{:?}", text);
        if is_fine {
            runtime.block_on(async {
                spend(&store, builder, "a", 3).await;
                let names = names(&server);
                let has_tag =
                    |it: &String| it.contains(":{a}") && it.matches(['{', '}']).count() == 2;
                prop_assert!(names.len() == 1 && names.iter().all(has_tag), "{:?}", names);
                let stored = StoredKey::new(&"a".into(), name);
                let page = store.keys().next_page().await.expect("a page");
                prop_assert_eq!(page.expect("one"), [stored.clone()]);
                store.delete(&stored).await.expect("an answer");
                Ok(())
            })?;
        }
    });
}
