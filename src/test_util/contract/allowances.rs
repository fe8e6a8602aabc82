//! Allowances: no more than what is left may depart for a while.

use std::sync::Arc;

use super::bench::Bench;
use super::pauses::first_slot_is_at;
use super::policies::{each, log, policy};
use super::{LONG, PAUSE, any_wait, at_once, granted, judge, refused, require};
use crate::algorithm::micros;
use crate::policy::Policy;
use crate::store::{Ask, Slot, Store};

/// Quotas of each kind and all of them joined, that would let five go before [`PAUSE`] is over.
async fn ample<S: Store>(bench: &Bench<S>) -> Vec<(&'static str, Arc<Policy>)> {
    let each = each(bench, 20).await;
    let alone = |(name, quota): &(_, _)| (*name, policy(&[*quota]));
    let mut ample: Vec<_> = each.iter().map(alone).collect();
    ample.push(("all", policy(&each.map(|(_, quota)| quota))));
    ample
}

fn costing(count: u32, cost: u32) -> Ask {
    Ask {
        cost,
        ..any_wait(count)
    }
}

/// What may depart before then.
fn cost_before(slots: &[Slot], end: u64) -> u32 {
    let before = slots.iter().filter(|slot| slot.at < end);
    before.map(|slot| slot.cost).sum()
}

/// So many do, as the quotas allow; the next one at its end.
fn spends<S: Store>(bench: &Bench<S>, name: &str, slots: &[Slot], left: u32, end: u64) {
    let spent = cost_before(slots, end);
    require!(bench, spent == left, "{name}: {spent} of {left} may depart");
    let next = slots.iter().find(|slot| slot.at >= end);
    let next = next.map(|slot| slot.at);
    require!(
        bench,
        next == Some(end),
        "{name}: the next is at {next:?}, {left} are allowed until {end}"
    );
}

/// Asked for in one call, or one by one; and those that follow keep the quotas. Where nothing is left,
/// it is as good as a pause.
pub(super) async fn no_more_than_is_allowed_departs<S: Store>(bench: &Bench<S>) {
    for (name, policy) in ample(bench).await {
        for each in [1, 6] {
            let key = bench.key(&format!("{name} by {each}"));
            let word = bench.allow(&key, &policy, 3, PAUSE).await;
            let (_, looked) = bench.promise(&key, &policy, 1).await;
            let left = looked.remaining();
            require!(bench, left <= 3, "{name}: {left} of 3 remain");
            let mut slots = Vec::new();
            for _ in 0..6 / each {
                slots.extend(bench.slots(&key, &policy, each).await);
            }
            spends(bench, name, &slots, 3, word.now + micros(PAUSE));
            judge::keeps(bench, &policy, &slots);
            judge::wastes_little(bench, &policy, &slots[..3], word.now);
        }
        let key = bench.key(name);
        let word = bench.allow(&key, &policy, 0, PAUSE).await;
        let end = word.now + micros(PAUSE);
        let (promised, looked) = bench.promise(&key, &policy, 1).await;
        require!(
            bench,
            promised == end,
            "{name}: a peek tells {promised}, nothing is left until {end}"
        );
        let left = looked.remaining();
        require!(bench, left == 0, "{name}: {left} of 0 remain");
        let reset = looked.now() + micros(looked.reset());
        require!(bench, reset >= end, "{name}: the reset is {reset}");
        first_slot_is_at(bench, name, &key, &policy, end).await;
    }
}

