//! The state of a key under a policy, in the form that commands print: [`KeyStatus`].

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use serde::Serialize;
use tower_throttle::store::inspect::{KeyState, QuotaState, StoredKey};
use tower_throttle::{Algorithm, Places};

use crate::level::LEVELS;
use crate::printable::printable;
use crate::time::{count, seconds};

/// The state of a key under a policy.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct KeyStatus {
    /// `None` if Redis has only the digest of the key.
    pub(crate) key: Option<String>,
    /// The form of the key in the names of Redis keys.
    pub(crate) encoded: String,
    /// The name of the policy.
    pub(crate) policy: Option<String>,
    pub(crate) quotas: Vec<Used>,
    /// False if the actual use of a quota may be lower than shown.
    pub(crate) exact: bool,
    pub(crate) remaining: Amounts,
    /// The cost of all waiting requests.
    pub(crate) waiting: Amounts,
    #[serde(rename = "waiting_by_priority")]
    pub(crate) levels: Levels,
    /// `None` if it is not known when a place is released.
    #[serde(rename = "next_seconds", serialize_with = "optional_in_seconds")]
    pub(crate) next: Option<Duration>,
    /// `None` while requests are in progress: it is not known when they end.
    #[serde(rename = "full_seconds", serialize_with = "optional_in_seconds")]
    pub(crate) full: Option<Duration>,
    #[serde(rename = "paused_seconds", serialize_with = "optional_in_seconds")]
    pub(crate) paused: Option<Duration>,
    pub(crate) allowances: Vec<Allowance>,
    #[serde(rename = "quarantined_seconds", serialize_with = "optional_in_seconds")]
    pub(crate) quarantined: Option<Duration>,
}

/// How much of a quota is used.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Used {
    pub(crate) quota: String,
    pub(crate) used: u32,
    pub(crate) capacity: u32,
    /// Units per second over the window; only sliding windows record it.
    pub(crate) rate: Option<f64>,
    /// The processes with requests in progress; only for a concurrency limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) processes: Option<u32>,
    /// False if the actual use may be lower than shown.
    #[serde(skip)]
    pub(crate) exact: bool,
    #[serde(skip)]
    pub(crate) window: Duration,
}

/// An amount in each unit, requests first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Amounts(Vec<(&'static str, u64)>);

/// The cost of the waiting requests of each priority that has some, the highest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Levels(Vec<(&'static str, Amounts)>);

/// A limit that an upstream has announced.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Allowance {
    pub(crate) unit: &'static str,
    pub(crate) left: u32,
    #[serde(rename = "lasts_seconds", serialize_with = "in_seconds")]
    pub(crate) lasts: Duration,
}

impl KeyStatus {
    pub(crate) fn new(stored: &StoredKey, state: &KeyState) -> Self {
        let places = state.snapshot.places();
        let quotas = state.quotas.iter().map(|it| Used::new(it, places));
        let quotas: Vec<_> = quotas.collect();
        let are_held = places.is_some_and(|places| places.held > 0);
        let needs_place = quotas.iter().any(Used::is_out_of_places);
        let ends = state.allowances.iter().map(|(_, _, lasts)| *lasts);
        let ends = ends.chain(state.pause).chain(state.quarantine);
        let full = ends.fold(state.snapshot.reset(), Duration::max);
        let allowances = state.allowances.iter();
        let allowances = allowances.map(|&(unit, left, lasts)| Allowance { unit, left, lasts });
        Self {
            key: stored.key().map(|key| key.to_string()),
            encoded: stored.encoded().to_owned(),
            policy: stored.policy_name().map(str::to_owned),
            exact: quotas.iter().all(|it| it.exact),
            quotas,
            remaining: Amounts::from_iter(state.snapshot.all_remaining()),
            waiting: Amounts::from_iter(state.waiting.iter().flat_map(|it| it.units.clone())),
            levels: Levels::new(state),
            next: (!needs_place).then(|| state.snapshot.delay()),
            full: (!are_held).then_some(full),
            paused: state.pause,
            allowances: allowances.collect(),
            quarantined: state.quarantine,
        }
    }

    /// The key, or its encoded form if it is not [printable].
    pub(crate) fn shown_key(&self) -> String {
        match &self.key {
            Some(key) if matches!(printable(key), Cow::Borrowed(_)) => key.clone(),
            _ => self.encoded.clone(),
        }
    }

    /// The name of the policy, or its quotas.
    pub(crate) fn shown_policy(&self) -> String {
        let quotas = || {
            self.quotas
                .iter()
                .map(|it| &*it.quota)
                .collect::<Vec<_>>()
                .join(" + ")
        };
        self.policy.clone().unwrap_or_else(quotas)
    }

    /// The quota with the largest used share, and that share.
    pub(crate) fn busiest(&self) -> Option<(&Used, f64)> {
        let shares = self.quotas.iter().map(|it| (it, it.share()));
        shares.max_by(|(_, a), (_, b)| a.total_cmp(b))
    }

