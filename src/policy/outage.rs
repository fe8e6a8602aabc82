//! The treatment of requests while the store is out, or has lost state: [`Outage`], [`Recovery`] and [`Lost`].

use std::time::Duration;

use smallvec::SmallVec;

use super::{Policy, PolicyParts};
use crate::quota::{Algorithm, CONCURRENT, Quota};

/// The treatment of requests while the store is out.
///
/// Set by [`LimiterBuilder::outage`](crate::LimiterBuilder::outage). The store is out once a call fails with an error that
/// [says so](crate::store::StoreError::is_outage). From then on it is probed: after 50 ms at first, then after pauses that
/// double up to a second, each shortened at random by up to a half. When a probe succeeds, all requests go on.
/// [`Limiter::health`](crate::Limiter::health) reports whether the store is out.
///
/// In a cluster, this holds for each server and the keys that it holds: one that is out does not concern the others.
///
/// Requests that were granted already depart in their time, within the [horizon](crate::guide::exactness).
///
/// ```
/// use tower_throttle::{Limiter, Outage, Quota};
///
/// let limiter = Limiter::builder()
///     .quota(Quota::per_second(30))
///     // There are three replicas.
///     .outage(Outage::Local { share: 1.0 / 3.0 })
///     .build()?;
/// # Ok::<_, tower_throttle::BuildError>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum Outage {
    /// Nothing departs: never more than the quotas allow. The default.
    ///
    /// Requests wait for the store until their bounds, or for 5 s if they have none. Then they fail with an error that
    /// [says](crate::Error::is_store) so. Requests that do not wait fail at once.
    #[default]
    Deny,
    /// Everything departs at once, uncounted: for services that would rather exceed a limit than fail.
    ///
    /// A [pause](crate::Limiter::pause) that is set during the outage holds in this process. Departures are not counted once the
    /// store is back.
    Allow,
    /// This process counts by itself, with its share of the quotas.
    ///
    /// Each limit is multiplied by the share and rounded down; if that is less than one, the limit is one and the window
    /// longer. Bursts and capacities are at least one. For spacing and rates, the interval is longer.
    ///
    /// No replica knows of the others. If the share of each is at least one request (of the limit, the burst or the
    /// capacity), replicas whose shares add up to 1 keep the quotas during the outage. If it is less, one request of each
    /// may depart at the same moment: R replicas let R depart where the limit, burst or capacity is less than that, and
    /// with spacing always. Over a longer time, departures keep to the rate of the quota, and to at most R more.
    ///
    /// Around the beginning and the end of an outage, a window holds departures that the store has counted and others
    /// that this process has: at most the quota and the shares together. When the store is back, requests that wait
    /// depart by the store again, in their order. A request that costs more than the share allows fails at
    /// once, with the error of the [store](crate::ErrorKind::Store).
    #[cfg_attr(
        feature = "serde",
        serde(deserialize_with = "serde::Deserialize::deserialize")
    )]
    Local {
        /// This process's part of the quotas, above 0 and up to 1: with R replicas, `1.0 / R`.
        share: f64,
    },
}

/// What is done when the store has lost the state of a key.
///
/// A store loses state when it is restarted without persistence or emptied, when it evicts a key, and when a replica
/// takes over that had not received the last writes. Set by
/// [`LimiterBuilder::recovery`](crate::LimiterBuilder::recovery).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum Recovery {
    /// The key starts from zero at once. The default.
    ///
    /// Departures before the loss are not counted: a window that spans the loss holds up to twice what the quotas allow.
    #[default]
    Immediate,
    /// The key is in quarantine until no earlier departure counts: nothing departs, so that the upstream never sees more
    /// than the quotas allow.
    ///
    /// The state of each key has a generation and a version, and names the server process that wrote it. Each process
    /// remembers the generation and version that it saw last, for as long as the departures count or requests wait (some
    /// 100 bytes for each key of the last window), and sends them with each call. If the state is missing, is older than that, was
    /// written by another server process, or if the server's clock was set by more than 5 ms, a new generation begins:
    /// nothing departs for as long as a departure may count (the longest window; for GCRA, the time of the burst; for a concurrency
    /// limit, its lease), the buffer, and a second in which other processes may depart by what they were granted before. Requests
    /// keep their order. Processes with round trips above 300 ms, or with guards as long, may depart later than that.
    ///
    /// A mark on each server, or in each hash slot of a cluster, says since when that server process has known every call. Where
    /// the mark is missing or that of another process, all keys without a state are in quarantine for that time: after a restart, a
    /// failover or a move of the slot, on a server that was emptied, and when strict recovery is first used.
    ///
    /// A key may be in quarantine without need, for example after a clean restart of the server.
    ///
    /// It does not see:
    ///
    /// - the loss of the state of a single key, by eviction, until a process calls that
    ///   knows a later state, as its requests for the key wait or have departed within the window;
    /// - a clock that was set by less than a 2,000th of the time since it was last read, as it may have been slewed:
    ///   after ten idle minutes, 300 ms;
    /// - two primaries that both accept writes, for longer than a second plus the buffer;
    /// - the last writes of a primary that became a replica and is the primary again, without a restart, until a process
    ///   calls that knows a later state.
    ///
    /// All processes that share a key need the same recovery, as others do not wait. And either all of them know the server
    /// process, or none does, or else the key stays in quarantine: a `RedisStore` made from a connection does not know it, nor
    /// does a user without the right to `INFO`. A host whose clock stops while it sleeps, such as a
    /// laptop, takes the server's clock for one that was set.
    Strict,
}

