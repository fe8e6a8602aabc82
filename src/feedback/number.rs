//! Numbers and durations as providers write them.

use std::iter::repeat;
use std::time::Duration;

/// A number of seconds; what is shorter than a nanosecond is rounded up.
pub(super) fn seconds(text: &str) -> Option<Duration> {
    let (whole, fraction) = decimal(text)?;
    // Digits are no number only if they are too many.
    let whole = whole.parse().unwrap_or(u64::MAX);
    let nanos = fraction.bytes().chain(repeat(b'0')).take(9);
    let nanos = nanos.fold(0, |nanos, digit| 10 * nanos + u32::from(digit - b'0'));
    let is_longer = fraction.bytes().skip(9).any(|digit| digit != b'0');
    Some(Duration::new(whole, nanos).saturating_add(Duration::from_nanos(is_longer.into())))
}

/// Numbers with units, such as `6m0s`, `120ms` or `7.66s`.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let (mut sum, mut rest) = (Duration::ZERO, text);
    while !rest.is_empty() {
        let letters = rest.find(|char: char| char.is_ascii_alphabetic())?;
        let (number, from_unit) = rest.split_at(letters);
        let digits = from_unit.find(|char: char| !char.is_ascii_alphabetic());
        let (unit, behind) = from_unit.split_at(digits.unwrap_or(from_unit.len()));
        let (factor, divisor) = match unit {
            "d" => (86_400, 1),
            "h" => (3_600, 1),
            "m" => (60, 1),
            "s" => (1, 1),
            "ms" => (1, 1_000),
            "us" => (1, 1_000_000),
            "ns" => (1, 1_000_000_000),
            _ => return None,
        };
        sum = sum.saturating_add(seconds(number)?.saturating_mul(factor) / divisor);
        rest = behind;
    }
    (!text.is_empty()).then_some(sum)
}

/// An amount; what is less than a whole one is none.
pub(super) fn count(text: &str) -> Option<u32> {
    let (whole, _) = decimal(text)?;
    Some(whole.parse().unwrap_or(u32::MAX))
}

/// The digits before and after the point.
fn decimal(text: &str) -> Option<(&str, &str)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    (is_digits(whole) && is_digits(fraction)).then_some((whole, fraction))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_up_to_nanoseconds_and_counts_are_rounded_down() {
        for (text, nanos, expected) in [
            ("007", 7_000_000_000, 7),
            ("598.0", 598_000_000_000, 598),
            ("0.1234567890", 123_456_789, 0),
            ("0.1234567891", 123_456_790, 0),
            ("1.9999999999", 2_000_000_000, 1),
        ] {
            assert_eq!(seconds(text), Some(Duration::from_nanos(nanos)), "{text}");
            assert_eq!(count(text), Some(expected), "{text}");
        }
        let digits = "9".repeat(400);
        assert_eq!(seconds(&digits), Some(Duration::from_secs(u64::MAX)));
        assert_eq!(seconds(&format!("{digits}.{digits}")), Some(Duration::MAX));
        assert_eq!(count(&digits), Some(u32::MAX));
        let texts = "|.|1.|.5|1.2.3|-1|+1|1e3|0x10|1_000|1,5|1 2| 1|NaN|inf|1s|\u{663}";
        for text in texts.split('|') {
            assert_eq!((seconds(text), count(text)), (None, None), "{text}");
        }
    }

    #[test]
    fn durations_are_sums_of_numbers_with_units() {
        let texts = "6m0s=360000 120ms=120 7.66s=7660 1d2h0.5m=93630000 1500us250000ns=1 0s=0";
        for (text, millis) in texts.split(' ').filter_map(|it| it.split_once('=')) {
            let read = duration(text).map(|it| it.as_millis().to_string());
            assert_eq!(read.as_deref(), Some(millis), "{text}");
        }
        for text in "|6|s|m6|-1s|6m-1s|6m 0s|1.s|6min|6M|s6m|6m0".split('|') {
            assert_eq!(duration(text), None, "{text}");
        }
        let longest = format!("{0}d{0}d", "9".repeat(40));
        assert_eq!(duration(&longest), Some(Duration::MAX));
    }
}
