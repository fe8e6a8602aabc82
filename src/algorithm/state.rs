//! The state of one key: [`State`].

use std::borrow::Cow;
use std::cmp::Reverse;

use smallvec::SmallVec;

use super::call::OTHERS_DEPART_WITHIN;
use super::{
    Ahead, Announcement, Attempt, Command, Concurrent, Costs, Counter, Demand, Grant, Known,
    LONGEST_SPAN, Mode, Origin, Others, Recorded, Settlement, Tag, Take, Taken, Tally, Times,
    Units, are_alike,
};
use crate::quota::{MOST_UNITS, units_of};

/// The most times at which one call grants departures.
const MOST_GRANTS: usize = 256;

/// The most times that joint quotas are asked in turn until all agree.
const MOST_ROUNDS: usize = 64;

/// The most counters of former quotas that a state keeps.
const MOST_FORMER: usize = 8;

/// At least for so long after a call under other quotas, departures also count for the former ones.
const IN_USE: u64 = 60_000_000;

/// How long the last command is remembered, so that answers to older requests are ignored.
pub(super) const REMEMBERED: u64 = 60_000_000;

/// All that a store keeps for one key and policy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// In the order of the policy's counters. A call first changes them to those of its policy; see
    /// [`continue_as`](Self::continue_as).
    pub(crate) counters: SmallVec<[Counter; 1]>,
    /// The counters of former quotas. Processes that still have these quotas go on with them, also if their calls and
    /// those under the new quotas take turns.
    pub(crate) former: Vec<Counter>,
    /// Until then, departures also count for the former quotas, as processes may still have them.
    pub(crate) in_use_until: u64,
    /// At most one of each process and lane: that of its latest call. Their order has no meaning. One without demand and grants
    /// makes earlier calls outdated.
    pub(crate) announced: Vec<Announcement>,
    /// By key, each key once, at most 1,024. Empty if only level and arrival have counted so far.
    pub(crate) tags: Vec<Tag>,
    /// `None` before the first command.
    pub(crate) commands: Option<Box<Commands>>,
    /// Only under strict recovery.
    pub(crate) generation: Option<Box<Generation>>,
}

/// The effect of past commands on a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Commands {
    pub(crate) paused_until: u64,
    /// For each unit.
    pub(crate) allowed: [Allowance; MOST_UNITS],
    /// When the last pause, resume or reset was applied. Responses to requests from before count less.
    pub(crate) latest: u64,
    /// When the last reset was applied, or the latest recorded time that a reset has forgotten if that is later. To return
    /// such a departure would return later ones.
    pub(crate) forgotten_until: u64,
}

/// At most so many units of a kind depart until a time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Allowance {
    /// What is left. If departures have cost more, that is forgotten.
    pub(crate) units: u32,
    pub(crate) until: u64,
    /// Departures recorded until then were not taken from it, so their corrections do not count.
    pub(crate) since: u64,
}

impl Commands {
    /// When it has no more influence, if departures count for so long.
    fn expires(&self, memory: u64) -> u64 {
        let allowed = self.allowed.iter().map(|it| it.until).max();
        let ends = self.paused_until.max(allowed.unwrap_or(0));
        let ends = ends.max(self.latest + REMEMBERED);
        ends.max(self.forgotten_until + memory)
    }
}

/// The part of the state by which strict recovery finds a loss. A loss begins another generation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Generation {
    /// When it began; the number by which processes know it.
    pub(crate) began: u64,
    /// How often it was written.
    pub(crate) version: u64,
    /// When it was written last.
    pub(crate) written: u64,
    /// The server that wrote it.
    pub(crate) server: u64,
    /// Nothing departs until then, as departures may have been lost.
    pub(crate) quarantined_until: u64,
    /// The state is kept until then, also if departures are returned, as processes that have seen it expect it.
    pub(crate) kept_until: u64,
}

impl State {
    /// A state under these quotas in which nothing was recorded.
    pub(crate) fn new(quotas: &[Counter]) -> Self {
        Self {
            counters: quotas.into(),
            ..Self::default()
        }
    }

