use std::time::{Duration, UNIX_EPOCH};

use http::{HeaderMap, HeaderName};

use super::*;

mod properties;

/// The system clock of all tests: Tue, 14 Nov 2023 22:13:20 GMT.
const NOW: u64 = 1_700_000_000;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Checks lines of statuses, headers and advice: `429 503 => age: 0 | retry-after: 20 => pause 20s`.
fn check(reader: &Headers, cases: &str) {
    let cases = cases.lines().filter(|line| line.contains("=>"));
    for case in cases {
        let [statuses, lines, expected] = case.split("=>").collect::<Vec<_>>()[..] else {
            panic!("{case}");
        };
        let mut headers = HeaderMap::new();
        for line in lines.split('|').filter_map(|it| it.trim().split_once(':')) {
            let value = line.1.strip_prefix(' ').unwrap_or_default();
            let name: HeaderName = line.0.parse().unwrap();
            headers.append(name, value.parse().unwrap());
        }
        for status in statuses.split_whitespace() {
            let advice = reader.read_at(status.parse().unwrap(), &headers, UNIX_EPOCH + secs(NOW));
            let pause = advice.wait().map(|wait| format!("pause {wait:?}"));
            let left = advice.allowances().map(|(unit, count, within)| {
                let shown = format!("{count} {unit} in {within:?}");
                shown.replace(&format!(" {REQUESTS}"), "")
            });
            let mut shown: Vec<_> = pause.into_iter().chain(left).collect();
            shown.extend(shown.is_empty().then(|| "none".to_owned()));
            assert_eq!(shown.join(", "), expected.trim(), "{case}");
        }
    }
}

#[test]
fn retry_after_is_a_pause_where_the_status_refuses() {
    let cases = r#"
        403 429 503 => retry-after: 20 => pause 20s
        200 202 301 304 401 413 500 502 504 => retry-after: 20 => none
        503 => retry-after:  2.0  => pause 2s
        503 => retry-after: 0.25 => pause 250ms
        503 => retry-after: Tuesday, 14-Nov-23 22:13:50 GMT => pause 30s
        503 => retry-after: 30, 60, 45 => pause 60s
        503 => retry-after: 99999999999999999999999 => pause 3600s
        503 => retry-after: Fri, 31 Dec 9999 23:59:59 GMT => pause 3600s
        429 => retry-after: 20 | retry-after: Tue Nov 14 22:13:50 2023 | retry-after: soon => pause 30s
        # It goes before the reset, and leaves the allowance.
        429 => retry-after: 2 | ratelimit: "a";r=0;t=5 => pause 2s
        429 => retry-after: 20 | ratelimit: "a";r=0;t=5 => pause 20s
        503 => retry-after: 20 | ratelimit: "a";r=0;t=90,"b";r=9;t=20,"c";r=15;t=40 => pause 20s, 15 in 40s
        # Dates are measured from that of the response, which a cache may have kept.
        503 => date: Sun, 06 Nov 1994 08:49:37 GMT | retry-after: Sun, 06 Nov 1994 08:50:07 GMT => pause 30s
        503 => date: Sun, 06 Nov 1994 08:49:37 GMT | age: 10 | retry-after: Sun, 06 Nov 1994 08:50:07 GMT => pause 20s
    "#;
    check(&Headers::new(), cases);
}

#[test]
fn a_retry_after_that_is_over_or_malformed_is_as_if_missing() {
    let values = "0|0.0|-5|soon|1e3|inf|NaN|Tue, 14 Nov 2023 22:13:20 GMT|Tue, 14|\
        Sun, 06 Nov 1994 08:49:37 GMT|Wed, 14 Nov 2023 22:13:50 GMT|Tue, 31 Nov 2023 22:13:50 GMT";
    for value in values.split('|') {
        let cases = format!(
            "403 => retry-after: {value} => none
             429 => retry-after: {value} | ratelimit: \"a\";r=0;t=5 => pause 5s"
        );
        check(&Headers::new(), &cases);
    }
}

