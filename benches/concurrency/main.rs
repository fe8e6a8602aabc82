//! Measures how often requests of one key begin and end under a concurrency limit, beside a semaphore in a sorted set.
//!
//! ```sh
//! cargo bench -p tower-throttle-benches --bench concurrency                     # a table
//! cargo bench -p tower-throttle-benches --bench concurrency -- --json --check   # lines of JSON; fails if a bound is not met
//! ```
//!
//! 64 callers of one process share a key with a limit of 32, on one Redis. Each takes a place, yields once and releases it,
//! again and again. The semaphore is the usual one: a script drops expired members, counts the others and adds one, and
//! `ZREM` releases it; a caller that finds no place tries again after a millisecond. In a second case, each caller holds
//! its place for 5 ms. Figures are medians over the rounds. The most in progress at once is counted in each round.
//!
//! Bounds: at least 20,000 places per second, or twice as many as by the sorted set; never more than 32 in progress.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::future::try_join_all;
use redis::aio::MultiplexedConnection;
use tower_throttle::key::Key;
use tower_throttle::{Limiter, Quota};
use tower_throttle_benches::rounds::Rounds;
use tower_throttle_benches::script::Script;
use tower_throttle_benches::support::{
    Cell, Output, Progress, RedisServer, Table, until_asked_to_end,
};

const ROUNDS: usize = 7;
const CALLERS: usize = 64;
const LIMIT: u32 = 32;
/// Number of places that are taken in a round.
const PLACES: u64 = 20_000;
const LEASE: Duration = Duration::from_secs(30);
const WORK: [Duration; 2] = [Duration::ZERO, Duration::from_millis(5)];

const CASES: [&str; 2] = ["tower-throttle", "sorted set"];

/// KEYS: the set. ARGV: the time in microseconds, the lease, the limit, the member.
const TAKE: &str = "
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[1] - ARGV[2])
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[3]) then return 0 end
redis.call('ZADD', KEYS[1], ARGV[1], ARGV[4])
return 1";

/// The requests in progress, and the most so far.
#[derive(Default)]
struct Progressing {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Progressing {
    async fn work(&self, takes: Duration) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        match takes.is_zero() {
            true => tokio::task::yield_now().await,
            false => tokio::time::sleep(takes).await,
        }
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    until_asked_to_end(run(Output::parse(
        "Measures places of requests in progress",
    )))
    .await
}

async fn run(mut output: Output) -> anyhow::Result<()> {
    let server = RedisServer::start().await?;
    let limiter = Limiter::builder()
        .store(server.store().await?)
        .quota(Quota::concurrent(LIMIT).lease(LEASE))
        .build()?;
    let semaphore = Semaphore {
        take: Script::load(server.connect().await?, TAKE).await?,
        connection: server.connect().await?,
    };
    let places = output.options().count(PLACES);
    let mut table = Table::new(
        "64 callers share 32 places of one key",
        &[
            "work",
            "places",
            "per second",
            "relative to the sorted set",
            "most in progress",
        ],
    );
    for takes in WORK {
        // With longer work, a caller takes fewer places in the same time.
        let each = match takes.is_zero() {
            true => places / CALLERS as u64,
            false => places / CALLERS as u64 / 4,
        };
        let mut rates = Rounds::new(CASES.len());
        let mut most = [0; CASES.len()];
        let mut progress = Progress::new(ROUNDS);
        for number in 0..ROUNDS {
            progress.begin("places");
            let mut figures = Vec::new();
            for (case, most) in most.iter_mut().enumerate() {
                let progressing = Progressing::default();
                let start = Instant::now();
                let ours = async |_| -> anyhow::Result<()> {
                    let key = Key::new("places");
                    for _ in 0..each {
                        let place = limiter.acquire(key.clone()).await?.hold();
                        progressing.work(takes).await;
                        drop(place);
                    }
                    Ok(())
                };
                let theirs = async |caller: usize| -> anyhow::Result<()> {
                    for nth in 0..each {
                        let member = format!("{number}-{caller}-{nth}");
                        while !semaphore.take(&member).await? {
                            tokio::time::sleep(Duration::from_millis(1)).await;
                        }
                        progressing.work(takes).await;
                        semaphore.release(&member).await?;
                    }
                    Ok(())
                };
                match case {
                    0 => drop(try_join_all((0..CALLERS).map(ours)).await?),
                    _ => drop(try_join_all((0..CALLERS).map(theirs)).await?),
                }
                figures.push((each * CALLERS as u64) as f64 / start.elapsed().as_secs_f64());
                *most = progressing.most.into_inner().max(*most);
            }
            if number > 0 {
                for (case, rate) in figures.into_iter().enumerate() {
                    rates.push(case, rate);
                }
            }
        }
        let work = format!("{} ms", takes.as_millis());
        for (case, name) in CASES.into_iter().enumerate() {
            table.row([
                Cell::text(&work),
                Cell::text(name),
                Cell::Figure(rates.median(case)),
                Cell::Ratio(rates.ratio(case, 1)),
                Cell::Figure(most[case] as f64),
            ]);
        }
        output.at_most("most in progress of 32", most[0] as f64, f64::from(LIMIT));
        if takes.is_zero() {
            let (rate, ratio) = (rates.median(0), rates.ratio(0, 1));
            // Either is enough.
            let met = (rate / 20_000.0).max(ratio / 2.0);
            let claim = "of 20,000 places per second, or of twice the sorted set";
            output.at_least(claim, met, 1.0);
        }
    }
    output.table(&table);
    output.finish()
}

/// A semaphore in a sorted set.
struct Semaphore {
    take: Script,
    connection: MultiplexedConnection,
}

impl Semaphore {
    async fn take(&self, member: &str) -> anyhow::Result<bool> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros() as u64;
        let mut call = self.take.call("semaphore");
        call.arg(now).arg(LEASE.as_micros() as u64);
        call.arg(LIMIT).arg(member);
        Ok(self.take.send::<u32>(&call).await? == 1)
    }

    async fn release(&self, member: &str) -> anyhow::Result<()> {
        let mut release = redis::cmd("ZREM");
        release.arg("semaphore").arg(member);
        Ok(release.exec_async(&mut self.connection.clone()).await?)
    }
}
