//! The encoded state: one value for each key and policy. The scripts read and write the same.
//!
//! Numbers are little-endian. The value is
//!
//! | part | bytes | content |
//! | --- | --- | --- |
//! | head | 18 | `tt`, the format version (1), flags (1; 1: hold, 2: life), the number of quotas (1), the number of announcements (2), the bytes of the tail (4), the expiry of the key (7) |
//! | each quota | | its kind (1), its numbers |
//! | rings | 11 × room | room for the entries of each log of kind 2 |
//! | tail | | if there is one, the hold; if there is one, the life; each announcement; the entries of each log of kind 1 |
//! | padding | | of a value with rings, so that announcements need no new memory |
//!
//! | kind | quota | numbers |
//! | --- | --- | --- |
//! | 1 | sliding window | limit (4), window (7), number of entries (2), units so far (4) |
//! | 2 | sliding window with a log of more than 50 entries | as kind 1, then the room of the ring in entries (2), the place of the first entry (2), its recorded time (7), the units before it (4), the recorded time of the last entry (7) |
//! | 3, 6 | GCRA, or spacing | burst (4), interval (7), due (7), last (7) |
//! | 4, 5 | fixed window, aligned or not | limit (4), window (7), start (7), end (7), count (4), last (7) |
//!
//! | part of the tail | content |
//! | --- | --- |
//! | hold | until when paused (7), units allowed (4), until when (7), last command (7) |
//! | life | generation (7), version (7), written (7), server (8), quarantined until (7) |
//! | announcement | process (7), deadline (7), arrival of the first request (7), of the last (7), units (5), bytes of what follows (2); number of the call (7), cost of its requests (4), number of points (1); each point if there are at least two: arrival (7), units (5); each grant: recorded (7), units (4) |
//! | entry of a log | recorded (7), units recorded before it, modulo 2^32 (4) |
//!
//! Times are microseconds since 1970. The key does not expire before its expiry in the head.

use smallvec::SmallVec;

use crate::error::StoreError;

use super::demand::Point;
use super::window::{Entry, MOST_ENTRIES};
use super::{Announcement, Counter, Demand, Fixed, Gcra, Hold, Life, Recorded, State, Window};

/// Logs of more entries than this have a ring.
pub(crate) const MOST_WHOLE: usize = 50;

/// The entries that a new ring has room for.
const LEAST_ROOM: usize = 64;

const MAGIC: &[u8] = b"tt";
const VERSION: u8 = 1;
const HAS_HOLD: u8 = 1;
const HAS_LIFE: u8 = 2;
const ENTRY: usize = 11;
const POINT: usize = 12;
const GRANT: usize = 11;

/// The bytes of the head, and of what follows the first part of an announcement at least.
pub(crate) const HEAD: usize = 18;
const DETAIL: usize = 12;

/// The least room for the tail and the padding of a value with rings.
pub(crate) const TAIL_ROOM: usize = 900;

/// Why a value cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// Something else has written it.
    Unrecognized,
    /// A later version of the crate has written it.
    Version(u8),
}

