//! How much later than granted a request may depart: [`Guard`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::lock::Mutex;

/// A missed grant lengthens the guard to this at most: a process that wakes later than that uses no grant.
const LONGEST: Duration = Duration::from_secs(2);

/// An answer may take longer than the last one by this at most, in microseconds.
const LONGEST_DELAY: u64 = 20_000;

/// The least part of its excess that the guard loses with each departure in time, and the part if the last one was a second
/// ago or more: a process that stopped once would otherwise delay a key of few requests for many minutes.
const DECAY: f64 = 1.0 / 128.0;
const DECAY_PER_SECOND: f64 = 1.0 / 8.0;

/// The guard for the next call, never less than the policy's.
///
/// It must exceed the uncertainty of the store's clock, or no permit is ever valid, and the delay with which a busy process
/// wakes. So it follows what is measured, and grows when a grant was missed, to fall again while permits are used in
/// time. It also knows the round trip: how long an answer may take.
#[derive(Debug, Default)]
pub(crate) struct Guard {
    floor: AtomicU64,
    /// 0 before the first call.
    round_trip: AtomicU64,
    uncertainty: AtomicU64,
    wanted: AtomicU64,
    /// When a departure or a missed grant last changed it.
    changed: Mutex<Option<Instant>>,
}

impl Guard {
    pub(crate) fn new(floor: Duration) -> Self {
        Self {
            floor: AtomicU64::new(micros(floor)),
            ..Self::default()
        }
    }

    /// From now on, it is never below this floor.
    pub(crate) fn set_floor(&self, floor: Duration) {
        self.floor.store(micros(floor), Ordering::Relaxed);
    }

    pub(crate) fn current(&self) -> Duration {
        Duration::from_micros(self.current_micros())
    }

    pub(crate) fn current_micros(&self) -> u64 {
        self.base().max(self.wanted.load(Ordering::Relaxed))
    }

    /// A call to the store took so long, and its clock is known as closely as that.
    pub(crate) fn measured(&self, round_trip: Duration, uncertainty: Duration) {
        let known = self.round_trip.load(Ordering::Relaxed);
        // A process that was stopped during a call has measured how long that lasted.
        let most = match known {
            0 => u64::MAX,
            known => 2 * known + LONGEST_DELAY,
        };
        let measured = micros(round_trip).clamp(1, most);
        let sunk = known - known.saturating_sub(measured).div_ceil(8);
        self.round_trip.store(measured.max(sunk), Ordering::Relaxed);
        self.uncertainty
            .store(micros(uncertainty), Ordering::Relaxed);
    }

    /// Whether any call has shown how long a round trip takes.
    pub(crate) fn is_measured(&self) -> bool {
        self.round_trip.load(Ordering::Relaxed) > 0
    }

    /// A grant under this guard was missed, by `late`. The guard grows by twice that, at most to its double, and once for
    /// all grants of one call.
    pub(crate) fn forfeited(&self, guard: Duration, late: Duration, now: Instant) {
        let longer = (guard + guard.min(2 * late)).min(LONGEST);
        let mut changed = self.changed.lock();
        self.wanted.fetch_max(micros(longer), Ordering::Relaxed);
        *changed = Some(now);
    }

    /// A permit was used in time.
    pub(crate) fn departed(&self, now: Instant) {
        if self.wanted.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut changed = self.changed.lock();
        let base = self.base();
        let excess = self.wanted.load(Ordering::Relaxed).saturating_sub(base);
        let seconds = changed.map_or(0.0, |it| (now - it).as_secs_f64());
        let part = (DECAY_PER_SECOND * seconds).clamp(DECAY, DECAY_PER_SECOND);
        let sunk = (excess as f64 * (1.0 - part)) as u64;
        let wanted = if sunk > 0 { base + sunk } else { 0 };
        self.wanted.store(wanted, Ordering::Relaxed);
        *changed = Some(now);
    }

    /// How long an answer may take: twice as long as it took, but for slow stores, where that is
    /// more than a busy process explains.
    pub(crate) fn round_trip(&self) -> Duration {
        let measured = self.round_trip.load(Ordering::Relaxed);
        Duration::from_micros(measured + measured.min(LONGEST_DELAY))
    }

    /// Beyond the uncertainty of the clock, at least a quarter of the floor is left.
    fn base(&self) -> u64 {
        let floor = self.floor.load(Ordering::Relaxed);
        floor.max(self.uncertainty.load(Ordering::Relaxed) + floor / 4)
    }
}

/// Microseconds, up to what a number can hold.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOOR: Duration = Duration::from_millis(16);

    #[test]
    fn exceeds_the_uncertainty_of_the_clock_and_its_floor() {
        let guard = Guard::new(FLOOR);
        for (uncertainty, expected) in [(4, 16), (400, 404), (1, 16)] {
            let uncertainty = Duration::from_millis(uncertainty);
            guard.measured(Duration::from_millis(40), uncertainty);
            assert_eq!(guard.current(), Duration::from_millis(expected));
        }
    }

    #[test]
    fn one_slow_call_says_little_and_several_do() {
        let guard = Guard::new(FLOOR);
        let measured = |millis| {
            guard.measured(Duration::from_millis(millis), Duration::ZERO);
            guard.round_trip()
        };
        assert_eq!(measured(1), Duration::from_millis(2));
        assert_eq!(measured(5_000), Duration::from_millis(42));
        for _ in 0..3 {
            measured(150);
        }
        assert_eq!(measured(150), Duration::from_millis(170));
    }

    #[test]
    fn the_first_round_trip_holds_at_once_and_sinks_slowly() {
        let guard = Guard::new(FLOOR);
        guard.measured(Duration::from_millis(400), Duration::ZERO);
        guard.measured(Duration::from_millis(1), Duration::ZERO);
        assert!(guard.round_trip() > Duration::from_millis(300));
        for _ in 0..200 {
            guard.measured(Duration::from_millis(1), Duration::ZERO);
        }
        assert_eq!(guard.round_trip(), Duration::from_millis(2));
    }

    #[test]
    fn grows_once_for_all_forfeits_of_a_batch_up_to_its_limit_and_sinks_again() {
        let guard = Guard::new(FLOOR);
        let mut now = Instant::now();
        for _ in 0..100 {
            guard.forfeited(FLOOR, FLOOR / 4, now);
        }
        assert_eq!(guard.current(), FLOOR * 3 / 2);
        // A process that was stopped is late by far more than the next time.
        guard.forfeited(guard.current(), 100 * FLOOR, now);
        assert_eq!(guard.current(), FLOOR * 3);
        for (pause, departures) in [(Duration::ZERO, 700), (Duration::from_secs(3), 60)] {
            for _ in 0..100 {
                guard.forfeited(guard.current(), 100 * FLOOR, now);
            }
            assert_eq!(guard.current(), LONGEST);
            for _ in 0..departures {
                assert!(guard.current() > FLOOR);
                now += pause;
                guard.departed(now);
            }
            assert!(guard.current() < FLOOR * 2);
            (0..2_000).for_each(|_| guard.departed(now));
            assert_eq!(guard.current(), FLOOR);
        }
    }
}
