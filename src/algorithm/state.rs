//! State as Redis holds it: what the Lua twins read and write, for those who do without scripts.
//!
//! The formats are described where the twins are.

use std::collections::VecDeque;

use super::fixed_window::{FixedWindow, Window};
use super::hold::{Hold, Kind};
use super::ledger::{Ledger, Life, Lived, MARKS, Slot};
use super::number::Number;
use super::sliding_buckets::{Bucket, SlidingBuckets};
use super::sliding_log::SlidingLog;
use super::{Count, Counter, Rule};
use crate::quota::HORIZON;

/// A log of no more records than this is packed, a longer one a ring.
pub(crate) const FEW: usize = 16;

/// What the first byte of a log is greater by if anything stands aside.
const MARK: u8 = 64;

/// What the mark of a log stands on that has no record.
const NO_RECORD: u8 = 128;

/// The bits of the byte before holds and life, which makes the length odd.
const HAS_HOLDS: u8 = 1;
const HAS_LIFE: u8 = 2;

/// The bytes of a record in a ring, and of all before the first.
const ENTRY: usize = 8;
const HEADER: usize = 20;

/// A value, and the time from which it has no influence; `None` if nothing is to be held.
pub(crate) type Value = Option<(Vec<u8>, u64)>;

/// The place of a value that no throttle has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Foreign(pub(crate) usize);

/// What makes no sense.
struct Strange;

type Read<T> = Result<T, Strange>;

impl Ledger {
    /// Reads the values of what stands aside and of each quota.
    pub(crate) fn read(
        rules: &[Rule],
        values: &[Option<Vec<u8>>],
        now: u64,
    ) -> Result<Self, Foreign> {
        let mut ledger = Self::new(rules);
        let (aside, states) = values.split_first().ok_or(Foreign(0))?;
        for (place, (counter, state)) in ledger.counters.iter_mut().zip(states).enumerate() {
            if let Some(raw) = state {
                counter.read(raw, now).map_err(|_| Foreign(place + 1))?;
            }
        }
        if let Some(raw) = aside {
            let slots = ledger.read_aside(raw, now);
            let slots = slots.map_err(|_| Foreign(0))?;
            let size = (3 + rules.iter().map(Rule::receipts).sum::<usize>()) * ENTRY;
            if !slots.len().is_multiple_of(size) {
                return Err(Foreign(0));
            }
            let slots = slots.chunks_exact(size).map(|raw| read_slot(raw, now));
            ledger.free = slots.collect::<Read<_>>().map_err(|_| Foreign(0))?;
        }
        Ok(ledger)
    }

