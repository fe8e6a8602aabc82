//! The encoded state: one value for each key and policy. The scripts read and write the same.
//!
//! Numbers are little-endian. The value is
//!
//! | part | bytes | content |
//! | --- | --- | --- |
//! | head | 14 or 22 | `tt`, the format version (1), flags (1; 1: commands, 2: generation, 4: former quotas, 8: units, 16: tags, 32: rings), the number of quotas (1), the number of announcements (2), the expiry of the key (7); if there are rings, the bytes of the tail (4), and those of the tail with the padding (4) |
//! | each quota | | its kind (1), its numbers |
//! | tail | | if one counts something else than requests, the units; if there were any, the commands; if there is one, the generation; if there are any, the counters of former quotas; if there are any, or if an announcement has a share, the tags; each announcement; the entries of each log of kind 1 and the holders of kind 7 |
//! | padding | | of a value with rings, so that the tail can grow |
//! | rings | 11 × room | room for the entries of each log of kind 2 |
//!
//! | kind | quota | numbers |
//! | --- | --- | --- |
//! | 1 | sliding window | limit (4), window (7), number of entries (2), units so far (4) |
//! | 2 | sliding window with a log of more than 50 entries | as kind 1, then the room of the ring in entries (2), the slot of the first entry (2), its recorded time (7), the units before it (4), the recorded time of the last entry (7) |
//! | 3, 6 | GCRA, or spacing | burst (4), interval (7), due (7), last (7) |
//! | 4, 5 | fixed window, aligned or not | limit (4), window (7), start (7), end (7), count (4), last (7) |
//! | 7 | limit of requests in progress | limit (4), lease (7), number of holders (2) |
//!
//! | part of the tail | content |
//! | --- | --- |
//! | units | bytes of what follows (1), the names of the units that the quotas count, separated by spaces |
//! | commands | until when paused (7), for each unit how much is allowed (4), until when (7), and since when (7), last command (7), until when a reset has forgotten departures (7) |
//! | generation | when it began (7), version (7), written (7), server (8), quarantined until (7) |
//! | former quotas | bytes of the value (4); until when departures also count for them (7); how many do since the value was written (2); a value of its own, with no more than their counters; for each of these departures, the earliest time and the recorded time (7 each), and the cost in each unit (4 each) |
//! | tags | their number (2); each tag: key (7), weight (2), lead (8, a double) |
//! | announcement | process (7), deadline (7), bytes of what follows (2), and 32,768 if requests wait; number of the call (7); if requests wait, its demand; each grant: recorded (7), each unit (4); if the process has one, its share (7) |
//! | demand | arrival of the first request (7), of the last (7), sums of all requests; cost of each request in each unit (4), number of points that follow (1): all, or none if there is one, which the demand tells; each point: arrival (7), sums |
//! | sums | each unit (7) |
//! | entry of a log | recorded (7), units recorded before it, modulo 2^32 (4) |
//! | holder | process (7), end of its lease (7), number of its last call (7), units that it holds (4) |
//!
//! Times are microseconds since 1970. The key does not expire before its expiry in the head.

use smallvec::SmallVec;

use crate::error::StoreError;

use super::concurrent::Holder;
use super::demand::Point;
use super::numbers::{Reader, Writer, unrecognized};
use super::units::has_share;
use super::window::{Entry, MOST_ENTRIES};
use super::{
    Allowance, Announcement, Commands, Concurrent, Costs, Counter, Demand, Fixed, Flow, Gcra,
    Generation, Recorded, Size, State, Tag, Tally, Units, Window, number_units,
};
use crate::quota::{MOST_UNITS, REQUESTS, parse_unit};

/// The entries that a new ring has room for.
const LEAST_ROOM: usize = 64;

/// The padding of a new value with rings.
pub(super) const TAIL_ROOM: usize = 900;

const MAGIC: &[u8] = b"tt";
const VERSION: u8 = 1;
const HAS_COMMANDS: u64 = 1;
const HAS_GENERATION: u64 = 2;
const HAS_FORMER: u64 = 4;
const HAS_UNITS: u64 = 8;
const HAS_TAGS: u64 = 16;
const HAS_RINGS: u64 = 32;

/// The length of the head, without and with rings.
pub(crate) const HEADS: [usize; 2] = [14, 22];

/// Flag in the length of an announcement: requests wait.
const WAITS: u64 = 1 << 15;

