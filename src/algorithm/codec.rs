//! The encoded state: one value for each key and policy. The scripts read and write the same.
//!
//! Numbers are little-endian. The value is
//!
//! | part | bytes | content |
//! | --- | --- | --- |
//! | head | 18 | `tt`, the format version (1), flags (1; 1: hold, 2: life, 4: former quotas), the number of quotas (1), the number of announcements (2), the bytes of the tail (4), the expiry of the key (7) |
//! | each quota | | its kind (1), its numbers |
//! | rings | 11 × room | room for the entries of each log of kind 2 |
//! | tail | | if there is one, the hold; if there is one, the life; if there are any, the counters of former quotas; each announcement; the entries of each log of kind 1 |
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
//! | former quotas | bytes of what follows (4); a value of its own, with no more than their counters |
//! | announcement | process (7), deadline (7), arrival of the first request (7), of the last (7), units (7), bytes of what follows (2); number of the call (7), cost of its requests (4), number of points (1); each point if there are at least two: arrival (7), units (7); each grant: recorded (7), units (4) |
//! | entry of a log | recorded (7), units recorded before it, modulo 2^32 (4) |
//!
//! Times are microseconds since 1970. The key does not expire before its expiry in the head.

use crate::error::StoreError;

use super::demand::Point;
use super::numbers::{Reader, Writer, unrecognized};
use super::window::{Entry, MOST_ENTRIES};
use super::{Announcement, Counter, Demand, Fixed, Gcra, Hold, Life, Recorded, State, Window};

/// The entries that a new ring has room for.
const LEAST_ROOM: usize = 64;

/// The least room for the tail and the padding of a value with rings.
const TAIL_ROOM: usize = 900;

const MAGIC: &[u8] = b"tt";
const VERSION: u8 = 1;
const HAS_HOLD: u64 = 1;
const HAS_LIFE: u64 = 2;
const HAS_FORMER: u64 = 4;

/// The bytes of the head.
#[cfg(feature = "redis")]
pub(crate) const HEAD: usize = 18;

const AFTER_VERSION: [usize; 5] = [1, 1, 2, 4, 7];
const QUOTA: [usize; 3] = [1, 4, 7];
const LOG: [usize; 2] = [2, 4];
const RING: [usize; 5] = [2, 2, 7, 4, 7];
const GCRA: [usize; 2] = [7, 7];
const FIXED: [usize; 4] = [7, 7, 4, 7];
const HOLD: [usize; 4] = [7, 4, 7, 7];
const LIFE: [usize; 5] = [7, 7, 7, 8, 7];
const ANNOUNCEMENT: [usize; 6] = [7, 7, 7, 7, 7, 2];
const DETAIL: [usize; 3] = [7, 4, 1];
const POINT: [usize; 2] = [7, 7];
/// An entry of a log, or a grant.
const RECORDED: [usize; 2] = [7, 4];
const RECORDED_BYTES: usize = 11;

impl Window {
    /// The entries that its ring has room for. A script that needs more leaves the call to Rust.
    fn room(&self) -> usize {
        (2 * self.log.len()).clamp(LEAST_ROOM, MOST_ENTRIES)
    }
}

impl Counter {
    /// Its kind in the value.
    pub(crate) fn kind(&self) -> u8 {
        match self {
            Self::Window(it) => 1 + u8::from(it.has_ring),
            Self::Gcra(it) => {
                if it.spaced {
                    6
                } else {
                    3
                }
            }
            Self::Fixed(it) => {
                if it.aligned {
                    4
                } else {
                    5
                }
            }
        }
    }

    /// Its kind and its quota, as in the value.
    fn encode_quota(&self, out: &mut Writer) {
        let (limit, window) = match self {
            Self::Window(it) => (it.limit, it.window),
            Self::Gcra(it) => (it.burst, it.interval),
            Self::Fixed(it) => (it.limit, it.window),
        };
        out.put(QUOTA, [self.kind().into(), limit.into(), window]);
    }

    /// The terms of the quota for the scripts: its kind and numbers as in the value, and for a sliding window the grain (7).
    #[cfg(feature = "redis")]
    pub(crate) fn encode_terms(&self, out: &mut Writer) {
        self.encode_quota(out);
        if let Self::Window(window) = self {
            out.put([7], [window.grain]);
        }
    }

    fn encode(&self, out: &mut Writer) {
        self.encode_quota(out);
        match self {
            Self::Window(it) => {
                out.put(LOG, [it.log.len() as u64, it.used]);
                if it.has_ring {
                    let recorded = |entry: Option<&Entry>| entry.map_or(0, |it| it.recorded);
                    let (first, last) = (recorded(it.log.front()), recorded(it.log.back()));
                    out.put(RING, [it.room() as u64, 0, first, 0, last]);
                }
            }
            Self::Gcra(it) => out.put(GCRA, [it.due, it.last]),
            Self::Fixed(it) => out.put(FIXED, [it.start, it.end, it.count.into(), it.last]),
        }
    }

