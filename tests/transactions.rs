//! Servers that allow no scripts: transactions share quotas as exactly.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use support::child;
use support::errors::{PATIENCE, store_error};
use support::redis_server::RedisServer;
use support::spend::under;
use support::upstream::Upstream;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tower_throttle::Quota;
use tower_throttle::store::RedisStore;
use tower_throttle::test_util::history::History;
use tower_throttle::{Limiter, LimiterBuilder};

/// Creates a user with all rights but that to run scripts.
fn without_scripting(server: &RedisServer) -> String {
    let user = [
        "ACL",
        "SETUSER",
        "plain",
        "on",
        ">secret",
        "~*",
        "&*",
        "+@all",
        "-@scripting",
    ];
    server.command::<()>(&user);
    format!("redis://plain:secret@127.0.0.1:{}/", server.port())
}

async fn limiter(url: &str, builder: LimiterBuilder) -> Limiter {
    let store = RedisStore::connect(url).await.expect("a connection");
    let store = store.timeout(PATIENCE).scripting(false);
    let builder = builder.store(store.expect("its own connections"));
    builder.build().expect("a valid policy")
}

const LIMIT: u32 = 20;
const WINDOW: Duration = Duration::from_millis(500);
const CALLERS: usize = 50;

#[tokio::test]
#[ignore = "started by another test as a process of its own"]
async fn replica() {
    let Some(role) = child::role() else { return };
    let (url, upstream) = role.split_once(' ').expect("two addresses");
    // Arrival upstream is later than the departure.
    let builder = under(&[])
        .quota(Quota::new(LIMIT, WINDOW))
        .buffer(WINDOW / 5);
    let limiter = limiter(url, builder).await;
    let client = reqwest::Client::new();
    child::say("is ready");
    assert_eq!(child::hear(), "go");
    let answers = (0..CALLERS).map(|_| limiter.run("a", || client.get(upstream).send()));
    for answer in join_all(answers).await {
        let answer = answer.expect("a permit").expect("an answer");
        assert_eq!(answer.status(), 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_with_scripts_and_without_share_their_quotas() {
    let server = RedisServer::start();
    let url = without_scripting(&server);
    let window = Duration::from_millis(200);
    let builder = || {
        let quota = Quota::new(5, window);
        under(&[]).quota(quota).quota(Quota::new(12, window * 3))
    };
    let scripts = RedisStore::connect(&server.url()).await;
    let scripts = builder().store(scripts.expect("a connection").timeout(PATIENCE));
    let limiters = [
        limiter(&url, builder()).await,
        limiter(&url, builder()).await,
        scripts.build().expect("a valid policy"),
    ];
    let start = Instant::now();
    let departures = limiters.iter().cycle().take(60).map(async |limiter| {
        let departure = limiter.run("a", async || start.elapsed()).await;
        departure.expect("a permit")
    });
    let history: History = join_all(departures).await.into_iter().collect();
    assert_eq!(history.len(), 60);
    history.assert_at_most(5, window);
    history.assert_at_most(12, window * 3);
    assert_eq!(server.command::<usize>(&["DBSIZE"]), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_processes_of_fifty_callers_never_exceed_the_limit() {
    let server = RedisServer::start();
    let upstream = Upstream::start().await;
    let role = format!("{} {}", without_scripting(&server), upstream.uri());
    let replicas = tokio::task::spawn_blocking(move || {
        let mut replicas = [(); 3].map(|()| child::spawn("transactions::replica", &role, &[]));
        for replica in &mut replicas {
            assert_eq!(replica.next_line(PATIENCE), "is ready");
        }
        replicas.iter_mut().for_each(|replica| replica.tell("go"));
        for replica in replicas {
            replica.finish(PATIENCE * 2);
        }
    });
    replicas.await.expect("all replicas finish");
    let history = upstream.history();
    assert_eq!(history.len(), 3 * CALLERS, "each request arrives once");
    history.assert_at_most(LIMIT.into(), WINDOW);
    let stats = server.command::<String>(&["INFO", "commandstats"]);
    assert!(
        stats.contains("cmdstat_exec:") && !stats.contains("cmdstat_eval"),
        "{stats}"
    );
}

/// Passes everything on to a server, and changes the watched value before each of the first `spoiled` transactions.
struct Spoiler {
    url: String,
    transactions: Arc<AtomicUsize>,
}

impl Spoiler {
    async fn start(server: &RedisServer, spoiled: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let transactions = Arc::new(AtomicUsize::new(0));
        let (client, count) = (server.client(), transactions.clone());
        let server = ("127.0.0.1", server.port());
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let far = TcpStream::connect(server).await.expect("a server");
                let other = client.get_multiplexed_async_connection().await;
                let mut other = other.expect("a connection");
                let count = count.clone();
                let (mut from_near, mut to_near) = near.into_split();
                let (mut from_far, mut to_far) = far.into_split();
                tokio::spawn(async move { copy(&mut from_far, &mut to_near).await });
                tokio::spawn(async move {
                    let mut buffer = vec![0; 1 << 16];
                    while let Ok(size @ 1..) = from_near.read(&mut buffer).await {
                        let sent = &buffer[..size];
                        let begins = sent.windows(5).any(|word| word == b"MULTI");
                        if begins && count.fetch_add(1, Ordering::SeqCst) < spoiled {
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
        Self {
            url: format!("redis://127.0.0.1:{port}/"),
            transactions,
        }
    }

    fn transactions(&self) -> usize {
        self.transactions.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn a_call_that_is_overtaken_tries_again() {
    let server = RedisServer::start();
    let spoiler = Spoiler::start(&server, 7).await;
    let limiter = limiter(&spoiler.url, under(&["2/h"])).await;
    let decision = limiter.try_acquire("a").await.expect("a decision");
    assert!(decision.is_granted());
    assert_eq!(spoiler.transactions(), 8);
    assert_eq!(limiter.peek("a").await.expect("a look").remaining(), 1);
}

#[tokio::test]
async fn a_call_that_is_overtaken_too_often_fails_and_consumes_nothing() {
    let server = RedisServer::start();
    let spoiler = Spoiler::start(&server, usize::MAX).await;
    let limiter = limiter(&spoiler.url, under(&["2/h"])).await;
    let error = limiter.try_acquire("a").await.expect_err("no way through");
    let error = store_error(&error);
    assert!(
        !error.is_outcome_unknown() && !error.is_outage(),
        "{error:?}"
    );
    assert_eq!(
        error.to_string(),
        "other processes changed the same key too often: allow scripts, or raise the timeout"
    );
    assert_eq!(spoiler.transactions(), 50);
    assert_eq!(limiter.peek("a").await.expect("a look").remaining(), 2);
}

#[tokio::test]
async fn a_request_that_waits_calls_again_after_too_many_conflicts() {
    let server = RedisServer::start();
    let spoiler = Spoiler::start(&server, 120).await;
    let limiter = limiter(&spoiler.url, under(&["2/h"])).await;
    limiter.acquire("a").await.expect("a permit");
    assert!(spoiler.transactions() > 120);
    assert_eq!(limiter.peek("a").await.expect("a look").remaining(), 1);
}
