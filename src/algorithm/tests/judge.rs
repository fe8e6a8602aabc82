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

/// Converts the times to a history, counted from 1970.
fn history(times: &[(u64, u64)]) -> History {
    let events = times.iter();
    events
        .map(|&(at, cost)| (Duration::from_micros(START + at), cost))
        .collect()
}

/// The most units in any half-open interval of this length.
pub(super) fn most_in_any(times: &[(u64, u64)], window: u64) -> u64 {
    history(times).most_in_any(Duration::from_micros(window))
}

/// Why these departures, in order, break the promise of a quota.
pub(super) fn fault(quota: &Counter, times: &[(u64, u64)]) -> Option<String> {
    let history = history(times);
    let micros = Duration::from_micros;
    let (most, limit): (u64, u64) = match quota {
        Counter::Window(it) => (history.most_in_any(micros(it.window)), it.limit.into()),
        Counter::Gcra(it) if it.spaced => {
            let at = history.too_close(micros(it.interval))?;
            return Some(format!("the departure at {at:?} is too close"));
        }
        Counter::Gcra(it) => (history.burst(micros(it.interval)), it.burst.into()),
        Counter::Fixed(it) if it.aligned => {
            (history.most_in_aligned(micros(it.window)), it.limit.into())
        }
        Counter::Fixed(it) => {
            let fits = history.fits_windows(it.limit.into(), micros(it.window));
            return (!fits).then(|| "no windows hold all departures".to_owned());
        }
    };
    (most > limit).then(|| format!("{most} units in a window or burst of {limit}"))
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