/// The headers of older forms hold another limit, which counts then.
#[test]
fn a_malformed_part_invalidates_a_structured_header() {
    let lines = r#"|50|"a"|"a";t=30|"a";r=-1;t=30|"a";r=1.5;t=30|"a";r=1;t=30.5|"a";r=1;t=-30|
        "a";r;t=30|"a";r=1;t=1000000000000000|"a";r="1";t=30|"a";r=1;t=30,|a;r=1;t=30|
        ("a");r=1;t=30|"a";r=1;t=30, "b";r=?1|"a";r=1;t=30, limit=100|limit=100, remaining=50|
        limit=100, reset=30|remaining=50, reset=-1|remaining=50, reset=(30)|remaining=5_0, reset=3"#;
    for line in lines.split('|').map(str::trim) {
        let older = "ratelimit-remaining: 4 | ratelimit-reset: 7";
        let case = format!("200 => ratelimit: {line} | {older} => 4 in 7s");
        check(&Headers::new(), &case);
    }
}

#[test]
fn all_forms_of_limits_and_resets_are_read() {
    let cases = r#"
        # Each item is a limit, and all lines are one list.
        200 => ratelimit: "a,b;\"r";r=1;t=2 , "c"; t=4; r=3;q=9;x-y => 1 in 2s
        200 => ratelimit: "a";r=0;t=2 | ratelimit: "b";r=3;t=4 => 0 in 2s
        200 => ratelimit: "a";r=999999999999999;t=999999999999999 => 4294967295 in 3600s
        200 => ratelimit: reset=30;a | ratelimit: remaining=50 | ratelimit: policy="x" => 50 in 30s
        # The unit is that of the first policy of the same name.
        200 => ratelimit: "a";r=7;t=1 | ratelimit-policy: "a";q=9;w=1;qu="requests" => 7 in 1s
        200 => ratelimit: "a";r=7;t=1 | ratelimit-policy: "a";q=9, "a";q=9;qu="content-bytes" => 7 in 1s
        200 => ratelimit: "a";r=7;t=1 | ratelimit-policy: "a";q=9;qu=content-bytes => 7 in 1s
        200 => ratelimit: "a";r=7;t=1 | ratelimit-policy: "a";q=9;qu="content-bytes", => 7 in 1s
        200 => ratelimit: "a";r=7;t=1;pk=:Qg==: | ratelimit-policy: "a";q=9;pk=:QQ==:;qu="b" => 7 b in 1s
        # The fewest and the longest delay count; one number alone, or of two families, is no limit.
        200 => x-ratelimit-remaining: 7 | x-ratelimit-reset: 1700000030 | x-ratelimit-reset-after: 20 => 7 in 20s
        200 => x-ratelimit-remaining: 7 | x-ratelimit-reset: 1700000030 | x-ratelimit-reset-after: -20 => 7 in 30s
        200 => x-ratelimit-remaining: 7 | x-ratelimit-remaining: 6,8 | x-ratelimit-reset: 30 | x-ratelimit-reset: 1700000040,20 => 6 in 40s
        200 => x-ratelimit-remaining: 7 | ratelimit-reset: 30 => none
        200 => x-ratelimit-remaining: 7 | x-ratelimit-reset: soon => none
        # The newest form that is well-formed is read.
        200 => ratelimit: -1 | ratelimit-remaining: 3 | ratelimit-reset: 1 | x-ratelimit-remaining: 4 | x-ratelimit-reset: 1 => 3 in 1s
        200 => ratelimit-remaining: -1 | ratelimit-reset: 1 | x-ratelimit-remaining: 4 | x-ratelimit-reset: 1 => 4 in 1s
        200 => x-ratelimit-remaining: 4 | x-ratelimit-reset: 1 | x-rate-limit-remaining: 5 | x-rate-limit-reset: 1 => 4 in 1s
        # The date of the response is now at the origin.
        503 => retry-after: Sun, 06 Nov 1994 08:49:38 GMT | date: Sun, 06 Nov 1994 08:49:37 GMT | date: Sun Nov  6 08:49:37 1994 => pause 1s
        503 => retry-after: Sun, 06 Nov 1994 08:51:37 GMT | date: Sun, 06 Nov 1994 08:49:37 GMT | age: 60, 0 => pause 60s
        503 => retry-after: Sun, 06 Nov 1994 08:51:37 GMT | date: Sun, 06 Nov 1994 08:49:37 GMT | age: 0 | age: 60 => pause 120s
        503 => retry-after: Sun, 06 Nov 1994 08:51:37 GMT | date: Sun, 06 Nov 1994 08:49:37 GMT | age: old => pause 120s
        503 => retry-after: Sun, 06 Nov 1994 08:51:37 GMT | date: Mon, 06 Nov 1994 08:49:37 GMT => none
        503 => retry-after: Sun, 06 Nov 1994 08:51:37 GMT | date: Sun, 06 Nov 1994 08:49:37 GMT | date: Sun, 06 Nov 1994 08:49:38 GMT => pause 120s
    "#;
    check(&Headers::new(), cases);
    let reader = Headers::new().longest_pause(Duration::MAX);
    for (reset, expected) in [
        ("999999999.5", "1 in 999999999.5s"),
        ("1000000000", "none"),
        ("1700000030.125", "1 in 30.125s"),
        ("99999999999", "1 in 98299999999s"),
        ("100000000000", "none"),
        ("1700000030000.5", "1 in 30.0005s"),
        ("6m0.5s", "1 in 360.5s"),
        ("2023-11-14T22:13:50.125Z", "1 in 30.125s"),
        ("2024-02-29T22:13:20Z", "1 in 9244800s"),
        ("2024-03-01T22:13:20Z", "1 in 9331200s"),
    ] {
        let lines = format!("x-ratelimit-remaining: 1 | x-ratelimit-reset: {reset}");
        check(&reader, &format!("200 => {lines} => {expected}"));
    }
    let texts = "|-30|soon|2023-11-14|2023-12-14T22:13:50|2023-12-14T22:13Z|2023-13-14T22:13:50Z|\
        2023-11-32T22:13:50Z|2023-12-14T22.5:13:50Z|2023-12-14T22:13:50+02:00|2023-12-14T22:13:50Zx|\
        12023-11-14T22:13:50Z|1994-11-06T08:49:37Z";
    for reset in texts.split('|') {
        let lines = format!("x-ratelimit-remaining: 1 | x-ratelimit-reset: {reset}");
        check(&reader, &format!("200 => {lines} => none"));
    }
}

