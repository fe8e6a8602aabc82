//! What an embedded store takes for the time: [`Time`].

use std::time::{SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use self::by_hand::Hand;
use crate::algorithm::micros;

/// The local clock, counted from 1970; in tests, maybe one that is set by hand.
#[derive(Debug)]
pub(super) struct Time {
    start: Instant,
    start_micros: u64,
    hand: Hand,
}

impl Time {
    pub(super) fn local() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            start: Instant::now(),
            // A day at least, lest a window reach back before the beginning of time.
            start_micros: micros(since_epoch.unwrap_or_default()).max(86_400_000_000),
            hand: Hand::none(),
        }
    }

    pub(super) fn now(&self) -> u64 {
        self.at(Instant::now())
    }

    /// The time of a call that was made then.
    #[inline]
    pub(super) fn at(&self, at: Instant) -> u64 {
        if let Some(shown) = self.hand.shows() {
            return shown;
        }
        let elapsed = at.saturating_duration_since(self.start);
        // In this order, as it makes no detour by way of 128 bits.
        self.start_micros + elapsed.as_secs() * 1_000_000 + u64::from(elapsed.subsec_micros())
    }

    /// The time now, if somebody read it before the lock was free: others may have come with a later
    /// one meanwhile, and none goes back. A clock that is set by hand may.
    #[inline]
    pub(super) fn tick(&self, latest: u64, read: u64) -> u64 {
        if self.hand.is_there() {
            read
        } else {
            latest.max(read)
        }
    }
}

#[cfg(feature = "test-util")]
mod by_hand {
    use super::Time;
    use crate::test_util::ManualClock;

    #[derive(Debug)]
    pub(super) struct Hand(Option<ManualClock>);

    impl Hand {
        pub(super) fn none() -> Self {
            Self(None)
        }

        #[inline]
        pub(super) fn is_there(&self) -> bool {
            self.0.is_some()
        }

        #[inline]
        pub(super) fn shows(&self) -> Option<u64> {
            self.0.as_ref().map(ManualClock::micros)
        }
    }

    impl Time {
        pub(in super::super) fn by(clock: ManualClock) -> Self {
            Self {
                hand: Hand(Some(clock)),
                ..Self::local()
            }
        }
    }
}

/// Nothing to ask, and nothing that asking would cost.
#[cfg(not(feature = "test-util"))]
mod by_hand {
    #[derive(Debug)]
    pub(super) struct Hand;

    impl Hand {
        pub(super) fn none() -> Self {
            Self
        }

        #[inline(always)]
        pub(super) fn is_there(&self) -> bool {
            false
        }

        #[inline(always)]
        pub(super) fn shows(&self) -> Option<u64> {
            None
        }
    }
}
