//! What is known of keys that are over their limit, so that the store need not be asked: [`Denials`].
//!
//! When a store refuses a request, it names the moment before which there is no slot for it. As others
//! can only take slots meanwhile, that holds until then; unless slots are given back, or a pause ends before
//! its time. So this may refuse, and never grant, and it forgets a key whenever this process gives a slot back or
//! hears that something was said of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hashbrown::DefaultHashBuilder;
use quick_cache::{UnitWeighter, sync::Cache};
use tokio::time::Instant;

use crate::key::Key;
use crate::line::Bound;
use crate::permit::Limited;
use crate::store::DRIFT;

/// For how many keys one epoch knows that, unless told otherwise.
pub(crate) const USUAL: usize = 10_000;

/// For how long it is known where nobody tells when a pause is over.
const LONGEST_UNTOLD: Duration = Duration::from_millis(500);

/// The longest key of which it is known: the keys take a bounded amount of memory, too.
const LONGEST_KEY: usize = 256;

/// The keys of which a store has said that they are over their limit.
pub(crate) struct Denials {
    known: Cache<Key, Denied, UnitWeighter, DefaultHashBuilder>,
    origin: Instant,
    /// When something was last forgotten, in nanoseconds since `origin`, and one more.
    forgotten: AtomicU64,
}

/// A request that the store has refused, in a call that was sent and answered then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refused {
    pub(crate) limited: Limited,
    pub(crate) sent: Instant,
    pub(crate) received: Instant,
}

/// Until when requests are refused.
#[derive(Debug, Clone, Copy)]
struct Denied {
    /// What the request cost that was refused: those that cost less may find a slot.
    cost: u32,
    remaining: u32,
    /// Before then, there is no slot for certain.
    until: Instant,
    /// By then, there would have been one for certain.
    slot: Instant,
    /// By then, nothing counted any more.
    reset: Instant,
}

impl Denials {
    /// `None` if nothing is to be known.
    pub(crate) fn new(capacity: usize) -> Option<Self> {
        let hasher = DefaultHashBuilder::default();
        let known = || {
            Cache::with(
                capacity,
                capacity as u64,
                UnitWeighter,
                hasher,
                <_>::default(),
            )
        };
        (capacity > 0).then(|| Self {
            known: known(),
            origin: Instant::now(),
            forgotten: AtomicU64::new(0),
        })
    }

    /// Whether the store would refuse such a request, as far as is known.
    pub(crate) fn look(&self, key: &Key, cost: u32, bound: Bound, now: Instant) -> Option<Limited> {
        if bound == Bound::Unlimited {
            return None;
        }
        let denied = self.known.get(key)?;
        if now >= denied.until {
            self.known.remove_if(key, |denied| now >= denied.until);
            return None;
        }
        let holds = match bound {
            Bound::Now => cost >= denied.cost,
            // A slot that somebody gave back may serve another cost before.
            Bound::Until(deadline) => cost == denied.cost && deadline < denied.until,
            Bound::Unlimited => false,
        };
        holds.then(|| {
            // Not rounded down: it is never less than what is true.
            let left = |until: Instant| {
                let nanos = until.saturating_duration_since(now).as_nanos();
                u64::try_from(nanos.div_ceil(1_000)).unwrap_or(u64::MAX)
            };
            let remaining = denied.remaining.into();
            Limited::of_micros(left(denied.slot), remaining, left(denied.reset))
        })
    }

    /// A store has refused a request that tells when a pause is over, or does not.
    pub(crate) fn note(&self, key: &Key, cost: u32, refused: Refused, tells: bool) {
        let Refused {
            limited,
            sent,
            received,
        } = refused;
        let drift = limited.delay() / (2 * DRIFT) as u32;
        let times = || {
            let until = sent.checked_add(limited.delay())?.checked_sub(drift)?;
            let until = if tells {
                until
            } else {
                until.min(sent + LONGEST_UNTOLD)
            };
            let slot = received.checked_add(limited.delay() + drift)?;
            let reset = received.checked_add(limited.reset() + drift)?;
            Some((until, slot, reset))
        };
        if key.as_str().len() > LONGEST_KEY || self.has_forgotten_since(sent) {
            return;
        }
        let Some((until, slot, reset)) = times() else {
            return;
        };
        let denied = Denied {
            cost,
            remaining: limited.remaining(),
            until,
            slot,
            reset,
        };
        self.known.insert(key.clone(), denied);
        if self.has_forgotten_since(sent) {
            self.known.remove(key);
        }
    }

