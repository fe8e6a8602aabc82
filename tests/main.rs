//! The promises of the documentation, on real servers and processes.

mod algorithms;
mod axum_inbound;
mod cancellation;
mod denials;
mod expiry;
mod feedback;
mod forfeits;
mod guides;
mod limiter;
mod ordering;
mod outage;
mod pauses;
mod peek;
mod recovery;
mod redis_deployments;
mod redis_failures;
mod redis_store;
mod reqwest_errors;
mod reqwest_middleware;
mod rules;
mod run;

mod security;
mod server_time;
mod set_quota;
mod telemetry;
mod test_util;
mod tower_contract;
mod tower_layer;
