//! A worker that shuts down gracefully. On SIGTERM or ctrl-c, it takes no new jobs, lets waiting jobs depart for a
//! while, and then cancels the rest, which frees their places for other replicas.
//!
//! ```sh
//! cargo run --example graceful_shutdown                              # sends a SIGTERM to itself
//! REDIS_URL=redis://127.0.0.1/ cargo run --example graceful_shutdown # uses Redis
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
use tower_throttle::store::{MemoryStore, RedisStore};
use tower_throttle::test_util::history::History;
use tower_throttle::{Limiter, Quota};

const LIMIT: u32 = 5;
const WINDOW: Duration = Duration::from_secs(1);
const BUFFER: Duration = Duration::from_millis(500);
const JOBS: usize = 60;

/// How long waiting jobs may still depart after the signal.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(1_500);

/// Runs the jobs that arrive before the shutdown.
async fn work(
    limiter: &Limiter,
    key: &str,
    mut jobs: mpsc::Receiver<SocketAddr>,
    shutdown: impl Future,
) {
    let (tasks, cancel) = (TaskTracker::new(), CancellationToken::new());
    tokio::pin!(shutdown);
    loop {
        let job = tokio::select! {
            biased;
            _ = &mut shutdown => break,
            Some(job) = jobs.recv() => job,
            else => break,
        };
        let (acquire, cancel) = (limiter.acquire(key), cancel.clone());
        tasks.spawn(async move {
            // Cancels only the wait. A job that has departed runs to completion.
            let done = match cancel.run_until_cancelled(acquire).await {
                Some(Ok(_departs)) => do_job(job).await,
                Some(Err(error)) => Err(error.into()),
                // A real worker would return the job to its queue here.
                None => Ok(()),
            };
            if let Err(error) = done {
                eprintln!("a job failed: {error:#}");
            }
        });
    }
    // Senders now get an error.
    jobs.close();
    tasks.close();
    if timeout(DRAIN_TIMEOUT, tasks.wait()).await.is_err() {
        // Dropping the `acquire` future removes the request from the queue, and returns its grant.
        println!("{} jobs are cancelled", tasks.len());
        cancel.cancel();
        tasks.wait().await;
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let builder = Limiter::builder()
        .quota(Quota::new(LIMIT, WINDOW))
        .buffer(BUFFER);
    let builder = match std::env::var("REDIS_URL") {
        Ok(redis) => builder.store(RedisStore::connect(&redis).await?),
        Err(_) => builder.store(MemoryStore::new()),
    };
    // A limiter does not count its own waiting requests, so another one looks at the queue, as in another replica.
    let (limiter, replica) = (builder.clone().build()?, builder.build()?);
    let (server, arrivals) = serve().await?;
    // Each process has its own server here, and uses its address as the key.
    let key = server.to_string();

    let shutdown = shutdown_signal()?;
    let (queue, jobs) = mpsc::channel(JOBS);
    for _ in 0..JOBS {
        queue.send(server).await?;
    }
    tokio::spawn(async {
        sleep(Duration::from_secs(1)).await;
        let kill = format!("kill -TERM {}", std::process::id());
        Command::new("sh").args(["-c", &kill]).status().await
    });
    work(&limiter, &key, jobs, shutdown).await;
    // The store still has the cancelled jobs, until a call in the background removes them.
    timeout(Duration::from_secs(2), limiter.idle()).await?;
    // They would have taken more than ten seconds.
    let delay = replica.peek(&key).await?.delay();
    println!("a request of another replica could depart in {delay:.2?}");

    let arrivals = arrivals.lock().expect("no panic while recording");
    let most = arrivals.most_in_any(WINDOW);
    println!(
        "{} jobs completed, most in any {WINDOW:?} window: {most} (limit {LIMIT})",
        arrivals.len()
    );
    anyhow::ensure!(
        most <= u64::from(LIMIT),
        "more arrived than the limit allows"
    );
    anyhow::ensure!(arrivals.len() < JOBS, "no job was cancelled");
    let longest = WINDOW + BUFFER + replica.policy().guard();
    anyhow::ensure!(delay <= longest, "the cancelled jobs still wait");
    Ok(())
}

#[cfg(unix)]
fn shutdown_signal() -> io::Result<impl Future> {
    use tokio::signal::unix::{SignalKind, signal};

    // Registers the signals now, not when the future is first polled.
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
fn shutdown_signal() -> io::Result<impl Future> {
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

/// A local server that records when jobs arrive. Each connection is a job.
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
