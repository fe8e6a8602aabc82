//! Slots judged by what their quotas say: with plain arithmetic over all of them, so that nothing is
//! taken on trust from the algorithms of this crate.
//!
//! A request departs, and arrives upstream, at some time from its slot to the slot's record. So
//! what is looked for is the worst that may happen within these spans.

use super::bench::Bench;
use super::{require, times};
use crate::algorithm::micros;
use crate::policy::Policy;
use crate::quota::{Algorithm, Quota, WindowStart};
use crate::store::{Slot, Store};

/// What a store may waste, of a window.
pub(super) const WASTE: u64 = 20;

/// How often quotas may push a time later, until none does.
const PATIENCE: usize = 100;

/// Between two requests that come evenly.
pub(super) fn interval(quota: &Quota) -> u64 {
    micros(quota.window()).div_ceil(quota.limit().into())
}

/// Whatever happens, these slots keep every quota.
pub(super) fn keeps<S: Store>(bench: &Bench<S>, policy: &Policy, slots: &[Slot]) {
    let mut slots = slots.to_vec();
    slots.sort_by_key(|slot| (slot.at, slot.record));
    for quota in policy.quotas() {
        let excess = match quota.counted_by() {
            Algorithm::SlidingLog | Algorithm::SlidingBuckets { .. } => too_many(quota, &slots),
            Algorithm::Spacing | Algorithm::LeakyBucket { .. } => too_close(quota, &slots),
            Algorithm::Gcra { burst } => too_bursty(quota, burst, &slots),
            Algorithm::FixedWindow { start } => overfull(quota, start, &slots),
        };
        if let Some(excess) = excess {
            bench.fail(format_args!("{quota}: {excess}: {:?}", times(&slots)));
        }
    }
}

/// These slots, in the order in which they were handed out, come no later than the quotas ask for;
/// none could have come before `from`.
pub(super) fn wastes_little<S: Store>(
    bench: &Bench<S>,
    policy: &Policy,
    slots: &[Slot],
    from: u64,
) {
    let waste: u64 = policy
        .quotas()
        .iter()
        .map(|quota| micros(quota.window()) / WASTE)
        .sum();
    let mut x = from;
    for (place, slot) in slots.iter().enumerate() {
        let earliest = earliest(policy, &slots[..place], slot, x);
        require!(
            bench,
            slot.at <= earliest + waste,
            "{}: number {place} could be at {earliest} in {:?}",
            policy.id(),
            times(slots)
        );
        x = x.max(slot.at);
    }
}

/// When all may depart that the quotas allow at most, if no more slots follow: by when at the latest
/// the answer has to say so is a little later for buckets, which count until they end.
pub(super) fn reset(policy: &Policy, slots: &[Slot]) -> (u64, u64) {
    let ends = policy.quotas().iter().map(|quota| {
        let window = micros(quota.window());
        let last = slots.iter().map(|slot| slot.record).max().unwrap_or(0);
        match quota.counted_by() {
            Algorithm::SlidingLog => (last + window, last + window),
            Algorithm::SlidingBuckets { buckets } => {
                (last + window, last + window + width(window, buckets))
            }
            Algorithm::Spacing | Algorithm::LeakyBucket { .. } | Algorithm::Gcra { .. } => {
                let even = evenly(quota, slots);
                (even, even)
            }
            Algorithm::FixedWindow { start } => {
                let end = last_window(window, start, slots).0 + window;
                (end, end)
            }
        }
    });
    ends.fold((0, 0), |(a, b), (c, d)| (a.max(c), b.max(d)))
}

/// How many of cost 1 may depart where nothing is recorded.
pub(super) fn all(policy: &Policy) -> u32 {
    let all = |quota: &Quota| match quota.counted_by() {
        Algorithm::Spacing | Algorithm::LeakyBucket { .. } => 1,
        // The guard and the buffer are taken from the burst, behind the first.
        Algorithm::Gcra { burst } => {
            let interval = micros(quota.window()).div_ceil(quota.limit().into());
            let taken = micros(policy.guard() + policy.buffer()).div_ceil(interval);
            let left = u64::from(burst).saturating_sub(taken).max(1);
            u32::try_from(left).unwrap_or(burst)
        }
        _ => quota.largest_cost(),
    };
    policy.quotas().iter().map(all).min().unwrap_or(0)
}

/// More than the limit may depart in one window.
fn too_many(quota: &Quota, slots: &[Slot]) -> Option<String> {
    let window = micros(quota.window());
    // Any such window can be moved right until it starts where a span ends.
    slots.iter().find_map(|first| {
        let start = first.record;
        let within = slots
            .iter()
            .filter(|slot| slot.record >= start && slot.at < start + window);
        let weight: u32 = within.map(|slot| slot.cost).sum();
        (weight > quota.limit()).then(|| format!("{weight} may depart in one window"))
    })
}

