//! Support code of the tests: real servers, real processes, a recording upstream.
//!
//! | module | for |
//! | --- | --- |
//! | [`redis_server`] | a `redis-server` of the test's own, to start, kill, stop, freeze |
//! | [`command_stats`] | how many calls a server has counted, script calls above all |
//! | [`errors`] | what errors and panics say, all the way down, and that they come in time |
//! | [`load`] | callers that ask for a key without end, through several limiters |
//! | [`ports`] | ports of a process's own, for servers that come back where they were |
//! | [`progress`] | how much work is in progress at once |
//! | [`proxy`] | the network before a server, to delay, hold, cut, swallow, refuse and redirect |
//! | [`child`] | a test that runs in several operating system processes |
//! | [`cluster`] | three primaries with a replica each |
//! | [`sentinel`] | a primary with two replicas, and three sentinels that watch it |
//! | [`tls`] | a certificate, and a server that has it |
//! | [`rights`] | all that a store ever does, for users whose rights are limited |
//! | [`spend`] | limiters, and departures that are recorded at once |
//! | [`keyspace`] | what a server holds, and a cluster of one |
//! | [`tally`] | what came of the requests of a process, told from one process to another |
//! | [`upstream`] | an HTTP server that remembers when requests arrived |
//!
//! Nothing here skips: what a test needs and cannot have is a panic that says what to do. Every
//! wait is bounded, far above what a loaded machine needs.

pub mod child;
pub mod cluster;
pub mod command_stats;
pub mod errors;
pub mod keyspace;
pub mod load;
pub mod ports;
pub mod progress;
pub mod proxy;
pub mod redis_server;
pub mod rights;
pub mod sentinel;
pub mod signal;
pub mod spend;
pub mod tally;
pub mod tls;
pub mod upstream;

/// Pages of the guide whose examples take dependencies that the crate itself does not have.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../src/docs/ordering.md")]
    struct Ordering;
    #[doc = include_str!("../../src/docs/telemetry.md")]
    struct Telemetry;
}