    /// Reads holds and life, and yields what is behind them.
    fn read_aside<'a>(&mut self, raw: &'a [u8], now: u64) -> Read<&'a [u8]> {
        let (&has, raw) = match raw.len() % ENTRY {
            1 => raw.split_first().ok_or(Strange)?,
            _ if raw.is_empty() => return Err(Strange),
            _ => return Ok(raw),
        };
        let mut numbers = raw.chunks_exact(ENTRY).map(little);
        let mut number = || numbers.next().ok_or(Strange);
        if has == 0 || has > HAS_HOLDS + HAS_LIFE {
            return Err(Strange);
        }
        if has & HAS_HOLDS > 0 {
            for kind in KINDS {
                let [until, since, left] = [number()?, number()?, number()?];
                let hold = Hold {
                    kind,
                    until: check(until, now)?,
                    since: check(since, now)?,
                    left: u32::try_from(left).map_err(|_| Strange)?,
                };
                if until > 0 {
                    self.counters.push(Counter::Hold(hold));
                }
            }
        }
        if has & HAS_LIFE > 0 {
            let mut time = || check(number()?, now);
            let life = Life::new(time()?, time()?);
            let mut lived = Lived::new(life, time()?, time()?);
            lived.is_told = time()? > 0;
            let marks = usize::try_from(time()?).ok().filter(|&it| it <= MARKS);
            let marks = marks.ok_or(Strange)?;
            for counter in self.counters.iter().filter(|counter| !counter.is_hold()) {
                let counts_until = time()?;
                let is_torn = counter.expires() < counts_until;
                lived.torn.push(if is_torn { counts_until } else { 0 });
            }
            for _ in 0..marks {
                let process = u32::try_from(time()?).map_err(|_| Strange)?;
                lived.marks.push((process, time()?));
            }
            self.lived = Some(Box::new(lived));
            self.rest(now);
        }
        let left = numbers.count() * ENTRY;
        Ok(&raw[raw.len() - left..])
    }

    fn written_aside(&self) -> Vec<u8> {
        let (mut has, mut numbers) = (0, Vec::new());
        if self.is_anything_said() {
            has += HAS_HOLDS;
            for kind in KINDS {
                let hold = self.hold(kind);
                numbers.extend(hold.map_or([0; 3], |it| [it.until, it.since, it.left.into()]));
            }
        }
        if let Some(lived) = &self.lived {
            has += HAS_LIFE;
            let Life { start, version } = lived.life;
            let (is_told, marks) = (lived.is_told.into(), lived.marks.len() as u64);
            numbers.extend([start, version, lived.rest, lived.keep, is_told, marks]);
            let quotas = self.counters.iter().filter(|counter| !counter.is_hold());
            // What is gone is missed until somebody notices who minds.
            let gone = lived.torn.iter().copied().chain(std::iter::repeat(0));
            numbers.extend(quotas.zip(gone).map(|(it, gone)| it.expires().max(gone)));
            let marks = lived.marks.iter();
            numbers.extend(marks.flat_map(|&(process, version)| [process.into(), version]));
        }
        let raw = numbers.into_iter().flat_map(u64::to_le_bytes);
        (has > 0).then_some(has).into_iter().chain(raw).collect()
    }

    fn is_anything_said(&self) -> bool {
        KINDS.iter().any(|&kind| self.hold(kind).is_some())
    }

    /// The values of what stands aside and of each quota.
    pub(crate) fn written(&self) -> Vec<Value> {
        let free = self.free.iter().flat_map(|slot| {
            let numbers = [slot.at, slot.record, slot.cost.into()].into_iter();
            numbers.chain(slot.receipt.as_slice().iter().copied())
        });
        let mut aside = self.written_aside();
        aside.extend(free.flat_map(u64::to_le_bytes));
        let expires = self.lasts();
        let has_aside = !aside.is_empty();
        let mut values = vec![has_aside.then_some((aside, expires))];
        for counter in &self.counters {
            let mut state = counter.written();
            match counter {
                Counter::Hold(_) => continue,
                Counter::SlidingLog(_) if has_aside => {
                    // The mark has to stand there for as long.
                    let (raw, until) = state.get_or_insert((vec![NO_RECORD], expires));
                    raw[0] += MARK;
                    *until = expires;
                }
                _ => {}
            }
            values.push(state);
        }
        values
    }
}

impl Counter {
    fn read(&mut self, raw: &[u8], now: u64) -> Read<()> {
        match self {
            Self::SlidingLog(log) => read_log(log, raw, now),
            Self::SlidingBuckets(buckets) => read_buckets(buckets, raw, now),
            Self::FixedWindow(window) => read_window(window, raw, now),
            Self::Spacing(_) | Self::LeakyBucket(_) | Self::Gcra(_) => {
                let text = std::str::from_utf8(raw).map_err(|_| Strange)?;
                let time = text.parse().map_err(|_| Strange)?;
                if let Some(number) = self.number_mut() {
                    number.time = check(time, now)?;
                }
                Ok(())
            }
            Self::Hold(_) => Err(Strange),
        }
    }

    fn written(&self) -> Value {
        let raw = match self {
            Self::SlidingLog(log) => written_log(log),
            Self::SlidingBuckets(buckets) => written_buckets(buckets),
            Self::FixedWindow(window) => written_window(window),
            Self::Spacing(spacing) => written_number(&spacing.0),
            Self::LeakyBucket(bucket) => written_number(&bucket.number),
            Self::Gcra(gcra) => written_number(&gcra.arrival),
            Self::Hold(_) => None,
        };
        raw.map(|raw| (raw, self.expires()))
    }

