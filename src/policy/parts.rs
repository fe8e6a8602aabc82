//! What a policy is made of, and whether that can hold: [`PolicyParts`].

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use smallvec::SmallVec;

use super::{Lost, Outage, Policy, Recovery, next_number};
use crate::algorithm::{Costs, Counter, number_units};
use crate::cost::Cost;
use crate::error::BuildError;
use crate::quota::{CONCURRENT, MOST_UNITS, Quota, interned_units, units_of};

/// The most quotas that one policy may join.
const MOST_QUOTAS: usize = 8;

/// The most quotas that one policy may join if they count several units, as scripts have a limited number of variables.
const MOST_IN_UNITS: usize = 5;

/// The longest buffer and guard.
const LONGEST_SPAN: Duration = Duration::from_secs(60 * 60);

/// With a shorter guard, permits would end before requests can use them.
const SHORTEST_GUARD: Duration = Duration::from_micros(100);

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
    pub(crate) lost: Lost,
    /// The part of the capacity that each level has for itself.
    pub(crate) reserves: [f64; 5],
}

impl PolicyParts {
    /// The first field that has another value than by default.
    pub(crate) fn first_set(&self) -> Option<&'static str> {
        let default = Self::default();
        let fields = [
            ("name", self.name != default.name),
            ("quota", self.quotas != default.quotas),
            ("buffer", self.buffer != default.buffer),
            ("guard", self.guard != default.guard),
            ("max_wait", self.max_wait != default.max_wait),
            ("max_waiting", self.max_waiting != default.max_waiting),
            ("outage", self.outage != default.outage),
            ("recovery", self.recovery != default.recovery),
            ("lost", self.lost != default.lost),
            ("reserve", self.reserves != default.reserves),
        ];
        let first = fields.into_iter().find(|(_, is_set)| *is_set);
        first.map(|(field, _)| field)
    }

    /// All errors in the parts.
    fn flaws(&self) -> Vec<BuildError> {
        let mut flaws = Vec::new();
        let mut add = |field, problem: String| flaws.push(BuildError::new(field, problem));
        for (place, quota) in self.quotas.iter().enumerate() {
            let problem = match self.quotas[..place].contains(quota) {
                true => Some(format!("`{quota}` is given twice")),
                false => (quota.problem()).map(|problem| format!("`{quota}`: {problem}")),
            };
            if let Some(problem) = problem {
                add("quota", problem);
            }
        }
        let quotas = self.quotas.iter();
        let units = units_of(quotas.clone().map(Quota::unit_name));
        let (most, what) = match units.len() {
            0 | 1 => (MOST_QUOTAS, ""),
            _ => (MOST_IN_UNITS, " that count several units"),
        };
        match quotas.len() {
            0 => add("quota", "at least one is needed".into()),
            count if count > most => {
                let problem = format!("{count} were given{what}, and at most {most} may be joined");
                add("quota", problem);
            }
            _ => {}
        }
        if units.len() > MOST_UNITS {
            let problem = format!(
                "they count {} units, and at most {MOST_UNITS} may be joined",
                units.len()
            );
            add("quota", problem);
        }
        for unit in &units {
            let alike = quotas.clone().filter(|quota| quota.unit_name() == *unit);
            let costs = alike.filter_map(|quota| quota.default_cost);
            if costs.clone().min() != costs.max() {
                let problem = format!("the quotas of {unit} have different default costs");
                add("quota", problem);
            }
        }
        if quotas.filter(is_concurrent).count() > 1 {
            add("quota", "there is more than one concurrency limit".into());
        }
        if let Some(problem) = self.name.as_deref().and_then(name_problem) {
            add("name", problem);
        }
        let guard = self.guard.unwrap_or_default();
        for (field, span) in [("buffer", self.buffer), ("guard", guard)] {
            if span > LONGEST_SPAN {
                add(field, format!("{span:?} is longer than {LONGEST_SPAN:?}"));
            }
        }
        if self.guard.is_some_and(|guard| guard < SHORTEST_GUARD) {
            let problem =
                format!("{guard:?} is shorter than {SHORTEST_GUARD:?}, too short to depart");
            add("guard", problem);
        }
        let sum: f64 = self.reserves.iter().sum();
        let mut reserves = self.reserves.iter();
        if let Some(part) = reserves.find(|part| !(0.0..=1.0).contains(*part)) {
            add("reserve", format!("{part} is not from 0 to 1"));
        } else if sum > 1.0 + 1e-9 {
            let problem = format!("{sum} is reserved in all, which is more than 1");
            add("reserve", problem);
        }
        if self.max_waiting == Some(0) {
            let problem = "is zero: use `try_acquire`, or a `max_wait` of zero, not to wait at all";
            add("max_waiting", problem.into());
        }
        if let Outage::Local { share } = self.outage
            && !(share > 0.0 && share <= 1.0)
        {
            let problem = format!("a share of {share} is not above 0 and up to 1");
            add("outage", problem);
        }
        flaws
    }

    /// Fails with all errors in the parts; there is at least one.
    pub(crate) fn build(self) -> Result<Policy, Vec<BuildError>> {
        let flaws = self.flaws();
        if !flaws.is_empty() {
            return Err(flaws);
        }
        let fallback = self.outage.fallback(&self).map(Self::build).transpose();
        let fallback = fallback.map_err(|errors| {
            let problem = format!("the share is too small: {}", errors[0]);
            vec![BuildError::new("outage", problem)]
        })?;
        // The quotas of several processes count the same departures, whatever their order and their limits.
        let mut sorted = self.quotas.clone();
        sorted.sort_by_cached_key(|quota| {
            let rate_window = Some(quota.window()).filter(|_| !is_concurrent(&quota));
            let text = quota.to_string();
            let kind = text.trim_start_matches(|it: char| it.is_ascii_digit());
            (
                rate_window,
                quota.unit_name(),
                kind.to_owned(),
                quota.limit(),
            )
        });
        let mut counters: SmallVec<_> = sorted.iter().map(Counter::new).collect();
        let units = interned_units(&number_units(&mut counters));
        let mut largest_costs = Costs::default();
        for (most, unit) in largest_costs.0.iter_mut().zip(units) {
            let alike = self.quotas.iter().filter(|it| it.unit_name() == *unit);
            *most = alike.map(Quota::largest_cost).min().unwrap_or(0);
        }
        let mut policy = Policy {
            label: match &self.name {
                Some(name) => name.as_str().into(),
                None => label(&self.quotas).into(),
            },
            lease: (self.quotas.iter().find(is_concurrent)).map(Quota::window),
            units,
            largest_costs,
            counters,
            default_costs: None,
            is_exempt: false,
            number: next_number(),
            fallback: fallback.map(Arc::new),
            header: OnceLock::new(),
            parts: self,
        };
        policy.default_costs = policy.resolve(&Cost::default(), None).ok();
        Ok(policy)
    }
}

