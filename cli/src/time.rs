//! Formats durations and counts.

use std::time::Duration;

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
        let shown = |micros| span(Duration::from_micros(micros));
        assert_eq!(shown(0), "0s");
        assert_eq!(shown(499), "0s");
        assert_eq!(shown(12_400), "12ms");
        assert_eq!(shown(1_012_500), "1.013s");
        assert_eq!(shown(90_000_000), "90s");
        assert_eq!(
            seconds(Duration::from_micros(1_614_000)).to_string(),
            "1.614"
        );
    }

    #[test]
    fn long_durations_are_shortened_and_thousands_are_separated() {
        let shown = |millis| brief(Duration::from_millis(millis));
        assert_eq!([1_234, 12_345].map(shown), ["1.234s", "12.3s"]);
        assert_eq!(shown(3_723_456), "1h 2m 3s");
        assert_eq!(
            [0_u32, 999, 1_000, 1_234_567].map(count),
            ["0", "999", "1_000", "1_234_567"]
        );
    }
}
