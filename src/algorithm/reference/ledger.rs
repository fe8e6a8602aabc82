//! A ledger over the models: it tries one time after the other until all allow it.

use super::super::ledger::{Ask, Ledger, Notice, Outcome, Receipt, Slot, Terms, Word};
use super::super::simulation::{Answer, Side};
use super::super::{Rule, Taken};
use super::model::Model;

const DRIFT: u64 = 50_000;
const TEN_YEARS: u64 = 10 * 365 * 86_400 * 1_000_000;

#[derive(Debug)]
pub(super) struct Naive {
    rules: Vec<Rule>,
    models: Vec<Model>,
    /// Every departure that was ever taken.
    taken: Vec<Taken>,
    /// Those that were given back but can serve others.
    free: Vec<usize>,
    /// Who was granted which departure.
    granted: Vec<usize>,
}

impl Naive {
    pub(super) fn new(rules: &[Rule]) -> Self {
        Self {
            rules: rules.to_vec(),
            models: rules.iter().copied().map(Model::new).collect(),
            taken: Vec::new(),
            free: Vec::new(),
            granted: Vec::new(),
        }
    }

    fn refresh(&mut self, now: u64) {
        self.models.iter_mut().for_each(|it| it.observe(now));
        let is_past = |id: &usize| self.taken[*id].at < now;
        let (past, free) = self.free.iter().copied().partition(is_past);
        self.free = free;
        let past: Vec<usize> = past;
        past.into_iter().for_each(|id| self.give_back(id));
    }

    fn give_back(&mut self, id: usize) {
        self.models.iter_mut().for_each(|it| it.give_back(id));
    }

    fn is_last(&self, id: usize) -> bool {
        self.models.iter().all(|it| it.is_last(id))
    }

    /// In the order of their times, and of their being handed out.
    fn put_on_free_list(&mut self, id: usize) {
        self.free.push(id);
        // Where nothing tells which was handed out first, by their records.
        let is_told = self.rules.iter().any(|rule| rule.receipts() > 0);
        let order = |id: &usize| {
            let Taken { at, record, .. } = self.taken[*id];
            (at, if is_told { 0 } else { record }, *id)
        };
        self.free.sort_unstable_by_key(order);
    }

    /// What the last of as many requests of cost 1 waits as the smallest bucket holds: each longer
    /// than the one before by its interval, its margin and its own drift.
    fn longest_wait(&self, margin: u64) -> u64 {
        let mut longest = TEN_YEARS;
        for rule in &self.rules {
            if let Rule::LeakyBucket { interval, capacity } = *rule {
                let all = u128::from(interval + margin) * u128::from(capacity);
                let drift = all * u128::from(capacity) / u128::from(2 * DRIFT);
                longest = longest.min(u64::try_from(all + drift).unwrap());
            }
        }
        longest
    }

    fn fresh(&self, now: u64, terms: &Terms, x: u64, ahead: &[u64], cost: u32) -> Taken {
        let last_record = self.models.iter().map(Model::last_record).max();
        let mut at = x;
        loop {
            let ahead = ahead.iter().filter(|&&it| it == at).count() as u64;
            let reached = at.max(now + terms.round_trip) + terms.margin + ahead * terms.stagger;
            let record = (reached + (at - now) / DRIFT).max(last_record.unwrap_or(0));
            if self
                .models
                .iter()
                .all(|it| it.allows(at, record - at, cost))
            {
                return Taken { at, record, cost };
            }
            let changes = self.models.iter().filter_map(|it| it.next_change(at, cost));
            at = changes.min().expect("a change to come");
        }
    }

