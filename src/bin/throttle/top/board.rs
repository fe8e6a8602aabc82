//! What is known of the keys: [`Board`].

use std::collections::{HashMap, HashSet};

use serde::Serialize;
use tower_throttle::store::{Keys, RedisStore, StoredKey};

use super::View;
use crate::failure::Failure;
use crate::standing::Standing;

/// Of so many keys it is remembered how they stand.
const MOST: usize = 1_000;

/// How many names Redis looks at for one page, at most.
const PAGE: usize = 1_000;

/// How the keys stand that were seen so far.
pub(crate) struct Board {
    store: RedisStore,
    budget: usize,
    keys: Option<Keys>,
    standings: HashMap<StoredKey, Seen>,
    /// How often all keys were seen.
    rounds: u64,
    /// How many were seen in this round, and in the one before.
    counted: usize,
    last_count: Option<usize>,
    /// How many of these have something in them that cannot be read, and why one could not.
    strange: Option<String>,
}

struct Seen {
    standing: Standing,
    round: u64,
}

/// What a refresh has found.
#[derive(Debug, Serialize)]
pub(crate) struct Page {
    /// About how many there are, each by each of its policies.
    pub(crate) keys: usize,
    /// Whether all were seen by now.
    pub(crate) complete: bool,
    pub(crate) strange: Option<String>,
    pub(crate) rows: Vec<Standing>,
}

impl Board {
    pub(crate) fn new(store: RedisStore, budget: usize) -> Self {
        Self {
            store,
            budget,
            keys: None,
            standings: HashMap::new(),
            rounds: 0,
            counted: 0,
            last_count: None,
            strange: None,
        }
    }

    /// Looks at some keys, and again at these.
    pub(crate) async fn refresh(&mut self, shown: Vec<StoredKey>) -> Result<(), Failure> {
        let mut some = self.some().await?;
        let found: HashSet<_> = some.iter().cloned().collect();
        some.extend(shown.into_iter().filter(|it| !found.contains(it)));
        let states = self.store.glance(&some).await;
        self.strange = None;
        for (stored, state) in some.into_iter().zip(states) {
            match state {
                Ok(state) => {
                    let standing = Standing::new(&stored, &state);
                    if standing.is_idle() {
                        self.standings.remove(&stored);
                    } else {
                        let round = self.rounds;
                        self.standings.insert(stored, Seen { standing, round });
                    }
                }
                Err(error) if error.is_outage() => return Err(error.into()),
                Err(error) => {
                    self.strange = Some(format!("{stored}: {error}"));
                    self.standings.remove(&stored);
                }
            }
        }
        Ok(())
    }

    /// The next keys of a round, as many as the budget allows.
    async fn some(&mut self) -> Result<Vec<StoredKey>, Failure> {
        let mut some = HashSet::new();
        let (mut names, page) = (0, self.budget.min(PAGE));
        while names < self.budget {
            let keys = self
                .keys
                .get_or_insert_with(|| self.store.keys().page_size(page));
            names += page;
            match keys.next_page().await? {
                Some(found) => some.extend(found),
                None => {
                    self.round_is_over(some.len());
                    return Ok(some.into_iter().collect());
                }
            }
        }
        self.counted += some.len();
        Ok(some.into_iter().collect())
    }

    fn round_is_over(&mut self, counted: usize) {
        self.keys = None;
        self.last_count = Some(self.counted + counted);
        self.counted = 0;
        // What was not there any more in a whole round is gone.
        let round = self.rounds;
        self.standings.retain(|_, seen| seen.round >= round);
        self.rounds += 1;
    }

    /// The keys that come first; the rest is forgotten, but for some that may yet.
    pub(crate) fn shown(&mut self, view: &View, rows: usize) -> Vec<StoredKey> {
        let keys = |board: &Self| {
            let sorted = board.sorted(view).into_iter();
            sorted.map(|(stored, _)| stored.clone()).collect::<Vec<_>>()
        };
        let mut first = keys(self);
        if self.standings.len() > MOST {
            let kept: HashSet<_> = first.iter().take(MOST.max(rows)).cloned().collect();
            self.standings.retain(|stored, _| kept.contains(stored));
        }
        first.truncate(rows);
        first
    }

    pub(crate) fn page(&self, view: &View, rows: usize) -> Page {
        let sorted = self.sorted(view).into_iter().take(rows);
        Page {
            keys: self.last_count.unwrap_or(self.counted).max(self.counted),
            complete: self.last_count.is_some(),
            strange: self.strange.clone(),
            rows: sorted.map(|(_, standing)| standing.clone()).collect(),
        }
    }

    /// Those that pass the filter, in order.
    fn sorted(&self, view: &View) -> Vec<(&StoredKey, &Standing)> {
        let all = self
            .standings
            .iter()
            .map(|(stored, seen)| (stored, &seen.standing));
        let passes = |standing: &Standing| {
            standing.shown_key().contains(&view.filter) || standing.policy.contains(&view.filter)
        };
        let mut sorted: Vec<_> = all.filter(|(_, it)| passes(it)).collect();
        sorted.sort_by(|(_, a), (_, b)| view.sort.compare(a, b));
        sorted
    }
}
