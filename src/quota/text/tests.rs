mod properties;

use std::time::Duration;

use super::*;
use crate::quota::HORIZON;

fn error(text: &str) -> ParseQuotaError {
    text.parse::<Quota>()
        .expect_err(&format!("{text:?} is accepted"))
}

#[test]
fn canonical_texts_are_shown_as_they_were_written() {
    let minute = Quota::per_minute(100);
    let fixed = |start| minute.algorithm(Algorithm::FixedWindow { start });
    for (text, quota) in [
        ("10/s", Quota::per_second(10)),
        ("5_000/h", Quota::per_hour(5_000)),
        ("1_000_000/d", Quota::per_day(1_000_000)),
        ("600/1m30s", Quota::new(600, Duration::from_secs(90))),
        ("1/1h30m", Quota::new(1, Duration::from_secs(5_400))),
        ("5/1s500ms", Quota::new(5, Duration::from_millis(1_500))),
        ("1/3_650d", Quota::new(1, HORIZON)),
        ("999/us", Quota::new(999, Duration::from_micros(1))),
        (
            "100/m sliding-buckets buckets=10",
            minute.algorithm(Algorithm::SlidingBuckets { buckets: 10 }),
        ),
        (
            "10/s spacing",
            Quota::per_second(10).algorithm(Algorithm::Spacing),
        ),
        (
            "100/m leaky-bucket capacity=1_000",
            minute.algorithm(Algorithm::LeakyBucket { capacity: 1_000 }),
        ),
        (
            "100/m gcra burst=20",
            minute.algorithm(Algorithm::Gcra { burst: 20 }),
        ),
        ("100/m fixed-window", fixed(WindowStart::Clock)),
        (
            "100/m fixed-window start=first-request",
            fixed(WindowStart::FirstRequest),
        ),
    ] {
        assert_eq!(text.parse(), Ok(quota));
        assert_eq!(quota.to_string(), text);
    }
}

#[test]
fn other_ways_to_write_a_quota_are_understood() {
    for (text, canonical) in [
        ("5000/h", "5_000/h"),
        ("50_00/h", "5_000/h"),
        ("010/s", "10/s"),
        ("10/1s", "10/s"),
        ("10/60s", "10/m"),
        ("10/90s", "10/1m30s"),
        ("10/1m90s", "10/2m30s"),
        ("10/1h00m05s", "10/1h5s"),
        ("10/1_500ms", "10/1s500ms"),
        ("10/1d12h30m15s20ms7us", "10/1d12h30m15s20ms7us"),
        ("10/min", "10/m"),
        ("10/2days3hrs", "10/2d3h"),
        ("10/5minutes1second", "10/5m1s"),
        ("10/500\u{b5}s", "10/500us"),
        ("10/500\u{3bc}s", "10/500us"),
        ("10/S", "10/s"),
        ("10/Hour", "10/h"),
        ("10/5MS", "10/5ms"),
        (" \t10/s\n", "10/s"),
        ("10/s \n  spacing ", "10/s spacing"),
        ("10/s sliding-log", "10/s"),
        ("10/s GCRA Burst=1_0", "10/s gcra burst=10"),
        ("10/s fixed-window start=clock", "10/s fixed-window"),
        (
            "10/s Fixed-Window start=First-Request",
            "10/s fixed-window start=first-request",
        ),
    ] {
        let quota = text
            .parse::<Quota>()
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(quota.to_string(), canonical);
    }
}

#[test]
fn windows_that_no_limiter_accepts_are_shown_too() {
    let shown = |window| Quota::new(5, window).to_string();
    assert_eq!(shown(Duration::ZERO), "5/0ns");
    assert_eq!(shown(Duration::from_nanos(1)), "5/ns");
    assert_eq!(shown(Duration::from_nanos(1_500)), "5/1us500ns");
    assert_eq!(
        shown(Duration::MAX),
        "5/213_503_982_334_601d7h15s999ms999us999ns"
    );
}

