//! Redis as production runs it: each deployment and version keeps the promises, and survives what it should.

#[path = "../support/mod.rs"]
mod support;

mod cluster;
mod keys;
mod promises;
mod refusals;
mod rights;
mod sentinel;
mod standalone;
mod versions;
