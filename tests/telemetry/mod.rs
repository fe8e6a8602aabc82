//! Spans, events and metrics, and that the documentation lists the same.

mod documented;
mod events;
mod figures;
mod metered;
mod page;
pub(crate) mod seen;
pub(crate) mod stores;
