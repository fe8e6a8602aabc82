//! A store's clock that is set by hand: [`ManualClock`].

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tokio::time::Instant;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// 2025-01-01 00:00 UTC: windows of the clock that divide a day begin there.
const MIDNIGHT: Duration = Duration::from_secs(1_735_689_600);

/// 2200-01-01 00:00 UTC: the longest window and the longest wait end before times are too large for a store.
const LATEST: Duration = Duration::from_secs(7_258_118_400);

/// A store's clock that shows what a test says, for [`MemoryStore::with_clock`].
///
/// A limiter reads two clocks. Whether a request may depart, and when, is decided by the store's. Who has to
/// wait then sleeps so long by tokio's clock. Where that is paused (`start_paused = true`, on a runtime of one
/// thread), it is the store's as well, and whoever waits is let go as soon as all are waiting: for most tests,
/// that is all there has to be, and this clock is not for them. It is for those that
///
/// - run on any runtime, also one of many threads, and ask for verdicts alone: [`try_acquire`], [`peek`], and
///   [`acquire`] with a bound that is too short. These do not sleep, so no time has to pass but this clock's;
/// - set the clock of the store, and not that of the host.
///
/// ```
/// use std::time::Duration;
/// use tower_throttle::store::MemoryStore;
/// use tower_throttle::test_util::ManualClock;
/// use tower_throttle::{Decision, Limiter, Quota};
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
/// let Decision::Limited(limited) = limiter.try_acquire("reports").await? else {
///     panic!("one per hour");
/// };
///
/// let tick = Duration::from_micros(1);
/// clock.advance(limited.delay() - tick);
/// assert!(!limiter.try_acquire("reports").await?.is_granted());
/// clock.advance(tick);
/// assert!(limiter.try_acquire("reports").await?.is_granted());
/// # Ok(())
/// # }
/// ```
///
/// # What it does to those who wait
///
/// [`acquire`] sleeps by tokio's clock for as long as the store has said, whatever is done to this one
/// meanwhile. A clock that stands still tells whoever asks after that sleep that no time has passed. So let it
/// [run](Self::running) where anybody waits. A permit's [validity], the [guard] and the patience with a store that
/// is out are by tokio's clock, too.
///
/// To set it while it runs does what is done to a Redis whose host's clock is set: forward, and requests
/// depart that had to wait, beside those that hold slots already; back, and nothing departs until it has
/// caught up. What [`Recovery::Strict`] makes of that is seen where the store is not embedded, as in a
/// [`FailingStore`](super::FailingStore).
///
/// [`MemoryStore::with_clock`]: crate::store::MemoryStore::with_clock
/// [`try_acquire`]: crate::Limiter::try_acquire
/// [`peek`]: crate::Limiter::peek
/// [`acquire`]: crate::Limiter::acquire
/// [validity]: crate::Permit::is_valid
/// [guard]: crate::LimiterBuilder::guard
/// [`Recovery::Strict`]: crate::Recovery::Strict
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<Mutex<Hands>>);

#[derive(Debug)]
struct Hands {
    /// Since 1970, when it was set last.
    shown: Duration,
    /// When that was, if it runs.
    set: Option<Instant>,
}

impl ManualClock {
    /// A clock that stands still, at the midnight (UTC) with which the year 2025 begins.
    #[must_use]
    pub fn new() -> Self {
        Self::started(None)
    }

    /// A clock that runs as fast as tokio's, from the same time on.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_throttle::store::MemoryStore;
    /// use tower_throttle::test_util::ManualClock;
    /// use tower_throttle::{Limiter, Quota};
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
    #[must_use]
    pub fn running() -> Self {
        Self::started(Some(Instant::now()))
    }

    fn started(set: Option<Instant>) -> Self {
        let shown = MIDNIGHT;
        Self(Arc::new(Mutex::new(Hands { shown, set })))
    }

    /// What it shows.
    #[must_use]
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
        let shown = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.0.lock().set(shown);
    }

    /// Sets it forward by so much.
    ///
    /// # Panics
    ///
    /// As for [`set`](Self::set).
    #[track_caller]
    pub fn advance(&self, by: Duration) {
        let mut hands = self.0.lock();
        let shown = hands.now().saturating_add(by);
        hands.set(shown);
    }

    /// Sets it back by so much.
    ///
    /// # Panics
    ///
    /// As for [`set`](Self::set).
    #[track_caller]
    pub fn set_back(&self, by: Duration) {
        let mut hands = self.0.lock();
        let shown = hands.now().saturating_sub(by);
        hands.set(shown);
    }

    /// What it shows, in microseconds since 1970.
    pub(crate) fn micros(&self) -> u64 {
        self.0.lock().now().as_micros() as u64
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Hands {
    fn now(&self) -> Duration {
        let since = self.set.map_or(Duration::ZERO, |set| set.elapsed());
        self.shown + since
    }

    #[track_caller]
    fn set(&mut self, shown: Duration) {
        assert!(
            (DAY..LATEST).contains(&shown),
            "{shown:?} since 1970 is not between 1970-01-02 and the year 2200"
        );
        self.shown = shown;
        self.set = self.set.map(|_| Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    #[tokio::test(start_paused = true)]
    async fn stands_still_unless_it_runs() {
        let (still, running) = (ManualClock::new(), ManualClock::running());
        let start = still.now();
        assert_eq!(running.now(), start);
        tokio::time::advance(HOUR).await;
        assert_eq!((still.now(), running.now()), (start, start + HOUR));
    }

    #[tokio::test(start_paused = true)]
    async fn is_set_and_runs_on_from_there_for_all_clones() {
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

    #[test]
    fn parts_of_a_microsecond_add_up() {
        let clock = ManualClock::new();
        let start = clock.micros();
        for _ in 0..3 {
            clock.advance(Duration::from_nanos(500));
        }
        assert_eq!(clock.micros(), start + 1);
    }

    #[test]
    #[should_panic(expected = "is not between 1970-01-02 and the year 2200")]
    fn is_not_set_to_before_there_were_clocks() {
        ManualClock::new().set_back(Duration::from_secs(u64::MAX));
    }
}