#[test]
fn an_error_names_the_part_at_fault_and_what_was_expected() {
    const UNITS: &str = "expected one of d, h, m, s, ms, us";
    const ALGORITHMS: &str = "expected one of sliding-log, sliding-buckets, spacing, leaky-bucket, \
                              gcra, fixed-window";
    const RATE: &str = "expected LIMIT/WINDOW, such as 10/s";
    const WINDOW: &str = "expected a unit, or counts with units, such as 1m30s";
    const DIGITS: &str = "is not a whole number, expected digits, such as 5_000";
    const START: &str = "expected start=clock or start=first-request";
    const END: &str = "expected the end of the text";
    const ORDER: &str = "is not smaller than the one before it";
    for (text, problem) in [
        // Texts that end too early.
        ("", format!("unexpected end of text, {RATE}")),
        (" \n", format!("unexpected end of text, {RATE}")),
        (" 10 ", format!("unexpected \"10\", {RATE}")),
        ("10/", format!("unexpected \"10/\", {RATE}")),
        (
            "1/s gcra ",
            "unexpected end of text, expected burst=COUNT".into(),
        ),
        // The limit.
        ("/s", format!("unexpected \"/s\", {RATE}")),
        ("10 / s", format!("unexpected \"10\", {RATE}")),
        ("10/ s", format!("unexpected \"10/\", {RATE}")),
        (" ten/s", format!("limit \"ten\" {DIGITS}")),
        ("-1/s", format!("limit \"-1\" {DIGITS}")),
        ("1.5/s", format!("limit \"1.5\" {DIGITS}")),
        ("5,000/s", format!("limit \"5,000\" {DIGITS}")),
        ("_1/s", format!("limit \"_1\" {DIGITS}")),
        ("1__0/s", format!("limit \"1__0\" {DIGITS}")),
        ("\u{661}/s", format!("limit \"\u{661}\" {DIGITS}")),
        ("\u{a0}1/s", format!("limit \"\\u{{a0}}1\" {DIGITS}")),
        (
            "4294967296/d",
            "limit \"4294967296\" is too large, expected at most 4_294_967_295".into(),
        ),
        ("0/s", "the limit is zero".into()),
        // The window.
        (
            "10/fortnight",
            format!("unknown unit \"fortnight\", {UNITS}"),
        ),
        ("10/5ns", format!("unknown unit \"ns\", {UNITS}")),
        ("10/s/s", format!("unknown unit \"s/s\", {UNITS}")),
        ("10/60", format!("unexpected \"60\", {WINDOW}")),
        ("10/1m30 spacing", format!("unexpected \"30\", {WINDOW}")),
        ("10/1.5h", format!("count \"1.5\" {DIGITS}")),
        ("10/1h-5m", format!("count \"-5\" {DIGITS}")),
        ("10/h30m", format!("unexpected \"h\", {WINDOW}")),
        ("10/1M", format!("unknown unit \"M\", {UNITS}")),
        ("10/1m2min", format!("unit \"min\" {ORDER}")),
        ("10/1s2m", format!("unit \"m\" {ORDER}")),
        ("10/0s", "the window is zero".into()),
        ("10/3651d", "the window is longer than ten years".into()),
        (
            "1/99999999999999999999d",
            "the window is longer than ten years".into(),
        ),
        // The algorithm and its option.
        (
            "1/s gcr",
            format!("unknown algorithm \"gcr\", {ALGORITHMS}"),
        ),
        (
            "1/1m 30s",
            format!("unknown algorithm \"30s\", {ALGORITHMS}"),
        ),
        (
            "1/s burst=2 gcra",
            format!("unknown algorithm \"burst=2\", {ALGORITHMS}"),
        ),
        (
            "1/s gcra 20",
            "unexpected \"20\", expected burst=COUNT".into(),
        ),
        (
            "1/s gcra =20",
            "unexpected \"=20\", expected burst=COUNT".into(),
        ),
        (
            "1/s gcra capacity=20",
            "unexpected \"capacity=20\", expected burst=COUNT".into(),
        ),
        (
            "1/s gcra burst = 2",
            "unexpected \"burst\", expected burst=COUNT".into(),
        ),
        (
            "1/s gcra burst=",
            "unexpected \"burst=\", expected burst=COUNT".into(),
        ),
        ("1/s gcra burst=2 x=1", format!("unexpected \"x=1\", {END}")),
        ("1/s gcra burst=few", format!("burst \"few\" {DIGITS}")),
        (
            "1/s leaky-bucket capacity=5_000_000_000",
            "capacity \"5_000_000_000\" is too large, expected at most 4_294_967_295".into(),
        ),
        (
            "1/s spacing burst=2",
            format!("unexpected \"burst=2\", {END}"),
        ),
        ("1/s sliding-log now", format!("unexpected \"now\", {END}")),
        (
            "1/s fixed-window noon",
            format!("unexpected \"noon\", {START}"),
        ),
        (
            "1/s fixed-window start=noon",
            format!("unexpected \"start=noon\", {START}"),
        ),
        ("1/s gcra burst=0", "the burst is zero".into()),
        (
            "1/d gcra burst=5000",
            "the burst is worth longer than ten years".into(),
        ),
        (
            "1/5us sliding-buckets buckets=6",
            "the buckets would be shorter than a microsecond".into(),
        ),
        // All of it.
        (
            "11/10us spacing",
            "the requests would be less than a microsecond apart".into(),
        ),
        (
            " 11/10us gcra burst=2",
            "the requests would be less than a microsecond apart".into(),
        ),
    ] {
        let error = error(text);
        assert_eq!(error.to_string(), format!("quota {text:?}: {problem}"));
    }
}

#[test]
fn messages_stay_on_one_short_line_whatever_the_text() {
    let long = error(&format!("10/{}", "week".repeat(10_000)));
    assert_eq!(
        long.to_string(),
        format!(
            "quota \"10/{w}w\"…: unknown unit \"{w}week\"…, \
             expected one of d, h, m, s, ms, us",
            w = "week".repeat(9),
        ),
    );
    let control = error("10/s\0\u{1b}[31m\u{202e}");
    assert!(control.to_string().contains(r#""s\0\u{1b}[""#));
    assert!(!control.to_string().contains(char::is_control));
}
