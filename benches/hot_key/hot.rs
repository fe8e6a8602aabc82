//! One hot key: [`Hot`].

use std::fmt;
use std::time::Duration;

use anyhow::ensure;
use tower_throttle::key::Key;
use tower_throttle::store::{Ask, Outcome, RedisStore, Release, Reserve, Reserved, Slot, Store};
use tower_throttle::test_util::history::History;
use tower_throttle::{Algorithm, Policy, Quota};

use crate::LIMITS;
use crate::support::policy;

/// How many requests wait at most on the path "ahead", and how many calls make a block.
const CALLS: u32 = 50;

/// What a call meets; see the top of this benchmark.
#[derive(Clone, Copy)]
pub(crate) enum Path {
    Granted,
    /// Two depart, and the first of them comes back.
    Forfeited,
    Refused,
    /// With so many requests per call.
    Ahead(u32),
}

/// A key, its policy, and what was granted.
pub(crate) struct Hot {
    store: RedisStore,
    key: Key,
    algorithm: Algorithm,
    policy: Policy,
    limit: u32,
    window: Duration,
    path: Path,
    departures: Vec<u64>,
    at_once: u64,
    asked: u64,
    to_release: Vec<Slot>,
}

impl Hot {
    /// A key for which one call takes about `pace`.
    pub(crate) fn new(
        store: &RedisStore,
        algorithm: Algorithm,
        limit: u32,
        path: Path,
        pace: Duration,
    ) -> anyhow::Result<Self> {
        let window = match path {
            Path::Granted => window(algorithm, limit, pace),
            Path::Forfeited => window(algorithm, limit, pace * 2),
            Path::Refused | Path::Ahead(_) => Duration::from_secs(3_600),
        };
        let quota = Quota::new(limit, window).algorithm(algorithm);
        Ok(Self {
            store: store.clone(),
            key: Key::new(format!("hot:{path}:{limit}")),
            algorithm,
            // A guard would keep records for longer than a short window.
            policy: policy(quota, Some(Duration::from_micros(1)))?,
            limit,
            window,
            path,
            departures: Vec::new(),
            at_once: 0,
            asked: 0,
            to_release: Vec::new(),
        })
    }

    pub(crate) fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    pub(crate) fn path(&self) -> Path {
        self.path
    }

    /// How many calls make a block.
    pub(crate) fn calls(&self) -> u32 {
        CALLS / self.path.count().isqrt()
    }

    /// Uses up the limit: at once, or over the window where records are to leave one by one.
    pub(crate) async fn fill(&mut self) -> anyhow::Result<()> {
        let parts = match self.path {
            Path::Granted | Path::Forfeited => self.limit.min(20),
            Path::Refused | Path::Ahead(_) => 1,
        };
        for _ in 0..parts {
            let reserved = self.reserve(self.limit / parts, u64::MAX).await?;
            self.keep(&reserved);
            if parts > 1 {
                tokio::time::sleep(self.window / parts).await;
            }
        }
        Ok(())
    }

    /// The calls that are timed.
    pub(crate) async fn block(&mut self) -> anyhow::Result<()> {
        let count = self.path.count();
        let max_wait = match self.path {
            Path::Refused => 0,
            Path::Granted | Path::Forfeited | Path::Ahead(_) => u64::MAX,
        };
        for _ in 0..self.calls() {
            let reserved = self.reserve(count, max_wait).await?;
            self.asked += u64::from(count);
            match self.path {
                Path::Granted => self.at_once += self.keep(&reserved),
                Path::Forfeited => {
                    let mut kept: Vec<_> = slots(&reserved).cloned().collect();
                    let at_once = kept.iter().filter(|slot| slot.at <= reserved.now());
                    self.at_once += at_once.count() as u64;
                    let first = [kept.remove(0)];
                    self.departures.extend(kept.iter().map(|slot| slot.at));
                    let release = Release::new(&self.key, &self.policy, &first);
                    self.store.release(&release).await?;
                }
                Path::Refused => {}
                Path::Ahead(_) => self.to_release.extend(slots(&reserved).cloned()),
            }
        }
        Ok(())
    }

    /// Gives back what only made the line longer.
    pub(crate) async fn undo(&mut self) -> anyhow::Result<()> {
        if self.to_release.is_empty() {
            return Ok(());
        }
        self.to_release.reverse();
        let release = Release::new(&self.key, &self.policy, &self.to_release);
        self.store.release(&release).await?;
        self.to_release.clear();
        Ok(())
    }

    /// The share of requests that had not to wait.
    pub(crate) fn at_once(&self) -> f64 {
        self.at_once as f64 / self.asked as f64
    }

    /// Fails if the limit did not hold, where the window is the measure of it.
    pub(crate) fn judge(&self) -> anyhow::Result<()> {
        let origin = self.departures.iter().min().copied().unwrap_or(0);
        let since = |at: &u64| Duration::from_micros(at - origin);
        let history: History = self.departures.iter().map(since).collect();
        let most = history.most_in_any(self.window);
        ensure!(
            self.algorithm != Algorithm::SlidingLog || most <= u64::from(self.limit),
            "{most} departed within {:?}, where {} may",
            self.window,
            self.limit
        );
        Ok(())
    }

    async fn reserve(&self, count: u32, max_wait: u64) -> anyhow::Result<Reserved> {
        let asks = [Ask {
            count,
            cost: 1,
            max_wait,
        }];
        let mut reserve = Reserve::new(&self.key, &self.policy);
        reserve.asks = &asks;
        Ok(self.store.reserve(&reserve).await?)
    }

    /// Notes the departures; returns how many need not wait.
    fn keep(&mut self, reserved: &Reserved) -> u64 {
        let before = self.departures.len();
        self.departures.extend(slots(reserved).map(|slot| slot.at));
        let new = &self.departures[before..];
        new.iter().filter(|at| **at <= reserved.now()).count() as u64
    }
}

impl Path {
    /// How many requests a call is for.
    fn count(self) -> u32 {
        match self {
            Self::Granted | Self::Refused => 1,
            Self::Forfeited => 2,
            Self::Ahead(count) => count,
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted => f.write_str("granted"),
            Self::Forfeited => f.write_str("forfeited"),
            Self::Refused => f.write_str("refused"),
            Self::Ahead(1) => f.write_str("ahead"),
            Self::Ahead(count) => write!(f, "{count} ahead"),
        }
    }
}

/// The window in which four fifths of the limit are spent.
///
/// A key has every fourth block to itself. Where a block is more than the limit, or requests are kept
/// apart, there has to be room for the calls of the block as they come.
fn window(algorithm: Algorithm, limit: u32, pace: Duration) -> Duration {
    let blocks = match algorithm {
        Algorithm::Spacing => 0.5,
        _ if limit <= CALLS => 1.0,
        _ => LIMITS.len() as f64,
    };
    let window = pace.as_secs_f64() * f64::from(limit) * blocks * 0.8;
    Duration::from_micros((window * 1e6) as u64)
}

fn slots(reserved: &Reserved) -> impl Iterator<Item = &Slot> {
    reserved
        .outcomes()
        .iter()
        .filter_map(|outcome| match outcome {
            Outcome::Granted(slot) => Some(slot),
            Outcome::Refused { .. } => None,
        })
}
