//! The store's clock as seen from this process: [`StoreClock`].

use std::time::Duration;

use crate::lock::Mutex;
use hashbrown::HashMap;
use tokio::time::Instant;

/// The most by which two clocks drift apart is one part in this many: 500 parts per million, by which clocks are slewed
/// at most. A clock that is off by more was set.
const DRIFT: i64 = 2_000;

/// A clock that is off by more than this was set.
const TOLERANCE: Duration = Duration::from_millis(5);

/// Times of arrivals may be off by so many nanoseconds, beyond what is known of the clock.
const OFF: u64 = 20_000_000;

/// Beyond this number of servers, all are forgotten. A server gets a new number with each restart.
const MANY: usize = 1_000;

/// How far the store's clock is ahead of the local one.
///
/// The store reads its clock between the sending of a call and its answer. So the round trip of the call bounds how far
/// ahead that clock is, and recent calls together bound it more closely: an answer that comes late does no harm to its
/// grants. What a call has shown becomes less certain with time, because clocks drift. The hosts' clocks need not agree.
#[derive(Debug)]
pub(crate) struct StoreClock {
    origin: Instant,
    servers: Mutex<Servers>,
}

/// What is known of the clock of each server.
#[derive(Debug, Default)]
struct Servers {
    /// The offset at the last answer, and the time of that.
    known: HashMap<u64, (Offset, Instant)>,
    /// The server that answered last.
    last: u64,
    /// By how many nanoseconds the store's clock is ahead in the times of arrivals.
    arrivals: Option<i64>,
    sets: ClockSets,
}

/// How often a clock was set, and when the last time was noticed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ClockSets {
    pub(crate) count: u64,
    pub(crate) last: Option<Instant>,
}

/// By how much the store's clock is ahead of the local one: at least by `least` nanoseconds, at most by `most`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Offset {
    origin: Instant,
    least: i64,
    most: i64,
}

impl StoreClock {
    pub(crate) fn new() -> Self {
        Self {
            origin: Instant::now(),
            servers: Mutex::default(),
        }
    }

    /// Returns the time of the store's clock at the local time of an arrival; 0 if no server has answered. While that is close
    /// enough, later calls map a request to the same time, though they know the clock better. Else requests of several
    /// processes that arrive within milliseconds change their order, and a process that becomes the first does not know that
    /// it has to call.
    pub(crate) fn arrived(&self) -> impl Fn(Instant) -> u64 + use<> {
        let mut servers = self.servers.lock();
        let known = servers.known.get(&servers.last);
        let most = known.map(|(offset, _)| offset.most);
        let is_close = |ahead: &i64| most.is_some_and(|most| most.abs_diff(*ahead) <= OFF);
        servers.arrivals = servers.arrivals.filter(is_close).or(most);
        let (origin, ahead) = (self.origin, servers.arrivals);
        move |at| {
            let local = signed_nanos(at.saturating_duration_since(origin));
            let shown = ahead.map(|ahead| local.saturating_add(ahead) / NANOS + 1);
            u64::try_from(shown.unwrap_or(0)).unwrap_or(0)
        }
    }

    /// Learns from a call that was answered with the time `now`. Returns the offset, and if the clock was set, by how many
    /// nanoseconds: forward, or back if below 0. Calls to a server whose number is 0 say nothing of each other.
    pub(crate) fn observe(
        &self,
        sent: Instant,
        received: Instant,
        now: u64,
        server: u64,
    ) -> (Offset, Option<i64>) {
        let call = Offset::of_call(self.origin, sent, received, now).aged(sent, received);
        let mut servers = self.servers.lock();
        servers.last = server;
        let known = servers.known.get(&server).filter(|_| server != 0);
        let (offset, ahead) = match known {
            None => (call, 0),
            Some((offset, updated)) => {
                let expected = offset.aged(*updated, received);
                // Answers that contradict each other come from a clock that was set.
                (expected.and(call).unwrap_or(call), call.ahead(expected))
            }
        };
        if servers.known.len() >= MANY {
            servers.known.clear();
        }
        servers.known.insert(server, (offset, received));
        // Drift explains less.
        let is_set = Duration::from_nanos(ahead.unsigned_abs()) > TOLERANCE;
        if is_set {
            servers.sets.count += 1;
            servers.sets.last = Some(received);
        }
        (offset, is_set.then_some(ahead))
    }

    pub(crate) fn sets(&self) -> ClockSets {
        self.servers.lock().sets
    }
}

impl Offset {
    /// From one call.
    pub(crate) fn of_call(origin: Instant, sent: Instant, received: Instant, now: u64) -> Self {
        let local = |at: Instant| signed_nanos(at.saturating_duration_since(origin));
        let now = now.cast_signed();
        Self {
            origin,
            // The store leaves out the fraction of a microsecond.
            least: now.saturating_mul(NANOS) - local(received),
            most: (now + 1).saturating_mul(NANOS) - local(sent),
        }
    }

    /// The local time by which the store's clock shows `at` for certain.
    pub(crate) fn latest(&self, at: u64) -> Instant {
        self.local(nanos(at).saturating_sub(self.least))
    }

