//! What a policy is made of, and whether that can hold: [`PolicyParts`].

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::{Outage, Policy, Recovery};
use crate::algorithm::Counter;
use crate::error::BuildError;
use crate::quota::Quota;

/// The most quotas that one policy may join.
const MOST_QUOTAS: usize = 8;

/// What a policy is made of, before it was found to make sense.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PolicyParts {
    pub(crate) name: Option<String>,
    pub(crate) quotas: SmallVec<[Quota; 2]>,
    pub(crate) buffer: Duration,
    pub(crate) guard: Option<Duration>,
    pub(crate) max_wait: Option<Duration>,
    pub(crate) max_waiting: Option<usize>,
    pub(crate) outage: Outage,
    pub(crate) recovery: Recovery,
    /// Everything departs, uncounted.
    pub(crate) is_exempt: bool,
}

/// A policy that was found to make sense, with what it is made of, and with what stands in for it while the store
/// is out, if anything does.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) parts: PolicyParts,
    pub(crate) policy: Arc<Policy>,
    pub(crate) fallback: Option<Arc<Policy>>,
}

/// What cannot hold, and in which part of a policy.
#[derive(Debug)]
pub(crate) struct Flaw {
    pub(crate) part: Part,
    pub(crate) error: BuildError,
}

/// A part of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Name,
    Quotas,
    /// The one in this place.
    Quota(usize),
    Buffer,
    Guard,
    MaxWaiting,
    Outage,
}

impl PolicyParts {
    /// The policy, and what stands in for it.
    pub(crate) fn plan(self) -> Result<Plan, BuildError> {
        Ok(Plan {
            policy: Arc::new(self.clone().build()?),
            fallback: match self.outage.fallback(&self)? {
                Some(parts) => Some(Arc::new(parts.build_fallback()?)),
                None => None,
            },
            parts: self,
        })
    }

    /// Fails if a field is set, as the rules of the limiter set them all.
    pub(crate) fn check_empty(&self) -> Result<(), BuildError> {
        let none = Self::default();
        let set = [
            ("quota", self.quotas != none.quotas),
            ("name", self.name != none.name),
            ("buffer", self.buffer != none.buffer),
            ("guard", self.guard != none.guard),
            ("max_wait", self.max_wait != none.max_wait),
            ("max_waiting", self.max_waiting != none.max_waiting),
            ("outage", self.outage != none.outage),
            ("recovery", self.recovery != none.recovery),
        ];
        match set.into_iter().find(|(_, is_set)| *is_set) {
            Some((field, _)) => Err(BuildError::set_by_rules(field)),
            None => Ok(()),
        }
    }

    /// All that cannot hold.
    pub(crate) fn flaws(&self) -> Vec<Flaw> {
        let mut flaws = Vec::new();
        let mut found = |part, error| flaws.push(Flaw { part, error });
        let count = self.quotas.len();
        if count == 0 {
            let error = BuildError::new("quota", "at least one is needed");
            found(Part::Quotas, error);
        }
        if count > MOST_QUOTAS {
            let problem = format!("{count} were given, and at most {MOST_QUOTAS} may be joined");
            found(Part::Quotas, BuildError::new("quota", problem));
        }
        for (place, quota) in self.quotas.iter().enumerate() {
            if self.quotas[..place].contains(quota) {
                let problem = format!("`{quota}` is given twice");
                found(Part::Quota(place), BuildError::new("quota", problem));
            } else if let Err(error) = quota.check() {
                found(Part::Quota(place), error);
            }
        }
        let mut check = |part, checked: Option<Result<(), BuildError>>| {
            if let Some(Err(error)) = checked {
                found(part, error);
            }
        };
        let name = self.name.as_ref();
        check(Part::Name, name.map(|name| check_name("name", name)));
        check(Part::Buffer, Some(check_span("buffer", self.buffer)));
        check(Part::Guard, self.guard.map(check_guard));
        if self.max_waiting == Some(0) {
            let problem = "is zero: use `try_acquire`, or a `max_wait` of zero, not to wait at all";
            found(Part::MaxWaiting, BuildError::new("max_waiting", problem));
        }
        let is_sound = flaws.is_empty();
        let part = Part::Outage;
        match self.outage.fallback(self) {
            Err(error) => flaws.push(Flaw { part, error }),
            // What is wrong with the quotas is wrong with their shares, too.
            Ok(Some(parts)) if is_sound => {
                let error = parts.build_fallback().err();
                flaws.extend(error.map(|error| Flaw { part, error }));
            }
            Ok(_) => {}
        }
        flaws
    }

    fn build_fallback(self) -> Result<Policy, BuildError> {
        let policy = self.build();
        policy.map_err(|error| BuildError::new("outage", error.to_string()))
    }

    pub(crate) fn build(self) -> Result<Policy, BuildError> {
        if let Some(flaw) = self.flaws().into_iter().next() {
            return Err(flaw.error);
        }
        let guard = self.guard.unwrap_or_else(|| default_guard(&self.quotas));
        // The quotas of several processes count the same departures, whatever their order.
        let mut sorted = self.quotas.clone();
        sorted.sort_unstable_by_key(|quota| (quota.window(), quota.limit()));
        let counters = sorted.iter().map(Counter::new).collect();
        let label = match &self.name {
            Some(name) => name.as_str().into(),
            None => label(&self.quotas).into(),
        };
        let largest_costs = self.quotas.iter().map(Quota::largest_cost);
        Ok(Policy {
            name: self.name.map(String::into_boxed_str),
            largest_cost: largest_costs.min().unwrap_or(u32::MAX),
            counters,
            quotas: self.quotas,
            buffer: self.buffer,
            guard,
            max_wait: self.max_wait,
            max_waiting: self.max_waiting,
            outage: self.outage,
            recovery: self.recovery,
            is_exempt: self.is_exempt,
            label,
        })
    }
}

