//! Servers that allow no scripts: a transaction that others overtake is repeated.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use support::errors::{PATIENCE, store_error};
use support::redis_server::RedisServer;
use support::spend::{build, under};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tower_throttle::store::RedisStore;
use tower_throttle::{Limiter, LimiterBuilder};

async fn limiter(url: &str, builder: LimiterBuilder) -> Limiter {
    let store = RedisStore::connect(url).await.expect("a connection");
    let store = store.timeout(PATIENCE).scripting(false);
    build(builder.store(store.expect("its own connections")))
}

/// Passes everything on to a server, and changes the watched value before each of the first `spoiled` transactions.
/// Returns its URL, and how many transactions there were.
async fn spoil(server: &RedisServer, spoiled: usize) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let transactions = Arc::new(AtomicUsize::new(0));
    let (client, all) = (server.client(), transactions.clone());
    let server = ("127.0.0.1", server.port());
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let far = TcpStream::connect(server).await.expect("a server");
            let other = client.get_multiplexed_async_connection().await;
            let (mut other, all) = (other.expect("a connection"), all.clone());
            let (mut from_near, mut to_near) = near.into_split();
            let (mut from_far, mut to_far) = far.into_split();
            tokio::spawn(async move { copy(&mut from_far, &mut to_near).await });
            tokio::spawn(async move {
                let mut buffer = vec![0; 1 << 16];
                while let Ok(size @ 1..) = from_near.read(&mut buffer).await {
                    let sent = &buffer[..size];
                    let begins = sent.windows(5).any(|word| word == b"MULTI");
                    if begins && all.fetch_add(1, Ordering::SeqCst) < spoiled {
                        // The value stays the same, but it was written.
                        let mut change = redis::pipe();
                        change.cmd("APPEND").arg("throttle:{a}").arg("x").ignore();
                        change.cmd("DEL").arg("throttle:{a}").ignore();
                        change.exec_async(&mut other).await.expect("a change");
                    }
                    if to_far.write_all(sent).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    (format!("redis://127.0.0.1:{port}/"), transactions)
}

#[tokio::test]
async fn a_call_that_is_overtaken_tries_again_and_fails_after_fifty_times() {
    for (spoiled, least, left) in [(7, 8, 1), (120, 121, 1), (usize::MAX, 50, 2)] {
        let server = RedisServer::start();
        let (url, transactions) = spoil(&server, spoiled).await;
        let limiter = limiter(&url, under(&["2/h"])).await;
        if spoiled == 120 {
            // A request that waits calls again.
            limiter.acquire("a").await.expect("a permit");
        } else {
            match limiter.try_acquire("a").await {
                Ok(decision) => assert!(decision.is_granted() && spoiled == 7),
                Err(error) => {
                    let error = store_error(&error);
                    assert!(!error.is_outcome_unknown() && !error.is_outage());
                    assert_eq!(
                        error.to_string(),
                        "other processes changed the same key too often: allow scripts, or raise the timeout"
                    );
                }
            }
        }
        assert_eq!(transactions.load(Ordering::SeqCst), least);
        let remaining = limiter.peek("a").await.expect("a look").remaining();
        assert_eq!(remaining, left, "{spoiled}");
    }
}
