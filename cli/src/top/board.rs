//! Collects the state of keys over several refreshes: [`Board`].

use std::collections::{HashMap, HashSet};
use std::mem;

use serde::Serialize;
use tower_throttle::store::RedisStore;
use tower_throttle::store::inspect::{KeyState, Keys, StoredKey};

use super::View;
use super::tally::Tally;
use crate::failure::Failure;
use crate::status::KeyStatus;

/// Maximum number of keys whose state is kept.
const MAX_KEPT: usize = 1_000;

/// Number of names that Redis scans for one page.
const PAGE_SIZE: usize = 1_000;

/// Size of one more page after the budget is used up. If the scan has just returned the last key, this page ends it.
const LAST_PAGE_SIZE: usize = 10;

/// The keys that the scan has found so far.
pub(crate) struct Board {
    store: RedisStore,
    budget: usize,
    keys: Option<Keys>,
    statuses: HashMap<StoredKey, Entry>,
    /// Number of complete scans, at least of all servers that replied.
    rounds: u64,
    /// Counts the keys of this round.
    tally: Tally,
    /// The previous round.
    last: Option<Round>,
    /// True if a server did not reply in this round.
    has_gap: bool,
    /// Why a server did not reply.
    error: Option<String>,
    /// The number of keys with unreadable values in the last refresh, and the first error.
    unreadable: Option<(usize, String)>,
}

struct Entry {
    status: KeyStatus,
    round: u64,
    /// True if the server did not reply in the last refresh.
    is_stale: bool,
}

/// The result of scanning all keys once.
struct Round {
    count: usize,
    is_exact: bool,
    has_gap: bool,
}

/// The keys that a refresh scanned.
#[derive(Default)]
struct Scanned {
    keys: HashSet<StoredKey>,
    has_replied: bool,
    failure: Option<Failure>,
}

/// The result of a refresh.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Page {
    /// Number of keys found so far, once per policy.
    pub(crate) keys: usize,
    /// True if `keys` is an estimate.
    pub(crate) about: bool,
    /// True if the scan has seen all keys.
    pub(crate) complete: bool,
    /// Why some servers did not reply.
    pub(crate) error: Option<String>,
    /// Number of rows from an earlier refresh, because their servers did not reply.
    pub(crate) stale: usize,
    /// Keys with unreadable values.
    #[serde(rename = "strange")]
    pub(crate) unreadable: Option<String>,
    pub(crate) rows: Vec<KeyStatus>,
    /// Number of rows that pass the filter, including those that are not shown.
    #[serde(skip)]
    pub(crate) passing: usize,
}

impl Board {
    pub(crate) fn new(store: RedisStore, budget: usize) -> Self {
        Self {
            store,
            budget,
            keys: None,
            statuses: HashMap::new(),
            rounds: 0,
            tally: Tally::new(),
            last: None,
            has_gap: false,
            error: None,
            unreadable: None,
        }
    }

    /// Scans some keys, and reads them and the keys that are on the screen. Fails if no server replied.
    pub(crate) async fn refresh(&mut self, shown: Vec<StoredKey>) -> Result<(), Failure> {
        let Scanned {
            keys: found,
            mut has_replied,
            mut failure,
        } = self.scan().await;
        let others = shown.into_iter().filter(|it| !found.contains(it));
        let others: Vec<_> = others.collect();
        let all: Vec<_> = found.into_iter().chain(others).collect();
        let states = self.store.look(&all).await;
        self.unreadable = None;
        for (stored, state) in all.into_iter().zip(states) {
            match state {
                Err(error) if !error.is_unrecognized_value() => {
                    if let Some(seen) = self.statuses.get_mut(&stored) {
                        seen.is_stale = true;
                    }
                    failure.get_or_insert_with(|| error.into());
                    continue;
                }
                Ok(Some(state)) => self.update(stored, &state),
                Ok(None) => drop(self.statuses.remove(&stored)),
                Err(error) => {
                    let why = || (0, format!("{stored}: {error}"));
                    self.unreadable.get_or_insert_with(why).0 += 1;
                    self.statuses.remove(&stored);
                }
            }
            has_replied = true;
        }
        match failure {
            Some(failure) if !has_replied => Err(failure),
            failure => {
                self.error = failure.map(|it| it.to_string());
                Ok(())
            }
        }
    }

    fn update(&mut self, stored: StoredKey, state: &KeyState) {
        let status = KeyStatus::new(&stored, state);
        if status.is_idle() {
            self.statuses.remove(&stored);
        } else {
            let seen = Entry {
                status,
                round: self.rounds,
                is_stale: false,
            };
            self.statuses.insert(stored, seen);
        }
    }

    /// Scans the next keys of a round, up to the budget, and skips servers that do not reply.
    async fn scan(&mut self) -> Scanned {
        let mut scanned = Scanned::default();
        let mut keys = self.keys.take().unwrap_or_else(|| self.store.keys());
        let end = keys.looked_at() + self.budget;
        let mut is_last = false;
        while !is_last {
            let before = keys.looked_at();
            let left = end.saturating_sub(before);
            let page_size = if left == 0 {
                LAST_PAGE_SIZE
            } else {
                left.min(PAGE_SIZE)
            };
            keys = keys.page_size(page_size);
            match keys.next_page().await {
                Ok(Some(page)) => {
                    scanned.has_replied = true;
                    page.iter().for_each(|stored| self.tally.add(stored));
                    scanned.keys.extend(page);
                    // A shorter page is the last one of a server, and the next call may end the round.
                    is_last = left == 0 && keys.looked_at() - before >= LAST_PAGE_SIZE;
                }
                Ok(None) => {
                    self.finish_round();
                    return scanned;
                }
                Err(error) => {
                    scanned.failure.get_or_insert_with(|| error.into());
                    self.has_gap = true;
                    if !keys.skip_server() {
                        self.finish_round();
                        return scanned;
                    }
                }
            }
        }
        self.keys = Some(keys);
        scanned
    }

