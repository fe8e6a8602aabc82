//! What becomes of requests while the store cannot answer: [`Outage`].

use std::time::Duration;

use crate::error::BuildError;
use crate::policy::{Policy, PolicyParts};
use crate::quota::{Algorithm, HORIZON, Quota};

mod circuit;
mod health;
mod probe;

pub(crate) use self::circuit::{Circuit, LONGEST_PAUSE};
pub use self::health::Health;

/// What becomes of requests while the store cannot answer.
///
/// Set by [`LimiterBuilder::outage`](crate::LimiterBuilder::outage). The store is out once a call fails with
/// an error that [says so](crate::store::StoreError::is_outage). From then on, nobody asks it for slots:
/// while there are requests, one task asks for a [sign of life](crate::store::Store::check), at first at
/// once and then after pauses that double from 50 ms to a second, each shortened at random by up to a half.
/// With the first sign, all who wait go on. [`Limiter::health`](crate::Limiter::health) tells how it stands, and
/// has the store asked as a request would.
///
/// In a cluster, all that holds for each server and the keys that it holds: one that is out concerns no others, and
/// has a task of its own. Who waits for a key that moves to another server goes on there: at once where all move, as
/// in a failover, and within a second otherwise.
///
/// Who holds a slot already departs in its time, whatever is set here; where
/// [recovery](crate::Recovery::Strict) is strict, for 3 s.
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
#[non_exhaustive]
pub enum Outage {
    /// Nothing departs: never more than the quotas allow. The default.
    ///
    /// Requests wait for the store within their own bounds, those without for 5 s from when it is known to be out.
    /// Then, and at once where they do not wait at all, they fail with an error that [says](crate::Error::is_store)
    /// so.
    #[default]
    Deny,
    /// Everything departs at once, uncounted: for those who would rather exceed a limit than fail.
    ///
    /// A [pause](crate::Limiter::pause) that is set meanwhile holds in this process. What departs is not
    /// counted once the store is back.
    Allow,
    /// This process counts by itself, with its share of the quotas.
    ///
    /// Each limit is the share of it, rounded down, or one per so much longer a window where that would be
    /// none; of bursts and capacities likewise, one at least, and by spacing and rates the gaps are so much longer.
    ///
    /// No replica knows of the others. Where the share of each is one request or more, of the limit or else of the
    /// burst or capacity, replicas whose shares make 1 together keep to the quotas during the outage. Where it is
    /// less, one request of each may depart in the same moment: R replicas let R depart where the limit, burst or
    /// capacity is less than that, and by spacing always. What departs over a longer time is by the rate of the
    /// quota all the same, and no more than R in addition.
    ///
    /// While those still depart who hold slots of the store, and for a window after the store is back, a window
    /// holds what departs by the store's count and what departs by this one: at most the quota, and the shares in
    /// addition. When the store is back, those who wait here go back to its line, in their order of arrival. A
    /// request that costs more than the share allows is treated as by [`Deny`](Self::Deny), but for the wait: it
    /// fails at once.
    Local {
        /// This process's part of the quotas, above 0 and up to 1: with R replicas, `1.0 / R`.
        share: f64,
    },
}

impl Outage {
    /// What a policy is made of that holds in place of this one while the store is out, if any does.
    pub(crate) fn stand_in(self, parts: &PolicyParts) -> Result<Option<PolicyParts>, BuildError> {
        let share = match self {
            Self::Deny => return Ok(None),
            Self::Allow => None,
            Self::Local { share } if share > 0.0 && share <= 1.0 => Some(share),
            Self::Local { share } => {
                let problem = format!("a share of {share} is not above 0 and up to 1");
                return Err(BuildError::new("outage", problem));
            }
        };
        let mut quotas = smallvec::SmallVec::new();
        match share {
            None => quotas.push(unlimited()),
            Some(share) => {
                for quota in &parts.quotas {
                    let part = scaled(quota, share);
                    // Two that differ may have the same share.
                    if !quotas.contains(&part) {
                        quotas.push(part);
                    }
                }
            }
        }
        Ok(Some(PolicyParts {
            quotas,
            outage: Self::Deny,
            ..parts.clone()
        }))
    }
}

