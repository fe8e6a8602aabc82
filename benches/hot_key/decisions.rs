//! Measures decisions per second for a key over its limit.

use std::sync::Arc;
use std::time::Duration;

use tower_throttle::key::Key;
use tower_throttle::{Limiter, Quota};
use tower_throttle_benches::contestant::Contestant;
use tower_throttle_benches::departures::Departures;
use tower_throttle_benches::peers::Rate;
use tower_throttle_benches::rounds::{Rounds, turns};
use tower_throttle_benches::support::{Cell, Output, Progress, RedisServer, Table};

const CALLERS: usize = 512;
const LIMITS: [u32; 3] = [10, 1_000, 10_000];
const WINDOW: Duration = Duration::from_secs(1);
const ROUNDS: usize = 3;
const LEAST_RATIO: f64 = 10.0;

pub(crate) async fn measure(server: &RedisServer, output: &mut Output) -> anyhow::Result<()> {
    let mut table = Table::new(
        "decisions of one key over its limit, 512 callers",
        &[
            "N per second",
            "limiter",
            "decisions per s",
            "ours relative to this",
            "of them permits",
        ],
    );
    let time = output.options().time(WINDOW);
    let mut progress = Progress::new(LIMITS.len());
    for limit in LIMITS {
        progress.begin(&format!("{limit} per second"));
        let window = WINDOW;
        let limiter = Limiter::builder()
            .store(server.store().await?)
            .quota(Quota::new(limit, window))
            .build()?;
        let all = Contestant::beside_peers(limiter, server, Rate { limit, window }).await?;
        let departures = Departures::default();
        let [mut decisions, mut permits] = Rounds::several(all.len());
        for round in 0..ROUNDS {
            for place in turns(round, all.len()) {
                let key = Key::new(format!("decisions:{limit}:{place}"));
                let keys = Arc::new(vec![(key, Some(departures.clone()))]);
                let done = all[place].decide(&keys, CALLERS, time).await?;
                decisions.push(place, done.decisions);
                permits.push(place, done.permits);
            }
        }
        departures.check(limit, window)?;
        for (place, contestant) in all.iter().enumerate() {
            table.row([
                Cell::Count(limit.into()),
                Cell::text(contestant.name()),
                Cell::Count(decisions.median(place) as u64),
                Cell::Ratio(decisions.ratio(0, place)),
                Cell::Count(permits.median(place) as u64),
            ]);
        }
        let ratio = decisions.ratio_to_most(0, 1..all.len());
        let limit = Cell::Count(limit.into());
        let claim = format!("hot key, {CALLERS} callers, N = {limit}, decisions to the best peer");
        output.at_least(claim, ratio, LEAST_RATIO);
    }
    output.table(&table);
    Ok(())
}
