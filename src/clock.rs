//! The store's clock as seen from this process: [`StoreClock`].

use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The most by which two clocks drift apart is one part in this many: 500 parts per million, by which clocks are slewed
/// at most. A clock that is off by more was set.
const DRIFT: i64 = 2_000;

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
        Read { offset, ahead }
    }
}

impl Read {
    /// Seconds by which the clock was set forward, or back if below 0, unless it is less than `tolerance`.
    pub(crate) fn set_by(&self, tolerance: Duration) -> Option<f64> {
        let is_set = Duration::from_nanos(self.ahead.unsigned_abs()) > tolerance;
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

    fn after(start: Instant, millis: u64) -> Instant {
        start + Duration::from_millis(millis)
    }

    /// What the store says when its clock is so many milliseconds after the epoch.
    fn says(millis: u64) -> u64 {
        EPOCH + millis * 1_000
    }

    #[test]
    fn a_slot_lies_between_sending_and_answer_of_its_call() {
        let clock = StoreClock::new();
        let start = Instant::now();
        let offset = clock
            .observe(after(start, 0), after(start, 40), says(1_000), 1)
            .offset;
        let close = Duration::from_micros(3);
        assert!(offset.earliest(says(1_000)) <= after(start, 0));
        assert!(offset.latest(says(1_000)) >= after(start, 40));
        assert!(offset.uncertainty() <= Duration::from_millis(40) + close);
    }

    #[test]
    fn a_late_answer_is_read_by_what_is_known_from_others() {
        let clock = StoreClock::new();
        let start = Instant::now();
        clock.observe(after(start, 0), after(start, 1), says(1_000), 1);
        let offset = clock
            .observe(after(start, 10), after(start, 60), says(1_012), 1)
            .offset;
        assert!(offset.uncertainty() < Duration::from_millis(2));
        assert!(offset.latest(says(2_000)) <= after(start, 1_002));
        assert!(offset.earliest(says(2_000)) >= after(start, 999));
    }

    #[test]
    fn a_clock_that_was_set_is_believed() {
        let clock = StoreClock::new();
        let start = Instant::now();
        clock.observe(after(start, 0), after(start, 1), says(1_000), 1);
        let offset = clock
            .observe(after(start, 100), after(start, 101), says(50), 1)
            .offset;
        assert!(offset.latest(says(60)) >= after(start, 110));
        assert!(offset.latest(says(60)) <= after(start, 112));
    }

    #[test]
    fn what_is_known_of_one_clock_says_nothing_of_another() {
        let clock = StoreClock::new();
        let start = Instant::now();
        clock.observe(after(start, 0), after(start, 1), says(1_000), 1);
        // The other is ahead, by less than this answer leaves open.
        let other = clock
            .observe(after(start, 10), after(start, 60), says(1_030), 2)
            .offset;
        assert!(other.latest(says(2_000)) >= after(start, 1_030));
    }

    #[test]
    fn what_a_connection_says_that_may_be_made_anew_is_by_no_clock_that_is_known() {
        let clock = StoreClock::new();
        let start = Instant::now();
        clock.observe(after(start, 0), after(start, 1), says(1_000), 0);
        let next = clock.observe(after(start, 10), after(start, 60), says(1_030), 0);
        assert_eq!(next.ahead, 0);
        assert!(next.offset.latest(says(2_000)) >= after(start, 1_030));
    }

    #[test]
    fn how_far_a_clock_was_set_is_what_no_round_trip_explains() {
        let clock = StoreClock::new();
        let start = Instant::now();
        let gap = |sent, received, says, server| {
            let read = clock.observe(after(start, sent), after(start, received), says, server);
            read.ahead.unsigned_abs() / 1_000_000
        };
        assert_eq!(gap(0, 1, says(1_000), 1), 0);
        assert_eq!(gap(10, 60, says(1_040), 1), 0);
        assert!((48..=52).contains(&gap(100, 101, says(1_050), 1)));
        assert!((198..=202).contains(&gap(200, 201, says(1_350), 1)));
        // On another connection as well, but not of another server.
        assert!((498..=502).contains(&gap(300, 301, says(950), 1)));
        assert_eq!(gap(400, 401, says(5_000), 2), 0);
    }

    /// What the clock shows so long after it was read, off by so much, in milliseconds.
    fn gap_after(idle: u64, off: i64) -> i64 {
        let clock = StoreClock::new();
        let start = Instant::now();
        clock.observe(after(start, 0), after(start, 1), says(1_000), 1);
        let now = says((1_000 + idle).saturating_add_signed(off));
        let (sent, received) = (after(start, idle), after(start, idle + 1));
        clock.observe(sent, received, now, 1).ahead
    }

    #[test]
    fn a_clock_that_drifts_or_is_slewed_was_not_set() {
        for (idle, parts_per_million) in [(60_i64, 500), (600, 50), (1_800, 30), (86_400, 500)] {
            let off = idle * parts_per_million / 1_000;
            for off in [off, -off] {
                let gap = gap_after(idle.cast_unsigned() * 1_000, off);
                assert_eq!(gap, 0, "{off} ms after {idle} s");
            }
        }
    }

    #[test]
    fn a_clock_that_was_set_after_a_while_is_told_from_one_that_was_slewed() {
        for off in [100, -100, 5_000, -5_000] {
            let gap = gap_after(60_000, off).unsigned_abs() / 1_000_000;
            let beyond = off.unsigned_abs() - 30;
            assert!((beyond - 2..=beyond).contains(&gap), "{off} ms: {gap}");
        }
    }

    #[test]
    fn what_the_clock_shows_is_never_less_than_what_is_true() {
        let clock = StoreClock::new();
        let start = Instant::now();
        assert_eq!(clock.shows()(start), 0);
        // The store answered at once, or only just now.
        clock.observe(after(start, 0), after(start, 40), says(1_000), 1);
        let shows = clock.shows()(after(start, 100));
        assert!((says(1_100)..=says(1_101)).contains(&shows), "{shows}");
    }

    #[test]
    fn what_a_call_has_shown_becomes_less_certain_with_time() {
        let clock = StoreClock::new();
        let start = Instant::now();
        clock.observe(after(start, 0), after(start, 1), says(1_000), 1);
        let after_pause = |from: u64| {
            let (sent, received) = (after(start, from), after(start, from + 40));
            let read = clock.observe(sent, received, says(1_020 + from), 1);
            read.offset.uncertainty().as_millis()
        };
        assert!((6..=8).contains(&after_pause(6_000)));
        assert!((39..=41).contains(&after_pause(120_000)));
    }
}
