//! How a key stands under a policy, as commands tell it: [`Standing`].

use std::borrow::Cow;
use std::time::Duration;

use serde::Serialize;
use tower_throttle::store::{KeyState, Spent, StoredKey};
use tower_throttle::{Algorithm, Quota};

use crate::printable::printable;
use crate::time::seconds;

/// How a key stands under a policy.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Standing {
    /// `None` if Redis has its digest only.
    pub(crate) key: Option<String>,
    /// As it stands in the names of Redis keys.
    pub(crate) encoded: String,
    pub(crate) policy: String,
    pub(crate) quotas: Vec<Used>,
    /// Whether no less is used than said.
    pub(crate) exact: bool,
    pub(crate) remaining: u32,
    #[serde(rename = "next_slot_seconds", serialize_with = "in_seconds")]
    pub(crate) next_slot: Duration,
    #[serde(rename = "full_seconds", serialize_with = "in_seconds")]
    pub(crate) full: Duration,
    #[serde(rename = "paused_seconds", serialize_with = "perhaps_in_seconds")]
    pub(crate) paused: Option<Duration>,
    pub(crate) allowance: Option<Allowance>,
    #[serde(rename = "rests_seconds", serialize_with = "perhaps_in_seconds")]
    pub(crate) rests: Option<Duration>,
    pub(crate) free_slots: usize,
}

/// How much of a quota is used.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Used {
    pub(crate) quota: String,
    pub(crate) used: u32,
    pub(crate) capacity: u32,
    /// Per second, over the window; `None` if the state does not tell.
    pub(crate) rate: Option<f64>,
    #[serde(skip)]
    pub(crate) window: Duration,
}

/// What an upstream has said that remains.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Allowance {
    pub(crate) left: u32,
    #[serde(rename = "lasts_seconds", serialize_with = "in_seconds")]
    pub(crate) lasts: Duration,
}

impl Standing {
    pub(crate) fn new(stored: &StoredKey, state: &KeyState) -> Self {
        Self {
            key: stored.key().map(|key| key.to_string()),
            encoded: stored.encoded().to_owned(),
            policy: stored.policy().id().to_owned(),
            quotas: state.spent().iter().map(Used::new).collect(),
            exact: state.is_exact() && state.spent().iter().all(Spent::is_exact),
            remaining: state.remaining(),
            next_slot: state.delay(),
            full: state.reset(),
            paused: state.pause(),
            allowance: state.allowance().map(|it| Allowance {
                left: it.remaining(),
                lasts: it.lasts(),
            }),
            rests: state.rest(),
            free_slots: state.free_slots(),
        }
    }

    /// The key; what stands for it, if that is not [printable].
    pub(crate) fn shown_key(&self) -> String {
        match &self.key {
            Some(key) if matches!(printable(key), Cow::Borrowed(_)) => key.clone(),
            _ => self.encoded.clone(),
        }
    }

    /// The quota of which the most is used, as a part of all.
    pub(crate) fn busiest(&self) -> Option<(&Used, f64)> {
        let shares = self.quotas.iter().map(|it| (it, it.share()));
        shares.max_by(|(_, a), (_, b)| a.total_cmp(b))
    }

    /// By the quota with the shortest window, which tells of the latest.
    pub(crate) fn rate(&self) -> Option<f64> {
        let known = self.quotas.iter().filter(|it| it.rate.is_some());
        known.min_by_key(|it| it.window)?.rate
    }

    /// Whether there is anything that the state says.
    pub(crate) fn is_idle(&self) -> bool {
        let nothing_said =
            self.paused.is_none() && self.allowance.is_none() && self.rests.is_none();
        nothing_said && self.quotas.iter().all(|it| it.used == 0)
    }
}

impl Used {
    fn new(spent: &Spent) -> Self {
        let quota = spent.quota();
        Self {
            quota: quota.to_string(),
            used: spent.used(),
            capacity: spent.capacity(),
            rate: rate(spent, quota),
            window: quota.window(),
        }
    }

    pub(crate) fn share(&self) -> f64 {
        f64::from(self.used) / f64::from(self.capacity.max(1))
    }
}

/// What has departed within the last window, over that: of what counts departures, as a time alone does not tell how
/// many there were. Where not all was read, it is no more.
fn rate(spent: &Spent, quota: Quota) -> Option<f64> {
    let counts = matches!(
        quota.counted_by(),
        Algorithm::SlidingLog | Algorithm::SlidingBuckets { .. }
    );
    let departed = spent.departed().unwrap_or(spent.used());
    counts.then(|| f64::from(departed) / seconds(quota.window()))
}

pub(crate) fn in_seconds<S: serde::Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(seconds(*time))
}

pub(crate) fn perhaps_in_seconds<S: serde::Serializer>(
    time: &Option<Duration>,
    to: S,
) -> Result<S::Ok, S::Error> {
    time.map(seconds).serialize(to)
}
