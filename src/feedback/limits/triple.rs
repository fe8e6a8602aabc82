//! Limits with a header for each number, as they were before `RateLimit` held them all.

use std::time::Duration;

use http::HeaderName;

use super::Limit;
use crate::feedback::lines::Lines;
use crate::feedback::number::{count, seconds};
use crate::quota::REQUESTS;

/// The fields for the requests that remain, for the time until the reset, and for its moment. The size of the quota,
/// `-limit`, does not matter here.
static FAMILIES: [[HeaderName; 3]; 3] = [
    fields([
        "ratelimit-remaining",
        "ratelimit-reset-after",
        "ratelimit-reset",
    ]),
    fields([
        "x-ratelimit-remaining",
        "x-ratelimit-reset-after",
        "x-ratelimit-reset",
    ]),
    fields([
        "x-rate-limit-remaining",
        "x-rate-limit-reset-after",
        "x-rate-limit-reset",
    ]),
];

const fn fields([remaining, after, at]: [&'static str; 3]) -> [HeaderName; 3] {
    [
        HeaderName::from_static(remaining),
        HeaderName::from_static(after),
        HeaderName::from_static(at),
    ]
}

/// The units in names of headers. A period may follow, such as `tokens-minute`.
const UNITS: [&str; 4] = [REQUESTS, "tokens", "input-tokens", "output-tokens"];
const PERIODS: [&str; 5] = ["", "-second", "-minute", "-hour", "-day"];

/// The limit of the first family that states one.
pub(super) fn read(lines: &Lines<'_>) -> Option<Limit> {
    let stated = FAMILIES.iter();
    let mut stated = stated.filter(|[it, ..]| lines.headers.contains_key(it));
    stated.find_map(|[remaining, after, at]| {
        let after = lines.values(after, seconds).into_iter().max();
        limit(lines, REQUESTS, remaining, at, after)
    })
}

/// The limits of the families that have a header for each unit: `x-ratelimit-remaining-tokens` and
/// `anthropic-ratelimit-tokens-remaining`.
pub(super) fn of_units(lines: &Lines<'_>) -> impl Iterator<Item = Limit> {
    lines.headers.keys().filter_map(move |remaining| {
        let name = remaining.as_str();
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
        let at = HeaderName::try_from(reset).ok()?;
        limit(lines, unit, remaining, &at, None)
    })
}

/// A limit that is reset after a time, or else at a moment.
fn limit(
    lines: &Lines<'_>,
    unit: &'static str,
    remaining: &HeaderName,
    at: &HeaderName,
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
