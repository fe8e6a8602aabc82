//! The grammar, from the limit to the last option.

use std::time::Duration;

use super::part::Part;
use super::{ParseQuotaError, UNITS};
use crate::quota::{Algorithm, Quota, WindowStart};

const QUOTA: &str = "LIMIT/WINDOW, such as 10/s";
const UNIT: &str = "one of d, h, m, s, ms, us";
const ALGORITHM: &str =
    "one of sliding-log, sliding-buckets, spacing, leaky-bucket, gcra, fixed-window";
const END: &str = "the end of the text";

pub(super) fn quota(whole: Part<'_>) -> Result<Quota, ParseQuotaError> {
    let mut rest = whole;
    let (limit_at, window_at) = limit_and_window(&mut rest)?;
    let limit = limit_at.count("limit")?;
    let window = window(window_at)?;
    let (algorithm, value_at) = algorithm(&mut rest)?;
    let quota = Quota::new(limit, window).algorithm(algorithm);
    check(
        quota,
        [limit_at, window_at, value_at.unwrap_or(whole)],
        whole,
    )?;
    Ok(quota)
}

/// Where the limit and the window stand; the window is not empty.
fn limit_and_window<'a>(rest: &mut Part<'a>) -> Result<(Part<'a>, Part<'a>), ParseQuotaError> {
    let mut word = rest.take_word();
    let Some((limit, window)) = word.split('/') else {
        if word.is_empty() {
            return Err(word.unexpected(QUOTA));
        }
        let digits = word.take_number();
        let limit = if digits.is_empty() { word } else { digits };
        limit.number("limit")?;
        let next = if word.is_empty() {
            rest.take_word()
        } else {
            word
        };
        return Err(word
            .to(next)
            .unexpected("a slash and a window right after the limit"));
    };
    if limit.is_empty() {
        return Err(word.unexpected("a limit before the slash"));
    }
    if window.is_empty() {
        let found = window.to(rest.take_word());
        return Err(found.unexpected("a window right after the slash, such as s or 1m30s"));
    }
    Ok((limit, window))
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
        let count = if count_at.is_empty() {
            1
        } else {
            count_at.number("count")?
        };
        if unit_at.is_empty() {
            return Err(count_at.wrong("count", "has no unit", UNIT));
        }
        let unit = unit(unit_at)?;
        if count_at.is_empty() && !is_alone {
            let expected = "a unit alone, or a count before each";
            return Err(unit_at.wrong("unit", "has no count", expected));
        }
        if last == Some(unit) {
            return Err(unit_at.wrong("unit", "is given twice", "each unit once"));
        }
        if last.is_some_and(|last| last > unit) {
            let expected = "units from large to small";
            return Err(unit_at.wrong("unit", "follows a smaller one", expected));
        }
        last = Some(unit);
        micros = micros.saturating_add(count.saturating_mul(UNITS[unit].nanos / 1_000));
    }
    Ok(Duration::from_micros(micros))
}

/// Which of [`UNITS`] it is.
fn unit(unit: Part<'_>) -> Result<usize, ParseQuotaError> {
    if unit.text() == "M" {
        return Err(unit.wrong("unit", "could be minutes or months", "m for minutes"));
    }
    let name = unit.text().to_ascii_lowercase();
    UNITS
        .iter()
        .position(|unit| unit.symbol == name || unit.also.contains(&name.as_str()))
        .ok_or_else(|| unit.unknown("unit", UNIT))
}

