//! What remains of an upstream's quotas, in whichever form it says so: [`Limit`].

use std::borrow::Cow;
use std::time::Duration;

use super::lines::Lines;

mod structured;
mod triple;

/// The rest of one quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) unit: Cow<'static, str>,
    pub(super) remaining: u32,
    /// The time until there is more; zero if it is missing or over.
    pub(super) reset: Duration,
}

/// The limits by the newest form that is there and well-formed, and those with a unit in the name of their headers.
pub(super) fn read(lines: &Lines<'_>) -> Vec<Limit> {
    let limits = structured::read(lines).or_else(|| triple::read(lines).map(|it| vec![it]));
    let mut limits = limits.unwrap_or_default();
    limits.extend(triple::of_units(lines));
    limits
}
