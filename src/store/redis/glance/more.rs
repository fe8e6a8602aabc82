//! What is still to be read of a value after its beginning: [`More`].

use redis::{Pipeline, Value};

use crate::algorithm::Rule;

/// As much of a value is read as is more than any number of buckets in a window, and 1,000 free slots; so much of what
/// a stranger has written is of no interest.
const MOST: usize = 64 * 1_024;

/// The bytes of a ring before its first record, and those of a record.
const HEADER: usize = 20;
const ENTRY: usize = 8;

/// So many records are read behind the decisive one, as the log may move on meanwhile.
const AHEAD: usize = 128;

/// What the first byte of a log is no less than unless it is a ring; and by what it is greater while anything stands
/// aside.
const PACKED: u8 = 128;
const MARK: u8 = 64;

/// What is still to be read of a value.
pub(super) enum More {
    /// All of it.
    Rest,
    /// Of a log, the record that decides.
    Record(Ring),
    /// No throttle writes as much.
    Nothing,
}

/// What was told of a value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Told {
    All(Vec<u8>),
    /// What answers as all of it would.
    InPart(Vec<u8>),
    /// No throttle has written it.
    Strange,
    /// So many bytes, which are too many.
    Long(usize),
    /// The server has refused, or the value has changed meanwhile.
    Nothing,
}

/// A log as its header tells.
pub(super) struct Ring {
    header: [u8; HEADER],
    first: usize,
    count: usize,
    room: usize,
    limit: usize,
}

impl More {
    /// Of a value that begins so, of this rule or of what stands aside.
    pub(super) fn of(value: &[u8], rule: Option<&Rule>) -> Self {
        match rule {
            None | Some(Rule::SlidingBuckets { .. }) => Self::Rest,
            Some(Rule::SlidingLog { limit, .. }) => {
                let ring = value
                    .first_chunk()
                    .and_then(|it| Ring::of(it, *limit as usize));
                ring.map_or(Self::Nothing, Self::Record)
            }
            // So long is none that one of these has written.
            Some(
                Rule::FixedWindow { .. }
                | Rule::Spacing { .. }
                | Rule::LeakyBucket { .. }
                | Rule::Gcra { .. },
            ) => Self::Nothing,
        }
    }

    /// How many it asks.
    pub(super) fn commands(&self) -> usize {
        match self {
            Self::Rest => 2,
            Self::Record(_) => 4,
            Self::Nothing => 0,
        }
    }

    pub(super) fn ask(&self, name: &str, pipe: &mut Pipeline) {
        let mut range = |from: usize, length: usize| {
            let range = pipe.cmd("GETRANGE").arg(name);
            range.arg(from).arg(from + length - 1);
        };
        match self {
            Self::Rest => {
                range(0, MOST);
                pipe.cmd("STRLEN").arg(name);
            }
            Self::Record(ring) => {
                range(0, HEADER);
                range(HEADER + ring.decisive() * ENTRY, AHEAD * ENTRY);
                // Others may write in between, unless this is the same.
                range(0, HEADER);
                pipe.cmd("STRLEN").arg(name);
            }
            Self::Nothing => {}
        }
    }

    pub(super) fn read(&self, told: Vec<Value>) -> Told {
        match (self, &told[..]) {
            (Self::Rest, [Value::BulkString(value), Value::Int(size)]) => {
                match usize::try_from(*size) {
                    Ok(size) if size > MOST => Told::Long(size),
                    Ok(size) if size == value.len() => Told::All(value.clone()),
                    _ => Told::Nothing,
                }
            }
            (
                Self::Record(ring),
                [
                    Value::BulkString(before),
                    Value::BulkString(records),
                    Value::BulkString(after),
                    Value::Int(size),
                ],
            ) if before == after => {
                let now = before.first_chunk();
                match now.and_then(|header| Ring::of(header, ring.limit)) {
                    Some(now) => now.read(ring.decisive(), records, *size),
                    // It has become shorter.
                    None => Told::Nothing,
                }
            }
            (Self::Nothing, _) => Told::Strange,
            _ => Told::Nothing,
        }
    }
}

impl Ring {
    fn of(header: &[u8; HEADER], limit: usize) -> Option<Self> {
        let number = |from: usize| {
            let bytes = header[from..from + 4].iter();
            bytes.fold(0, |number, &byte| number << 8 | usize::from(byte))
        };
        (header[0] & !MARK < PACKED).then(|| Self {
            header: *header,
            first: number(0) & !(usize::from(MARK) << 24),
            count: number(4),
            room: number(8),
            limit,
        })
    }

    /// In which place the record is on which it depends when the next request may depart, if the log is full; else
    /// that of any.
    fn decisive(&self) -> usize {
        let place = self.first + self.count.saturating_sub(self.limit);
        place.checked_rem(self.room).unwrap_or(0)
    }

    /// With the records from this place on, as far as they were read, of a value of this size.
    fn read(&self, from: usize, records: &[u8], size: i64) -> Told {
        let whole = HEADER + self.room * ENTRY;
        let is_sane = (1..=self.room).contains(&self.count) && self.first < self.room;
        if !is_sane || usize::try_from(size) != Ok(whole) {
            return Told::Strange;
        }
        let ahead = self.decisive().checked_sub(from).map(|it| it * ENTRY);
        let record = ahead.and_then(|ahead| records.get(ahead..)?.first_chunk());
        match record {
            Some(record) => self.stand_in(record).map_or(Told::Strange, Told::InPart),
            None => Told::Nothing,
        }
    }

