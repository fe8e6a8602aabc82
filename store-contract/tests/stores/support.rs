//! The servers that the tests of the library start, too.

#![allow(dead_code, unused_imports, reason = "these tests use a part")]

#[path = "../../../tests/support/cluster.rs"]
pub(crate) mod cluster;
#[path = "../../../tests/support/ports.rs"]
pub(crate) mod ports;
#[path = "../../../tests/support/redis_server.rs"]
pub(crate) mod redis_server;
#[path = "../../../tests/support/signal.rs"]
pub(crate) mod signal;
