//! Compares decisions per second on half a million keys with limiters that call Redis for each decision.
//!
//! ```sh
//! cargo bench -p tower-throttle-benches --bench many_keys                     # a table
//! cargo bench -p tower-throttle-benches --bench many_keys -- --json --check   # lines of JSON; fails if a bound is not met
//! ```
//!
//! 512 tasks on one thread, which leaves a core for Redis, try to acquire permits for random users out of 500,000. Each
//! user may send 2 requests per 30 s; a third request in the window is refused without waiting. Limiters run in turns
//! on an empty, separate `redis-server`. They get the same requests in the same order, so each refuses the same share.
//! Figures and ratios are medians over the rounds.
//!
//! Bounds: at least 200,000 decisions/s, and at least twice as many as the best of the peers. The
//! departures of every tenth user are checked: never more than 2 in any 30 s.

mod contestant;
mod crowd;

use std::time::Duration;

use tower_throttle_benches::peers::Rate;
use tower_throttle_benches::rounds::{Rounds, turns};
use tower_throttle_benches::support::{
    Cell, Output, Progress, RedisServer, Table, until_asked_to_end,
};
use tower_throttle_benches::traffic::Meter;

use self::contestant::{Contestant, names};
use self::crowd::visit;

const USERS: u32 = 500_000;
const CALLERS: usize = 512;
/// Number of requests of each contestant in a round.
const REQUESTS: u64 = 250_000;
const ROUNDS: usize = 3;
const RATE: Rate = Rate {
    limit: 2,
    window: Duration::from_secs(30),
};

const LEAST_RATE: f64 = 200_000.0;
const LEAST_RATIO: f64 = 2.0;

#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() -> anyhow::Result<()> {
    until_asked_to_end(run(Output::parse(
        "Compares decisions per second on many keys with other limiters",
    )))
    .await
}

async fn run(mut output: Output) -> anyhow::Result<()> {
    let server = RedisServer::start().await?;
    let mut connection = server.connect().await?;
    let mut meter = Meter::new(server.connect().await?);
    let requests = output.options().count(REQUESTS);
    let users = names(USERS);
    let count = Contestant::all(&server).await?.len();
    let rounds = || Rounds::new(count);
    let [mut rate, mut granted, mut calls, mut script, mut bytes] =
        [rounds(), rounds(), rounds(), rounds(), rounds()];
    let mut progress = Progress::new(ROUNDS * count);
    for round in 0..ROUNDS {
        // New limiters, without state of the previous round.
        let contestants = Contestant::all(&server).await?;
        for place in turns(round, count) {
            let contestant = &contestants[place];
            progress.begin(contestant.name());
            let mut flush = redis::cmd("FLUSHALL");
            flush.arg("SYNC").exec_async(&mut connection).await?;
            let mark = meter.mark().await?;
            let visits = visit(contestant, &users, requests, round as u64).await?;
            let traffic = meter.since(&mark).await?;
            let per_visit = |figure: u64| figure as f64 / visits.count as f64;
            rate.push(place, visits.count as f64 / visits.time.as_secs_f64());
            granted.push(place, per_visit(visits.granted));
            calls.push(place, per_visit(traffic.calls));
            script.push(place, per_visit(traffic.script_micros));
            bytes.push(place, per_visit(traffic.bytes));
        }
    }
    let mut table = Table::new(
        "decisions per second on 500,000 keys",
        &[
            "limiter",
            "decisions per s",
            "ours relative to this",
            "share granted",
            "calls per decision",
            "us in scripts per decision",
            "bytes per decision",
        ],
    );
    for (place, contestant) in Contestant::all(&server).await?.iter().enumerate() {
        table.row([
            Cell::text(contestant.name()),
            Cell::Count(rate.median(place) as u64),
            Cell::Ratio(rate.ratio(0, place)),
            Cell::Fraction(granted.median(place)),
            Cell::Fraction(calls.median(place)),
            Cell::Fraction(script.median(place)),
            Cell::Figure(bytes.median(place)),
        ]);
    }
    output.table(&table);
    output.at_least("decisions per s, many keys", rate.median(0), LEAST_RATE);
    let ratio = rate.ratio_to_most(0, 1..count);
    let claim = "decisions per s relative to the best peer, many keys";
    output.at_least(claim, ratio, LEAST_RATIO);
    output.finish()
}