    /// The counter, and if it has a log, where the entries are.
    fn decode(value: &mut Reader<'_>) -> Result<(Self, Option<Log>), StoreError> {
        let [kind, limit, window] = value.numbers(QUOTA)?;
        let limit = limit as u32;
        if limit == 0 || window == 0 {
            return Err(unrecognized());
        }
        Ok(match kind {
            1 | 2 => {
                let [entries, units] = value.numbers(LOG)?;
                let (room, first) = if kind == 2 {
                    let [room, first, ..] = value.numbers(RING)?;
                    (room, first)
                } else {
                    (entries, 0)
                };
                if entries > room.min(MOST_ENTRIES as u64) || first >= room.max(2 - kind) {
                    return Err(unrecognized());
                }
                let log = Log {
                    is_ring: kind == 2,
                    room: room as usize,
                    first: first as usize,
                    entries: entries as usize,
                    units,
                };
                let window = Window {
                    has_ring: log.is_ring,
                    ..Window::new(limit, window)
                };
                (Self::Window(window), Some(log))
            }
            3 | 6 => {
                let [due, last] = value.numbers(GCRA)?;
                let gcra = Gcra::new(limit, window, kind == 6);
                (Self::Gcra(Gcra { due, last, ..gcra }), None)
            }
            4 | 5 => {
                let [start, end, count, last] = value.numbers(FIXED)?;
                let fixed = Fixed {
                    start,
                    end,
                    count: count as u32,
                    last,
                    ..Fixed::new(limit, window, kind == 4)
                };
                (Self::Fixed(fixed), None)
            }
            _ => return Err(unrecognized()),
        })
    }
}

impl State {
    /// The value of this state.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let tail = self.encode_tail();
        let mut out = Writer(Vec::with_capacity(128));
        let hold = if self.hold.is_some() { HAS_HOLD } else { 0 };
        let life = if self.life.is_some() { HAS_LIFE } else { 0 };
        let former = if self.former.is_empty() {
            0
        } else {
            HAS_FORMER
        };
        let (quotas, announced) = (self.counters.len() as u64, self.announced.len() as u64);
        out.0.extend_from_slice(MAGIC);
        out.0.push(VERSION);
        let tail_bytes = tail.len() as u64;
        let numbers = [
            hold + life + former,
            quotas,
            announced,
            tail_bytes,
            self.expires(),
        ];
        out.put(AFTER_VERSION, numbers);
        self.counters.iter().for_each(|it| it.encode(&mut out));
        let mut room = 0;
        for log in self.logs(true) {
            let end = out.0.len() + log.room() * RECORDED_BYTES;
            encode_log(&mut out, log);
            out.0.resize(end, 0);
            room = TAIL_ROOM;
        }
        let least = out.0.len() + room.max(tail.len());
        out.0.extend(tail);
        out.0.resize(least, 0);
        out.0
    }

    fn encode_tail(&self) -> Vec<u8> {
        let mut out = Writer::default();
        if let Some(hold) = &self.hold {
            let (allowed, until) = (hold.allowed.into(), hold.allowed_until);
            out.put(HOLD, [hold.paused_until, allowed, until, hold.commanded]);
        }
        if let Some(life) = &self.life {
            let (written, until) = (life.written, life.quarantined_until);
            let numbers = [life.generation, life.version, written, life.server, until];
            out.put(LIFE, numbers);
        }
        if !self.former.is_empty() {
            let former = Self::new(&self.former).encode();
            out.put([4], [former.len() as u64]);
            out.0.extend(former);
        }
        self.announced.iter().for_each(|it| it.encode(&mut out));
        self.logs(false).for_each(|log| encode_log(&mut out, log));
        out.0
    }

    /// The logs that have a ring, or those that do not.
    fn logs(&self, with_ring: bool) -> impl Iterator<Item = &Window> {
        self.counters.iter().filter_map(move |it| match it {
            Counter::Window(window) if window.has_ring == with_ring => Some(window),
            _ => None,
        })
    }

    /// The state of a value.
    pub(crate) fn decode(value: &[u8]) -> Result<Self, StoreError> {
        let mut value = Reader(value);
        if value.bytes(2)? != MAGIC {
            return Err(unrecognized());
        }
        let version = value.bytes(1)?[0];
        if version != VERSION {
            let later = "the value was written by a later version of tower-throttle";
            return Err(StoreError::new(later).unrecognized_value());
        }
        let [flags, quotas, announced, tail, expires] = value.numbers(AFTER_VERSION)?;
        let mut state = Self::default();
        let mut logs = Vec::new();
        for _ in 0..quotas {
            let (counter, log) = Counter::decode(&mut value)?;
            state.counters.push(counter);
            logs.push(log);
        }
        let mut logs: Vec<_> = logs.into_iter().zip(&mut state.counters).collect();
        for (log, counter) in &mut logs {
            if let Some(log) = log.as_ref().filter(|log| log.is_ring) {
                log.decode(&mut value, counter)?;
            }
        }
        let mut tail = Reader(value.bytes(tail as usize)?);
        if flags & HAS_HOLD != 0 {
            let [paused_until, allowed, allowed_until, commanded] = tail.numbers(HOLD)?;
            state.hold = Some(Box::new(Hold {
                paused_until,
                allowed: allowed as u32,
                allowed_until,
                commanded,
            }));
        }
        if flags & HAS_LIFE != 0 {
            let [generation, version, written, server, until] = tail.numbers(LIFE)?;
            state.life = Some(Box::new(Life {
                generation,
                version,
                written,
                server,
                quarantined_until: until,
                kept_until: expires,
            }));
        }
        if flags & HAS_FORMER != 0 {
            let [bytes] = tail.numbers([4])?;
            let former = tail.bytes(bytes as usize)?;
            // It has no flags, and so no values within it.
            if former.get(MAGIC.len() + 1) != Some(&0) {
                return Err(unrecognized());
            }
            state.former = Self::decode(former)?.counters.into_vec();
        }
        for _ in 0..announced {
            state.announced.push(Announcement::decode(&mut tail)?);
        }
        for (log, counter) in &mut logs {
            if let Some(log) = log.as_ref().filter(|log| !log.is_ring) {
                log.decode(&mut tail, counter)?;
            }
        }
        if !tail.0.is_empty() {
            return Err(unrecognized());
        }
        Ok(state)
    }
}

