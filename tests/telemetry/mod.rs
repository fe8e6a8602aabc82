//! Spans, events and metrics, and that the documentation lists the same.

use crate::prelude::*;

mod documented;
mod events;
mod figures;
mod metered;
#[path = "../../src/telemetry/tests/page.rs"]
mod page;
mod seen;
pub(crate) mod stores;

/// More than any step takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until a condition holds.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}
