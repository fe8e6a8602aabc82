//! Glances at the states of many keys, and changes nothing: [`RedisStore::glance`].

use std::iter;

use futures_util::future::join_all;
use hashbrown::HashMap;
use redis::{FromRedisValue, Pipeline, Value};

use self::more::{More, Told};
use super::failure::{Failure, explain_look};
use super::key_state::KeyState;
use super::keys::StoredKey;
use super::names::{self, Names};
use super::{RedisStore, transaction};
use crate::algorithm::Rule;
use crate::policy::Policy;
use crate::store::StoreError;

mod more;

/// How many keys are asked for at once.
const BATCH: usize = 256;

/// How much of a value is read at first: all of it, but for long logs, many buckets and many free slots. No ring is of
/// this size.
const FIRST: usize = 1_024;

/// How often a log that moves on meanwhile is read in part, until it is read as a whole.
const ATTEMPTS: usize = 8;

impl RedisStore {
    /// How these keys stand, at a glance: reads some kilobytes of each at most, of 256 keys at once. Changes
    /// nothing, and takes no more [rights](mod@crate::redis#rights) than a limiter with scripts.
    ///
    /// That is enough, but for logs of more than 125 departures: of one that is not full it only tells how
    /// many there were when somebody last asked for a slot; see [`KeyState::is_exact`].
    ///
    /// Of each Redis key, it reads the first kilobyte; of a long log, one or two more. Of what may rightly be longer,
    /// many buckets or many slots that were given back, it reads up to 64 KiB. A log that does not stand still for
    /// it in eight attempts is read as a whole.
    ///
    /// A [`look`](Self::look) reads everything, and tells more; [`peek`](crate::store::Store::peek) asks as a limiter
    /// would, by its script and with its terms.
    ///
    /// # Errors
    ///
    /// As for [`look`](Self::look); and of a key that holds more than a glance reads.
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
                is_whole: false,
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

    /// Where a slot has moved, or something else stands there, this is told what, or follows. What moves on faster
    /// than that is read as a whole.
    async fn alone(&self, glance: &Glance<'_>) -> Result<KeyState, StoreError> {
        for attempt in 1..=ATTEMPTS + 1 {
            let one = Glance {
                is_whole: attempt > ATTEMPTS,
                names: glance.names.clone(),
                ..*glance
            };
            let mut states = self.at_once(&[one], false).await?;
            if let Some(state) = states.pop().flatten() {
                return state;
            }
        }
        Err(StoreError::new("redis answered with something else"))
    }

    /// Of several, those are left out of which the server refuses anything; and those which have just changed.
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
        let now = transaction::now(clock, &mut answers).map_err(explain_look)?;
        let seen = batch.iter().map(|it| it.seen(&mut answers));
        let mut seen: Vec<_> = seen.collect();
        let mut pipe = redis::pipe();
        let mut rest = Vec::new();
        for (place, glance) in batch.iter().enumerate() {
            for (value, more) in glance.lacks(seen[place].as_ref()) {
                more.ask(&glance.names.all()[value], &mut pipe);
                rest.push((place, value, more));
            }
        }
        if !rest.is_empty() {
            let mut answers = match pipe.is_empty() {
                true => Vec::new(),
                false => self.answers(slot, &mut pipe, several).await?,
            }
            .into_iter();
            for (place, value, more) in rest {
                let told: Vec<_> = answers.by_ref().take(more.commands()).collect();
                if let Some(all) = &mut seen[place] {
                    match more.read(told) {
                        Told::All(raw) => all.values[value] = Some(raw),
                        Told::InPart(raw) => {
                            all.values[value] = Some(raw);
                            all.in_part.push(value);
                        }
                        Told::Strange => all.strange = Some((value, None)),
                        Told::Long(size) => all.strange = Some((value, Some(size))),
                        Told::Nothing => seen[place] = None,
                    }
                }
            }
        }
        let read = |(glance, seen): (&Glance<'_>, Option<Seen>)| Some(seen?.read(glance, now));
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
    /// Whether logs are read to their end at once.
    is_whole: bool,
}

/// What stands under its names, as far as it was read; of some, the places of which are given, that is not all.
struct Seen {
    values: Vec<Option<Vec<u8>>>,
    in_part: Vec<usize>,
    /// Which of them cannot be read; and its size, if that is why.
    strange: Option<(usize, Option<usize>)>,
}

impl Glance<'_> {
    /// The rule of each value, after what stands aside.
    fn rules(&self) -> impl Iterator<Item = Option<&Rule>> {
        iter::once(None).chain(self.policy.rules().iter().map(Some))
    }

    fn is_read_to_its_end(&self, rule: Option<&Rule>) -> bool {
        self.is_whole && matches!(rule, Some(Rule::SlidingLog { .. }))
    }

    fn ask(&self, pipe: &mut Pipeline) {
        for (name, rule) in self.names.all().iter().zip(self.rules()) {
            let pipe = pipe.cmd("GETRANGE").arg(name).arg(0);
            match self.is_read_to_its_end(rule) {
                true => pipe.arg(-1),
                false => pipe.arg(FIRST - 1),
            };
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
            strange: None,
        })
    }

    /// Which values are not there as a whole, and what is still to be read of each.
    fn lacks(&self, seen: Option<&Seen>) -> Vec<(usize, More)> {
        let values = seen.map_or(&[][..], |seen| &seen.values);
        let values = values.iter().zip(self.rules()).enumerate();
        let more = values.filter_map(|(place, (value, rule))| {
            let value = value.as_ref().filter(|it| it.len() == FIRST)?;
            Some((place, More::of(value, rule)))
        });
        more.collect()
    }
}

impl Seen {
    fn read(self, glance: &Glance<'_>, now: u64) -> Result<KeyState, StoreError> {
        let Glance { policy, names, .. } = glance;
        match self.strange {
            None => KeyState::read(policy, names, now, &self.values, &self.in_part),
            Some((place, None)) => Err(transaction::foreign(&names.all()[place])),
            Some((place, Some(size))) => {
                let which = format!("the value of {} has {size} bytes", names.all()[place]);
                let error = StoreError::new("redis holds more than a glance reads");
                Err(error.caused_by(which).no_outage())
            }
        }
    }
}