    /// A log with as many records, all of which leave no sooner than theirs: up to the decisive one with that, those
    /// behind with the last.
    fn stand_in(&self, decisive: &[u8; ENTRY]) -> Option<Vec<u8>> {
        let last = self.header.last_chunk::<ENTRY>()?;
        if u64::from_be_bytes(*last) < u64::from_le_bytes(*decisive) {
            return None;
        }
        let mut last = *last;
        last.reverse();
        let count = u32::try_from(self.count).ok()?.to_be_bytes();
        let mut value = self.header.to_vec();
        value[..4].copy_from_slice(&[self.header[0] & MARK, 0, 0, 0]);
        value[4..8].copy_from_slice(&count);
        value[8..12].copy_from_slice(&count);
        let ahead = (self.count + 1).saturating_sub(self.limit);
        value.extend(decisive.repeat(ahead));
        value.extend(last.repeat(self.count - ahead.min(self.count)));
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u32 = 200;
    const RULE: Rule = Rule::SlidingLog {
        limit: LIMIT,
        window: 1_000_000,
    };

    /// A full ring of this room, the first record of which is in this place, and each greater than the one before.
    fn ring(first: u32, room: u32) -> Vec<u8> {
        let mut value: Vec<u8> = [first, LIMIT, room]
            .into_iter()
            .flat_map(u32::to_be_bytes)
            .collect();
        value.extend(u64::from(first + LIMIT - 1).to_be_bytes());
        let mut records = vec![0_u64; room as usize];
        for number in first..first + LIMIT {
            records[(number % room) as usize] = number.into();
        }
        value.extend(records.into_iter().flat_map(u64::to_le_bytes));
        value
    }

    fn record(value: &[u8]) -> More {
        More::of(&value[..1_024], Some(&RULE))
    }

    /// What is told where each command finds what stands there then.
    fn told(more: &More, values: [&[u8]; 4]) -> Told {
        let mut pipe = redis::pipe();
        more.ask("name", &mut pipe);
        let commands = pipe.cmd_iter().zip(values);
        let answers = commands.map(|(command, value)| {
            let words: Vec<String> = command
                .args_iter()
                .map(|word| match word {
                    redis::Arg::Simple(word) => String::from_utf8_lossy(word).into_owned(),
                    _ => String::new(),
                })
                .collect();
            if words[0] == "STRLEN" {
                return Value::Int(value.len() as i64);
            }
            let [from, to] = [2, 3].map(|place: usize| words[place].parse::<usize>().unwrap());
            let from = from.min(value.len());
            let to = (to + 1).clamp(from, value.len());
            Value::BulkString(value[from..to].to_vec())
        });
        more.read(answers.collect())
    }

    #[test]
    fn a_log_that_has_moved_on_is_read_as_it_is_now_or_again_but_never_strange() {
        let (before, after) = (ring(10, 300), ring(40, 300));
        let of = |value: &[u8], rest| match rest {
            Told::InPart(stand_in) => {
                let record = u64::from_le_bytes(*stand_in[HEADER..].first_chunk().unwrap());
                let now = Ring::of(value.first_chunk().unwrap(), LIMIT as usize).unwrap();
                assert_eq!(record, now.first as u64);
            }
            other => panic!("{other:?}"),
        };
        let more = record(&before);
        of(&before, told(&more, [&before; 4]));
        of(&after, told(&more, [&after; 4]));
        // In between, to another room, around its end, and too far.
        let larger = ring(10, 400);
        for values in [
            [&before, &after, &after, &after],
            [&before, &before, &after, &after],
            [&before, &before, &larger, &larger],
        ] {
            assert_eq!(told(&more, values.map(|it| &it[..])), Told::Nothing);
        }
        of(&larger, told(&more, [&larger; 4]));
        let around = ring(5, 300);
        let far = ring(139, 300);
        for now in [&around, &far] {
            assert_eq!(told(&more, [now; 4].map(|it| &it[..])), Told::Nothing);
        }
        // A short log is none of these.
        assert_eq!(told(&more, [&[128; 20]; 4]), Told::Nothing);
    }

    #[test]
    fn what_is_no_log_is_strange_however_long() {
        let mut longer = ring(10, 300);
        longer.push(0);
        let mut unsorted = ring(10, 300);
        unsorted[12..HEADER].fill(0);
        for value in [&longer, &unsorted] {
            let told = told(&record(value), [value; 4].map(|it| &it[..]));
            assert_eq!(told, Told::Strange);
        }
        assert_eq!(
            told(&More::of(&[255; 1_024], Some(&RULE)), [&[]; 4]),
            Told::Strange
        );
        let spacing = Rule::Spacing { interval: 1 };
        assert_eq!(
            told(&More::of(&[b'1'; 1_024], Some(&spacing)), [&[]; 4]),
            Told::Strange
        );
    }

    #[test]
    fn what_may_be_long_is_read_up_to_a_bound() {
        let value = vec![1; MOST + 1];
        let more = More::of(&value[..1_024], None);
        let least = &value[..MOST];
        assert_eq!(told(&more, [least; 4]), Told::All(least.to_vec()));
        assert_eq!(told(&more, [&value; 4]), Told::Long(MOST + 1));
    }
}
