//! What is known of keys without a call: [`Denials`] and [`Seen`].

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::time::Duration;

use hashbrown::DefaultHashBuilder;
use quick_cache::UnitWeighter;
use quick_cache::sync::Cache;
use tokio::time::Instant;

use crate::algorithm::{Costs, Known, Strict, Take, Taken};
use crate::clock::{ClockSets, Offset};
use crate::key::Key;
use crate::lock::Mutex;
use crate::policy::Policy;
use crate::priority::Rank;
use crate::queue::Standing;

/// The usual number of keys that are known to be over their limit.
pub(crate) const REMEMBERED_DENIALS: usize = 10_000;

/// An entry holds for at most so long: other processes may give departures back or end a pause.
pub(super) const LONGEST_DENIAL: Duration = Duration::from_secs(1);

/// Keys are in so many parts, by their hashes. If one becomes available, answers that are under way are ignored in its part alone.
const PARTS: usize = 64;

/// Longer keys are not remembered.
const LONGEST_KEY: usize = 256;

/// The most keys whose last announcement by an upstream is remembered.
pub(super) const ANNOUNCED: usize = 10_000;

/// The keys that are over their limit.
pub(crate) struct Denials {
    /// By the hashes of keys. Answers to calls that were sent by then are ignored.
    forgotten: [Mutex<Option<Instant>>; PARTS],
    hasher: DefaultHashBuilder,
    /// `None` if none are remembered.
    keys: Option<Cache<Key, Denied, UnitWeighter, DefaultHashBuilder>>,
}

/// No request of this cost or more, and of the same level and share, departs earlier.
#[derive(Debug, Clone, Copy)]
pub(super) struct Denied {
    pub(super) cost: Costs,
    pub(super) rank: (u64, u64),
    pub(super) earliest: Instant,
    pub(super) standing: Standing,
    /// The entry holds until then.
    pub(super) ends: Instant,
}

impl Denials {
    pub(super) fn new(keys: usize) -> Self {
        let (most, hasher) = (keys as u64, DefaultHashBuilder::default());
        let cache = || Cache::with(keys, most, UnitWeighter, hasher, Default::default());
        Self {
            forgotten: std::array::from_fn(|_| Mutex::default()),
            hasher: DefaultHashBuilder::default(),
            keys: (keys > 0).then(cache),
        }
    }

    /// The standing of a key if it is known, without a call, that a request cannot depart by `bound`.
    pub(crate) fn find(
        &self,
        key: &Key,
        cost: &Costs,
        rank: &Rank,
        bound: Option<Instant>,
        now: Instant,
    ) -> Option<Standing> {
        let (keys, bound) = (self.keys.as_ref()?, bound?);
        let denied = keys.get(key)?;
        if now >= denied.ends {
            keys.remove(key);
            return None;
        }
        let rank = (rank.priority.level(), rank.flow().id);
        let is_like = denied.cost.is_within(cost) && denied.rank == rank;
        (is_like && bound < denied.earliest).then_some(denied.standing)
    }

    /// Remembers the answer to a call that was sent then.
    pub(super) fn note(&self, key: &Key, sent: Instant, denied: Denied) {
        if let Some(keys) = &self.keys
            && key.as_str().len() <= LONGEST_KEY
            && *self.forgotten(key).lock() < Some(sent)
        {
            keys.insert(key.clone(), denied);
        }
    }

    /// A key, or any of them, may have become available. The answers to calls that are under way do not know that.
    pub(super) fn forget(&self, key: Option<&Key>) {
        let Some(keys) = &self.keys else {
            return;
        };
        let now = Some(Instant::now());
        match key {
            Some(key) => {
                *self.forgotten(key).lock() = now;
                keys.remove(key);
            }
            None => {
                self.forgotten.iter().for_each(|it| *it.lock() = now);
                keys.clear();
            }
        }
    }

    fn forgotten(&self, key: &Key) -> &Mutex<Option<Instant>> {
        &self.forgotten[self.hasher.hash_one(key.as_str()) as usize % PARTS]
    }
}

/// The states that this process has seen, under strict recovery.
#[derive(Default)]
pub(super) struct Seen(Mutex<HashMap<Key, SeenState>>);

#[derive(Debug, Clone, Copy)]
struct SeenState {
    known: Known,
    quarantined_until: u64,
    /// From then on, no departure counts any more, and no request waits.
    expires: Instant,
    /// How often the store's clock had been set.
    clock_sets: u64,
}

impl Seen {
    /// The knowledge of this key that a call under strict recovery carries.
    pub(super) fn strict(&self, key: &Key, policy: &Policy, sets: ClockSets) -> Strict {
        let seen = self.get(key);
        let clock_was_set = match seen {
            Some(seen) => seen.clock_sets != sets.count,
            // Other processes may have seen departures, by the clock as it was before.
            None => sets.last.is_some_and(|last| {
                let quarantine =
                    Take::default().quarantine(&policy.counters, policy.buffer_micros());
                last.elapsed() < Duration::from_micros(quarantine)
            }),
        };
        Strict {
            known: seen.map(|seen| seen.known),
            clock_was_set,
        }
    }