    fn number_mut(&mut self) -> Option<&mut Number> {
        match self {
            Self::Spacing(spacing) => Some(&mut spacing.0),
            Self::LeakyBucket(bucket) => Some(&mut bucket.number),
            Self::Gcra(gcra) => Some(&mut gcra.arrival),
            Self::SlidingLog(_)
            | Self::SlidingBuckets(_)
            | Self::FixedWindow(_)
            | Self::Hold(_) => None,
        }
    }
}

/// What is said, in the order in which it stands.
const KINDS: [Kind; 2] = [Kind::Pause, Kind::Allowance];

/// No record lies further ahead than a wait, a window and some more.
fn check(time: u64, now: u64) -> Read<u64> {
    let sane = now.saturating_add(3 * super::micros(HORIZON));
    if time <= sane { Ok(time) } else { Err(Strange) }
}

fn read_slot(raw: &[u8], now: u64) -> Read<Slot> {
    let mut numbers = Vec::new();
    for raw in raw.chunks_exact(ENTRY) {
        numbers.push(check(little(raw), now)?);
    }
    let [at, record, cost, receipt @ ..] = &numbers[..] else {
        return Err(Strange);
    };
    Ok(Slot {
        at: *at,
        record: *record,
        cost: u32::try_from(*cost).map_err(|_| Strange)?,
        receipt: receipt.iter().copied().collect(),
    })
}

fn written_number(number: &Number) -> Option<Vec<u8>> {
    (number.time > 0).then(|| number.time.to_string().into_bytes())
}

fn read_log(log: &mut SlidingLog, raw: &[u8], now: u64) -> Read<()> {
    if raw == [NO_RECORD + MARK] {
        return Ok(());
    }
    let (&form, behind) = raw.split_first().ok_or(Strange)?;
    let form = form & !MARK;
    if form >= 128 {
        let times = read_times(form, behind, now)?;
        if times.len() > FEW || times.iter().any(|(_, count)| count.is_some()) {
            return Err(Strange);
        }
        log.records = times.into_iter().map(|(time, _)| time).collect();
        return Ok(());
    }
    let (header, ring) = raw.split_at_checked(HEADER).ok_or(Strange)?;
    let [first, count, room] = [0, 4, 8].map(|from| big(&header[from..from + 4]) as usize);
    let first = first & !(usize::from(MARK) << 24);
    let fits = count > 0 && count <= room && first < room && ring.len() == room * ENTRY;
    if !fits {
        return Err(Strange);
    }
    check(big(&header[12..]), now)?;
    let record = |place: usize| little(&ring[place % room * ENTRY..][..ENTRY]);
    log.records = (first..first + count).map(record).collect();
    check(log.records[count - 1], now)?;
    if log.records.iter().is_sorted() {
        Ok(())
    } else {
        Err(Strange)
    }
}

fn written_log(log: &SlidingLog) -> Option<Vec<u8>> {
    let records = &log.records;
    let (count, last) = (records.len(), *records.back()?);
    if count <= FEW {
        return Some(written_times(records.iter().map(|&record| (record, None))));
    }
    let mut room = count + count / 16 + 8;
    if count <= log.limit {
        room = room.min(log.limit);
    }
    let mut raw = Vec::with_capacity(HEADER + room * ENTRY);
    for number in [0, count, room] {
        // A log has far fewer entries.
        raw.extend(u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes());
    }
    raw.extend(last.to_be_bytes());
    raw.extend(records.iter().flat_map(|record| record.to_le_bytes()));
    raw.resize(HEADER + room * ENTRY, 0);
    Some(raw)
}

fn read_buckets(buckets: &mut SlidingBuckets, raw: &[u8], now: u64) -> Read<()> {
    let mut total: u64 = 0;
    let width = buckets.width;
    let bucket = |(number, count): (u64, Option<u64>)| {
        total = count.and_then(|it| it.checked_add(total)).ok_or(Strange)?;
        check(total, now)?;
        let end = check(number.saturating_mul(width), now)?;
        Ok(Bucket { end, total })
    };
    let (&form, raw) = raw.split_first().ok_or(Strange)?;
    buckets.buckets = read_times(form, raw, now)?
        .into_iter()
        .map(bucket)
        .collect::<Read<_>>()?;
    Ok(())
}

