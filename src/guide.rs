//! Guides: pages about one subject each.
//!
//! | page | subject |
//! | --- | --- |
//! | [`choosing`] | turning a provider's documentation into quotas, keys, a buffer and bounds |
//! | [`llm`] | limits of requests and tokens, as LLM providers have them |
//! | [`algorithms`] | how each algorithm counts, and which one to choose |
//! | [`ordering`] | the throttle's place among retries, timeouts, redirects and concurrency limits |
//! | [`priorities`] | interactive requests before batch jobs, and tenants that share a quota, in all replicas |
//! | [`concurrency`] | at most so many requests in progress at once, in all replicas |
//! | [`exactness`] | the meaning of "at most N in any window", its cost, and its requirements |
//! | [`redis`] | clusters, sentinels, TLS, rights and failures |
//! | [`scaling`] | how many keys, permits and processes a Redis serves, and what to do then |
//! | [`testing`] | tests of your own client, without sleeping and without Redis |
//! | [`troubleshooting`] | symptoms, causes, and remedies |
//! | [`comparison`] | other rate limiters, and when to use them |
//! | [`migrating`] | coming from another limiter |
//! | [`performance`] | what a permit costs, and how the cost grows |
//! | [`faults`] | what happens when Redis fails |
//! | [`protocol`] | the protocol between a process and the store, and how it is checked |

// If a link is defined twice, the first definition counts: here, the items of this crate and pictures as data URIs come
// before the definitions at the end of a page, which are for readers of the file.
#[doc = include_str!("docs/links.md")]
#[doc = include_str!("docs/plots/data-uris.md")]
#[doc = include_str!("docs/algorithms.md")]
pub mod algorithms {}
#[doc = include_str!("docs/links.md")]
#[doc = include_str!("docs/choosing.md")]
pub mod choosing {}
#[doc = include_str!("docs/comparison.md")]
pub mod comparison {}
#[doc = include_str!("docs/links.md")]
#[doc = include_str!("docs/concurrency.md")]
pub mod concurrency {}
#[doc = include_str!("docs/links.md")]
#[doc = include_str!("docs/exactness.md")]
pub mod exactness {}
#[doc = include_str!("docs/links.md")]
#[doc = include_str!("docs/faults.md")]
pub mod faults {}
#[doc = include_str!("docs/links.md")]
#[doc = include_str!("docs/llm.md")]
pub mod llm {}
#[doc = include_str!("docs/links.md")]
// The tests package compiles its examples.
#[cfg_attr(not(doctest), doc = include_str!("docs/migrating.md"))]
pub mod migrating {}
#[doc = include_str!("docs/links.md")]
// The tests package compiles its examples.
#[cfg_attr(not(doctest), doc = include_str!("docs/ordering.md"))]
pub mod ordering {}
#[doc = include_str!("docs/links.md")]
#[doc = include_str!("docs/performance.md")]
pub mod performance {}
#[doc = include_str!("docs/links.md")]
#[doc = include_str!("docs/priorities.md")]
pub mod priorities {}
#[doc = include_str!("docs/links.md")]
#[doc = include_str!("docs/protocol.md")]
pub mod protocol {}
#[cfg(feature = "redis")]
#[doc = include_str!("docs/links.md")]
#[doc = include_str!("docs/redis.md")]
pub mod redis {}
#[doc = include_str!("docs/links.md")]
#[doc = include_str!("docs/scaling.md")]
pub mod scaling {}
#[cfg(feature = "test-util")]
#[doc = include_str!("docs/links.md")]
#[doc = include_str!("docs/testing.md")]
pub mod testing {}
#[doc = include_str!("docs/links.md")]
#[doc = include_str!("docs/troubleshooting.md")]
pub mod troubleshooting {}
