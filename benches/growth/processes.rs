//! One hot key, and more and more processes: [`measure`].

use std::time::Duration;

use anyhow::ensure;
use tower_throttle::test_util::history::History;

use crate::plot::{Chart, Panel};
use crate::replica::{LIMIT, Parent, Replica, WINDOW};
use crate::support::{Cell, Output, Progress, RedisServer, Table};
use crate::usage::Usage;

pub(crate) const PROCESSES: [u32; 4] = [1, 2, 4, 8];
const TIME: Duration = Duration::from_secs(4);
/// A call serves as many permits, however many processes there are: each has as many callers.
const MOST_CALLS_RATIO: f64 = 1.5;

/// What so many processes did together.
struct Level {
    permits_per_second: f64,
    calls: f64,
    script: f64,
    cpu: f64,
    client: f64,
    most: u64,
}

pub(crate) async fn measure(output: &mut Output, progress: &mut Progress) -> anyhow::Result<Chart> {
    let mut table = Table::new(
        "processes on one hot key, 64 callers each",
        &[
            "processes",
            "permits per second",
            "permits per redis call",
            "us in scripts per permit",
            "us of redis CPU per permit",
            "us of client CPU per permit",
            "most in any 10 ms",
        ],
    );
    let mut levels = Vec::new();
    for processes in PROCESSES {
        progress.begin(&format!("processes, {processes}"));
        let level = run(processes, output.options().time(TIME)).await?;
        table.row([
            Cell::Count(processes.into()),
            Cell::Count(level.permits_per_second as u64),
            Cell::Figure(1.0 / level.calls),
            Cell::Ratio(level.script),
            Cell::Ratio(level.cpu),
            Cell::Ratio(level.client),
            Cell::Count(level.most),
        ]);
        levels.push(level);
    }
    output.table(&table);
    let growth = levels[PROCESSES.len() - 1].calls / levels[0].calls;
    let claim = "processes, calls per permit of 8 to those of 1";
    output.at_most(claim, growth, MOST_CALLS_RATIO);
    let most = levels.iter().map(|level| level.most).max().unwrap_or(0);
    let claim = format!("processes, most in any {WINDOW:?}");
    output.at_most(claim, most as f64, LIMIT.into());
    Ok(chart(&levels))
}

async fn run(processes: u32, time: Duration) -> anyhow::Result<Level> {
    let server = RedisServer::start().await?;
    let mut connection = server.connect().await?;
    // A pair of name and value.
    let mut port = redis::cmd("CONFIG");
    let (_, port): (String, u16) = port
        .arg("GET")
        .arg("port")
        .query_async(&mut connection)
        .await?;
    let replica = Replica {
        port,
        milliseconds: time.as_millis() as u64,
        callers: 64,
    };
    let mut replicas = Vec::new();
    for _ in 0..processes {
        replicas.push(Parent::start(&replica).await?);
    }
    let before = Usage::read(&mut connection).await?;
    for replica in &mut replicas {
        replica.go().await?;
    }
    let mut departures = Vec::new();
    let (mut client, mut begin, mut end) = (Duration::ZERO, Duration::ZERO, Duration::MAX);
    for replica in replicas {
        let done = replica.finish().await?;
        client += done.cpu;
        // Only while all are at work.
        begin = begin.max(
            done.departures
                .iter()
                .copied()
                .min()
                .unwrap_or(Duration::MAX),
        );
        end = end.min(done.departures.iter().copied().max().unwrap_or_default());
        departures.extend(done.departures);
    }
    let usage = Usage::read(&mut connection).await?.since(&before);
    ensure!(begin < end, "the processes did not run at the same time");
    let together = departures
        .iter()
        .filter(|at| (begin..end).contains(at))
        .count();
    let permits = departures.len() as f64;
    let history: History = departures.into_iter().collect();
    Ok(Level {
        permits_per_second: together as f64 / (end - begin).as_secs_f64(),
        calls: usage.calls(&["evalsha"]) as f64 / permits,
        script: usage.micros(&["evalsha"]) as f64 / permits,
        cpu: usage.cpu as f64 / permits,
        client: client.as_secs_f64() * 1e6 / permits,
        most: history.most_in_any(WINDOW),
    })
}

fn chart(levels: &[Level]) -> Chart {
    let line = |figure: fn(&Level) -> f64| {
        let places = PROCESSES.iter().map(|processes| f64::from(*processes));
        places.zip(levels.iter().map(figure)).collect::<Vec<_>>()
    };
    let rate = Panel::new("thousand permits per second, all together", "processes")
        .line("", line(|level| level.permits_per_second / 1e3));
    let cost = Panel::new("us of CPU per permit", "processes")
        .line("clients", line(|level| level.client))
        .line("redis", line(|level| level.cpu))
        .line("of it in scripts", line(|level| level.script));
    Chart::new("growth-processes", [rate, cost])
}
