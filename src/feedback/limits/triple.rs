//! Limits with a header for each number, as they were before `RateLimit` held them all.

use std::time::Duration;

use super::Limit;
use crate::feedback::lines::Lines;
use crate::feedback::number::{count, seconds};
use crate::quota::REQUESTS;

/// The requests that remain, by families of fields. In place of `remaining`, `reset-after` is the time until the reset, and
/// `reset` its moment. The size of the quota, `limit`, does not matter here.
const REMAINING: [&str; 3] = [
    "ratelimit-remaining",
    "x-ratelimit-remaining",
    "x-rate-limit-remaining",
];

/// The units in names of headers. A period may follow, such as `tokens-minute`.
const UNITS: [&str; 4] = [REQUESTS, "tokens", "input-tokens", "output-tokens"];
const PERIODS: [&str; 5] = ["", "-second", "-minute", "-hour", "-day"];

/// The limit of the first family that states one.
pub(super) fn read(lines: &Lines<'_>) -> Option<Limit> {
    REMAINING.iter().find_map(|remaining| {
        if !lines.headers.contains_key(*remaining) {
            return None;
        }
        let name = |field| remaining.replace("remaining", field);
        let after = lines.values(&name("reset-after"), seconds);
        let after = after.into_iter().max();
        limit(lines, REQUESTS, remaining, &name("reset"), after)
    })
}

/// The limits of the families that have a header for each unit: `x-ratelimit-remaining-tokens` and
/// `anthropic-ratelimit-tokens-remaining`.
pub(super) fn of_units(lines: &Lines<'_>) -> impl Iterator<Item = Limit> {
    lines.headers.keys().filter_map(move |name| {
        let name = name.as_str();
        let of_anthropic = || {
            name.strip_prefix("anthropic-ratelimit-")?
                .strip_suffix("-remaining")
        };
        let (suffix, reset) = match name.strip_prefix("x-ratelimit-remaining-") {
            Some(suffix) => (suffix, format!("x-ratelimit-reset-{suffix}")),
            None => {
                let unit = of_anthropic()?;
                (unit, format!("anthropic-ratelimit-{unit}-reset"))
            }
        };
        let period = |unit: &&str| suffix.strip_prefix(*unit).unwrap_or("-");
        let unit = UNITS.iter().find(|unit| PERIODS.contains(&period(unit)))?;
        limit(lines, unit, name, &reset, None)
    })
}

/// A limit that is reset after a time, or else at a moment.
fn limit(
    lines: &Lines<'_>,
    unit: &'static str,
    remaining: &str,
    at: &str,
    after: Option<Duration>,
) -> Option<Limit> {
    let remaining = lines.values(remaining, count).into_iter().min()?;
    let until = || {
        let resets = lines.values(at, |text| lines.until_reset(text));
        resets.into_iter().max()
    };
    Some(Limit {
        unit: unit.into(),
        remaining,
        reset: after.or_else(until)?,
    })
}
