//! Glances at the states of many keys, and changes nothing: [`RedisStore::glance`].

use futures_util::future::join_all;
use hashbrown::HashMap;
use redis::{FromRedisValue, Pipeline, Value};

use super::failure::{Failure, explain_look};
use super::key_state::KeyState;
use super::keys::StoredKey;
use super::names::{self, Names};
use super::{RedisStore, transaction};
use crate::algorithm::Rule;
use crate::policy::Policy;
use crate::store::StoreError;

/// How many keys are asked for at once.
const BATCH: usize = 256;

/// How much of a state is read at first: all of it, but for long logs and for many buckets. No ring is of this size.
const FIRST: usize = 1_024;

/// The bytes of a ring before its first record, and those of a record.
const HEADER: usize = 20;
const ENTRY: usize = 8;

/// What the first byte of a log is no less than unless it is a ring; and by what it is greater while anything stands
/// aside.
const PACKED: u8 = 128;
const MARK: u8 = 64;

impl RedisStore {
    /// How these keys stand, at a glance: reads about a kilobyte of each at most, of 256 keys at once. Changes
    /// nothing, and takes no more [rights](mod@crate::redis#rights) than a limiter with scripts.
    ///
    /// That is enough, but for logs of more than 125 departures: of one that is not full it only tells how
    /// many there were when somebody last asked for a slot; see [`KeyState::is_exact`].
    ///
    /// # Errors
    ///
    /// As for [`look`](Self::look).
    pub async fn glance(&self, keys: &[StoredKey]) -> Vec<Result<KeyState, StoreError>> {
        let server = self.couriers.server();
        let mut lanes: HashMap<u64, Vec<Glance<'_>>> = HashMap::new();
        for (place, key) in keys.iter().enumerate() {
            let names = names::of_tag(&self.prefix, key.policy(), key.encoded());
            let slot = server.place(names.aside());
            let lane = lanes.entry(server.lane(slot)).or_default();
            lane.push(Glance {
                place,
                policy: key.policy(),
                names,
                slot,
            });
        }
        let lanes = join_all(lanes.values().map(|lane| self.at_lane(lane))).await;
        let mut answers: Vec<_> = lanes.into_iter().flatten().collect();
        answers.sort_unstable_by_key(|(place, _)| *place);
        answers.into_iter().map(|(_, state)| state).collect()
    }

    /// Of keys that one server holds.
    async fn at_lane(&self, lane: &[Glance<'_>]) -> Vec<(usize, Result<KeyState, StoreError>)> {
        let mut answers = Vec::with_capacity(lane.len());
        for batch in lane.chunks(BATCH) {
            let states = self.at_once(batch, true).await;
            let states = states.unwrap_or_else(|why| vec![Some(Err(why)); batch.len()]);
            for (glance, state) in batch.iter().zip(states) {
                let state = match state {
                    Some(state) => state,
                    None => self.alone(glance).await,
                };
                answers.push((glance.place, state));
            }
        }
        answers
    }

    /// Where a slot has moved, or something else stands there, this is told what, or follows.
    async fn alone(&self, glance: &Glance<'_>) -> Result<KeyState, StoreError> {
        let mut states = self.at_once(std::slice::from_ref(glance), false).await?;
        let state = states.pop().flatten();
        state.unwrap_or_else(|| Err(StoreError::new("redis answered with something else")))
    }

    /// Of several, those are left out of which the server refuses anything, or which have just changed.
    async fn at_once(
        &self,
        batch: &[Glance<'_>],
        several: bool,
    ) -> Result<Vec<Option<Result<KeyState, StoreError>>>, StoreError> {
        let slot = batch.first().map_or(0, |glance| glance.slot);
        let clock = self.clock.as_deref();
        let mut pipe = redis::pipe();
        if clock.is_none() {
            pipe.cmd("TIME");
        }
        batch.iter().for_each(|glance| glance.ask(&mut pipe));
        let mut answers = self.answers(slot, &mut pipe, several).await?.into_iter();
        let now = match clock {
            Some(clock) => clock.now(),
            None => transaction::time(answers.next()).map_err(explain_look)?,
        };
        let seen = batch.iter().map(|it| it.seen(&mut answers));
        let mut seen: Vec<_> = seen.collect();
        let mut pipe = redis::pipe();
        let mut rest = Vec::new();
        for (place, glance) in batch.iter().enumerate() {
            for (state, more) in glance.lacks(seen[place].as_ref()) {
                more.ask(&glance.names.all()[state], &mut pipe);
                rest.push((place, state, more));
            }
        }
        if !rest.is_empty() {
            let answers = self.answers(slot, &mut pipe, several).await?;
            for ((place, state, more), told) in rest.into_iter().zip(answers.chunks(2)) {
                match (more.read(told), &mut seen[place]) {
                    (Some(value), Some(seen)) => seen.complete(state, value, &more),
                    (None, seen) if several => *seen = None,
                    _ => {}
                }
            }
        }
        let read = |(glance, seen): (&Glance<'_>, Option<Seen>)| {
            let Seen { values, in_part } = seen?;
            let Glance { policy, names, .. } = glance;
            Some(KeyState::read(policy, names, now, &values, &in_part))
        };
        Ok(batch.iter().zip(seen).map(read).collect())
    }

    async fn answers(
        &self,
        slot: u16,
        pipe: &mut Pipeline,
        several: bool,
    ) -> Result<Vec<Value>, StoreError> {
        if several {
            pipe.ignore_errors();
        }
        let server = self.couriers.server();
        let answer = server.look(slot, pipe, self.deadline()).await;
        Ok(answer.map_err(Failure::explain_look)?.value)
    }
}

/// One of many that are glanced at.
struct Glance<'a> {
    place: usize,
    policy: &'a Policy,
    names: Names,
    slot: u16,
}

/// What stands under its names, as far as it was read; of some, the places of which are given, that is not all.
struct Seen {
    values: Vec<Option<Vec<u8>>>,
    in_part: Vec<usize>,
}

impl Glance<'_> {
    fn ask(&self, pipe: &mut Pipeline) {
        pipe.cmd("GET").arg(self.names.aside());
        for name in self.names.states() {
            pipe.cmd("GETRANGE").arg(name).arg(0).arg(FIRST - 1);
        }
    }

