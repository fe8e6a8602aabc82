//! What is known of the keys: [`Board`].

use std::collections::{HashMap, HashSet};
use std::mem;

use serde::Serialize;
use tower_throttle::store::{KeyState, Keys, RedisStore, StoredKey};

use super::View;
use super::tally::Tally;
use crate::failure::Failure;
use crate::standing::Standing;

/// Of so many keys it is remembered how they stand.
const MOST: usize = 1_000;

/// How many names Redis looks at for one page, at most.
const PAGE: usize = 1_000;

/// And so many when the budget is spent, in case that all were told but for the word that they are.
const LAST_PAGE: usize = 10;

/// How the keys stand that were seen so far.
pub(crate) struct Board {
    store: RedisStore,
    budget: usize,
    keys: Option<Keys>,
    standings: HashMap<StoredKey, Seen>,
    /// How often all keys were seen, or those of all servers that have answered.
    rounds: u64,
    /// Those of this round, and how many there were in the one before.
    tally: Tally,
    last: Option<Round>,
    /// Whether a server was out in this round.
    has_gap: bool,
    /// Why not all has answered.
    error: Option<String>,
    /// How many of these have something in them that cannot be read, and why the first could not.
    strange: Option<(usize, String)>,
}

struct Seen {
    standing: Standing,
    round: u64,
    /// Whether who holds it did not answer the last time.
    is_stale: bool,
}

/// What a round has come to.
struct Round {
    count: usize,
    is_exact: bool,
    has_gap: bool,
}

/// Some keys, and what has become of the servers that were asked for them.
#[derive(Default)]
struct Found {
    keys: HashSet<StoredKey>,
    has_answered: bool,
    failure: Option<Failure>,
}

/// What a refresh has found.
#[derive(Debug, Serialize)]
pub(crate) struct Page {
    /// How many there are, each by each of its policies, as far as they were seen.
    pub(crate) keys: usize,
    /// Whether that is about so, as there are many.
    pub(crate) about: bool,
    /// Whether all were seen by now.
    pub(crate) complete: bool,
    /// Why some servers have not answered.
    pub(crate) error: Option<String>,
    /// How many rows tell how it was before, as who holds them did not answer.
    pub(crate) stale: usize,
    pub(crate) strange: Option<String>,
    pub(crate) rows: Vec<Standing>,
    /// How many rows there would be, if there was room.
    #[serde(skip)]
    pub(crate) passing: usize,
}

impl Board {
    pub(crate) fn new(store: RedisStore, budget: usize) -> Self {
        Self {
            store,
            budget,
            keys: None,
            standings: HashMap::new(),
            rounds: 0,
            tally: Tally::new(),
            last: None,
            has_gap: false,
            error: None,
            strange: None,
        }
    }

    /// Looks at some keys, and again at these. Fails if no server has answered anything.
    pub(crate) async fn refresh(&mut self, shown: Vec<StoredKey>) -> Result<(), Failure> {
        let Found {
            keys: found,
            mut has_answered,
            mut failure,
        } = self.some().await;
        let others = shown.into_iter().filter(|it| !found.contains(it));
        let others: Vec<_> = others.collect();
        let all: Vec<_> = found.into_iter().chain(others).collect();
        let states = self.store.look(&all).await;
        self.strange = None;
        for (stored, state) in all.into_iter().zip(states) {
            match state {
                Err(error) if error.is_outage() => {
                    if let Some(seen) = self.standings.get_mut(&stored) {
                        seen.is_stale = true;
                    }
                    failure.get_or_insert_with(|| error.into());
                    continue;
                }
                Ok(Some(state)) => self.see(stored, &state),
                Ok(None) => drop(self.standings.remove(&stored)),
                Err(error) => {
                    let why = || (0, format!("{stored}: {error}"));
                    self.strange.get_or_insert_with(why).0 += 1;
                    self.standings.remove(&stored);
                }
            }
            has_answered = true;
        }
        match failure {
            Some(failure) if !has_answered => Err(failure),
            failure => {
                self.error = failure.map(|it| it.to_string());
                Ok(())
            }
        }
    }

    fn see(&mut self, stored: StoredKey, state: &KeyState) {
        let standing = Standing::new(&stored, state);
        if standing.is_idle() {
            self.standings.remove(&stored);
        } else {
            let seen = Seen {
                standing,
                round: self.rounds,
                is_stale: false,
            };
            self.standings.insert(stored, seen);
        }
    }

    /// The next keys of a round, as many as the budget allows, of the servers that answer.
    async fn some(&mut self) -> Found {
        let mut some = Found::default();
        let mut keys = self.keys.take().unwrap_or_else(|| self.store.keys());
        let end = keys.looked_at() + self.budget;
        let mut is_last = false;
        while !is_last {
            let before = keys.looked_at();
            let left = end.saturating_sub(before);
            let page_size = if left == 0 { LAST_PAGE } else { left.min(PAGE) };
            keys = keys.page_size(page_size);
            match keys.next_page().await {
                Ok(Some(page)) => {
                    some.has_answered = true;
                    page.iter().for_each(|stored| self.tally.add(stored));
                    some.keys.extend(page);
                    // One that looks at fewer is a server's last: there may be no more.
                    is_last = left == 0 && keys.looked_at() - before >= LAST_PAGE;
                }
                Ok(None) => {
                    self.round_is_over();
                    return some;
                }
                Err(error) => {
                    some.failure.get_or_insert_with(|| error.into());
                    self.has_gap = true;
                    if !keys.skip_server() {
                        self.round_is_over();
                        return some;
                    }
                }
            }
        }
        self.keys = Some(keys);
        some
    }

