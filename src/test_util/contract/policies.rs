//! What the clauses are tested under.

use std::sync::Arc;
use std::time::Duration;

use super::bench::Bench;
use super::{GUARD, LONG};
use crate::limiter::Limiter;
use crate::policy::Policy;
use crate::quota::{Algorithm, Quota, WindowStart};
use crate::store::Store;

/// How many ways to count there are, where windows of both beginnings are two.
pub(super) const WAYS: usize = 7;

pub(super) fn policy(quotas: &[Quota]) -> Arc<Policy> {
    buffered(quotas, Duration::ZERO)
}

pub(super) fn buffered(quotas: &[Quota], buffer: Duration) -> Arc<Policy> {
    let builder = Limiter::builder().guard(GUARD).buffer(buffer);
    let builder = quotas
        .iter()
        .fold(builder, |builder, quota| builder.quota(*quota));
    builder.build().expect("quotas that can hold").policy()
}

pub(super) fn log(limit: u32) -> Arc<Policy> {
    policy(&[Quota::new(limit, LONG)])
}

/// So many requests per [`LONG`], counted in each way. Windows of the clock are a little longer, so
/// that the present one is not about to end.
pub(super) async fn each<S: Store>(bench: &Bench<S>, limit: u32) -> [(&'static str, Quota); WAYS] {
    let quota = Quota::new(limit, LONG);
    let by_clock = Quota::new(limit, bench.clock_window().await);
    each_of(quota, by_clock)
}

/// A quota counted in each way, and the one for windows of the clock.
pub(super) fn each_of(quota: Quota, by_clock: Quota) -> [(&'static str, Quota); WAYS] {
    let fixed = |start| Algorithm::FixedWindow { start };
    let burst = quota.limit().min(3);
    [
        ("log", quota),
        (
            "buckets",
            quota.algorithm(Algorithm::SlidingBuckets { buckets: 10 }),
        ),
        ("spacing", quota.algorithm(Algorithm::Spacing)),
        (
            "leaky bucket",
            quota.algorithm(Algorithm::LeakyBucket { capacity: 40 }),
        ),
        ("gcra", quota.algorithm(Algorithm::Gcra { burst })),
        (
            "windows of the clock",
            by_clock.algorithm(fixed(WindowStart::Clock)),
        ),
        (
            "windows from the first request",
            quota.algorithm(fixed(WindowStart::FirstRequest)),
        ),
    ]
}

/// One of each kind, two joined and all joined; after two at once, a slot comes every [`LONG`] / 4
/// at most.
pub(super) async fn kinds<S: Store>(bench: &Bench<S>) -> Vec<(&'static str, Arc<Policy>)> {
    let each = each(bench, 2).await;
    let alone = |(name, quota): &(_, Quota)| (*name, policy(&[*quota]));
    let mut kinds: Vec<_> = each.iter().map(alone).collect();
    let spacing = Quota::new(4, LONG).algorithm(Algorithm::Spacing);
    kinds.push(("joint", policy(&[Quota::new(2, LONG), spacing])));
    kinds.push(("all", policy(&each.map(|(_, quota)| quota))));
    kinds
}

/// Whether slots depend on where the store's clock stands, besides on those before.
pub(super) fn goes_by_the_clock(policy: &Policy) -> bool {
    let mut algorithms = policy.quotas().iter().map(Quota::counted_by);
    algorithms.any(|algorithm| match algorithm {
        Algorithm::SlidingBuckets { .. } => true,
        Algorithm::FixedWindow { start } => start == WindowStart::Clock,
        Algorithm::SlidingLog
        | Algorithm::Spacing
        | Algorithm::LeakyBucket { .. }
        | Algorithm::Gcra { .. } => false,
    })
}
