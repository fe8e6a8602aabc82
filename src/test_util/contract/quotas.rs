//! Each quota keeps its bound, alone and together.

use std::time::Duration;

use super::{Bench, GUARD, LONG, any_wait, at_once, granted, log, policy, require, times, waits};
use crate::algorithm::micros;
use crate::limiter::Limiter;
use crate::quota::{Algorithm, Quota};
use crate::store::{Ask, Reserved, Slot, Store};

/// What a store may waste, of a window.
const WASTE: u64 = 20;

/// Any N + 1 of these are more than a window apart, and no more than the guard asks for.
pub(super) fn check_log<S: Store>(bench: &Bench<S>, slots: &[Slot], limit: u32, window: Duration) {
    let mut times: Vec<_> = slots
        .iter()
        .flat_map(|slot| (0..slot.cost).map(|_| slot.at))
        .collect();
    times.sort_unstable();
    let least = micros(window + GUARD);
    for group in times.windows(limit as usize + 1) {
        let span = group[limit as usize] - group[0];
        require!(
            bench,
            span >= least,
            "with a limit of {limit}, {} depart within {span} us, less than window and guard: {times:?}",
            limit + 1
        );
    }
}

fn check_waste<S: Store>(
    bench: &Bench<S>,
    times: &[u64],
    bound: impl Fn(usize) -> u64,
    window: Duration,
) {
    for (place, &at) in times.iter().enumerate() {
        let latest = bound(place) + micros(window) / WASTE;
        require!(
            bench,
            at <= latest,
            "number {place} could be at {} in {times:?}",
            bound(place)
        );
    }
}

/// At most N in any window, by their slots and by the ends of their guards; and no fewer than could
/// be.
pub(super) async fn a_sliding_log_never_exceeds_its_limit<S: Store>(bench: &Bench<S>) {
    let (limit, window, buffer) = (3, LONG, Duration::from_millis(500));
    let builder = Limiter::builder()
        .quota(Quota::new(limit, window))
        .guard(GUARD)
        .buffer(buffer);
    let policy = builder.build().expect("a quota that can hold").policy();
    let key = bench.key("key");
    let mut slots = Vec::new();
    for count in [1, 1, 2, 5, 1, 7] {
        slots.extend(bench.slots(&key, &policy, count).await);
    }
    check_log(bench, &slots, limit, window + buffer);
    let now = bench.now().await;
    let times = times(&slots);
    require!(
        bench,
        times.is_sorted(),
        "the slots are out of order: {times:?}"
    );
    let bound = |place: usize| match place.checked_sub(limit as usize) {
        None => now,
        Some(before) => times[before] + micros(window + GUARD + buffer),
    };
    check_waste(bench, &times, bound, window);
}

/// Every two are at least W/N apart, times the cost of the first.
pub(super) async fn spacing_keeps_its_gaps<S: Store>(bench: &Bench<S>) {
    let policy = policy(&[Quota::new(4, LONG).algorithm(Algorithm::Spacing)]);
    let gap = micros(LONG) / 4;
    let key = bench.key("key");
    let costly = Ask {
        cost: 3,
        ..any_wait(2)
    };
    let mut slots = bench.slots(&key, &policy, 2).await;
    slots.extend(granted(
        &bench
            .ask(&key, &policy, &[any_wait(1), costly, any_wait(3)])
            .await,
    ));
    let times = times(&slots);
    for (place, pair) in slots.windows(2).enumerate() {
        let least = pair[0].at + gap * u64::from(pair[0].cost) + micros(GUARD);
        let next = pair[1].at;
        require!(
            bench,
            next >= least,
            "number {} lies before {least}: {times:?}",
            place + 1
        );
    }
    let bound = |place: usize| match place.checked_sub(1) {
        None => slots[0].at,
        Some(before) => slots[before].at + gap * u64::from(slots[before].cost) + micros(GUARD),
    };
    check_waste(bench, &times, bound, LONG);
}

