//! The pauses that are known here: [`Pauses`].
//!
//! A store keeps each pause with the state of the quotas for which it was said. A limiter whose quotas change
//! keeps to it all the same: so it remembers what it has heard.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::key::Key;
use crate::line::SETTLING;
use crate::policy::Policy;
use crate::store::Notice;

/// Of so many keys at most; of others, the store alone knows.
const MOST: usize = 10_000;

/// How often the store is told how many remain, while that is no matter of the next few requests.
const SELDOM: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(crate) struct Pauses {
    /// So that nobody takes a lock to find that there is nothing.
    are_any: AtomicBool,
    /// When the store was last told how many remain.
    allowed: Mutex<HashMap<Key, Instant>>,
    known: Mutex<HashMap<Key, SmallVec<[Pause; 1]>>>,
}

/// How much later than was known a pause has to end to be extended: before the store has said when it does, that
/// is only known closely.
const EXTENDED: u64 = 100_000;

/// What is new of the pauses of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    None,
    /// There was none.
    Begun,
    /// It lasts longer.
    Extended,
    /// It is over before its time.
    Over,
}

/// What was heard last of a key under some quotas.
#[derive(Debug)]
struct Pause {
    /// The quotas with whose state the store keeps it.
    policy: u64,
    /// When it was told, on the store's clock, in microseconds.
    told: u64,
    /// When it began, and until when it holds; 0 if it is over.
    since: u64,
    until: u64,
    /// When the latter is, on the local clock, or a little later; or until when that it is over is worth
    /// remembering.
    over: Instant,
    /// Whether it is over before its time.
    is_resumed: bool,
}

impl Pauses {
    /// The same, where the store does not know yet: it has the last word, and whoever has something to tell
    /// it does.
    pub(crate) fn note_unconfirmed(&self, key: &Key, policy: &Policy, notice: Notice) -> News {
        if self.until(key) < notice.paused {
            self.note_told(key, policy, notice, 0)
        } else {
            News::None
        }
    }

    pub(crate) fn note(&self, key: &Key, policy: &Policy, notice: Notice) -> News {
        self.note_told(key, policy, notice, notice.now)
    }

    fn note_told(&self, key: &Key, policy: &Policy, notice: Notice, told: u64) -> News {
        let now = Instant::now();
        let left = notice.paused.saturating_sub(notice.now);
        let is_resumed = notice.is_resumption();
        let mut known = self.known.lock();
        if left == 0 && !is_resumed && !known.contains_key(key) {
            return News::None;
        }
        if known.len() >= MOST {
            known.retain(|_, pauses| pauses.iter().any(|pause| now < pause.over));
        }
        let span = if left > 0 {
            Duration::from_micros(left)
        } else {
            SETTLING
        };
        let Some(over) = now.checked_add(span) else {
            return News::None;
        };
        if known.len() >= MOST && !known.contains_key(key) {
            return News::None;
        }
        let pauses = known.entry(key.clone()).or_default();
        pauses.retain(|pause| now < pause.over);
        let before = latest(pauses);
        let policy = policy.id_hash();
        match pauses.iter().position(|pause| pause.policy == policy) {
            // What was told before comes late.
            Some(place) if told > 0 && told < pauses[place].told => {
                return News::None;
            }
            Some(place) => drop(pauses.remove(place)),
            None => {}
        }
        pauses.push(Pause {
            policy,
            told,
            since: if told > 0 { notice.since } else { 0 },
            until: if left > 0 { notice.paused } else { 0 },
            over,
            is_resumed,
        });
        self.are_any.store(true, Ordering::Release);
        match latest(pauses) {
            0 if before > 0 && is_resumed => News::Over,
            after if before == 0 && after > 0 => News::Begun,
            after if after > before + EXTENDED => News::Extended,
            _ => News::None,
        }
    }

