//! The state of a key under a policy, in the form that commands print: [`KeyStatus`].

use std::borrow::Cow;
use std::time::Duration;

use serde::Serialize;
use tower_throttle::Algorithm;
use tower_throttle::store::inspect::{KeyState, QuotaState, StoredKey};

use crate::printable::printable;
use crate::time::seconds;

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
    pub(crate) remaining: u32,
    /// The cost of all waiting requests.
    pub(crate) waiting: u64,
    #[serde(rename = "next_seconds", serialize_with = "in_seconds")]
    pub(crate) next: Duration,
    #[serde(rename = "full_seconds", serialize_with = "in_seconds")]
    pub(crate) full: Duration,
    #[serde(rename = "paused_seconds", serialize_with = "optional_in_seconds")]
    pub(crate) paused: Option<Duration>,
    pub(crate) allowance: Option<Allowance>,
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
    /// False if the actual use may be lower than shown.
    #[serde(skip)]
    pub(crate) exact: bool,
    #[serde(skip)]
    pub(crate) window: Duration,
}

/// A limit that an upstream has announced.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Allowance {
    pub(crate) left: u32,
    #[serde(rename = "lasts_seconds", serialize_with = "in_seconds")]
    pub(crate) lasts: Duration,
}

impl KeyStatus {
    pub(crate) fn new(stored: &StoredKey, state: &KeyState) -> Self {
        let quotas: Vec<_> = state.quotas.iter().map(Used::new).collect();
        Self {
            key: stored.key().map(|key| key.to_string()),
            encoded: stored.encoded().to_owned(),
            policy: stored.policy_name().map(str::to_owned),
            exact: quotas.iter().all(|it| it.exact),
            quotas,
            remaining: state.snapshot.remaining(),
            waiting: state.waiting.iter().map(|it| it.units).sum(),
            next: state.snapshot.delay(),
            full: state.snapshot.reset(),
            paused: state.pause,
            allowance: state
                .allowance
                .map(|(left, lasts)| Allowance { left, lasts }),
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
            self.paused.is_some() || self.allowance.is_some() || self.quarantined.is_some();
        !is_restricted && self.waiting == 0 && self.quotas.iter().all(|it| it.used == 0)
    }
}

impl Used {
    fn new(state: &QuotaState) -> Self {
        let QuotaState {
            quota,
            used,
            capacity,
            ..
        } = *state;
        let is_log = matches!(
            quota.counted_by(),
            Algorithm::SlidingLog | Algorithm::SlidingBuckets { .. }
        );
        let is_window = matches!(quota.counted_by(), Algorithm::FixedWindow { .. });
        Self {
            quota: quota.to_string(),
            used,
            capacity,
            rate: is_log.then(|| f64::from(used) / seconds(quota.window())),
            exact: is_log || is_window || used == 0,
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
