use std::time::{Duration, UNIX_EPOCH};

use http::HeaderMap;

use super::*;

mod properties;
mod samples;

/// The system clock of all tests: Tue, 14 Nov 2023 22:13:20 GMT.
const NOW: u64 = 1_700_000_000;

fn read_by(reader: &Headers, status: u16, lines: &[(&'static str, &str)]) -> Advice {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(*name, value.parse().unwrap());
    }
    let status = StatusCode::from_u16(status).unwrap();
    reader.read_at(status, &headers, UNIX_EPOCH + secs(NOW))
}

fn read(status: u16, lines: &[(&'static str, &str)]) -> Advice {
    read_by(&Headers::new(), status, lines)
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn pause(seconds: u64) -> Advice {
    Advice::pause(secs(seconds))
}

fn remaining(count: u32, seconds: u64) -> Advice {
    Advice::remaining(count, secs(seconds))
}

const EXHAUSTED: (&str, &str) = ("ratelimit", r#""a";r=0;t=5"#);

#[test]
fn retry_after_counts_on_the_statuses_that_refuse() {
    for status in [403, 429, 503] {
        assert_eq!(read(status, &[("retry-after", "20")]), pause(20));
    }
    for status in [200, 202, 301, 304, 401, 413, 500, 502, 504] {
        assert_eq!(read(status, &[("retry-after", "20")]), Advice::none());
    }
}

#[test]
fn retry_after_is_a_number_or_a_date_of_any_format() {
    for (value, millis) in [
        ("120", 120_000),
        (" 2.0 ", 2_000),
        ("0.25", 250),
        ("Tue, 14 Nov 2023 22:13:50 GMT", 30_000),
        ("Tuesday, 14-Nov-23 22:13:50 GMT", 30_000),
        ("Tue Nov 14 22:13:50 2023", 30_000),
        ("30, 60, 45", 60_000),
        ("99999999999999999999999", 3_600_000),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 3_600_000),
    ] {
        let expected = Advice::pause(Duration::from_millis(millis));
        assert_eq!(read(503, &[("retry-after", value)]), expected, "{value}");
    }
}

#[test]
fn retry_after_that_is_over_or_malformed_is_as_if_missing() {
    for value in [
        "0",
        "0.0",
        "-5",
        "soon",
        "1e3",
        "inf",
        "NaN",
        "Tue, 14 Nov 2023 22:13:20 GMT",
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Wed, 14 Nov 2023 22:13:50 GMT",
        "Tue, 31 Nov 2023 22:13:50 GMT",
        "Tue, 14",
    ] {
        let line = ("retry-after", value);
        assert_eq!(read(503, &[line]), Advice::none(), "{value}");
        assert_eq!(read(403, &[line]), Advice::none(), "{value}");
        assert_eq!(read(429, &[line]), pause(1), "{value}");
        assert_eq!(read(429, &[line, EXHAUSTED]), pause(5), "{value}");
    }
}

#[test]
fn of_several_lines_the_longest_wait_counts() {
    let lines = [
        ("retry-after", "20"),
        ("retry-after", "Tue, 14 Nov 2023 22:13:50 GMT"),
        ("retry-after", "soon"),
    ];
    assert_eq!(read(429, &lines), pause(30));
}

#[test]
fn dates_are_measured_from_that_of_the_response() {
    let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
    let retry_after = ("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT");
    assert_eq!(read(503, &[date, retry_after]), pause(30));
    // A cache has kept it for some of the time.
    assert_eq!(read(503, &[date, retry_after, ("age", "10")]), pause(20));
    let malformed = ("date", "Sun, 06 Nov 1994");
    assert_eq!(read(503, &[malformed, retry_after]), Advice::none());

    let lines = [
        ("date", "Tue, 14 Nov 2023 21:13:20 GMT"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "1699996460"),
    ];
    assert_eq!(read(200, &lines), pause(60));
}

#[test]
fn retry_after_goes_before_the_reset_and_leaves_the_allowance() {
    for wait in [2, 20] {
        let value = wait.to_string();
        assert_eq!(
            read(429, &[("retry-after", &value), EXHAUSTED]),
            pause(wait)
        );
    }
    let lines = [
        ("retry-after", "20"),
        (
            "ratelimit",
            r#""burst";r=0;t=90,"day";r=9;t=20,"hour";r=15;t=40"#,
        ),
    ];
    assert_eq!(read(503, &lines), pause(20).and(remaining(15, 40)));
}

#[test]
fn where_nothing_remains_it_is_a_pause_on_any_status() {
    for status in [200, 304, 403, 404, 429, 500, 503] {
        assert_eq!(read(status, &[EXHAUSTED]), pause(5));
    }
    // On this status the other wait does not count.
    assert_eq!(read(200, &[EXHAUSTED, ("retry-after", "20")]), pause(5));
}

#[test]
fn of_several_limits_the_latest_pause_and_the_fewest_count() {
    for (limits, expected) in [
        (r#""a";r=0;t=5, "b";r=0;t=9, "c";r=0"#, pause(9)),
        (r#""a";r=6;t=5, "b";r=5;t=3, "c";r=5;t=4"#, remaining(5, 4)),
        (
            r#""a";r=0;t=5, "b";r=3;t=60"#,
            pause(5).and(remaining(3, 60)),
        ),
        // Those of `b` are over when the pause is.
        (
            r#""a";r=0;t=5, "b";r=1;t=5, "c";r=3;t=60"#,
            pause(5).and(remaining(3, 60)),
        ),
        (r#""a";r=0, "b";r=3;t=60"#, remaining(3, 60)),
    ] {
        assert_eq!(read(200, &[("ratelimit", limits)]), expected, "{limits}");
    }
}

#[test]
fn without_a_reset_nothing_is_said() {
    for limits in [
        r#""a";r=0"#,
        r#""a";r=0;t=0"#,
        r#""a";r=7"#,
        r#""a";r=7;t=0"#,
    ] {
        assert_eq!(read(200, &[("ratelimit", limits)]), Advice::none());
        assert_eq!(read(503, &[("ratelimit", limits)]), Advice::none());
        assert_eq!(read(429, &[("ratelimit", limits)]), pause(1));
    }
}

#[test]
fn a_429_that_does_not_say_how_long_is_a_pause_of_its_own() {
    assert_eq!(read(429, &[]), pause(1));
    let left = ("ratelimit", r#""a";r=7;t=30"#);
    assert_eq!(read(429, &[left]), pause(1).and(remaining(7, 30)));

    let longer = Headers::new().unstated_pause(secs(30));
    assert_eq!(read_by(&longer, 429, &[]), pause(30));
    assert_eq!(read_by(&longer, 429, &[left]), pause(30));
    assert_eq!(read_by(&longer, 429, &[EXHAUSTED]), pause(5));
    assert_eq!(read_by(&longer, 503, &[]), Advice::none());
    assert_eq!(
        read_by(&longer.longest_pause(secs(10)), 429, &[]),
        pause(10)
    );

    let none = Headers::new().unstated_pause(Duration::ZERO);
    assert_eq!(read_by(&none, 429, &[]), Advice::none());
    assert_eq!(read_by(&none, 429, &[EXHAUSTED]), pause(5));
}

#[test]
fn a_403_is_a_limit_only_where_it_shows_one() {
    let left = ("x-ratelimit-remaining", "7");
    let reset = ("x-ratelimit-reset", "30");
    assert_eq!(read(403, &[left, reset]), Advice::none());
    let expected = pause(20).and(remaining(7, 30));
    assert_eq!(read(403, &[left, reset, ("retry-after", "20")]), expected);
    let mixed = ("ratelimit", r#""a";r=0, "b";r=7;t=30"#);
    assert_eq!(read(403, &[mixed]), remaining(7, 30));
    assert_eq!(read(403, &[]), Advice::none());
}

#[test]
fn a_response_from_a_cache_does_not_tell_what_remains() {
    let left = ("ratelimit", r#""a";r=7;t=30"#);
    for age in ["1", "0.5", "60, 0"] {
        let age = ("age", age);
        assert_eq!(read(200, &[left, age]), Advice::none());
        assert_eq!(read(200, &[EXHAUSTED, age]), Advice::none());
        assert_eq!(read(403, &[EXHAUSTED, age]), Advice::none());
        assert_eq!(read(429, &[EXHAUSTED, age]), pause(1));
        assert_eq!(
            read(503, &[EXHAUSTED, ("retry-after", "20"), age]),
            pause(20)
        );
    }
    for age in ["0", "-1", "old", ""] {
        assert_eq!(read(200, &[left, ("age", age)]), remaining(7, 30), "{age}");
    }
}

#[test]
fn times_are_cut_down_to_the_longest_pause() {
    let reader = Headers::new().longest_pause(secs(60));
    let day = ("ratelimit", r#""day";r=100;t=36000"#);
    assert_eq!(read_by(&reader, 200, &[day]), remaining(100, 60));
    assert_eq!(read(200, &[day]), remaining(100, 3600));
    let day = ("ratelimit", r#""day";r=0;t=36000"#);
    assert_eq!(read_by(&reader, 200, &[day]), pause(60));
    assert_eq!(read_by(&reader, 503, &[("retry-after", "61")]), pause(60));

    let never = Headers::new().longest_pause(Duration::ZERO);
    assert_eq!(
        read_by(&never, 429, &[day, ("retry-after", "61")]),
        Advice::none()
    );
}