    /// When the last of all pauses is over, if there are any.
    pub(crate) fn over(&self) -> Option<Instant> {
        let known = self.known.lock();
        let all = known.values().flatten().filter(|pause| pause.until > 0);
        all.map(|pause| pause.over).max()
    }

    /// All pauses of a key are over, also those of quotas that nobody uses any more.
    pub(crate) fn resume(&self, key: &Key) {
        let over = Instant::now() + SETTLING;
        for pause in self.known.lock().get_mut(key).into_iter().flatten() {
            (pause.until, pause.over, pause.is_resumed) = (0, over, true);
        }
    }

    /// Until when nothing departs for a key, on the store's clock; 0 if nothing is known.
    pub(crate) fn until(&self, key: &Key) -> u64 {
        self.most(key, |pause| Some(pause.until)).unwrap_or(0)
    }

    /// Until when other processes may still give back slots that lay behind a pause which is over before its
    /// time.
    pub(crate) fn settling(&self, key: &Key) -> Option<Instant> {
        self.most(key, |pause| pause.is_resumed.then_some(pause.over))
    }

    /// Whether a pause began after this slot: what the request says that had it is old.
    pub(crate) fn are_newer(&self, key: &Key, departed: u64) -> bool {
        let is_newer = |pause: &Pause| (pause.until > 0).then_some(departed < pause.since);
        self.most(key, is_newer).unwrap_or(false)
    }

    /// Whether it is a while ago that the store was told how many remain; if so, it is told now.
    #[cfg_attr(
        not(any(feature = "tower", feature = "reqwest")),
        expect(dead_code, reason = "only the adapters read responses")
    )]
    pub(crate) fn may_tell(&self, key: &Key) -> bool {
        let now = Instant::now();
        let mut allowed = self.allowed.lock();
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) < SELDOM;
        if allowed.get(key).is_some_and(is_recent) {
            return false;
        }
        if allowed.len() >= MOST {
            allowed.retain(|_, at| is_recent(at));
        }
        if allowed.len() < MOST {
            allowed.insert(key.clone(), now);
        }
        true
    }

    /// Whether there is a pause that the store does not keep with the state of these quotas.
    #[inline]
    pub(crate) fn are_elsewhere(&self, key: &Key, policy: &Policy) -> bool {
        let is_elsewhere =
            |pause: &Pause| Some(pause.until > 0 && pause.policy != policy.id_hash());
        self.are_any.load(Ordering::Acquire) && self.most(key, is_elsewhere).unwrap_or(false)
    }

    /// The most of what is known of a key.
    fn most<T: Ord>(&self, key: &Key, what: impl Fn(&Pause) -> Option<T>) -> Option<T> {
        if !self.are_any.load(Ordering::Acquire) {
            return None;
        }
        let mut known = self.known.lock();
        let pauses = known.get_mut(key)?;
        let now = Instant::now();
        pauses.retain(|pause| now < pause.over);
        let most = pauses.iter().filter_map(what).max();
        if pauses.is_empty() {
            known.remove(key);
            self.are_any.store(!known.is_empty(), Ordering::Release);
        }
        most
    }
}

/// Until when the longest of them holds; 0 if there is none.
fn latest(pauses: &[Pause]) -> u64 {
    pauses.iter().map(|pause| pause.until).max().unwrap_or(0)
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
        let later = |after| Notice {
            now: notice.now + after,
            ..notice
        };
        pauses.note(&key, &policy(1), later(1));
        pauses.note(&key, &policy(2), Notice::default());
        assert_eq!(pauses.until(&key), notice.paused, "under other quotas");
        pauses.note(&key, &policy(1), Notice::resumption(notice.now + 2));
        assert_eq!(pauses.until(&key), 0);
        assert!(pauses.settling(&key).is_some());
        pauses.note(&key, &policy(1), later(1));
        assert_eq!(pauses.until(&key), 0, "that was told before");
        tokio::time::advance(SETTLING).await;
        assert!(pauses.settling(&key).is_none());
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
