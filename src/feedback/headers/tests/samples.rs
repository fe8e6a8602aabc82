//! What APIs really send, by their own documentation.

use super::*;

#[test]
fn github_tells_its_primary_limit() {
    let limit = ("x-ratelimit-limit", "60");
    let used = ("x-ratelimit-used", "8");
    let resource = ("x-ratelimit-resource", "core");
    let date = ("date", "Tue, 14 Nov 2023 22:13:18 GMT");
    let reset = ("x-ratelimit-reset", "1700001000");

    let left = [
        limit,
        ("x-ratelimit-remaining", "52"),
        used,
        resource,
        date,
        reset,
    ];
    assert_eq!(read(200, &left), remaining(52, 1002));
    assert_eq!(read(304, &left), remaining(52, 1002));
    // Such a 403 is about something else, such as rights.
    assert_eq!(read(403, &left), Advice::none());

    let exhausted = [
        limit,
        ("x-ratelimit-remaining", "0"),
        used,
        resource,
        date,
        reset,
    ];
    assert_eq!(read(403, &exhausted), pause(1002));
    assert_eq!(read(429, &exhausted), pause(1002));
}

#[test]
fn github_tells_its_secondary_limits() {
    let lines = [
        ("retry-after", "60"),
        ("x-ratelimit-limit", "5000"),
        ("x-ratelimit-remaining", "4987"),
        ("x-ratelimit-reset", "1700001800"),
    ];
    let expected = pause(60).and(remaining(4987, 1800));
    assert_eq!(read(403, &lines), expected);
    assert_eq!(read(429, &lines), expected);
}

#[test]
fn twitter_puts_one_more_hyphen() {
    let lines = |remaining| {
        [
            ("x-rate-limit-limit", "75"),
            ("x-rate-limit-remaining", remaining),
            ("x-rate-limit-reset", "1700000840"),
        ]
    };
    assert_eq!(read(200, &lines("74")), remaining(74, 840));
    assert_eq!(read(429, &lines("0")), pause(840));
}

#[test]
fn discord_tells_the_delay_with_a_fraction() {
    let lines = |remaining| {
        [
            ("x-ratelimit-limit", "10"),
            ("x-ratelimit-remaining", remaining),
            ("x-ratelimit-reset", "1700000123.456"),
            ("x-ratelimit-reset-after", "64.57"),
            ("x-ratelimit-bucket", "abcd1234"),
        ]
    };
    let delay = Duration::from_millis(64_570);
    assert_eq!(read(200, &lines("1")), Advice::remaining(1, delay));
    assert_eq!(read(200, &lines("0")), Advice::pause(delay));
    assert_eq!(
        read(429, &[&lines("0")[..], &[("retry-after", "65")]].concat()),
        pause(65)
    );
    // Without the delay, the moment is known as exactly.
    assert_eq!(
        read(200, &lines("0")[..3]),
        Advice::pause(Duration::from_millis(123_456))
    );
    assert_eq!(
        read(
            429,
            &[("retry-after", "65"), ("x-ratelimit-global", "true")]
        ),
        pause(65)
    );
}

#[test]
fn gitlab_gives_the_triple_a_unix_time() {
    let lines = |remaining| {
        [
            ("ratelimit-limit", "60"),
            ("ratelimit-name", "throttle_authenticated_web"),
            ("ratelimit-observed", "67"),
            ("ratelimit-remaining", remaining),
            ("ratelimit-reset", "1700000030"),
            ("ratelimit-resettime", "Tue, 14 Nov 2023 22:13:50 GMT"),
        ]
    };
    assert_eq!(read(200, &lines("3")), remaining(3, 30));
    assert_eq!(read(429, &lines("0")), pause(30));
    assert_eq!(
        read(429, &[&lines("0")[..], &[("retry-after", "31")]].concat()),
        pause(31)
    );
}

#[test]
fn drafts_before_07_give_the_triple_a_delay() {
    let lines = [
        ("ratelimit-limit", "100, 100;w=60, 1000;w=3600"),
        ("ratelimit-remaining", "50"),
        ("ratelimit-reset", "50"),
    ];
    assert_eq!(read(200, &lines), remaining(50, 50));
}

