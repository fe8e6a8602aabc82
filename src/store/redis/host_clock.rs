//! The time where the server's is not to be had: [`HostClock`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::algorithm::micros;
use crate::clock::Reading;

/// The host's clock, which never goes back in this process: if it is set back, it stands still until it has
/// caught up.
#[derive(Debug, Default)]
pub(super) struct HostClock {
    latest: AtomicU64,
}

impl HostClock {
    /// What is read here, whatever server is asked.
    pub(super) const READING: Reading = Reading {
        server: u64::MAX,
        connection: 0,
    };

    /// In microseconds since 1970.
    pub(super) fn now(&self) -> u64 {
        self.at_least(micros(
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default(),
        ))
    }

    fn at_least(&self, now: u64) -> u64 {
        self.latest.fetch_max(now, Ordering::Relaxed).max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_goes_back() {
        let clock = HostClock::default();
        assert_eq!(clock.at_least(10), 10);
        assert_eq!(clock.at_least(5), 10);
        assert_eq!(clock.at_least(11), 11);
    }
}
