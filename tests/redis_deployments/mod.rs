//! Redis as production runs it: each deployment and version keeps the promises, and survives what it should.

mod keys;
mod promises;
mod refusals;
mod rights;
mod servers;
