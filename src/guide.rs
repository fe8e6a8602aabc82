//! How to use it well, by what there is to decide.
//!
//! | page | for |
//! | --- | --- |
//! | [`choosing`] | what a provider's documentation says, as quotas, keys, a buffer and bounds |
//! | [`ordering`] | where the throttle belongs among retries, timeouts, redirects and limits on concurrency |
//! | [`exactness`] | what "at most N in any window" means, what it costs, and what it takes |
//! | [`sizing_redis`] | what a Redis has to have for so many keys and requests |
//! | [`troubleshooting`] | what you see, what it is, and what to do |
//!
//! Besides: [which algorithm](crate::algorithms), [deployments of Redis](mod@crate::redis),
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
