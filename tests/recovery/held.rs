//! Slots that are held while the state is lost, by a process that has nothing to ask.

use std::time::Duration;

use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep, timeout_at};
use tower_throttle::store::RedisStore;
use tower_throttle::test_util::history::History;
use tower_throttle::{Limiter, Quota, Recovery};

use super::grown;
use super::support::proxy::Proxy;
use super::support::redis_server::RedisServer;

const LIMIT: u32 = 2;
const WINDOW: Duration = Duration::from_secs(1);

async fn limiter(url: &str, quota: Quota) -> Limiter {
    let store = RedisStore::connect(url).await.expect("a connection");
    let builder = Limiter::builder().store(store.timeout(Duration::from_secs(20)));
    let limiter = builder.recovery(Recovery::Strict).quota(quota).build();
    limiter.expect("a valid policy")
}

/// One request each, so that nobody asks once all hold slots; when each departs, unless the store refuses it.
fn wait(limiter: &Limiter, count: usize, start: Instant) -> JoinSet<Option<Duration>> {
    let mut callers = JoinSet::new();
    for _ in 0..count {
        let limiter = limiter.clone();
        callers.spawn(async move {
            loop {
                let Ok(permit) = limiter.acquire("a").await else {
                    return None;
                };
                let at = start.elapsed();
                if permit.is_valid() {
                    return Some(at);
                }
                permit.forfeit();
            }
        });
    }
    callers
}

/// A process waits, the store loses its state, and another comes that knows of nothing. Who still waits in the first
/// after ten windows.
async fn holds(user: &str, lose: impl FnOnce(&RedisServer)) -> usize {
    let server = grown();
    server.command::<()>(&["ACL", "SETUSER", "user", "on", ">pw", "~*", "&*", "+@all"]);
    let quota = Quota::new(LIMIT, WINDOW);
    let url = format!("redis://{user}127.0.0.1:{}/", server.port());
    let (first, second) = (
        limiter(&url, quota).await,
        limiter(&server.url(), quota).await,
    );
    let start = Instant::now();
    let mut held = wait(&first, 24, start);
    sleep(WINDOW * 3 / 2).await;
    lose(&server);
    let mut came = wait(&second, 8, start);
    let mut history = Vec::new();
    let until = Instant::now() + WINDOW * 10;
    for callers in [&mut held, &mut came] {
        while let Ok(Some(at)) = timeout_at(until, callers.join_next()).await {
            history.extend(at.expect("no panic"));
        }
    }
    assert!(history.len() >= 10, "they go on: {history:?}");
    history.sort_unstable();
    let history: History = history.into_iter().map(|at| (at, 1)).collect();
    history.assert_at_most(LIMIT.into(), WINDOW);
    held.len()
}

#[tokio::test]
async fn somebody_else_finds_the_store_empty() {
    holds("", |server| server.command(&["FLUSHALL"])).await;
}

/// It would have told the others.
#[tokio::test]
async fn somebody_finds_the_store_empty_whose_answer_is_lost() {
    let server = grown();
    let proxy = Proxy::start(server.port());
    let quota = Quota::new(LIMIT, WINDOW);
    let (holder, finder) = (
        limiter(&server.url(), quota).await,
        limiter(&proxy.url(), quota).await,
    );
    let start = Instant::now();
    let held = wait(&holder, 32, start);
    sleep(WINDOW * 4).await;
    proxy.cut_reply(b"{a}", 1);
    server.command::<()>(&["FLUSHALL"]);
    let came = wait(&finder, 8, start);
    let mut history = History::new();
    for callers in [held, came] {
        history.extend(callers.join_all().await.into_iter().flatten());
    }
    assert_eq!(proxy.cut_replies(), 1);
    history.assert_at_most(LIMIT.into(), WINDOW);
}

/// Nothing departs by what is not told; and that says why.
#[tokio::test]
async fn somebody_finds_the_store_empty_who_may_not_tell() {
    let server = grown();
    let user = [
        "ACL", "SETUSER", "user", "on", ">pw", "~*", "&*", "+@all", "-publish",
    ];
    server.command::<()>(&user);
    let quota = Quota::new(LIMIT, WINDOW);
    let url = format!("redis://user:pw@127.0.0.1:{}/", server.port());
    let (holder, finder) = (
        limiter(&server.url(), quota).await,
        limiter(&url, quota).await,
    );
    let _held = wait(&holder, 16, Instant::now());
    sleep(WINDOW).await;
    server.command::<()>(&["FLUSHALL"]);
    let error = finder.acquire("a").await.expect_err("it cannot tell");
    assert!(error.is_store(), "{error}");
    let text = format!("{:?}", std::error::Error::source(&error));
    assert!(text.contains("PUBLISH"), "{text}");
}

/// Its subscription comes back, but tells nothing of what was said meanwhile; and its tests fail.
#[tokio::test]
async fn who_may_ask_no_more_uses_nothing_for_long() {
    let waiting = holds("user:pw@", |server| {
        server.command::<()>(&["ACL", "SETUSER", "user", "-evalsha"]);
        server.command::<()>(&["FLUSHALL"]);
        server.command::<()>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    });
    assert_eq!(waiting.await, 0, "nobody tells them");
}

/// A moment of silence is no loss: the line goes on as it stood.
#[tokio::test]
async fn a_store_that_hangs_for_a_moment_costs_nobody_its_slot() {
    let server = grown();
    let limiter = limiter(&server.url(), Quota::per_second(5)).await;
    let start = Instant::now();
    let mut callers = wait(&limiter, 40, start);
    sleep(Duration::from_secs(2)).await;
    server.sigstop();
    sleep(Duration::from_millis(1_300)).await;
    server.sigcont();
    let mut last = Duration::ZERO;
    while let Some(at) = callers.join_next().await {
        let at = at.expect("no panic").expect("a permit");
        // Those who asked anew behind slots that nobody uses would wait until the end of these, at 8 s.
        assert!(
            at.saturating_sub(last) < Duration::from_secs(5),
            "{last:?} to {at:?}"
        );
        last = last.max(at);
    }
}

/// After that, a permit that is given back is of the life that has begun.
#[tokio::test]
async fn a_permit_that_is_given_back_after_a_reset_serves_the_next() {
    let server = grown();
    let limiter = limiter(&server.url(), Quota::new(1, WINDOW * 20)).await;
    let granted = async || limiter.try_acquire("a").await.expect("an answer").permit();
    assert!(granted().await.is_some());
    limiter.reset("a").await.expect("an answer");
    granted().await.expect("a permit").forfeit();
    // It goes back by a call of its own.
    let start = Instant::now();
    while granted().await.is_none() {
        assert!(start.elapsed() < WINDOW * 10, "it is not handed out again");
        yield_now().await;
    }
}
