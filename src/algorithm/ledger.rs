//! The quotas of one key, joined: every slot handed out and given back passes through here.
//!
//! A slot is the earliest time that every quota allows; it is then taken in all of them or, if it
//! lies too far ahead, in none. What is recorded is not the slot but slot + margin: the latest
//! moment at which the departure can reach the upstream. As the next slot counts from there, what
//! happens in between, a late wake-up or a slow network, never brings two requests closer together
//! than the quota says.
//!
//! A slot that is given back leaves every quota at once if it was the last one handed out. If not,
//! others have been placed behind it, so it goes on a list of free slots, still charged, for the
//! next request to take; what nobody took by its time leaves the log then. (A number cannot forget
//! from its middle: there, such a slot stays charged, which costs one interval once.)

mod alone;
mod heed;
mod life;
#[cfg(test)]
mod tests;

use smallvec::SmallVec;

pub(crate) use self::alone::AtOnce;
pub use self::heed::{Notice, Word};
pub(super) use self::life::Lived;
#[cfg(feature = "redis")]
pub(super) use self::life::MARKS;
pub use self::life::{Evidence, Life};
pub use super::receipt::Receipt;
use super::{Count, Counter, Rule, Taken, micros};
use crate::quota::HORIZON;

/// A store's and a host's clock may drift apart by one part in this many over a wait, half of it
/// either way: 10 parts per million, ten times what hosts that keep time by NTP show.
pub(crate) const DRIFT: u64 = 50_000;

/// How often quotas may push a time later until they settle for one that suits all but those that
/// mind how late it is. Two windows of almost the same length could go on for long.
const PATIENCE: u32 = 64;

/// A departure time that a store has reserved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// The departure time, in microseconds on the store's clock.
    pub at: u64,
    /// The time at which the store recorded the departure: after `at` by guard and buffer.
    pub record: u64,
    /// What the departure costs.
    pub cost: u32,
    /// What the store wants to see again should the slot be given back.
    pub receipt: Receipt,
}

impl Slot {
    fn taken(&self) -> Taken {
        Taken {
            at: self.at,
            record: self.record,
            cost: self.cost,
        }
    }
}

/// So many requests that want a slot each, at the same cost and with the same bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// How many requests.
    pub count: u32,
    /// What each costs, from 1 to what the quotas hold.
    pub cost: u32,
    /// The longest wait for each, in microseconds.
    pub max_wait: u64,
}

/// What became of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It may depart at this slot.
    Granted(Slot),
    /// It would have had to wait longer than its bound; nothing was recorded.
    Refused {
        /// How long the wait would have been, in microseconds.
        wait: u64,
    },
}

/// What holds for all the requests of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// By how much later than its slot a departure is recorded.
    pub(crate) margin: u64,
    /// The least of it with which a slot that was given back is of use.
    pub(crate) least_margin: u64,
    /// What the policy asks of it at least, however busy the process is.
    pub(crate) floor: u64,
    /// No slot may lie before.
    pub(crate) not_before: u64,
    /// How long the answer takes to arrive: nothing departs before.
    pub(crate) round_trip: u64,
    /// By how much the margin grows with each request of one call that has the same slot.
    pub(crate) stagger: u64,
    /// Nothing is to be recorded: every request is refused, with the wait that it would have.
    pub(crate) peek: bool,
}

impl Terms {
    /// Of this margin, which nobody shortens, and nothing else.
    pub(crate) fn of_margin(margin: u64) -> Self {
        Self {
            margin,
            least_margin: margin,
            floor: margin,
            not_before: 0,
            round_trip: 0,
            stagger: 0,
            peek: false,
        }
    }

    /// What a departure at `at` is recorded as, reserved at `now`.
    pub(crate) fn record(&self, at: u64, now: u64) -> u64 {
        at.max(now + self.round_trip) + self.margin + (at - now) / DRIFT
    }

    /// The least record of a slot at `at` that is of use.
    fn least_record(&self, at: u64, now: u64) -> u64 {
        at.max(now + self.round_trip) + self.least_margin + (at - now) / DRIFT
    }
}

/// The requests of one call that have the same slot.
#[derive(Debug, Default)]
struct Burst {
    at: u64,
    size: u64,
}

impl Burst {
    /// How many are ahead of one that has this slot.
    fn ahead(&self, at: u64) -> u64 {
        if self.at == at { self.size } else { 0 }
    }

    fn join(&mut self, at: u64) {
        self.size = self.ahead(at) + 1;
        self.at = at;
    }
}

