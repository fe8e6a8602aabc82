//! The store's clock as seen from here: [`StoreClock`].

use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::store::DRIFT;

/// By what part of the time a clock may be slewed, 500 parts per million at the utmost: then nobody has set it.
const SLEWING: i64 = 2_000;

/// For how long an answer says something about the clock, at least; twice as long at most. A clock
/// that is slewed is off by some milliseconds then.
const PERIOD: Duration = Duration::from_secs(5);

/// How far the store's clock is ahead of the local one.
///
/// The store reads its clock between the sending of a call and its answer. So the call's round trip
/// bounds how far ahead that clock is, and what recent calls say together bounds it more closely: an
/// answer that comes late does no harm to the slots in it. No agreement between the hosts' clocks is
/// needed.
#[derive(Debug)]
pub(crate) struct StoreClock {
    origin: Instant,
    all: Mutex<All>,
}

/// What is known of each server's clock.
#[derive(Debug, Default)]
struct All {
    servers: HashMap<u64, Known>,
    /// The last that was read.
    last: u64,
    /// How many clocks there have been: another server's, one that was set, or one on another connection.
    generations: u64,
}

/// Which clock was read: of which server, and on which connection, as the name of a server may lead to another
/// the next time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) server: u64,
    pub(crate) connection: u64,
}

/// A connection that does not tell when it is made anew, maybe to another server.
pub(crate) const UNTOLD: u64 = u64::MAX;

/// When more servers than this have been read, those are forgotten that were not for long.
const MANY: usize = 64;

#[derive(Debug, Default)]
struct Known {
    connection: u64,
    generation: u64,
    /// What the calls of this period say.
    current: Option<Period>,
    /// What those of the last one said in the end, and when.
    last: Option<(Offset, Instant)>,
}

#[derive(Debug, Clone, Copy)]
struct Period {
    offset: Offset,
    start: Instant,
    updated: Instant,
}

/// By how much the store's clock is ahead of the local one, in nanoseconds: not less than `least`,
/// nor more than `most`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Offset {
    /// What reads one clock says nothing of another.
    clock: u64,
    origin: Instant,
    least: i64,
    most: i64,
}

/// What a call has shown of the store's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Read {
    pub(crate) offset: Offset,
    /// By how much that is beyond what was known before, and what slewing explains.
    pub(crate) gap: Duration,
    /// The same in seconds, below 0 where it was set back.
    pub(crate) ahead: f64,
    /// Whether it is another than was read so far: the store may be another, too.
    pub(crate) is_other: bool,
}

impl StoreClock {
    pub(crate) fn new() -> Self {
        Self {
            origin: Instant::now(),
            all: Mutex::default(),
        }
    }

    /// What the store's clock shows at this local time at most, if it was ever asked.
    pub(crate) fn shows(&self, at: Instant) -> Option<u64> {
        let all = self.all.lock();
        let period = all.servers.get(&all.last)?.current?;
        let local = signed_nanos(at.saturating_duration_since(self.origin));
        let shows = (local + period.offset.most) / NANOS + 1;
        u64::try_from(shows).ok()
    }

    /// What is known after the store has said `now` in a call, by this clock.
    pub(crate) fn observe(
        &self,
        sent: Instant,
        received: Instant,
        now: u64,
        reading: Reading,
    ) -> Read {
        let call = Offset::of_call(self.origin, sent, received, now);
        let mut all = self.all.lock();
        let All {
            servers,
            last,
            generations,
        } = &mut *all;
        *last = reading.server;
        let known = servers.entry(reading.server).or_default();
        let expected = known.current;
        let expected = expected.map(|it| it.offset.slewed(it.updated, received));
        let ahead = expected.map_or(0, |expected| call.ahead(expected));
        let is_other = expected.is_some() && known.connection != reading.connection;
        if is_other || expected.is_none() || reading.connection == UNTOLD {
            *generations += 1;
            *known = Known {
                connection: reading.connection,
                generation: *generations,
                ..Known::default()
            };
        }
        let offset = known.read(call, received, generations);
        if servers.len() > MANY {
            servers.retain(|_, known| known.is_recent(received));
        }
        Read {
            offset,
            gap: Duration::from_nanos(ahead.unsigned_abs()),
            ahead: ahead as f64 / 1e9,
            is_other,
        }
    }
}

