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

/// A server that has not answered for so long may be forgotten.
const RECENT: Duration = Duration::from_secs(10);

/// Beyond this number of servers, those that did not answer lately are forgotten.
const MANY: usize = 64;

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
    known: HashMap<u64, Known>,
    /// The server that answered last.
    last: u64,
    sets: ClockSets,
}

/// How often a clock was set, and when the last time was noticed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ClockSets {
    pub(crate) count: u64,
    pub(crate) last: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    offset: Offset,
    updated: Instant,
}

/// By how much the store's clock is ahead of the local one: at least by `least` nanoseconds, at most by `most`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Offset {
    origin: Instant,
    least: i64,
    most: i64,
}

/// What a call has shown of the store's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Read {
    pub(crate) offset: Offset,
    /// By how many nanoseconds the clock is ahead of what earlier calls and drift explain, or behind if below 0.
    ahead: i64,
}

impl StoreClock {
    pub(crate) fn new() -> Self {
        Self {
            origin: Instant::now(),
            servers: Mutex::default(),
        }
    }

    /// The most that the clock of the server that answered last shows at a local time; 0 if none has.
    pub(crate) fn shows(&self) -> impl Fn(Instant) -> u64 + use<> {
        let servers = self.servers.lock();
        let offset = servers.known.get(&servers.last).map(|known| known.offset);
        move |at| {
            offset.map_or(0, |offset| {
                let local = signed_nanos(at.saturating_duration_since(offset.origin));
                u64::try_from((local + offset.most) / NANOS + 1).unwrap_or(0)
            })
        }
    }

    /// Learns from a call that was answered with the time `now`. Calls to a server whose number is 0 say nothing of each
    /// other.
    pub(crate) fn observe(&self, sent: Instant, received: Instant, now: u64, server: u64) -> Read {
        let call = Offset::of_call(self.origin, sent, received, now);
        let mut servers = self.servers.lock();
        servers.last = server;
        let known = servers.known.get(&server).filter(|_| server != 0);
        let (offset, ahead) = match known {
            None => (call, 0),
            Some(known) => {
                let expected = known.offset.aged(known.updated, received);
                // Answers that contradict each other come from a clock that was set.
                (expected.and(call).unwrap_or(call), call.ahead(expected))
            }
        };
        let updated = received;
        servers.known.insert(server, Known { offset, updated });
        if servers.known.len() > MANY {
            let is_recent = |it: &Known| received.saturating_duration_since(it.updated) < RECENT;
            servers.known.retain(|_, known| is_recent(known));
        }
        let read = Read { offset, ahead };
        if read.set_by().is_some() {
            servers.sets.count += 1;
            servers.sets.last = Some(received);
        }
        read
    }

    pub(crate) fn sets(&self) -> ClockSets {
        self.servers.lock().sets
    }
}

