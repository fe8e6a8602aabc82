//! Longer and longer logs: [`measure`].

use std::time::{Duration, Instant};

use anyhow::ensure;
use redis::aio::MultiplexedConnection;
use tower_throttle::key::Key;
use tower_throttle::store::{Ask, Outcome, RedisStore, Reserve, Reserved, Store as _};
use tower_throttle::test_util::history::History;
use tower_throttle::{Policy, Quota};

use crate::plot::{Chart, Panel};
use crate::support::{Cell, Output, Progress, RedisServer, Table, median, policy};
use crate::usage::Usage;

const LIMITS: [u32; 6] = [1, 10, 100, 1_000, 10_000, 100_000];
const TIME: Duration = Duration::from_secs(10);
/// How many calls make a block.
const CALLS: u32 = 50;
/// Parts in which a log is filled, so that its records do not leave all at once.
const PARTS: u32 = 20;
/// The longest window, which is how long it takes to fill a log.
const LONGEST: Duration = Duration::from_secs(3);
/// Rounds that count for nothing.
const WARM_UP: usize = 5;
/// The cost is that of the records that a call reads and writes, and these are no more in a long log;
/// the rest is for memory that caches do not hold.
const MOST_RATIO: f64 = 1.5;

/// A log of this length, which is kept nearly full.
struct Log {
    store: RedisStore,
    key: Key,
    policy: Policy,
    limit: u32,
    window: Duration,
    departures: Vec<u64>,
    at_once: u64,
    calls: u64,
}

/// Microseconds per call.
#[derive(Clone, Copy)]
struct Block {
    time: f64,
    script: f64,
}

pub(crate) async fn measure(output: &mut Output, progress: &mut Progress) -> anyhow::Result<Chart> {
    let server = RedisServer::start().await?;
    let mut connection = server.connect().await?;
    let store = server.store().await?;
    let pace = pace(&store).await?;
    let logs = LIMITS.map(|limit| Log::new(&store, limit, pace));
    let mut logs = logs.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    progress.begin(&format!("limits, filling the logs; a call takes {pace:?}"));
    fill(&mut logs).await?;
    progress.begin(&format!("limits, {LIMITS:?} in turns"));
    let rounds = rounds(&mut connection, &mut logs, output.options().time(TIME)).await?;

    let mut table = Table::new(
        "reservations on a nearly full log",
        &[
            "limit",
            "us per call",
            "us in redis",
            "to limit 10",
            "in redis to limit 10",
            "departs at once",
        ],
    );
    let over = |figure: &dyn Fn(&[Block]) -> f64| {
        let rounds = rounds[WARM_UP..].iter();
        median(rounds.map(|round| figure(round)).collect())
    };
    let mut blocks = Vec::new();
    for (place, log) in logs.iter().enumerate() {
        log.judge()?;
        let block = Block {
            time: over(&|round| round[place].time),
            script: over(&|round| round[place].script),
        };
        let ratio = over(&|round| round[place].time / round[1].time);
        let script_ratio = over(&|round| round[place].script / round[1].script);
        table.row([
            Cell::Count(log.limit.into()),
            Cell::Figure(block.time),
            Cell::Figure(block.script),
            Cell::Ratio(ratio),
            Cell::Ratio(script_ratio),
            Cell::Ratio(log.at_once as f64 / log.calls as f64),
        ]);
        blocks.push(block);
        if place == LIMITS.len() - 1 {
            let claim = |by| format!("limits, 100,000 to 10, {by}");
            output.at_most(claim("time of a call"), ratio, MOST_RATIO);
            output.at_most(claim("time in redis"), script_ratio, MOST_RATIO);
        }
    }
    output.table(&table);
    Ok(chart(&blocks))
}

/// All logs have a block each, in an order that turns.
async fn rounds(
    connection: &mut MultiplexedConnection,
    logs: &mut [Log],
    time: Duration,
) -> anyhow::Result<Vec<Vec<Block>>> {
    let mut rounds = Vec::new();
    let since = Instant::now();
    while rounds.len() < 2 * WARM_UP || since.elapsed() < time {
        let mut round = vec![None; logs.len()];
        for turn in 0..logs.len() {
            let place = (turn + rounds.len()) % logs.len();
            logs[place].top_up().await?;
            round[place] = Some(logs[place].block(connection).await?);
        }
        rounds.push(round.into_iter().flatten().collect());
    }
    Ok(rounds)
}