fn written_buckets(buckets: &SlidingBuckets) -> Option<Vec<u8>> {
    if buckets.buckets.is_empty() {
        return None;
    }
    let ends = buckets.buckets.iter().enumerate();
    Some(written_times(ends.map(|(place, bucket)| {
        (bucket.end / buckets.width, Some(buckets.count(place)))
    })))
}

fn read_window(window: &mut FixedWindow, raw: &[u8], now: u64) -> Read<()> {
    if raw.len() != 11 && raw.len() != 18 {
        return Err(Strange);
    }
    let start = check(little(&raw[..7]), now)?;
    let end = match raw.get(11..18) {
        Some(end) => little(end),
        None => start + window.length,
    };
    if end < start {
        return Err(Strange);
    }
    window.window = Window {
        start,
        end: check(end, now)?,
        count: little(&raw[7..11]),
    };
    Ok(())
}

fn written_window(window: &FixedWindow) -> Option<Vec<u8>> {
    let Window { start, end, count } = window.window;
    let mut raw = Vec::with_capacity(18);
    put(&mut raw, start, 7);
    put(&mut raw, count, 4);
    if end != start + window.length {
        put(&mut raw, end, 7);
    }
    (end > 0).then_some(raw)
}

/// What stands behind the first byte, which says how.
fn read_times(form: u8, raw: &[u8], now: u64) -> Read<VecDeque<(u64, Option<u64>)>> {
    let (offset, count) = (usize::from(form / 8 % 8), usize::from(form % 8));
    let (first, raw) = raw.split_at_checked(7).ok_or(Strange)?;
    let (first_count, raw) = raw.split_at_checked(count).ok_or(Strange)?;
    if !(128..192).contains(&form) || offset == 0 || !raw.len().is_multiple_of(offset + count) {
        return Err(Strange);
    }
    let count_of = |raw: &[u8]| (!raw.is_empty()).then(|| little(raw));
    let first = check(little(first), now)?;
    let mut times = VecDeque::from([(first, count_of(first_count))]);
    for raw in raw.chunks_exact(offset + count) {
        let (offset, count) = raw.split_at(offset);
        times.push_back((first + little(offset), count_of(count)));
    }
    let last = times[times.len() - 1].0;
    check(last, now)?;
    if times.iter().is_sorted_by_key(|(time, _)| time) {
        Ok(times)
    } else {
        Err(Strange)
    }
}

/// There is at least one time, and all have a count or none.
fn written_times(
    times: impl DoubleEndedIterator<Item = (u64, Option<u64>)> + ExactSizeIterator + Clone,
) -> Vec<u8> {
    let first = times.clone().next().map_or(0, |(time, _)| time);
    let last = times.clone().next_back().map_or(0, |(time, _)| time);
    let offset_size = size_of(last - first);
    let most = times.clone().filter_map(|(_, count)| count).max();
    let count_size = most.map_or(0, size_of);
    let mut raw = Vec::with_capacity(8 + times.len() * (offset_size + count_size));
    // Both are at most 7, as times are of 7 bytes and counts of 5.
    raw.push(128 + 8 * offset_size as u8 + count_size as u8);
    put(&mut raw, first, 7);
    for (place, (time, count)) in times.enumerate() {
        if place > 0 {
            put(&mut raw, time - first, offset_size);
        }
        put(&mut raw, count.unwrap_or(0), count_size);
    }
    raw
}

/// How many bytes a number takes, at least one.
fn size_of(number: u64) -> usize {
    (64 - number.leading_zeros() as usize).div_ceil(8).max(1)
}

fn put(raw: &mut Vec<u8>, number: u64, size: usize) {
    raw.extend(&number.to_le_bytes()[..size]);
}

fn little(raw: &[u8]) -> u64 {
    raw.iter()
        .rev()
        .fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn big(raw: &[u8]) -> u64 {
    raw.iter()
        .fold(0, |number, &byte| number << 8 | u64::from(byte))
}
