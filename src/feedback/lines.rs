//! The lines of a header that may come more than once: [`values`].

use http::HeaderMap;
use http::header::AsHeaderName;

/// The values of all lines of a header. A line is one value, or several with commas between them; it is
/// left out if any of them is malformed.
pub(super) fn values<T>(
    headers: &HeaderMap,
    name: impl AsHeaderName,
    value: impl Fn(&str) -> Option<T>,
) -> Vec<T> {
    let value = |text: &str| value(text.trim());
    // The whole comes first, as a date has a comma of its own.
    let line = |line: &str| match value(line) {
        Some(value) => Some(vec![value]),
        None => line.split(',').map(value).collect(),
    };
    let lines = headers.get_all(name).iter();
    let lines = lines.filter_map(|bytes| bytes.to_str().ok());
    lines.filter_map(line).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feedback::number::count;

    #[test]
    fn a_malformed_line_does_not_affect_the_others() {
        for (lines, expected) in [
            (&[][..], &[][..]),
            (&[" 7\t", "8"], &[7, 8]),
            (&["7, 8,9"], &[7, 8, 9]),
            (&["1, x", "8", "\u{e9}"], &[8]),
            (&["", ",1", "1,"], &[]),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append("x-a", line.parse().unwrap());
            }
            assert_eq!(values(&headers, "x-a", count), expected, "{lines:?}");
        }
    }
}