/// The algorithm, and where the value of its option stands.
fn algorithm<'a>(rest: &mut Part<'a>) -> Result<(Algorithm, Option<Part<'a>>), ParseQuotaError> {
    let name = rest.take_word();
    if name.is_empty() {
        return Ok((Algorithm::SlidingLog, None));
    }
    match name.text().to_ascii_lowercase().as_str() {
        "sliding-log" => {
            no_option(rest, "the end of the text, as sliding-log has no options")?;
            Ok((Algorithm::SlidingLog, None))
        }
        "sliding-buckets" => {
            let (buckets, at) = count(rest, "buckets", "buckets=COUNT")?;
            Ok((Algorithm::SlidingBuckets { buckets }, Some(at)))
        }
        "spacing" => {
            no_option(rest, "the end of the text, as spacing has no options")?;
            Ok((Algorithm::Spacing, None))
        }
        "leaky-bucket" => {
            let (capacity, at) = count(rest, "capacity", "capacity=COUNT")?;
            Ok((Algorithm::LeakyBucket { capacity }, Some(at)))
        }
        "gcra" => {
            let (burst, at) = count(rest, "burst", "burst=COUNT")?;
            Ok((Algorithm::Gcra { burst }, Some(at)))
        }
        "fixed-window" => {
            let at = option(rest, "start", "start=clock or start=first-request")?;
            let start = at.map(start).transpose()?.unwrap_or_default();
            Ok((Algorithm::FixedWindow { start }, at))
        }
        text if text.contains('=') => {
            Err(name.wrong("option", "stands before any algorithm", ALGORITHM))
        }
        _ => Err(name.unknown("algorithm", ALGORITHM)),
    }
}

fn no_option(rest: &mut Part<'_>, expected: &'static str) -> Result<(), ParseQuotaError> {
    let word = rest.take_word();
    if word.is_empty() {
        return Ok(());
    }
    Err(stray(word, expected))
}

/// The number that the option is set to, and where it stands.
fn count<'a>(
    rest: &mut Part<'a>,
    name: &'static str,
    usage: &'static str,
) -> Result<(u32, Part<'a>), ParseQuotaError> {
    let value = option(rest, name, usage)?.ok_or_else(|| rest.unexpected(usage))?;
    Ok((value.count(name)?, value))
}

fn start(value: Part<'_>) -> Result<WindowStart, ParseQuotaError> {
    match value.text().to_ascii_lowercase().as_str() {
        "clock" => Ok(WindowStart::Clock),
        "first-request" => Ok(WindowStart::FirstRequest),
        _ => Err(value.unknown("start", "clock or first-request")),
    }
}

/// Where the value of the only option stands, if it is given, in all that is left of the text.
fn option<'a>(
    rest: &mut Part<'a>,
    name: &'static str,
    usage: &'static str,
) -> Result<Option<Part<'a>>, ParseQuotaError> {
    let mut value = None;
    loop {
        let word = rest.take_word();
        if word.is_empty() {
            return Ok(value);
        }
        let (name_at, value_at) = match word.split('=') {
            Some((name_at, value_at)) => (name_at, Some(value_at)),
            None => (word, None),
        };
        if !name_at.text().eq_ignore_ascii_case(name) {
            return Err(stray(word, if value.is_none() { usage } else { END }));
        }
        if value.is_some() {
            return Err(name_at.wrong("option", "is given twice", END));
        }
        value = value_at.filter(|at| !at.is_empty());
        if value.is_none() {
            return Err(word.wrong("option", "has no value", usage));
        }
    }
}

/// A word that belongs to no option.
fn stray(word: Part<'_>, expected: &'static str) -> ParseQuotaError {
    match word.split('=') {
        Some((name, _)) if !name.is_empty() => name.unknown("option", expected),
        _ => word.unexpected(expected),
    }
}

/// Refuses what a limiter would refuse, with the part at fault or the whole.
///
/// The parts are tried one by one, beside others that are beyond reproach.
fn check(
    quota: Quota,
    [limit, window, value]: [Part<'_>; 3],
    whole: Part<'_>,
) -> Result<(), ParseQuotaError> {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let algorithm = match quota.counted_by() {
        Algorithm::SlidingBuckets { .. } => Algorithm::SlidingBuckets { buckets: 1 },
        Algorithm::LeakyBucket { .. } => Algorithm::LeakyBucket { capacity: 1 },
        Algorithm::Gcra { .. } => Algorithm::Gcra { burst: 1 },
        other @ (Algorithm::SlidingLog | Algorithm::Spacing | Algorithm::FixedWindow { .. }) => {
            other
        }
    };
    let trials = [
        (limit, Quota::new(quota.limit(), DAY).algorithm(algorithm)),
        (window, Quota::new(1, quota.window()).algorithm(algorithm)),
        (
            whole,
            Quota::new(quota.limit(), quota.window()).algorithm(algorithm),
        ),
        (value, quota),
    ];
    for (part, trial) in trials {
        if let Err(error) = trial.check() {
            return Err(part.refused(error.problem().to_owned()));
        }
    }
    Ok(())
}
