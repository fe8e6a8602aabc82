//! Clients of an LLM API that limits requests and tokens: three processes that share both quotas in one Redis, first
//! without and then with settlement. `client.rs` is the part to copy.
//!
//! ```sh
//! cargo run --example llm_client                                # starts a redis-server
//! REDIS_URL=redis://127.0.0.1/ cargo run --example llm_client   # uses this one
//! ```

mod client;
#[path = "../replicas/trial/redis_server.rs"]
mod redis_server;
#[path = "../replicas/terminated.rs"]
mod terminated;

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{env, io};

use anyhow::{bail, ensure};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router, routing::post};
use clap::Parser;
use futures_util::future::try_join_all;
use futures_util::{StreamExt as _, stream};
use rand::random_range;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::time::{sleep, timeout};
use tower_throttle::Quota;
use tower_throttle::test_util::history::History;

use self::client::{ChatRequest, Message};
use self::redis_server::RedisServer;
use self::terminated::terminated;

const PROCESSES: usize = 3;

/// Callers in each process. A caller sends one request after another.
const CALLERS: usize = 4;

/// Prints the share of the token quota that the clients use, and the most requests and tokens in any window. Fails if
/// a window held more than the limits. Uses the Redis at $REDIS_URL, or starts a redis-server.
#[derive(Parser)]
struct Args {
    /// Length of the window, in seconds
    #[arg(long, default_value = "6", value_parser = seconds)]
    window: Duration,
    /// Maximum number of requests in any window
    #[arg(long, default_value_t = 60)]
    requests: u32,
    /// Maximum number of tokens in any window, of which a request may need 2000
    #[arg(long, default_value_t = 10_000)]
    tokens: u32,
    /// Duration of each of the two runs, in seconds; a multiple of the window
    #[arg(long, default_value = "12", value_parser = seconds)]
    seconds: Duration,
    /// The server to send requests to; only for the client processes
    #[arg(long, hide = true, requires = "settle")]
    url: Option<String>,
    /// Whether the client settles
    #[arg(long, hide = true)]
    settle: Option<bool>,
}

fn seconds(text: &str) -> anyhow::Result<Duration> {
    Ok(Duration::from_secs(text.parse()?))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if let (Some(url), Some(settle)) = (&args.url, args.settle) {
        return send_requests(&args, url, settle).await;
    }
    // Dropping `compare` ends all processes that it has started.
    tokio::select! {
        compared = compare(&args) => compared,
        signal = tokio::signal::ctrl_c() => { signal?; bail!("interrupted") }
        signal = terminated() => { signal?; bail!("terminated") }
    }
}

/// Runs the callers of one process until the time is over.
async fn send_requests(args: &Args, url: &str, settle: bool) -> anyhow::Result<()> {
    let quotas = [args.requests, args.tokens].map(|limit| Quota::new(limit, args.window));
    let client = client::connect(&env::var("REDIS_URL")?, quotas).await?;
    let call = async |stream| -> anyhow::Result<Infallible> {
        let prompt = Message {
            role: "user".into(),
            content: "word ".repeat(80),
        };
        let request = ChatRequest {
            model: "example".into(),
            messages: vec![prompt],
            max_tokens: 1_900,
            stream,
        };
        loop {
            client::chat(&client, url, &request, settle).await?;
        }
    };
    let callers = (0..CALLERS).map(|number| call(number % 2 == 0));
    match timeout(args.seconds, try_join_all(callers)).await {
        Ok(failed) => failed.map(|_| ()),
        Err(_elapsed) => Ok(()),
    }
}

async fn compare(args: &Args) -> anyhow::Result<()> {
    // Declared first, so that it ends last.
    let (_server, redis) = match env::var("REDIS_URL") {
        Ok(url) => (None, url),
        Err(_) => {
            let server = RedisServer::start().await?;
            let url = server.url();
            (Some(server), url)
        }
    };
    let (window, seconds) = (args.window, args.seconds);
    let show = |[requests, tokens]: [u64; 2]| format!("{requests} requests and {tokens} tokens");
    let limits = [args.requests, args.tokens].map(u64::from);
    println!("limits: {} in any {window:?}", show(limits));
    let mut parts = Vec::new();
    for (settle, headline) in [(false, "without settlement"), (true, "with settlement")] {
        let arrivals = measure(&redis, settle).await?;
        ensure!(!arrivals.is_empty(), "no request arrived");
        let requests: History = arrivals.times().collect();
        let most = [&requests, &arrivals].map(|history| history.most_in_any(window));
        let quota = f64::from(args.tokens) * seconds.div_duration_f64(window);
        let used = arrivals.most_in_any(seconds) as f64 / quota * 1e2;
        println!(
            "{headline}: {used:.0}% of the tokens used; most in any {window:?}: {}",
            show(most)
        );
        let is_within = most.iter().zip(limits).all(|(most, limit)| *most <= limit);
        ensure!(is_within, "more arrived than the limits allow");
        parts.push(used);
    }
    ensure!(parts[0] < parts[1], "settlement has no effect");
    Ok(())
}

/// Runs the clients with a server of their own. Returns the arrivals there, with their tokens as weights.
async fn measure(redis: &str, settle: bool) -> anyhow::Result<History> {
    let (url, arrivals) = serve().await?;
    let client = async || {
        let mut command = Command::new(env::current_exe()?);
        command.args(env::args_os().skip(1)).env("REDIS_URL", redis);
        command.args(["--url", &url, "--settle", &settle.to_string()]);
        let status = command.kill_on_drop(true).status().await?;
        ensure!(status.success(), "a client failed; see its error above");
        Ok(())
    };
    try_join_all((0..PROCESSES).map(|_| client())).await?;
    let arrivals = arrivals.lock().expect("no panic while recording");
    Ok(arrivals.clone())
}

/// A server like that of an LLM provider.
async fn serve() -> io::Result<(String, Arc<Mutex<History>>)> {
    let (start, arrivals) = (Instant::now(), Arc::new(Mutex::new(History::new())));
    let record = arrivals.clone();
    let chat = move |Json(request): Json<ChatRequest>| {
        let words = |it: &Message| it.content.split_whitespace().count() as u64;
        let prompt: u64 = request.messages.iter().map(words).sum();
        let most = u64::from(request.max_tokens);
        let completion = random_range(most / 4..most * 3 / 4);
        let total = prompt + completion;
        let mut record = record.lock().expect("no panic while recording");
        record.push_weighted(start.elapsed(), total);
        let usage = json!({ "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total });
        respond(request.stream, usage)
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/v1/chat/completions", listener.local_addr()?);
    let app = Router::new().route("/v1/chat/completions", post(chat));
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok((url, arrivals))
}

/// Responds within 0.1 to 1 s, with one JSON document or with server-sent events.
async fn respond(is_stream: bool, usage: Value) -> Response {
    let pause = Duration::from_millis(random_range(10..=100));
    if !is_stream {
        sleep(pause * 10).await;
        return Json(json!({ "choices": [{ "message": { "content": "…" } }], "usage": usage }))
            .into_response();
    }
    let word = json!({ "choices": [{ "delta": { "content": "…" } }], "usage": null });
    let mut events = vec![word.to_string(); 8];
    events.push(json!({ "choices": [], "usage": usage }).to_string());
    events.push("[DONE]".into());
    let events = stream::iter(events).then(move |event| async move {
        sleep(pause).await;
        Ok::<_, Infallible>(Event::default().data(event))
    });
    Sse::new(events).into_response()
}
