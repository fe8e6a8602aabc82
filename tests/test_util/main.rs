//! What users test their own clients with does what it says.

mod failing;
mod outages;
mod recording;

use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