    fn round_is_over(&mut self) {
        let tally = mem::replace(&mut self.tally, Tally::new());
        let mut round = Round {
            count: tally.count(),
            is_exact: tally.is_exact(),
            has_gap: mem::take(&mut self.has_gap),
        };
        if round.has_gap {
            // What could not be seen may well be there.
            let before = self.last.take().filter(|last| last.count > round.count);
            (round.count, round.is_exact) =
                before.map_or((round.count, round.is_exact), |it| (it.count, it.is_exact));
        } else {
            // What was not there any more in a whole round is gone.
            let rounds = self.rounds;
            self.standings.retain(|_, seen| seen.round >= rounds);
        }
        self.last = Some(round);
        self.rounds += 1;
    }

    /// The keys that come first of those that pass the filter. Of all others, those are remembered that come first.
    pub(crate) fn shown(&mut self, view: &View, rows: usize) -> Vec<StoredKey> {
        forget(&mut self.standings, view, MOST, rows);
        first(&self.standings, view, rows).cloned().collect()
    }

    pub(crate) fn page(&self, view: &View, rows: usize) -> Page {
        let sorted = sorted(&self.standings, view);
        let passing = sorted.len();
        let sorted = &sorted[..passing.min(rows)];
        let (keys, is_exact) = match &self.last {
            Some(last) if last.count >= self.tally.count() => (last.count, last.is_exact),
            _ => (self.tally.count(), self.tally.is_exact()),
        };
        let strange = self.strange.as_ref().map(|(count, first)| match count {
            1 => first.clone(),
            _ => format!("{count} keys cannot be read, such as {first}"),
        });
        Page {
            keys,
            about: !is_exact,
            complete: self.last.as_ref().is_some_and(|last| !last.has_gap),
            error: self.error.clone(),
            stale: sorted.iter().filter(|(_, seen)| seen.is_stale).count(),
            strange,
            rows: sorted
                .iter()
                .map(|(_, seen)| seen.standing.clone())
                .collect(),
            passing,
        }
    }
}

/// Forgets all but so many, and as many or these rows of those that pass the filter.
fn forget(standings: &mut HashMap<StoredKey, Seen>, view: &View, most: usize, rows: usize) {
    if standings.len() > most {
        let all = View {
            filter: String::new(),
            ..view.clone()
        };
        let passing = first(standings, view, most.max(rows));
        let kept = first(standings, &all, most).chain(passing);
        let kept: HashSet<_> = kept.cloned().collect();
        standings.retain(|stored, _| kept.contains(stored));
    }
}

fn first<'a>(
    standings: &'a HashMap<StoredKey, Seen>,
    view: &View,
    most: usize,
) -> impl Iterator<Item = &'a StoredKey> + use<'a> {
    let sorted = sorted(standings, view).into_iter();
    sorted.map(|(stored, _)| stored).take(most)
}

/// Those that pass the filter, in order.
fn sorted<'a>(
    standings: &'a HashMap<StoredKey, Seen>,
    view: &View,
) -> Vec<(&'a StoredKey, &'a Seen)> {
    let passes = |standing: &Standing| {
        standing.shown_key().contains(&view.filter)
            || standing.shown_policy().contains(&view.filter)
    };
    let passing = standings.iter().filter(|(_, it)| passes(&it.standing));
    let mut sorted: Vec<_> = passing.collect();
    sorted.sort_by(|(_, a), (_, b)| view.sort.compare(&a.standing, &b.standing));
    sorted
}

#[cfg(test)]
mod tests {
    use super::super::order::Sort;
    use super::super::order::tests::standing;
    use super::*;

    #[test]
    fn a_filter_forgets_no_more_than_none_does() {
        let key = |number: u32| format!("key-{number:02}");
        let seen = |number: u32| Seen {
            standing: standing(&key(number), number % 10, 0, None),
            round: 0,
            is_stale: false,
        };
        let stored = |number| StoredKey::new(&key(number).into(), None);
        let mut standings: HashMap<_, _> = (0..30).map(|it| (stored(it), seen(it))).collect();
        let view = |filter: &str| View {
            sort: Sort::Used,
            filter: filter.to_owned(),
        };
        let busiest = |standings: &HashMap<_, _>| {
            let first = first(standings, &view(""), 10).cloned();
            first.collect::<Vec<_>>()
        };
        let before = busiest(&standings);
        forget(&mut standings, &view("key-10"), 10, 5);
        assert_eq!(busiest(&standings), before);
        assert_eq!(standings.len(), 11);
        assert!(standings.contains_key(&stored(10)));
        forget(&mut standings, &view(""), 10, 5);
        assert_eq!(busiest(&standings), before);
        assert_eq!(standings.len(), 10);
    }
}
