//! Support code of the benchmarks: the peers, callers that generate load, rounds in which contestants take turns, and
//! counters of Redis.

pub mod load;
pub mod migrating;
pub mod peers;
pub mod rounds;
pub mod script;
pub mod support;
pub mod traffic;
