//! Hostile input does no harm, and secrets stay secret.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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

/// A brace would end the tag of the key.
#[tokio::test]
async fn a_name_or_prefix_is_refused_unless_it_is_visible_ascii_without_braces() {
    let store = RedisStore::connect_lazy("redis://127.0.0.1:1/").expect("a URL");
    let long = ["x".repeat(128), "x".repeat(129)];
    for (text, is_fine) in [
        ("a", true),
        ("!|~", true),
        (&*long[0], true),
        (&*long[1], false),
        ("", false),
        ("a b", false),
        ("{a", false),
        ("a}", false),
        ("\r\nFLUSHALL\r\n", false),
        ("a\0b", false),
        ("\u{7f}", false),
        ("\u{e9}", false),
    ] {
        let prefixed = store.clone().prefix(text);
        assert_eq!(prefixed.is_ok(), is_fine, "{text:?}");
        let named = quotas().name(text).build();
        assert_eq!(named.is_ok(), is_fine, "{text:?}");
    }
}