    /// Remembers the state of a key after a call. Returns how much of a quarantine is left that this process did not know of.
    pub(super) fn remember(
        &self,
        key: &Key,
        policy: &Policy,
        taken: &Taken,
        offset: &Offset,
        clock_sets: u64,
    ) -> Option<Duration> {
        let (known, quarantined_until) = (taken.known?, taken.quarantined_until);
        let now = Instant::now();
        let before = self.get(key);
        let places = now + policy.lease().unwrap_or_default();
        let state = SeenState {
            known,
            quarantined_until,
            expires: offset.latest(taken.kept_until()).max(places),
            clock_sets,
        };
        self.note(key, state);
        let left = offset.latest(quarantined_until);
        let left = left.saturating_duration_since(now);
        let is_new = before.is_none_or(|it| it.quarantined_until < quarantined_until);
        (is_new && !left.is_zero()).then_some(left)
    }

    /// The state that was seen last, unless it has expired.
    fn get(&self, key: &Key) -> Option<SeenState> {
        let state = self.0.lock().get(key).copied();
        state.filter(|state| Instant::now() < state.expires)
    }

    fn note(&self, key: &Key, state: SeenState) {
        let mut states = self.0.lock();
        if states.len() == states.capacity() {
            let now = Instant::now();
            states.retain(|_, state| now < state.expires);
            // The next sweep is due when there are twice as many.
            let left = states.len();
            states.shrink_to(2 * left);
            states.reserve(left);
        }
        let order = |it: &SeenState| (it.clock_sets, it.known.generation, it.known.version);
        let latest = states.entry(key.clone()).or_insert(state);
        // Answers for two lanes of a key may arrive in another order than they were written.
        if order(latest) < order(&state) || latest.expires <= Instant::now() {
            *latest = state;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANK: (u64, u64) = (2, 1);
    const WAIT: Duration = Duration::from_millis(500);

    fn denied(cost: u32, sent: Instant, wait: Duration) -> Denied {
        Denied {
            cost: Costs::from(cost),
            rank: RANK,
            earliest: sent + wait,
            standing: Standing::default(),
            ends: sent + wait.min(LONGEST_DENIAL),
        }
    }

    #[test]
    fn a_denial_holds_for_earlier_bounds_and_the_same_cost_or_more_for_a_second() {
        let (denials, key, start) = (Denials::new(10), Key::new("a"), Instant::now());
        for (wait, cost, bound, now, is_denied) in [
            (WAIT, 3, Duration::ZERO, Duration::ZERO, true),
            (WAIT, 4, WAIT / 2, Duration::ZERO, true),
            (WAIT, 2, Duration::ZERO, Duration::ZERO, false),
            (WAIT, 3, WAIT, Duration::ZERO, false),
            (WAIT, 3, Duration::ZERO, WAIT, false),
            (100 * WAIT, 3, WAIT, WAIT, true),
            (100 * WAIT, 3, 2 * WAIT, 2 * WAIT, false),
        ] {
            let rank = Rank::default();
            denials.note(&key, start, denied(3, start, wait));
            let found = denials.find(&key, &cost.into(), &rank, Some(start + bound), start + now);
            assert_eq!(found.is_some(), is_denied, "{cost} {bound:?} {now:?}");
        }
    }

    #[test]
    fn an_answer_to_a_call_before_a_return_denies_nothing() {
        let denials = Denials::new(10);
        let sent = Instant::now();
        let is_denied = |key: &str, sent| {
            let key = Key::new(key);
            denials.note(&key, sent, denied(1, sent, WAIT));
            let found = denials.find(&key, &1.into(), &Rank::default(), Some(sent), sent);
            found.is_some()
        };
        denials.forget(Some(&Key::new("a")));
        assert!(!is_denied("a", sent));
        assert!(is_denied("b", sent) || is_denied("c", sent) || is_denied("d", sent));
        let sent = Instant::now() + Duration::from_millis(1);
        assert!(is_denied("a", sent));
        // Long keys are not remembered.
        assert!(!is_denied(&"a".repeat(257), sent));
    }

    fn state(version: u64, clock_sets: u64, expires: Instant) -> SeenState {
        let generation = 1;
        SeenState {
            known: Known {
                generation,
                version,
            },
            quarantined_until: 0,
            expires,
            clock_sets,
        }
    }

    #[test]
    fn an_older_state_does_not_replace_a_newer_one_unless_the_clock_was_set() {
        let (seen, key) = (Seen::default(), Key::new("a"));
        let expires = Instant::now() + WAIT;
        for (version, clock_sets, kept) in [(7, 0, 7), (9, 0, 9), (8, 0, 9), (2, 1, 2)] {
            seen.note(&key, state(version, clock_sets, expires));
            assert_eq!(seen.get(&key).unwrap().known.version, kept);
        }
    }

    #[test]
    fn expired_states_are_dropped() {
        let (seen, now) = (Seen::default(), Instant::now());
        for number in 0..10_000 {
            seen.note(&Key::new(format!("{number}")), state(1, 0, now));
        }
        assert!(seen.0.lock().len() < 10);
    }
}
