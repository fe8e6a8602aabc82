mod properties;

use std::time::Duration;

use super::*;
use crate::quota::HORIZON;

#[test]
fn every_spelling_of_a_quota_is_read_and_the_first_one_is_shown() {
    let lines = "
        10/s|010/s|10/1s|10/S| \t10/s |10/s sliding-log
        5000/h|5_000/h|50_00/h|5_000/Hour
        1000000/d|1_000_000/1d
        100/m|100/60s|100/min
        600/1m30s|600/90s
        1/1h5s|1/1h00m05s|1/1hr5seconds|1/5s1h
        5/1s500ms|5/1_500ms|5/1.5s|5/1500ms
        1/7d|1/week
        1/2d3h|1/2days3hrs
        1/3650d|1/3_650d
        9/us|9/1\u{b5}s
        100/m sliding-buckets buckets=10|100/m sliding-buckets buckets=1_0
        100/m spacing|100/m   spacing |100/m Spacing
        100/m leaky-bucket capacity=1000|100/m leaky-bucket capacity=1_000
        100/m gcra burst=20|100/m GCRA Burst=2_0
        100/m fixed-window|100/m Fixed-Window start=Clock
        100/m fixed-window start=first-request|100/m fixed-window start=First-Request
        20 concurrent lease=30s|20 concurrent|2_0 Concurrent LEASE=30000ms
        5 concurrent lease=1s|5 concurrent lease=s
        100/m unit=tokens|100/m sliding-log UNIT=Tokens
        100/m fixed-window unit=a default_cost=50|100/m fixed-window default_cost=5_0 unit=a";
    for line in lines.lines().skip(1) {
        let shown = line.trim_start().split('|').next().unwrap();
        let quota: Quota = shown.parse().unwrap();
        for text in line.trim_start().split('|') {
            assert_eq!(text.parse(), Ok(quota), "{text}");
        }
        assert_eq!(quota.to_string(), shown);
    }
    let concurrent = Quota::concurrent(20).lease(Duration::from_secs(5));
    assert_eq!("20 concurrent lease=5s".parse(), Ok(concurrent));
    assert_eq!("1/3650d".parse(), Ok(Quota::new(1, HORIZON)));
}

#[test]
fn an_error_names_the_part_at_fault_and_what_was_expected() {
    // ALL is the text, LIMIT and WINDOW are its parts beside the slash, LAST is its last word.
    let problems = r#"
        unexpected end of text, expected LIMIT/WINDOW, such as 10/s, or LIMIT concurrent => | |
        unexpected "ALL", expected LIMIT/WINDOW, such as 10/s, or LIMIT concurrent => 10|10/|/s
        unexpected "10", expected LIMIT/WINDOW, such as 10/s, or LIMIT concurrent => 10 / s
        limit "LIMIT" is not a whole number, expected digits, such as 5_000 => ten/s|-1/s|1.5/s|5,000/s|_1/s|1__0/s|١/s
        limit "4294967296" is too large, expected at most 4_294_967_295 => 4294967296/d
        the limit is zero => 0/s
        unexpected "WINDOW", expected a unit, or counts with units, such as s, 90s or 1m30s => 10/fortnight|10/s/s|10/M|10/1M|10/60|10/h30m|10/1h-5m|10/99999999999999999999d|10/18446744073709551615s1000ms
        unexpected "1m60", expected a unit, or counts with units, such as s, 90s or 1m30s => 10/1m60 spacing
        the window is not in whole microseconds => 10/ns
        the window is zero => 10/0s
        the window is longer than ten years => 10/3651d|1/999999999d
        unknown algorithm "LAST", EXPECTED ALGORITHM => 1/s gcr|1/1m 30s
        unknown algorithm "burst=2", EXPECTED ALGORITHM => 1/s burst=2 gcra
        unexpected end of text, expected burst=COUNT => 1/s gcra |1/s gcra
        unexpected "LAST", expected burst=COUNT => 1/s gcra 20|1/s gcra =2|1/s gcra capacity=2|1/s gcra burst=
        unexpected "burst", expected burst=COUNT => 1/s gcra burst = 2
        burst "few" is not a whole number, expected digits, such as 5_000 => 1/s gcra burst=few
        capacity "5_000_000_000" is too large, expected at most 4_294_967_295 => 1/s leaky-bucket capacity=5_000_000_000
        unexpected "LAST", expected the end of the text => 1/s gcra burst=2 x=1|1/s spacing burst=2|1/s sliding-log now
        unexpected "LAST", expected start=clock or start=first-request => 1/s fixed-window noon|1/s fixed-window start=noon
        the burst is zero => 1/s gcra burst=0
        the limit is zero => 0 concurrent
        unexpected "LAST", expected lease=TIME => 5 concurrent burst=3|5 concurrent now
        unexpected "LAST", expected the end of the text => 5 concurrent lease=5s now
        unexpected "s5", expected a unit, or counts with units, such as s, 90s or 1m30s => 5 concurrent lease=s5
        the lease is shorter than a second => 5 concurrent lease=999ms|5 concurrent lease=0s
        the lease is longer than ten years => 5 concurrent lease=4000d
        a concurrency limit counts concurrent-requests => 5 concurrent unit=tokens
        only `Quota::concurrent` counts concurrent-requests, and it has no other algorithm => 5/s unit=concurrent-requests
        the burst is worth longer than ten years => 1/d gcra burst=5000
        the capacity is worth longer than ten years => 1/d leaky-bucket capacity=5000
        the buckets would be shorter than a microsecond => 1/5us sliding-buckets buckets=6
        the requests would be less than a microsecond apart => 11/10us spacing| 11/10us gcra burst=2
    "#;
    for (problem, texts) in problems.lines().filter_map(|line| line.split_once(" => ")) {
        for text in texts.split('|') {
            let (limit, window) = text.split_once('/').unwrap_or_default();
            let parts = [
                ("\"ALL\"", format!("{text:?}")),
                ("\"LIMIT\"", format!("{limit:?}")),
                ("\"WINDOW\"", format!("{window:?}")),
                ("LAST", text.split(' ').next_back().unwrap().to_owned()),
                ("EXPECTED ALGORITHM", format!("expected {ALGORITHM}")),
            ];
            let mut expected = problem.trim().to_owned();
            for (name, part) in parts {
                expected = expected.replace(name, &part);
            }
            let error = text.parse::<Quota>().expect_err(text).to_string();
            assert_eq!(error, format!("quota {text:?}: {expected}"));
        }
    }
}

#[test]
fn messages_stay_on_one_short_line_whatever_the_text() {
    let long = format!("10/{}", "week".repeat(10_000)).parse::<Quota>();
    let expected = format!(
        "quota \"10/{w}w\"…: unexpected \"{w}week\"…, expected a unit, or counts with units, such as s, 90s or 1m30s",
        w = "week".repeat(9),
    );
    assert_eq!(long.unwrap_err().to_string(), expected);
    let control = "10/s\0\u{1b}[31m\u{202e}".parse::<Quota>().unwrap_err();
    assert!(control.to_string().contains(r#""s\0\u{1b}[31m\u{202e}""#));
    assert!(!control.to_string().contains(char::is_control));
}
