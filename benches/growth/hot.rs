//! One hot key: [`Level`].

use std::time::Duration;

use anyhow::ensure;
use tower_throttle::test_util::history::History;

use crate::replica::{Parent, Replica, WINDOW};
use crate::support::RedisServer;
use crate::usage::Usage;

/// What some processes did together: a rate, and figures per permit, in microseconds where they are times.
pub(crate) struct Level {
    pub(crate) permits_per_second: f64,
    pub(crate) calls: f64,
    pub(crate) script: f64,
    /// The server's, with that of scripts.
    pub(crate) server: f64,
    /// The processes' own, without the kernel.
    pub(crate) user: f64,
    /// Within the kernel for these processes: most of it carries bytes from and to sockets.
    pub(crate) system: f64,
    /// The most in any window, over all of them.
    pub(crate) most: u64,
}

impl Level {
    /// Lets so many processes with so many callers each run for so long.
    pub(crate) async fn of(processes: u32, callers: u32, time: Duration) -> anyhow::Result<Self> {
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
