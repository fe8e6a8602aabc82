//! A worker that ends in order: on SIGTERM or ctrl-c it takes no new jobs, lets those that wait depart for a
//! while, and gives the slots of all others back, for other replicas.
//!
//! ```sh
//! cargo run --example graceful_shutdown                              # sends itself a SIGTERM
//! REDIS_URL=redis://127.0.0.1/ cargo run --example graceful_shutdown # keeps the slots there
//! ```

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_throttle::store::RedisStore;
use tower_throttle::test_util::history::History;
use tower_throttle::{Limiter, Quota};

const LIMIT: u32 = 5;
const WINDOW: Duration = Duration::from_secs(1);
const BUFFER: Duration = Duration::from_millis(500);
const JOBS: usize = 60;

/// For how long jobs that wait may still depart.
const PATIENCE: Duration = Duration::from_millis(1_500);

/// Does the jobs that come before the end.
async fn work(
    limiter: &Limiter,
    key: &str,
    mut jobs: mpsc::Receiver<SocketAddr>,
    end: impl Future,
) {
    let (begun, give_up) = (TaskTracker::new(), CancellationToken::new());
    tokio::pin!(end);
    loop {
        let job = tokio::select! {
            biased;
            _ = &mut end => break,
            Some(job) = jobs.recv() => job,
            else => break,
        };
        let (acquire, give_up) = (limiter.acquire(key), give_up.clone());
        begun.spawn(async move {
            // Only the wait is given up: what has departed comes to its end.
            let done = match give_up.run_until_cancelled(acquire).await {
                Some(Ok(_departs)) => do_job(job).await,
                Some(Err(error)) => Err(error.into()),
                // From here, a job could go back to where it came from.
                None => Ok(()),
            };
            if let Err(error) = done {
                eprintln!("a job failed: {error:#}");
            }
        });
    }
    // Whoever sends jobs learns that no more are taken.
    jobs.close();
    begun.close();
    if timeout(PATIENCE, begun.wait()).await.is_err() {
        // A future that is dropped leaves the line, and its slot goes back.
        println!("{} jobs are given up", begun.len());
        give_up.cancel();
        begun.wait().await;
    }
}

/// Waits until the store has the slots back, but not for long. They go by a call of their own, which would end
/// with the runtime: then they stay reserved until their time has passed.
async fn settle(limiter: &Limiter, key: &str) -> anyhow::Result<()> {
    let settled = async {
        while limiter.peek(key).await?.delay() > WINDOW + BUFFER + limiter.policy().guard() {
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    };
    timeout(Duration::from_secs(2), settled).await?
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut builder = Limiter::builder()
        .quota(Quota::new(LIMIT, WINDOW))
        .buffer(BUFFER);
    if let Ok(redis) = std::env::var("REDIS_URL") {
        builder = builder.store(RedisStore::connect(&redis).await?);
    }
    let limiter = builder.build()?;
    let (server, arrivals) = serve().await?;
    // Each process has a server of its own here, and so a key.
    let key = server.to_string();

    let end = told_to_end()?;
    let (queue, jobs) = mpsc::channel(JOBS);
    for _ in 0..JOBS {
        queue.send(server).await?;
    }
    tokio::spawn(async {
        sleep(Duration::from_secs(1)).await;
        let kill = format!("kill -TERM {}", std::process::id());
        Command::new("sh").args(["-c", &kill]).status().await
    });
    work(&limiter, &key, jobs, end).await;
    // Those given up had slots for more than ten seconds to come.
    settle(&limiter, &key).await?;
    println!(
        "the next may depart in {:.2?}",
        limiter.peek(&key).await?.delay()
    );

    let arrivals = arrivals.lock().expect("no panic while recording");
    let most = arrivals.most_in_any(WINDOW);
    println!(
        "{} jobs were done, most in any {WINDOW:?} window: {most} (limit {LIMIT})",
        arrivals.len()
    );
    anyhow::ensure!(
        most <= u64::from(LIMIT),
        "more arrived than the limit allows"
    );
    anyhow::ensure!(arrivals.len() < JOBS, "all were done");
    Ok(())
}

#[cfg(unix)]
fn told_to_end() -> io::Result<impl Future> {
    use tokio::signal::unix::{SignalKind, signal};

    // From now on, and not only from when somebody waits for them.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => println!("SIGTERM"),
            _ = interrupt.recv() => println!("ctrl-c"),
        }
    })
}

#[cfg(not(unix))]
fn told_to_end() -> io::Result<impl Future> {
    Ok(tokio::signal::ctrl_c())
}

async fn do_job(server: SocketAddr) -> anyhow::Result<()> {
    let mut answer = Vec::new();
    TcpStream::connect(server)
        .await?
        .read_to_end(&mut answer)
        .await?;
    Ok(())
}

/// A server on this machine that records when jobs arrive: each connection is one.
async fn serve() -> io::Result<(SocketAddr, Arc<Mutex<History>>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (start, arrivals) = (Instant::now(), Arc::new(Mutex::new(History::new())));
    let record = arrivals.clone();
    tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            let at = start.elapsed();
            println!("{:>6.2} s  a job arrives", at.as_secs_f64());
            record.lock().expect("no panic while recording").push(at);
        }
    });
    Ok((address, arrivals))
}