impl From<Unreadable> for StoreError {
    fn from(unreadable: Unreadable) -> Self {
        let message = match unreadable {
            Unreadable::Unrecognized => "the value was not written by tower-throttle",
            Unreadable::Version(_) => "the value was written by a later version of tower-throttle",
        };
        Self::new(message).unrecognized_value()
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn put(&mut self, number: u64, bytes: usize) {
        self.0.extend_from_slice(&number.to_le_bytes()[..bytes]);
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Unreadable> {
        let (taken, rest) = self
            .0
            .split_at_checked(count)
            .ok_or(Unreadable::Unrecognized)?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self, bytes: usize) -> Result<u64, Unreadable> {
        let mut whole = [0; 8];
        whole[..bytes].copy_from_slice(self.bytes(bytes)?);
        Ok(u64::from_le_bytes(whole))
    }

    fn small(&mut self) -> Result<u32, Unreadable> {
        self.number(4).map(|number| number as u32)
    }
}

impl Window {
    /// Whether the log is read and written in part.
    fn has_ring(&self) -> bool {
        self.usual_entries() > MOST_WHOLE
    }

    /// The entries that its ring has room for. A script that needs more leaves the call to Rust.
    fn room(&self) -> usize {
        (2 * self.log.len()).clamp(LEAST_ROOM, MOST_ENTRIES)
    }
}

impl Counter {
    /// Its kind and its quota, as in the value.
    fn encode_quota(&self, out: &mut Writer) {
        let (kind, limit, window) = match self {
            Self::Window(it) if it.has_ring() => (2, it.limit, it.window),
            Self::Window(it) => (1, it.limit, it.window),
            Self::Gcra(it) if it.spaced => (6, it.burst, it.interval),
            Self::Gcra(it) => (3, it.burst, it.interval),
            Self::Fixed(it) if it.aligned => (4, it.limit, it.window),
            Self::Fixed(it) => (5, it.limit, it.window),
        };
        out.put(kind, 1);
        out.put(limit.into(), 4);
        out.put(window, 7);
    }

    /// Its kind in the value.
    #[cfg(feature = "redis")]
    pub(crate) fn kind(&self) -> u8 {
        let mut quota = Writer(Vec::new());
        self.encode_quota(&mut quota);
        quota.0[0]
    }

    /// The terms of the quota for the scripts: its kind and numbers as in the value, and for a sliding window the grain (7).
    #[cfg(feature = "redis")]
    pub(crate) fn encode_terms(&self, out: &mut Vec<u8>) {
        let mut terms = Writer(std::mem::take(out));
        self.encode_quota(&mut terms);
        if let Self::Window(window) = self {
            terms.put(window.grain, 7);
        }
        *out = terms.0;
    }
}

impl State {
    /// The value of this state.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let tail = self.encode_tail();
        let mut out = Writer(Vec::with_capacity(128));
        let flags =
            u8::from(self.hold.is_some()) * HAS_HOLD + u8::from(self.life.is_some()) * HAS_LIFE;
        out.0.extend_from_slice(MAGIC);
        out.0.extend([VERSION, flags, self.counters.len() as u8]);
        out.put(self.announced.len() as u64, 2);
        out.put(tail.len() as u64, 4);
        out.put(self.expires(), 7);
        for counter in &self.counters {
            encode_counter(&mut out, counter);
        }
        let mut room = 0;
        for log in logs(&self.counters, true) {
            let end = out.0.len() + log.room() * ENTRY;
            encode_log(&mut out, log);
            out.0.resize(end, 0);
            room = TAIL_ROOM;
        }
        let least = out.0.len() + room;
        out.0.extend(tail);
        if out.0.len() < least {
            out.0.resize(least, 0);
        }
        out.0
    }

    fn encode_tail(&self) -> Vec<u8> {
        let mut out = Writer(Vec::new());
        if let Some(hold) = &self.hold {
            out.put(hold.paused_until, 7);
            out.put(hold.allowed.into(), 4);
            out.put(hold.allowed_until, 7);
            out.put(hold.commanded, 7);
        }
        if let Some(life) = &self.life {
            for (number, bytes) in [
                (life.generation, 7),
                (life.version, 7),
                (life.written, 7),
                (life.server, 8),
                (life.quarantined_until, 7),
            ] {
                out.put(number, bytes);
            }
        }
        for announced in &self.announced {
            encode_announcement(&mut out, announced);
        }
        for log in logs(&self.counters, false) {
            encode_log(&mut out, log);
        }
        out.0
    }

    /// The state of a value.
    pub(crate) fn decode(value: &[u8]) -> Result<Self, Unreadable> {
        let mut value = Reader(value);
        if value.bytes(2)? != MAGIC {
            return Err(Unreadable::Unrecognized);
        }
        let version = value.number(1)? as u8;
        if version != VERSION {
            return Err(Unreadable::Version(version));
        }
        let (flags, quotas) = (value.number(1)? as u8, value.number(1)?);
        let (announced, tail) = (value.number(2)?, value.number(4)? as usize);
        let expires = value.number(7)?;
        let mut state = Self::default();
        let mut logs = Vec::new();
        for _ in 0..quotas {
            let (counter, log) = decode_counter(&mut value)?;
            state.counters.push(counter);
            logs.push(log);
        }
        for (log, counter) in logs.iter().zip(&mut state.counters) {
            if let Some(ring) = log.ring {
                log.decode(value.bytes(ring.room * ENTRY)?, counter)?;
            }
        }
        let mut tail = Reader(value.bytes(tail)?);
        if flags & HAS_HOLD != 0 {
            state.hold = Some(Box::new(Hold {
                paused_until: tail.number(7)?,
                allowed: tail.small()?,
                allowed_until: tail.number(7)?,
                commanded: tail.number(7)?,
            }));
        }
        if flags & HAS_LIFE != 0 {
            state.life = Some(Box::new(Life {
                generation: tail.number(7)?,
                version: tail.number(7)?,
                written: tail.number(7)?,
                server: tail.number(8)?,
                quarantined_until: tail.number(7)?,
                kept_until: expires,
            }));
        }
        for _ in 0..announced {
            state.announced.push(decode_announcement(&mut tail)?);
        }
        let whole = logs
            .iter()
            .zip(&mut state.counters)
            .filter(|(log, _)| log.is_whole());
        for (log, counter) in whole {
            log.decode(tail.bytes(log.entries * ENTRY)?, counter)?;
        }
        if !tail.0.is_empty() {
            return Err(Unreadable::Unrecognized);
        }
        Ok(state)
    }
}

/// The logs that have a ring, or those that do not.
fn logs(counters: &[Counter], with_ring: bool) -> impl Iterator<Item = &Window> {
    counters.iter().filter_map(move |counter| match counter {
        Counter::Window(window) if window.has_ring() == with_ring => Some(window),
        _ => None,
    })
}

fn encode_log(out: &mut Writer, window: &Window) {
    let mut before = 0;
    for entry in &window.log {
        out.put(entry.recorded, 7);
        out.put(before, 4);
        before += u64::from(entry.units);
    }
}

fn encode_counter(out: &mut Writer, counter: &Counter) {
    counter.encode_quota(out);
    match counter {
        Counter::Window(window) => {
            out.put(window.log.len() as u64, 2);
            out.put(window.used, 4);
            if window.has_ring() {
                let (first, last) = (window.log.front(), window.log.back());
                out.put(window.room() as u64, 2);
                out.put(0, 2);
                out.put(first.map_or(0, |first| first.recorded), 7);
                out.put(0, 4);
                out.put(last.map_or(0, |last| last.recorded), 7);
            }
        }
        Counter::Gcra(gcra) => {
            out.put(gcra.due, 7);
            out.put(gcra.last, 7);
        }
        Counter::Fixed(fixed) => {
            out.put(fixed.start, 7);
            out.put(fixed.end, 7);
            out.put(fixed.count.into(), 4);
            out.put(fixed.last, 7);
        }
    }
}

/// Where the entries of a log are, and how many units precede the end of it.
#[derive(Default)]
struct Log {
    is_log: bool,
    entries: usize,
    units: u32,
    ring: Option<Ring>,
}

/// The room of a ring, and the place of its first entry.
#[derive(Clone, Copy)]
struct Ring {
    room: usize,
    first: usize,
}

fn decode_counter(value: &mut Reader<'_>) -> Result<(Counter, Log), Unreadable> {
    let kind = value.number(1)?;
    let limit = value.small()?;
    let window = value.number(7)?;
    if limit == 0 || window == 0 {
        return Err(Unreadable::Unrecognized);
    }
    match kind {
        1 | 2 => {
            let entries = value.number(2)? as usize;
            let units = value.small()?;
            let ring = if kind == 2 {
                let ring = Ring {
                    room: value.number(2)? as usize,
                    first: value.number(2)? as usize,
                };
                value.bytes(18)?;
                Some(ring)
            } else {
                None
            };
            let most = ring.map_or(MOST_ENTRIES, |ring| ring.room.min(MOST_ENTRIES));
            if entries > most || ring.is_some_and(|ring| ring.first >= ring.room) {
                return Err(Unreadable::Unrecognized);
            }
            let log = Log {
                is_log: true,
                entries,
                units,
                ring,
            };
            Ok((Counter::Window(Window::new(limit, window)), log))
        }
        3 | 6 => {
            let gcra = Gcra {
                due: value.number(7)?,
                last: value.number(7)?,
                ..Gcra::new(limit, window, kind == 6)
            };
            Ok((Counter::Gcra(gcra), Log::default()))
        }
        4 | 5 => {
            let (start, end) = (value.number(7)?, value.number(7)?);
            let (count, last) = (value.small()?, value.number(7)?);
            let fixed = Fixed {
                start,
                end,
                count,
                last,
                ..Fixed::new(limit, window, kind == 4)
            };
            Ok((Counter::Fixed(fixed), Log::default()))
        }
        _ => Err(Unreadable::Unrecognized),
    }
}

impl Log {
    fn is_whole(&self) -> bool {
        self.is_log && self.ring.is_none()
    }

