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

/// Makes a module of each page. If a link is defined twice, the first definition counts: here, the items of this crate come
/// before the definitions at the end of a page, which are for readers of the file.
macro_rules! pages {
    ($($(#[$attribute:meta])* $page:ident)+) => {$(
        #[doc = include_str!("docs/links.md")]
        $(#[$attribute])*
        #[doc = include_str!(concat!("docs/", stringify!($page), ".md"))]
        pub mod $page {}
    )+};
}

pages! {
    // Pictures are data URIs.
    #[doc = include_str!("docs/plots/data-uris.md")]
    algorithms
    choosing
    comparison
    concurrency
    exactness
    faults
    llm
    performance
    priorities
    protocol
    #[cfg(feature = "redis")]
    redis
    scaling
    #[cfg(feature = "test-util")]
    testing
    troubleshooting
}

// The tests package compiles the examples of these pages.
#[doc = include_str!("docs/links.md")]
#[cfg_attr(not(doctest), doc = include_str!("docs/migrating.md"))]
pub mod migrating {}
#[doc = include_str!("docs/links.md")]
#[cfg_attr(not(doctest), doc = include_str!("docs/ordering.md"))]
pub mod ordering {}