    /// The rate over the shortest window.
    pub(crate) fn rate(&self) -> Option<f64> {
        let known = self.quotas.iter().filter(|it| it.rate.is_some());
        known.min_by_key(|it| it.window)?.rate
    }

    /// True if the key is unused, not paused and without waiting requests.
    pub(crate) fn is_idle(&self) -> bool {
        let is_restricted =
            self.paused.is_some() || !self.allowances.is_empty() || self.quarantined.is_some();
        !is_restricted && self.waiting.is_zero() && self.quotas.iter().all(|it| it.used == 0)
    }
}

/// The amounts of the same unit are added.
impl<N: Into<u64>> FromIterator<(&'static str, N)> for Amounts {
    fn from_iter<I: IntoIterator<Item = (&'static str, N)>>(amounts: I) -> Self {
        let mut sums = Self::default();
        for (unit, amount) in amounts {
            let amount = amount.into();
            match sums.0.iter_mut().find(|(other, _)| *other == unit) {
                Some((_, sum)) => *sum += amount,
                None => sums.0.push((unit, amount)),
            }
        }
        sums
    }
}

impl Amounts {
    /// The smallest amount, with its unit.
    pub(crate) fn least(&self) -> Self {
        let least = self.0.iter().min_by_key(|(_, amount)| amount);
        Self(least.into_iter().copied().collect())
    }

    fn is_zero(&self) -> bool {
        self.0.iter().all(|(_, amount)| *amount == 0)
    }
}

/// Names the units unless all are requests.
impl fmt::Display for Amounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [("requests", amount)] = self.0[..] {
            return f.write_str(&count(amount));
        }
        for (nth, &(unit, amount)) in self.0.iter().enumerate() {
            let comma = if nth > 0 { ", " } else { "" };
            write!(f, "{comma}{} {unit}", count(amount))?;
        }
        Ok(())
    }
}

/// As a map by the names of the units.
impl Serialize for Amounts {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().copied())
    }
}

impl Levels {
    fn new(state: &KeyState) -> Self {
        let levels = LEVELS.into_iter().map(|(name, priority)| {
            let waiting = state.waiting.iter().filter(|it| it.priority == priority);
            (name, waiting.flat_map(|it| it.units.clone()).collect())
        });
        levels.collect()
    }

    /// True if a request with a priority other than normal waits.
    pub(crate) fn are_prioritized(&self) -> bool {
        self.0.iter().any(|(name, _)| *name != "normal")
    }
}

/// Leaves out priorities without waiting requests.
impl FromIterator<(&'static str, Amounts)> for Levels {
    fn from_iter<I: IntoIterator<Item = (&'static str, Amounts)>>(levels: I) -> Self {
        let levels = levels.into_iter();
        Self(levels.filter(|(_, amounts)| !amounts.is_zero()).collect())
    }
}

/// In the first unit.
impl fmt::Display for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, (name, amounts)) in self.0.iter().enumerate() {
            let comma = if nth > 0 { ", " } else { "" };
            let amount = amounts.0.first().map_or(0, |(_, amount)| *amount);
            write!(f, "{comma}{} {name}", count(amount))?;
        }
        Ok(())
    }
}

/// As a map by the names of the priorities.
impl Serialize for Levels {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(name, amounts)| (name, amounts)))
    }
}

impl Used {
    /// True for a concurrency limit without a free place.
    fn is_out_of_places(&self) -> bool {
        self.processes.is_some() && self.used >= self.capacity
    }

    fn new(state: &QuotaState, places: Option<Places>) -> Self {
        let QuotaState {
            quota,
            used,
            capacity,
            ..
        } = *state;
        let is_limit = matches!(quota.counted_by(), Algorithm::Concurrent { .. });
        let places = places.filter(|_| is_limit);
        let is_log = matches!(
            quota.counted_by(),
            Algorithm::SlidingLog | Algorithm::SlidingBuckets { .. }
        );
        let is_window = matches!(quota.counted_by(), Algorithm::FixedWindow { .. });
        Self {
            quota: quota.to_string(),
            // More than the capacity may be in progress after an outage.
            used: places.map_or(used, |places| places.held),
            capacity,
            processes: places.map(|places| places.processes),
            rate: is_log.then(|| f64::from(used) / seconds(quota.window())),
            exact: is_log || is_window || is_limit || used == 0,
            window: quota.window(),
        }
    }

    pub(crate) fn share(&self) -> f64 {
        f64::from(self.used) / f64::from(self.capacity.max(1))
    }
}

pub(crate) fn in_seconds<S: serde::Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(seconds(*time))
}

pub(crate) fn optional_in_seconds<S: serde::Serializer>(
    time: &Option<Duration>,
    to: S,
) -> Result<S::Ok, S::Error> {
    time.map(seconds).serialize(to)
}
