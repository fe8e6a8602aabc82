//! Several runtimes that share one store: none keeps the requests of another.

mod support;

use std::future::Future;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::poll;
use support::redis_server::RedisServer;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, sleep, timeout};
use tower_throttle::key::Key;
use tower_throttle::store::{RedisStore, Reserve, Store, StoreError};
use tower_throttle::{Limiter, Quota};

const SECOND: Duration = Duration::from_secs(1);

fn runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
}

/// Serves the connection, and nothing else.
fn connection_runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build();
    runtime.expect("a runtime")
}

async fn reserve(store: &RedisStore, number: usize) -> Result<(), StoreError> {
    let limiter = Limiter::builder().quota(Quota::per_second(10)).build();
    let policy = limiter.expect("a valid policy").policy();
    let key = Key::from(format!("key {number}"));
    let reply = store.reserve(&Reserve::new(&key, &policy));
    reply.await.map(drop)
}

/// Makes the runtime carry what others ask for, and leaves it alone.
fn strand(store: &RedisStore, runtime: &Runtime) -> Vec<impl Future> {
    runtime.block_on(async {
        let mut asking: Vec<_> = (0..5)
            .map(|number| {
                let store = store.clone();
                Box::pin(async move { reserve(&store, number).await })
            })
            .collect();
        for it in &mut asking {
            // The server may be so fast that some have their answer.
            let _ = poll!(it);
        }
        asking
    })
}

#[test]
fn runtimes_that_do_not_run_keep_nobody_waiting() {
    let server = RedisServer::start();
    let connected = connection_runtime();
    let store = connected.block_on(RedisStore::connect(&server.url()));
    let store = store.expect("a connection").timeout(SECOND);
    connected.block_on(reserve(&store, 0)).expect("an answer");
    let idle = [runtime(), runtime()];
    let stranded = [strand(&store, &idle[0]), strand(&store, &idle[1])];
    let running = runtime();
    let all_answer = || {
        let all = join_all((10..15).map(|number| reserve(&store, number)));
        let all = running.block_on(async { timeout(SECOND * 20, all).await });
        all.expect("an end to it, as it is bounded")
    };
    for answer in all_answer() {
        answer.expect("an answer, whoever else does not run");
    }
    drop(stranded);
    drop(idle);
    for answer in all_answer() {
        answer.expect("an answer, now that the others are gone");
    }
}

#[test]
fn what_a_call_carries_along_does_not_prolong_the_timeout_of_a_store() {
    let server = RedisServer::start();
    let running = connection_runtime();
    running.block_on(async {
        let store = RedisStore::connect(&server.url())
            .await
            .expect("a connection");
        let (short, long) = (store.clone().timeout(SECOND), store.timeout(SECOND * 30));
        reserve(&long, 0).await.expect("an answer");
        server.sigstop();
        let others: Vec<_> = (0..10)
            .map(|number| {
                let long = long.clone();
                tokio::spawn(async move { reserve(&long, number).await })
            })
            .collect();
        sleep(SECOND / 10).await;
        let start = Instant::now();
        let answers = join_all((20..25).map(|number| reserve(&short, number))).await;
        let took = start.elapsed();
        server.sigcont();
        assert!(took < SECOND * 15, "{took:?}");
        assert!(answers.iter().all(Result::is_err), "{answers:?}");
        for other in others {
            other.await.expect("no panic").expect("an answer");
        }
    });
}