fn too_close(quota: &Quota, slots: &[Slot]) -> Option<String> {
    slots.windows(2).find_map(|pair| {
        let least = pair[0].record + interval(quota) * u64::from(pair[0].cost);
        let next = pair[1].at;
        (next < least).then(|| format!("the slot at {next} lies before {least}"))
    })
}

/// In some window of length w, more than burst + w * N/W may depart.
fn too_bursty(quota: &Quota, burst: u32, slots: &[Slot]) -> Option<String> {
    for (place, first) in slots.iter().enumerate() {
        let mut count = 0;
        for last in &slots[place..] {
            count += u64::from(last.cost);
            let span = last.at.saturating_sub(first.record);
            if count > u64::from(burst) + span / interval(quota) {
                return Some(format!("{count} may depart within {span} us"));
            }
        }
    }
    None
}

/// More than the limit may depart in one of the windows, or one of two.
fn overfull(quota: &Quota, start: WindowStart, slots: &[Slot]) -> Option<String> {
    let (limit, window) = (quota.limit(), micros(quota.window()));
    let full = |weight: u32| (weight > limit).then(|| format!("{weight} may depart in one window"));
    match start {
        WindowStart::Clock => slots.iter().find_map(|slot| {
            let number = slot.at / window;
            let within = slots
                .iter()
                .filter(|other| (other.at / window..=other.record / window).contains(&number));
            full(within.map(|slot| slot.cost).sum())
        }),
        WindowStart::FirstRequest => (0..slots.len()).find_map(|place| {
            let slots = &slots[..=place];
            let (begin, weight) = last_window(window, start, slots);
            let record = slots[place].record;
            let late = record >= begin + window;
            late.then(|| format!("{record} is in the window after that of its slot"))
                .or_else(|| full(weight))
        }),
    }
}

/// The first time at which a slot like this could be, behind those before it and not before `x`.
fn earliest(policy: &Policy, before: &[Slot], slot: &Slot, x: u64) -> u64 {
    let mut at = x;
    for _ in 0..PATIENCE {
        let push = |at, quota: &Quota| earliest_by(quota, before, slot, at);
        let pushed = policy.quotas().iter().fold(at, push);
        if pushed == at {
            break;
        }
        at = pushed;
    }
    at
}

fn earliest_by(quota: &Quota, before: &[Slot], slot: &Slot, x: u64) -> u64 {
    let window = micros(quota.window());
    match quota.counted_by() {
        Algorithm::SlidingLog => x.max(leaves(quota, before, slot.cost, window)),
        Algorithm::SlidingBuckets { buckets } => {
            let window = window + width(window, buckets);
            x.max(leaves(quota, before, slot.cost, window))
        }
        Algorithm::Spacing | Algorithm::LeakyBucket { .. } => x.max(evenly(quota, before)),
        Algorithm::Gcra { burst } => {
            let last_unit = evenly(quota, before) + interval(quota) * u64::from(slot.cost);
            x.max(last_unit.saturating_sub(interval(quota) * u64::from(burst)))
        }
        Algorithm::FixedWindow { start } => {
            let (begin, weight) = last_window(window, start, before);
            let late = slot.record - slot.at;
            let mut x = x.max(begin);
            if x < begin + window {
                if weight + slot.cost <= quota.limit() && x + late < begin + window {
                    return x;
                }
                x = begin + window;
            }
            let end = x - x % window + window;
            if start == WindowStart::Clock && x + late >= end {
                end
            } else {
                x
            }
        }
    }
}

/// When so much has left the window that a request of this cost has room.
fn leaves(quota: &Quota, before: &[Slot], cost: u32, window: u64) -> u64 {
    let mut weight = cost;
    for slot in before.iter().rev() {
        weight += slot.cost;
        if weight > quota.limit() {
            return slot.record + window;
        }
    }
    0
}

/// When the next request would come if all came evenly.
fn evenly(quota: &Quota, before: &[Slot]) -> u64 {
    before.iter().fold(0, |time, slot| {
        time.max(slot.record) + interval(quota) * u64::from(slot.cost)
    })
}

/// Where the window begins in which the last of these slots lies, and how much departs in it.
fn last_window(window: u64, start: WindowStart, slots: &[Slot]) -> (u64, u32) {
    let (mut begin, mut end, mut weight) = (0, 0, 0);
    for slot in slots {
        if slot.at >= end {
            begin = match start {
                WindowStart::Clock => slot.at - slot.at % window,
                WindowStart::FirstRequest => slot.at,
            };
            (end, weight) = (begin + window, 0);
        }
        weight += slot.cost;
    }
    (begin, weight)
}

fn width(window: u64, buckets: u32) -> u64 {
    window.div_ceil(buckets.into())
}
