//! The utilities for users' tests do what they promise.

mod clock;
mod failing;

use std::time::Duration;

use tower_throttle::{Limiter, Quota};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

async fn granted(limiter: &Limiter) -> bool {
    let decision = limiter.try_acquire("a").await;
    decision.expect("a decision").is_granted()
}

async fn delay(limiter: &Limiter) -> Duration {
    limiter.peek("a").await.expect("an answer").delay()
}

fn quota(text: &str) -> Quota {
    text.parse().expect("a quota")
}
