//! Each quota keeps its bound.

use std::time::Duration;

use super::bench::Bench;
use super::policies::{buffered, each, policy};
use super::{LONG, any_wait, granted, judge};
use crate::quota::{Algorithm, Quota};
use crate::store::{Ask, Store};

/// For the jitter between departure and arrival.
pub(super) const BUFFER: Duration = Duration::from_millis(500);

/// Whatever is asked for, in several calls, the bound holds and little is wasted.
pub(super) async fn keeps_its_bound<S: Store>(bench: &Bench<S>, quota: Quota) {
    let (key, policy) = (bench.key("key"), buffered(&[quota], BUFFER));
    let mut slots = Vec::new();
    for count in [1, 1, 2, 5, 1, 7] {
        slots.extend(bench.slots(&key, &policy, count).await);
    }
    judge::keeps(bench, &policy, &slots);
    judge::wastes_little(bench, &policy, &slots, bench.now().await);
}

/// At most N in any window, by their slots and by the ends of their guards; and no fewer than could
/// be.
pub(super) async fn a_sliding_log_never_exceeds_its_limit<S: Store>(bench: &Bench<S>) {
    keeps_its_bound(bench, Quota::new(3, LONG)).await;
}

/// Neither do counts, which lose one bucket at most.
pub(super) async fn sliding_buckets_never_exceed_their_limit<S: Store>(bench: &Bench<S>) {
    for buckets in [4, 30] {
        let quota = Quota::new(3, LONG).algorithm(Algorithm::SlidingBuckets { buckets });
        keeps_its_bound(bench, quota).await;
    }
}

/// Every two are at least W/N apart.
pub(super) async fn spacing_keeps_its_gaps<S: Store>(bench: &Bench<S>) {
    keeps_its_bound(bench, Quota::new(4, LONG).algorithm(Algorithm::Spacing)).await;
}

/// As for spacing, for as many as it holds.
pub(super) async fn a_leaky_bucket_keeps_its_gaps<S: Store>(bench: &Bench<S>) {
    let algorithm = Algorithm::LeakyBucket { capacity: 20 };
    keeps_its_bound(bench, Quota::new(4, LONG).algorithm(algorithm)).await;
}

/// In any window of length w, at most burst + w * N/W, wherever within their guards they depart.
pub(super) async fn gcra_keeps_its_burst_and_rate<S: Store>(bench: &Bench<S>) {
    let algorithm = Algorithm::Gcra { burst: 3 };
    keeps_its_bound(bench, Quota::new(5, LONG).algorithm(algorithm)).await;
}

/// A request of cost c takes as much room as c requests, and all of it at once.
pub(super) async fn costs_count_as_so_many<S: Store>(bench: &Bench<S>) {
    let costing = |count, cost| Ask {
        cost,
        ..any_wait(count)
    };
    for (name, quota) in each(bench, 5).await {
        let (key, policy) = (bench.key(name), policy(&[quota]));
        let most = policy.largest_cost();
        let mut slots = Vec::new();
        for asks in [
            &[costing(1, 2), costing(2, 1)][..],
            &[costing(2, 3)],
            &[costing(1, 1), costing(1, most), costing(3, 1)],
            &[costing(2, most), costing(2, 2)],
        ] {
            slots.extend(granted(&bench.ask(&key, &policy, asks).await));
        }
        judge::keeps(bench, &policy, &slots);
        judge::wastes_little(bench, &policy, &slots, bench.now().await);
    }
}