const AFTER_VERSION: [usize; 4] = [1, 1, 2, 7];
const RINGS: [usize; 2] = [4, 4];
const QUOTA: [usize; 3] = [1, 4, 7];
const LOG: [usize; 2] = [2, 4];
const RING: [usize; 5] = [2, 2, 7, 4, 7];
const GCRA: [usize; 2] = [7, 7];
const TAG: [usize; 3] = [7, 2, 8];
const FIXED: [usize; 4] = [7, 7, 4, 7];
const GENERATION: [usize; 5] = [7, 7, 7, 8, 7];
const HOLDERS: [usize; 1] = [2];
const HOLDER: [usize; 4] = [7, 7, 7, 4];
const ANNOUNCEMENT: [usize; 3] = [7, 7, 2];
/// An entry of a log.
const RECORDED: [usize; 2] = [7, 4];
const RECORDED_BYTES: usize = 11;

impl Window {
    /// The entries that its ring has room for. A script that needs more leaves the call to Rust.
    fn room(&self, size: Size) -> usize {
        let (count, usual) = (self.log.len(), self.usual_entries(size) as usize);
        let most = usual.max(count + count / 8).max(LEAST_ROOM);
        (2 * count).clamp(LEAST_ROOM, most).min(MOST_ENTRIES)
    }
}

impl Counter {
    /// Its kind in the value.
    pub(crate) fn kind(&self) -> u8 {
        match &self.tally {
            Tally::Window(it) => 1 + u8::from(it.has_ring),
            Tally::Gcra(it) if it.spaced => 6,
            Tally::Gcra(_) => 3,
            Tally::Fixed(it) if it.aligned => 4,
            Tally::Fixed(_) => 5,
            Tally::Concurrent(_) => 7,
        }
    }

    /// Its log, if that is a ring in the value.
    fn ring(&self) -> Option<&Window> {
        match &self.tally {
            Tally::Window(it) if it.has_ring => Some(it),
            _ => None,
        }
    }

    /// Its kind and its quota, as in the value.
    fn encode_quota(&self, out: &mut Writer) {
        let Size { units, span } = self.size;
        out.put(QUOTA, [self.kind().into(), units.into(), span]);
    }

    /// The terms of the quota for the scripts: its kind and numbers as in the value, and for a sliding window the grain (7).
    pub(crate) fn encode_terms(&self, out: &mut Writer) {
        self.encode_quota(out);
        if let Tally::Window(window) = &self.tally {
            out.put([7], [window.grain]);
        }
    }

    /// Its kind and its numbers, as in the value.
    pub(crate) fn encode(&self, out: &mut Writer) {
        self.encode_quota(out);
        match &self.tally {
            Tally::Window(it) => {
                out.put(LOG, [it.log.len() as u64, it.used]);
                if it.has_ring {
                    let recorded = |entry: Option<&Entry>| entry.map_or(0, |it| it.recorded);
                    let (first, last) = (recorded(it.log.front()), recorded(it.log.back()));
                    out.put(RING, [it.room(self.size) as u64, 0, first, 0, last]);
                }
            }
            Tally::Gcra(it) => out.put(GCRA, [it.due, it.last]),
            Tally::Fixed(it) => out.put(FIXED, [it.start, it.end, it.count.into(), it.last]),
            Tally::Concurrent(it) => out.put(HOLDERS, [it.holders.len() as u64]),
        }
    }

    /// The counter, and where its entries are.
    fn decode(value: &mut Reader<'_>) -> Result<(Self, Entries), StoreError> {
        let [kind, units, span] = value.numbers(QUOTA)?;
        let units = units as u32;
        if units == 0 || span == 0 {
            return Err(unrecognized());
        }
        let size = Size { units, span };
        let mut entries = Entries::default();
        let tally = match kind {
            1 | 2 => {
                let [count, units] = value.numbers(LOG)?;
                let [room, first, ..] = match kind {
                    2 => value.numbers(RING)?,
                    _ => [count, 0, 0, 0, 0],
                };
                if count > room.min(MOST_ENTRIES as u64) || first >= room.max(2 - kind) {
                    return Err(unrecognized());
                }
                entries = Entries {
                    room: room as usize,
                    first: first as usize,
                    count: count as usize,
                    units,
                };
                Tally::Window(Window {
                    has_ring: kind == 2,
                    ..Window::new(size)
                })
            }
            3 | 6 => {
                let [due, last] = value.numbers(GCRA)?;
                let spaced = kind == 6;
                Tally::Gcra(Gcra { spaced, due, last })
            }
            4 | 5 => {
                let [start, end, count, last] = value.numbers(FIXED)?;
                Tally::Fixed(Fixed {
                    aligned: kind == 4,
                    start,
                    end,
                    count: count as u32,
                    last,
                })
            }
            7 => {
                let [holders] = value.numbers(HOLDERS)?;
                entries.count = holders as usize;
                Tally::Concurrent(Concurrent::default())
            }
            _ => return Err(unrecognized()),
        };
        let counter = Self {
            unit: REQUESTS,
            number: 0,
            size,
            tally,
        };
        Ok((counter, entries))
    }
}

