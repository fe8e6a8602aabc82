//! Hostile input does no harm, and secrets stay secret.

mod secrets;
mod strangers;
mod texts;
mod urls;

use std::time::Duration;

use tower_throttle::Quota;
use tower_throttle::{Limiter, LimiterBuilder};

/// Longer than any test.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// Two quotas that hold jointly.
pub(crate) fn quotas() -> LimiterBuilder {
    let quota = |limit| Quota::new(limit, LONG);
    Limiter::builder().quota(quota(5)).quota(quota(7))
}
