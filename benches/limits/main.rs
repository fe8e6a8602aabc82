//! Measures whether the cost of a call depends on the limit N, for a sliding log.
//!
//! The quotas are N per 30 s. The log of each key first fills for two thirds of the window, so that it has about as many
//! entries as it usually has. Then one caller calls, and the limits take turns:
//!
//! | call | the log has | what is measured |
//! | --- | --- | --- |
//! | take | four fifths of N, at most two less than N | a permit, which is given back after the block |
//! | refusal that waits | N | the first call of a request that has to wait, which is then cancelled |
//!
//! Figures are the time in Redis, `usec` of `evalsha` in `INFO commandstats`, as medians over the rounds. All departures
//! are checked at the end.

use futures_util::future::try_join_all;
use tokio::time::sleep;
use tower_throttle::{Decision, Permit};
use tower_throttle_benches::*;

const LIMITS: [u32; 3] = [10, 1_000, 10_000];
const WINDOW: Duration = Duration::from_secs(30);
/// Number of requests that fill a log; each of them spends a part of the limit.
const PARTS: u32 = 500;
const CALLS: usize = 50;

/// Keys with one quota. The first is full, the others have room.
struct Keys {
    limiter: Limiter,
    quota: Quota,
    all: Vec<Key>,
}

fn main() -> anyhow::Result<()> {
    measure(0, run)
}

async fn run(output: &mut Output) -> anyhow::Result<()> {
    let server = RedisServer::start();
    let mut meter = Meter::new(&server).await?;
    let window = output.time(WINDOW);
    let mut keys = Vec::new();
    for limit in LIMITS {
        keys.push(Keys::new(&server, Quota::new(limit, window)).await?);
    }
    eprintln!("filling the logs");
    let start = Instant::now();
    let departures = try_join_all(keys.iter().map(|keys| keys.fill(start))).await?;
    eprintln!("limits in turns");
    let [mut takes, mut waits] = Rounds::several(LIMITS.len());
    for (_, place) in turns(usize::MAX, LIMITS.len()) {
        // No departure has expired until then.
        if start.elapsed() > window.mul_f64(0.85) {
            break;
        }
        takes.push(place, keys[place].takes(&mut meter).await?);
        waits.push(place, keys[place].waits(&mut meter).await?);
    }
    let mut table = Table::new(
        "microseconds in Redis per call, by the limit",
        "call | N per 30 s | us in Redis | relative to N = 10",
    );
    for (path, rounds, most) in [("take", takes, 1.05), ("refusal that waits", waits, 1.2)] {
        for (place, limit) in LIMITS.into_iter().enumerate() {
            let (micros, to_least) = (rounds.median(place), rounds.ratio(place, 0));
            ensure!(!micros.is_nan(), "filling the logs took too long");
            table.row([text(path), count(limit), figure(micros), ratio(to_least)]);
        }
        let claim = format!("N = 10,000 to N = 10, time in Redis of a {path}");
        output.at_most(claim, rounds.ratio(LIMITS.len() - 1, 0), most);
    }
    for (keys, departures) in keys.iter().zip(departures) {
        departures.iter().try_for_each(|it| it.check(&keys.quota))?;
    }
    println!("{table}");
    Ok(())
}

impl Keys {
    async fn new(server: &RedisServer, quota: Quota) -> anyhow::Result<Self> {
        let limiter = Limiter::builder().store(store(server).await?).quota(quota);
        let limit = quota.limit();
        // Room for a block of calls.
        let keys = CALLS.div_ceil(limit as usize / 5) + 1;
        let keys = (0..keys).map(|number| Key::new(format!("limit:{limit}:{number}")));
        Ok(Self {
            limiter: limiter.denial_cache(0).build()?,
            quota,
            all: keys.collect(),
        })
    }

    /// Spends the limit of the first key, and four fifths of the others, within two thirds of the window.
    async fn fill(&self, start: Instant) -> anyhow::Result<Vec<Departures>> {
        let (limit, span) = (self.quota.limit(), self.quota.window() * 2 / 3);
        let fills = self.all.iter().enumerate().map(|(number, key)| {
            let units = if number == 0 { limit } else { limit / 5 * 4 };
            fill(&self.limiter, key, units, PARTS, (start, span))
        });
        try_join_all(fills).await
    }

    /// Microseconds in Redis per permit. Gives the departures back.
    async fn takes(&self, meter: &mut Meter) -> anyhow::Result<f64> {
        let before = meter.read().await?;
        let mut permits = Vec::new();
        for call in 0..CALLS {
            let key = &self.all[1 + call % (self.all.len() - 1)];
            match self.limiter.try_acquire(key.clone()).await? {
                Decision::Granted(permit) => permits.push(permit),
                _ => bail!("a key with room refuses, N = {}", self.quota.limit()),
            }
        }
        let after = meter.read().await?;
        permits.into_iter().rev().for_each(Permit::forfeit);
        while self.limiter.queues() > 0 {
            sleep(Duration::from_millis(1)).await;
        }
        // A returned departure is available after its guard has passed.
        sleep(self.limiter.policy().guard()).await;
        Ok((after.script_micros - before.script_micros) / CALLS as f64)
    }

    /// Microseconds in Redis per request that has to wait.
    async fn waits(&self, meter: &mut Meter) -> anyhow::Result<f64> {
        let key = &self.all[0];
        let mut micros = 0.0;
        for _ in 0..CALLS {
            let before = meter.read().await?;
            let waiting = tokio::spawn(self.limiter.acquire(key.clone()).into_future());
            let called = next_call(meter, &before).await?;
            micros += called.script_micros - before.script_micros;
            ensure!(!waiting.is_finished(), "a full key lets a request depart");
            waiting.abort();
            // The cancellation takes a call, too.
            next_call(meter, &called).await?;
        }
        Ok(micros / CALLS as f64)
    }
}

async fn next_call(meter: &mut Meter, before: &Traffic) -> anyhow::Result<Traffic> {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(5) {
        let now = meter.read().await?;
        if now.calls > before.calls {
            return Ok(now);
        }
    }
    bail!("no call within 5 s")
}
