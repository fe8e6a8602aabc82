//! Measures how often requests of one key begin and end under a concurrency limit, beside a semaphore in a sorted set.
//!
//! 64 callers of one process share a key with a limit of 32, on one Redis. Each takes a place, yields once and releases it,
//! again and again. The semaphore is the usual one: a script drops expired members, counts the others and adds one, and
//! `ZREM` releases it; a caller that finds no place tries again after a millisecond. In a second case, each caller holds
//! its place for 5 ms. Figures are medians over the rounds. The most in progress at once is counted in each round, and
//! more than 32 fail the benchmark.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use redis::aio::MultiplexedConnection;
use tower_throttle_benches::*;

const ROUNDS: usize = 5;
const CALLERS: usize = 64;
const LIMIT: u32 = 32;
const TIME: Duration = Duration::from_millis(500);
const LEASE: Duration = Duration::from_secs(30);
const WORK: [Duration; 2] = [Duration::ZERO, Duration::from_millis(5)];

/// KEYS: the set. ARGV: the time in microseconds, the lease, the limit, the member.
const TAKE: &str = "
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[1] - ARGV[2])
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[3]) then return 0 end
redis.call('ZADD', KEYS[1], ARGV[1], ARGV[4])
return 1";

enum Places {
    Ours(Limiter),
    SortedSet(Script, MultiplexedConnection),
}

#[derive(Default)]
struct InProgress {
    now: AtomicU32,
    most: AtomicU32,
}

fn main() -> anyhow::Result<()> {
    measure(0, run)
}

async fn run(output: &mut Output) -> anyhow::Result<()> {
    let server = RedisServer::start();
    let limiter = Limiter::builder()
        .store(store(&server).await?)
        .quota(Quota::concurrent(LIMIT).lease(LEASE))
        .build()?;
    let connection = connect(&server).await?;
    let take = Script::load(connection.clone(), TAKE).await?;
    let all = [
        ("tower-throttle", Arc::new(Places::Ours(limiter))),
        ("sorted set", Arc::new(Places::SortedSet(take, connection))),
    ];
    let mut table = Table::new(
        "64 callers share 32 places of one key",
        "work | places by | places per s | relative to the sorted set | most in progress",
    );
    for work in WORK {
        eprintln!("work of {work:?}");
        let counts = all.each_ref().map(|_| Arc::new(InProgress::default()));
        let mut rates = Rounds::new(all.len());
        for (_, place) in turns(ROUNDS, all.len()) {
            let shared = Arc::new((all[place].1.clone(), counts[place].clone()));
            let call = move || {
                let shared = shared.clone();
                async move {
                    let (places, counts) = &*shared;
                    places.visit(counts.work(work)).await
                }
            };
            let load = load(CALLERS, output.time(TIME), call).await?;
            rates.push(place, load.per_second());
        }
        for (place, (name, _)) in all.iter().enumerate() {
            let most = counts[place].most.load(Ordering::SeqCst);
            ensure!(place > 0 || most <= LIMIT, "{most} in progress");
            table.row([
                text(format!("{} ms", work.as_millis())),
                text(*name),
                count(rates.median(place)),
                ratio(rates.ratio(place, 1)),
                count(most),
            ]);
        }
    }
    println!("{table}");
    Ok(())
}

impl Places {
    async fn visit(&self, work: impl Future<Output = ()>) -> anyhow::Result<()> {
        match self {
            Self::Ours(limiter) => {
                let place = limiter.acquire(Key::new("places")).await?.hold();
                work.await;
                drop(place);
            }
            Self::SortedSet(take, connection) => {
                static MEMBER: AtomicU64 = AtomicU64::new(0);
                let member = MEMBER.fetch_add(1, Ordering::Relaxed);
                loop {
                    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros();
                    let mut call = take.call("semaphore");
                    call.arg(now as u64).arg(LEASE.as_micros() as u64);
                    call.arg(LIMIT).arg(member);
                    if take.send::<u32>(&call).await? == 1 {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                work.await;
                let mut release = redis::cmd("ZREM");
                release.arg("semaphore").arg(member);
                release.exec_async(&mut connection.clone()).await?;
            }
        }
        Ok(())
    }
}

impl InProgress {
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
