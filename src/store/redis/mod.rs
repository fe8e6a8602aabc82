//! Connections to Redis, and the names of its keys.

pub(crate) mod names;
pub(crate) mod servers;
mod tls;