fn encode_log(out: &mut Writer, window: &Window) {
    let mut before = 0;
    for entry in &window.log {
        out.put(RECORDED, [entry.recorded, before]);
        before += u64::from(entry.units);
    }
}

/// Where the entries of a log are, and how many units precede the end of it.
struct Log {
    is_ring: bool,
    room: usize,
    first: usize,
    entries: usize,
    units: u64,
}

impl Log {
    fn decode(&self, value: &mut Reader<'_>, counter: &mut Counter) -> Result<(), StoreError> {
        let Counter::Window(window) = counter else {
            return Err(unrecognized());
        };
        let mut entries: Vec<_> = value.list(self.room, RECORDED)?.collect();
        entries.rotate_left(self.first);
        entries.truncate(self.entries);
        entries.push([0, self.units]);
        for pair in entries.windows(2) {
            let [[recorded, before], [_, next]] = [pair[0], pair[1]];
            let units = (next as u32).wrapping_sub(before as u32);
            window.used += u64::from(units);
            window.log.push_back(Entry { recorded, units });
        }
        Ok(())
    }
}

impl Announcement {
    fn encode(&self, out: &mut Writer) {
        let points = &self.demand.points[..];
        let (first, last) = (points.first(), points.last());
        let mut detail = Writer::default();
        let cost = self.demand.cost.into();
        detail.put(DETAIL, [self.number, cost, points.len() as u64]);
        // A single point needs no more than the first part.
        for point in points.iter().filter(|_| points.len() > 1) {
            detail.put(POINT, [point.arrival, point.units]);
        }
        for granted in &self.granted {
            detail.put(RECORDED, [granted.recorded, granted.units.into()]);
        }
        let numbers = [
            self.process,
            self.deadline,
            first.map_or(0, |point| point.arrival),
            last.map_or(0, |point| point.arrival),
            self.demand.units(),
            detail.0.len() as u64,
        ];
        out.put(ANNOUNCEMENT, numbers);
        out.0.extend(detail.0);
    }

    fn decode(value: &mut Reader<'_>) -> Result<Self, StoreError> {
        let [process, deadline, first, _, units, bytes] = value.numbers(ANNOUNCEMENT)?;
        let mut detail = Reader(value.bytes(bytes as usize)?);
        let [number, cost, count] = detail.numbers(DETAIL)?;
        let points = match count {
            1 => vec![[first, units]],
            _ => detail.list(count as usize, POINT)?.collect(),
        };
        let granted = detail.list(detail.0.len().div_ceil(RECORDED_BYTES), RECORDED)?;
        if !points.is_sorted_by(|[before, less], [after, more]| before <= after && less < more) {
            return Err(unrecognized());
        }
        let points = points.into_iter();
        let granted = granted.into_iter();
        Ok(Self {
            process,
            number,
            deadline,
            demand: Demand {
                points: points
                    .map(|[arrival, units]| Point { arrival, units })
                    .collect(),
                cost: cost as u32,
            },
            granted: granted
                .map(|[recorded, units]| Recorded {
                    recorded,
                    units: units as u32,
                })
                .collect(),
        })
    }
}
