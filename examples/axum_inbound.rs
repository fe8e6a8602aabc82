//! A server that limits its clients: by address, by route, and by failed logins.
//!
//! ```sh
//! cargo run --example axum_inbound                             # sends requests to itself, and exits
//! cargo run --example axum_inbound -- --listen 127.0.0.1:3000  # serves until interrupted
//! ```

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::routing::{get, post};
use clap::Parser;
use http::{Response, StatusCode};
use tokio::net::TcpListener;
use tower_throttle::store::RedisStore;
use tower_throttle::tower::inbound::Refused;
use tower_throttle::{FailureMode, Limiter, ThrottleLayer, key};

/// A server that limits its clients.
#[derive(Parser)]
struct Args {
    /// Serve here until interrupted, instead of sending requests to itself
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Share the limits with other processes through this Redis, such as redis://127.0.0.1/
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let address = args.listen.unwrap_or_else(|| ([127, 0, 0, 1], 0).into());
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let app = app(args.redis.as_deref()).await?;
    // This gives the client's address to the layers and handlers.
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    let server = axum::serve(listener, service);
    if args.listen.is_some() {
        println!("listening on http://{address}");
        server.await?;
    } else {
        tokio::spawn(server.into_future());
        demonstrate(&format!("http://{address}")).await?;
    }
    Ok(())
}

async fn app(redis: Option<&str>) -> anyhow::Result<Router> {
    let mut builder = Limiter::builder();
    if let Some(url) = redis {
        builder = builder.store(RedisStore::connect(url).await?);
    }
    // The names distinguish the limits in the headers and in Redis.
    let limiter = |name, quota: &str| -> anyhow::Result<Limiter> {
        Ok(builder.clone().name(name).quota(quota.parse()?).build()?)
    };

    // Each address has its own quota for all of its requests. Behind a proxy, all clients would share the proxy's
    // address; `trusted_proxies` finds the client's.
    let by_address = ThrottleLayer::new(limiter("address", "20/s")?)
        .inbound(key::client_ip(), FailureMode::Open);
    // Each route has one quota for all clients.
    let by_route = ThrottleLayer::new(limiter("route", "8/10s")?)
        .inbound(key::matched_path(), FailureMode::Open);
    // Only failed logins count. After too many, the response is plain text. While Redis is out, logins are refused, because
    // passwords could be guessed.
    let by_failures = ThrottleLayer::new(limiter("login", "3/h")?)
        .inbound(key::client_ip(), FailureMode::Closed)
        .charge_when(|head| head.status == StatusCode::UNAUTHORIZED)
        .refusal(|refused: &Refused| {
            let minutes = refused.delay().map_or(1, |it| it.as_secs() / 60 + 1);
            let text = format!("too many failures: try again in {minutes} minutes\n");
            let mut response = Response::new(Body::from(text));
            *response.status_mut() = refused.status();
            response
        })
        .on_refused(|refused| println!("  (refused: {:?})", refused.key()));

    Ok(Router::new()
        .route("/users/{id}", get(user))
        .route_layer(by_route)
        .route("/login/{password}", post(login).layer(by_failures))
        .layer(by_address))
}

async fn user(Path(id): Path<u32>) -> String {
    format!("user {id}\n")
}

async fn login(Path(password): Path<String>) -> StatusCode {
    if password == "opensesame" {
        StatusCode::NO_CONTENT
    } else {
        StatusCode::UNAUTHORIZED
    }
}

async fn demonstrate(server: &str) -> anyhow::Result<()> {
    // The server is local, so ignore proxy settings of the environment.
    let client = reqwest::Client::builder().no_proxy().build()?;
    println!("10 requests to a route that allows 8 in 10 s:");
    let mut answers = Vec::new();
    for id in 1..=10 {
        answers.push(show(client.get(format!("{server}/users/{id}"))).await?);
    }
    let expected = [200, 200, 200, 200, 200, 200, 200, 200, 429, 429];
    anyhow::ensure!(answers == expected, "unexpected responses: {answers:?}");

    println!("Logins, with at most 3 failures per hour and address:");
    for (password, expected) in [
        ("opensesame", 204),
        ("sesame", 401),
        ("barley", 401),
        ("opensesame", 204),
        ("wheat", 401),
        ("opensesame", 429),
    ] {
        let answer = show(client.post(format!("{server}/login/{password}"))).await?;
        anyhow::ensure!(answer == expected, "unexpected response: {answer}");
    }
    Ok(())
}

async fn show(request: reqwest::RequestBuilder) -> anyhow::Result<u16> {
    let response = request.send().await?;
    let status = response.status().as_u16();
    println!("{status} {}", response.url().path());
    for name in ["ratelimit-policy", "ratelimit", "retry-after"] {
        for value in response.headers().get_all(name) {
            println!("  {name}: {}", value.to_str()?);
        }
    }
    let body = response.text().await?;
    if !body.is_empty() {
        println!("  {}", body.trim_end());
    }
    Ok(status)
}
