//! A gRPC server that limits its clients. It refuses calls with the status `RESOURCE_EXHAUSTED` and a retry delay.
//!
//! ```sh
//! cargo run -p tower-throttle-tonic --bin tonic_server
//! ```
//!
//! The example uses gRPC's health service, because its generated code is available as a crate.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures_util::future::join_all;
use http::{Request, Response, StatusCode};
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};
use tonic::transport::{Endpoint, Server};
use tonic::{Code, Status};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_types::{ErrorDetails, StatusExt as _};
use tower::util::MapRequestLayer;
use tower_throttle::test_util::history::History;
use tower_throttle::tower::inbound::Refused;
use tower_throttle::{FailureMode, Limiter, Quota, ThrottleLayer, key};

const LIMIT: u32 = 4;
const WINDOW: Duration = Duration::from_secs(2);
const CALLS: usize = 10;

/// Refuses a call with a gRPC status. The HTTP status stays 200.
fn refuse(refused: &Refused) -> Response<Body> {
    let message = refused.error().to_string();
    let mut status = match refused.status() {
        StatusCode::TOO_MANY_REQUESTS => {
            let delay = refused.delay();
            Status::with_error_details(
                Code::ResourceExhausted,
                message,
                ErrorDetails::with_retry_info(delay),
            )
        }
        StatusCode::BAD_REQUEST => Status::invalid_argument(message),
        _ => Status::unavailable("the rate limiter is unavailable"),
    };
    // The retries of gRPC libraries use this header.
    if let Some(delay) = refused.delay() {
        let milliseconds = (delay.as_secs_f64() * 1_000.0).ceil() as u64;
        let metadata = status.metadata_mut();
        metadata.insert("grpc-retry-pushback-ms", milliseconds.into());
    }
    status.into_http()
}

/// Copies the address of the client to the extension that `key::client_ip` reads.
fn with_peer(mut call: Request<Body>) -> Request<Body> {
    let connection = call.extensions().get::<TcpConnectInfo>();
    if let Some(peer) = connection.and_then(TcpConnectInfo::remote_addr) {
        call.extensions_mut().insert(peer);
    }
    call
}

/// Arrival times of calls at the service.
type Served = Arc<Mutex<History>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let limiter = Limiter::builder()
        .name("calls")
        .quota(Quota::new(LIMIT, WINDOW))
        .build()?;
    let (start, served) = (Instant::now(), Served::default());
    let record = served.clone();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder()
        .layer(MapRequestLayer::new(with_peer))
        // A stream counts once, when it starts. To count messages, acquire a permit for each in the handler.
        .layer(
            ThrottleLayer::new(limiter)
                .inbound(key::client_ip(), FailureMode::Closed)
                .refusal(refuse),
        )
        .layer(MapRequestLayer::new(move |call: Request<Body>| {
            let mut served = record.lock().expect("no panic while recording");
            served.push(start.elapsed());
            call
        }))
        .add_service(health)
        .serve_with_incoming(TcpIncoming::from(listener));
    tokio::spawn(server);
    demonstrate(url, &served).await
}

async fn demonstrate(url: String, served: &Served) -> anyhow::Result<()> {
    let channel = Endpoint::from_shared(url)?.connect().await?;
    let client = HealthClient::new(channel);
    let call = async || client.clone().check(HealthCheckRequest::default()).await;

    println!("{CALLS} calls, with a limit of {LIMIT} in {WINDOW:?}:");
    let (mut refused, mut longest) = (0, Duration::ZERO);
    for answer in join_all((0..CALLS).map(|_| call())).await {
        let Err(status) = answer else {
            println!("  served");
            continue;
        };
        let delay = status
            .get_details_retry_info()
            .and_then(|info| info.retry_delay);
        println!(
            "  {:?}: {}; retry after {delay:?}",
            status.code(),
            status.message()
        );
        anyhow::ensure!(status.code() == Code::ResourceExhausted, "{status}");
        longest = longest.max(delay.context("a refused call has no retry delay")?);
        refused += 1;
    }
    anyhow::ensure!(refused > 0, "no call was refused");

    tokio::time::sleep(longest).await;
    call().await?;
    println!("after {longest:?}, the server accepts a call again");
    let most = served
        .lock()
        .expect("no panic while recording")
        .most_in_any(WINDOW);
    println!("most served in any {WINDOW:?} window: {most} (limit {LIMIT})");
    anyhow::ensure!(
        most <= u64::from(LIMIT),
        "the server accepted more calls than the limit allows"
    );
    Ok(())
}
