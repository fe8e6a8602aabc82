//! One hot key: [`Level`].

use std::time::Duration;

use anyhow::ensure;
use tower_throttle::test_util::history::History;

use crate::replica::{Parent, Replica, WINDOW};
use crate::usage::Usage;
use tower_throttle_benches::support::RedisServer;

/// The result of several processes: their rate, and figures per permit. Times are in microseconds.
pub(crate) struct Level {
    pub(crate) permits_per_second: f64,
    pub(crate) calls: f64,
    pub(crate) script: f64,
    /// CPU time of the server, including scripts.
    pub(crate) server: f64,
    /// User CPU time of the processes.
    pub(crate) user: f64,
    /// Kernel CPU time of the processes, mostly for sockets.
    pub(crate) system: f64,
    /// Maximum number of departures in any window, over all processes.
    pub(crate) most: u64,
}

impl Level {
    /// Runs this many processes with this many callers each for this time.
    pub(crate) async fn of(processes: u32, callers: u32, time: Duration) -> anyhow::Result<Self> {
        let server = RedisServer::start().await?;
        let mut connection = server.connect().await?;
        // An argument name and its value.
        let mut port = redis::cmd("CONFIG");
        let (_, port): (String, u16) = port
            .arg("GET")
            .arg("port")
            .query_async(&mut connection)
            .await?;
        let replica = Replica {
            port,
            milliseconds: time.as_millis() as u64,
            callers,
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
        let (mut user, mut system) = (Duration::ZERO, Duration::ZERO);
        let (mut begin, mut end) = (Duration::ZERO, Duration::MAX);
        for replica in replicas {
            let done = replica.finish().await?;
            user += done.cpu.user;
            system += done.cpu.system;
            // Counts only while all processes run.
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
        Ok(Self {
            permits_per_second: together as f64 / (end - begin).as_secs_f64(),
            calls: usage.calls(&["evalsha"]) as f64 / permits,
            script: usage.micros(&["evalsha"]) as f64 / permits,
            server: usage.cpu as f64 / permits,
            user: user.as_secs_f64() * 1e6 / permits,
            system: system.as_secs_f64() * 1e6 / permits,
            most: history.most_in_any(WINDOW),
        })
    }
}