/// In any window of length w, at most burst + w * N/W, wherever within their guards they depart.
pub(super) async fn gcra_keeps_its_burst_and_rate<S: Store>(bench: &Bench<S>) {
    let (burst, interval) = (3, micros(LONG) / 5);
    let policy = policy(&[Quota::new(5, LONG).algorithm(Algorithm::Gcra { burst })]);
    let key = bench.key("key");
    let mut slots = bench.slots(&key, &policy, 2).await;
    slots.extend(bench.slots(&key, &policy, 8).await);
    let times = times(&slots);
    for (i, &first) in times.iter().enumerate() {
        for (j, &last) in times.iter().enumerate().skip(i) {
            let span = last.saturating_sub(first + micros(GUARD));
            let most = u64::from(burst) + span / interval;
            let count = (j - i + 1) as u64;
            require!(
                bench,
                count <= most,
                "{count} depart within {span} us: {times:?}"
            );
        }
    }
    let now = bench.now().await;
    let beyond = |place: usize| (place + 1).saturating_sub(burst as usize) as u64;
    check_waste(
        bench,
        &times,
        |place| now + beyond(place) * interval + micros(GUARD),
        LONG,
    );
}

/// Two logs at once, and a log with spacing.
pub(super) async fn joint_quotas_all_hold<S: Store>(bench: &Bench<S>) {
    let (short, long) = (Quota::new(2, LONG / 10), Quota::new(5, LONG));
    let both = policy(&[short, long]);
    let slots = bench.slots(&bench.key("logs"), &both, 12).await;
    for quota in [short, long] {
        check_log(bench, &slots, quota.limit(), quota.window());
    }
    let spacing = Quota::new(10, LONG).algorithm(Algorithm::Spacing);
    let slots = bench
        .slots(&bench.key("spaced"), &policy(&[spacing, long]), 12)
        .await;
    check_log(bench, &slots, 1, LONG / 10);
    check_log(bench, &slots, long.limit(), LONG);
}

/// One quota refuses; the other, which would have allowed all, has as much left as before.
pub(super) async fn joint_quotas_are_charged_all_or_none<S: Store>(bench: &Bench<S>) {
    let (minute, longer) = (LONG, LONG * 10);
    for (window, other) in [(minute, longer), (longer, minute)] {
        let (strict, loose) = (Quota::new(1, window), Quota::new(3, other));
        for quotas in [[strict, loose], [loose, strict]] {
            charges_all_or_none(bench, &quotas, window).await;
        }
    }
}

async fn charges_all_or_none<S: Store>(bench: &Bench<S>, quotas: &[Quota], strict: Duration) {
    let policy = policy(quotas);
    let (name, key) = (policy.id(), bench.key("key"));
    let first = bench.slot(&key, &policy).await;
    let impatient = bench
        .ask(&key, &policy, &[at_once(5), waits(5, 1_000)])
        .await;
    let slots = granted(&impatient);
    require!(
        bench,
        slots.is_empty(),
        "{name}: granted beyond a quota: {slots:?}"
    );
    let then = bench.slots(&key, &policy, 2).await;
    let (last, latest) = (
        then[1].at,
        first.at + micros(strict + GUARD) * 2 + micros(LONG) / WASTE,
    );
    require!(
        bench,
        last <= latest,
        "{name}: refused requests were charged: {last} for {latest}"
    );
}

/// After k of N, N - k are left; all are once the last record is a window old.
pub(super) async fn remaining_and_reset_tell_what_is_left<S: Store>(bench: &Bench<S>) {
    let check = |answer: &Reserved, least, remaining, reset: Duration| {
        let left = answer.remaining();
        require!(
            bench,
            left == remaining,
            "{left} remain instead of {remaining}"
        );
        let told = answer.reset();
        let within = told >= least && told <= reset + LONG / 20;
        require!(bench, within, "the reset is {told:?} instead of {reset:?}");
    };
    let (key, policy) = (bench.key("log"), log(5));
    let reset = LONG + GUARD;
    for (ask, left) in [(any_wait(2), 3), (any_wait(1), 2), (any_wait(2), 0)] {
        check(&bench.ask(&key, &policy, &[ask]).await, LONG, left, reset);
    }
    check(
        &bench.ask(&key, &policy, &[at_once(1)]).await,
        LONG / 2,
        0,
        reset,
    );
    check(
        &bench.ask(&key, &policy, &[any_wait(1)]).await,
        LONG * 3 / 2,
        0,
        reset * 2,
    );

    let joint = super::policy(&[Quota::new(5, LONG), Quota::new(3, LONG * 2)]);
    let answer = bench.ask(&bench.key("joint"), &joint, &[any_wait(1)]).await;
    check(&answer, LONG * 2, 2, LONG * 2 + GUARD);

    let spacing = super::policy(&[Quota::new(4, LONG).algorithm(Algorithm::Spacing)]);
    let answer = bench
        .ask(&bench.key("spacing"), &spacing, &[any_wait(1)])
        .await;
    check(&answer, LONG / 4, 0, LONG / 4 + GUARD);
}