/// What is left is too little for some and enough for others.
pub(super) async fn costs_count_for_an_allowance<S: Store>(bench: &Bench<S>) {
    for (name, policy) in ample(bench).await {
        let key = bench.key(name);
        let word = bench.allow(&key, &policy, 3, PAUSE).await;
        let end = word.now + micros(PAUSE);
        let mut slots = Vec::new();
        for asks in [costing(1, 2), costing(2, 2), costing(2, 1)] {
            slots.extend(granted(&bench.ask(&key, &policy, &[asks]).await));
        }
        let spent = cost_before(&slots, end);
        require!(bench, spent <= 3, "{name}: {spent} of 3 may depart");
        judge::keeps(bench, &policy, &slots);
    }
    let (key, policy) = (bench.key("key"), log(20));
    let end = bench.allow(&key, &policy, 3, PAUSE).await.now + micros(PAUSE);
    let asks = [costing(1, 2)];
    let answer = bench.ask(&key, &policy, &asks).await;
    let left = answer.remaining();
    require!(bench, left == 1, "after 2 of 3, {left} remain");
    let two = Ask {
        max_wait: 0,
        ..costing(1, 2)
    };
    let answer = bench.ask(&key, &policy, &[two, at_once(2)]).await;
    let (waits, at_once) = (refused(&answer), granted(&answer).len());
    let wait = end.saturating_sub(answer.now());
    require!(
        bench,
        at_once == 1 && waits == [wait, wait],
        "of the last one of 3, {at_once} depart, and others wait {waits:?} instead of {wait}"
    );
}

/// While it holds, it sinks by what departs and by words that say less; by none does it rise.
pub(super) async fn an_allowance_never_rises<S: Store>(bench: &Bench<S>) {
    for (name, policy) in ample(bench).await {
        let key = bench.key(name);
        bench.allow(&key, &policy, 5, PAUSE / 2).await;
        let less = bench.allow(&key, &policy, 2, PAUSE).await;
        bench.allow(&key, &policy, 4, PAUSE).await;
        let slots = bench.slots(&key, &policy, 4).await;
        spends(bench, name, &slots, 2, less.now + micros(PAUSE));

        let key = bench.key(&format!("{name}-spent"));
        let word = bench.allow(&key, &policy, 3, PAUSE).await;
        let mut slots = bench.slots(&key, &policy, 2).await;
        // More than is left by now.
        bench.allow(&key, &policy, 2, PAUSE).await;
        slots.extend(bench.slots(&key, &policy, 3).await);
        spends(bench, name, &slots, 3, word.now + micros(PAUSE));
    }
}

/// Whichever was said first, each until its own end.
pub(super) async fn a_pause_and_an_allowance_hold_both<S: Store>(bench: &Bench<S>) {
    for (name, policy) in ample(bench).await {
        for pauses_first in [false, true] {
            let key = bench.key(&format!("{name} {pauses_first}"));
            let (paused, allowed);
            if pauses_first {
                paused = bench.pause(&key, &policy, PAUSE / 2).await;
                allowed = bench.allow(&key, &policy, 1, PAUSE).await;
            } else {
                allowed = bench.allow(&key, &policy, 1, PAUSE).await;
                paused = bench.pause(&key, &policy, PAUSE / 2).await;
            }
            let first = first_slot_is_at(bench, name, &key, &policy, paused.paused).await;
            let slots = [granted(&first), bench.slots(&key, &policy, 2).await].concat();
            spends(bench, name, &slots, 1, allowed.now + micros(PAUSE));
        }
    }
}

/// Who takes it departs as well as any other.
pub(super) async fn a_free_slot_counts_for_an_allowance<S: Store>(bench: &Bench<S>) {
    let (key, policy) = (bench.key("key"), log(1));
    let mut slots = bench.slots(&key, &policy, 4).await;
    let free: Vec<_> = slots.drain(1..3).collect();
    bench.release(&key, &policy, &free).await;
    let end = bench.allow(&key, &policy, 1, LONG * 3).await.now + micros(LONG * 3);
    let mut taken = Vec::new();
    for _ in 0..2 {
        taken.push(bench.slot(&key, &policy).await);
    }
    let spent = cost_before(&taken, end);
    require!(
        bench,
        spent == 1 && taken[0].at == free[0].at,
        "with free slots at {free:?}, 1 is allowed, and {taken:?} are handed out"
    );
    slots.extend(taken);
    judge::keeps(bench, &policy, &slots);
}
