//! `ThrottleLayer::inbound` protects axum servers: what they answer over real connections, and what they
//! do not let through.

mod answers;
mod client;
mod contract;
mod floods;
mod observing;
mod outcomes;
pub(crate) mod server;