impl Known {
    fn is_recent(&self, now: Instant) -> bool {
        let is_recent = |period: Period| now.saturating_duration_since(period.updated) < 2 * PERIOD;
        self.current.is_some_and(is_recent)
    }

    fn read(&mut self, call: Offset, received: Instant, generations: &mut u64) -> Offset {
        if let Some(period) = self.current
            && received.saturating_duration_since(period.start) >= PERIOD
        {
            self.last = Some((period.offset, period.updated));
            self.current = None;
        }
        let (offset, start) = match self.current {
            None => (call, received),
            // If the answers contradict one another, somebody has set a clock.
            Some(period) => match period.offset.aged(period.updated, received).and(call) {
                Some(both) => (both, period.start),
                None => {
                    self.last = None;
                    *generations += 1;
                    self.generation = *generations;
                    (call, received)
                }
            },
        };
        let offset = Offset {
            clock: self.generation,
            ..offset
        };
        self.current = Some(Period {
            offset,
            start,
            updated: received,
        });
        let Some((last, said)) = self.last else {
            return offset;
        };
        match offset.and(last.aged(said, received)) {
            Some(both) => both,
            None => {
                self.last = None;
                offset
            }
        }
    }
}

impl Offset {
    /// What one call says.
    pub(crate) fn of_call(origin: Instant, sent: Instant, received: Instant, now: u64) -> Self {
        let local = |at: Instant| signed_nanos(at.saturating_duration_since(origin));
        let now = now.cast_signed();
        Self {
            clock: 0,
            origin,
            // The store's time has a fraction of a microsecond that it does not say.
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

    /// Which clock it reads: another, once somebody has set it.
    pub(crate) fn clock(&self) -> u64 {
        self.clock
    }

    /// How far `least` and `most` are apart.
    pub(crate) fn uncertainty(&self) -> Duration {
        Duration::from_nanos(self.most.abs_diff(self.least))
    }

    fn local(&self, nanos: i64) -> Instant {
        self.origin + Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
    }

    /// How far the one is beyond the other, in nanoseconds; below 0 where it is behind.
    fn ahead(self, other: Self) -> i64 {
        let ahead = self.least - other.most;
        let behind = other.least - self.most;
        if behind > 0 { -behind } else { ahead.max(0) }
    }

    /// What both say, unless they contradict one another.
    fn and(self, other: Self) -> Option<Self> {
        let both = Self {
            clock: self.clock,
            origin: self.origin,
            least: self.least.max(other.least),
            most: self.most.min(other.most),
        };
        (both.least <= both.most).then_some(both)
    }

    /// What was known then, now that the clocks may have drifted apart.
    fn aged(self, then: Instant, now: Instant) -> Self {
        self.widened(then, now, DRIFT.cast_signed())
    }

    /// The same, if somebody may have slewed one of them meanwhile.
    fn slewed(self, then: Instant, now: Instant) -> Self {
        self.widened(then, now, SLEWING)
    }

    /// By a part of the time.
    fn widened(self, then: Instant, now: Instant, part: i64) -> Self {
        let by = signed_nanos(now.saturating_duration_since(then)) / part + 1;
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

    fn on(connection: u64) -> Reading {
        Reading {
            server: 0,
            connection,
        }
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
            .observe(after(start, 0), after(start, 40), says(1_000), on(0))
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
        clock.observe(after(start, 0), after(start, 1), says(1_000), on(0));
        let offset = clock
            .observe(after(start, 10), after(start, 60), says(1_012), on(0))
            .offset;
        assert!(offset.uncertainty() < Duration::from_millis(2));
        assert!(offset.latest(says(2_000)) <= after(start, 1_002));
        assert!(offset.earliest(says(2_000)) >= after(start, 999));
    }

    #[test]
    fn a_clock_that_was_set_is_believed() {
        let clock = StoreClock::new();
        let start = Instant::now();
        clock.observe(after(start, 0), after(start, 1), says(1_000), on(0));
        let offset = clock
            .observe(after(start, 100), after(start, 101), says(50), on(0))
            .offset;
        assert!(offset.latest(says(60)) >= after(start, 110));
        assert!(offset.latest(says(60)) <= after(start, 112));
    }

    #[test]
    fn what_is_known_of_one_clock_says_nothing_of_another() {
        let clock = StoreClock::new();
        let start = Instant::now();
        clock.observe(after(start, 0), after(start, 1), says(1_000), on(0));
        // The other is ahead, by less than this answer leaves open.
        let other = clock
            .observe(after(start, 10), after(start, 60), says(1_030), on(1))
            .offset;
        assert!(other.latest(says(2_000)) >= after(start, 1_030));
    }

    #[test]
    fn what_a_connection_says_that_may_be_made_anew_is_by_no_clock_that_is_known() {
        let clock = StoreClock::new();
        let start = Instant::now();
        clock.observe(after(start, 0), after(start, 1), says(1_000), on(UNTOLD));
        let next = clock.observe(after(start, 10), after(start, 60), says(1_030), on(UNTOLD));
        assert!(!next.is_other && next.gap == Duration::ZERO);
        assert!(next.offset.latest(says(2_000)) >= after(start, 1_030));
    }

    #[test]
    fn how_far_a_clock_was_set_is_what_no_round_trip_explains() {
        let clock = StoreClock::new();
        let start = Instant::now();
        let gap = |sent, received, says, server, connection| {
            let reading = Reading { server, connection };
            let read = clock.observe(after(start, sent), after(start, received), says, reading);
            read.gap.as_millis()
        };
        assert_eq!(gap(0, 1, says(1_000), 0, 0), 0);
        assert_eq!(gap(10, 60, says(1_040), 0, 0), 0);
        assert!((48..=52).contains(&gap(100, 101, says(1_050), 0, 0)));
        assert!((198..=202).contains(&gap(200, 201, says(1_350), 0, 0)));
        // On another connection as well, but not of another server.
        assert!((498..=502).contains(&gap(300, 301, says(950), 0, 1)));
        assert_eq!(gap(400, 401, says(5_000), 1, 2), 0);
    }

    /// What the clock shows so long after it was read, off by so much, in milliseconds.
    fn gap_after(idle: u64, off: i64) -> Duration {
        let clock = StoreClock::new();
        let start = Instant::now();
        clock.observe(after(start, 0), after(start, 1), says(1_000), on(0));
        let now = says((1_000 + idle).saturating_add_signed(off));
        let (sent, received) = (after(start, idle), after(start, idle + 1));
        clock.observe(sent, received, now, on(0)).gap
    }

    #[test]
    fn a_clock_that_drifts_or_is_slewed_was_not_set() {
        for (idle, parts_per_million) in [(60_i64, 500), (600, 50), (1_800, 30), (86_400, 500)] {
            let off = idle * parts_per_million / 1_000;
            for off in [off, -off] {
                let gap = gap_after(idle.cast_unsigned() * 1_000, off);
                assert_eq!(gap, Duration::ZERO, "{off} ms after {idle} s");
            }
        }
    }

    #[test]
    fn a_clock_that_was_set_after_a_while_is_told_from_one_that_was_slewed() {
        for off in [100, -100, 5_000, -5_000] {
            let gap = gap_after(60_000, off).as_millis();
            let beyond = u128::from(off.unsigned_abs()) - 30;
            assert!((beyond - 2..=beyond).contains(&gap), "{off} ms: {gap}");
        }
    }

    #[test]
    fn what_the_clock_shows_is_never_less_than_what_is_true() {
        let clock = StoreClock::new();
        let start = Instant::now();
        assert_eq!(clock.shows(start), None);
        // The store answered at once, or only just now.
        clock.observe(after(start, 0), after(start, 40), says(1_000), on(0));
        let shows = clock.shows(after(start, 100)).unwrap();
        assert!((says(1_100)..=says(1_101)).contains(&shows), "{shows}");
    }

    #[test]
    fn what_is_old_is_forgotten() {
        let clock = StoreClock::new();
        let start = Instant::now();
        clock.observe(after(start, 0), after(start, 1), says(1_000), on(0));
        for late in [6_000, 12_000] {
            clock.observe(
                after(start, late),
                after(start, late + 40),
                says(1_020 + late),
                on(0),
            );
        }
        let offset = clock
            .observe(
                after(start, 18_000),
                after(start, 18_040),
                says(19_020),
                on(0),
            )
            .offset;
        assert!(
            offset.uncertainty() >= Duration::from_millis(39),
            "{offset:?}"
        );
    }
}