async fn fill(logs: &mut [Log]) -> anyhow::Result<()> {
    for _ in 0..PARTS {
        for log in logs.iter_mut().filter(|log| log.limit > CALLS) {
            log.reserve(log.limit * 4 / 5 / PARTS, 0).await?;
        }
        tokio::time::sleep(LONGEST / PARTS).await;
    }
    Ok(())
}

/// How long a call takes.
async fn pace(store: &RedisStore) -> anyhow::Result<Duration> {
    let mut log = Log::new(store, 1_000, Duration::from_secs(1))?;
    let mut times = Vec::new();
    for _ in 0..500 {
        let since = Instant::now();
        log.reserve(1, 0).await?;
        times.push(since.elapsed().as_secs_f64());
    }
    Ok(Duration::from_secs_f64(median(times)))
}

impl Log {
    /// Three fifths of the limit are spent if a call takes `pace`, but for the longest logs.
    fn new(store: &RedisStore, limit: u32, pace: Duration) -> anyhow::Result<Self> {
        // Where a block is more than the limit, there has to be room for its calls as they come.
        let turns = if limit <= CALLS {
            1
        } else {
            LIMITS.len() as u32
        };
        let window = (pace * limit * turns).mul_f64(0.6).min(LONGEST);
        let window = Duration::from_micros(window.as_micros() as u64);
        Ok(Self {
            store: store.clone(),
            key: Key::new(format!("hot:{limit}:{}", window.as_micros())),
            // A guard would keep records for longer than a short window.
            policy: policy(Quota::new(limit, window), Some(Duration::from_micros(1)))?,
            limit,
            window,
            departures: Vec::new(),
            at_once: 0,
            calls: 0,
        })
    }

    /// Keeps four fifths full, where more records have left than calls have made. It takes small steps:
    /// what is recorded at one time leaves at one time.
    async fn top_up(&mut self) -> anyhow::Result<()> {
        if self.limit <= CALLS {
            return Ok(());
        }
        let room = self.reserve(1, 0).await?.remaining();
        let missing = room.saturating_sub(self.limit / 5);
        if missing > 0 {
            self.reserve(missing.min(self.limit / PARTS), 0).await?;
        }
        Ok(())
    }

    /// The calls that are timed.
    async fn block(&mut self, connection: &mut MultiplexedConnection) -> anyhow::Result<Block> {
        let before = Usage::read(connection).await?;
        let since = Instant::now();
        let known = self.departures.len();
        for _ in 0..CALLS {
            let now = self.reserve(1, u64::MAX).await?.now();
            self.at_once += u64::from(self.departures.last().is_some_and(|at| *at <= now));
        }
        let time = since.elapsed();
        ensure!(
            self.departures.len() == known + CALLS as usize,
            "a call was refused"
        );
        self.calls += u64::from(CALLS);
        let usage = Usage::read(connection).await?.since(&before);
        Ok(Block {
            time: time.as_secs_f64() * 1e6 / f64::from(CALLS),
            script: usage.micros(&["evalsha"]) as f64 / f64::from(CALLS),
        })
    }

    async fn reserve(&mut self, count: u32, max_wait: u64) -> anyhow::Result<Reserved> {
        let asks = [Ask {
            count,
            cost: 1,
            max_wait,
        }];
        let mut reserve = Reserve::new(&self.key, &self.policy);
        reserve.asks = &asks;
        let reserved = self.store.reserve(&reserve).await?;
        let slots = reserved
            .outcomes()
            .iter()
            .filter_map(|outcome| match outcome {
                Outcome::Granted(slot) => Some(slot.at),
                Outcome::Refused { .. } => None,
            });
        self.departures.extend(slots);
        Ok(reserved)
    }

    /// Fails if the limit did not hold.
    fn judge(&self) -> anyhow::Result<()> {
        let origin = self.departures.iter().min().copied().unwrap_or(0);
        let since = |at: &u64| Duration::from_micros(at - origin);
        let history: History = self.departures.iter().map(since).collect();
        let most = history.most_in_any(self.window);
        let Self { limit, window, .. } = self;
        ensure!(
            most <= u64::from(*limit),
            "{most} departed within {window:?}, where {limit} may"
        );
        Ok(())
    }
}

fn chart(blocks: &[Block]) -> Chart {
    let line = |figure: fn(&Block) -> f64| {
        let places = LIMITS.iter().map(|limit| f64::from(*limit));
        places.zip(blocks.iter().map(figure)).collect::<Vec<_>>()
    };
    let caller = Panel::new("us per reservation, as its caller sees it", "limit")
        .line("", line(|block| block.time));
    let redis =
        Panel::new("us per reservation, in scripts", "limit").line("", line(|block| block.script));
    Chart::new("growth-limits", [caller, redis])
}
