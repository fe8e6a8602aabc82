//! The text that names a policy's state: [`Policy::id`], there and back.

use super::{Policy, PolicyParts};
use crate::error::BuildError;
use crate::quota::{Algorithm, Quota, WindowStart};

/// What stands behind the window, of those that have a number.
const BUCKETS: &str = "buckets";
const LEAKY: &str = "leaky";
const GCRA: &str = "gcra";

/// The same, of those that have none.
const SPACING: &str = "spacing";
const FIXED: &str = "fixed";
const FIXED_FIRST: &str = "fixed-first";

impl Policy {
    /// The policy that has this [id](Self::id): its name and its quotas, with the defaults of all that is no
    /// part of it.
    ///
    /// For who finds state in a store and wants to know whose it is.
    ///
    /// ```
    /// use tower_throttle::{Policy, Quota};
    ///
    /// let policy = Policy::from_id("github:10/s+5000/h")?;
    /// assert_eq!(policy.name(), Some("github"));
    /// assert_eq!(policy.quotas(), [Quota::per_second(10), Quota::per_hour(5_000)]);
    /// # Ok::<_, tower_throttle::BuildError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails unless the text is, to the letter, the id of a policy.
    pub fn from_id(id: &str) -> Result<Self, BuildError> {
        let (name, quotas) = match id.rsplit_once(':') {
            Some((name, quotas)) => (Some(name.to_owned()), quotas),
            None => (None, id),
        };
        let refused = || BuildError::new("id", format!("{id:?} is not that of a policy"));
        let quotas = quotas.split('+').map(to_quota).collect::<Option<_>>();
        let parts = PolicyParts {
            name,
            quotas: quotas.ok_or_else(refused)?,
            ..PolicyParts::default()
        };
        let policy = parts.build().map_err(|_| refused())?;
        if policy.id() == id {
            Ok(policy)
        } else {
            Err(refused())
        }
    }

    /// The quotas in the order of the rules.
    #[cfg_attr(
        not(feature = "redis"),
        expect(dead_code, reason = "only Redis tells how each stands")
    )]
    pub(crate) fn quotas_by_id(&self) -> Vec<Quota> {
        let mut quotas = self.quotas.to_vec();
        quotas.sort_by_cached_key(of_quota);
        quotas
    }
}

/// The quota's text, as short as it gets: it stands in the name of every key.
pub(super) fn of_quota(quota: &Quota) -> String {
    let per_window = Quota::new(quota.limit(), quota.window()).to_string();
    let counted = match quota.counted_by() {
        Algorithm::SlidingLog => String::new(),
        Algorithm::SlidingBuckets { buckets } => format!("-{BUCKETS}-{buckets}"),
        Algorithm::Spacing => format!("-{SPACING}"),
        Algorithm::LeakyBucket { capacity } => format!("-{LEAKY}-{capacity}"),
        Algorithm::Gcra { burst } => format!("-{GCRA}-{burst}"),
        Algorithm::FixedWindow { start } => match start {
            WindowStart::Clock => format!("-{FIXED}"),
            WindowStart::FirstRequest => format!("-{FIXED_FIRST}"),
        },
    };
    per_window.replace('_', "") + &counted
}

/// The quota of such a text; of some others, too.
fn to_quota(text: &str) -> Option<Quota> {
    let Some((per_window, counted)) = text.split_once('-') else {
        return text.parse().ok();
    };
    let words = match (counted, counted.rsplit_once('-')) {
        (SPACING, _) => "spacing".to_owned(),
        (FIXED, _) => "fixed-window".to_owned(),
        (FIXED_FIRST, _) => "fixed-window start=first-request".to_owned(),
        (_, Some((BUCKETS, count))) => format!("sliding-buckets buckets={count}"),
        (_, Some((LEAKY, count))) => format!("leaky-bucket capacity={count}"),
        (_, Some((GCRA, count))) => format!("gcra burst={count}"),
        _ => return None,
    };
    // As a whole: without the rest, the limit might be too high.
    format!("{per_window} {words}").parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    use super::*;

    fn algorithm() -> impl Strategy<Value = Algorithm> {
        let first = WindowStart::FirstRequest;
        prop_oneof![
            Just(Algorithm::SlidingLog),
            (1..1_001_u32).prop_map(|buckets| Algorithm::SlidingBuckets { buckets }),
            Just(Algorithm::Spacing),
            (1..100_000_u32).prop_map(|capacity| Algorithm::LeakyBucket { capacity }),
            (1..100_000_u32).prop_map(|burst| Algorithm::Gcra { burst }),
            Just(Algorithm::FixedWindow {
                start: WindowStart::Clock
            }),
            Just(Algorithm::FixedWindow { start: first }),
        ]
    }

    fn quota() -> impl Strategy<Value = Quota> {
        let window = (any::<u64>(), 15..64).prop_map(|(bits, shift)| bits >> shift);
        let counts = (1..20_000_000_u32, window, algorithm());
        counts.prop_map(|(limit, window, algorithm)| {
            Quota::new(limit, Duration::from_micros(window)).algorithm(algorithm)
        })
    }

    proptest! {
        #[test]
        fn every_id_leads_back_to_its_policy(
            name in option::of("[!-z|~]{1,40}"),
            quotas in vec(quota(), 1..5),
        ) {
            let parts = PolicyParts { name, quotas: quotas.into(), ..PolicyParts::default() };
            let Ok(policy) = parts.build() else {
                return Err(TestCaseError::reject("quotas that cannot hold"));
            };
            let same = Policy::from_id(policy.id()).expect("an id");
            prop_assert_eq!(same.id(), policy.id());
            prop_assert_eq!(same.name(), policy.name());
            prop_assert_eq!(same.rules(), policy.rules());
        }

        #[test]
        fn any_other_text_is_refused_and_no_panic(
            text in "([!-~]{0,12}:)?[0-9]{0,3}/[0-9dhmsu]{0,4}(-(gcra|leaky|buckets|fixed|first)(-[0-9]{0,3})?)?(\\+[0-9]/[ms])?",
        ) {
            if let Ok(policy) = Policy::from_id(&text) {
                prop_assert_eq!(policy.id(), text);
            }
        }
    }

    #[test]
    fn what_no_policy_calls_itself_is_refused() {
        for text in [
            "",
            "born",
            "10/s:aside",
            "10/s:0",
            ":10/s",
            "10/1s",
            "5_000/h",
            "10/S",
            "5000/h+10/s",
            "10/s+10/s",
            "10/s-gcra-05",
            "10/s-gcra",
            "10/s-gcra-0",
            "10/s-fixed-clock",
            "10/s gcra burst=5",
            "a b:10/s",
            "{a}:10/s",
        ] {
            let error = Policy::from_id(text).expect_err(text).to_string();
            assert_eq!(error, format!("id: {text:?} is not that of a policy"));
        }
    }
}
