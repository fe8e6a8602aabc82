//! A server on a loopback port, and the limits that the tests put in front of it.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tower_throttle::key::{self, Header};
use tower_throttle::store::RedisStore;
use tower_throttle::tower::inbound::InboundLayer;
use tower_throttle::{Limiter, LimiterBuilder, Quota, ThrottleLayer};

use crate::support::errors::bounded;
use crate::support::redis_server::RedisServer;

/// Serves until it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(app: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let task = tokio::spawn(async move {
            axum::serve(listener, app).await.expect("a server");
        });
        Self { address, task }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) fn build(builder: LimiterBuilder) -> Limiter {
    builder.build().expect("a valid policy")
}

/// A store whose scripts have run, so that what a busy machine gives back at once, as the answer came too
/// late, is there before it asks again.
pub(crate) async fn store(redis: &RedisServer) -> RedisStore {
    let store = RedisStore::connect(&redis.url()).await;
    // A busy machine answers late; what happens then is another test's matter.
    let store = store
        .expect("a connection")
        .timeout(Duration::from_secs(10));
    // Room for as many attempts as it takes.
    let quota = Quota::per_hour(1_000);
    let limiter = build(Limiter::builder().quota(quota).store(store.clone()));
    let given_back = async {
        let permit = limiter.acquire("before all others").await;
        permit.expect("a permit").forfeit();
        let peek = || limiter.peek("before all others");
        while peek().await.expect("an answer").remaining() < 1_000 {
            tokio::task::yield_now().await;
        }
    };
    bounded(given_back).await;
    store
}

pub(crate) fn limiter(quota: Quota) -> Limiter {
    build(Limiter::builder().quota(quota))
}

/// By client, which is whatever the request says here.
pub(crate) fn by_client(limiter: &Limiter) -> InboundLayer<Header> {
    ThrottleLayer::new(limiter.clone())
        .key(key::header("x-client"))
        .inbound()
}
