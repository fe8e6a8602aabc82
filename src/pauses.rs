//! The pauses that are known here: [`Pauses`].
//!
//! A store keeps each pause with the state of the quotas for which it was said. A limiter whose quotas change
//! keeps to it all the same: so it remembers what it has heard.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::key::Key;
use crate::policy::Policy;
use crate::store::Notice;

/// Of so many keys at most; of others, the store alone knows.
const MOST: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct Pauses {
    /// So that nobody takes a lock to find that there is none.
    are_any: AtomicBool,
    known: Mutex<HashMap<Key, Pause>>,
}

#[derive(Debug)]
struct Pause {
    /// On the store's clock, in microseconds.
    until: u64,
    /// The same on the local one, or a little later.
    over: Instant,
    /// When it was heard of, or set, on the store's clock.
    since: u64,
    /// The quotas with whose state the store keeps it.
    policy: u64,
}

impl Pauses {
    pub(crate) fn note(&self, key: &Key, policy: &Policy, notice: Notice) {
        let mut known = self.known.lock();
        let Some(left) = notice
            .paused
            .checked_sub(notice.now)
            .filter(|left| *left > 0)
        else {
            known.remove(key);
            self.are_any.store(!known.is_empty(), Ordering::Release);
            return;
        };
        let now = Instant::now();
        if known.len() >= MOST {
            known.retain(|_, pause| now < pause.over);
        }
        let Some(over) = now.checked_add(Duration::from_micros(left)) else {
            return;
        };
        if known.len() < MOST {
            let pause = Pause {
                until: notice.paused,
                over,
                since: notice.since,
                policy: policy.id_hash(),
            };
            known.insert(key.clone(), pause);
        }
        self.are_any.store(!known.is_empty(), Ordering::Release);
    }

    /// Until when nothing departs for a key, on the store's clock; 0 if nothing is known.
    pub(crate) fn until(&self, key: &Key) -> u64 {
        self.find(key, |pause| pause.until).unwrap_or(0)
    }

    /// Whether a pause began after this slot: what the request says that had it is old.
    #[cfg_attr(
        not(any(feature = "tower", feature = "reqwest")),
        expect(dead_code, reason = "only the adapters read responses")
    )]
    pub(crate) fn are_newer(&self, key: &Key, departed: u64) -> bool {
        self.find(key, |pause| departed < pause.since)
            .unwrap_or(false)
    }

    /// Whether there is a pause that the store does not keep with the state of these quotas.
    #[inline]
    pub(crate) fn are_elsewhere(&self, key: &Key, policy: &Policy) -> bool {
        self.are_any.load(Ordering::Acquire)
            && self
                .find(key, |pause| pause.policy != policy.id_hash())
                .unwrap_or(false)
    }

    fn find<T>(&self, key: &Key, what: impl Fn(&Pause) -> T) -> Option<T> {
        if !self.are_any.load(Ordering::Acquire) {
            return None;
        }
        let mut known = self.known.lock();
        let pause = known.get(key)?;
        if Instant::now() < pause.over {
            return Some(what(pause));
        }
        known.remove(key);
        self.are_any.store(!known.is_empty(), Ordering::Release);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::PolicyParts;
    use crate::quota::Quota;

    const SECOND: u64 = 1_000_000;

    fn policy(limit: u32) -> Policy {
        let parts = PolicyParts {
            quotas: [Quota::per_second(limit)].into_iter().collect(),
            ..PolicyParts::default()
        };
        parts.build().unwrap()
    }

    fn paused(seconds: u64) -> Notice {
        let now = 1_763_000_000 * SECOND;
        Notice {
            now,
            since: now,
            paused: now + seconds * SECOND,
            ..Notice::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_is_known_until_it_is_over_or_said_to_be() {
        let (pauses, key, other) = (Pauses::default(), Key::new("a"), Key::new("b"));
        let notice = paused(3);
        pauses.note(&key, &policy(1), notice);
        assert_eq!(
            (pauses.until(&key), pauses.until(&other)),
            (notice.paused, 0)
        );
        assert!(!pauses.are_elsewhere(&key, &policy(1)) && pauses.are_elsewhere(&key, &policy(2)));
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(pauses.until(&key), 0);
        assert!(pauses.known.lock().is_empty());
        pauses.note(&key, &policy(1), notice);
        pauses.note(&key, &policy(1), Notice::default());
        assert_eq!(pauses.until(&key), 0);
        assert!(!pauses.are_any.load(Ordering::SeqCst));
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_bounded_however_many_keys_are_paused() {
        let (pauses, policy) = (Pauses::default(), policy(1));
        let note = |number: usize, seconds| {
            pauses.note(&Key::from(number.to_string()), &policy, paused(seconds));
        };
        (0..MOST + 10).for_each(|number| note(number, 3));
        assert_eq!(pauses.known.lock().len(), MOST);
        tokio::time::advance(Duration::from_secs(3)).await;
        note(0, 3);
        assert_eq!(pauses.known.lock().len(), 1);
    }
}
