//! Compares decisions per second on half a million keys with limiters that call Redis for each decision.
//!
//! 512 tasks on one thread, which leaves a core for Redis, ask for permits of random users out of 500,000. Each user may
//! send 2 requests per 30 s; a third request in the window is refused without waiting. Limiters take turns on an empty,
//! separate `redis-server`. Figures and ratios are medians over the rounds.
//!
//! The departures of every tenth user are checked: never more than 2 in any 30 s.

use tower_throttle_benches::*;

const USERS: u32 = 500_000;
const CALLERS: usize = 512;
const ROUNDS: usize = 3;
const TIME: Duration = Duration::from_secs(3);
const RATE: Quota = Quota::new(2, Duration::from_secs(30));
const LEAST_RATIO: f64 = 1.7;

fn main() -> anyhow::Result<()> {
    measure(1, run)
}

async fn run(output: &mut Output) -> anyhow::Result<()> {
    let server = RedisServer::start();
    let mut meter = Meter::new(&server).await?;
    // Redis decides each request, as it does for the peers.
    let all = Contestant::beside_peers(&server, RATE, |it| it.denial_cache(0)).await?;
    let [mut rate, mut permits, mut calls, mut script, mut bytes] = Rounds::several(all.len());
    for (round, place) in turns(ROUNDS, all.len()) {
        eprintln!("{}", all[place].name());
        server.command::<()>(&["FLUSHALL", "SYNC"]);
        // A limiter keeps nothing about the users of an earlier round.
        let users = Arc::new((0..USERS).map(|user| recorded(round, user)).collect());
        let mark = meter.mark().await?;
        let time = output.time(TIME);
        let (load, granted) = all[place].decide(&users, CALLERS, time).await?;
        let traffic = meter.since(&mark).await?.per(load.calls);
        for departures in users.iter().filter_map(|(_, it)| it.as_ref()) {
            departures.check(&RATE)?;
        }
        rate.push(place, load.per_second());
        permits.push(place, granted);
        calls.push(place, traffic.calls);
        script.push(place, traffic.script_micros);
        bytes.push(place, traffic.bytes);
    }
    let mut table = Table::new(
        "decisions on 500,000 keys, 512 callers",
        "limiter | decisions per s | ours relative to this | permits per s | calls per decision | \
         us in scripts per decision | bytes per decision",
    );
    for (place, contestant) in all.iter().enumerate() {
        table.row([
            text(contestant.name()),
            count(rate.median(place)),
            ratio(rate.ratio(0, place)),
            count(permits.median(place)),
            ratio(calls.median(place)),
            ratio(script.median(place)),
            figure(bytes.median(place)),
        ]);
    }
    println!("{table}");
    let claim = "many keys, 512 callers, decisions to the best peer";
    output.at_least(claim, rate.ratio_to_most(), LEAST_RATIO);
    Ok(())
}

/// A user; all names have the same length.
fn recorded(round: usize, user: u32) -> Recorded {
    let key = Key::new(format!("user:{round}{}", 100_000 + user));
    (key, user.is_multiple_of(10).then(Departures::default))
}