/// The treatment of work in progress whose process cannot renew the lease of its place in time, because the store is out
/// or does not answer. Set by [`LimiterBuilder::lost`](crate::LimiterBuilder::lost).
///
/// The store then gives the place to other requests. In either case, the process starts nothing new until it has called the
/// store again, except under [`Outage::Local`] and [`Outage::Allow`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum Lost {
    /// The work goes on: so many more than the limit may be in progress as the process has in progress. The default.
    ///
    /// When the store is back, the process takes its places again, and nothing departs until no more than the limit are in
    /// progress.
    #[default]
    Continue,
    /// The work is dropped at the end of the lease: never more than the limit are in progress, unless the process is
    /// stopped for longer than 0.3 leases.
    ///
    /// [`run`](crate::Limiter::run) fails with [`ErrorKind::LostPlace`](crate::ErrorKind::LostPlace), and the body of a response
    /// with an error. Work of your own ends by [`Place::run`](crate::Place::run).
    Abort,
}

impl Outage {
    /// The parts of the policy that holds instead of this one while the store is out, if there is one.
    pub(crate) fn fallback(self, parts: &PolicyParts) -> Option<PolicyParts> {
        let mut quotas = SmallVec::new();
        for quota in &parts.quotas {
            let quota = match self {
                Self::Deny => return None,
                Self::Allow if quota.unit_name() == CONCURRENT => Quota::concurrent(u32::MAX),
                Self::Allow => unlimited().unit(quota.unit_name()),
                Self::Local { share } => quota.scaled(share),
            };
            // Two that differ may have the same share.
            if !quotas.contains(&quota) {
                quotas.push(quota);
            }
        }
        Some(PolicyParts {
            quotas,
            outage: Self::Deny,
            ..parts.clone()
        })
    }
}

impl Policy {
    /// Lets everything depart at once.
    pub(crate) fn unlimited() -> Self {
        let parts = PolicyParts {
            name: Some("exempt".to_owned()),
            quotas: [unlimited()].into_iter().collect(),
            ..PolicyParts::default()
        };
        let mut policy = parts.build().expect("the quota is valid");
        policy.is_exempt = true;
        policy
    }
}

/// A quota that is never exhausted: some billions at once, and a million per second after that.
fn unlimited() -> Quota {
    Quota::new(1, Duration::from_micros(1)).algorithm(Algorithm::Gcra { burst: u32::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fallback(outage: Outage, quotas: &str) -> Result<String, String> {
        let mut parts = PolicyParts::of(quotas);
        parts.outage = outage;
        (parts.clone().build()).map_err(|errors| errors[0].to_string())?;
        let parts = outage.fallback(&parts).unwrap();
        parts.clone().build().unwrap();
        let quotas = parts.quotas.iter().map(ToString::to_string);
        Ok(quotas.collect::<Vec<_>>().join(" + "))
    }

    #[test]
    fn a_share_is_rounded_down_and_never_to_nothing() {
        // Equal quotas are one.
        for row in "\
            100/m => 33/m
            2/s => 1/1s500ms
            10/s spacing => 10/3s spacing
            100/m gcra burst=20 => 100/3m gcra burst=6
            100/m gcra burst=2 => 100/3m gcra burst=1
            9/m leaky-bucket capacity=9 => 9/3m leaky-bucket capacity=3
            9/m fixed-window => 3/m fixed-window
            9/m sliding-buckets buckets=7 => 3/m sliding-buckets buckets=7
            10/s + 11/s + 90/m => 3/s + 30/m"
            .lines()
        {
            let (quotas, third) = row.trim().split_once(" => ").unwrap();
            let share = Outage::Local { share: 1.0 / 3.0 };
            assert_eq!(fallback(share, quotas).unwrap(), third);
        }
        let allowing: Quota = fallback(Outage::Allow, "1/d").unwrap().parse().unwrap();
        assert_eq!(allowing.largest_cost(), u32::MAX);
    }

    #[test]
    fn a_share_is_above_none_up_to_all_and_holds_the_default_cost() {
        let of = |share| fallback(Outage::Local { share }, "100/m unit=a default_cost=50");
        for share in [0.0, -0.5, 1.01, f64::NAN, f64::INFINITY] {
            let message = of(share).unwrap_err();
            assert!(message.starts_with("outage: a share of"), "{message}");
        }
        assert!(of(0.5).is_ok() && of(1.0).is_ok());
        let error = "outage: the share is too small: quota: `25/m unit=a default_cost=50`: \
            the default cost is more than may depart at once";
        assert_eq!(of(0.25).unwrap_err(), error);
    }
}
