//! Test servers, shared with the tests of the library.

#![allow(dead_code, unused_imports, reason = "these tests use only some of it")]

#[path = "../../../tests/support/cluster.rs"]
pub(crate) mod cluster;
#[path = "../../../tests/support/command_stats.rs"]
pub(crate) mod command_stats;
#[path = "../../../tests/support/ports.rs"]
pub(crate) mod ports;
#[path = "../../../tests/support/redis_server.rs"]
pub(crate) mod redis_server;
#[path = "../../../tests/support/signal.rs"]
pub(crate) mod signal;
#[path = "../../../tests/support/spend.rs"]
pub(crate) mod spend;
