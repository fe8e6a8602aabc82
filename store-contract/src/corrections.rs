//! Refunds, debts, and peeks.

use std::sync::Arc;

use super::bench::{Bench, LONG, SECOND, attempt, granted, policy, take};
use super::require;
use tower_throttle::Policy;
use tower_throttle::key::Key;
use tower_throttle::store::contents::{Grant, Mode, Operation, Take};

/// Lets requests depart until no more can, and returns their number and the last grant.
async fn exhaust(bench: &Bench, key: &Key, policy: &Policy) -> (u32, Grant) {
    let (_, taken) = bench.call(key, policy, &attempt(10, 1)).await;
    let Some(last) = taken.grants.last() else {
        bench.fail(format_args!(
            "no request departs under {:?}",
            policy.quotas()
        ));
    };
    let more = bench.depart(key, policy, 1).await;
    require!(bench, more == 0, "{:?} has no limit", policy.quotas());
    (granted(&taken), *last)
}

pub(super) async fn refunds_make_units_available(bench: &Arc<Bench>) {
    for quota in LONG {
        let (key, policy) = (bench.key(), policy(quota));
        let (_, last) = exhaust(bench, &key, &policy).await;
        bench.settle(&key, &policy, last.recorded, -1).await;
        let count = bench.depart(&key, &policy, 10).await;
        require!(
            bench,
            count == 1,
            "{count} depart after a refund of 1, {quota}"
        );
    }
}

pub(super) async fn debts_take_units(bench: &Arc<Bench>) {
    for quota in LONG.into_iter().filter(|it| !it.ends_with("spacing")) {
        let (key, policy) = (bench.key(), policy(quota));
        let (_, taken) = bench.call(&key, &policy, &attempt(1, 1)).await;
        let recorded = taken.grants.first().map_or(0, |grant| grant.recorded);
        bench.settle(&key, &policy, recorded, 5).await;
        let count = bench.depart(&key, &policy, 10).await;
        require!(
            bench,
            count == 4,
            "{count} depart after 1 with a debt of 5, {quota}"
        );
    }
}

pub(super) async fn unknown_departures_are_not_refunded(bench: &Arc<Bench>) {
    for quota in LONG {
        let (key, policy) = (bench.key(), policy(quota));
        let (count, last) = exhaust(bench, &key, &policy).await;
        let never = last.recorded + 2 * 365 * 86_400 * SECOND;
        for recorded in [1, never] {
            bench.settle(&key, &policy, recorded, -1).await;
            let more = bench.depart(&key, &policy, 1).await;
            require!(
                bench,
                more == 0,
                "{more} depart after an empty refund, {quota}"
            );
        }
        bench.settle(&key, &policy, last.recorded, -1_000).await;
        let more = bench.depart(&key, &policy, 100).await;
        require!(
            bench,
            more <= count,
            "{more} depart after a refund of all {count}, {quota}"
        );
    }
}

fn peek(count: usize) -> Operation {
    Operation::Take(take(Mode::Peek, count, 1))
}

pub(super) async fn a_peek_records_nothing(bench: &Arc<Bench>) {
    for quota in LONG {
        let (key, policy) = (bench.key(), policy(quota));
        for _ in 0..3 {
            let (now, taken) = bench.call(&key, &policy, &peek(1)).await;
            require!(
                bench,
                taken.grants.is_empty() && taken.remaining != 0.into(),
                "a peek at a new key is answered with {taken:?} at {now}, {quota}"
            );
        }
        let value = bench.hooks.read(&key, &policy);
        require!(bench, value.is_none(), "a peek writes a value, {quota}");
        exhaust(bench, &key, &policy).await;
        let before = bench.hooks.read(&key, &policy);
        let (now, taken) = bench.call(&key, &policy, &peek(5)).await;
        let is_limited = taken.remaining == 0.into() && taken.expected.first() > Some(&now);
        require!(
            bench,
            is_limited,
            "a peek is answered with {taken:?}, {quota}"
        );
        let after = bench.hooks.read(&key, &policy);
        require!(bench, before == after, "a peek changes the value, {quota}");
    }
}

pub(super) async fn no_departure_is_expected_too_late(bench: &Arc<Bench>) {
    for quota in LONG {
        let quota = quota.replace("365d", "s");
        let (key, policy) = (bench.key(), policy(&quota));
        let mut process = bench.process(&key, &policy);
        process.join([(1, 1); 25]);
        let first = process.take(Mode::Wait).await;
        let (_, peeked) = bench.call(&key, &policy, &peek(1)).await;
        process.horizon = 10 * SECOND;
        let rest = process.take(Mode::Wait).await;
        let last = rest.grants.last().map(|grant| grant.at);
        require!(
            bench,
            process.queue.is_empty() && first.expected.last().copied() <= last,
            "{:?} is expected, and the last request departs at {last:?}, {quota}",
            first.expected
        );
        // The peek was behind the requests that waited.
        let take = Operation::Take(Take {
            horizon: 10 * SECOND,
            ..take(Mode::Try, 1, 1)
        });
        let (_, taken) = bench.call(&key, &policy, &take).await;
        let at = taken.grants.first().map(|grant| grant.at);
        require!(
            bench,
            peeked.expected.first().copied() <= at,
            "a peek expects {:?}, and the departure is at {at:?}, {quota}",
            peeked.expected
        );
    }
}
