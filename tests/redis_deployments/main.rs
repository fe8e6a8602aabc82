//! Redis as production runs it: each deployment and version serves the store, and survives what it is made to
//! survive.

#[path = "../support/mod.rs"]
mod support;

mod cluster;
mod cluster_part;
mod glance;
mod keys;
mod links;

mod promises;
mod refusals;
mod rights;

mod sentinel;
mod standalone;
mod versions;