impl Read {
    /// Seconds by which the clock was set forward, or back if below 0, if it was set.
    pub(crate) fn set_by(&self) -> Option<f64> {
        let is_set = Duration::from_nanos(self.ahead.unsigned_abs()) > TOLERANCE;
        is_set.then_some(self.ahead as f64 / 1e9)
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
            least: now * NANOS - local(received),
            most: (now + 1) * NANOS - local(sent),
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
        let by = signed_nanos(now.saturating_duration_since(then)) / DRIFT + 1;
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
    use super::*;

    const EPOCH: u64 = 1_763_000_000_000_000;

    /// A clock and the time from which all times are counted, in milliseconds.
    struct Observed(StoreClock, Instant);

    impl Observed {
        fn new() -> Self {
            Self(StoreClock::new(), Instant::now())
        }

        fn at(&self, millis: u64) -> Instant {
            self.1 + Duration::from_millis(millis)
        }

        /// Observes that the store's clock showed `shown` between `sent` and `received`.
        fn read(&self, [sent, received]: [u64; 2], shown: u64, server: u64) -> Read {
            let (sent, received) = (self.at(sent), self.at(received));
            self.0.observe(sent, received, stored(shown), server)
        }
    }

    fn stored(millis: u64) -> u64 {
        EPOCH + millis * 1_000
    }

    #[test]
    fn a_time_of_the_store_lies_between_sending_and_answer_of_its_call() {
        let clock = Observed::new();
        let offset = clock.read([0, 40], 1_000, 1).offset;
        assert!(offset.earliest(stored(1_000)) <= clock.at(0));
        assert!(offset.latest(stored(1_000)) >= clock.at(40));
        assert!(offset.uncertainty() <= Duration::from_micros(40_003));
        // The call may have been answered at once, or only at its end.
        let shows = clock.0.shows()(clock.at(100));
        assert!((stored(1_100)..=stored(1_101)).contains(&shows), "{shows}");
        assert_eq!(StoreClock::new().shows()(clock.at(0)), 0);
    }

    #[test]
    fn a_late_answer_is_read_by_the_answers_of_earlier_calls() {
        let clock = Observed::new();
        clock.read([0, 1], 1_000, 1);
        let offset = clock.read([10, 60], 1_012, 1).offset;
        assert!(offset.uncertainty() < Duration::from_millis(2));
        assert!(offset.latest(stored(2_000)) <= clock.at(1_002));
        assert!(offset.earliest(stored(2_000)) >= clock.at(999));
    }

    #[test]
    fn a_clock_that_was_set_replaces_the_earlier_one() {
        let clock = Observed::new();
        clock.read([0, 1], 1_000, 1);
        let offset = clock.read([100, 101], 50, 1).offset;
        let latest = offset.latest(stored(60));
        assert!((clock.at(110)..=clock.at(112)).contains(&latest));
    }

    #[test]
    fn one_clock_tells_nothing_about_that_of_another_server() {
        // Server 0 is one of a connection that may be renewed: each reading may be of another server.
        for (server, next) in [(1, 2), (0, 0)] {
            let clock = Observed::new();
            clock.read([0, 1], 1_000, server);
            // The other is ahead, by less than this answer leaves open.
            let read = clock.read([10, 60], 1_030, next);
            assert_eq!(read.ahead, 0);
            assert!(read.offset.latest(stored(2_000)) >= clock.at(1_030));
        }
    }

    #[test]
    fn a_clock_is_ahead_by_what_no_round_trip_explains() {
        let clock = Observed::new();
        for (call, shown, server, expected) in [
            ([0, 1], 1_000, 1, 0..=0),
            ([10, 60], 1_040, 1, 0..=0),
            ([100, 101], 1_050, 1, 48..=52),
            ([200, 201], 1_350, 1, 198..=202),
            ([300, 301], 950, 1, 498..=502),
            ([400, 401], 5_000, 2, 0..=0),
        ] {
            let ahead = clock.read(call, shown, server).ahead.unsigned_abs();
            assert!(expected.contains(&(ahead / 1_000_000)), "{ahead}");
        }
    }

    #[test]
    fn a_clock_that_drifts_or_is_slewed_was_not_set() {
        let ahead_after = |idle: u64, off: i64| {
            let clock = Observed::new();
            clock.read([0, 1], 1_000, 1);
            let shown = (1_000 + idle).saturating_add_signed(off);
            clock.read([idle, idle + 1], shown, 1).ahead.unsigned_abs()
        };
        for (idle, parts_per_million) in [(60_i64, 500), (600, 50), (1_800, 30), (86_400, 500)] {
            let off = idle * parts_per_million / 1_000;
            for off in [off, -off] {
                let ahead = ahead_after(idle.cast_unsigned() * 1_000, off);
                assert_eq!(ahead, 0, "{off} ms after {idle} s");
            }
        }
        for off in [100, -100, 5_000, -5_000_i64] {
            let ahead = ahead_after(60_000, off) / 1_000_000;
            let beyond = off.unsigned_abs() - 30;
            assert!((beyond - 2..=beyond).contains(&ahead), "{off} ms: {ahead}");
        }
    }

    #[test]
    fn a_reading_becomes_less_certain_with_time() {
        let clock = Observed::new();
        clock.read([0, 1], 1_000, 1);
        for (from, expected) in [(6_000, 6..=8), (120_000, 39..=41)] {
            let read = clock.read([from, from + 40], 1_020 + from, 1);
            assert!(expected.contains(&read.offset.uncertainty().as_millis()));
        }
    }
}