/// One outcome per request, in the order of the asks.
pub(crate) type Outcomes = SmallVec<[Outcome; 1]>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ledger {
    /// Of each quota; then what the upstream has said.
    pub(super) counters: SmallVec<[Counter; 1]>,
    /// In the order in which they were handed out, so that the last one may leave.
    pub(super) free: Vec<Slot>,
    /// Where recovery is strict.
    pub(super) lived: Option<Box<Lived>>,
}

impl Ledger {
    pub(crate) fn new(rules: &[Rule]) -> Self {
        Self {
            counters: rules.iter().map(Rule::start).collect(),
            free: Vec::new(),
            lived: None,
        }
    }

    /// Answers every request of `asks`, in order: no slot lies before that of the request ahead.
    pub(crate) fn reserve(&mut self, now: u64, terms: &Terms, asks: &[Ask]) -> Outcomes {
        self.refresh(now);
        let mut outcomes = Outcomes::new();
        let mut x = now.max(terms.not_before);
        let mut burst = Burst::default();
        let longest_wait = self.longest_wait(now, terms);
        for ask in asks {
            let ask = &Ask {
                max_wait: ask.max_wait.min(longest_wait),
                ..*ask
            };
            for asked in 0..ask.count {
                match self.reserve_one(now, terms, x, &mut burst, ask) {
                    Ok(slot) => {
                        x = slot.at;
                        outcomes.push(Outcome::Granted(slot));
                    }
                    Err(wait) => {
                        let rest = (ask.count - asked) as usize;
                        outcomes.extend(std::iter::repeat_n(Outcome::Refused { wait }, rest));
                        break;
                    }
                }
            }
        }
        self.live(now, &outcomes);
        outcomes
    }

    /// Takes back slots that will not be used and that were handed out under the life which began then, or under
    /// any if that is 0: what was forgotten since is not to be handed out again.
    pub(crate) fn release_under(&mut self, now: u64, life: u64, slots: &[Slot]) {
        if life == 0 || self.is_of(now, life) {
            self.release(now, slots);
        }
    }

    /// Takes back slots that will not be used.
    pub(crate) fn release(&mut self, now: u64, slots: &[Slot]) {
        self.refresh(now);
        // Those that the scripts take back in one pass, first: of a state that was lost, some may be in others' place.
        let is_plain = self.counters.iter().all(|counter| counter.receipts() == 0);
        let is_past = |slot: &&Slot| is_plain && slot.at <= now;
        for slot in slots.iter().filter(is_past) {
            self.give_back(slot, now);
        }
        for slot in slots.iter().filter(|slot| !is_past(slot)) {
            if slot.at > now && !self.is_last(slot) {
                let place = self.free.partition_point(|free| order(free) <= order(slot));
                self.free.insert(place, slot.clone());
            } else {
                self.give_back(slot, now);
            }
            self.pop_free(now);
        }
        self.pop_free(now);
        self.forget_lost();
    }

    /// Free slots at the end leave the state.
    fn pop_free(&mut self, now: u64) {
        while let Some(last) = self.free.pop_if(|last| is_last(&self.counters, last)) {
            self.give_back(&last, now);
        }
    }

    /// How many requests of cost 1 may depart at `now`.
    pub(crate) fn remaining(&self, now: u64, terms: &Terms) -> u32 {
        let late = terms.record(now, now).max(self.last_record()) - now;
        let remaining = self.counters.iter().map(|count| count.remaining(now, late));
        remaining.min().unwrap_or(0)
    }

    /// The time from which nothing recorded has any influence.
    pub(crate) fn expires(&self) -> u64 {
        self.counters.iter().map(Count::expires).max().unwrap_or(0)
    }

    #[cfg(test)]
    pub(crate) fn free(&self) -> &[Slot] {
        &self.free
    }

    /// What a sliding log has recorded, if that is the quota.
    #[cfg(test)]
    pub(crate) fn records(&self) -> Vec<u64> {
        match &self.counters[..] {
            [Counter::SlidingLog(log), ..] => log.records.iter().copied().collect(),
            _ => Vec::new(),
        }
    }

    fn reserve_one(
        &mut self,
        now: u64,
        terms: &Terms,
        x: u64,
        burst: &mut Burst,
        ask: &Ask,
    ) -> Result<Slot, u64> {
        let Ask { cost, max_wait, .. } = *ask;
        let x = self.held_up(x, cost);
        let (fresh, record) = self.earliest(now, terms, x, burst, cost);
        let free = self.free.iter().position(|free| {
            let of_use = || free.record >= terms.least_record(free.at, now);
            free.cost == cost && free.at >= x && of_use()
        });
        let free = free.filter(|&place| self.free[place].at <= fresh);
        let at = free.map_or(fresh, |place| self.free[place].at);
        if at - now > max_wait || terms.peek {
            return Err(at - now);
        }
        if let Some(place) = free {
            let slot = self.free.remove(place);
            self.charge_holds(slot.taken());
            return Ok(slot);
        }
        burst.join(at);
        let taken = Taken { at, record, cost };
        let mut receipt = Receipt::default();
        for counter in &mut self.counters {
            let own = counter.take(taken);
            receipt.extend(own.as_slice().iter().copied());
        }
        Ok(Slot {
            at,
            record,
            cost,
            receipt,
        })
    }

