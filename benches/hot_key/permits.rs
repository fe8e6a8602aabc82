//! Measures permits per second, and their cost for Redis, by the number of callers.

use std::time::Duration;

use anyhow::ensure;
use tower_throttle::key::Key;
use tower_throttle::{Limiter, Quota};
use tower_throttle_benches::contestant::Contestant;
use tower_throttle_benches::departures::Departures;
use tower_throttle_benches::load::{Load, load};
use tower_throttle_benches::peers::Rate;
use tower_throttle_benches::rounds::{Rounds, turns};
use tower_throttle_benches::support::{Cell, Output, Progress, RedisServer, Table};
use tower_throttle_benches::traffic::Meter;

const RATE: Rate = Rate {
    limit: 100_000,
    window: Duration::from_millis(10),
};
const CALLERS: [usize; 4] = [1, 8, 64, 512];
const ROUNDS: usize = 5;
const TIME: Duration = Duration::from_millis(250);
/// The number of callers in the bound on the CPU time of Redis.
const SOME: usize = 64;
const MOST_CPU: f64 = 0.12;

pub(crate) async fn measure(
    server: &RedisServer,
    meter: &mut Meter,
    output: &mut Output,
) -> anyhow::Result<()> {
    let limiter = Limiter::builder()
        .store(server.store().await?)
        .quota(Quota::new(RATE.limit, RATE.window))
        .build()?;
    let all = Contestant::beside_peers(limiter, server, RATE).await?;
    let gcra = all
        .iter()
        .position(|contestant| contestant.name() == "gcra script")
        .unwrap_or(0);
    let departures = Departures::default();
    let time = output.options().time(TIME);
    let mut table = Table::new(
        "permits of one key, by the number of callers",
        &[
            "callers",
            "limiter",
            "permits per s",
            "ours relative to this",
            "calls per permit",
            "us in scripts per permit",
            "us of Redis CPU per permit",
            "bytes per permit",
        ],
    );
    let mut progress = Progress::new(CALLERS.len());
    for callers in CALLERS {
        progress.begin(&format!("{callers} callers"));
        let [mut rate, mut calls, mut script, mut cpu, mut bytes] = Rounds::several(all.len());
        for round in 0..ROUNDS {
            for place in turns(round, all.len()) {
                let mark = meter.mark().await?;
                let key = Key::new(format!("permits:{place}"));
                let load = acquire(&all[place], key, callers, time, &departures).await?;
                let traffic = meter.since(&mark).await?;
                let per_permit = |figure: u64| figure as f64 / load.permits as f64;
                rate.push(place, load.per_second());
                calls.push(place, per_permit(traffic.calls));
                script.push(place, per_permit(traffic.script_micros));
                cpu.push(place, per_permit(traffic.cpu_micros));
                bytes.push(place, per_permit(traffic.bytes));
            }
        }
        for (place, contestant) in all.iter().enumerate() {
            table.row([
                Cell::Count(callers as u64),
                Cell::text(contestant.name()),
                Cell::Count(rate.median(place) as u64),
                Cell::Ratio(rate.ratio(0, place)),
                Cell::Ratio(calls.median(place)),
                Cell::Ratio(script.median(place)),
                Cell::Ratio(cpu.median(place)),
                Cell::Figure(bytes.median(place)),
            ]);
        }
        if callers == SOME {
            let claim = format!("hot key, {SOME} callers, Redis CPU per permit to GCRA script");
            output.at_most(claim, cpu.ratio(0, gcra), MOST_CPU);
        }
    }
    departures.check(RATE.limit, RATE.window)?;
    output.table(&table);
    Ok(())
}

/// Runs this many callers. Each kind of limiter has its own future, because moving the larger one would cost as much
/// as a permit.
async fn acquire(
    contestant: &Contestant,
    key: Key,
    callers: usize,
    time: Duration,
    departures: &Departures,
) -> anyhow::Result<Load> {
    match contestant.clone() {
        Contestant::Ours(limiter) => {
            let departures = departures.clone();
            let ask = move || {
                let (permit, departures) = (limiter.acquire(key.clone()), departures.clone());
                async move {
                    departures.record(&permit.await?);
                    Ok(1)
                }
            };
            load(callers, time, ask).await
        }
        Contestant::Peer(peer) => {
            let ask = move || {
                let (peer, key) = (peer.clone(), key.clone());
                async move {
                    let granted = peer.ask(key.as_str()).await?;
                    ensure!(granted, "{} refused a request below its limit", peer.name);
                    Ok(1)
                }
            };
            load(callers, time, ask).await
        }
    }
}
