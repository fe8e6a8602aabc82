//! Measures decisions per second for a key over its limit.

use std::sync::Arc;
use std::time::Duration;

use support::redis_server::RedisServer;
use tower_throttle::key::Key;
use tower_throttle_benches::{
    Contestant, Departures, Output, Rate, Rounds, Table, begin, count, ratio, text, turns,
};

const CALLERS: usize = 512;
const LIMITS: [u32; 3] = [10, 1_000, 10_000];
const WINDOW: Duration = Duration::from_secs(1);
const ROUNDS: usize = 3;
const LEAST_RATIO: f64 = 10.0;

pub(crate) async fn measure(server: &RedisServer, output: &mut Output) -> anyhow::Result<()> {
    let mut table = Table::new(
        "decisions of one key over its limit, 512 callers",
        "N per second | limiter | decisions per s | ours relative to this | of them permits",
    );
    for limit in LIMITS {
        begin(&format!("{limit} per second"));
        let window = WINDOW;
        let all = Contestant::beside_peers(server, Rate { limit, window }, |it| it).await?;
        let departures = Departures::default();
        let [mut decisions, mut permits] = Rounds::several(all.len());
        for (_, place) in turns(ROUNDS, all.len()) {
            let key = Key::new(format!("decisions:{limit}:{place}"));
            let keys = Arc::new(vec![(key, Some(departures.clone()))]);
            let done = all[place]
                .decide(&keys, CALLERS, output.time(WINDOW))
                .await?;
            decisions.push(place, done.decisions);
            permits.push(place, done.permits);
        }
        departures.check(limit, window)?;
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
        let claim = format!("hot key, {CALLERS} callers, N = {limit}, decisions to the best peer");
        output.at_least(claim, decisions.ratio_to_most(), LEAST_RATIO);
    }
    output.table(&table);
    Ok(())
}
