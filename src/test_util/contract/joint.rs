//! Quotas that hold together.

use super::bench::Bench;
use super::policies::{WAYS, each, policy};
use super::{LONG, any_wait, at_once, granted, judge, require, waits};
use crate::algorithm::micros;
use crate::quota::{Algorithm, Quota, WindowStart};
use crate::store::{Ask, Store};

/// Two logs at once, and a log with spacing.
pub(super) async fn joint_quotas_all_hold<S: Store>(bench: &Bench<S>) {
    let (short, long) = (Quota::new(2, LONG / 10), Quota::new(5, LONG));
    let spacing = Quota::new(10, LONG).algorithm(Algorithm::Spacing);
    for other in [short, spacing] {
        let policy = policy(&[other, long]);
        let slots = bench.slots(&bench.key("key"), &policy, 12).await;
        judge::keeps(bench, &policy, &slots);
        judge::wastes_little(bench, &policy, &slots, bench.now().await);
    }
}

/// One of each kind: each in turn the strictest, then all in the way of each other.
pub(super) async fn a_mixture_of_all_algorithms_holds_every_bound<S: Store>(bench: &Bench<S>) {
    for (name, quotas) in mixtures(bench, 2).await {
        let (key, policy) = (bench.key(name), policy(&quotas));
        let slots = bench.slots(&key, &policy, 9).await;
        judge::keeps(bench, &policy, &slots);
        judge::wastes_little(bench, &policy, &slots, bench.now().await);
    }

    let fixed = |start| Algorithm::FixedWindow { start };
    let policy = policy(&[
        Quota::new(5, LONG),
        Quota::new(10, LONG * 3).algorithm(Algorithm::SlidingBuckets { buckets: 6 }),
        Quota::new(20, LONG).algorithm(Algorithm::Spacing),
        Quota::new(30, LONG).algorithm(Algorithm::LeakyBucket { capacity: 300 }),
        Quota::new(6, LONG).algorithm(Algorithm::Gcra { burst: 3 }),
        Quota::new(4, bench.clock_window().await).algorithm(fixed(WindowStart::Clock)),
        Quota::new(9, LONG * 3).algorithm(fixed(WindowStart::FirstRequest)),
    ]);
    let costing = |cost| Ask {
        cost,
        ..any_wait(1)
    };
    let key = bench.key("key");
    let mut slots = Vec::new();
    for asks in [
        &[any_wait(5)][..],
        &[costing(2), any_wait(4)],
        &[any_wait(10)],
        &[costing(3), any_wait(9)],
        &[any_wait(20)],
    ] {
        slots.extend(granted(&bench.ask(&key, &policy, asks).await));
    }
    judge::keeps(bench, &policy, &slots);
    judge::wastes_little(bench, &policy, &slots, bench.now().await);
    let count = slots.len();
    require!(
        bench,
        count > 20 && count < 52,
        "of 52 that a leaky bucket does not hold it grants {count}"
    );
}

/// Quotas of all kinds, of which the named one is strict: all others would let twenty go.
async fn mixtures<S: Store>(bench: &Bench<S>, limit: u32) -> [(&'static str, [Quota; WAYS]); WAYS] {
    let strict = each(bench, limit).await;
    let loose = each(bench, 20).await.map(|(_, quota)| quota);
    std::array::from_fn(|place| {
        let mut quotas = loose;
        quotas[place] = strict[place].1;
        (strict[place].0, quotas)
    })
}

/// One quota refuses; the other, which would have allowed all, has as much left as before.
pub(super) async fn joint_quotas_are_charged_all_or_none<S: Store>(bench: &Bench<S>) {
    let (minute, longer) = (LONG, LONG * 10);
    for (window, other) in [(minute, longer), (longer, minute)] {
        let (strict, loose) = (Quota::new(1, window), Quota::new(3, other));
        charges_all_or_none(bench, "strict first", &[strict, loose]).await;
        charges_all_or_none(bench, "loose first", &[loose, strict]).await;
    }
}

/// Whichever of them refuses.
pub(super) async fn a_mixture_of_all_algorithms_is_charged_all_or_none<S: Store>(bench: &Bench<S>) {
    for (name, quotas) in mixtures(bench, 1).await {
        charges_all_or_none(bench, name, &quotas).await;
    }
}

async fn charges_all_or_none<S: Store>(bench: &Bench<S>, name: &str, quotas: &[Quota]) {
    let (key, policy) = (bench.key(name), policy(quotas));
    let mut slots = bench.slots(&key, &policy, 1).await;
    // Longer than any but the strict one keeps the next waiting.
    let bound = micros(LONG) / 10;
    let impatient = bench
        .ask(&key, &policy, &[at_once(50), waits(50, bound)])
        .await;
    let granted = granted(&impatient);
    require!(
        bench,
        granted.is_empty(),
        "{name}: granted beyond a quota: {granted:?}"
    );
    slots.extend(bench.slots(&key, &policy, 2).await);
    judge::keeps(bench, &policy, &slots);
    judge::wastes_little(bench, &policy, &slots, bench.now().await);
}