    fn finish_round(&mut self) {
        let tally = mem::replace(&mut self.tally, Tally::new());
        let mut round = Round {
            count: tally.count(),
            is_exact: tally.is_exact(),
            has_gap: mem::take(&mut self.has_gap),
        };
        if round.has_gap {
            // Keys of a server that did not reply may still exist.
            let before = self.last.take().filter(|last| last.count > round.count);
            (round.count, round.is_exact) =
                before.map_or((round.count, round.is_exact), |it| (it.count, it.is_exact));
        } else {
            // A key that a complete round has not found is gone.
            let rounds = self.rounds;
            self.statuses.retain(|_, seen| seen.round >= rounds);
        }
        self.last = Some(round);
        self.rounds += 1;
    }

    /// The first rows that pass the filter. Drops the entries that rank too low to be kept.
    pub(crate) fn shown(&mut self, view: &View, rows: usize) -> Vec<StoredKey> {
        evict(&mut self.statuses, view, MAX_KEPT, rows);
        first(&self.statuses, view, rows).cloned().collect()
    }

    pub(crate) fn page(&self, view: &View, rows: usize) -> Page {
        let sorted = sorted(&self.statuses, view);
        let passing = sorted.len();
        let sorted = &sorted[..passing.min(rows)];
        let (keys, is_exact) = match &self.last {
            Some(last) if last.count >= self.tally.count() => (last.count, last.is_exact),
            _ => (self.tally.count(), self.tally.is_exact()),
        };
        let unreadable = self.unreadable.as_ref().map(|(count, first)| match count {
            1 => first.clone(),
            _ => format!("{count} keys cannot be read, such as {first}"),
        });
        Page {
            keys,
            about: !is_exact,
            complete: self.last.as_ref().is_some_and(|last| !last.has_gap),
            error: self.error.clone(),
            stale: sorted.iter().filter(|(_, seen)| seen.is_stale).count(),
            unreadable,
            rows: sorted.iter().map(|(_, seen)| seen.status.clone()).collect(),
            passing,
        }
    }
}

/// Keeps the first `most` entries, and those that pass the filter, up to the larger of `most` and `rows`.
fn evict(statuses: &mut HashMap<StoredKey, Entry>, view: &View, most: usize, rows: usize) {
    if statuses.len() > most {
        let all = View {
            filter: String::new(),
            ..view.clone()
        };
        let passing = first(statuses, view, most.max(rows));
        let kept = first(statuses, &all, most).chain(passing);
        let kept: HashSet<_> = kept.cloned().collect();
        statuses.retain(|stored, _| kept.contains(stored));
    }
}

fn first<'a>(
    statuses: &'a HashMap<StoredKey, Entry>,
    view: &View,
    most: usize,
) -> impl Iterator<Item = &'a StoredKey> + use<'a> {
    let sorted = sorted(statuses, view).into_iter();
    sorted.map(|(stored, _)| stored).take(most)
}

/// The entries that pass the filter, in order.
fn sorted<'a>(
    statuses: &'a HashMap<StoredKey, Entry>,
    view: &View,
) -> Vec<(&'a StoredKey, &'a Entry)> {
    let passes = |status: &KeyStatus| {
        status.shown_key().contains(&view.filter) || status.shown_policy().contains(&view.filter)
    };
    let passing = statuses.iter().filter(|(_, it)| passes(&it.status));
    let mut sorted: Vec<_> = passing.collect();
    sorted.sort_by(|(_, a), (_, b)| view.sort.compare(&a.status, &b.status));
    sorted
}

#[cfg(test)]
mod tests {
    use super::super::order::Sort;
    use super::super::order::tests::status;
    use super::*;

    #[test]
    fn a_filter_evicts_no_busy_keys() {
        let key = |number: u32| format!("key-{number:02}");
        let seen = |number: u32| Entry {
            status: status(&key(number), number % 10, 10, 0),
            round: 0,
            is_stale: false,
        };
        let stored = |number| StoredKey::new(&key(number).into(), None);
        let mut statuses: HashMap<_, _> = (0..30).map(|it| (stored(it), seen(it))).collect();
        let view = |filter: &str| View {
            sort: Sort::Used,
            filter: filter.to_owned(),
        };
        let busiest = |statuses: &HashMap<_, _>| {
            let first = first(statuses, &view(""), 10).cloned();
            first.collect::<Vec<_>>()
        };
        let before = busiest(&statuses);
        evict(&mut statuses, &view("key-10"), 10, 5);
        assert_eq!(busiest(&statuses), before);
        assert_eq!(statuses.len(), 11);
        assert!(statuses.contains_key(&stored(10)));
        evict(&mut statuses, &view(""), 10, 5);
        assert_eq!(busiest(&statuses), before);
        assert_eq!(statuses.len(), 10);
    }
}
