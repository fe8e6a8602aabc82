//! Throttles a plain function, which sends mails to a relay that limits the number of recipients.
//!
//! ```sh
//! cargo run --example plain_function
//! ```

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures_util::future::try_join_all;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tower_throttle::test_util::history::History;
use tower_throttle::{Limiter, Quota};

/// Recipients that the relay accepts per second and per hour.
const LIMIT: u32 = 10;
const PER_HOUR: u32 = 30;

/// Number of recipients of each mail.
const MAILS: [u32; 8] = [3, 1, 4, 1, 5, 2, 6, 3];

/// Sends a mail to the relay, without any throttling.
async fn send(relay: SocketAddr, recipients: u32) -> io::Result<String> {
    let mut connection = BufReader::new(TcpStream::connect(relay).await?);
    let mail = format!("mail for {recipients}\n");
    connection.write_all(mail.as_bytes()).await?;
    let mut receipt = String::new();
    connection.read_line(&mut receipt).await?;
    Ok(receipt)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let relay = Relay::start().await?;
    let limiter = Limiter::builder()
        .quota(Quota::per_second(LIMIT))
        .quota(Quota::per_hour(PER_HOUR))
        .buffer(Duration::from_millis(500))
        .build()?;

    // `run` waits for a permit and calls the function. The first `?` handles errors of the limiter, the second
    // errors of the function.
    let receipt = limiter.run("relay", || send(relay.address, 1)).await??;
    print!("first mail: {receipt}");

    // To set a cost, acquire the permit yourself. It is valid for some milliseconds, so do slow preparations before
    // you acquire it.
    let mails = MAILS.map(async |recipients| {
        let permit = limiter.acquire("relay").cost(recipients).await?;
        let receipt = send(relay.address, recipients).await?;
        print!("waited {:.2?}: {receipt}", permit.waited());
        anyhow::Ok(())
    });
    try_join_all(mails).await?;

    // The hourly quota has 4 units left, so this request would have to wait for an hour.
    let last = limiter
        .acquire("relay")
        .cost(5)
        .max_wait(Duration::from_secs(30));
    let error = last
        .await
        .err()
        .context("more mails departed than the hourly quota allows")?;
    println!("one more mail: {error}");
    anyhow::ensure!(error.is_limited());
    relay.check()
}

/// A local server that records when mails arrive, and their numbers of recipients.
struct Relay {
    address: SocketAddr,
    arrivals: Arc<Mutex<History>>,
}

impl Relay {
    async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let arrivals = Arc::new(Mutex::new(History::new()));
        let (start, record) = (Instant::now(), arrivals.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(accept(stream, start, record.clone()));
            }
        });
        Ok(Self { address, arrivals })
    }

    fn check(&self) -> anyhow::Result<()> {
        let arrivals = self.arrivals.lock().expect("no panic while recording");
        let second = Duration::from_secs(1);
        let most = arrivals.most_in_any(second);
        println!("most recipients in any {second:?} window: {most} (limit {LIMIT})");
        anyhow::ensure!(arrivals.len() == MAILS.len() + 1, "not all mails arrived");
        anyhow::ensure!(
            most <= u64::from(LIMIT),
            "more arrived than the limit allows"
        );
        Ok(())
    }
}

async fn accept(
    stream: TcpStream,
    start: Instant,
    record: Arc<Mutex<History>>,
) -> anyhow::Result<()> {
    let mut connection = BufReader::new(stream);
    let mut mail = String::new();
    connection.read_line(&mut mail).await?;
    let at = start.elapsed();
    let recipients = mail.trim_end().trim_start_matches("mail for ").parse()?;
    record
        .lock()
        .expect("no panic while recording")
        .push_weighted(at, recipients);
    let receipt = format!("accepted at {at:.2?} for {recipients}\n");
    connection.write_all(receipt.as_bytes()).await?;
    Ok(())
}
