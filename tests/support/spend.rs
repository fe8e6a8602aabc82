//! Limiters, and departures that are recorded at once.

use std::time::Duration;

use tower_throttle::store::Store;
use tower_throttle::{Decision, Limiter, LimiterBuilder, Permit, Quota, Snapshot};

pub fn under(quotas: &[&str]) -> LimiterBuilder {
    let quotas = quotas.iter();
    let quotas = quotas.map(|quota| quota.parse::<Quota>().expect("a quota"));
    quotas.fold(Limiter::builder(), LimiterBuilder::quota)
}

pub fn per_second(limit: u32) -> LimiterBuilder {
    Limiter::builder().quota(Quota::per_second(limit))
}

pub fn build(builder: LimiterBuilder) -> Limiter {
    builder.build().expect("a valid policy")
}

/// Lets one request of this cost depart.
pub async fn spend(store: &(impl Store + Clone), builder: LimiterBuilder, key: &str, cost: u32) {
    let limiter = build(builder.store(store.clone()));
    spend_by(&limiter, key, cost).await;
}

pub async fn spend_by(limiter: &Limiter, key: &str, cost: u32) {
    // A busy machine may miss the turn, and the next one may be a moment later.
    let acquire = limiter.acquire(key).cost(cost);
    let permit = acquire.max_wait(Duration::from_secs(1)).await;
    permit.expect("a permit");
}

/// The permit of a request that does not wait, or what limits it.
pub async fn attempt(limiter: &Limiter, key: &str, cost: u32) -> Result<Permit, Snapshot> {
    match limiter.acquire(key).cost(cost).now().await {
        Ok(Decision::Granted(permit)) => Ok(permit),
        Ok(Decision::Limited(limited)) => Err(limited),
        Err(error) => panic!("{key}: {error:?}"),
    }
}
