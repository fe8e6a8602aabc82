//! Compares decisions per second on half a million keys with limiters that call Redis for each decision.
//!
//! 512 tasks on one thread, which leaves a core for Redis, ask for permits of random users out of 500,000. Each user may
//! send 2 requests per 30 s; a third request in the window is refused without waiting. Limiters take turns on an empty,
//! separate `redis-server`. Figures and ratios are medians over the rounds.
//!
//! The departures of every tenth user are checked: never more than 2 in any 30 s.

use std::sync::Arc;
use std::time::Duration;

use tower_throttle::key::Key;
use tower_throttle::{Limiter, Quota};
use tower_throttle_benches::contestant::{Contestant, Recorded};
use tower_throttle_benches::departures::Departures;
use tower_throttle_benches::peers::Rate;
use tower_throttle_benches::rounds::{Rounds, turns};
use tower_throttle_benches::support::{
    Cell, Output, Progress, RedisServer, Table, until_asked_to_end,
};
use tower_throttle_benches::traffic::Meter;

const USERS: u32 = 500_000;
const CALLERS: usize = 512;
const ROUNDS: usize = 3;
const TIME: Duration = Duration::from_secs(3);
const RATE: Rate = Rate {
    limit: 2,
    window: Duration::from_secs(30),
};
const LEAST_RATIO: f64 = 1.7;

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
    let limiter = Limiter::builder()
        .store(server.store().await?)
        .quota(Quota::new(RATE.limit, RATE.window))
        // Redis decides each request, as it does for the peers.
        .denial_cache(0)
        .build()?;
    let all = Contestant::beside_peers(limiter, &server, RATE).await?;
    let time = output.options().time(TIME);
    let [mut rate, mut permits, mut calls, mut script, mut bytes] = Rounds::several(all.len());
    let mut progress = Progress::new(ROUNDS * all.len());
    for round in 0..ROUNDS {
        for place in turns(round, all.len()) {
            progress.begin(all[place].name());
            let mut flush = redis::cmd("FLUSHALL");
            flush.arg("SYNC").exec_async(&mut connection).await?;
            // A limiter keeps nothing about the users of an earlier round.
            let users = Arc::new((0..USERS).map(|user| recorded(round, user)).collect());
            let mark = meter.mark().await?;
            let done = all[place].decide(&users, CALLERS, time).await?;
            let traffic = meter.since(&mark).await?;
            for departures in users
                .iter()
                .filter_map(|(_, departures)| departures.as_ref())
            {
                departures.check(RATE.limit, RATE.window)?;
            }
            let per_decision = |figure: u64| figure as f64 / done.count as f64;
            rate.push(place, done.decisions);
            permits.push(place, done.permits);
            calls.push(place, per_decision(traffic.calls));
            script.push(place, per_decision(traffic.script_micros));
            bytes.push(place, per_decision(traffic.bytes));
        }
    }
    let mut table = Table::new(
        "decisions on 500,000 keys, 512 callers",
        &[
            "limiter",
            "decisions per s",
            "ours relative to this",
            "of them permits",
            "calls per decision",
            "us in scripts per decision",
            "bytes per decision",
        ],
    );
    for (place, contestant) in all.iter().enumerate() {
        table.row([
            Cell::text(contestant.name()),
            Cell::Count(rate.median(place) as u64),
            Cell::Ratio(rate.ratio(0, place)),
            Cell::Count(permits.median(place) as u64),
            Cell::Ratio(calls.median(place)),
            Cell::Ratio(script.median(place)),
            Cell::Figure(bytes.median(place)),
        ]);
    }
    output.table(&table);
    let ratio = rate.ratio_to_most(0, 1..all.len());
    let claim = "many keys, 512 callers, decisions to the best peer";
    output.at_least(claim, ratio, LEAST_RATIO);
    output.finish()
}

/// A user; all names have the same length.
fn recorded(round: usize, user: u32) -> Recorded {
    let key = Key::new(format!("user:{round}{}", 100_000 + user));
    (key, user.is_multiple_of(10).then(Departures::default))
}