    /// Continues under other quotas. Each takes over the departures of the counter of the same algorithm with the same
    /// window, else with the next longer one, else with the longest, or starts from zero. Of GCRA counters with
    /// other intervals, the one that is due last continues. Counters of other windows and algorithms are kept for processes that
    /// still have the former quotas.
    pub(crate) fn continue_as(&mut self, quotas: &[Counter], now: u64) {
        if are_alike(&self.counters, quotas) {
            for (counter, quota) in self.counters.iter_mut().zip(quotas) {
                counter.continue_as(quota, now);
            }
            return;
        }
        let units = |counters: &[Counter]| units_of(counters.iter().map(|it| it.unit));
        let (former_units, units) = (units(&self.counters), units(quotas));
        self.drop_former(now);
        let mut old: Vec<Counter> = std::mem::take(&mut self.counters).into_vec();
        old.append(&mut self.former);
        let continued = quotas.iter().map(|quota| {
            let all = old.iter().filter_map(|counter| {
                let (mut counter, span) = (counter.clone(), counter.span());
                let distance = span.abs_diff(quota.span());
                let is_continued = counter.continue_as(quota, now);
                let due = match &counter.tally {
                    Tally::Gcra(it) if distance > 0 => it.due,
                    _ => 0,
                };
                let nearness = (span < quota.span(), distance);
                let order = (distance > 0, Reverse(due), nearness);
                is_continued.then_some((order, counter))
            });
            let nearest = all.min_by_key(|(order, _)| *order);
            nearest.map_or_else(|| quota.clone(), |(_, counter)| counter)
        });
        self.counters = continued.collect();
        // Not all of these counters have recorded what could be taken back.
        self.announced.iter_mut().for_each(|it| it.granted.clear());
        if former_units != units {
            // The units have other numbers.
            let number = |unit| former_units.iter().position(|it| *it == unit);
            let numbers: SmallVec<[_; MOST_UNITS]> = units.into_iter().map(number).collect();
            let announced = self.announced.iter_mut();
            announced.for_each(|it| it.demand.renumber(&numbers));
            self.tags.clear();
            let commands = self.commands.iter_mut();
            commands.for_each(|it| it.allowed = Default::default());
        }
        old.retain(|it| !self.counters.iter().any(|new| new.counts_like(it)));
        self.former = old;
        // The latest ones are the first.
        self.former.truncate(MOST_FORMER);
        // A process that waits calls by its deadline.
        let deadlines = self.announced.iter().map(|it| it.deadline);
        let counts = self.former.iter();
        let counts = counts.map(|it| it.expires().max(now + it.memory()));
        let times = deadlines.chain(counts).chain([now + IN_USE]);
        self.in_use_until = times.max().unwrap_or(0);
        self.drop_former(now);
    }

    /// Forgets the former quotas if none is in use.
    fn drop_former(&mut self, now: u64) {
        if self.in_use_until <= now || self.former.is_empty() {
            (self.former, self.in_use_until) = Default::default();
        }
    }

