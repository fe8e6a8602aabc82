//! Spans, events and metrics, and that the documentation lists the same.

mod documented;
mod events;
mod figures;
mod metered;
#[path = "../../src/telemetry/tests/page.rs"]
mod page;
pub(crate) mod seen;
pub(crate) mod stores;
