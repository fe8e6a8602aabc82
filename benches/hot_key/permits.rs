//! Measures permits per second, and their cost for Redis, by the number of callers.

use std::time::Duration;

use anyhow::ensure;
use support::redis_server::RedisServer;
use tower_throttle::key::Key;
use tower_throttle_benches::{
    Contestant, Departures, Load, Meter, Output, Rate, Rounds, Table, begin, count, figure, load,
    ratio, text, turns,
};

const RATE: Rate = Rate {
    limit: 100_000,
    window: Duration::from_millis(10),
};
const CALLERS: [u32; 4] = [1, 8, 64, 512];
const ROUNDS: usize = 5;
const TIME: Duration = Duration::from_millis(250);
/// The number of callers in the bound on the CPU time of Redis.
const SOME: u32 = 64;
const MOST_CPU: f64 = 0.12;

pub(crate) async fn measure(server: &RedisServer, output: &mut Output) -> anyhow::Result<()> {
    let mut meter = Meter::new(server).await?;
    let all = Contestant::beside_peers(server, RATE, |it| it).await?;
    let gcra = all.iter().position(|it| it.name() == "gcra script");
    let departures = Departures::default();
    let mut table = Table::new(
        "permits of one key, by the number of callers",
        "callers | limiter | permits per s | ours relative to this | calls per permit | us in scripts per permit | \
         us of Redis CPU per permit | bytes per permit",
    );
    for callers in CALLERS {
        begin(&format!("{callers} callers"));
        let [mut rate, mut calls, mut script, mut cpu, mut bytes] = Rounds::several(all.len());
        for (_, place) in turns(ROUNDS, all.len()) {
            let mark = meter.mark().await?;
            let key = Key::new(format!("permits:{place}"));
            let time = output.time(TIME);
            let load = acquire(&all[place], key, callers as usize, time, &departures).await?;
            let traffic = meter.since(&mark).await?.per(load.calls);
            rate.push(place, load.per_second());
            calls.push(place, traffic.calls);
            script.push(place, traffic.script_micros);
            cpu.push(place, traffic.cpu_micros);
            bytes.push(place, traffic.bytes);
        }
        for (place, contestant) in all.iter().enumerate() {
            table.row([
                count(callers),
                text(contestant.name()),
                count(rate.median(place)),
                ratio(rate.ratio(0, place)),
                ratio(calls.median(place)),
                ratio(script.median(place)),
                ratio(cpu.median(place)),
                figure(bytes.median(place)),
            ]);
        }
        if callers == SOME {
            let claim = format!("hot key, {SOME} callers, Redis CPU per permit to GCRA script");
            output.at_most(claim, cpu.ratio(0, gcra.unwrap_or(0)), MOST_CPU);
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
                    Ok(())
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
                    Ok(())
                }
            };
            load(callers, time, ask).await
        }
    }
}