fn is_concurrent(quota: &&Quota) -> bool {
    quota.unit_name() == CONCURRENT
}

/// The quotas in their order, such as `10/s+5000/h-gcra-burst=20`.
fn label(quotas: &[Quota]) -> String {
    let all: Vec<_> = quotas.iter().map(Quota::to_string).collect();
    all.join("+").replace(' ', "-")
}

/// Names and prefixes are part of the names of Redis keys, where braces make the hash tag.
pub(crate) fn name_problem(name: &str) -> Option<String> {
    let fits = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}');
    let is_valid = (1..=128).contains(&name.len()) && name.bytes().all(fits);
    let problem = || format!("{name:?} is not 1 to 128 visible ASCII characters without braces");
    (!is_valid).then(problem)
}

/// 2% of the shortest span that a quota enforces, from 5 ms (less, and ordinary wake-ups come too
/// late) to 12 ms (enough for them, and within 2% of the rate at one second).
pub(super) fn default_guard(quotas: &[Quota]) -> Duration {
    let shortest = quotas.iter().map(Quota::span).min().unwrap_or_default();
    let (least, most) = (Duration::from_millis(5), Duration::from_millis(12));
    (shortest / 50).clamp(least, most)
}

#[cfg(test)]
impl PolicyParts {
    /// The parts of a policy with quotas such as `10/s + 100/m`.
    pub(crate) fn of(quotas: &str) -> Self {
        Self {
            quotas: quotas.split(" + ").map(|it| it.parse().unwrap()).collect(),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_count_alike_in_any_order_and_with_other_limits_unless_these_round_times() {
        let policy = |text: &str| PolicyParts::of(text).build().unwrap();
        let low = policy("90/m unit=a + 80/m unit=b");
        for (limit, is_alike) in [(80, true), (95, true), (2_000, false)] {
            let other = policy(&format!("{limit}/m unit=b + 90/m unit=a"));
            assert_eq!(low.counts_like(&other), is_alike, "{limit}");
        }
        let [one, other] = ["1/s + 1/h", "1/h + 1/s"].map(policy);
        assert_eq!(one.counters, other.counters);
    }

    #[test]
    fn the_default_guard_costs_at_most_2_percent_from_one_second_on() {
        for (quota, guard_ms) in [("10/s", 12), ("10/d", 12), ("10/100ms", 5)] {
            let guard = PolicyParts::of(quota).build().unwrap().guard();
            assert_eq!(guard, Duration::from_millis(guard_ms));
        }
    }
}
