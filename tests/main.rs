//! The promises of the documentation, on real servers and processes.

mod adapters;
mod algorithms;
mod axum_inbound;
mod client;
mod concurrency;
mod denials;
mod feedback;
mod limiter;
mod ordering;
mod outage;
mod pauses;
mod prelude;
mod priorities;
mod recovery;
mod redis_calls;
mod redis_deployments;
mod rules;
mod security;
mod set_quota;
mod settlement;
mod telemetry;
mod test_util;
mod tower_contract;
