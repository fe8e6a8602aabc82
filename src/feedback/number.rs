//! Numbers as providers write them.

use std::iter::repeat;
use std::time::Duration;

/// A number of seconds; what is shorter than a nanosecond is left out.
pub(super) fn seconds(text: &str) -> Option<Duration> {
    let (whole, fraction) = decimal(text)?;
    // Digits are no number only if they are too many.
    let whole = whole.parse().unwrap_or(u64::MAX);
    let nanos = fraction.bytes().chain(repeat(b'0')).take(9);
    let nanos = nanos.fold(0, |nanos, digit| 10 * nanos + u32::from(digit - b'0'));
    Some(Duration::new(whole, nanos))
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
    fn seconds_are_rounded_down_to_nanoseconds_and_counts_to_whole_ones() {
        for (text, nanos, expected) in [
            ("007", 7_000_000_000, 7),
            ("598.0", 598_000_000_000, 598),
            ("0.1234567891", 123_456_789, 0),
            ("1.9999999999", 1_999_999_999, 1),
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
}