    /// Grants departures and keeps the rest of the demand.
    pub(crate) fn take(&mut self, buffer: u64, take: &Take, now: u64) -> Taken {
        if take.mode == Mode::Peek {
            return self.peek(buffer, take, now);
        }
        self.drop_expired(now);
        let mut before = self.announced.iter();
        let index = before.position(|it| it.process == take.process);
        let latest = index.map(|index| self.announced[index].number);
        let reported = self.places().and_then(|(_, it)| it.call_of(take.process));
        if take.number != 0 && latest.max(reported) >= Some(take.number) {
            return Taken {
                is_outdated: true,
                ..Taken::default()
            };
        }
        let (corrections, times) = (&take.corrections, take.times(buffer, now));
        let previous = index.map(|index| self.announced.swap_remove(index));
        let corrected = self.apply_corrections(take, previous.as_ref());
        let lease = self.places().map_or(0, |(counter, _)| counter.size.span);
        let places = self.places_mut();
        let released = places.map_or(0, |it| it.report(take, now + lease));
        let until = now + take.horizon;
        let announced = std::mem::take(&mut self.announced);
        let others = self.others(&announced, &times, take);
        let requests = self.due_requests(&times, &others, &take.demand, until);
        let (grants, granted) = self.grant(&times, &take.demand, requests, until);
        let units: Units = granted.iter().map(|it| Units::from(it.units)).sum();
        let mut taken = self.answer(&times, &others, take, units);
        taken.grants = grants;
        taken.overtakes = Others::can_be_overtaken(&announced, take, now);
        let rest = match take.mode {
            Mode::Wait => take.demand.without(units),
            Mode::Try | Mode::Peek => Demand::default(),
        };
        if !rest.is_empty() {
            let departs = taken.expected.last().copied().unwrap_or(now);
            taken.next_call = self.next_call(&times, &others, units, &rest, take, departs);
        }
        let all = units.total() as f64;
        self.tags = others.tags_after(&self.tags, all, corrected as f64, !rest.is_empty());
        let has_rivals = others.have_rivals();
        drop(others);
        self.announced = announced;
        let mut free = corrections.returned().without(units);
        if released > 0
            && let Some((counter, places)) = self.places()
        {
            free.0[counter.nth()] = places.free(counter.size);
        }
        taken.nudged = self.nudge(&times, &rest, take, free, has_rivals);
        // Without a number, the answer cannot be lost.
        let has_number = take.number != 0;
        let granted = if has_number { granted } else { SmallVec::new() };
        // An earlier call that arrives late must not take places again, or departures for requests that are gone.
        let may_be_late = has_number && (released > 0 || corrections.lost != 0);
        if may_be_late || !granted.is_empty() || !rest.is_empty() {
            self.announced.push(Announcement {
                process: take.process,
                flow: take.flow.id,
                number: take.number,
                deadline: Announcement::deadline(taken.next_call.max(now), take.round_trip),
                demand: rest,
                granted,
            });
        } else if corrections.is_empty() {
            // A call that changes nothing leaves the grants that may be taken back.
            let idle = previous.filter(|it| it.demand.is_empty() && !it.granted.is_empty());
            self.announced.extend(idle);
        }
        self.places_mut().map(Concurrent::end_call);
        self.count_write(now);
        taken.known = self.generation.as_ref().map(|generation| Known {
            generation: generation.began,
            version: generation.version,
        });
        taken
    }

    /// Corrects past departures, and takes back the grants of the process's previous call if their answer was lost.
    /// Returns by how many units past departures cost more than before.
    fn apply_corrections(&mut self, take: &Take, previous: Option<&Announcement>) -> i64 {
        let corrections = &take.corrections;
        let mut corrected = corrections.moved + corrections.charged();
        let lost = previous.filter(|it| corrections.lost != 0 && it.number >= corrections.lost);
        for granted in lost.iter().flat_map(|lost| &lost.granted) {
            corrected -= granted.units.total();
            for (unit, units) in granted.units.each() {
                self.correct(&Settlement {
                    recorded: granted.recorded,
                    unit,
                    difference: -i64::from(units),
                });
            }
        }
        let settlements = corrections.settlements.iter();
        settlements.for_each(|it| self.settle(it));
        corrected
    }

    /// The places of requests in progress, if a quota limits how many there are.
    fn places(&self) -> Option<(&Counter, &Concurrent)> {
        let mut counters = self.counters.iter();
        counters.find_map(|counter| match &counter.tally {
            Tally::Concurrent(it) => Some((counter, it)),
            _ => None,
        })
    }

    fn places_mut(&mut self) -> Option<&mut Concurrent> {
        let mut counters = self.counters.iter_mut();
        counters.find_map(|counter| match &mut counter.tally {
            Tally::Concurrent(it) => Some(it),
            _ => None,
        })
    }

