//! What users test their own clients with does what it says.

mod clock;
mod failing;
mod outages;
mod recording;
mod recovery;

use std::time::Duration;

use tower_throttle::{Decision, Limited, Limiter, Quota};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

async fn granted(limiter: &Limiter) -> bool {
    let decision = limiter.try_acquire("a").await;
    decision.expect("a decision").is_granted()
}

async fn limited(limiter: &Limiter) -> Limited {
    match limiter.try_acquire("a").await {
        Ok(Decision::Limited(limited)) => limited,
        other => panic!("not limited: {other:?}"),
    }
}

fn quota(text: &str) -> Quota {
    text.parse().expect("a quota")
}
