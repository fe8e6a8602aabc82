//! Any function can be throttled: here, one that hands mails to a relay, which counts their recipients.
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

/// How many recipients the relay accepts per second, and per hour.
const LIMIT: u32 = 10;
const PER_HOUR: u32 = 30;

/// Of each mail, how many recipients it has.
const MAILS: [u32; 8] = [3, 1, 4, 1, 5, 2, 6, 3];

/// Hands a mail to the relay. It knows nothing of limits.
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

    // A function runs once it may, and its result comes within the limiter's: the first `?` is for
    // those who got no permit, the second for mails that could not be sent.
    let receipt = limiter.run("relay", || send(relay.address, 1)).await??;
    print!("the first: {receipt}");

    // Where one counts as many, the permit is asked for by itself. It is good for some milliseconds,
    // so whatever takes longer comes before it.
    let mails = MAILS.map(async |recipients| {
        let permit = limiter.acquire("relay").cost(recipients).await?;
        let receipt = send(relay.address, recipients).await?;
        print!("waited {:.2?}: {receipt}", permit.waited());
        anyhow::Ok(())
    });
    try_join_all(mails).await?;

    // The hour's quota has 4 left, and nobody waits for an hour here.
    let last = limiter
        .acquire("relay")
        .cost(5)
        .max_wait(Duration::from_secs(30));
    let error = last
        .await
        .err()
        .context("more departed than the hour allows")?;
    println!("one more: {error}");
    anyhow::ensure!(error.is_limited());
    relay.check()
}

/// A server on this machine that remembers when mails arrived, and for how many.
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
