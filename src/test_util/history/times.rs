//! Histories of what was noted by a clock.

use std::time::Duration;

use super::History;

/// Times that were read from the host's clock, counted from the first of them.
impl FromIterator<std::time::Instant> for History {
    fn from_iter<I: IntoIterator<Item = std::time::Instant>>(times: I) -> Self {
        since_first(times.into_iter().collect(), |at, first| at - first)
    }
}

/// Times that were read from tokio's clock, which may be paused, counted from the first of them.
impl FromIterator<tokio::time::Instant> for History {
    fn from_iter<I: IntoIterator<Item = tokio::time::Instant>>(times: I) -> Self {
        since_first(times.into_iter().collect(), |at, first| at - first)
    }
}

fn since_first<T: Copy + Ord>(times: Vec<T>, since: fn(T, T) -> Duration) -> History {
    let Some(first) = times.iter().copied().min() else {
        return History::new();
    };
    times.into_iter().map(|at| since(at, first)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn instants_count_from_the_first_in_whatever_order_they_come() {
        let first = std::time::Instant::now();
        let times = [first + 30 * MS, first, first + 10 * MS];
        let history: History = times.into_iter().collect();
        assert_eq!(
            history.times().collect::<Vec<_>>(),
            [0, 10, 30].map(|at| at * MS)
        );
        let times = times.map(tokio::time::Instant::from_std);
        assert_eq!(times.into_iter().collect::<History>(), history);
        assert!(History::from_iter([first; 0]).is_empty());
    }
}
