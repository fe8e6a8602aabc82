//! One hot key: [`Hot`].

use std::fmt;
use std::time::Duration;

use anyhow::ensure;
use tower_throttle::key::Key;
use tower_throttle::store::RedisStore;
use tower_throttle::{Algorithm, Decision, Limiter, Permit, Quota};

/// Number of calls in a block.
const CALLS: usize = 50;
/// Long enough that no departure expires during the measurement.
const WINDOW: Duration = Duration::from_secs(3_600);

/// The path of a call; see the module documentation of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Path {
    Granted,
    /// Also returns the departure of the previous call.
    Returned,
    Refused,
    Peeked,
}

/// Keys with the same quota, each with a share of the calls of a block.
pub(crate) struct Hot {
    limiter: Limiter,
    keys: Vec<Key>,
    algorithm: Algorithm,
    limit: u32,
    path: Path,
    permits: Vec<Permit>,
    departed: usize,
    asked: usize,
}

impl Hot {
    pub(crate) fn new(
        store: &RedisStore,
        algorithm: Algorithm,
        limit: u32,
        path: Path,
    ) -> anyhow::Result<Self> {
        let limiter = Limiter::builder()
            .store(store.clone())
            .quota(Quota::new(limit, WINDOW).algorithm(algorithm))
            .denial_cache(0)
            .build()?;
        let keys = match path {
            Path::Granted => CALLS.div_ceil(room(algorithm, limit) as usize),
            Path::Returned | Path::Refused | Path::Peeked => 1,
        };
        let key = |number| Key::new(format!("hot:{path}:{limit}:{number}"));
        Ok(Self {
            limiter,
            keys: (0..keys).map(key).collect(),
            algorithm,
            limit,
            path,
            permits: Vec::new(),
            departed: 0,
            asked: 0,
        })
    }

    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    pub(crate) fn path(&self) -> Path {
        self.path
    }

    /// Number of calls in a block.
    pub(crate) fn calls(&self) -> usize {
        CALLS
    }

    /// Spends the limit of each key, or four fifths of it, with single requests.
    pub(crate) async fn fill(&mut self) -> anyhow::Result<()> {
        let is_full = matches!(self.path, Path::Refused | Path::Peeked);
        let rest = match is_full {
            true => 0,
            false => room(self.algorithm, self.limit),
        };
        for key in &self.keys {
            // With GCRA, the last request of a burst departs a guard after the first.
            for _ in 0..2 {
                let mut left = self.limiter.peek(key.clone()).await?.remaining();
                while left > rest {
                    left = self.limiter.acquire(key.clone()).await?.remaining();
                }
                tokio::time::sleep(self.limiter.policy().guard()).await;
            }
        }
        Ok(())
    }

    /// Makes the timed calls.
    pub(crate) async fn block(&mut self) -> anyhow::Result<()> {
        for call in 0..CALLS {
            let key = self.keys[call % self.keys.len()].clone();
            if self.path == Path::Peeked {
                self.limiter.peek(key).await?;
                continue;
            }
            if self.path == Path::Returned {
                // The next call returns the departure.
                self.permits.drain(..).for_each(Permit::forfeit);
            }
            self.asked += 1;
            if let Decision::Granted(permit) = self.limiter.try_acquire(key).await? {
                self.departed += 1;
                self.permits.push(permit);
            }
        }
        Ok(())
    }

    /// Returns all departures.
    pub(crate) async fn undo(&mut self) -> anyhow::Result<()> {
        self.permits.drain(..).rev().for_each(Permit::forfeit);
        while self.limiter.queues() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // A returned departure is available after its guard has passed.
        tokio::time::sleep(self.limiter.policy().guard()).await;
        Ok(())
    }

    /// The share of requests that departed without waiting.
    pub(crate) fn departed(&self) -> f64 {
        self.departed as f64 / self.asked.max(1) as f64
    }

    /// Fails if the requests did not take this path.
    pub(crate) fn judge(&self) -> anyhow::Result<()> {
        let Self { path, limit, .. } = self;
        let departed = self.departed();
        let is_right = match path {
            // A process that was interrupted for long may miss a departure.
            Path::Granted | Path::Returned => departed > 0.9,
            Path::Refused => self.departed == 0,
            Path::Peeked => true,
        };
        ensure!(is_right, "{path}, limit {limit}: {departed} departed");
        Ok(())
    }
}

/// Number of departures that a key with spare capacity allows.
fn room(algorithm: Algorithm, limit: u32) -> u32 {
    if is_spaced(algorithm) { 1 } else { limit / 5 }
}

/// True if the algorithm spaces single departures.
pub(crate) fn is_spaced(algorithm: Algorithm) -> bool {
    matches!(
        algorithm,
        Algorithm::Spacing | Algorithm::LeakyBucket { .. }
    )
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Granted => "granted",
            Self::Returned => "returned",
            Self::Refused => "refused",
            Self::Peeked => "peeked",
        })
    }
}