    fn reserve_one(
        &mut self,
        now: u64,
        terms: &Terms,
        x: u64,
        ahead: &mut Vec<u64>,
        ask: &Ask,
    ) -> Result<usize, u64> {
        let fresh = self.fresh(now, terms, x, ahead, ask.cost);
        let is_of_use = |free: &Taken| {
            let reached = free.at.max(now + terms.round_trip) + terms.least_margin;
            free.record >= reached + free.at.saturating_sub(now) / DRIFT
        };
        let free = self.free.iter().copied().find(|&id| {
            let free = &self.taken[id];
            free.cost == ask.cost && (x..=fresh.at).contains(&free.at) && is_of_use(free)
        });
        let at = free.map_or(fresh.at, |id| self.taken[id].at);
        if at - now > self.longest_wait(terms.floor).min(ask.max_wait) {
            return Err(at - now);
        }
        if let Some(id) = free {
            self.free.retain(|&it| it != id);
            return Ok(id);
        }
        let id = self.taken.len();
        self.taken.push(fresh);
        self.models.iter_mut().for_each(|it| it.take(id, fresh));
        ahead.push(fresh.at);
        Ok(id)
    }
}

impl Side for Naive {
    fn reserve(&mut self, now: u64, terms: &Terms, asks: &[Ask]) -> Answer {
        self.refresh(now);
        let mut x = now.max(terms.not_before);
        let mut ahead = Vec::new();
        let mut outcomes = Vec::new();
        for ask in asks {
            let mut refused = None;
            for _ in 0..ask.count {
                if refused.is_none() {
                    match self.reserve_one(now, terms, x, &mut ahead, ask) {
                        Ok(id) => {
                            let Taken { at, record, cost } = self.taken[id];
                            x = at;
                            let receipt = Receipt::from_iter([self.granted.len() as u64]);
                            self.granted.push(id);
                            outcomes.push(Outcome::Granted(Slot {
                                at,
                                record,
                                cost,
                                receipt,
                            }));
                        }
                        Err(wait) => refused = Some(wait),
                    }
                }
                if let Some(wait) = refused {
                    outcomes.push(Outcome::Refused { wait });
                }
            }
        }
        let last = self.models.iter().map(Model::last_record).max();
        let record = (now + terms.round_trip + terms.margin).max(last.unwrap_or(0));
        let late = record - now;
        let remaining = self.models.iter().map(|it| it.remaining(now, late)).min();
        let expires = self.models.iter().map(Model::expires).max();
        let reset = expires.unwrap_or(0).saturating_sub(now);
        (outcomes, remaining.unwrap_or(0), reset)
    }

    fn release(&mut self, now: u64, slots: &[Slot]) {
        self.refresh(now);
        for slot in slots {
            let id = self.granted[slot.receipt.as_slice()[0] as usize];
            if slot.at > now && !self.is_last(id) {
                self.put_on_free_list(id);
            } else {
                self.give_back(id);
            }
            while let Some(&last) = self.free.last()
                && self.is_last(last)
            {
                self.free.pop();
                self.give_back(last);
            }
        }
    }

    fn heed(&mut self, _: u64, word: Word) -> Notice {
        unreachable!("it knows the quotas alone, and was told {word:?}")
    }
}

/// The real ledger, with receipts that are only numbers, as they mean nothing to others.
#[derive(Debug)]
pub(super) struct Real {
    ledger: Ledger,
    granted: Vec<Slot>,
}

impl Real {
    pub(super) fn new(rules: &[Rule]) -> Self {
        Self {
            ledger: Ledger::new(rules),
            granted: Vec::new(),
        }
    }
}

impl Side for Real {
    fn reserve(&mut self, now: u64, terms: &Terms, asks: &[Ask]) -> Answer {
        let mut answer = Side::reserve(&mut self.ledger, now, terms, asks);
        for outcome in &mut answer.0 {
            if let Outcome::Granted(slot) = outcome {
                let receipt = Receipt::from_iter([self.granted.len() as u64]);
                self.granted.push(slot.clone());
                slot.receipt = receipt;
            }
        }
        answer
    }

    fn release(&mut self, now: u64, slots: &[Slot]) {
        let slots = slots.iter().map(|slot| slot.receipt.as_slice()[0] as usize);
        let slots: Vec<_> = slots.map(|grant| self.granted[grant].clone()).collect();
        Side::release(&mut self.ledger, now, &slots);
    }

    fn heed(&mut self, now: u64, word: Word) -> Notice {
        self.ledger.heed(now, word)
    }
}
