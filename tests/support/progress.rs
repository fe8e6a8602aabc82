//! How much work is in progress at once.

use std::time::Duration;

/// The begin and the end of each work, on one clock.
pub type Works = [(Duration, Duration)];

pub fn at_once(works: &Works, at: Duration) -> usize {
    let goes_on = works.iter().filter(|it| it.0 <= at && at < it.1);
    goes_on.count()
}

/// The most at any time: the number grows only when one begins.
pub fn most_at_once(works: &Works) -> usize {
    let begins = works.iter().map(|it| at_once(works, it.0));
    begins.max().unwrap_or(0)
}
