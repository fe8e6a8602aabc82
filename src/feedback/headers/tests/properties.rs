use std::time::SystemTime;

use http::HeaderValue;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

const NAMES: &str = "retry-after ratelimit ratelimit-policy ratelimit-limit ratelimit-remaining \
    ratelimit-reset x-ratelimit-limit x-ratelimit-remaining x-ratelimit-reset x-ratelimit-reset-after \
    x-rate-limit-remaining x-rate-limit-reset x-ratelimit-remaining-tokens x-ratelimit-reset-tokens \
    anthropic-ratelimit-requests-remaining anthropic-ratelimit-requests-reset date age";

fn name() -> impl Strategy<Value = &'static str> {
    select(NAMES.split(' ').collect::<Vec<_>>())
}

const FRAGMENTS: &str = concat!(
    r#"| |,|, |;|; |=|"|\|.|-|:|?|(|)|@|0|1|30|2.5|-1|+1|1e9|NaN|inf|1700000060|1700000060000|"#,
    r#"4294967296|999999999999999|99999999999999999999999999|"a"|"a";r=0;t=9|"b";r=7;t=60|;r=0|"#,
    r#";t=30|;pk=:QQ==:|;qu="content-bytes"|;qu="concurrent-requests"|;q=9|limit=9|remaining=0|"#,
    "remaining=5|reset=30|Tue, 14 Nov 2023 22:14:20 GMT|Tuesday, 14-Nov-23 22:14:20 GMT|",
    "Tue Nov 14 22:14:20 2023|2023-11-14T22:14:20Z|6m0s|120ms| GMT|\t",
);

fn value() -> impl Strategy<Value = Vec<u8>> {
    let all: Vec<_> = FRAGMENTS.split('|').collect();
    let fragments = |count| {
        prop::collection::vec(select(all.clone()), count)
            .prop_map(|parts| parts.concat().into_bytes())
    };
    prop_oneof![
        2 => prop::collection::vec(any::<u8>(), 0..40),
        4 => fragments(1..2),
        4 => fragments(2..8),
        1 => "[0-9]{1,30}(\\.[0-9]{0,12})?".prop_map(String::into_bytes),
        1 => "[A-Z][a-z]{2,8}, [0-9]{2}[ -]Nov[ -][0-9]{2,4} [0-9:]{8} GMT".prop_map(String::into_bytes),
    ]
}

fn headers() -> impl Strategy<Value = HeaderMap> {
    prop::collection::vec((name(), value()), 0..8).prop_map(|lines| {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                headers.append(name, value);
            }
        }
        headers
    })
}

fn status() -> impl Strategy<Value = StatusCode> {
    let of_interest = select(&[200, 304, 403, 429, 503]);
    prop_oneof![of_interest, 100_u16..1000].prop_map(|code| StatusCode::from_u16(code).unwrap())
}

fn local() -> impl Strategy<Value = SystemTime> {
    let now = UNIX_EPOCH + secs(NOW);
    let after = (0..1_u64 << 40).prop_map(|after| UNIX_EPOCH + secs(after));
    let before = (0..1_u64 << 40).prop_map(|before| UNIX_EPOCH - secs(before));
    prop_oneof![Just(now), after, before]
}

fn reader() -> impl Strategy<Value = Headers> {
    let extreme = || select(&[Duration::ZERO, Duration::MAX]);
    let time = || prop_oneof![2 => extreme(), 1 => (1_u64..90).prop_map(secs)];
    (time(), time()).prop_map(|(longest, unstated)| {
        let reader = Headers::new().longest_pause(longest);
        reader.unstated_pause(unstated)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_advice_keeps_within_bounds_whatever_the_headers(
        reader in reader(), status in status(), headers in headers(), local in local(),
    ) {
        let advice = reader.read_at(status, &headers, local);
        let wait = advice.wait().unwrap_or_default();
        prop_assert!(wait <= reader.longest_pause);
        prop_assert_ne!(advice.wait(), Some(Duration::ZERO));
        for (unit, count, within) in advice.allowances() {
            prop_assert!(count > 0 || unit != REQUESTS || !REFUSALS.contains(&status));
            prop_assert!(wait < within && within <= reader.longest_pause);
            prop_assert!(age(&headers).is_zero());
        }
        if status == StatusCode::TOO_MANY_REQUESTS {
            let has_pause = !reader.unstated_pause.min(reader.longest_pause).is_zero();
            let holds_back = advice.wait().is_some() || advice.allowances().any(|it| it.1 == 0);
            prop_assert!(!has_pause || holds_back);
        }
        let mut others = headers.clone();
        others.remove(RETRY_AFTER);
        let without = reader.read_at(status, &others, local);
        match status.as_u16() {
            403 => {
                let is_silent = advice == Advice::none();
                prop_assert!(is_silent || !wait.is_zero() || advice == without);
            }
            429 | 503 => {}
            _ => prop_assert_eq!(advice, without),
        }
    }

    #[test]
    fn a_malformed_header_does_not_affect_the_rest(
        status in status(), mut headers in headers(), name in name(), tail in "[a-z!]{0,5}",
    ) {
        headers.remove(name);
        let local = UNIX_EPOCH + secs(NOW);
        let mut more = headers.clone();
        more.insert(name, format!("!{tail}").parse().unwrap());
        let reader = Headers::new();
        let advice = reader.read_at(status, &headers, local);
        prop_assert_eq!(reader.read_at(status, &more, local), advice);
    }
}
