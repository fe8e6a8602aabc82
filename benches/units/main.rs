//! Compares a permit under quotas of requests and tokens with one under a quota of requests alone.
//!
//! ```sh
//! cargo bench -p tower-throttle-benches --bench units                     # a table
//! cargo bench -p tower-throttle-benches --bench units -- --json --check   # lines of JSON; fails if a bound is not met
//! ```
//!
//! One caller takes a permit under each policy in turns. Then 64 callers share a key: each takes a permit and, in one case,
//! corrects its tokens before it takes the next. Nobody waits for a quota. Figures are medians over the rounds.
//!
//! Bounds: for one caller, a permit with two units takes at most 1.15 times as long. With 64 callers, corrections cause at
//! most 5% more calls.

#[allow(dead_code, reason = "it also measures time")]
#[path = "../growth/usage.rs"]
mod usage;

use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use tower_throttle::key::Key;
use tower_throttle::{Limiter, Quota};
use tower_throttle_benches::rounds::{Rounds, quantile, turns};
use tower_throttle_benches::support::{
    Cell, Output, Progress, RedisServer, Table, until_asked_to_end,
};

use self::usage::Usage;

const ROUNDS: usize = 9;
/// Number of permits of each case in a round.
const PERMITS: u64 = 2_000;
const CALLERS: u64 = 64;

/// The estimate of a request, and what it uses.
const ESTIMATE: u32 = 100;
const ACTUAL: u32 = 40;

const CASES: [&str; 3] = ["requests", "tokens", "corrected-tokens"];

/// A limiter of a case.
struct Case {
    name: &'static str,
    limiter: Limiter,
    key: Key,
    has_tokens: bool,
    settles: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    until_asked_to_end(run(Output::parse("Measures permits under two units"))).await
}

async fn run(mut output: Output) -> anyhow::Result<()> {
    let server = RedisServer::start().await?;
    let mut connection = server.connect().await?;
    let mut cases = Vec::new();
    for (name, settles) in CASES.into_iter().zip([false, false, true]) {
        let has_tokens = name != CASES[0];
        let window = Duration::from_secs(60);
        let builder = Limiter::builder().store(server.store().await?);
        // Limiters of the same name would share the departures of the key.
        let builder = builder.name(name);
        let mut builder = builder.quota(Quota::new(1_000_000, window));
        if has_tokens {
            builder = builder.quota(Quota::new(100_000_000, window).unit("tokens"));
        }
        cases.push(Case {
            name,
            limiter: builder.build()?,
            key: Key::new("units"),
            has_tokens,
            settles,
        });
    }
    let permits = output.options().count(PERMITS);
    let (mut times, mut calls) = (Rounds::new(CASES.len()), Rounds::new(CASES.len()));
    let mut progress = Progress::new(ROUNDS);
    for number in 0..ROUNDS {
        progress.begin("permits");
        let mut each = vec![Vec::new(); CASES.len()];
        for permit in 0..permits as usize {
            for place in turns(permit, CASES.len()) {
                let start = Instant::now();
                cases[place].permit().await?;
                each[place].push(start.elapsed().as_secs_f64() * 1e6);
            }
        }
        let mut all = Vec::new();
        for case in &cases {
            let before = Usage::read(&mut connection).await?;
            let caller = async || -> anyhow::Result<()> {
                for _ in 0..permits / CALLERS {
                    case.permit().await?;
                }
                Ok(())
            };
            try_join_all((0..CALLERS).map(|_| caller())).await?;
            let usage = Usage::read(&mut connection).await?.since(&before);
            let taken = permits / CALLERS * CALLERS;
            all.push(usage.calls(&["evalsha"]) as f64 / taken as f64 * 1e3);
        }
        if number == 0 {
            // It includes loading scripts and creating keys.
            continue;
        }
        for (place, each) in each.into_iter().enumerate() {
            times.push(place, quantile(each, 0.5));
            calls.push(place, all[place]);
        }
    }
    show(&cases, &times, &calls, &mut output);
    output.finish()
}

impl Case {
    async fn permit(&self) -> anyhow::Result<()> {
        let acquire = self.limiter.acquire(self.key.clone());
        let permit = match self.has_tokens {
            true => acquire.cost_of("tokens", ESTIMATE).await?,
            false => acquire.await?,
        };
        if self.settles {
            permit.into_charge().settle("tokens", ACTUAL)?;
        }
        Ok(())
    }
}

fn show(cases: &[Case], times: &Rounds, calls: &Rounds, output: &mut Output) {
    let mut table = Table::new(
        "permits under several units",
        &[
            "quotas",
            "one caller, p50 in microseconds",
            "relative to requests",
            "64 callers, calls per 1,000 permits",
        ],
    );
    for (place, case) in cases.iter().enumerate() {
        table.row([
            Cell::text(case.name),
            Cell::Figure(times.median(place)),
            Cell::Ratio(times.ratio(place, 0)),
            Cell::Figure(calls.median(place)),
        ]);
    }
    output.table(&table);
    let claim = "tokens, relative to requests, p50";
    output.at_most(claim, times.ratio(1, 0), 1.15);
    let claim = "calls of 64 callers, corrected, relative to not corrected";
    output.at_most(claim, calls.ratio(2, 1), 1.05);
}
