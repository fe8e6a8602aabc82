//! A server on a loopback port, and the limits that the tests put in front of it.

use std::net::SocketAddr;

use axum::Router;
pub(crate) use support::spend::build;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tower_throttle::key::{self, Header};
use tower_throttle::tower::inbound::InboundLayer;
use tower_throttle::{FailureMode, Limiter, Quota, ThrottleLayer};

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

pub(crate) fn limiter(quota: Quota) -> Limiter {
    build(Limiter::builder().quota(quota))
}

/// By client, which is whatever the request says here.
pub(crate) fn by_client(limiter: &Limiter) -> InboundLayer<Header> {
    ThrottleLayer::new(limiter.clone()).inbound(key::header("x-client"), FailureMode::Closed)
}