    /// The local time before which the store's clock does not show `at` for certain.
    pub(crate) fn earliest(&self, at: u64) -> Instant {
        self.local(nanos(at).saturating_sub(self.most))
    }

    /// The distance of `least` and `most`.
    pub(crate) fn uncertainty(&self) -> Duration {
        Duration::from_nanos(self.most.abs_diff(self.least))
    }

    fn local(&self, nanos: i64) -> Instant {
        self.origin + Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
    }

    /// By how many nanoseconds this is beyond the other; below 0 if it is behind.
    fn ahead(self, other: Self) -> i64 {
        let ahead = self.least - other.most;
        let behind = other.least - self.most;
        if behind > 0 { -behind } else { ahead.max(0) }
    }

    /// Returns the overlap of the two ranges, or `None` if they contradict each other.
    fn and(self, other: Self) -> Option<Self> {
        let both = Self {
            origin: self.origin,
            least: self.least.max(other.least),
            most: self.most.min(other.most),
        };
        (both.least <= both.most).then_some(both)
    }

    /// Widens the range by what the clocks may have drifted apart since then.
    fn aged(self, then: Instant, now: Instant) -> Self {
        let by = (signed_nanos(now.saturating_duration_since(then)) + DRIFT - 1) / DRIFT;
        Self {
            least: self.least - by,
            most: self.most + by,
            ..self
        }
    }
}

/// Nanoseconds in a microsecond.
const NANOS: i64 = 1_000;

/// A store's time in nanoseconds. A damaged value may hold one that is centuries ahead.
fn nanos(at: u64) -> i64 {
    i64::try_from(at).map_or(i64::MAX, |at| at.saturating_mul(NANOS))
}

fn signed_nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EPOCH: i64 = 1_763_000_000_000_000;

    proptest! {
        /// The clock of the store drifts, and calls take any time. At last, it is set. Times are in microseconds.
        #[test]
        fn the_clock_is_within_its_offset_and_was_set_if_it_is_off_by_more_than_drift(
            parts_per_million in -500..=500_i64,
            calls in prop::collection::vec((0..4_000_000_000_i64, 0..50_000_i64, 0..50_000_i64), 2..20),
            set_by in prop_oneof![-9_000_000..-200_000_i64, 200_000..9_000_000_i64],
        ) {
            let clock = StoreClock::new();
            let at = |micros: i64| clock.origin + Duration::from_micros(micros.unsigned_abs());
            let (mut now, mut uncertain, mut ahead) = (0, f64::INFINITY, 0);
            for (nth, &(idle, there, back)) in calls.iter().enumerate() {
                let is_set = nth + 1 == calls.len();
                ahead += if is_set { set_by } else { 0 };
                let shows = |at: i64| EPOCH + ahead + at + at * parts_per_million / 1_000_000;
                let (sent, took) = (now + idle, there + back);
                now = sent + took;
                let (offset, found) = clock.observe(at(sent), at(now), shows(sent + there).unsigned_abs(), 7);
                // What is known of the clock is no less exact than this call, or an earlier one and drift since then.
                let drifted = uncertain + (idle + took) as f64 / 1_000.0 + 1.0;
                uncertain = drifted.min(took as f64 * 1.001 + 1.1);
                if is_set {
                    let slack = drifted + took as f64 + 2.0;
                    // Drift may explain it.
                    prop_assume!(set_by.abs() as f64 > slack + TOLERANCE.as_micros() as f64);
                    let off = set_by - found.unwrap_or(0) / NANOS;
                    prop_assert!(off.abs() as f64 <= slack, "{off} of {set_by}");
                } else {
                    prop_assert_eq!(found, None);
                    prop_assert!(offset.uncertainty().as_nanos() as f64 / 1e3 <= uncertain);
                }
                let shown = shows(now).unsigned_abs();
                let rounding = 1;
                prop_assert!(offset.earliest(shown - rounding) <= at(now));
                prop_assert!(offset.latest(shown + rounding) >= at(now));
                let off = clock.arrived()(at(now)).abs_diff(shown) * 1_000;
                let uncertainty = offset.uncertainty().as_nanos() as u64;
                prop_assert!(off <= OFF + uncertainty + 2_000);
            }
        }
    }

    #[test]
    fn one_clock_tells_nothing_about_that_of_another_server() {
        assert_eq!(StoreClock::new().arrived()(Instant::now()), 0);
        // Server 0 is one of a connection that may be renewed: each reading may be of another server.
        for (server, next) in [(1, 2), (0, 0)] {
            let clock = StoreClock::new();
            let at = |millis| clock.origin + Duration::from_millis(millis);
            clock.observe(at(0), at(1), 1_000_000, server);
            // The other is ahead, by less than this answer leaves open.
            let (offset, set_by) = clock.observe(at(10), at(60), 1_030_000, next);
            assert_eq!(set_by, None);
            assert!(offset.latest(2_000_000) >= at(1_030));
        }
    }
}