    fn decode(&self, bytes: &[u8], counter: &mut Counter) -> Result<(), Unreadable> {
        let Counter::Window(window) = counter else {
            return Err(Unreadable::Unrecognized);
        };
        let (entries, rest) = bytes.as_chunks::<ENTRY>();
        if !rest.is_empty() {
            return Err(Unreadable::Unrecognized);
        }
        let first = self.ring.map_or(0, |ring| ring.first);
        let read = |nth: usize| {
            let mut entry = Reader(&entries[(first + nth) % entries.len()]);
            Ok((entry.number(7)?, entry.small()?))
        };
        for nth in 0..self.entries {
            let (recorded, before) = read(nth)?;
            let next = if nth + 1 < self.entries {
                read(nth + 1)?.1
            } else {
                self.units
            };
            let units = next.wrapping_sub(before);
            window.used += u64::from(units);
            window.log.push_back(Entry { recorded, units });
        }
        Ok(())
    }
}

fn encode_announcement(out: &mut Writer, announced: &Announcement) {
    let Announcement {
        process,
        number,
        deadline,
        demand,
        granted,
    } = announced;
    let points = demand.points.as_slice();
    let (first, last) = (points.first(), points.last());
    // A single point needs no more than the first part.
    let described = if points.len() > 1 { points } else { &[] };
    let detail = DETAIL + described.len() * POINT + granted.len() * GRANT;
    for (number, bytes) in [
        (*process, 7),
        (*deadline, 7),
        (first.map_or(0, |point| point.arrival), 7),
        (last.map_or(0, |point| point.arrival), 7),
        (demand.units(), 5),
        (detail as u64, 2),
        (*number, 7),
        (demand.cost.into(), 4),
        (points.len() as u64, 1),
    ] {
        out.put(number, bytes);
    }
    for point in described {
        out.put(point.arrival, 7);
        out.put(point.units, 5);
    }
    for granted in granted {
        out.put(granted.recorded, 7);
        out.put(granted.units.into(), 4);
    }
}

fn decode_announcement(value: &mut Reader<'_>) -> Result<Announcement, Unreadable> {
    let (process, deadline) = (value.number(7)?, value.number(7)?);
    let (arrival, _last) = (value.number(7)?, value.number(7)?);
    let (units, detail) = (value.number(5)?, value.number(2)? as usize);
    let mut detail = Reader(value.bytes(detail)?);
    let (number, cost, points) = (detail.number(7)?, detail.small()?, detail.number(1)?);
    let mut demand = Demand {
        cost,
        ..Demand::default()
    };
    if points == 1 {
        demand.points.push(Point { arrival, units });
    } else {
        for _ in 0..points {
            let point = Point {
                arrival: detail.number(7)?,
                units: detail.number(5)?,
            };
            let is_behind =
                |last: &Point| last.arrival <= point.arrival && last.units < point.units;
            if !demand.points.last().is_none_or(is_behind) {
                return Err(Unreadable::Unrecognized);
            }
            demand.points.push(point);
        }
    }
    let mut granted = SmallVec::new();
    while !detail.0.is_empty() {
        granted.push(Recorded {
            recorded: detail.number(7)?,
            units: detail.small()?,
        });
    }
    Ok(Announcement {
        process,
        number,
        deadline,
        demand,
        granted,
    })
}
