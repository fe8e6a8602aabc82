//! The leaky bucket, which is the one quota that refuses by itself.

use std::time::Duration;

use super::bench::Bench;
use super::policies::policy;
use super::{GUARD, LONG, NEAR, any_wait, at_once, granted, judge, refused, require};
use crate::algorithm::micros;
use crate::quota::{Algorithm, Quota};
use crate::store::{Ask, Store};

fn leaky(limit: u32, window: Duration, capacity: u32) -> Quota {
    Quota::new(limit, window).algorithm(Algorithm::LeakyBucket { capacity })
}

/// One departs, and so many wait: asked for in one call, or one by one, or as one of a cost.
pub(super) async fn a_leaky_bucket_holds_as_many_as_its_capacity<S: Store>(bench: &Bench<S>) {
    for capacity in [1, 5, 12] {
        let policy = policy(&[leaky(4, LONG, capacity)]);
        let name = policy.id();
        let key = bench.key("at once");
        let answer = bench.ask(&key, &policy, &[any_wait(capacity + 5)]).await;
        let (slots, waits) = (granted(&answer), refused(&answer));
        require!(
            bench,
            slots.len() == capacity as usize + 1,
            "{name}: {} are granted",
            slots.len()
        );
        judge::keeps(bench, &policy, &slots);
        judge::wastes_little(bench, &policy, &slots, answer.now());
        let alike = waits.iter().all(|wait| *wait == waits[0]);
        require!(bench, alike, "{name}: a full one tells {waits:?}");

        let key = bench.key("one by one");
        for place in 0..=capacity {
            let answer = bench.ask(&key, &policy, &[any_wait(1)]).await;
            let room = refused(&answer).is_empty();
            require!(bench, room, "{name}: number {place} finds it full");
        }
        let answer = bench.ask(&key, &policy, &[any_wait(1)]).await;
        let full = granted(&answer).is_empty();
        require!(bench, full, "{name}: it holds more than its capacity");
    }
    let (key, policy) = (bench.key("costs"), policy(&[leaky(4, LONG, 4)]));
    let costing = |cost| Ask {
        cost,
        ..any_wait(1)
    };
    // The next would come after these two, and wait for what they cost.
    let asks = [costing(1), costing(3), costing(1), costing(1)];
    let answer = bench.ask(&key, &policy, &asks).await;
    let count = granted(&answer).len();
    require!(bench, count == 3, "{count} with a cost are granted");
}

/// However often one asks, it stays as full as it is, and says when the next could depart.
pub(super) async fn a_full_leaky_bucket_records_nothing<S: Store>(bench: &Bench<S>) {
    let (key, policy) = (bench.key("key"), policy(&[leaky(4, LONG, 3)]));
    let slots = bench.slots(&key, &policy, 9).await;
    let (expected, _) = judge::reset(&policy, &slots);
    let mut promises = Vec::new();
    for asks in [
        &[any_wait(1)][..],
        &[any_wait(7), at_once(3)],
        &[any_wait(1)],
    ] {
        let answer = bench.ask(&key, &policy, asks).await;
        let none = granted(&answer).is_empty();
        require!(bench, none, "a full one grants {:?}", granted(&answer));
        promises.extend(refused(&answer).iter().map(|wait| answer.now() + wait));
    }
    let alike = promises.iter().all(|told| *told == promises[0]);
    require!(bench, alike, "told to wait until {promises:?}");
    let near = promises[0].abs_diff(expected) <= micros(LONG) / judge::WASTE;
    require!(
        bench,
        near,
        "told to wait until {promises:?}, for {expected}"
    );
}

/// Time alone makes room.
pub(super) async fn a_leaky_bucket_leaks_by_itself<S: Store>(bench: &Bench<S>) {
    let quota = leaky(4, Duration::from_millis(1_200), 2);
    let (key, policy) = (bench.key("key"), policy(&[quota]));
    let answer = bench.ask(&key, &policy, &[any_wait(4)]).await;
    let slots = granted(&answer);
    judge::wastes_little(bench, &policy, &slots, answer.now());
    let promised = answer.now() + refused(&answer).first().copied().unwrap_or(0);
    let longest = 2 * (judge::interval(&quota) + micros(GUARD));
    bench.wait_until_after(promised - longest).await;
    let slots = [slots, bench.slots(&key, &policy, 1).await].concat();
    require!(bench, slots.len() == 4, "no room after one has left");
    judge::keeps(bench, &policy, &slots);
    // Nobody came meanwhile: what was promised before holds, or its time has passed.
    let latest = promised.max(bench.now().await) + NEAR;
    let at = slots[3].at;
    require!(bench, at <= latest, "a slot at {at}, promised {promised}");
}

/// When the last leaves, there is room for one.
pub(super) async fn a_full_leaky_bucket_takes_one_for_each_that_leaves<S: Store>(bench: &Bench<S>) {
    let (key, policy) = (bench.key("key"), policy(&[leaky(4, LONG, 3)]));
    let mut slots = bench.slots(&key, &policy, 9).await;
    let last = slots.split_off(slots.len() - 1);
    bench.release(&key, &policy, &last).await;
    let again = bench.slots(&key, &policy, 2).await;
    let same = again.len() == 1 && again[0].at.abs_diff(last[0].at) <= NEAR;
    require!(bench, same, "{last:?} was given back, {again:?} handed out");
}
