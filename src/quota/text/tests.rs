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
    for (text, part, problem) in [
        // Texts that end too early.
        ("", 0..0, format!("unexpected end of text at byte 0, {RATE}")),
        (" \n", 0..0, format!("unexpected end of text at byte 0, {RATE}")),
        (" 10 ", 1..3, format!("unexpected \"10\" at byte 1, {RATE}")),
        ("10/", 0..3, format!("unexpected \"10/\" at byte 0, {RATE}")),
        ("1/s gcra ", 8..8, "unexpected end of text at byte 8, expected burst=COUNT".into()),
        // The limit.
        ("/s", 0..2, format!("unexpected \"/s\" at byte 0, {RATE}")),
        ("10 / s", 0..2, format!("unexpected \"10\" at byte 0, {RATE}")),
        ("10/ s", 0..3, format!("unexpected \"10/\" at byte 0, {RATE}")),
        (" ten/s", 1..4, format!("limit \"ten\" at byte 1 {DIGITS}")),
        ("-1/s", 0..2, format!("limit \"-1\" at byte 0 {DIGITS}")),
        ("1.5/s", 0..3, format!("limit \"1.5\" at byte 0 {DIGITS}")),
        ("5,000/s", 0..5, format!("limit \"5,000\" at byte 0 {DIGITS}")),
        ("_1/s", 0..2, format!("limit \"_1\" at byte 0 {DIGITS}")),
        ("1__0/s", 0..4, format!("limit \"1__0\" at byte 0 {DIGITS}")),
        ("\u{661}/s", 0..2, format!("limit \"\u{661}\" at byte 0 {DIGITS}")),
        ("\u{a0}1/s", 0..3, format!("limit \"\\u{{a0}}1\" at byte 0 {DIGITS}")),
        (
            "4294967296/d",
            0..10,
            "limit \"4294967296\" at byte 0 is too large, expected at most 4_294_967_295".into(),
        ),
        ("0/s", 0..1, "the limit is zero (\"0\" at byte 0)".into()),
        // The window.
        ("10/fortnight", 3..12, format!("unknown unit \"fortnight\" at byte 3, {UNITS}")),
        ("10/5ns", 4..6, format!("unknown unit \"ns\" at byte 4, {UNITS}")),
        ("10/s/s", 3..6, format!("unknown unit \"s/s\" at byte 3, {UNITS}")),
        ("10/60", 3..5, format!("unexpected \"60\" at byte 3, {WINDOW}")),
        ("10/1m30 spacing", 5..7, format!("unexpected \"30\" at byte 5, {WINDOW}")),
        ("10/1.5h", 3..6, format!("count \"1.5\" at byte 3 {DIGITS}")),
        ("10/1h-5m", 5..7, format!("count \"-5\" at byte 5 {DIGITS}")),
        ("10/h30m", 3..4, format!("unexpected \"h\" at byte 3, {WINDOW}")),
        ("10/1M", 4..5, format!("unknown unit \"M\" at byte 4, {UNITS}")),
        ("10/1m2min", 6..9, format!("unit \"min\" at byte 6 {ORDER}")),
        ("10/1s2m", 6..7, format!("unit \"m\" at byte 6 {ORDER}")),
        ("10/0s", 3..5, "the window is zero (\"0s\" at byte 3)".into()),
        (
            "10/3651d",
            3..8,
            "the window is longer than ten years (\"3651d\" at byte 3)".into(),
        ),
        (
            "1/99999999999999999999d",
            2..23,
            "the window is longer than ten years (\"99999999999999999999d\" at byte 2)".into(),
        ),
        // The algorithm and its option.
        ("1/s gcr", 4..7, format!("unknown algorithm \"gcr\" at byte 4, {ALGORITHMS}")),
        ("1/1m 30s", 5..8, format!("unknown algorithm \"30s\" at byte 5, {ALGORITHMS}")),
        (
            "1/s burst=2 gcra",
            4..11,
            format!("unknown algorithm \"burst=2\" at byte 4, {ALGORITHMS}"),
        ),
        ("1/s gcra 20", 9..11, "unexpected \"20\" at byte 9, expected burst=COUNT".into()),
        ("1/s gcra =20", 9..12, "unexpected \"=20\" at byte 9, expected burst=COUNT".into()),
        (
            "1/s gcra capacity=20",
            9..20,
            "unexpected \"capacity=20\" at byte 9, expected burst=COUNT".into(),
        ),
        (
            "1/s gcra burst = 2",
            9..14,
            "unexpected \"burst\" at byte 9, expected burst=COUNT".into(),
        ),
        (
            "1/s gcra burst=",
            9..15,
            "unexpected \"burst=\" at byte 9, expected burst=COUNT".into(),
        ),
        ("1/s gcra burst=2 x=1", 17..20, format!("unexpected \"x=1\" at byte 17, {END}")),
        ("1/s gcra burst=few", 15..18, format!("burst \"few\" at byte 15 {DIGITS}")),
        (
            "1/s leaky-bucket capacity=5_000_000_000",
            26..39,
            "capacity \"5_000_000_000\" at byte 26 is too large, expected at most 4_294_967_295".into(),
        ),
        ("1/s spacing burst=2", 12..19, format!("unexpected \"burst=2\" at byte 12, {END}")),
        ("1/s sliding-log now", 16..19, format!("unexpected \"now\" at byte 16, {END}")),
        ("1/s fixed-window noon", 17..21, format!("unexpected \"noon\" at byte 17, {START}")),
        (
            "1/s fixed-window start=noon",
            17..27,
            format!("unexpected \"start=noon\" at byte 17, {START}"),
        ),
        ("1/s gcra burst=0", 15..16, "the burst is zero (\"0\" at byte 15)".into()),
        (
            "1/d gcra burst=5000",
            15..19,
            "the burst is worth longer than ten years (\"5000\" at byte 15)".into(),
        ),
        (
            "1/5us sliding-buckets buckets=6",
            30..31,
            "the buckets would be shorter than a microsecond (\"6\" at byte 30)".into(),
        ),
        // All of it.
        (
            "11/10us spacing",
            0..15,
            "the requests would be less than a microsecond apart".into(),
        ),
        (
            " 11/10us gcra burst=2",
            1..21,
            "the requests would be less than a microsecond apart (\"11/10us gcra burst=2\" at byte 1)"
                .into(),
        ),
    ] {
        let error = error(text);
        assert_eq!(error.to_string(), format!("quota {text:?}: {problem}"));
        assert_eq!(error.span(), part, "{text:?}");
    }
}

#[test]
fn messages_stay_on_one_short_line_whatever_the_text() {
    let long = error(&format!("10/{}", "week".repeat(10_000)));
    assert_eq!(long.span(), 3..40_003);
    assert_eq!(
        long.to_string(),
        format!(
            "quota \"10/{w}w\"…: unknown unit \"{w}week\"… at byte 3, \
             expected one of d, h, m, s, ms, us",
            w = "week".repeat(9),
        ),
    );
    let control = error("10/s\0\u{1b}[31m\u{202e}");
    assert!(control.to_string().contains(r#""s\0\u{1b}[" at byte 3"#));
    assert!(!control.to_string().contains(char::is_control));
}