/// The quotas in their order, such as `10/s+5000/h-gcra-burst=20`.
fn label(quotas: &[Quota]) -> String {
    let all: Vec<_> = quotas.iter().map(ToString::to_string).collect();
    all.join("+").replace(' ', "-").replace('_', "")
}

/// Names and prefixes are part of the names of Redis keys, where braces make the hash tag.
pub(crate) fn check_name(field: &'static str, name: &str) -> Result<(), BuildError> {
    let fits = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}');
    if name.is_empty() || name.len() > 128 || !name.bytes().all(fits) {
        let problem = format!("{name:?} is not 1 to 128 visible ASCII characters without braces");
        return Err(BuildError::new(field, problem));
    }
    Ok(())
}

fn check_span(field: &'static str, span: Duration) -> Result<(), BuildError> {
    const LONGEST: Duration = Duration::from_secs(60 * 60);
    if span > LONGEST {
        return Err(BuildError::new(
            field,
            format!("{span:?} is longer than {LONGEST:?}"),
        ));
    }
    Ok(())
}

fn check_guard(guard: Duration) -> Result<(), BuildError> {
    check_span("guard", guard)?;
    if guard.is_zero() {
        let problem = "is zero, so no permit would be valid";
        return Err(BuildError::new("guard", problem));
    }
    Ok(())
}

/// 2% of the shortest span that a quota enforces, from 5 ms (less, and ordinary wake-ups come too
/// late) to 12 ms (enough for them, and within 2% of the rate at one second).
fn default_guard(quotas: &[Quota]) -> Duration {
    let shortest = quotas.iter().map(Quota::span).min().unwrap_or_default();
    let (least, most) = (Duration::from_millis(5), Duration::from_millis(12));
    (shortest / 50).clamp(least, most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::Algorithm;

    fn build(quotas: &[Quota]) -> Result<Policy, BuildError> {
        let parts = PolicyParts {
            quotas: quotas.iter().copied().collect(),
            ..PolicyParts::default()
        };
        parts.build()
    }

    fn problem(quota: Quota) -> String {
        build(&[quota]).unwrap_err().to_string()
    }

    #[test]
    fn quotas_that_cannot_hold_are_refused_by_name() {
        let second = Duration::from_secs(1);
        assert_eq!(
            problem(Quota::new(0, second)),
            "quota `0/s`: the limit is zero"
        );
        assert_eq!(
            problem(Quota::new(1, Duration::ZERO)),
            "quota `1/0ns`: the window is zero"
        );
        assert!(problem(Quota::new(1, Duration::from_nanos(1_500))).contains("whole microseconds"));
        assert!(problem(Quota::new(1, Duration::MAX)).contains("longer than"));
        let spaced = Quota::new(11, Duration::from_micros(10)).algorithm(Algorithm::Spacing);
        assert!(problem(spaced).contains("less than a microsecond"));
        let gcra = |burst| Quota::per_day(1).algorithm(Algorithm::Gcra { burst });
        assert!(problem(gcra(0)).contains("the burst is zero"));
        assert!(problem(gcra(u32::MAX)).contains("longer than"));
    }

    #[test]
    fn a_policy_has_at_least_one_quota_and_none_twice() {
        assert!(build(&[]).is_err());
        let quota = Quota::per_second(1);
        assert!(
            build(&[quota, quota])
                .unwrap_err()
                .to_string()
                .contains("twice")
        );
        assert!(build(&[quota, Quota::per_minute(1)]).is_ok());
    }

    #[test]
    fn a_policy_without_a_name_is_labelled_by_its_quotas() {
        let texts = [
            "10/s",
            "5_000/1h30m sliding-buckets buckets=1_000",
            "5_000/1h30m spacing",
            "5_000/1h30m leaky-bucket capacity=20",
            "5_000/1h30m gcra burst=20",
            "5_000/1h30m fixed-window",
            "5_000/1h30m fixed-window start=first-request",
        ];
        let policy = build(&texts.map(|text| text.parse().unwrap())).unwrap();
        let labels: Vec<_> = policy.label().split('+').collect();
        let expected = [
            "10/s",
            "5000/1h30m-sliding-buckets-buckets=1000",
            "5000/1h30m-spacing",
            "5000/1h30m-leaky-bucket-capacity=20",
            "5000/1h30m-gcra-burst=20",
            "5000/1h30m-fixed-window",
            "5000/1h30m-fixed-window-start=first-request",
        ];
        assert_eq!(labels, expected);
    }

    #[test]
    fn the_order_of_quotas_makes_no_difference_to_the_state() {
        let (second, hour) = (Quota::per_second(10), Quota::per_hour(5_000));
        let one = build(&[second, hour]).unwrap();
        let other = build(&[hour, second]).unwrap();
        assert_eq!(one.counters(), other.counters());
    }

    #[test]
    fn the_default_guard_costs_at_most_2_percent_from_one_second_on() {
        let guard = |quota| build(&[quota]).unwrap().guard();
        assert_eq!(guard(Quota::per_second(10)), Duration::from_millis(12));
        assert_eq!(guard(Quota::per_day(10)), Duration::from_millis(12));
        assert_eq!(
            guard(Quota::new(5, Duration::from_millis(100))),
            Duration::from_millis(5)
        );
    }
}