impl Policy {
    /// Lets everything depart at once.
    pub(crate) fn unlimited() -> Self {
        let parts = PolicyParts {
            quotas: [unlimited()].into_iter().collect(),
            ..PolicyParts::default()
        };
        parts.build().expect("it holds some billions")
    }
}

/// A quota that nobody exhausts: some billions at once, and a million per second beyond.
fn unlimited() -> Quota {
    Quota::new(1, Duration::from_micros(1)).algorithm(Algorithm::Gcra { burst: u32::MAX })
}

fn scaled(quota: &Quota, share: f64) -> Quota {
    let part = |of: u32| {
        // A third of 3 is 1, whatever the last digit says.
        let part = (f64::from(of) * share + 1e-6).floor();
        // It is no more than what it is a part of.
        part as u32
    };
    let longer = |by: f64| {
        let window = quota.window().as_secs_f64() * by;
        let longest = HORIZON.as_secs_f64();
        Duration::from_micros((window.min(longest) * 1e6).ceil() as u64)
    };
    match quota.counted_by() {
        Algorithm::SlidingLog
        | Algorithm::SlidingBuckets { .. }
        | Algorithm::FixedWindow { .. } => {
            let scaled = match part(quota.limit()) {
                0 => Quota::new(1, longer(1.0 / (f64::from(quota.limit()) * share))),
                limit => Quota::new(limit, quota.window()),
            };
            scaled.algorithm(quota.counted_by())
        }
        Algorithm::Spacing => {
            Quota::new(quota.limit(), longer(1.0 / share)).algorithm(Algorithm::Spacing)
        }
        Algorithm::LeakyBucket { capacity } => {
            let capacity = part(capacity).max(1);
            Quota::new(quota.limit(), longer(1.0 / share))
                .algorithm(Algorithm::LeakyBucket { capacity })
        }
        Algorithm::Gcra { burst } => {
            let burst = part(burst).max(1);
            Quota::new(quota.limit(), longer(1.0 / share)).algorithm(Algorithm::Gcra { burst })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stand_in(outage: Outage, quotas: &[&str]) -> Vec<String> {
        let parts = PolicyParts {
            quotas: quotas.iter().map(|it| it.parse().unwrap()).collect(),
            ..PolicyParts::default()
        };
        let parts = outage.stand_in(&parts).unwrap().unwrap();
        parts.clone().build().unwrap();
        parts.quotas.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_share_is_rounded_down_and_never_to_nothing() {
        let third = |quota| stand_in(Outage::Local { share: 1.0 / 3.0 }, &[quota]).remove(0);
        assert_eq!(third("3/s"), "1/s");
        assert_eq!(third("100/m"), "33/m");
        assert_eq!(third("2/s"), "1/1s500ms");
        assert_eq!(third("10/s spacing"), "10/3s spacing");
        assert_eq!(third("100/m gcra burst=20"), "100/3m gcra burst=6");
        assert_eq!(third("100/m gcra burst=2"), "100/3m gcra burst=1");
        assert_eq!(
            third("9/m leaky-bucket capacity=9"),
            "9/3m leaky-bucket capacity=3"
        );
        assert_eq!(third("9/m fixed-window"), "3/m fixed-window");
        assert_eq!(
            third("9/m sliding-buckets buckets=7"),
            "3/m sliding-buckets buckets=7"
        );
    }

    #[test]
    fn quotas_that_come_to_the_same_are_one() {
        let share = Outage::Local { share: 0.3 };
        assert_eq!(stand_in(share, &["10/s", "11/s", "100/m"]), ["3/s", "30/m"]);
    }

    #[test]
    fn who_allows_everything_counts_by_a_quota_that_nobody_exhausts() {
        let [quota] = &stand_in(Outage::Allow, &["1/d"])[..] else {
            panic!("one is enough");
        };
        assert_eq!(quota.parse::<Quota>().unwrap().largest_cost(), u32::MAX);
    }

    #[test]
    fn a_share_is_above_none_and_up_to_all() {
        for share in [0.0, -0.5, 1.01, f64::NAN, f64::INFINITY] {
            let refused = Outage::Local { share }.stand_in(&PolicyParts::default());
            let message = refused.err().unwrap().to_string();
            assert!(message.starts_with("outage: a share of"), "{message}");
        }
        assert!(
            Outage::Local { share: 1.0 }
                .stand_in(&PolicyParts::default())
                .is_ok()
        );
    }
}
