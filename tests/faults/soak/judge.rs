//! The judgment: no window of any key holds more than is promised.

use std::panic::catch_unwind;
use std::time::Duration;

use tower_throttle::test_util::history::History;

use super::quotas::Bound;

/// How long after a loss requests may still depart that were granted before: longer than a horizon and a guard.
pub(crate) const REACH: Duration = Duration::from_secs(3);

/// A loss of state that no process could notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gap {
    pub(crate) from: Duration,
    pub(crate) to: Duration,
    /// How many more may depart in a window.
    pub(crate) extra: u64,
}

/// When, and how much it counts.
pub(crate) type Event = (Duration, u64);

/// A window that holds too much, if there is one. `events` are sorted by time, `gaps` too.
///
/// A window that begins before a gap is over, and its [reach](REACH), and does not end before it begins, may
/// hold more for each loss.
pub(crate) fn judge(events: &[Event], bound: &Bound, gaps: &[Gap]) -> Option<String> {
    let mut excess = None;
    let mut calm_from = Duration::ZERO;
    for gap in joined(gaps, bound.window) {
        let calm = between(events, calm_from, gap.from);
        let begins = gap.from.saturating_sub(bound.window);
        let around = between(events, begins, gap.to + bound.window);
        excess = excess.or_else(|| exceeds(calm, bound, 0));
        excess = excess.or_else(|| exceeds(around, bound, gap.extra));
        calm_from = gap.to;
    }
    let calm = between(events, calm_from, Duration::MAX);
    excess.or_else(|| exceeds(calm, bound, 0))
}

fn exceeds(events: &[Event], bound: &Bound, extra: u64) -> Option<String> {
    let &(first, _) = events.first()?;
    let events = events.iter().map(|&(at, weight)| (at - first, weight));
    let history: History = events.collect();
    let check = || history.assert_at_most(bound.most + extra, bound.window);
    let panic = catch_unwind(check).err()?;
    let text = panic.downcast::<String>().expect("text");
    Some(format!("{text}\n  (since {first:?})"))
}

/// With their reach; those become one that have a window in common.
fn joined(gaps: &[Gap], window: Duration) -> Vec<Gap> {
    let mut joined: Vec<Gap> = Vec::new();
    for gap in gaps {
        let to = gap.to + REACH;
        match joined.last_mut() {
            Some(last) if gap.from <= last.to + window => {
                last.to = last.to.max(to);
                last.extra += gap.extra;
            }
            _ => joined.push(Gap { to, ..*gap }),
        }
    }
    joined
}

fn between(events: &[Event], from: Duration, to: Duration) -> &[Event] {
    let place = |time| events.partition_point(|&(at, _)| at < time);
    &events[place(from)..place(to)]
}

#[test]
fn one_more_than_promised_is_found_but_for_as_much_again_at_each_loss() {
    let ms = Duration::from_millis;
    // Under two per second, with losses from each of these times to the next.
    let is_excess = |events: &[u64], gaps: &[(u64, u64)]| {
        let bound = Bound::of("2/s".parse().expect("a quota"));
        let events: Vec<_> = events.iter().map(|&at| (ms(at), 1)).collect();
        let gap = |&(from, to)| Gap {
            from: ms(from),
            to: ms(to),
            extra: 2,
        };
        judge(&events, &bound, &gaps.iter().map(gap).collect::<Vec<_>>()).is_some()
    };
    let (gap, later) = ((20_000, 20_100), 20_100 + 3_000);
    let twice = [19_998, 19_999, 20_500, 20_501];
    let more = [19_998, 19_999, 20_500, 20_501, 20_502];
    for (events, gaps, expected) in [
        (&[0, 500, 1_000, 1_500][..], &[][..], false),
        (&[0, 500, 999], &[], true),
        (&[18_000, 18_001, 18_002], &[gap], true),
        (&[later, later + 1, later + 2], &[gap], true),
        (&[19_000, 19_001, 19_002], &[(19_500, 19_600)], true),
        (&twice, &[gap], false),
        (&twice, &[], true),
        (&more, &[gap], true),
        (&more, &[gap, (20_400, 20_450)], false),
    ] {
        assert_eq!(is_excess(events, gaps), expected, "{events:?} {gaps:?}");
    }
}
