//! `ThrottleLayer::inbound` protects axum servers: what they answer over real connections, and what they
//! do not let through.

mod answers;
mod contract;
pub(crate) mod server;