#[test]
fn of_several_limits_the_latest_pause_and_the_fewest_remaining_count() {
    let cases = r#"
        403 429 503 => ratelimit: "a";r=0;t=5 => pause 5s
        200 304 404 500 => ratelimit: "a";r=0;t=5 => 0 in 5s
        503 => ratelimit: "a";r=0;t=5, "b";r=0;t=9, "c";r=0 => pause 9s
        200 => ratelimit: "a";r=0;t=5, "b";r=0;t=9, "c";r=0 => 0 in 9s
        200 => ratelimit: "a";r=6;t=5, "b";r=5;t=3, "c";r=5;t=4 => 5 in 4s
        # The allowance of `b` ends with the pause.
        429 => ratelimit: "a";r=0;t=5, "b";r=1;t=5, "c";r=3;t=60 => pause 5s, 3 in 60s
        # Without a reset, a limit counts for nothing.
        200 403 503 => ratelimit: "a";r=0, "b";r=7;t=0 => none
        429 => ratelimit: "a";r=0, "b";r=7;t=0 => pause 1s
        200 => ratelimit: "a";r=0, "b";r=3;t=60 => 3 in 60s
        # A 403 is a limit only if nothing remains.
        403 => x-ratelimit-remaining: 7 | x-ratelimit-reset: 30 => none
        403 => ratelimit: "a";r=0, "b";r=7;t=30 => 7 in 30s
        429 => ratelimit: "a";r=7;t=30 => pause 1s, 7 in 30s
        # The limits in a response from a cache are outdated.
        200 403 => ratelimit: "a";r=0;t=5 | age: 0.5 => none
        200 => ratelimit: "a";r=7;t=30 | age: 60, 0 => none
        429 => ratelimit: "a";r=0;t=5 | age: 1 => pause 1s
        503 => ratelimit: "a";r=0;t=5 | age: 1 | retry-after: 20 => pause 20s
        200 => ratelimit: "a";r=7;t=30 | age: -1 => 7 in 30s
    "#;
    check(&Headers::new(), cases);
}

