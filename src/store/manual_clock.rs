//! A store's clock that a test sets: [`ManualClock`].

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::lock::Mutex;
use tokio::time::Instant;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// 2025-01-01 00:00 UTC: fixed windows that divide a day begin there.
const MIDNIGHT: Duration = Duration::from_secs(1_735_689_600);

/// 2200-01-01 00:00 UTC: later times are too large for a store.
const LATEST: Duration = Duration::from_secs(7_258_118_400);

/// A store's clock that a test sets, for [`MemoryStore::with_clock`](crate::store::MemoryStore::with_clock).
///
/// A limiter uses two clocks. The store's clock decides when a request may depart. A waiting request sleeps by tokio's
/// clock. If tokio's clock is paused (`start_paused = true`), the embedded store follows it, and most tests need
/// nothing else. Use this clock in tests that
///
/// - run on any runtime and ask for decisions alone, by [`try_acquire`] and [`peek`]. They do not sleep, so only this clock has
///   to advance;
/// - set the store's clock apart from the host's.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::Quota;
/// use tower_throttle::store::MemoryStore;
/// use tower_throttle::Limiter;
/// use tower_throttle::test_util::ManualClock;
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let clock = ManualClock::new();
/// let limiter = Limiter::builder()
///     .store(MemoryStore::with_clock(clock.clone()))
///     .quota(Quota::per_hour(1))
///     .build()?;
///
/// assert!(limiter.try_acquire("reports").await?.is_granted());
/// let delay = limiter.peek("reports").await?.delay();
///
/// let tick = Duration::from_micros(1);
/// clock.advance(delay - tick);
/// assert!(!limiter.try_acquire("reports").await?.is_granted());
/// clock.advance(tick);
/// assert!(limiter.try_acquire("reports").await?.is_granted());
/// # Ok(())
/// # }
/// ```
///
/// # Waiting requests
///
/// A waiting request sleeps by tokio's clock, whatever happens to this one. After that sleep, a clock that stands still
/// shows that no time has passed. If requests wait, use a [running](Self::running) clock. The [guard], a permit's
/// [validity], timeouts and the [denial cache] follow tokio's clock too.
///
/// Setting a running clock acts as setting the clock of a Redis host. Forward, requests depart early, beside those that
/// were granted already. Back, what is used stays used until the clock has caught up. [Strict recovery] notices both if the
/// store is not embedded, as in a [`FailingStore`](crate::test_util::FailingStore).
///
/// [`try_acquire`]: crate::Limiter::try_acquire
/// [`peek`]: crate::Limiter::peek
/// [validity]: crate::Permit::is_valid
/// [denial cache]: crate::LimiterBuilder::denial_cache
/// [guard]: crate::LimiterBuilder::guard
/// [Strict recovery]: crate::Recovery::Strict
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<Mutex<Shown>>);

#[derive(Debug)]
struct Shown {
    /// The time since 1970 when the clock was set last.
    time: Duration,
    /// When that was, if the clock runs.
    set: Option<Instant>,
}

impl ManualClock {
    /// A clock that stands still at midnight, 2025-01-01 UTC.
    pub fn new() -> Self {
        Self::started(None)
    }

    /// A clock that starts at the same time and runs as fast as tokio's.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::Quota;
    /// use tower_throttle::store::MemoryStore;
    /// use tower_throttle::Limiter;
    /// use tower_throttle::test_util::ManualClock;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let clock = ManualClock::running();
    /// let limiter = Limiter::builder()
    ///     .store(MemoryStore::with_clock(clock.clone()))
    ///     .quota(Quota::per_minute(1))
    ///     .build()?;
    /// limiter.acquire("reports").await?;
    /// limiter.acquire("reports").await?; // a minute later, by either clock
    ///
    /// clock.set_back(Duration::from_secs(3_600));
    /// assert!(limiter.peek("reports").await?.delay() > Duration::from_secs(3_600));
    /// # Ok(())
    /// # }
    /// ```
    pub fn running() -> Self {
        Self::started(Some(Instant::now()))
    }

    fn started(set: Option<Instant>) -> Self {
        let time = MIDNIGHT;
        Self(Arc::new(Mutex::new(Shown { time, set })))
    }

    /// The time that it shows.
    pub fn now(&self) -> SystemTime {
        UNIX_EPOCH + self.0.lock().now()
    }

    /// Sets it to this time.
    ///
    /// # Panics
    ///
    /// Panics if the time is not between 1970-01-02 and the year 2200.
    #[track_caller]
    pub fn set(&self, time: SystemTime) {
        let time = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.change(|_| time);
    }

    /// Sets it forward.
    ///
    /// # Panics
    ///
    /// Panics as [`set`](Self::set) does.
    #[track_caller]
    pub fn advance(&self, by: Duration) {
        self.change(|now| now.saturating_add(by));
    }

    /// Sets it back.
    ///
    /// # Panics
    ///
    /// Panics as [`set`](Self::set) does.
    #[track_caller]
    pub fn set_back(&self, by: Duration) {
        self.change(|now| now.saturating_sub(by));
    }

    #[track_caller]
    fn change(&self, to: impl FnOnce(Duration) -> Duration) {
        let mut shown = self.0.lock();
        let time = to(shown.now());
        assert!(
            (DAY..LATEST).contains(&time),
            "{time:?} since 1970 is not between 1970-01-02 and the year 2200"
        );
        let set = shown.set.map(|_| Instant::now());
        *shown = Shown { time, set };
    }

    /// The time that it shows, in microseconds since 1970.
    pub(crate) fn micros(&self) -> u64 {
        self.0.lock().now().as_micros() as u64
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Shown {
    fn now(&self) -> Duration {
        let since = self.set.map_or(Duration::ZERO, |set| set.elapsed());
        self.time + since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    #[tokio::test(start_paused = true)]
    async fn clones_are_set_together_and_run_on_from_there() {
        let clock = ManualClock::running();
        let (other, start) = (clock.clone(), clock.now());
        tokio::time::advance(HOUR).await;
        other.set_back(HOUR * 3);
        assert_eq!(clock.now(), start - HOUR * 2);
        tokio::time::advance(HOUR).await;
        clock.advance(HOUR * 4);
        assert_eq!(other.now(), start + HOUR * 3);
        clock.set(start);
        assert_eq!(other.now(), start);
    }
}
