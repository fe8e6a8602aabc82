//! Hostile input does no harm, and secrets stay secret.

use std::fmt::Debug;

use tower_throttle::store::Answered;
use tower_throttle::store::contents::Grant;

use crate::prelude::*;

mod urls;

fn shown(it: &dyn Debug) -> String {
    format!("{it:?} {it:#?}")
}

/// Nudges are only hints: a flood of them, true or not, lets no request depart early.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn false_nudges_and_other_messages_change_nothing() {
    let server = RedisServer::start();
    let window = Duration::from_millis(300);
    let builder = under(&[]).quota(Quota::new(5, window)).buffer(window / 10);
    let limiter = build(builder.store(server.store().await));
    limiter.acquire("a").await.expect("a permit");
    let connection = server.client().get_multiplexed_async_connection().await;
    let (mut connection, mut received) = (connection.expect("a connection"), 0);
    let flood = async {
        let long = "x".repeat(100_000);
        let odd = [&b"a"[..], b"", &[0xff, 0, 0x80], &[0xff; 20], b"a\r\nPING"];
        for message in odd.into_iter().chain([long.as_bytes()]).cycle() {
            let mut publish = redis::cmd("PUBLISH");
            publish.arg("throttle:nudges").arg(message);
            let count = publish.query_async::<u64>(&mut connection).await;
            received += count.expect("an answer");
        }
    };
    let start = Instant::now();
    let departures = (0..40).map(|_| async {
        bounded(limiter.acquire("a")).await.expect("a permit");
        start.elapsed()
    });
    let history: History = tokio::select! {
        departures = join_all(departures) => departures.into_iter().collect(),
        () = flood => unreachable!("it has no end"),
    };
    assert!(received > 0, "the store subscribes");
    history.assert_at_most(5, window);
}

/// A store whose answers are changed.
#[derive(Debug)]
struct Spoiled(MemoryStore, fn(&mut Answered));

impl Store for Spoiled {
    fn call(&self, calls: Vec<Call>) -> Reply {
        let (reply, spoil) = (self.0.call(calls), self.1);
        Box::pin(async move {
            let mut answered = reply.await?;
            spoil(&mut answered);
            Ok(answered)
        })
    }

    fn ping(&self, key: &Key) -> Reply {
        self.0.ping(key)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_number_in_an_answer_holds_up_a_request() {
    let spoils: [fn(&mut Answered); 4] = [
        |it| grants(it).for_each(|grant| grant.requests = 20_000_000),
        |it| grants(it).for_each(|grant| grant.recorded = 0),
        |it| it.now = (1 << 56) - 1,
        |it| it.now = 0,
    ];
    for (nth, spoil) in spoils.into_iter().enumerate() {
        let store = Spoiled(MemoryStore::new(), spoil);
        let limiter = build(per_second(10).buffer(SECOND).store(store));
        for _ in 0..2 {
            let requests = (1..4).map(|cost| limiter.acquire("a").cost(cost).max_wait(SECOND));
            // A task that panics does not answer for 5 s.
            let ended = timeout(SECOND * 4, join_all(requests)).await;
            assert!(ended.is_ok(), "{nth}");
        }
    }
}

fn grants(answered: &mut Answered) -> impl Iterator<Item = &mut Grant> {
    let taken = answered.answers.iter_mut().flatten();
    taken.flat_map(|taken| &mut taken.grants)
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
        assert_eq!(store.clone().prefix(text).is_ok(), is_fine, "{text:?}");
        let named = under(&["5/h"]).name(text).build();
        assert_eq!(named.is_ok(), is_fine, "{text:?}");
    }
}
