//! Messages of others on the channel of nudges.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;
use tower_throttle::Quota;
use tower_throttle::test_util::history::History;

use support::errors::bounded;
use support::redis_server::RedisServer;
use support::spend::under;

const CHANNEL: &str = "throttle:nudges";

/// Nudges are only hints: a flood of them, true or not, lets no request depart early.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn false_nudges_and_other_messages_change_nothing() {
    let server = RedisServer::start();
    let window = Duration::from_millis(300);
    let builder = under(&[]).quota(Quota::new(5, window)).buffer(window / 10);
    let limiter = builder.store(server.store().await).build();
    let limiter = limiter.expect("a valid policy");
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