    /// The time that every quota allows, and its record.
    fn earliest(&self, now: u64, terms: &Terms, x: u64, burst: &Burst, cost: u32) -> (u64, u64) {
        let last = self.last_record();
        let record = |at| (terms.record(at, now) + burst.ahead(at) * terms.stagger).max(last);
        settle(&self.counters, x, record, cost)
    }

    /// The least that the next departure may be recorded at.
    fn last_record(&self) -> u64 {
        self.counters
            .iter()
            .map(Count::last_record)
            .max()
            .unwrap_or(0)
    }

    /// The longest wait that every quota allows, from when the upstream lets requests go again. Those who
    /// wait are recorded as much later, each of them, as clocks may drift apart until then.
    fn longest_wait(&self, now: u64, terms: &Terms) -> u64 {
        let held_up = self.held_up(now, u32::MAX) - now;
        let margin = terms.floor.saturating_add(held_up.div_ceil(DRIFT));
        let counters = self.counters.iter();
        let longest = counters.map(|count| count.longest_wait(margin)).min();
        let longest = longest.unwrap_or(0).min(micros(HORIZON));
        longest.saturating_add(held_up)
    }

    fn refresh(&mut self, now: u64) {
        self.heal();
        for counter in &mut self.counters {
            counter.trim(now);
        }
        self.drop_holds(now);
        self.outlive(now);
        if self.free.is_empty() {
            return;
        }
        let past = self.free.partition_point(|free| free.at < now);
        for place in 0..past {
            give_back(&mut self.counters, &self.free[place], now);
        }
        self.free.drain(..past);
        self.forget_lost();
    }

    /// Where the clock was set back, a slot may be given back that its log has forgotten. A log without
    /// records has no free slots.
    fn forget_lost(&mut self) {
        if let [Counter::SlidingLog(log), others @ ..] = &self.counters[..]
            && others.iter().all(Counter::is_hold)
            && log.records.is_empty()
        {
            self.free.clear();
        }
    }

    fn is_last(&self, slot: &Slot) -> bool {
        is_last(&self.counters, slot)
    }

    fn give_back(&mut self, slot: &Slot, now: u64) {
        give_back(&mut self.counters, slot, now);
    }
}

/// Lets every quota push the time later until none does; returns it, and its record.
///
/// Where a quota minds how late a departure is, what is in a burst may be pushed on to the next window though
/// others would have parted it from the burst, and then it might have fitted into this one: later than need be,
/// but only where the burst's stagger, which is at most 2% of a window, goes over the end of one.
#[inline]
fn settle<C: Count>(counts: &[C], x: u64, record: impl Fn(u64) -> u64, cost: u32) -> (u64, u64) {
    let mut at = x;
    for round in 0.. {
        let push = |at, count: &C| {
            let late = if round < PATIENCE {
                record(at) - at
            } else {
                u64::MAX
            };
            count.earliest(at, late, cost)
        };
        let pushed = counts.iter().fold(at, push);
        if pushed == at {
            return (at, record(at));
        }
        at = pushed;
    }
    unreachable!("quotas do not push for ever");
}

/// Grows with each slot that is handed out, as none of its parts decreases but where slots were
/// given back before; numbers and records tell apart what departs at the same time. Numbers first: where
/// they count, the records of processes with different guards are in no order.
fn order(slot: &Slot) -> (u64, &[u64], u64) {
    (slot.at, slot.receipt.as_slice(), slot.record)
}

fn is_last(counters: &[Counter], slot: &Slot) -> bool {
    let mut receipt = slot.receipt.as_slice();
    counters.iter().all(|count| {
        let own = split_off(&mut receipt, count.receipts());
        count.is_last(slot.taken(), own)
    })
}

fn give_back(counters: &mut [Counter], slot: &Slot, now: u64) {
    let mut receipt = slot.receipt.as_slice();
    for count in counters {
        let own = split_off(&mut receipt, count.receipts());
        count.give_back(slot.taken(), own, now);
    }
}

/// The first so many numbers of a receipt, as far as a stranger's goes.
fn split_off<'a>(receipt: &mut &'a [u64], count: usize) -> &'a [u64] {
    let (own, rest) = receipt.split_at(count.min(receipt.len()));
    *receipt = rest;
    own
}
