//! Costs that the adapters charge, and correct by the response.

use std::net::TcpListener;

use wiremock::ResponseTemplate;

use super::left;
use crate::prelude::*;

fn limiter() -> Limiter {
    super::limiter(60 * SECOND, 10, 100, MemoryStore::new())
}

fn stated(headers: &http::HeaderMap) -> Option<Cost> {
    let tokens = headers.get("x-tokens")?.to_str().ok()?.parse().ok()?;
    Some(Cost::from(("tokens", tokens)))
}

fn response(tokens: u32) -> Response<()> {
    let response = Response::builder().header("x-tokens", tokens);
    response.body(()).expect("a response")
}

#[tokio::test]
async fn reqwest_settles_to_what_the_response_states() {
    let limiter = limiter();
    let throttle = ThrottleMiddleware::new(limiter.clone())
        .key(key::constant("a"))
        .cost(|_: &reqwest::Request| ("tokens", 40))
        .settle(|response: &reqwest::Response| stated(response.headers()))
        .refund_unsent();
    let plain = reqwest::Client::builder().no_proxy();
    let client = reqwest_middleware::ClientBuilder::new(plain.build().expect("a client"));
    let client = client.with(throttle).build();
    let upstream = Upstream::answering(|number| match number {
        0 => ResponseTemplate::new(200).insert_header("x-tokens", "10"),
        _ => ResponseTemplate::new(200),
    })
    .await;
    let get = || client.get(upstream.uri());
    get().send().await.expect("a response");
    assert_eq!(left(&limiter).await, (9, Some(90)));
    // The cost in the extensions of the request goes before the function.
    let costly = get().with_extension(Cost::from(("tokens", 60)));
    let response = costly.send().await.expect("a response");
    assert_eq!(left(&limiter).await, (8, Some(30)));
    let charge: &Charge = response.extensions().get().expect("a charge");
    charge.settle("tokens", 5).expect("it was not settled");
    assert_eq!(left(&limiter).await, (8, Some(85)));

    // No connection: nothing was sent.
    let port = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", port.local_addr().expect("an address"));
    drop(port);
    let error = client.get(&address).send().await.expect_err("no server");
    assert!(error.is_connect(), "{error:?}");
    assert_eq!(left(&limiter).await, (8, Some(85)));
    // A connection without an answer: the request may have been sent.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", silent.local_addr().expect("an address"));
    let silence = client.get(&address).timeout(Duration::from_millis(200));
    let error = silence.send().await.expect_err("no answer");
    assert!(error.is_timeout(), "{error:?}");
    assert_eq!(left(&limiter).await, (7, Some(45)));
}

#[tokio::test(start_paused = true)]
async fn a_tower_service_settles_to_what_the_response_states() {
    let limiter = limiter();
    let layer = ThrottleLayer::new(limiter.clone())
        .key(key::constant("a"))
        .cost(|request: &Request<u32>| ("tokens", *request.body()))
        .settle(|response: &Response<()>| stated(response.headers()));
    let service = layer.layer(service_fn(|request: Request<u32>| async move {
        match request.body() {
            30 => Ok(response(10)),
            40 => Ok(Response::new(())),
            _ => Err("it fails"),
        }
    }));
    let send = |tokens| service.clone().oneshot(Request::new(tokens));
    let settled = send(30).await.expect("a response");
    let charge: &Charge = settled.extensions().get().expect("a charge");
    assert!(charge.settle("tokens", 20).is_err(), "settled before");
    assert_eq!(left(&limiter).await, (9, Some(90)));
    send(40).await.expect("a response");
    assert_eq!(left(&limiter).await, (8, Some(50)));
    send(50).await.expect_err("an error");
    assert_eq!(left(&limiter).await, (7, Some(0)));

    // An error that says that there was no connection.
    limiter.reset("a").await.expect("a reset");
    // Departures of the same time could be those that the reset has forgotten.
    sleep(Duration::from_millis(1)).await;
    let failing = |kind: io::ErrorKind| {
        service_fn(move |_: Request<()>| ready(Err::<Response<()>, _>(io::Error::from(kind))))
    };
    let refused = failing(io::ErrorKind::ConnectionRefused);
    let layer = ThrottleLayer::new(limiter.clone())
        .key(key::constant("a"))
        .cost(|_: &Request<()>| ("tokens", 10));
    for expected in [(9, Some(90)), (8, Some(80))] {
        let error = layer.layer(refused).oneshot(Request::new(())).await;
        error.expect_err("no connection");
        assert_eq!(left(&limiter).await, expected);
    }
    let layer = layer.refund_unsent();
    // An open connection may have ended like the last one, after the request was sent.
    let unreachable = failing(io::ErrorKind::HostUnreachable);
    for (service, expected) in [(refused, (8, Some(80))), (unreachable, (7, Some(70)))] {
        let error = layer.layer(service).oneshot(Request::new(())).await;
        error.expect_err("no connection");
        assert_eq!(left(&limiter).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_settles_to_what_its_handler_reports() {
    let limiter = limiter();
    let layer = ThrottleLayer::new(limiter.clone())
        .inbound(key::constant("a"), FailureMode::Closed)
        .cost(|_: &Request<()>| ("tokens", 60));
    let service = layer.layer(service_fn(|_| async move {
        let mut response = Response::new(String::new());
        // Another layer counts bytes.
        let cost = Cost::from(("tokens", 25)).of("bytes", 9);
        response.extensions_mut().insert(cost);
        Ok::<_, Infallible>(response)
    }));
    let send = || service.clone().oneshot(Request::new(()));
    let response = send().await.expect("a response");
    assert_eq!(left(&limiter).await, (9, Some(75)));
    assert_eq!(
        response.headers()["ratelimit"].to_str().ok(),
        Some(r#""10/m+100/m-unit=tokens";r=9, "10/m+100/m-unit=tokens:tokens";r=40"#)
    );
    send().await.expect("a response");
    assert_eq!(left(&limiter).await, (8, Some(50)));
    assert_eq!(send().await.expect("a response").status(), 429);
    assert_eq!(left(&limiter).await, (8, Some(50)));
}