    /// Lets one request depart now, or nothing, as [`take`](Self::take) does with [`Take::one`] and without strict
    /// recovery, in a third of the time. `None` if other processes have called.
    #[inline]
    pub(crate) fn try_one(&mut self, lateness: u64, cost: Costs, now: u64) -> Option<Attempt> {
        if !self.announced.is_empty() || !self.former.is_empty() {
            self.drop_expired(now);
            if !self.announced.is_empty() {
                return None;
            }
        }
        let times = Times {
            now,
            round_trip: 0,
            lateness,
            horizon: 0,
        };
        let counters = self.counters.iter_mut();
        let mut earliest = counters.fold(now, |at, it| at.max(it.earliest_now(&cost, &times)));
        if earliest > now || self.commands.is_some() || self.generation.is_some() {
            earliest = self.earliest(&times, now, Units::default(), cost.into());
        }
        let recorded = (earliest == now).then(|| times.recorded(now));
        if let Some(recorded) = recorded {
            self.record(now, recorded, cost);
        }
        let (remaining, reset) = self.availability(&times);
        Some(Attempt {
            recorded,
            earliest,
            remaining,
            reset,
        })
    }

    /// Begins a new generation, in quarantine, if departures may have been lost.
    pub(crate) fn verify(&mut self, buffer: u64, take: &Take, origin: Origin, now: u64) {
        let Some(strict) = &take.strict else {
            return;
        };
        let quarantine = || take.quarantine(&self.counters, buffer);
        let since = match &mut self.generation {
            None if strict.known.is_none() && !strict.clock_was_set => origin.since,
            Some(current) if !strict.clock_was_set => {
                let seen = strict.known.map(|known| (known.generation, known.version));
                let is_older = seen.is_some_and(|seen| seen > (current.began, current.version));
                if !is_older && current.server == origin.server && current.written <= now {
                    // The process that began this generation may not have known of the loss, or of a longer window.
                    if strict.known.is_some_and(|it| it.generation < current.began) {
                        let until = current.began + quarantine();
                        current.quarantined_until = current.quarantined_until.max(until);
                    }
                    return;
                }
                now
            }
            _ => now,
        };
        let until = since + quarantine();
        self.clear();
        self.generation = Some(Box::new(Generation {
            began: now,
            server: origin.server,
            quarantined_until: if until > now { until } else { 0 },
            ..Generation::default()
        }));
    }

    /// Counts a write.
    fn count_write(&mut self, now: u64) {
        if let Some(generation) = &mut self.generation {
            generation.version += 1;
            generation.written = now;
        }
    }

    fn quarantined_until(&self) -> u64 {
        let generation = self.generation.as_ref();
        generation.map_or(0, |it| it.quarantined_until)
    }

    fn peek(&self, buffer: u64, take: &Take, now: u64) -> Taken {
        let mut copy = self.clone();
        copy.drop_expired(now);
        copy.announced.retain(|it| it.process != take.process);
        let times = take.times(buffer, now);
        let settlements = take.corrections.settlements.iter();
        settlements.for_each(|it| copy.settle(it));
        let others = copy.others(&copy.announced, &times, take);
        copy.answer(&times, &others, take, Units::default())
    }

    /// Forgets all departures, also those that could be taken back. Returns the latest recorded time of one, or 0.
    fn clear(&mut self) -> u64 {
        let counters = self.counters.iter().chain(&self.former);
        let latest = counters.map(|it| it.latest()).max();
        self.counters.iter_mut().for_each(|it| it.clear());
        (self.former, self.in_use_until) = Default::default();
        self.announced.iter_mut().for_each(|it| it.granted.clear());
        latest.unwrap_or(0)
    }

    /// Corrects a past departure, but does not return one that a reset may have forgotten.
    fn settle(&mut self, settlement: &Settlement) {
        let commands = self.commands.as_ref();
        let forgotten_until = commands.map_or(0, |it| it.forgotten_until);
        if settlement.difference > 0 || settlement.recorded > forgotten_until {
            self.correct(settlement);
        }
    }

    /// Corrects a past departure.
    pub(super) fn correct(&mut self, settlement: &Settlement) {
        let counters = self.counters.iter_mut();
        let counters = counters.filter(|it| it.nth() == settlement.unit);
        counters.for_each(|it| it.settle(settlement));
        if let Some(commands) = &mut self.commands {
            let allowed = &mut commands.allowed[settlement.unit];
            if (allowed.since + 1..allowed.until).contains(&settlement.recorded) {
                let left = i64::from(allowed.units) - settlement.difference;
                allowed.units = left.clamp(0, u32::MAX.into()) as u32;
            }
        }
        // The former quotas may not have recorded a departure that is returned.
        if settlement.difference > 0 {
            let mut units = Costs::default();
            units.0[settlement.unit] = settlement.difference as u32;
            self.record_in_former(settlement.recorded, settlement.recorded, units);
        }
    }

