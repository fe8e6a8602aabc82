//! One quota of one key, by brute force over all departures.

use super::super::{Rule, Taken};
use super::windows;

/// A departure that was taken and, as far as the algorithm can forget, not given back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Departure {
    pub(super) id: usize,
    pub(super) at: u64,
    pub(super) record: u64,
    /// Nothing once it was given back but its fixed window remains.
    pub(super) cost: u64,
    /// The latest that the clock has shown since. What has left its window once does not come
    /// back when the clock is set back.
    clock: u64,
}

impl Departure {
    /// A time that stands for a window which nothing departs in any more.
    pub(super) fn floor(at: u64) -> Self {
        Self {
            id: usize::MAX,
            at,
            record: at,
            cost: 0,
            clock: 0,
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Model {
    rule: Rule,
    past: Vec<Departure>,
}

impl Model {
    pub(super) fn new(rule: Rule) -> Self {
        Self {
            rule,
            past: Vec::new(),
        }
    }

    pub(super) fn observe(&mut self, now: u64) {
        for departure in &mut self.past {
            departure.clock = departure.clock.max(now);
        }
    }

    pub(super) fn take(&mut self, id: usize, taken: Taken) {
        self.past.push(Departure {
            id,
            at: taken.at,
            record: taken.record,
            cost: taken.cost.into(),
            clock: 0,
        });
    }

    /// The first time, not before `x`, at which the definition allows it.
    pub(super) fn earliest(&self, x: u64, late: u64, cost: u32) -> u64 {
        let mut t = x;
        while !self.allows(t, late, cost) {
            t = self.next_change(t, cost).expect("a change to come");
        }
        t
    }

    /// Whether a departure at `t`, recorded `late` after that, would agree with the definition.
    pub(super) fn allows(&self, t: u64, late: u64, cost: u32) -> bool {
        let cost = u64::from(cost);
        match self.rule {
            Rule::SlidingLog { limit, .. } | Rule::SlidingBuckets { limit, .. } => {
                let inside = self.past.iter().filter(|it| self.leaves(it) > t);
                inside.map(|it| it.cost).sum::<u64>() + cost <= limit.into()
            }
            Rule::Spacing { interval } | Rule::LeakyBucket { interval, .. } => self
                .past
                .iter()
                .all(|it| t >= it.record + interval * it.cost),
            Rule::Gcra {
                interval,
                tolerance,
            } => {
                let by_bound = self.gcra_times(cost).all(|time| t >= time);
                let last_unit = self.theoretical_arrival(interval) + interval * (cost - 1);
                assert_eq!(by_bound, t + tolerance >= last_unit);
                by_bound
            }
            Rule::FixedWindow {
                limit,
                window,
                aligned,
            } => windows::allows(&self.past, limit.into(), window, aligned, t, late, cost),
        }
    }

    /// The first time after `t` at which the definition may begin to allow it.
    pub(super) fn next_change(&self, t: u64, cost: u32) -> Option<u64> {
        let boundary = match self.rule {
            Rule::FixedWindow {
                window,
                aligned: true,
                ..
            } if self.changes(cost).iter().all(|&it| it <= t) => Some((t / window + 1) * window),
            _ => None,
        };
        let changes = self.changes(cost).into_iter().filter(|&it| it > t);
        changes.chain(boundary).min()
    }

    /// The times at which what is allowed changes because of what has departed.
    fn changes(&self, cost: u32) -> Vec<u64> {
        match self.rule {
            Rule::SlidingLog { .. } | Rule::SlidingBuckets { .. } => {
                self.past.iter().map(|it| self.leaves(it)).collect()
            }
            Rule::Spacing { interval } | Rule::LeakyBucket { interval, .. } => {
                let times = self.past.iter().map(|it| it.record + interval * it.cost);
                times.collect()
            }
            Rule::Gcra { .. } => self.gcra_times(cost.into()).collect(),
            Rule::FixedWindow {
                window, aligned, ..
            } => match windows::last(&self.past, window, aligned) {
                Some(last) => vec![last.start, last.end],
                None => Vec::new(),
            },
        }
    }

    /// When a departure leaves the sliding window.
    fn leaves(&self, departure: &Departure) -> u64 {
        let leaves = match self.rule {
            Rule::SlidingLog { window, .. } => departure.record + window,
            Rule::SlidingBuckets { window, width, .. } => {
                (departure.record / width + 1) * width + window
            }
            _ => unreachable!("no sliding window"),
        };
        if leaves <= departure.clock { 0 } else { leaves }
    }

    /// For every interval that ends now: when it is long enough for all that departs in it, with
    /// this one at its end.
    fn gcra_times(&self, cost: u64) -> impl Iterator<Item = u64> {
        let Rule::Gcra {
            interval,
            tolerance,
        } = self.rule
        else {
            unreachable!("no GCRA")
        };
        let mut count = cost;
        self.past.iter().rev().map(move |first| {
            count += first.cost;
            (first.record + (count - 1) * interval).saturating_sub(tolerance)
        })
    }

    /// Virtual scheduling, as the recommendation has it, over the whole history.
    fn theoretical_arrival(&self, interval: u64) -> u64 {
        let units = |it: &Departure| (0..it.cost).map(|_| it.record).collect::<Vec<_>>();
        let arrive = |expected: u64, arrived: u64| expected.max(arrived) + interval;
        self.past.iter().flat_map(units).fold(0, arrive)
    }

    /// The least that the next departure may be recorded at.
    pub(super) fn last_record(&self) -> u64 {
        let inside = || self.past.iter().filter(|it| self.leaves(it) > 0);
        let last = match self.rule {
            Rule::SlidingLog { .. } => inside().map(|it| it.record).max(),
            Rule::SlidingBuckets { width, .. } => {
                inside().map(|it| it.record / width * width).max()
            }
            _ => None,
        };
        last.unwrap_or(0)
    }

    /// Whether it left its sliding window, even if the clock was set back since.
    pub(super) fn has_forgotten(&self, id: usize) -> bool {
        let is_sliding = matches!(
            self.rule,
            Rule::SlidingLog { .. } | Rule::SlidingBuckets { .. }
        );
        let mut past = self.past.iter();
        is_sliding && past.any(|it| it.id == id && self.leaves(it) == 0)
    }

    /// Whether it can leave as if it had never been.
    pub(super) fn is_last(&self, id: usize) -> bool {
        let own = self.past.iter().find(|it| it.id == id);
        match self.rule {
            Rule::SlidingLog { .. } | Rule::SlidingBuckets { .. } => own.is_some_and(|own| {
                let own = self.leaves(own);
                own > 0 && self.past.iter().all(|it| self.leaves(it) <= own)
            }),
            Rule::Spacing { .. } | Rule::LeakyBucket { .. } | Rule::Gcra { .. } => {
                self.past.last().is_some_and(|last| last.id == id)
            }
            Rule::FixedWindow {
                window, aligned, ..
            } => windows::can_leave(&self.past, window, aligned, id),
        }
    }

    /// Gives it back; what the algorithm cannot forget stays charged.
    pub(super) fn give_back(&mut self, id: usize) {
        match self.rule {
            Rule::FixedWindow {
                window, aligned, ..
            } => windows::give_back(&mut self.past, window, aligned, id),
            Rule::SlidingLog { .. } | Rule::SlidingBuckets { .. } => {
                self.past.retain(|it| it.id != id);
            }
            Rule::Spacing { .. } | Rule::LeakyBucket { .. } | Rule::Gcra { .. } => {
                self.past.pop_if(|last| last.id == id);
            }
        }
    }

    /// How many requests of cost 1, one after the other, could depart at `now`, recorded `late` after.
    pub(super) fn remaining(&self, now: u64, late: u64) -> u32 {
        let mut probe = self.clone();
        let mut count = 0;
        while probe.allows(now, late, 1) {
            let taken = Taken {
                at: now,
                record: now + late,
                cost: 1,
            };
            probe.take(usize::MAX, taken);
            count += 1;
        }
        count
    }

    /// The time from which it allows what it would if nothing had ever departed.
    pub(super) fn expires(&self) -> u64 {
        let fresh = Self::new(self.rule);
        let (most, length) = match self.rule {
            Rule::SlidingLog { limit, .. } | Rule::SlidingBuckets { limit, .. } => (limit, 0),
            Rule::FixedWindow { limit, window, .. } => (limit, window),
            Rule::Spacing { .. } | Rule::LeakyBucket { .. } => (1, 0),
            Rule::Gcra {
                interval,
                tolerance,
            } => (u32::try_from(tolerance / interval + 1).unwrap(), 0),
        };
        let matters = |t: u64| {
            [0, length / 2, length].into_iter().any(|late| {
                [1, most]
                    .into_iter()
                    .any(|cost| self.allows(t, late, cost) != fresh.allows(t, late, cost))
            })
        };
        let mut changes = self.changes(most);
        changes.retain(|&it| it > 0);
        changes.sort_unstable();
        changes.dedup();
        let last = changes.into_iter().rev().find(|change| matters(change - 1));
        last.unwrap_or(0)
    }
}
