//! Support code of the benchmarks: the peers, callers that generate load, rounds in which contestants take turns,
//! departures that are checked, and counters of Redis.
//!
//! `cargo bench -p tower-throttle-benches --bench NAME` runs one benchmark, and `scripts/bench` all of them. Options follow
//! `--`: `--check` fails if a bound is missed, `--quick` takes a tenth of the time, and `--json` prints lines of JSON.

pub mod contestant;
pub mod departures;
pub mod load;
pub mod migrating;
pub mod peers;
pub mod rounds;
pub mod script;
pub mod support;
pub mod traffic;
