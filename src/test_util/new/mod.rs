//! The test utilities of the next core, beside the present ones until those are deleted.

pub use super::clock::ManualClock;
pub use super::history;
