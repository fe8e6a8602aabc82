//! The order among requests of one key: [`Priority`] and [`Share`].

use std::sync::Arc;

use crate::algorithm::Flow;

/// The priority of a request among those that wait for the same key, in all processes.
///
/// A request departs before all requests of lower levels without a reserve, whenever these arrived. Requests of one level
/// and [`Share`] depart by arrival.
/// [`Acquire::priority`](crate::Acquire::priority) sets it. Default: [`Normal`](Self::Normal). They are ordered as requests depart,
/// so [`Highest`](Self::Highest) is the least.
///
/// Strict priorities starve: if the requests of higher levels take the whole quota, those of lower levels wait until there
/// are fewer. [`reserve`](crate::LimiterBuilder::reserve) guarantees a level a part of the capacity.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Priority {
    /// Requests before all others.
    Highest,
    /// Requests such as those of interactive users.
    High,
    /// Requests without a priority.
    #[default]
    Normal,
    /// Requests such as those of a batch job.
    Low,
    /// Requests behind all others.
    Lowest,
}

impl Priority {
    /// The names of all levels, the highest first.
    pub(crate) const NAMES: [&str; 5] = ["highest", "high", "normal", "low", "lowest"];

    /// The level, 0 for the highest.
    pub(crate) fn level(self) -> u64 {
        self as u64
    }

    /// The priority of a level.
    pub(crate) fn of_level(level: u64) -> Self {
        let levels = [Self::Highest, Self::High, Self::Normal, Self::Low];
        levels.get(level as usize).copied().unwrap_or(Self::Lowest)
    }
}

/// Where a request stands among those of the same key.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rank {
    pub(crate) priority: Priority,
    pub(crate) share: Option<Share>,
}

impl Rank {
    pub(crate) fn flow(&self) -> Flow {
        self.share.as_ref().map_or_else(Flow::default, Share::flow)
    }
}

#[cfg(test)]
impl From<Priority> for Rank {
    fn from(priority: Priority) -> Self {
        Self {
            priority,
            share: None,
        }
    }
}

/// The share of a request: the requests of its name get capacity in proportion to a weight.
///
/// While requests of several shares wait for the same key and with the same [`Priority`], in all processes, capacity is
/// divided among the shares in proportion to their weights. A share without waiting requests leaves its part to the others,
/// and gets no more than its part when it returns. Requests of one share depart by arrival. Requests without a share
/// belong to one of weight 1. Costs count, and so do their corrections: in several units, their sum.
///
/// [`Acquire::share`](crate::Acquire::share) sets it. If requests of one name have different weights, the weight of the
/// latest one counts. Clones are cheap.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Share(Arc<Parts>);

#[derive(Debug, PartialEq, Eq, Hash)]
struct Parts {
    name: Box<str>,
    flow: Flow,
}

/// The number of the share of requests that are combined, as there are too many shares.
pub(crate) const COMBINED: u64 = 2;

impl Share {
    /// The share of this name, with a weight from 1 to 65,535. Another weight fails when a request asks for a permit.
    pub fn new(name: impl AsRef<str>, weight: u32) -> Self {
        let name: Box<str> = name.as_ref().into();
        let hash = hmac_sha256::Hash::hash(name.as_bytes());
        let hash = hash
            .iter()
            .fold(0, |hash, byte| hash << 8 | u64::from(*byte));
        let id = (hash >> 14).max(COMBINED + 1);
        Self(Arc::new(Parts {
            name,
            flow: Flow { id, weight },
        }))
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The weight.
    pub fn weight(&self) -> u32 {
        self.flow().weight
    }

    pub(crate) fn flow(&self) -> Flow {
        self.0.flow
    }

    /// The reason why no request can have this share, if there is one.
    pub(crate) fn problem(&self) -> Option<String> {
        let weight = self.weight();
        (!Self::is_weight(weight)).then(|| {
            format!(
                "the share {:?} has the weight {weight}, which is not from 1 to 65,535",
                self.name()
            )
        })
    }

    /// Returns true if a share can have this weight.
    pub(crate) fn is_weight(weight: u32) -> bool {
        (1..=u16::MAX.into()).contains(&weight)
    }
}