    /// Applies a command.
    pub(crate) fn control(&mut self, command: Command, now: u64) -> Taken {
        self.drop_expired(now);
        let mut commands = self.commands.as_deref().copied().unwrap_or_default();
        // An earlier response counts only if what it states lasts longer than the last pause.
        let pause = commands.paused_until.saturating_sub(commands.latest);
        match command {
            Command::Pause { evidence, span } | Command::Allow { evidence, span, .. }
                if evidence < commands.latest && !(1..span).contains(&pause) =>
            {
                return self.summary(now);
            }
            Command::Pause { span, .. } => {
                commands.paused_until = commands.paused_until.max(now + span.min(LONGEST_SPAN));
            }
            Command::Allow {
                unit, units, span, ..
            } => {
                let (allowed, until) = (&mut commands.allowed[unit], now + span.min(LONGEST_SPAN));
                if now >= allowed.until
                    || (units, Reverse(until)) < (allowed.units, Reverse(allowed.until))
                {
                    let alike = self.counters.iter().filter(|it| it.nth() == unit);
                    let latest = alike.chain(&self.former).map(|it| it.latest());
                    // A long window rounds it up by more.
                    let latest = latest.fold(now, u64::max).min(now + OTHERS_DEPART_WITHIN);
                    // Places are released, not returned.
                    let is_place = self.places().is_some_and(|(it, _)| it.nth() == unit);
                    *allowed = Allowance {
                        units,
                        until,
                        since: if is_place { until } else { latest },
                    };
                }
            }
            Command::Resume | Command::Reset => {
                commands = Commands {
                    forgotten_until: commands.forgotten_until,
                    ..Commands::default()
                };
            }
        }
        if command == Command::Reset {
            commands.forgotten_until = commands.forgotten_until.max(now).max(self.clear());
            self.tags.clear();
            if let Some(generation) = &mut self.generation {
                generation.quarantined_until = 0;
            }
        }
        if !matches!(command, Command::Allow { .. }) {
            commands.latest = now;
        }
        self.commands = Some(Box::new(commands));
        self.count_write(now);
        let answer = self.summary(now);
        self.places_mut().map(Concurrent::end_call);
        answer
    }

    /// The answer to a call that asks for no departures.
    fn summary(&self, now: u64) -> Taken {
        let (others, take) = (Others::default(), Take::default());
        self.answer(&take.times(0, now), &others, &take, Units::default())
    }

    /// Nothing departs until then.
    fn suspended_until(&self) -> u64 {
        self.paused_until().max(self.quarantined_until())
    }

    /// The end of the pause; 0 if there is none.
    pub(crate) fn paused_until(&self) -> u64 {
        self.commands.as_ref().map_or(0, |it| it.paused_until)
    }

    /// From then on, the state has no effect.
    pub(crate) fn expires(&self) -> u64 {
        let counters = self.counters.iter();
        let announced = self.announced.iter().map(Announcement::expires);
        let memory = self.counters.iter().map(|counter| counter.memory()).max();
        let commands = self.commands.iter();
        let commands = commands.map(|it| it.expires(memory.unwrap_or(0)));
        let generation = self.generation.iter();
        let generation = generation.map(|it| it.quarantined_until.max(it.kept_until));
        let rest = announced.chain(commands).chain(generation);
        let rest = rest.chain([self.in_use_until]);
        counters
            .map(Counter::expires)
            .chain(rest)
            .max()
            .unwrap_or(0)
    }

    #[inline(always)]
    pub(crate) fn drop_expired(&mut self, now: u64) {
        self.counters.iter_mut().for_each(|it| it.drop_expired(now));
        if !self.former.is_empty() {
            self.drop_former(now);
            self.former.iter_mut().for_each(|it| it.drop_expired(now));
        }
        if !self.announced.is_empty() {
            self.announced.retain(|it| now < it.expires());
        }
    }

