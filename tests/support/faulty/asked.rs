//! What a faulty store goes by in place of what it is asked.

use std::sync::Arc;
use std::time::Duration;

use tower_throttle::store::{Ask, Notice, Reserve, Store as _};
use tower_throttle::{Algorithm, Limiter, Policy, Quota, WindowStart};

use super::heard::allows;
use super::{Fault, Faulty, now};

impl Faulty {
    pub(super) fn policy(&self, policy: &Policy) -> Arc<Policy> {
        let mut quotas = policy.quotas().to_vec();
        match self.fault {
            Fault::ForgetsAllQuotasButOne => quotas.truncate(1),
            Fault::ForgetsOneOfAll(place) if quotas.len() == Fault::WAYS => {
                quotas.remove(place);
            }
            _ => {}
        }
        let buffer = match self.fault {
            Fault::ForgetsTheBuffer => Duration::ZERO,
            _ => policy.buffer(),
        };
        let builder = Limiter::builder().guard(policy.guard()).buffer(buffer);
        let mut builder = quotas.into_iter().fold(builder, |builder, quota| {
            builder.quota(self.fault.quota(quota))
        });
        if let Some(name) = policy
            .name()
            .filter(|_| !self.has(Fault::IgnoresTheNameOfPolicies))
        {
            builder = builder.name(name);
        }
        builder
            .build()
            .expect("what could be built before")
            .policy()
    }

    pub(super) fn asks(&self, asks: &[Ask], policy: &Policy, stands: Notice) -> Vec<Ask> {
        let mut asks = asks.to_vec();
        for ask in &mut asks {
            match self.fault {
                Fault::IgnoresMaxWait => ask.max_wait = u64::MAX,
                Fault::ForgetsTheCost => ask.cost = 1,
                Fault::ForgetsTheCostUnderAnAllowance if allows(stands) => ask.cost = 1,
                Fault::CountsThePauseAgainstTheCapacity if stands.paused > 0 => {
                    ask.max_wait = ask.max_wait.min(capacity(policy));
                }
                _ => {}
            }
        }
        asks
    }

    /// The guard that it goes by.
    pub(super) fn guard(&self, guard: Duration, policy: &Policy) -> Duration {
        let is_cut = policy.quotas().iter().any(|quota| {
            let is_long = guard > quota.window() / 2;
            matches!(quota.counted_by(), Algorithm::FixedWindow { .. })
                && match self.fault {
                    Fault::LetsGuardsReachIntoTheNextWindow => !is_long,
                    Fault::CutsLongGuards => is_long,
                    _ => false,
                }
        });
        if is_cut && policy.quotas().len() == 1 {
            guard / 100
        } else {
            guard
        }
    }

    /// Lets another come half a window before the first, if that would open a window.
    pub(super) fn open_too_early(&self, reserve: &Reserve<'_>) {
        let start = WindowStart::FirstRequest;
        let [quota] = reserve.policy.quotas() else {
            return;
        };
        if quota.counted_by() == (Algorithm::FixedWindow { start }) {
            let half = quota.window().as_micros() as u64 / 2;
            let mut early = Reserve::new(reserve.key, reserve.policy);
            early.not_before = reserve.not_before.saturating_sub(half);
            now(self.store.reserve(&early));
        }
    }
}

/// How long the last of those waits that a leaky bucket holds.
fn capacity(policy: &Policy) -> u64 {
    let long = |quota: &Quota| match quota.counted_by() {
        Algorithm::LeakyBucket { capacity } => {
            let all = quota.window().as_micros() as u64 * u64::from(capacity + 1);
            all / u64::from(quota.limit())
        }
        _ => u64::MAX,
    };
    let quotas = policy.quotas().iter();
    quotas.map(long).min().unwrap_or(u64::MAX)
}