/// The names of the units of these counters, as in calls and values. Empty if they count requests alone.
pub(crate) fn unit_names(counters: &[Counter]) -> String {
    let names = || counters.iter().map(|counter| counter.unit);
    match names().all(|name| name == REQUESTS) {
        true => String::new(),
        false => names().collect::<Vec<_>>().join(" "),
    }
}

/// Amounts in so many units.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Amounts(usize);

impl Amounts {
    /// In the units of these counters.
    pub(crate) fn of(counters: &[Counter]) -> Self {
        let numbers = counters.iter().map(|counter| counter.nth() + 1);
        Self(numbers.max().unwrap_or(1))
    }

    /// The number of units.
    pub(crate) fn units(self) -> usize {
        self.0
    }

    pub(crate) fn put_sums(self, out: &mut Writer, sums: Units) {
        sums.0[..self.0].iter().for_each(|&sum| out.put([7], [sum]));
    }

    pub(crate) fn put_costs(self, out: &mut Writer, costs: Costs) {
        let costs = costs.0[..self.0].iter();
        costs.for_each(|&cost| out.put([4], [cost.into()]));
    }

    fn sums(self, value: &mut Reader<'_>) -> Result<Units, StoreError> {
        let mut sums = Units::default();
        for sum in &mut sums.0[..self.0] {
            [*sum] = value.numbers([7])?;
        }
        Ok(sums)
    }

    pub(crate) fn costs(self, value: &mut Reader<'_>) -> Result<Costs, StoreError> {
        let mut costs = Costs::default();
        for cost in &mut costs.0[..self.0] {
            let [units] = value.numbers([4])?;
            *cost = units as u32;
        }
        Ok(costs)
    }
}

