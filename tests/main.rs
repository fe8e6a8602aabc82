//! The promises of the documentation, on real servers and processes.

mod adapters;
mod algorithms;
mod axum_inbound;
mod client;
mod concurrency;
mod denials;
mod feedback;
mod forfeits;
mod guides;
mod limiter;
mod ordering;
mod outage;
mod pauses;
mod priorities;
mod recovery;
mod redis_calls;
mod redis_deployments;
mod replicas;
mod reqwest_errors;
mod rules;
mod security;
mod set_quota;
mod settlement;
mod telemetry;
mod test_util;
mod tower_contract;
