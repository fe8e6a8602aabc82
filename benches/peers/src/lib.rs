//! What the benchmarks beside the peers share: the peers themselves, callers that put load on them,
//! rounds in which all take turns, and what Redis says of its part.

pub mod load;
pub mod migrating;
pub mod peers;
pub mod rounds;
pub mod script;
#[path = "../../support/mod.rs"]
pub mod support;
pub mod traffic;