impl State {
    /// The value of this state.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (mut flags, tail) = self.encode_tail();
        let mut out = Writer(Vec::with_capacity(128));
        let has_rings = self.counters.iter().any(|it| it.ring().is_some());
        if has_rings {
            flags |= HAS_RINGS;
        }
        let (quotas, announced) = (self.counters.len() as u64, self.announced.len() as u64);
        out.0.extend_from_slice(MAGIC);
        out.0.push(VERSION);
        let numbers = [flags, quotas, announced, self.expires()];
        out.put(AFTER_VERSION, numbers);
        let room = tail.len() + TAIL_ROOM;
        if has_rings {
            out.put(RINGS, [tail.len() as u64, room as u64]);
        }
        self.counters.iter().for_each(|it| it.encode(&mut out));
        let rings = out.0.len() + room;
        out.0.extend(tail);
        if has_rings {
            out.0.resize(rings, 0);
        }
        for counter in &self.counters {
            let Some(log) = counter.ring() else { continue };
            let end = out.0.len() + log.room(counter.size) * RECORDED_BYTES;
            encode_log(&mut out, log);
            out.0.resize(end, 0);
        }
        out.0
    }

    /// The flags of its parts, and the tail.
    fn encode_tail(&self) -> (u64, Vec<u8>) {
        let (mut flags, mut out) = (0, Writer::default());
        let (names, amounts) = (unit_names(&self.counters), Amounts::of(&self.counters));
        if !names.is_empty() {
            flags |= HAS_UNITS;
            out.put([1], [names.len() as u64]);
            out.0.extend(names.bytes());
        }
        if let Some(commands) = &self.commands {
            flags |= HAS_COMMANDS;
            out.put([7], [commands.paused_until]);
            for it in &commands.allowed[..amounts.units()] {
                out.put([4, 7, 7], [u64::from(it.units), it.until, it.since]);
            }
            out.put([7, 7], [commands.latest, commands.forgotten_until]);
        }
        if let Some(it) = &self.generation {
            flags |= HAS_GENERATION;
            let until = it.quarantined_until;
            let numbers = [it.began, it.version, it.written, it.server, until];
            out.put(GENERATION, numbers);
        }
        if !self.former.is_empty() {
            flags |= HAS_FORMER;
            let former = Self::new(&self.former).encode();
            out.put([4, 7, 2], [former.len() as u64, self.in_use_until, 0]);
            out.0.extend(former);
        }
        let announced = || self.announced.iter();
        if !self.tags.is_empty() || announced().any(|it| has_share(it.process)) {
            flags |= HAS_TAGS;
            out.put([2], [self.tags.len() as u64]);
            for tag in &self.tags {
                out.put(TAG, [tag.key, tag.weight.into(), tag.lead.to_bits()]);
            }
        }
        announced().for_each(|it| it.encode(amounts, &mut out));
        for counter in &self.counters {
            match &counter.tally {
                Tally::Window(log) if !log.has_ring => encode_log(&mut out, log),
                Tally::Concurrent(it) => it.holders.iter().for_each(|it| {
                    out.put(HOLDER, [it.process, it.until, it.number, it.units.into()]);
                }),
                _ => {}
            }
        }
        (flags, out.0)
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
        let head @ [flags, quotas, ..] = value.numbers(AFTER_VERSION)?;
        let has_rings = flags & HAS_RINGS != 0;
        let sizes = has_rings.then(|| value.numbers(RINGS)).transpose()?;
        let mut state = Self::default();
        let mut entries = Vec::new();
        for _ in 0..quotas {
            let (counter, its_entries) = Counter::decode(&mut value)?;
            state.counters.push(counter);
            entries.push(its_entries);
        }
        let whole = value.0.len() as u64;
        let [tail, room] = sizes.unwrap_or([whole, whole]).map(|it| it as usize);
        let tail = Reader(Reader(value.bytes(room)?).bytes(tail)?);
        for (entries, counter) in entries.iter().zip(&mut state.counters) {
            if let Tally::Window(window) = &mut counter.tally
                && window.has_ring
            {
                entries.decode_log(&mut value, window)?;
            }
        }
        if state.counters.iter().any(|it| it.ring().is_some()) != has_rings {
            return Err(unrecognized());
        }
        state.decode_tail(head, &entries, tail)
    }

    /// Adds the parts of the tail to a state that has its counters.
    fn decode_tail(
        mut self,
        [flags, _, announced, expires]: [u64; 4],
        entries: &[Entries],
        mut tail: Reader<'_>,
    ) -> Result<Self, StoreError> {
        if flags & HAS_UNITS != 0 {
            let [bytes] = tail.numbers([1])?;
            let names = str::from_utf8(tail.bytes(bytes as usize)?).unwrap_or_default();
            for (counter, name) in self.counters.iter_mut().zip(names.split(' ')) {
                counter.unit = parse_unit(name).map_err(|_| unrecognized())?;
            }
            let is_former = announced == 0 && flags & HAS_COMMANDS == 0;
            if (number_units(&mut self.counters).len() > MOST_UNITS && !is_former)
                || unit_names(&self.counters) != names
            {
                return Err(unrecognized());
            }
        }
        let amounts = Amounts::of(&self.counters);
        if flags & HAS_COMMANDS != 0 {
            let mut commands = Commands::default();
            [commands.paused_until] = tail.numbers([7])?;
            for allowed in &mut commands.allowed[..amounts.units()] {
                let [units, until, since] = tail.numbers([4, 7, 7])?;
                let units = units as u32;
                *allowed = Allowance {
                    units,
                    until,
                    since,
                };
            }
            [commands.latest, commands.forgotten_until] = tail.numbers([7, 7])?;
            self.commands = Some(Box::new(commands));
        }
        if flags & HAS_GENERATION != 0 {
            let [began, version, written, server, until] = tail.numbers(GENERATION)?;
            self.generation = Some(Box::new(Generation {
                began,
                version,
                written,
                server,
                quarantined_until: until,
                kept_until: expires,
            }));
        }
        if flags & HAS_FORMER != 0 {
            let [bytes, in_use_until, added] = tail.numbers([4, 7, 2])?;
            self.in_use_until = in_use_until;
            let former = tail.bytes(bytes as usize)?;
            // It has no other flags, and so no values within it.
            let flags = former.get(MAGIC.len() + 1);
            if flags.is_none_or(|&flags| u64::from(flags) & !(HAS_UNITS | HAS_RINGS) != 0) {
                return Err(unrecognized());
            }
            self.former = Self::decode(former)?.counters.into_vec();
            for _ in 0..added {
                let [at, recorded] = tail.numbers([7, 7])?;
                let units = amounts.costs(&mut tail)?;
                self.record_in_former(at, recorded, units);
            }
        }
        if flags & HAS_TAGS != 0 {
            let [count] = tail.numbers([2])?;
            for [key, weight, lead] in tail.list(count as usize, TAG)? {
                let lead = f64::from_bits(lead);
                if weight == 0 || !lead.is_finite() {
                    return Err(unrecognized());
                }
                let weight = weight as u32;
                self.tags.push(Tag { key, weight, lead });
            }
        }
        for _ in 0..announced {
            let announced = Announcement::decode(amounts, &mut tail)?;
            self.announced.push(announced);
        }
        for (entries, counter) in entries.iter().zip(&mut self.counters) {
            match &mut counter.tally {
                Tally::Window(window) if !window.has_ring => {
                    entries.decode_log(&mut tail, window)?;
                }
                Tally::Concurrent(it) => {
                    let holders = tail.list(entries.count, HOLDER)?;
                    let holders = holders.map(|[process, until, number, units]| Holder {
                        process,
                        until,
                        number,
                        units: units as u32,
                    });
                    it.holders = holders.collect();
                }
                _ => {}
            }
        }
        match tail.0.is_empty() {
            true => Ok(self),
            false => Err(unrecognized()),
        }
    }
}

