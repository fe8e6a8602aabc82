//! What is known of keys without a call: [`Denials`] and [`Seen`].

use std::collections::HashMap;
use std::time::Duration;

use hashbrown::DefaultHashBuilder;
use quick_cache::UnitWeighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use tokio::time::Instant;

use crate::algorithm::{Costs, Known};
use crate::key::Key;
use crate::lock::Mutex;
use crate::queue::Standing;

/// The usual number of keys that are known to be over their limit.
pub(crate) const REMEMBERED_DENIALS: usize = 10_000;

/// An entry holds for at most so long: other processes may give departures back or end a pause.
const LONGEST_DENIAL: Duration = Duration::from_secs(1);

/// Longer keys are not remembered.
const LONGEST_KEY: usize = 256;

/// The most keys whose last announcement by an upstream is remembered.
pub(super) const ANNOUNCED: usize = 10_000;

/// The keys that are over their limit.
pub(super) struct Denials {
    /// Answers to calls that were sent by then are ignored.
    forgotten: Mutex<Option<Instant>>,
    keys: Cache<Key, Denied, UnitWeighter, DefaultHashBuilder>,
}

/// No request of this cost or more, and of the same level and share, departs earlier.
#[derive(Debug, Clone, Copy)]
pub(super) struct Denied {
    pub(super) cost: Costs,
    pub(super) rank: (u64, u64),
    pub(super) earliest: Instant,
    pub(super) standing: Standing,
    pub(super) sent: Instant,
}

impl Denials {
    pub(super) fn new(keys: usize) -> Self {
        Self {
            forgotten: Mutex::default(),
            keys: Cache::with(
                keys,
                keys as u64,
                UnitWeighter,
                DefaultHashBuilder::default(),
                DefaultLifecycle::default(),
            ),
        }
    }

    /// The standing of a key if a request would be refused that has to depart by `bound`.
    pub(super) fn find(
        &self,
        key: &Key,
        cost: &Costs,
        rank: (u64, u64),
        bound: Instant,
        now: Instant,
    ) -> Option<Standing> {
        let denied = self.keys.get(key)?;
        if now >= denied.earliest.min(denied.sent + LONGEST_DENIAL) {
            self.keys.remove(key);
            return None;
        }
        let is_like = denied.cost.is_within(cost) && denied.rank == rank;
        (is_like && bound < denied.earliest).then_some(denied.standing)
    }

    pub(super) fn note(&self, key: &Key, denied: Denied) {
        if key.as_str().len() <= LONGEST_KEY && *self.forgotten.lock() < Some(denied.sent) {
            self.keys.insert(key.clone(), denied);
        }
    }

    /// A key, or any of them, may have become available. The answers to calls that are under way do not know that.
    pub(super) fn forget(&self, key: Option<&Key>) {
        let mut forgotten = self.forgotten.lock();
        *forgotten = Some(Instant::now());
        drop(forgotten);
        match key {
            Some(key) => drop(self.keys.remove(key)),
            None => self.keys.clear(),
        }
    }
}

/// The states that this process has seen, under strict recovery.
#[derive(Default)]
pub(super) struct Seen(Mutex<HashMap<Key, SeenState>>);

#[derive(Debug, Clone, Copy)]
pub(super) struct SeenState {
    pub(super) known: Known,
    pub(super) quarantined_until: u64,
    /// From then on, no departure counts any more.
    pub(super) expires: Instant,
    /// How often the store's clock had been set.
    pub(super) clock_sets: u64,
}

impl Seen {
    /// The state that was seen last, unless it has expired.
    pub(super) fn get(&self, key: &Key) -> Option<SeenState> {
        let state = self.0.lock().get(key).copied();
        state.filter(|state| Instant::now() < state.expires)
    }

    pub(super) fn note(&self, key: &Key, state: SeenState) {
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

    fn denied(cost: u32, sent: Instant) -> Denied {
        Denied {
            cost: Costs::from(cost),
            rank: RANK,
            earliest: sent + WAIT,
            standing: Standing::default(),
            sent,
        }
    }

    #[test]
    fn a_denial_holds_for_earlier_bounds_and_the_same_cost_or_more_for_a_second() {
        let denials = Denials::new(10);
        let (key, now) = (Key::new("a"), Instant::now());
        denials.note(&key, denied(3, now));
        let find = |cost, after| {
            denials
                .find(&key, &Costs::from(cost), RANK, now + after, now)
                .is_some()
        };
        assert!(find(3, Duration::ZERO) && find(4, WAIT / 2));
        assert!(!find(2, Duration::ZERO) && !find(3, WAIT));
        assert!(
            denials
                .find(&key, &3.into(), RANK, now, now + WAIT)
                .is_none()
        );
        let long = Denied {
            earliest: now + 100 * WAIT,
            ..denied(1, now)
        };
        denials.note(&key, long);
        let find = |after| {
            denials
                .find(&key, &1.into(), RANK, now + after, now + after)
                .is_some()
        };
        assert!(find(WAIT) && !find(2 * WAIT));
    }

    #[test]
    fn an_answer_to_a_call_before_a_return_denies_nothing() {
        let denials = Denials::new(10);
        let (key, sent) = (Key::new("a"), Instant::now());
        denials.forget(Some(&key));
        denials.note(&key, denied(1, sent));
        assert!(denials.find(&key, &1.into(), RANK, sent, sent).is_none());
        let sent = Instant::now() + Duration::from_millis(1);
        denials.note(&key, denied(1, sent));
        assert!(denials.find(&key, &1.into(), RANK, sent, sent).is_some());
        // Long keys are not remembered.
        let long = Key::new("a".repeat(257));
        denials.note(&long, denied(1, sent));
        assert!(denials.find(&long, &1.into(), RANK, sent, sent).is_none());
    }

    #[test]
    fn an_older_state_does_not_replace_a_newer_one() {
        let (seen, key) = (Seen::default(), Key::new("a"));
        let state = |version| SeenState {
            known: Known {
                generation: 1,
                version,
            },
            quarantined_until: 0,
            expires: Instant::now() + WAIT,
            clock_sets: 0,
        };
        for version in [7, 9, 8] {
            seen.note(&key, state(version));
        }
        assert_eq!(seen.get(&key).unwrap().known.version, 9);
        // The clock was set since.
        let reset = SeenState {
            clock_sets: 1,
            ..state(2)
        };
        seen.note(&key, reset);
        assert_eq!(seen.get(&key).unwrap().known.version, 2);
    }

    #[test]
    fn expired_states_are_dropped() {
        let (seen, now) = (Seen::default(), Instant::now());
        for number in 0..10_000 {
            let state = SeenState {
                known: Known {
                    generation: 1,
                    version: 1,
                },
                quarantined_until: 0,
                expires: now,
                clock_sets: 0,
            };
            seen.note(&Key::new(format!("{number}")), state);
        }
        assert!(seen.0.lock().len() < 10);
    }
}
