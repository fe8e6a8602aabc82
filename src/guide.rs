//! Guides, by the decision to make.
//!
//! | page | for |
//! | --- | --- |
//! | [`choosing`] | turning a provider's documentation into quotas, keys, a buffer and bounds |
//! | [`ordering`] | the throttle's place among retries, timeouts, redirects and concurrency limits |
//! | [`exactness`] | the meaning of "at most N in any window", its cost, and its requirements |
//! | [`sizing_redis`] | the size of a Redis for so many keys and requests |
//! | [`troubleshooting`] | symptoms, causes, and remedies |
//!
//! See also: [which algorithm](crate::algorithms), [deployments of Redis](mod@crate::redis),
//! [tests of your own](crate::testing), [what it costs](crate::performance).

#[doc = include_str!("docs/links.md")]
#[doc = include_str!("docs/choosing.md")]
pub mod choosing {}
#[doc = include_str!("docs/links.md")]
#[doc = include_str!("docs/exactness.md")]
pub mod exactness {}
#[doc = include_str!("docs/links.md")]
#[doc = include_str!("docs/ordering.md")]
pub mod ordering {}
#[doc = include_str!("docs/links.md")]
#[doc = include_str!("docs/sizing-redis.md")]
pub mod sizing_redis {}
#[doc = include_str!("docs/links.md")]
#[doc = include_str!("docs/troubleshooting.md")]
pub mod troubleshooting {}