    /// The processes that may be ahead of this one. If the requests of one wait for units in which this demand costs nothing, only
    /// those are ahead that can depart together at the horizon: what these need of other units is kept for them.
    fn others<'a>(&self, announced: &'a [Announcement], times: &Times, take: &Take) -> Others<'a> {
        let until = times.now + take.horizon;
        let until = until.max(self.suspended_until());
        let mine = take.demand.units();
        let announced = announced.iter().map(|other| {
            let first = other.demand.first_cost();
            let elsewhere = first.zip(mine, |theirs, mine| if mine > 0 { 0 } else { theirs });
            if elsewhere.is_zero() {
                return Cow::Borrowed(other);
            }
            let most = self.fits_at(times, until, elsewhere.as_costs()).max(1);
            let beyond = |theirs: u64, cost: u64| match cost {
                0 => 0,
                _ => theirs.saturating_sub(most * cost),
            };
            match other.demand.units().zip(elsewhere, beyond).is_zero() {
                true => Cow::Borrowed(other),
                false => Cow::Owned(other.only(first * most)),
            }
        });
        Others::new(announced, &self.tags, take, times.now)
    }

    /// How many of the first requests may depart until then, after all requests of other processes that are ahead.
    fn due_requests(&self, times: &Times, others: &Others<'_>, demand: &Demand, until: u64) -> u64 {
        if others.is_empty() {
            return demand.requests();
        }
        let (mut most, mut too_many) = (0, demand.requests() + 1);
        while most + 1 < too_many {
            let middle = (most + too_many) / 2;
            let (before, units) = (demand.units_of(middle - 1), demand.units_of(middle));
            let arrival = demand.arrival_of(units);
            // Behind those before it, it needs room in each of their units.
            let cost = (units - before).zip(units.at_most_one(), u64::max);
            let own = units - cost;
            let departs = |ahead| self.earliest(times, times.now, ahead + own, cost);
            let others = |which| others.ahead(arrival, own, which);
            let is_due = departs(others(Ahead::Until(until))) <= until
                || departs(others(Ahead::OnTime)) == times.now;
            if is_due {
                most = middle;
            } else {
                too_many = middle;
            }
        }
        most
    }

    /// Grants the first of so many requests that may depart until then; and the units of each grant.
    fn grant(
        &mut self,
        times: &Times,
        demand: &Demand,
        requests: u64,
        until: u64,
    ) -> (SmallVec<[Grant; 1]>, SmallVec<[Recorded; 1]>) {
        let (mut grants, mut granted) = (SmallVec::new(), SmallVec::new());
        let mut count = 0;
        let mut at = times.now;
        while count < requests && grants.len() < MOST_GRANTS {
            let cost = demand.units_of(count + 1) - demand.units_of(count);
            at = self.earliest(times, at, Units::default(), cost);
            if at > until {
                break;
            }
            let alike = match demand.cost.is_zero() {
                true => 1,
                false => requests - count,
            };
            let together = self.fits_at(times, at, cost.as_costs()).min(alike);
            if together == 0 {
                break;
            }
            let (recorded, units) = (times.recorded(at), (cost * together).as_costs());
            self.record(at, recorded, units);
            grants.push(Grant {
                at,
                recorded,
                requests: together as u32,
            });
            granted.push(Recorded { recorded, units });
            count += together;
        }
        (grants, granted)
    }

    /// The first time at which a request may depart under all quotas jointly; see [`earliest`](super::Algorithm::earliest).
    pub(crate) fn earliest(&self, times: &Times, from: u64, ahead: Units, cost: Units) -> u64 {
        let mut at = from.max(self.suspended_until());
        for _ in 0..MOST_ROUNDS {
            let mut next = at;
            for counter in &self.counters {
                let (ahead, cost) = (ahead.0[counter.nth()], cost.0[counter.nth()]);
                if cost > 0 {
                    next = next.max(counter.earliest(at, ahead, cost, times));
                }
            }
            if let Some(commands) = &self.commands {
                for (nth, allowed) in commands.allowed.iter().enumerate() {
                    if cost.0[nth] > 0 && u64::from(allowed.units) < ahead.0[nth] + cost.0[nth] {
                        next = next.max(allowed.until);
                    }
                }
            }
            if next == at || !ahead.is_zero() {
                return next;
            }
            at = next;
        }
        at + LONGEST_SPAN
    }

    /// The places, if a request that is expected to depart then only waits for one of them.
    pub(super) fn full_places(
        &self,
        times: &Times,
        departs: u64,
        ahead: Units,
        cost: Units,
    ) -> Option<&Concurrent> {
        let (counter, places) = self.places().filter(|_| departs == times.beyond())?;
        let (ahead, cost) = (ahead.0[counter.nth()], cost.0[counter.nth()]);
        places.is_full(counter.size, ahead, cost).then_some(places)
    }

    /// How many requests of this cost may depart together at `at`, where one may.
    fn fits_at(&self, times: &Times, at: u64, cost: Costs) -> u64 {
        let mut fits = u64::MAX;
        for counter in &self.counters {
            let cost = cost.0[counter.nth()];
            if cost > 0 {
                fits = fits.min(counter.fits(at, cost, times));
            }
        }
        if let Some(commands) = &self.commands {
            for (nth, cost) in cost.each() {
                let allowed = commands.allowed[nth];
                if at < allowed.until {
                    fits = fits.min(u64::from(allowed.units / cost));
                }
            }
        }
        fits
    }

    #[inline]
    pub(super) fn record(&mut self, at: u64, recorded: u64, units: Costs) {
        let counters = self.counters.iter_mut();
        counters.for_each(|it| it.record(at, recorded, units.0[it.nth()]));
        self.record_in_former(at, recorded, units);
        if let Some(commands) = &mut self.commands {
            for (nth, units) in units.each() {
                let allowed = &mut commands.allowed[nth];
                if at < allowed.until {
                    allowed.units -= units;
                }
            }
        }
    }

    /// Records departures for the former quotas, too.
    pub(super) fn record_in_former(&mut self, at: u64, recorded: u64, units: Costs) {
        for former in &mut self.former {
            let alike = self.counters.iter().find(|it| it.unit == former.unit);
            if let Some(alike) = alike {
                former.record_other(at, recorded, units.0[alike.nth()]);
            }
        }
    }

    /// The answer after so many units were granted, without the grants and the next call.
    fn answer(&self, times: &Times, others: &Others<'_>, take: &Take, granted: Units) -> Taken {
        let expected = take.demand.points_from(granted).map(|(point, cost)| {
            let own = point.units - cost;
            let ahead = others.ahead(point.arrival, own, Ahead::All) + own - granted;
            let departs = self.earliest(times, times.now, ahead, cost);
            // A request that waits for a place may get one at once.
            let is_full = || self.full_places(times, departs, ahead, cost).is_some();
            match take.mode == Mode::Wait && is_full() {
                true => times.now,
                false => departs,
            }
        });
        let expected = expected.collect();
        let (places, (remaining, reset)) = (self.places(), self.availability(times));
        Taken {
            remaining,
            reset,
            expected,
            paused_until: self.paused_until(),
            quarantined_until: self.quarantined_until(),
            occupancy: places.map(|(_, it)| it.occupancy()).unwrap_or_default(),
            ..Taken::default()
        }
    }

    /// How much of each unit may depart now, and when all units are available again.
    #[inline(always)]
    fn availability(&self, times: &Times) -> (Costs, u64) {
        let (mut remaining, mut reset) = ([None::<u32>; MOST_UNITS], 0);
        for counter in &self.counters {
            let (nth, (units, resets)) = (counter.nth(), counter.availability(times));
            let units = u32::try_from(units).unwrap_or(u32::MAX);
            remaining[nth] = Some(remaining[nth].map_or(units, |least| least.min(units)));
            reset = reset.max(resets);
        }
        let mut remaining = Costs(remaining.map(Option::unwrap_or_default));
        if times.now < self.suspended_until() {
            remaining = Costs::default();
        }
        if let Some(commands) = &self.commands {
            for (left, allowed) in remaining.0.iter_mut().zip(&commands.allowed) {
                if times.now < allowed.until {
                    *left = (*left).min(allowed.units);
                }
            }
        }
        (remaining, reset)
    }
}
