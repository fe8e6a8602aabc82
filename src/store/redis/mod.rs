//! Connections to Redis.

pub(crate) mod servers;
