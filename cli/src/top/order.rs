//! The order of the rows: [`Sort`].

use std::cmp::Ordering;

use clap::ValueEnum;
use serde::Serialize;

use crate::status::KeyStatus;

/// The column to sort by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Sort {
    /// Largest used share of a quota, then longest wait
    Used,
    /// Highest rate
    Rate,
    /// Longest wait
    Next,
    /// Longest pause
    Paused,
    /// Name of the key
    Key,
}

impl Sort {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Used => "used",
            Self::Rate => "rate",
            Self::Next => "next",
            Self::Paused => "paused",
            Self::Key => "key",
        }
    }

    /// Compares two rows. They are equal only if key and policy are the same.
    pub(crate) fn compare(self, a: &KeyStatus, b: &KeyStatus) -> Ordering {
        let share = |it: &KeyStatus| it.busiest().map_or(0.0, |(_, share)| share);
        let used = || share(b).total_cmp(&share(a));
        let rate = || b.rate().unwrap_or(0.0).total_cmp(&a.rate().unwrap_or(0.0));
        let wait = |it: &KeyStatus| (it.next.is_none(), it.next);
        let next = || wait(b).cmp(&wait(a));
        let held = |it: &KeyStatus| it.paused.max(it.quarantined);
        let paused = || held(b).cmp(&held(a));
        let key = || (a.shown_key(), &a.policy).cmp(&(b.shown_key(), &b.policy));
        let first = match self {
            Self::Used => used(),
            Self::Rate => rate(),
            Self::Next => next(),
            Self::Paused => paused(),
            Self::Key => key(),
        };
        first
            .then_with(used)
            .then_with(next)
            .then_with(rate)
            .then_with(key)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;
    use crate::status::{Amounts, Levels, Used};

    /// The state of a key that spent so much of its quota, and whose next departure is this many milliseconds away.
    pub(in super::super) fn status(key: &str, used: u32, capacity: u32, delay: u64) -> KeyStatus {
        KeyStatus {
            key: Some(key.to_owned()),
            encoded: key.to_owned(),
            policy: None,
            quotas: vec![Used {
                quota: format!("{capacity}/s"),
                used,
                capacity,
                rate: Some(f64::from(used)),
                processes: None,
                exact: true,
                window: Duration::from_secs(1),
            }],
            exact: true,
            remaining: [("requests", capacity - used)].into_iter().collect(),
            waiting: Amounts::default(),
            levels: Levels::default(),
            next: Some(Duration::from_millis(delay)),
            full: Some(Duration::from_secs(1)),
            paused: None,
            allowances: Vec::new(),
            quarantined: None,
        }
    }

    fn sorted(sort: Sort) -> String {
        let mut all = [
            ("b", 1, 60),
            ("d", 10, 1),
            ("a", 10, 7),
            ("e", 5, 0),
            ("c", 1, 30),
        ]
        .map(|(key, used, delay)| status(key, used, 10, delay * 1_000));
        all[0].paused = Some(Duration::from_secs(60));
        all[4].paused = Some(Duration::from_secs(30));
        all[3].quotas[0].rate = None;
        all.sort_by(|a, b| sort.compare(a, b));
        all.iter().map(KeyStatus::shown_key).collect()
    }

    #[test]
    fn ties_are_broken_by_the_next_column() {
        assert_eq!(sorted(Sort::Used), "adebc");
        assert_eq!(sorted(Sort::Rate), "adbce");
        assert_eq!(sorted(Sort::Next), "bcade");
        assert_eq!(sorted(Sort::Paused), "bcade");
        assert_eq!(sorted(Sort::Key), "abcde");
    }
}
