//! Histories of what was noted by a clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

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

/// Times of day, counted from 1970: so windows that are [aligned](History::most_in_aligned) begin where UTC has
/// them. Take instants where you can, as such a clock may be set.
///
/// # Panics
///
/// Panics if a time is before 1970.
impl FromIterator<SystemTime> for History {
    fn from_iter<I: IntoIterator<Item = SystemTime>>(times: I) -> Self {
        let since_epoch = |at: SystemTime| {
            at.duration_since(UNIX_EPOCH)
                .unwrap_or_else(|_| panic!("{at:?} is before 1970"))
        };
        times.into_iter().map(since_epoch).collect()
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

    #[test]
    fn windows_of_the_clock_begin_where_the_clock_has_them() {
        let minute = Duration::from_secs(60);
        let noon = UNIX_EPOCH + 29_000_000 * minute;
        let history: History = [noon - MS, noon, noon + MS].into_iter().collect();
        assert_eq!(history.most_in_aligned(minute), 2);
        assert_eq!(history.most_in_any(minute), 3);
    }

    #[test]
    #[should_panic(expected = "is before 1970")]
    fn there_is_no_time_before_1970() {
        let _ = History::from_iter([UNIX_EPOCH - MS]);
    }
}
