//! Refunds, debts, and peeks.

use std::sync::Arc;

use super::bench::{Bench, Entry, LONG, SECOND, attempt, granted, policy, take};
use tower_throttle::store::contents::{Grant, Mode, Operation, Take};

/// Lets requests depart until no more can, and returns their number and the last grant.
async fn exhaust(entry: &Entry) -> (u32, Grant) {
    let (_, taken) = entry.call(&attempt(10, 1)).await;
    let Some(last) = taken.grants.last() else {
        entry.fail("no request departs");
    };
    entry.departs(1, 0, "beyond the limit").await;
    (granted(&taken), *last)
}

pub(super) async fn refunds_make_units_available(bench: &Arc<Bench>) {
    for quota in LONG {
        let entry = bench.entry(policy(quota));
        let (_, last) = exhaust(&entry).await;
        entry.settle(last.recorded, -1).await;
        entry.departs(10, 1, "after a refund of 1").await;
    }
}

pub(super) async fn debts_take_units(bench: &Arc<Bench>) {
    for quota in LONG.into_iter().filter(|it| !it.ends_with("spacing")) {
        let entry = bench.entry(policy(quota));
        let (_, taken) = entry.call(&attempt(1, 1)).await;
        let recorded = taken.grants.first().map_or(0, |grant| grant.recorded);
        entry.settle(recorded, 5).await;
        entry.departs(10, 4, "after 1 with a debt of 5").await;
    }
}

pub(super) async fn unknown_departures_are_not_refunded(bench: &Arc<Bench>) {
    for quota in LONG {
        let entry = bench.entry(policy(quota));
        let (count, last) = exhaust(&entry).await;
        let never = last.recorded + 2 * 365 * 86_400 * SECOND;
        for recorded in [1, never] {
            entry.settle(recorded, -1).await;
            entry.departs(1, 0, "after an empty refund").await;
        }
        entry.settle(last.recorded, -1_000).await;
        let more = entry.depart(100).await;
        if more > count {
            entry.fail(format_args!("{more} depart after a refund of all {count}"));
        }
    }
}

fn peek(count: usize) -> Operation {
    Operation::Take(take(Mode::Peek, count, 1))
}

pub(super) async fn a_peek_records_nothing(bench: &Arc<Bench>) {
    for quota in LONG {
        let entry = bench.entry(policy(quota));
        for _ in 0..3 {
            let (_, taken) = entry.call(&peek(1)).await;
            if !taken.grants.is_empty() || taken.remaining == 0.into() {
                entry.fail(format_args!(
                    "a peek at a new key is answered with {taken:?}"
                ));
            }
        }
        if entry.value().is_some() {
            entry.fail("a peek writes a value");
        }
        exhaust(&entry).await;
        let before = entry.value();
        let (now, taken) = entry.call(&peek(5)).await;
        if taken.remaining != 0.into() || taken.expected.first() <= Some(&now) {
            entry.fail(format_args!("a peek is answered with {taken:?}"));
        }
        if entry.value() != before {
            entry.fail("a peek changes the value");
        }
    }
}

pub(super) async fn no_departure_is_expected_too_late(bench: &Arc<Bench>) {
    for quota in LONG {
        let entry = bench.entry(policy(&quota.replace("365d", "s")));
        let mut process = entry.process();
        process.join([(1, 1); 25]);
        let first = process.take().await;
        let (_, peeked) = entry.call(&peek(1)).await;
        process.horizon = 10 * SECOND;
        let rest = process.take().await;
        let last = rest.grants.last().map(|grant| grant.at);
        if !process.queue.is_empty() || first.expected.last().copied() > last {
            let expected = first.expected;
            entry.fail(format_args!(
                "{expected:?} is expected, and the last request departs at {last:?}"
            ));
        }
        // The peek was behind the requests that waited.
        let take = Operation::Take(Take {
            horizon: 10 * SECOND,
            ..take(Mode::Try, 1, 1)
        });
        let (_, taken) = entry.call(&take).await;
        let at = taken.grants.first().map(|grant| grant.at);
        if peeked.expected.first().copied() > at {
            let expected = peeked.expected;
            entry.fail(format_args!("a peek expects {expected:?}, not {at:?}"));
        }
    }
}
