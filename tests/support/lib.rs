//! Support code of the tests: real servers, real processes, a recording upstream.
//!
//! Nothing here skips: what a test needs and cannot have is a panic that says what to do. Every
//! wait is bounded, far above what a loaded machine needs.

pub mod child;
pub mod cluster;
pub mod command_stats;
pub mod errors;
pub mod ports;
pub mod progress;
pub mod proxy;
pub mod redis_server;
pub mod sentinel;
pub mod signal;
pub mod spend;
pub mod tally;
pub mod tls;
pub mod upstream;

/// Pages of the guide whose examples take dependencies that the crate itself does not have.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../src/docs/migrating.md")]
    struct Migrating;
    #[doc = include_str!("../../src/docs/ordering.md")]
    struct Ordering;
    #[doc = include_str!("../../src/docs/telemetry.md")]
    struct Telemetry;
}
