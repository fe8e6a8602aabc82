//! Numbers as providers write them: digits, perhaps with a fraction, and nothing else.

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

/// A number of requests; what is less than a whole one is none.
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
    fn seconds_may_have_a_fraction_and_are_never_cut() {
        for (text, nanos) in [
            ("0", 0),
            ("007", 7_000_000_000),
            ("2.0", 2_000_000_000),
            ("64.57", 64_570_000_000),
            ("0.123456789", 123_456_789),
            ("0.1234567890", 123_456_789),
            ("0.1234567891", 123_456_790),
            ("0.0000000001", 1),
            ("1.9999999999", 2_000_000_000),
        ] {
            assert_eq!(seconds(text), Some(Duration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn too_many_digits_are_the_largest_number() {
        let digits = "9".repeat(400);
        assert_eq!(seconds(&digits), Some(Duration::from_secs(u64::MAX)));
        assert_eq!(seconds(&format!("{digits}.{digits}")), Some(Duration::MAX));
        assert_eq!(count(&digits), Some(u32::MAX));
    }

    #[test]
    fn a_count_is_rounded_down() {
        for (text, expected) in [("0", 0), ("12", 12), ("598.0", 598), ("0.9", 0)] {
            assert_eq!(count(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn nothing_but_digits_is_a_number() {
        for text in [
            "", ".", "1.", ".5", "1.2.3", "-1", "+1", "1e3", "0x10", "1_000", "1,5", "1 2", " 1",
            "NaN", "nan", "inf", "infinity", "1s", "\u{0663}",
        ] {
            assert_eq!(seconds(text), None, "{text}");
            assert_eq!(count(text), None, "{text}");
        }
    }
}
