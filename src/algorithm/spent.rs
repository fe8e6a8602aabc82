//! How much of a quota is spent, and what holds besides, for who looks at a state.

use super::hold::Kind;
use super::ledger::Ledger;
use super::number::Number;
use super::{Counter, Rule};

/// How much of a quota is spent, slots that are reserved ahead included, and how much could be at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spent {
    pub(crate) used: u64,
    pub(crate) capacity: u64,
    /// Whether it is not less.
    pub(crate) is_exact: bool,
    /// How much of it is recorded as departed by now, where that is kept.
    pub(crate) departed: Option<u64>,
}

impl Ledger {
    /// What is spent of each of these rules, by which the ledger counts, when it has forgotten what is past.
    pub(crate) fn spent(&self, rules: &[Rule], now: u64) -> impl Iterator<Item = Spent> {
        let counters = self.counters.iter();
        rules.iter().zip(counters).map(move |(rule, counter)| {
            let capacity = capacity(rule);
            let (used, is_exact) = used(counter, now);
            Spent {
                used: used.min(capacity),
                capacity,
                is_exact,
                departed: departed(counter, now),
            }
        })
    }

    /// Until when nothing departs, as somebody has said so.
    pub(crate) fn paused_until(&self) -> Option<u64> {
        self.hold(Kind::Pause).map(|hold| hold.until)
    }

    /// Until when no more than so much may be handed out, as the upstream has said so.
    pub(crate) fn allowed_until(&self) -> Option<(u32, u64)> {
        let hold = self.hold(Kind::Allowance);
        hold.map(|hold| (hold.left, hold.until))
    }

    /// Until when nothing departs, as the state was lost.
    pub(crate) fn rests_until(&self) -> Option<u64> {
        self.hold(Kind::Rest).map(|hold| hold.until)
    }

    /// How many slots were given back that the next requests take.
    pub(crate) fn free_slots(&self) -> usize {
        self.free.len()
    }
}

fn capacity(rule: &Rule) -> u64 {
    match *rule {
        Rule::SlidingLog { limit, .. }
        | Rule::SlidingBuckets { limit, .. }
        | Rule::FixedWindow { limit, .. } => limit.into(),
        Rule::Spacing { .. } => 1,
        Rule::LeakyBucket { capacity, .. } => capacity.into(),
        Rule::Gcra {
            interval,
            tolerance,
        } => tolerance / interval + 1,
    }
}

/// How much is spent, and whether it is not less.
fn used(counter: &Counter, now: u64) -> (u64, bool) {
    match counter {
        Counter::SlidingLog(log) => (log.records.len() as u64, true),
        Counter::SlidingBuckets(buckets) => {
            let places = 0..buckets.buckets.len();
            (places.map(|place| buckets.count(place)).sum(), true)
        }
        Counter::FixedWindow(fixed) if fixed.window.end <= now => (0, true),
        // Later windows are begun only when this one is full.
        Counter::FixedWindow(fixed) if now < fixed.window.start => (u64::MAX, true),
        Counter::FixedWindow(fixed) => (fixed.window.count, true),
        Counter::Spacing(spacing) => intervals(&spacing.0, now),
        Counter::LeakyBucket(bucket) => intervals(&bucket.number, now),
        Counter::Gcra(gcra) => intervals(&gcra.arrival, now),
        Counter::Hold(_) => unreachable!("no rule counts by it"),
    }
}

/// How much is recorded as departed by now. Of a bucket that has not ended, it may be all.
fn departed(counter: &Counter, now: u64) -> Option<u64> {
    match counter {
        Counter::SlidingLog(log) => {
            let departed = log.records.iter().filter(|record| **record <= now);
            Some(departed.count() as u64)
        }
        Counter::SlidingBuckets(buckets) => {
            let begun = |place: &usize| buckets.buckets[*place].end <= now + buckets.width;
            let begun = (0..buckets.buckets.len()).filter(begun);
            Some(begun.map(|place| buckets.count(place)).sum())
        }
        Counter::FixedWindow(_)
        | Counter::Spacing(_)
        | Counter::LeakyBucket(_)
        | Counter::Gcra(_)
        | Counter::Hold(_) => None,
    }
}

