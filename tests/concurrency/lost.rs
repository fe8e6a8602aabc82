//! Work that is dropped as its place is lost.

use std::time::Duration;

use http_body_util::BodyExt as _;
use tokio::time::sleep;
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_throttle::store::RedisStore;
use tower_throttle::{Error, ErrorKind, Limiter, Lost, ThrottleLayer, ThrottleMiddleware, key};

use super::SECOND;
use super::streams::{Streams, body};
use crate::client;
use support::errors::bounded;
use support::redis_server::RedisServer;
use support::spend::{build, under};

async fn limiter(server: &RedisServer, lost: Lost) -> Limiter {
    let store = RedisStore::connect(&server.url()).await;
    let store = store.expect("a connection").timeout(SECOND / 2);
    build(under(&["9 concurrent lease=2s"]).lost(lost).store(store))
}

fn is_lost(error: &(dyn std::error::Error + 'static)) -> bool {
    Error::find(error).map(Error::kind) == Some(ErrorKind::LostPlace)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_is_dropped_or_goes_on_when_its_lease_ends() {
    for lost in [Lost::Abort, Lost::Continue] {
        let (mut server, upstream) = (RedisServer::start(), Streams::start().await);
        let limiter = limiter(&server, lost).await;
        let throttle = ThrottleMiddleware::new(limiter.clone()).key(key::constant("a"));
        let client = client::throttled(throttle);
        let response = client.get(format!("{}/4000", upstream.base)).send();
        let response = bounded(response).await.expect("a response");
        let layer = ThrottleLayer::new(limiter.clone()).key(key::constant("a"));
        let service = layer.layer(service_fn(async |_: http::Request<()>| {
            Ok::<_, std::io::Error>(http::Response::new(body(4 * SECOND)))
        }));
        let streamed = service.oneshot(http::Request::new(())).await;
        let streamed = streamed.expect("a response").into_body();
        let place = limiter.acquire("a").await.expect("a permit").hold();
        let work = tokio::spawn({
            let limiter = limiter.clone();
            async move { limiter.run("a", || sleep(4 * SECOND)).await }
        });
        sleep(SECOND / 5).await;
        assert!(!place.is_lost());
        server.kill9();

        let (body, streamed) = (response.bytes(), streamed.collect());
        let ends = async { (body.await, streamed.await, work.await.expect("no panic")) };
        let (body, streamed, work) = bounded(ends).await;
        assert!(place.is_lost());
        if lost == Lost::Continue {
            body.expect("a whole body");
            streamed.expect("a whole body");
            work.expect("the work goes on");
            continue;
        }
        assert!(is_lost(&body.expect_err("its place is lost")));
        assert!(is_lost(&*streamed.expect_err("its place is lost")));
        let error = work.expect_err("its place is lost");
        assert_eq!(error.kind(), ErrorKind::LostPlace, "{error}");
        let error = place.run(sleep(Duration::from_secs(1))).await;
        assert_eq!(error.expect_err("it is lost").kind(), ErrorKind::LostPlace);
    }
}
