//! Judges departures by their times and costs alone, without the code that granted them.

use std::time::Duration;

use super::super::Counter;
use super::START;
use crate::test_util::history::History;

/// Converts the times to a history, counted from 1970.
fn history(times: &[(u64, u64)]) -> History {
    let event = |&(at, cost): &(u64, u64)| (Duration::from_micros(START + at), cost);
    times.iter().map(event).collect()
}

pub(super) fn most_in_any(times: &[(u64, u64)], window: u64) -> u64 {
    history(times).most_in_any(Duration::from_micros(window))
}

/// Why these departures, in order, break the promise of a quota.
pub(super) fn fault(quota: &Counter, times: &[(u64, u64)]) -> Option<String> {
    history(times).fault(&quota.quota())
}

/// The most units in a window if each begins with the first departure after the one before.
pub(super) fn most_from_first(times: &[(u64, u64)], window: u64) -> u64 {
    let (mut end, mut units, mut most) = (0, 0, 0);
    for &(at, cost) in times {
        if at >= end {
            (end, units) = (at + window, 0);
        }
        units += cost;
        most = most.max(units);
    }
    most
}
