use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::super::UNITS;
use crate::quota::{Algorithm, Quota, WindowStart};

fn count() -> impl Strategy<Value = u32> {
    (any::<u32>(), 0..32).prop_map(|(bits, shift)| bits >> shift)
}

fn window() -> impl Strategy<Value = Duration> {
    let bits = (any::<u64>(), 0..64).prop_map(|(bits, shift)| bits >> shift);
    let units = prop::collection::vec((0_u64..100, 0..6_usize), 1..4).prop_map(|counts| {
        let counts = counts.iter();
        counts.map(|(count, unit)| count * UNITS[*unit].1).sum()
    });
    prop_oneof![
        bits.clone().prop_map(Duration::from_nanos),
        bits.prop_map(Duration::from_micros),
        units.prop_map(Duration::from_nanos),
    ]
}

fn algorithm() -> impl Strategy<Value = Algorithm> {
    prop_oneof![
        Just(Algorithm::SlidingLog),
        count().prop_map(|buckets| Algorithm::SlidingBuckets { buckets }),
        Just(Algorithm::Spacing),
        count().prop_map(|capacity| Algorithm::LeakyBucket { capacity }),
        count().prop_map(|burst| Algorithm::Gcra { burst }),
        select(&[WindowStart::Clock, WindowStart::FirstRequest])
            .prop_map(|start| Algorithm::FixedWindow { start }),
    ]
}

fn any_quota() -> impl Strategy<Value = Quota> {
    (count(), window(), algorithm())
        .prop_map(|(limit, window, algorithm)| Quota::new(limit, window).algorithm(algorithm))
}

fn fragment() -> impl Strategy<Value = String> {
    const FRAGMENTS: &str = "/|=|_|-| |\t|\n|\u{a0}|\0|.|,|0|1|10|5_000|90|4294967296|\
        99999999999999999999|d|h|m|M|s|ms|us|ns|\u{b5}s|min|Days|10/s|1m30s|sliding-log|\
        sliding-buckets|spacing|leaky-bucket|gcra|GCRA|fixed-window|buckets|capacity=|burst=|\
        start=|clock|first-request|\u{1f980}|e\u{301}";
    let fragments: Vec<_> = FRAGMENTS.split('|').collect();
    prop_oneof![
        8 => select(fragments).prop_map(String::from),
        1 => any::<char>().prop_map(String::from),
        1 => count().prop_map(|count| count.to_string()),
    ]
}

fn check_any(text: &str) -> Result<(), TestCaseError> {
    match text.parse::<Quota>() {
        Ok(quota) => {
            prop_assert!(quota.problem().is_none());
            prop_assert_eq!(quota.to_string().parse(), Ok(quota));
        }
        Err(error) => {
            let message = error.to_string();
            prop_assert!(message.len() < 1_200 && !message.contains(char::is_control));
            prop_assert!(!message.ends_with('.'));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_096))]

    #[test]
    fn exactly_the_quotas_that_can_be_built_are_parsed_as_they_are_shown(quota in any_quota()) {
        let text = quota.to_string();
        prop_assert_eq!(text.parse::<Quota>().ok(), quota.problem().is_none().then_some(quota));
    }

    #[test]
    fn quotas_are_shown_alike_only_if_they_are_equal(a in any_quota(), b in any_quota()) {
        let likes = [b, b.algorithm(a.counted_by()), Quota::new(a.limit(), b.window()), a];
        for like in likes {
            prop_assert_eq!(a == like, a.to_string() == like.to_string());
        }
    }

    #[test]
    fn no_text_makes_it_panic(
        text in any::<String>(),
        words in prop::collection::vec(fragment(), 0..10),
        (quota, at) in (any_quota(), any::<Index>()),
    ) {
        check_any(&text)?;
        let mut garbled: Vec<char> = quota.to_string().chars().collect();
        let at = at.index(garbled.len());
        garbled.splice(at..=at, words.concat().chars());
        check_any(&garbled.into_iter().collect::<String>())?;
        check_any(&words.concat())?;
        check_any(&format!("10/s {}", words.concat()))?;
        check_any(&format!("10/{}", words.join(" ")))?;
    }
}
