//! Redis as production runs it: each deployment and version keeps the promises, and survives what it should.

mod cluster;
mod keys;
mod promises;
mod refusals;
mod rights;
mod sentinel;
mod standalone;
