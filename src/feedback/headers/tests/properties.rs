use std::time::SystemTime;

use http::{HeaderName, HeaderValue};
use proptest::prelude::*;
use proptest::sample::select;
use sfv::{ListSerializer, StringRef};

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
    let time = || {
        prop_oneof![
            Just(Duration::ZERO),
            Just(Duration::MAX),
            (1_u64..90).prop_map(secs)
        ]
    };
    (time(), time()).prop_map(|(longest, unstated)| {
        Headers::new()
            .longest_pause(longest)
            .unstated_pause(unstated)
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
            prop_assert!(count > 0 || unit != REQUESTS);
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

/// What remains and the reset of a limit, in seconds.
fn limit() -> impl Strategy<Value = (u32, u64)> {
    let remaining = prop_oneof![Just(0), 1_u32..5, any::<u32>()];
    (remaining, prop_oneof![0_u64..9, 0_u64..8_000])
}

fn expected(limits: &[(u32, u64)]) -> Advice {
    let ends = limits
        .iter()
        .filter(|limit| limit.0 == 0)
        .map(|limit| limit.1.min(3600));
    let wait = ends.max().unwrap_or(0);
    let mut left: Vec<_> = limits
        .iter()
        .map(|&(remaining, reset)| (remaining, reset.min(3600)))
        .filter(|&(remaining, reset)| remaining > 0 && reset > wait)
        .collect();
    left.sort_by_key(|&(remaining, reset)| (remaining, u64::MAX - reset));
    let left = left.first().map(|&(count, reset)| remaining(count, reset));
    pause(wait).and(left.unwrap_or_default())
}

/// A Unix time as an HTTP date of one of the three formats.
fn http_date(unix: u64, format: usize) -> String {
    let date = httpdate::fmt_http_date(UNIX_EPOCH + secs(unix));
    let (day, month, year, time) = (&date[5..7], &date[8..11], &date[12..16], &date[17..25]);
    let weekdays = "Sunday Monday Tuesday Wednesday Thursday Friday Saturday";
    let mut weekdays = weekdays.split(' ');
    let weekday = weekdays.find(|day| day.starts_with(&date[..3])).unwrap();
    match format {
        0 => date,
        1 => format!("{weekday}, {day}-{month}-{} {time} GMT", &year[2..]),
        _ => {
            let day: u32 = day.parse().unwrap();
            format!("{} {month} {day:>2} {time} {year}", &weekday[..3])
        }
    }
}

proptest! {
    #[test]
    fn a_list_or_a_dictionary_is_read_back(
        limits in prop::collection::vec(("[ -~]{0,6}", limit()), 1..6), split in any::<bool>(),
    ) {
        let item = |(name, (remaining, reset)): &(String, (u32, u64))| {
            let mut list = ListSerializer::new();
            let _ = list.bare_item(StringRef::from_str(name).unwrap());
            format!("{};r={remaining};t={reset}", list.finish().unwrap())
        };
        let mut lines: Vec<_> = limits.iter().map(item).collect();
        if !split {
            lines = vec![lines.join(",")];
        }
        let lines: Vec<_> = lines.iter().map(|line| ("ratelimit", line.as_str())).collect();
        let limits: Vec<_> = limits.iter().map(|limit| limit.1).collect();
        prop_assert_eq!(read(200, &lines), expected(&limits));
        let (count, reset) = limits[0];
        let dictionary = format!("limit=9, remaining={count}, reset={reset}");
        prop_assert_eq!(read(200, &[("ratelimit", &dictionary)]), expected(&limits[..1]));
    }

    #[test]
    fn a_header_for_each_number_is_read_back(
        (count, reset) in limit(),
        date in prop::option::of(1_200_000_000_u64..3_000_000_000),
        kind in 0..6_usize,
        names in select(&["ratelimit", "x-ratelimit", "x-rate-limit"]),
    ) {
        let moment = date.unwrap_or(NOW) + reset;
        let reset_text = match kind {
            0 => reset.to_string(),
            1 => moment.to_string(),
            2 => format!("{moment}000"),
            format => http_date(moment, format - 3),
        };
        let name = |suffix| HeaderName::try_from(format!("{names}-{suffix}")).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(name("remaining"), count.into());
        headers.insert(name("reset"), reset_text.parse().unwrap());
        if let Some(date) = date {
            headers.insert("date", http_date(date, 0).parse().unwrap());
        }
        let advice = Headers::new().read_at(StatusCode::OK, &headers, UNIX_EPOCH + secs(NOW));
        prop_assert_eq!(advice, expected(&[(count, reset)]));
    }
}