#[test]
fn draft_07_has_a_dictionary() {
    let policy = ("ratelimit-policy", "100;w=60");
    let left = ("ratelimit", "limit=100, remaining=50, reset=30");
    assert_eq!(read(200, &[policy, left]), remaining(50, 30));
    let exhausted = ("ratelimit", "limit=100, remaining=0, reset=30");
    assert_eq!(read(429, &[policy, exhausted]), pause(30));
}

#[test]
fn draft_11_has_a_list() {
    for (status, lines, expected) in [
        (
            200,
            &[("ratelimit", r#""default";r=50;t=30"#)][..],
            remaining(50, 30),
        ),
        (
            200,
            &[("ratelimit", r#""default";r=999;pk=:dHJpYWwxMjEzMjM=:"#)],
            Advice::none(),
        ),
        (
            200,
            &[
                (
                    "ratelimit-policy",
                    r#""app";q=500000000;qu="content-bytes";w=60;pk=:QXBwLTk5OQ==:"#,
                ),
                ("ratelimit", r#""app";r=300000000;t=60;pk=:QXBwLTk5OQ==:"#),
            ],
            Advice::none(),
        ),
        (
            200,
            &[
                (
                    "ratelimit-policy",
                    r#""app";q=500000000;qu="content-bytes";w=60"#,
                ),
                ("ratelimit", r#""app";r=0;t=60"#),
            ],
            pause(60),
        ),
        (
            200,
            &[
                (
                    "ratelimit-policy",
                    r#""slots";q=8;qu="concurrent-requests""#,
                ),
                ("ratelimit", r#""slots";r=0;t=60"#),
            ],
            Advice::none(),
        ),
        (
            301,
            &[("location", "/foo/123"), ("ratelimit", r#""p";r=0;t=10"#)],
            pause(10),
        ),
        (
            429,
            &[
                ("date", "Mon, 05 Aug 2019 09:27:00 GMT"),
                ("retry-after", "Mon, 05 Aug 2019 09:27:05 GMT"),
                ("ratelimit", r#""default";r=0;t=5"#),
            ],
            pause(5),
        ),
        (
            429,
            &[
                ("retry-after", "20"),
                ("ratelimit-policy", r#""dynamic";q=100;w=60"#),
                ("ratelimit", r#""dynamic";r=15;t=40"#),
            ],
            pause(20).and(remaining(15, 40)),
        ),
        (
            200,
            &[
                (
                    "ratelimit-policy",
                    r#""hour";q=1000;w=3600, "day";q=5000;w=86400"#,
                ),
                ("ratelimit", r#""day";r=100;t=36000"#),
            ],
            remaining(100, 3600),
        ),
    ] {
        assert_eq!(read(status, lines), expected, "{lines:?}");
    }
}

#[test]
fn a_newer_form_goes_before_those_that_are_kept_for_old_clients() {
    let lines = [
        ("x-ratelimit-limit", "60"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "1700000030"),
        ("ratelimit-policy", r#""minute";q=60;w=60"#),
        ("ratelimit", r#""minute";r=12;t=30"#),
    ];
    assert_eq!(read(200, &lines), remaining(12, 30));
    assert_eq!(read(200, &lines[..4]), pause(30));
}

#[test]
fn shopify_has_a_fraction_in_its_seconds() {
    let lines = [
        ("retry-after", "2.0"),
        ("x-shopify-shop-api-call-limit", "40/40"),
    ];
    assert_eq!(read(429, &lines), pause(2));
}

#[test]
fn reddit_has_a_fraction_in_its_count() {
    let lines = |remaining| {
        [
            ("x-ratelimit-remaining", remaining),
            ("x-ratelimit-used", "2"),
            ("x-ratelimit-reset", "300"),
        ]
    };
    assert_eq!(read(200, &lines("598.0")), remaining(598, 300));
    assert_eq!(read(429, &lines("0.0")), pause(300));
}