/// How many intervals lie ahead, to the nearest. A record is later than its slot by the guard and the buffer of who has
/// written it, which a time alone does not tell: so no more is spent than this, and where these are as long as
/// intervals, less.
fn intervals(number: &Number, now: u64) -> (u64, bool) {
    let Number { interval, time } = *number;
    let ahead = time.saturating_sub(now);
    let whole = (ahead + interval / 2) / interval;
    (whole.max(u64::from(ahead > 0)), ahead == 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::ledger::{Ask, Terms};
    use super::*;
    use crate::quota::Quota;

    const NOW: u64 = 1_763_000_000_000_000;
    const SECOND: u64 = 1_000_000;

    fn spent(text: &str, cost: u32, later: u64) -> (u64, u64) {
        let spent = spent_with(5_000, text, cost, later);
        (spent.used, spent.capacity)
    }

    fn spent_with(margin: u64, text: &str, cost: u32, later: u64) -> Spent {
        let quota: Quota = text.parse().unwrap();
        let rules = [Rule::new(&quota).unwrap()];
        let mut ledger = Ledger::new(&rules);
        let terms = Terms::of_margin(margin);
        let ask = Ask {
            count: cost,
            cost: 1,
            max_wait: u64::MAX,
        };
        ledger.reserve(NOW, &terms, &[ask]);
        ledger.reserve(NOW + later, &terms, &[]);
        ledger.spent(&rules, NOW + later).next().unwrap()
    }

    #[test]
    fn what_is_reserved_is_spent_until_it_counts_no_longer() {
        for (text, capacity) in [
            ("10/s", 10),
            ("10/s sliding-buckets buckets=5", 10),
            ("10/s gcra burst=10", 10),
            ("10/s fixed-window start=first-request", 10),
            ("10/s leaky-bucket capacity=20", 20),
        ] {
            assert_eq!(spent(text, 0, 0), (0, capacity), "{text}");
            assert_eq!(spent(text, 3, 0), (3, capacity), "{text}");
            assert_eq!(spent(text, 3, 3 * SECOND), (0, capacity), "{text}");
        }
        assert_eq!(spent("10/s spacing", 1, 0), (1, 1));
        assert_eq!(spent("10/s spacing", 1, SECOND), (0, 1));
    }

    #[test]
    fn a_line_spends_all_and_no_more() {
        for text in [
            "10/s",
            "10/s sliding-buckets buckets=5",
            "10/s gcra burst=5",
            "10/s fixed-window start=first-request",
            "10/s spacing",
            "10/s leaky-bucket capacity=20",
        ] {
            let (used, capacity) = spent(text, 50, 0);
            assert_eq!(used, capacity, "{text}");
        }
    }

    #[test]
    fn what_has_departed_is_told_apart_from_what_is_to_come() {
        for (text, later, departed) in [
            ("10/s", 0, Some(0)),
            ("10/s", SECOND / 2, Some(10)),
            // 1 s and a margin later, the next ten.
            ("10/s", SECOND * 5 / 4, Some(10)),
            ("10/s sliding-buckets buckets=5", SECOND / 2, Some(10)),
            ("10/s gcra burst=5", SECOND / 2, None),
            ("10/s fixed-window start=first-request", SECOND / 2, None),
        ] {
            let spent = spent_with(5_000, text, 25, later);
            assert_eq!(spent.departed, departed, "{text} after {later}");
            assert_eq!(spent.used, spent.capacity, "{text} after {later}");
        }
    }

    proptest! {
        #[test]
        fn what_counts_departures_tells_them_whatever_the_buffer(
            text in prop::sample::select(vec![
                "10/s",
                "10/s sliding-buckets buckets=5",
                "10/s fixed-window start=first-request",
            ]),
            count in 0..=10_u32,
            margin in 0..=10 * SECOND,
        ) {
            let Spent { used, capacity, is_exact, .. } = spent_with(margin, text, count, 0);
            prop_assert_eq!((used, capacity, is_exact), (count.into(), 10, true));
        }

        #[test]
        fn what_keeps_a_time_tells_no_less_than_is_spent_whatever_the_buffer(
            (text, capacity) in prop::sample::select(vec![
                ("10/s gcra burst=10", 10),
                ("10/s leaky-bucket capacity=20", 20),
                ("10/s spacing", 1),
            ]),
            count in 0..=20_u32,
            margin in 0..=10 * SECOND,
        ) {
            let Spent { used, capacity: most, is_exact, .. } = spent_with(margin, text, count, 0);
            prop_assert_eq!(most, capacity);
            prop_assert_eq!(is_exact, count == 0);
            prop_assert!(used >= u64::from(count).min(capacity), "{} of {}", used, count);
            prop_assert!(used > 0 || count == 0);
        }
    }
}
