//! A throttled gRPC channel that pauses when the server responds with `RESOURCE_EXHAUSTED`.
//!
//! ```sh
//! cargo run -p tower-throttle-tonic --bin tonic_client
//! ```
//!
//! The example uses gRPC's health service, because its generated code is available as a crate.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures_util::future::try_join_all;
use http::Response;
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::service::InterceptorLayer;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server};
use tonic::{Code, Status};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_types::{ErrorDetails, StatusExt as _};
use tower::{BoxError, ServiceBuilder};
use tower_throttle::feedback::Advice;
use tower_throttle::test_util::history::History;
use tower_throttle::{Algorithm, Error, Limiter, Quota, ThrottleLayer, key};

const LIMIT: u32 = 10;
const SECOND: Duration = Duration::from_secs(1);

/// Reads the server's feedback from the gRPC status, because the HTTP status is always 200.
///
/// The status is in the headers if the call fails before the first message. If a stream fails at its end, its reader
/// has to call `Limiter::pause`.
fn retry_info(response: &Response<Body>) -> Advice {
    match Status::from_header_map(response.headers()) {
        Some(status) if status.code() == Code::ResourceExhausted => {
            let info = status.get_details_retry_info();
            Advice::pause(info.and_then(|info| info.retry_delay).unwrap_or(SECOND))
        }
        _ => Advice::none(),
    }
}

/// Converts errors of the limiter. Without this, callers get an `Unknown` status with the limiter's error as its
/// source.
fn status(error: BoxError) -> BoxError {
    match error.downcast_ref::<Error>() {
        Some(error) if error.is_limited() => Status::resource_exhausted(error.to_string()).into(),
        Some(error) if error.is_store() => Status::unavailable(error.to_string()).into(),
        _ => error,
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let limiter = Limiter::builder()
        .quota(Quota::per_second(LIMIT).algorithm(Algorithm::Spacing))
        .buffer(Duration::from_millis(50))
        .max_wait(Duration::from_secs(20))
        .build()?;
    let arrivals = Arc::default();
    let channel = Endpoint::from_shared(serve(&arrivals).await?)?;
    let channel = ServiceBuilder::new()
        .map_err(status)
        .layer(
            ThrottleLayer::new(limiter)
                // The path contains the method, such as `/grpc.health.v1.Health/Check`. With this key, all
                // methods of a service share a quota. The default key is the host, which requires a client made
                // `with_origin`.
                .key(key::route(["/grpc.health.v1.Health/{method}"])?)
                .feedback(retry_info),
        )
        .service(channel.connect().await?);
    let client = HealthClient::new(channel);
    // Timeouts of the channel or of a call start at its departure. `max_wait` bounds the wait before.
    let call = async || client.clone().check(HealthCheckRequest::default()).await;

    println!("12 simultaneous calls:");
    let calls = (0..12).map(async |_| {
        loop {
            match call().await {
                // Retry after the server's refusal: the limiter waits for the requested delay. Errors of the
                // limiter itself have no retry info, because it would refuse the call again.
                Err(status) if status.get_details_retry_info().is_some() => {}
                answer => return answer,
            }
        }
    });
    try_join_all(calls).await?;
    check(&arrivals)?;

    println!("two more calls, while the server asks for a pause of ten minutes:");
    for arrives in [true, false] {
        let before = arrivals.lock().expect("no panic while recording").len();
        let status = call().await.err().context("the server accepted a call")?;
        println!("{:?}: {}", status.code(), status.message());
        anyhow::ensure!(
            status.code() == Code::ResourceExhausted,
            "unexpected status: {status}"
        );
        let arrived = arrivals.lock().expect("no panic while recording").len() > before;
        anyhow::ensure!(arrived == arrives, "a call arrived during the pause");
    }
    Ok(())
}

/// The pause that the server asks for in response to each arriving call.
fn busy(number: usize) -> Option<Duration> {
    match number {
        5 => Some(SECOND),
        14.. => Some(600 * SECOND),
        _ => None,
    }
}

/// A local server that records when calls arrive.
async fn serve(arrivals: &Arc<Mutex<Vec<Duration>>>) -> anyhow::Result<String> {
    let (start, arrivals) = (Instant::now(), arrivals.clone());
    let interceptor = InterceptorLayer::new(move |call| {
        let mut arrivals = arrivals.lock().expect("no panic while recording");
        let at = start.elapsed();
        arrivals.push(at);
        let number = arrivals.len();
        println!("{:>6.2} s  call {number} arrives", at.as_secs_f64());
        let Some(delay) = busy(number) else {
            return Ok(call);
        };
        let details = ErrorDetails::with_retry_info(Some(delay));
        Err(Status::with_error_details(
            Code::ResourceExhausted,
            "busy",
            details,
        ))
    });
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder().layer(interceptor).add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    Ok(url)
}

fn check(arrivals: &Mutex<Vec<Duration>>) -> anyhow::Result<()> {
    let arrivals = arrivals.lock().expect("no panic while recording");
    let most = arrivals
        .iter()
        .copied()
        .collect::<History>()
        .most_in_any(SECOND);
    println!("most in any {SECOND:?} window: {most} (limit {LIMIT})");
    anyhow::ensure!(
        most <= u64::from(LIMIT),
        "more arrived than the limit allows"
    );
    // Calls that departed before the pause arrive in its first half.
    let pause = (arrivals[4] + SECOND / 2)..(arrivals[4] + SECOND);
    let violated = arrivals.iter().any(|at| pause.contains(at));
    anyhow::ensure!(!violated, "calls arrived during the pause");
    Ok(())
}