    /// A slot is given back, or all are: there may be one earlier than was said, and no answer to a call
    /// that is under way tells.
    pub(crate) fn forget(&self, key: &Key) {
        let now = self.nanos(Instant::now());
        self.forgotten.fetch_max(now + 1, Ordering::SeqCst);
        self.known.remove(key);
    }

    /// Something may have been given back, or said, of any key.
    pub(crate) fn forget_all(&self) {
        let now = self.nanos(Instant::now());
        self.forgotten.fetch_max(now + 1, Ordering::SeqCst);
        self.known.clear();
    }

    fn has_forgotten_since(&self, sent: Instant) -> bool {
        self.forgotten.load(Ordering::SeqCst) > self.nanos(sent)
    }

    fn nanos(&self, at: Instant) -> u64 {
        let nanos = at.saturating_duration_since(self.origin).as_nanos();
        u64::try_from(nanos).unwrap_or(u64::MAX - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_millis(500);

    fn refused(sent: Instant, received: Instant) -> Refused {
        Refused {
            limited: Limited::new(WAIT, 0, WAIT),
            sent,
            received,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn refuses_from_the_earliest_reading_and_names_the_latest() {
        let denials = Denials::new(10).unwrap();
        let (key, sent) = (Key::new("a"), Instant::now());
        let received = sent + Duration::from_millis(40);
        denials.note(&key, 1, refused(sent, received), true);
        let limited = denials.look(&key, 1, Bound::Now, received).unwrap();
        assert!(limited.delay() >= WAIT);
        let last = sent + WAIT - Duration::from_micros(6);
        let limited = denials.look(&key, 1, Bound::Now, last).unwrap();
        assert!(limited.delay() >= Duration::from_millis(40));
        assert!(denials.look(&key, 1, Bound::Now, sent + WAIT).is_none());
        // Others are not held up by what is over.
        assert_eq!(denials.known.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn holds_for_bounds_that_end_before_and_for_no_other_cost() {
        let denials = Denials::new(10).unwrap();
        let (key, now) = (Key::new("a"), Instant::now());
        denials.note(&key, 3, refused(now, now), true);
        let look = |cost, bound| denials.look(&key, cost, bound, now).is_some();
        assert!(look(3, Bound::Now) && look(4, Bound::Now) && !look(2, Bound::Now));
        let soon = Bound::Until(now + WAIT / 2);
        assert!(look(3, soon) && !look(4, soon) && !look(2, soon));
        assert!(!look(3, Bound::Until(now + WAIT)) && !look(3, Bound::Unlimited));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_was_under_way_while_a_slot_came_back_says_nothing() {
        let denials = Denials::new(10).unwrap();
        let (key, sent) = (Key::new("a"), Instant::now());
        tokio::time::advance(WAIT).await;
        denials.forget(&key);
        denials.note(&key, 1, refused(sent, Instant::now()), true);
        assert_eq!(denials.known.len(), 0);
        tokio::time::advance(WAIT).await;
        denials.note(&key, 1, refused(Instant::now(), Instant::now()), true);
        assert_eq!(denials.known.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn is_known_for_a_moment_only_where_nobody_tells_that_a_pause_is_over() {
        let denials = Denials::new(10).unwrap();
        let (key, now) = (Key::new("a"), Instant::now());
        let long = Refused {
            limited: Limited::new(WAIT * 100, 0, WAIT * 100),
            ..refused(now, now)
        };
        let look = |after| denials.look(&key, 1, Bound::Now, now + after).is_some();
        denials.note(&key, 1, long, false);
        assert!(look(LONGEST_UNTOLD / 2) && !look(LONGEST_UNTOLD));
        denials.note(&key, 1, long, true);
        assert!(look(LONGEST_UNTOLD * 2));
        denials.forget_all();
        assert!(!look(Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn long_keys_are_not_remembered() {
        let denials = Denials::new(10).unwrap();
        let now = Instant::now();
        for (length, known) in [(257, 0), (256, 1)] {
            denials.note(&Key::new("a".repeat(length)), 1, refused(now, now), true);
            assert_eq!(denials.known.len(), known);
        }
    }
}
