//! Compares one busy key with limiters that call Redis for each request.
//!
//! The callers are tasks on one thread, which leaves a core for Redis. Limiters take turns in blocks of a fraction of a
//! second on a separate `redis-server`. Figures and ratios are medians over the rounds.
//!
//! | table | each caller | limit |
//! | --- | --- | --- |
//! | permits | acquires one permit after another | 100,000 per 10 ms, which no limiter reaches |
//! | decisions | asks again and again without waiting | 10, 1,000 or 10,000 per second, which all reach |
//!
//! The history of all departures through this crate is checked at the end.

use tower_throttle_benches::*;

/// Limits of the first table.
const RATE: Quota = Quota::new(100_000, Duration::from_millis(10));
const CALLERS: [u32; 4] = [1, 8, 64, 512];
const ROUNDS: usize = 5;
const TIME: Duration = Duration::from_millis(250);
/// The number of callers in the bound on the CPU time of Redis.
const SOME: u32 = 64;
const MOST_CPU: f64 = 0.12;

/// The limits of the second table, and how many callers reach them.
const MANY: usize = 512;
const FEW_ROUNDS: usize = 3;
const LIMITS: [u32; 3] = [10, 1_000, 10_000];
const LEAST_RATIO: f64 = 10.0;

fn main() -> anyhow::Result<()> {
    measure(1, async |output| {
        let server = RedisServer::start();
        permits(&server, output).await?;
        decisions(&server, output).await
    })
}

async fn permits(server: &RedisServer, output: &mut Output) -> anyhow::Result<()> {
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
        eprintln!("{callers} callers");
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
    departures.check(&RATE)?;
    println!("{table}");
    Ok(())
}

/// Runs this many callers. Each kind of limiter has its own future, as moving the larger one costs as much as a permit.
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

async fn decisions(server: &RedisServer, output: &mut Output) -> anyhow::Result<()> {
    let mut table = Table::new(
        "decisions of one key over its limit, 512 callers",
        "N per second | limiter | decisions per s | ours relative to this | permits per s",
    );
    for limit in LIMITS {
        eprintln!("{limit} per second");
        let quota = Quota::per_second(limit);
        let all = Contestant::beside_peers(server, quota, |it| it).await?;
        let departures = Departures::default();
        let [mut decisions, mut permits] = Rounds::several(all.len());
        for (_, place) in turns(FEW_ROUNDS, all.len()) {
            let key = Key::new(format!("decisions:{limit}:{place}"));
            let keys = Arc::new(vec![(key, Some(departures.clone()))]);
            let time = output.time(quota.window());
            let (load, granted) = all[place].decide(&keys, MANY, time).await?;
            decisions.push(place, load.per_second());
            permits.push(place, granted);
        }
        departures.check(&quota)?;
        for (place, contestant) in all.iter().enumerate() {
            table.row([
                count(limit),
                text(contestant.name()),
                count(decisions.median(place)),
                ratio(decisions.ratio(0, place)),
                count(permits.median(place)),
            ]);
        }
        let limit = count(limit);
        let claim = format!("hot key, {MANY} callers, N = {limit}, decisions to the best peer");
        output.at_least(claim, decisions.ratio_to_most(), LEAST_RATIO);
    }
    println!("{table}");
    Ok(())
}
