//! The calls to compare: [`Contestant`].

use std::time::Duration;

use anyhow::ensure;
use redis::aio::MultiplexedConnection;
use tower_throttle::key::Key;
use tower_throttle::store::RedisStore;
use tower_throttle::{Limiter, Quota};
use tower_throttle_benches::peers::{Peer, Rate};

use crate::LIMITS;

/// A call, and the number of times that its limit was reached.
pub(crate) struct Contestant {
    name: String,
    limited: u64,
    by: By,
}

enum By {
    Ping(MultiplexedConnection),
    Ours(Limiter, Key),
    Peer(Peer, String),
}

impl Contestant {
    /// `PING`, this crate, and then the peers. Their limits suit a caller that calls each of them once in this
    /// time.
    pub(crate) async fn all(
        connection: &MultiplexedConnection,
        pace: Duration,
    ) -> anyhow::Result<Vec<Self>> {
        let contestant = |name: String, by| Self {
            name,
            limited: 0,
            by,
        };
        let ping = By::Ping(connection.clone());
        let mut all = vec![contestant("PING".to_owned(), ping)];
        for (limit, share) in LIMITS {
            let name = format!("tower-throttle, N = {limit}");
            let limiter = limiter(connection, limit, pace, share)?;
            all.push(contestant(name, By::Ours(limiter, Key::new("latency"))));
        }
        for (limit, share) in LIMITS {
            let window = whole(pace * limit, share);
            let rate = Rate { limit, window };
            for peer in Peer::scripts(connection, rate).await? {
                let name = format!("{}, N = {limit}", peer.name);
                let by = By::Peer(peer, format!("latency:{name}"));
                all.push(contestant(name, by));
            }
        }
        Ok(all)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn is_ours(&self) -> bool {
        matches!(self.by, By::Ours(..))
    }

    pub(crate) fn limited(&self) -> u64 {
        self.limited
    }

    pub(crate) async fn call(&mut self) -> anyhow::Result<()> {
        let limited = match &mut self.by {
            By::Ping(connection) => {
                let pong: String = redis::cmd("PING").query_async(connection).await?;
                ensure!(pong == "PONG", "unexpected reply to PING: {pong:?}");
                false
            }
            By::Ours(limiter, key) => limiter.acquire(key.clone()).await?.remaining() == 0,
            By::Peer(peer, key) => !peer.ask(key).await?,
        };
        self.limited += u64::from(limited);
        Ok(())
    }
}

fn limiter(
    connection: &MultiplexedConnection,
    limit: u32,
    pace: Duration,
    share: f64,
) -> anyhow::Result<Limiter> {
    const GUARD: Duration = Duration::from_millis(5);
    let time = pace * limit;
    let guard = whole(time, 0.1).min(GUARD);
    let window = whole(time, share);
    let limiter = Limiter::builder()
        .store(RedisStore::from(connection.clone()))
        // Limiters of the same name would share the departures of the key.
        .name(format!("limit-{limit}"))
        .quota(Quota::new(limit, window))
        .guard(guard);
    Ok(limiter.build()?)
}

/// This share of a duration, in whole microseconds.
fn whole(time: Duration, share: f64) -> Duration {
    Duration::from_micros((time.as_secs_f64() * share * 1e6) as u64)
}
