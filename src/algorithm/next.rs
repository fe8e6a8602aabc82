//! When a waiting process calls next, and which others to nudge.

use std::cmp::Ordering;

use super::demand::WATCH_DELAY;
use super::{
    Ahead, Demand, LANE_BITS, Others, State, Take, Times, Units, concurrent, level, order,
};

/// The least time until the next call of a process, and the longest time that a waiting process does not call.
pub(super) const SOONEST_CALL: u64 = 2_000;
pub(super) const LONGEST_SILENCE: u64 = 1_000_000;

/// A process that waits is nudged if its next request may depart so much earlier than it calls.
pub(super) const UNAWARE: u64 = 250_000;

/// The most processes that one call nudges: their number is a byte.
const MOST_NUDGED: usize = 255;

/// A call checks whether the first so many processes watch the one right ahead. A process has an announcement for each priority,
/// share and set of units; the call looks at the first of those that follow each other.
const MOST_WATCHED: usize = 4;

/// A process that was nudged is overdue after so long and two round trips.
pub(super) const NUDGE_TIMEOUT: u64 = 120_000;

impl State {
    /// When a process has to call again for the requests that it has left behind those granted, of which the last one is
    /// expected to depart at `last_departs`.
    pub(super) fn next_call(
        &self,
        times: &Times,
        others: &Others<'_>,
        granted: Units,
        rest: &Demand,
        take: &Take,
        last_departs: u64,
    ) -> u64 {
        let now = times.now;
        let first = rest.oldest();
        let ahead = others.ahead(first, granted, Ahead::All);
        let opens = |ahead| self.earliest(times, now, ahead, rest.units_of(1));
        let opening = opens(ahead);
        let early = |at: u64| at.saturating_sub(take.horizon / 2);
        let by_process = others.by_process(first);
        let mut silence = (last_departs - now) / 3;
        if !take.holding.is_notified {
            // If a process ahead is gone, or has cancelled its requests, no departure stays unused.
            let each = by_process.values().copied();
            let most = each.fold(Units::default(), |most, units| most.zip(units, u64::max));
            let without_one = early(opens(ahead.without(most)));
            silence = silence.min(without_one.saturating_sub(now));
        }
        let silence = LONGEST_SILENCE.max(silence);
        let call = match self.full_places(times, opening, ahead, rest.units_of(1)) {
            Some(places) => {
                let look = concurrent::look(take.holding, others.count_ahead(first), now);
                places.first_end().map_or(look, |end| look.min(end))
            }
            None => early(opening),
        };
        // If a process ahead has crashed, its capacity is free at its deadline, or when it opens.
        let watched = others.watched(first);
        let watched = watched.map(|(at, process)| {
            let units = by_process.get(&process).copied().unwrap_or_default();
            at.max(opens(ahead.without(units)))
        });
        let call = call.min(now + silence).min(watched.min().unwrap_or(call));
        call.max(now + SOONEST_CALL)
    }

    /// Chooses the processes to nudge after a call that leaves this rest, and returns them. If nudges arrive, these processes
    /// count as overdue soon.
    ///
    /// If the call has set units `free`, it nudges the processes in order, until their demand covers these units, and one more, as
    /// one may be dead. It skips those that wait for another unit, and those that call in time. If not arrival alone decides the
    /// order, the order is not known, and it nudges all.
    ///
    /// Otherwise, it looks at the first processes ahead of its own requests. It nudges the first one if its request can depart
    /// much earlier than its process calls, and each other that calls much later than the one ahead is overdue. A process has to
    /// watch the one right ahead, and may not know that the requests in between have left. If not arrival alone decides the order,
    /// only a call that leaves no requests waiting does so.
    pub(super) fn nudge(
        &mut self,
        times: &Times,
        rest: &Demand,
        take: &Take,
        free: Units,
        has_rivals: bool,
    ) -> Vec<u64> {
        let frees = !free.is_zero();
        let (nudges_all, late) = match frees {
            true => (has_rivals, 0),
            false => (false, UNAWARE + 2 * take.round_trip),
        };
        let is_one = has_rivals && !rest.is_empty();
        let most = if is_one { 1 } else { MOST_WATCHED };
        let order = |process, flow, demand: &Demand| {
            let lead = has_rivals.then(|| order::lead(&self.tags, process, flow));
            (level(process), lead, demand.oldest(), process)
        };
        // True if a request waits for a unit that was not set free.
        let waits_elsewhere = |cost: Units| {
            let elsewhere = cost.zip(free, |cost, free| if free > 0 { 0 } else { cost });
            let opens = || self.earliest(times, times.now, Units::default(), elsewhere);
            frees && !elsewhere.is_zero() && opens() >= times.beyond()
        };
        let announced = self.announced.iter().enumerate();
        let waiting = announced.filter(|(_, it)| !it.demand.is_empty() && times.now <= it.deadline);
        let waiting = waiting.map(|(nth, it)| (order(it.process, it.flow, &it.demand), nth));
        let mut waiting: Vec<_> = waiting.collect();
        waiting.sort_by(|one, other| one.partial_cmp(other).unwrap_or(Ordering::Equal));
        let is_own = !rest.is_empty() && !nudges_all && !waits_elsewhere(rest.first_cost());
        let own = is_own.then(|| order(take.process, take.flow.id, rest));
        let in_order = |units| if nudges_all { Units::default() } else { units };
        let (mut next, mut ahead, mut previous) = (Vec::new(), Units::default(), Units::default());
        // The process ahead, and when the one behind it may know that it is dead.
        let (mut process_ahead, mut overdue) = (None, 0);
        let mut rank = 0;
        for (order, nth) in waiting {
            let other = &self.announced[nth];
            let cost = other.demand.first_cost();
            if own.is_some_and(|own| own < order) || next.len() == MOST_NUDGED {
                break;
            }
            if waits_elsewhere(cost) {
                // Its cost in other units is kept for it.
                ahead += in_order(cost);
                continue;
            }
            let process = other.process >> LANE_BITS;
            let is_other = Some(process) != process_ahead;
            rank += usize::from(is_other);
            let is_last = is_other && free.without(ahead).is_zero() && (frees || rank == most);
            // The last one may depart if the process ahead of it is dead, and so may each that watches another.
            let before = if is_last || !frees { previous } else { ahead };
            let opens = self.earliest(times, times.now, before, cost);
            let is_later = match frees {
                true => opens >= times.beyond(),
                false => self.full_places(times, opens, before, cost).is_some(),
            };
            let (due, mut deadline) = (opens.max(overdue), other.deadline);
            if !is_later && (frees || is_other) && deadline > due + late {
                let soon = due.max(times.now) + NUDGE_TIMEOUT + 2 * take.round_trip;
                if take.holding.is_notified {
                    deadline = deadline.min(soon);
                }
                next.push((nth, deadline));
            }
            if is_last {
                break;
            }
            if is_other {
                (process_ahead, previous) = (Some(process), ahead);
                overdue = if frees { 0 } else { deadline + WATCH_DELAY };
            }
            ahead += in_order(other.demand.units());
        }
        if next.is_empty() && frees {
            return self.nudge(times, rest, take, Units::default(), has_rivals);
        }
        let nudged = next.into_iter().map(|(nth, deadline)| {
            let other = &mut self.announced[nth];
            other.deadline = deadline;
            other.process
        });
        nudged.collect()
    }
}
