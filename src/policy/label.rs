//! Quotas as a short text: [`of`].

use crate::quota::{Algorithm, Quota, WindowStart};

/// The quotas in their order, such as `10/s+5000/h-gcra-20`.
pub(super) fn of(quotas: &[Quota]) -> String {
    let all: Vec<_> = quotas.iter().map(of_quota).collect();
    all.join("+")
}

fn of_quota(quota: &Quota) -> String {
    let per_window = Quota::new(quota.limit(), quota.window()).to_string();
    let algorithm = match quota.counted_by() {
        Algorithm::SlidingLog => String::new(),
        Algorithm::SlidingBuckets { buckets } => format!("-buckets-{buckets}"),
        Algorithm::Spacing => "-spacing".to_owned(),
        Algorithm::LeakyBucket { capacity } => format!("-leaky-{capacity}"),
        Algorithm::Gcra { burst } => format!("-gcra-{burst}"),
        Algorithm::FixedWindow { start } => match start {
            WindowStart::Clock => "-fixed".to_owned(),
            WindowStart::FirstRequest => "-fixed-first".to_owned(),
        },
    };
    per_window.replace('_', "") + &algorithm
}