    /// `None` where the server has refused anything.
    fn seen(&self, answers: &mut impl Iterator<Item = Value>) -> Option<Seen> {
        // All of them, whatever the first ones say.
        let answers: Vec<_> = answers.take(self.names.len()).collect();
        let values = answers.into_iter().map(|answer| {
            let value = Option::<Vec<u8>>::from_redis_value(answer).ok()?;
            Some(value.filter(|value| !value.is_empty()))
        });
        Some(Seen {
            values: values.collect::<Option<_>>()?,
            in_part: Vec::new(),
        })
    }

    /// Which states are not there as a whole, and what is still to be read of each.
    fn lacks(&self, seen: Option<&Seen>) -> Vec<(usize, More)> {
        let states = seen.map_or(&[][..], |seen| seen.values.get(1..).unwrap_or_default());
        let states = (1..).zip(states.iter().zip(self.policy.rules()));
        let more = states.filter_map(|(place, (value, rule))| {
            let value = value.as_ref().filter(|it| it.len() == FIRST)?;
            Some((place, More::of(value, rule)))
        });
        more.collect()
    }
}

impl Seen {
    fn complete(&mut self, place: usize, value: Vec<u8>, more: &More) {
        self.values[place] = Some(value);
        if matches!(more, More::Record(_)) {
            self.in_part.push(place);
        }
    }
}

/// What is still to be read of a value.
enum More {
    All,
    Record(Ring),
}

/// A log as its header tells.
struct Ring {
    header: [u8; HEADER],
    first: usize,
    count: usize,
    room: usize,
    limit: usize,
}

impl More {
    fn of(value: &[u8], rule: &Rule) -> Self {
        let header = value.first_chunk::<HEADER>();
        let header = header.filter(|header| header[0] & !MARK < PACKED);
        match (rule, header) {
            (Rule::SlidingLog { limit, .. }, Some(header)) => {
                let number = |from: usize| {
                    let bytes = [
                        header[from],
                        header[from + 1],
                        header[from + 2],
                        header[from + 3],
                    ];
                    u32::from_be_bytes(bytes) as usize
                };
                Self::Record(Ring {
                    header: *header,
                    first: number(0) & !(usize::from(MARK) << 24),
                    count: number(4),
                    room: number(8),
                    limit: *limit as usize,
                })
            }
            _ => Self::All,
        }
    }

    /// Two commands each.
    fn ask(&self, name: &str, pipe: &mut Pipeline) {
        pipe.cmd("STRLEN").arg(name);
        match self {
            Self::All => pipe.cmd("GET").arg(name),
            Self::Record(ring) => {
                let from = ring.decisive();
                pipe.cmd("GETRANGE")
                    .arg(name)
                    .arg(from)
                    .arg(from + ENTRY - 1)
            }
        };
    }

    /// The value, or one in its place that answers as it would.
    fn read(&self, told: &[Value]) -> Option<Vec<u8>> {
        let [Value::Int(size), Value::BulkString(value)] = told else {
            return None;
        };
        let size = usize::try_from(*size).ok()?;
        match self {
            Self::All => (size == value.len()).then(|| value.clone()),
            Self::Record(ring) => ring.stand_in(size, value),
        }
    }
}

impl Ring {
    /// Where the record is on which it depends when the next request may depart, if the log is full; else
    /// that of any.
    fn decisive(&self) -> usize {
        let place = self.first + self.count.saturating_sub(self.limit);
        HEADER + place.checked_rem(self.room).unwrap_or(0) * ENTRY
    }

    /// A log with as many records, all of which leave no sooner than theirs: up to the decisive one with that, those
    /// behind with the last.
    fn stand_in(&self, size: usize, decisive: &[u8]) -> Option<Vec<u8>> {
        let is_whole = size == HEADER + self.room * ENTRY && self.count <= self.room;
        let (last, decisive) = (self.header.last_chunk::<ENTRY>()?, decisive.first_chunk()?);
        if !is_whole || u64::from_be_bytes(*last) < u64::from_le_bytes(*decisive) {
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
