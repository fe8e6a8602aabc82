//! Parses durations, and formats durations and counts.

use std::time::Duration;

/// Parses a duration such as `1h 30m`. Long texts and numbers are refused, as `humantime` panics where their sum overflows.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    if text.len() > 64 || numbers.any(|number| number.len() > 11) {
        return Err("a number is too long".to_owned());
    }
    humantime::parse_duration(text).map_err(|error| error.to_string())
}

/// Seconds, to the microsecond, which is the resolution of stores.
pub(crate) fn seconds(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e6
}

/// A duration to the millisecond, such as `1.012s` or `12ms`.
pub(crate) fn span(time: Duration) -> String {
    let millis = u64::try_from((time.as_micros() + 500) / 1_000).unwrap_or(u64::MAX);
    match millis {
        0 => "0s".to_owned(),
        _ => format!("{:?}", Duration::from_millis(millis)),
    }
}

/// A duration to the millisecond below 10 s, to a tenth of a second below a minute, or else to the second.
pub(crate) fn brief(time: Duration) -> String {
    match time.as_millis() {
        0..10_000 => span(time),
        10_000..60_000 => format!("{:.1}s", seconds(time)),
        _ => humantime::format_duration(Duration::from_secs(time.as_secs())).to_string(),
    }
}

/// A number with `_` between thousands, as in quotas.
pub(crate) fn count(number: impl Into<u64>) -> String {
    let digits = number.into().to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push('_');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_to_the_millisecond() {
        let shown = [0, 499, 12_400, 1_012_500, 90_000_000].map(Duration::from_micros);
        assert_eq!(shown.map(span), ["0s", "0s", "12ms", "1.013s", "90s"]);
        assert_eq!(seconds(Duration::from_millis(1_614)).to_string(), "1.614");
        assert!(parse("18446744073709551615s1000ms").is_err());
    }

    #[test]
    fn long_durations_are_shortened_and_thousands_are_separated() {
        let shown = [1_234, 12_345, 3_723_456].map(Duration::from_millis);
        assert_eq!(shown.map(brief), ["1.234s", "12.3s", "1h 2m 3s"]);
        let counts = [0_u32, 999, 1_000, 1_234_567];
        assert_eq!(counts.map(count), ["0", "999", "1_000", "1_234_567"]);
    }
}
