//! The grammar, from the limit to the option.

use std::time::Duration;

use super::part::Part;
use super::{ParseQuotaError, UNITS};
use crate::quota::algorithm::Fault;
use crate::quota::{Algorithm, Quota, WindowStart};

const QUOTA: &str = "LIMIT/WINDOW, such as 10/s";
const UNIT: &str = "one of d, h, m, s, ms, us";
const ALGORITHM: &str =
    "one of sliding-log, sliding-buckets, spacing, leaky-bucket, gcra, fixed-window";

pub(super) fn quota(whole: Part<'_>) -> Result<Quota, ParseQuotaError> {
    let mut rest = whole;
    let rate = rest.take_word();
    let (limit_at, window_at) = rate.split('/').ok_or_else(|| rate.unexpected(QUOTA))?;
    let quota = Quota::new(limit_at.count("limit")?, window(window_at)?);
    let (algorithm, option_at) = algorithm(&mut rest)?;
    let end = rest.take_word();
    if !end.is_empty() {
        return Err(end.unexpected("the end of the text"));
    }
    let quota = quota.algorithm(algorithm);
    let Some((fault, problem)) = quota.problem() else {
        return Ok(quota);
    };
    let part = match fault {
        Fault::Limit => limit_at,
        Fault::Window => window_at,
        Fault::Option => option_at,
        Fault::Quota => whole,
    };
    Err(part.refused(problem))
}

/// A unit alone, or counts of units from large to small.
fn window(window: Part<'_>) -> Result<Duration, ParseQuotaError> {
    let mut rest = window;
    let mut micros = 0_u64;
    let mut last = None;
    while !rest.is_empty() {
        let count_at = rest.take_number();
        let unit_at = rest.take_name();
        let is_alone = unit_at.text() == window.text();
        if unit_at.is_empty() || (count_at.is_empty() && !is_alone) {
            let expected = "a unit, or counts with units, such as 1m30s";
            return Err(count_at.to(unit_at).unexpected(expected));
        }
        let count = if is_alone {
            1
        } else {
            count_at.number("count")?
        };
        let unit = unit(unit_at)?;
        if last.is_some_and(|last| last >= unit) {
            let problem = "is not smaller than the one before it";
            return Err(unit_at.wrong("unit", problem));
        }
        last = Some(unit);
        micros = micros.saturating_add(count.saturating_mul(UNITS[unit].1 / 1_000));
    }
    Ok(Duration::from_micros(micros))
}

/// The place of the unit in [`UNITS`]. `M` is none, because it could be minutes or months.
fn unit(unit: Part<'_>) -> Result<usize, ParseQuotaError> {
    let name = unit.text().to_ascii_lowercase();
    let is_named = |(names, _): &(&[&str], _)| unit.text() != "M" && names.contains(&&*name);
    let place = UNITS.iter().position(is_named);
    place.ok_or_else(|| unit.unknown("unit", UNIT))
}

/// The algorithm, and the place of its option's value.
fn algorithm<'a>(rest: &mut Part<'a>) -> Result<(Algorithm, Part<'a>), ParseQuotaError> {
    let name = rest.take_word();
    let mut option_at = name;
    let mut count = |option: &str| {
        let word = rest.take_word();
        let given = word.split('=');
        let given = given.filter(|(name, _)| name.text().eq_ignore_ascii_case(option));
        let (_, value) = given.ok_or_else(|| word.unexpected(&format!("{option}=COUNT")))?;
        option_at = value;
        value.count(option)
    };
    let algorithm = match name.text().to_ascii_lowercase().as_str() {
        "" | "sliding-log" => Algorithm::SlidingLog,
        "sliding-buckets" => Algorithm::SlidingBuckets {
            buckets: count("buckets")?,
        },
        "spacing" => Algorithm::Spacing,
        "leaky-bucket" => Algorithm::LeakyBucket {
            capacity: count("capacity")?,
        },
        "gcra" => Algorithm::Gcra {
            burst: count("burst")?,
        },
        "fixed-window" => Algorithm::FixedWindow {
            start: start(rest.take_word())?,
        },
        _ => return Err(name.unknown("algorithm", ALGORITHM)),
    };
    Ok((algorithm, option_at))
}

fn start(option: Part<'_>) -> Result<WindowStart, ParseQuotaError> {
    match option.text().to_ascii_lowercase().as_str() {
        "" | "start=clock" => Ok(WindowStart::Clock),
        "start=first-request" => Ok(WindowStart::FirstRequest),
        _ => Err(option.unexpected("start=clock or start=first-request")),
    }
}
