//! Judges departures by their times and costs alone, without the code that granted them.

use std::time::Duration;

use super::super::Counter;
use super::simulation::{Departed, Outcome, START, Setup};
use crate::test_util::history::History;

/// Times from the start and costs, sorted.
pub(super) fn times(departed: &[Departed], time: impl Fn(&Departed) -> u64) -> Vec<(u64, u64)> {
    let times = departed.iter().map(|it| (time(it) - START, it.cost.into()));
    let mut times: Vec<_> = times.collect();
    times.sort_unstable();
    times
}

/// The most units in any half-open interval of this length.
pub(super) fn most_in_any(times: &[(u64, u64)], window: u64) -> u64 {
    let events = times
        .iter()
        .map(|&(at, cost)| (Duration::from_micros(at), cost));
    let history: History = events.collect();
    history.most_in_any(Duration::from_micros(window))
}

/// Why these departures, in order, break the promise of a quota.
pub(super) fn fault(quota: &Counter, times: &[(u64, u64)]) -> Option<String> {
    let found = match quota {
        Counter::Window(it) => (most_in_any(times, it.window), it.limit.into()),
        Counter::Gcra(it) if it.spaced => return spacing_fault(times, it.interval),
        Counter::Gcra(it) => return gcra_fault(times, it.burst.into(), it.interval),
        Counter::Fixed(it) if it.aligned => (most_aligned(times, it.window), it.limit.into()),
        Counter::Fixed(it) => {
            let fits = fits_windows(times, it.window, it.limit.into());
            return (!fits).then(|| "no windows hold all departures".to_owned());
        }
    };
    let (most, limit): (u64, u64) = found;
    (most > limit).then(|| format!("{most} units in a window of {limit}"))
}

/// More than `burst + span / interval` units in any span.
fn gcra_fault(times: &[(u64, u64)], burst: u64, interval: u64) -> Option<String> {
    // A bucket that drains continuously never holds more than the burst.
    let (mut level, mut before) = (0, 0);
    for &(at, cost) in times {
        level = u64::saturating_sub(level, at - before) + cost * interval;
        before = at;
        if level > burst * interval {
            return Some(format!(
                "at {at} the bucket holds {level} of {}",
                burst * interval
            ));
        }
    }
    None
}

/// A departure less than its cost in intervals behind the one before it.
fn spacing_fault(times: &[(u64, u64)], interval: u64) -> Option<String> {
    let too_near = times
        .windows(2)
        .find(|it| it[1].0 - it[0].0 < it[0].1 * interval);
    too_near.map(|it| format!("{} and {} with a cost of {}", it[0].0, it[1].0, it[0].1))
}

fn most_aligned(times: &[(u64, u64)], window: u64) -> u64 {
    let number = |it: &(u64, u64)| (it.0 + START) / window;
    let windows = times.chunk_by(|a, b| number(a) == number(b));
    windows
        .map(|it| it.iter().map(|it| it.1).sum())
        .max()
        .unwrap_or(0)
}

/// True if some windows that do not overlap hold all departures, with at most `limit` units each.
///
/// The request that began a window may never depart, as its process was killed or was late.
fn fits_windows(times: &[(u64, u64)], window: u64, limit: u64) -> bool {
    // Each departure that may be the first of its window: the earliest and the latest start of the window.
    let mut starts: Vec<Option<(u64, u64)>> = Vec::new();
    let offset = window;
    for first in 0..=times.len() {
        let at = times.get(first).map_or(u64::MAX, |it| it.0 + offset);
        let Some(before) = first.checked_sub(1) else {
            let latest = latest_start(times, first, window, limit);
            starts.push(latest.map(|latest| (at - window, latest)));
            continue;
        };
        let end_of = |&(earliest, latest): &(u64, u64)| {
            let end = (earliest + window).max(times[before].0 + offset + 1);
            (end <= at.min(latest + window)).then_some(end)
        };
        let end = starts.iter().flatten().filter_map(end_of).min();
        let Some(_) = times.get(first) else {
            return end.is_some();
        };
        let latest = latest_start(times, first, window, limit);
        let start = end
            .zip(latest)
            .map(|(end, latest)| (end.max(at - window + 1), latest));
        starts.push(start.filter(|it| it.0 <= it.1));
    }
    true
}

/// The latest start of a window with this first departure that holds at most `limit` units, a window later.
fn latest_start(times: &[(u64, u64)], first: usize, window: u64, limit: u64) -> Option<u64> {
    let mut units = 0;
    let (at, _) = *times.get(first)?;
    let next = times[first..].iter().find(|it| {
        units += it.1;
        units > limit
    });
    Some(next.map_or(at + window, |next| next.0.min(at + window)))
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

/// Asserts the promises of all quotas, at departure and upstream.
#[track_caller]
pub(super) fn assert_safe(setup: &Setup, out: &Outcome) {
    for quota in &setup.quotas {
        for times in [
            times(&out.departed, |it| it.at),
            times(&out.departed, |it| it.upstream),
        ] {
            if let Some(fault) = fault(quota, &times) {
                panic!("{fault}, of {quota:?}, seed {}", setup.seed);
            }
        }
    }
}

/// The share of requests that overtake one that arrived more than 250 ms, and a tenth of its wait, earlier; processes
/// that are excused or overdue do not count as overtaken.
pub(super) fn unfair_share(out: &Outcome, excused: &[usize]) -> f64 {
    let mut by_arrival: Vec<_> = out.departed.iter().collect();
    by_arrival.retain(|it| !excused.contains(&it.process));
    by_arrival.sort_by_key(|it| it.arrival);
    let most = out.departed.iter().map(|it| it.serial).max().unwrap_or(0);
    let mut is_gone = vec![false; most + 1];
    let (mut first, mut unfair) = (0, 0);
    for it in &out.departed {
        while by_arrival.get(first).is_some_and(|it| is_gone[it.serial]) {
            first += 1;
        }
        let ahead = by_arrival[first..].iter();
        let ahead = ahead.take_while(|other| other.arrival + 250_000 < it.arrival);
        let later = ahead.filter(|other| !is_gone[other.serial] && other.at > it.at + 20_000);
        let is_overdue = |other: &Departed| {
            let mut spans = out.overdue.iter().filter(|span| span.0 == other.process);
            spans.any(|span| span.1 <= it.at && it.at <= span.2)
        };
        let mut overtaken = later.take(80).filter(|other| {
            it.arrival - other.arrival > (other.at - other.arrival) / 10 && !is_overdue(other)
        });
        unfair += usize::from(overtaken.next().is_some());
        is_gone[it.serial] = true;
    }
    unfair as f64 / out.departed.len().max(1) as f64
}

#[test]
fn windows_are_found_wherever_they_begin() {
    let fits = |times: &[u64]| {
        let times: Vec<_> = times.iter().map(|&at| (at, 1)).collect();
        fits_windows(&times, 10, 2)
    };
    assert!(fits(&[]) && fits(&[0, 1]) && fits(&[0, 1, 10, 11]));
    assert!(fits(&[5, 10, 11]), "a window begins at 0 and one at 10");
    assert!(fits(&[0, 1, 2, 3]) && !fits(&[0, 0, 0]) && !fits(&[0, 1, 2, 3, 4]));
    assert!(fits(&[0, 0, 1, 1, 11]) && !fits(&[0, 0, 1, 1, 2]));
    assert!(fits(&[0, 1, 10, 11, 12]) && fits(&[0, 1, 11, 12, 21, 22]));
}