fn encode_log(out: &mut Writer, window: &Window) {
    let mut before = 0;
    for entry in &window.log {
        out.put(RECORDED, [entry.recorded, before]);
        before += u64::from(entry.units);
    }
}

/// The entries of a log or the holders of a counter, which are not among its numbers. For a log: where they are, and how many
/// units precede the end of it.
#[derive(Default)]
struct Entries {
    count: usize,
    room: usize,
    first: usize,
    units: u64,
}

impl Entries {
    fn decode_log(&self, value: &mut Reader<'_>, window: &mut Window) -> Result<(), StoreError> {
        let mut entries: Vec<_> = value.list(self.room, RECORDED)?.collect();
        entries.rotate_left(self.first);
        entries.truncate(self.count);
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
    fn encode(&self, amounts: Amounts, out: &mut Writer) {
        let points = &self.demand.points[..];
        let mut detail = Writer::default();
        let mut waits = 0;
        detail.put([7], [self.number]);
        if let (Some(first), Some(last)) = (points.first(), points.last()) {
            waits = WAITS;
            detail.put([7, 7], [first.arrival, last.arrival]);
            amounts.put_sums(&mut detail, last.units);
            amounts.put_costs(&mut detail, self.demand.cost);
            let stored = if points.len() > 1 { points } else { &[] };
            detail.put([1], [stored.len() as u64]);
            for point in stored {
                detail.put([7], [point.arrival]);
                amounts.put_sums(&mut detail, point.units);
            }
        }
        for granted in &self.granted {
            detail.put([7], [granted.recorded]);
            amounts.put_costs(&mut detail, granted.units);
        }
        if has_share(self.process) {
            detail.put([7], [self.flow]);
        }
        let bytes = detail.0.len() as u64 + waits;
        out.put(ANNOUNCEMENT, [self.process, self.deadline, bytes]);
        out.0.extend(detail.0);
    }

    fn decode(amounts: Amounts, value: &mut Reader<'_>) -> Result<Self, StoreError> {
        let [process, deadline, bytes] = value.numbers(ANNOUNCEMENT)?;
        let mut detail = Reader(value.bytes((bytes % WAITS) as usize)?);
        let [number] = detail.numbers([7])?;
        let mut demand = Demand::default();
        if bytes >= WAITS {
            let [first, last] = detail.numbers([7, 7])?;
            let units = amounts.sums(&mut detail)?;
            if units.is_zero() || last < first {
                return Err(unrecognized());
            }
            demand.cost = amounts.costs(&mut detail)?;
            let [count] = detail.numbers([1])?;
            let mut push = |arrival, units| demand.points.push(Point { arrival, units });
            if count == 0 {
                push(first, units);
            }
            for _ in 0..count {
                let [arrival] = detail.numbers([7])?;
                push(arrival, amounts.sums(&mut detail)?);
            }
        }
        let mut granted = SmallVec::new();
        let flow_bytes = if has_share(process) { 7 } else { 0 };
        while detail.0.len() > flow_bytes {
            let [recorded] = detail.numbers([7])?;
            let units = amounts.costs(&mut detail)?;
            granted.push(Recorded { recorded, units });
        }
        let flow = match flow_bytes {
            0 => Flow::default().id,
            _ => detail.numbers([7])?[0],
        };
        let follows = |before: &Point, after: &Point| {
            let grows = before.units.zip(after.units, u64::min) == before.units;
            grows && before.arrival <= after.arrival && before.units.total() < after.units.total()
        };
        if !demand.points.is_sorted_by(follows) {
            return Err(unrecognized());
        }
        Ok(Self {
            process,
            flow,
            number,
            deadline,
            demand,
            granted,
        })
    }
}