#[test]
fn the_longest_and_the_unstated_pause_can_be_configured() {
    let longer = Headers::new().unstated_pause(secs(30));
    let cases = r#"
        429 => => pause 30s
        429 => ratelimit: "a";r=0;t=5 => pause 5s
        429 => ratelimit: "a";r=7;t=30 => pause 30s
        503 => => none
    "#;
    check(&longer, cases);
    check(&longer.longest_pause(secs(10)), "429 => => pause 10s");
    let none = Headers::new().unstated_pause(Duration::ZERO);
    check(&none, "429 => => none");
    check(&none, r#"429 => ratelimit: "a";r=0;t=5 => pause 5s"#);
    let cases = r#"
        200 => ratelimit: "a";r=100;t=36000 => 100 in 60s
        200 => ratelimit: "a";r=0;t=36000 => 0 in 60s
        503 => retry-after: 61 => pause 60s
    "#;
    check(&Headers::new().longest_pause(secs(60)), cases);
    let never = Headers::new().longest_pause(Duration::ZERO);
    let cases = r#"429 => retry-after: 61 | ratelimit: "a";r=0;t=5 => none"#;
    check(&never, cases);
}

/// Responses as these services document them.
#[test]
fn the_limits_of_well_known_services_are_read() {
    let cases = r#"
        # GitHub; without a limit, such a 403 is about something else, such as rights.
        200 304 => x-ratelimit-limit: 60 | x-ratelimit-remaining: 52 | x-ratelimit-used: 8 | date: Tue, 14 Nov 2023 22:13:18 GMT | x-ratelimit-reset: 1700001000 => 52 in 1002s
        403 429 => x-ratelimit-remaining: 0 | x-ratelimit-reset: 1700001000 => pause 1000s
        403 429 => retry-after: 60 | x-ratelimit-remaining: 4987 | x-ratelimit-reset: 1700001800 => pause 60s, 4987 in 1800s
        # Twitter.
        200 => x-rate-limit-remaining: 74 | x-rate-limit-reset: 1700000840 => 74 in 840s
        # Discord.
        200 => x-ratelimit-remaining: 1 | x-ratelimit-reset: 1700000123.456 | x-ratelimit-reset-after: 64.57 => 1 in 64.57s
        200 => x-ratelimit-remaining: 0 | x-ratelimit-reset: 1700000123.456 => 0 in 123.456s
        429 => retry-after: 65 | x-ratelimit-global: true => pause 65s
        # GitLab.
        200 => ratelimit-limit: 60 | ratelimit-remaining: 3 | ratelimit-reset: 1700000030 | ratelimit-resettime: Tue, 14 Nov 2023 22:13:50 GMT => 3 in 30s
        # Reddit.
        200 => x-ratelimit-remaining: 598.0 | x-ratelimit-reset: 300 => 598 in 300s
        429 => x-ratelimit-remaining: 0.0 | x-ratelimit-reset: 300 => pause 300s
        # Drafts before 07, 07 and 11.
        200 => ratelimit-limit: 100, 100;w=60 | ratelimit-remaining: 50 | ratelimit-reset: 50 => 50 in 50s
        200 => ratelimit-policy: 100;w=60 | ratelimit: limit=100, remaining=50, reset=30 => 50 in 30s
        200 => ratelimit-policy: "h";q=1000;w=3600, "d";q=5000;w=86400 | ratelimit: "d";r=100;t=36000 => 100 in 3600s
        200 => ratelimit: "default";r=999;pk=:dHJpYWwxMjEzMjM=: => none
        # A newer form goes before one that is kept for old clients.
        200 => x-ratelimit-remaining: 0 | x-ratelimit-reset: 1700000030 | ratelimit: "m";r=12;t=30 => 12 in 30s
        # Units other than requests.
        200 429 => ratelimit-policy: "a";q=500;qu="content-bytes";w=60 | ratelimit: "a";r=0;t=60 => 0 content-bytes in 60s
        200 => ratelimit-policy: "a";q=500;qu="content-bytes";w=60, "b";q=9;w=1 | ratelimit: "a";r=300;t=60, "b";r=0;t=2 => 300 content-bytes in 60s, 0 in 2s
        200 => ratelimit-policy: "a";q=8;qu="concurrent-requests" | ratelimit: "a";r=0 => 0 concurrent-requests in 1s
        429 => ratelimit-policy: "a";q=8;qu="concurrent-requests" | ratelimit: "a";r=0 => pause 1s
    "#;
    check(&Headers::new(), cases);
}

/// Headers that were recorded from these services, or that they document.
#[test]
fn the_limits_of_providers_of_language_models_are_read() {
    let cases = r#"
        # OpenAI.
        200 => x-ratelimit-limit-requests: 3500 | x-ratelimit-remaining-requests: 3499 | x-ratelimit-reset-requests: 17ms => 3499 in 17ms
        200 => x-ratelimit-remaining-requests: 59 | x-ratelimit-remaining-tokens: 149984 | x-ratelimit-reset-requests: 1s | x-ratelimit-reset-tokens: 6m0s => 59 in 1s, 149984 tokens in 360s
        200 429 => x-ratelimit-remaining-requests: 59 | x-ratelimit-remaining-tokens: 0 | x-ratelimit-reset-requests: 1s | x-ratelimit-reset-tokens: 120ms => 59 in 1s, 0 tokens in 120ms
        # Azure, without resets, and with numbers that mean nothing.
        200 => x-ratelimit-remaining-requests: 79 | x-ratelimit-remaining-tokens: 61353 => none
        200 => x-ratelimit-limit-tokens: -1 | x-ratelimit-remaining-tokens: -1 | x-ratelimit-reset-tokens: 0 => none
        # Groq.
        200 => x-ratelimit-remaining-requests: 14370 | x-ratelimit-remaining-tokens: 17997 | x-ratelimit-reset-requests: 2m59.56s | x-ratelimit-reset-tokens: 7.66s => 14370 in 179.56s, 17997 tokens in 7.66s
        429 => retry-after: 2 | x-ratelimit-remaining-tokens: 0 | x-ratelimit-reset-tokens: 7.66s => pause 2s
        # Anthropic.
        200 => date: Mon, 24 Feb 2025 20:38:03 GMT | anthropic-ratelimit-requests-limit: 4000 | anthropic-ratelimit-requests-remaining: 3999 | anthropic-ratelimit-requests-reset: 2025-02-24T20:37:51Z | anthropic-ratelimit-output-tokens-limit: 80000 | anthropic-ratelimit-output-tokens-remaining: 80000 | anthropic-ratelimit-output-tokens-reset: 2025-02-24T20:38:04Z => 80000 output-tokens in 1s
        429 => date: Tue, 26 Mar 2024 19:59:59 GMT | anthropic-ratelimit-requests-remaining: 0 | anthropic-ratelimit-requests-reset: 2024-03-26T20:00:09Z | anthropic-ratelimit-tokens-remaining: 16000 | anthropic-ratelimit-tokens-reset: 2024-03-26T20:01:00Z => pause 10s, 16000 tokens in 61s
        # Cerebras.
        200 => x-ratelimit-remaining-requests-day: 2455 | x-ratelimit-remaining-tokens-minute: 98298 | x-ratelimit-reset-requests-day: 3011.375 | x-ratelimit-reset-tokens-minute: 11.375 => 2455 in 3011.375s, 98298 tokens in 11.375s
        # Mistral.
        200 => x-ratelimit-limit-tokens-minute: 5000000 | x-ratelimit-remaining-tokens-minute: 4999911 | x-ratelimit-tokens-query-cost: 52 | x-ratelimit-remaining-req-minute: 717 => none
        # Headers of units that are not known, or malformed.
        200 => x-ratelimit-remaining: 5 | x-ratelimit-reset: 18446744073709551615s1000ms => none
        200 => x-ratelimit-remaining-search: 0 | x-ratelimit-reset-search: 9 | x-ratelimit-remaining-tokens-: 0 | x-ratelimit-reset-tokens-: 9 => none
        200 => anthropic-ratelimit-tokens-remaining: few | anthropic-ratelimit-tokens-reset: 9 | x-ratelimit-remaining-tokens: 0 | x-ratelimit-reset-tokens: soon => none
    "#;
    check(&Headers::new(), cases);
}
