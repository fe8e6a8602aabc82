//! Fixed windows.

use std::time::Duration;

use super::bench::Bench;
use super::policies::policy;
use super::quotas::keeps_its_bound;
use super::{GUARD, LONG, NEAR, any_wait, granted, judge, require};
use crate::algorithm::micros;
use crate::quota::{Algorithm, Quota, WindowStart};
use crate::store::{Reserve, Store};

fn fixed(limit: u32, window: Duration, start: WindowStart) -> Quota {
    Quota::new(limit, window).algorithm(Algorithm::FixedWindow { start })
}

/// They begin at multiples of their length.
pub(super) async fn windows_of_the_clock_hold_no_more_than_their_limit<S: Store>(bench: &Bench<S>) {
    let window = bench.clock_window().await;
    keeps_its_bound(bench, fixed(3, window, WindowStart::Clock)).await;
}

/// Each begins when none is open.
pub(super) async fn windows_from_the_first_request_hold_no_more_than_their_limit<S: Store>(
    bench: &Bench<S>,
) {
    keeps_its_bound(bench, fixed(3, LONG, WindowStart::FirstRequest)).await;
}

/// Not where the last one ended, if nobody came for a while.
pub(super) async fn a_window_begins_with_the_first_request_after_the_last<S: Store>(
    bench: &Bench<S>,
) {
    let quota = fixed(3, LONG, WindowStart::FirstRequest);
    let (key, policy) = (bench.key("key"), policy(&[quota]));
    let first = bench.slot(&key, &policy).await;
    let begin = first.at + micros(LONG) * 5 / 2;
    let reserve = Reserve {
        not_before: begin,
        asks: &[any_wait(4)],
        ..Reserve::new(&key, &policy)
    };
    let slots = granted(&bench.reserve(&reserve).await);
    judge::keeps(bench, &policy, &slots);
    judge::wastes_little(bench, &policy, &slots, begin);
}

/// Who would have its slot so late that it may depart in the next window has it there; who may not
/// has it at once.
pub(super) async fn no_guard_reaches_into_the_next_window<S: Store>(bench: &Bench<S>) {
    for start in [WindowStart::Clock, WindowStart::FirstRequest] {
        let window = bench.clock_window().await;
        let (key, policy) = (bench.key("key"), policy(&[fixed(3, window, start)]));
        let mut slots = vec![bench.slot(&key, &policy).await];
        let begin = match start {
            WindowStart::Clock => slots[0].at - slots[0].at % micros(window),
            WindowStart::FirstRequest => slots[0].at,
        };
        let end = begin + micros(window);
        for (not_before, latest) in [
            (end - micros(GUARD) * 2, end - micros(GUARD) * 2),
            (end - micros(GUARD) / 2, end),
        ] {
            let reserve = Reserve {
                not_before,
                ..Reserve::new(&key, &policy)
            };
            slots.extend(granted(&bench.reserve(&reserve).await));
            let at = slots[slots.len() - 1].at;
            require!(
                bench,
                at <= latest + NEAR,
                "{policy:?}: a slot at {at}, where {latest} would do"
            );
        }
        judge::keeps(bench, &policy, &slots);
    }
}

/// In none of them do more depart than the limit, wherever within their guards.
pub(super) async fn who_may_depart_in_several_windows_counts_in_all<S: Store>(bench: &Bench<S>) {
    for window in [GUARD / 4, GUARD, GUARD * 3 / 2] {
        let quota = fixed(2, window, WindowStart::Clock);
        let (key, policy) = (bench.key("key"), policy(&[quota]));
        let mut slots = Vec::new();
        for count in [1, 4, 2, 6] {
            slots.extend(bench.slots(&key, &policy, count).await);
        }
        judge::keeps(bench, &policy, &slots);
    }
}
