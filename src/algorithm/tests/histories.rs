//! Random histories of calls, with departures at any moment that a grant allows.

use proptest::prelude::*;

use super::super::{
    Ahead, Announcement, Command, Corrections, Costs, Counter, Demand, Flow, Mode, Others, State,
    Take, Tally, Times, Units,
};
use super::{MILLI, SECOND, START};
use super::{assert_round_trip, counter, judge, settlement};

#[derive(Debug, Clone)]
pub(super) enum Step {
    Wait(u64),
    Take(Call),
    /// A departure that has not happened is given back.
    GiveBack(usize),
    Control(Command),
}

#[derive(Debug, Clone)]
pub(super) struct Call {
    process: u64,
    round_trip: u64,
    guard: u64,
    horizon: u64,
    costs: Vec<u32>,
    age: u64,
    is_lost: bool,
    mode: Mode,
    /// When the requests depart, within their guard.
    moment: f64,
}

/// A request that has a departure: when it departs, its cost, and when it was recorded.
#[derive(Debug, Clone, Copy)]
struct Granted {
    at: u64,
    departs: u64,
    cost: u32,
    recorded: u64,
}

pub(super) struct World {
    pub(super) state: State,
    pub(super) now: u64,
    quotas: Vec<Counter>,
    numbers: [u64; 5],
    lost: [u64; 5],
    departures: Vec<Granted>,
    has_lost: bool,
}

pub(super) fn quota() -> impl Strategy<Value = Counter> {
    let window = prop_oneof![Just(10 * MILLI), Just(200 * MILLI), Just(SECOND)];
    (0..7, 1u32..12, window, 1u32..20).prop_map(|(kind, limit, window, buckets)| {
        let algorithm = match kind {
            0 | 1 => "sliding-log".to_owned(),
            2 => format!("sliding-buckets buckets={buckets}"),
            3 => format!("gcra burst={limit}"),
            4 => "spacing".to_owned(),
            5 => "fixed-window".to_owned(),
            _ => "fixed-window start=first-request".to_owned(),
        };
        counter(&format!("{limit}/{window}us {algorithm}"))
    })
}

pub(super) fn quotas() -> impl Strategy<Value = Vec<Counter>> {
    prop_oneof![
        3 => prop::collection::vec(quota(), 1),
        1 => prop::collection::vec(quota(), 2..4),
    ]
}

fn call() -> impl Strategy<Value = Call> {
    let mode = prop_oneof![4 => Just(Mode::Wait), 1 => Just(Mode::Try), 1 => Just(Mode::Peek)];
    let costs = prop_oneof![
        3 => (1usize..30, 1u32..3).prop_map(|(count, cost)| vec![cost; count]),
        1 => prop::collection::vec(1u32..12, 0..12),
    ];
    let round_trip = prop_oneof![Just(0), 0..60 * MILLI];
    let moment = prop_oneof![Just(0.0), Just(1.0), 0.0..1.0];
    let times = (round_trip, 0..30 * MILLI, 0..120 * MILLI, 0..SECOND);
    let rest = (0u64..5, prop::bool::weighted(0.2), mode, moment);
    (costs, times, rest).prop_map(|(costs, times, (process, is_lost, mode, moment))| Call {
        process,
        round_trip: times.0,
        guard: times.1,
        horizon: times.2,
        costs,
        age: times.3,
        is_lost,
        mode,
        moment,
    })
}

fn command() -> impl Strategy<Value = Command> {
    (0..3, 0..5_u32, 0..SECOND).prop_map(|(kind, units, span)| {
        let evidence = u64::MAX;
        match kind {
            0 => Command::Allow {
                unit: 0,
                units,
                span,
                evidence,
            },
            1 => Command::Pause { span, evidence },
            _ => Command::Resume,
        }
    })
}

pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => prop_oneof![0..2 * MILLI, 0..50 * MILLI, 0..SECOND].prop_map(Step::Wait),
        10 => call().prop_map(Step::Take),
        4 => any::<usize>().prop_map(Step::GiveBack),
        3 => command().prop_map(Step::Control),
    ];
    prop::collection::vec(step, 1..60)
}

impl World {
    /// After these steps.
    pub(super) fn after(quotas: &[Counter], steps: &[Step]) -> Self {
        let mut this = Self {
            state: State::new(quotas),
            // The clock's windows begin at no special time of a history.
            now: START + 7_777,
            quotas: quotas.to_vec(),
            numbers: [0; 5],
            lost: [0; 5],
            departures: Vec::new(),
            has_lost: false,
        };
        for step in steps {
            this.step(step);
        }
        this
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Wait(span) => self.now += span,
            Step::Take(call) => self.take(call),
            Step::GiveBack(which) => {
                let is_later = |index: &usize| self.departures[*index].departs > self.now;
                let later: Vec<_> = (0..self.departures.len()).filter(is_later).collect();
                if let Some(&index) = later.get(which % later.len().max(1)) {
                    let it = self.departures.swap_remove(index);
                    let settlement = settlement(it.recorded, -i64::from(it.cost));
                    self.state.correct(&settlement);
                }
            }
            Step::Control(command) => {
                self.state.control(*command, self.now);
            }
        }
        assert_round_trip(&self.state);
        self.attempt(1 + self.now as u32 % 2);
    }

    /// One attempt does what a call for one request does, if no other process has called lately.
    fn attempt(&self, cost: u32) {
        let (guard, buffer, now) = (5 * MILLI, MILLI, self.now);
        let mut one = self.state.clone();
        one.drop_expired(now);
        one.announced.clear();
        let mut other = one.clone();
        let attempt = one.try_one(guard + buffer, cost.into(), now);
        let attempt = attempt.expect("no other process");
        let take = Take {
            guard,
            ..Take::one(Mode::Try, cost)
        };
        let taken = other.take(buffer, &take, now);
        let recorded = taken.grants.first().map(|grant| grant.recorded);
        assert_eq!(attempt.recorded, recorded);
        let expected = taken.expected.first().copied();
        assert_eq!(attempt.earliest, expected.unwrap_or(now));
        let left = (taken.remaining, taken.reset);
        assert_eq!((attempt.remaining, attempt.reset), left);
        assert_eq!(one, other);
    }

    fn take(&mut self, call: &Call) {
        let (now, process) = (self.now, call.process as usize);
        let most = self.quotas.iter().map(|quota| quota.size.units);
        let most = most.min().unwrap_or(1);
        let costs: Vec<_> = call.costs.iter().map(|&cost| cost.min(most)).collect();
        self.numbers[process] += 1;
        let step = call.age / costs.len().max(1) as u64;
        let arrivals = costs.iter().enumerate();
        let arrivals = arrivals.map(|(nth, &cost)| (now - call.age + nth as u64 * step, cost));
        let take = Take {
            // Processes of three shares and two levels, of which one has a reserve.
            process: (call.process << 11)
                | ((call.process % 3) << 7)
                | ((2 + call.process % 2) << 4),
            flow: match call.process % 3 {
                0 => Flow::default(),
                share => Flow {
                    id: 10 + share,
                    weight: 2 * share as u32,
                },
            },
            reserves: [0, 0, 0, 100_000 * (call.process % 5) as u32, 0],
            number: self.numbers[process],
            corrections: Corrections {
                lost: self.lost[process],
                ..Corrections::default()
            },
            round_trip: call.round_trip,
            guard: call.guard,
            horizon: call.horizon,
            demand: Demand::new(arrivals),
            ..Take::one(call.mode, 1)
        };
        if call.mode == Mode::Peek {
            return self.peek(&take);
        }
        let before = self.state.commands.as_deref().copied().unwrap_or_default();
        let is_lost = |it: &&Announcement| it.process == take.process && take.corrections.lost != 0;
        let lost = self.state.announced.iter().filter(is_lost);
        let lost = lost.flat_map(|it| &it.granted).map(|it| it.units.0[0]);
        let returned: u32 = lost.sum();
        let taken = self.state.take(0, &take, now);
        assert!(!taken.is_outdated);
        let is_waiting = taken.next_call != 0;
        assert!(!is_waiting || taken.next_call > now && call.mode == Mode::Wait);
        let granted: u32 = taken.grants.iter().map(|it| it.requests).sum();
        assert!(granted as usize <= costs.len());
        let mut costs = costs.into_iter();
        let mut allowed = 0;
        for grant in &taken.grants {
            assert!(grant.at >= now.max(before.paused_until) && grant.at <= now + call.horizon);
            let recorded = grant.at.max(now + call.round_trip) + call.guard;
            assert_eq!(grant.recorded, recorded);
            let span = (grant.recorded - grant.at) as f64;
            for cost in costs.by_ref().take(grant.requests as usize) {
                allowed += cost * u32::from(grant.at < before.allowed[0].until);
                self.departures.push(Granted {
                    at: grant.at,
                    departs: grant.at + (span * call.moment) as u64,
                    cost,
                    recorded: grant.recorded,
                });
            }
        }
        assert!(allowed <= before.allowed[0].units + returned);
        if call.is_lost {
            self.has_lost = true;
            let rest = self.departures.len() - granted as usize;
            self.departures.truncate(rest);
            if self.lost[process] == 0 {
                self.lost[process] = take.number;
            }
        } else {
            self.lost[process] = 0;
        }
    }

    /// A look changes nothing, and it names exactly when a request that tries can depart.
    fn peek(&self, take: &Take) {
        let (now, before) = (self.now, self.state.clone());
        let mut state = self.state.clone();
        // A round trip would end an aligned window earlier for a call now than for one later.
        let take = &Take {
            round_trip: 0,
            ..take.clone()
        };
        let seen = state.take(0, take, now);
        assert_eq!(state, before);
        let announced = &before.announced;
        let others = announced.iter().filter(|it| it.process != take.process);
        let others: Vec<_> = others.filter(|it| now < it.expires()).cloned().collect();
        let has_others = Others::new(
            others.iter().map(std::borrow::Cow::Borrowed),
            &before.tags,
            take,
            now,
        )
        .ahead(take.demand.oldest(), Units::default(), Ahead::All)
            != Units::default();
        if take.demand.is_empty() || has_others {
            return;
        }
        let cost = take.demand.units_of(1).as_costs().0[0];
        let demand = Demand::new([(take.demand.oldest(), cost)].into_iter());
        let attempt = Take {
            mode: Mode::Try,
            corrections: Corrections::default(),
            horizon: 0,
            demand,
            ..take.clone()
        };
        let at = seen.expected[0];
        let is_granted = |at: u64| !before.clone().take(0, &attempt, at).grants.is_empty();
        assert!(is_granted(at), "{at} is too early by {take:?}");
        assert!(at == now || !is_granted(at - 1), "{at} is too late");
    }

    fn fault(&self) -> Option<String> {
        let times = |time: &dyn Fn(&Granted) -> u64| {
            let departures = self.departures.iter();
            let times = departures.map(|it| (time(it) - START, it.cost.into()));
            let mut times: Vec<_> = times.collect();
            times.sort_unstable();
            times
        };
        let departs = times(&|it| it.departs);
        for quota in &self.quotas {
            if let Tally::Fixed(it) = &quota.tally
                && !it.aligned
                && !self.has_lost
                && judge::most_from_first(&departs, quota.size.span) > quota.size.units.into()
            {
                return Some(format!("too many from the first request, of {quota:?}"));
            }
        }
        let judged = [departs, times(&|it| it.at), times(&|it| it.recorded)];
        self.quotas
            .iter()
            .find_map(|quota| judged.iter().find_map(|times| judge::fault(quota, times)))
    }
}

proptest! {
    #![proptest_config(super::config(400))]

    #[test]
    fn no_history_breaks_a_promise(quotas in quotas(), steps in steps()) {
        let fault = World::after(&quotas, &steps).fault();
        prop_assert!(fault.is_none(), "{:?}", fault);
    }

    #[test]
    fn an_estimate_is_never_late(quotas in quotas(), steps in steps(), ahead in 1u64..60, lateness in 0..30 * MILLI, limit in 1u32..12) {
        let mut world = World::after(&quotas, &steps);
        if let [Counter { size, tally: Tally::Window(_), .. }] = &mut world.state.counters[..] {
            size.units = limit;
        }
        let (mut state, now) = (world.state, world.now);
        state.drop_expired(now);
        // Requests with a shorter guard than the recorded ones depart earlier than estimated.
        let last = state.counters.iter().map(|it| match &it.tally {
            Tally::Window(it) => it.log.back().map_or(0, |it| it.recorded),
            _ => 0,
        });
        let lateness = lateness.max(last.max().unwrap_or(0).saturating_sub(now));
        let times = Times { now, round_trip: 0, lateness, horizon: 0 };
        let one = Costs::from(1);
        let estimate = state.earliest(&times, now, Units([ahead, 0, 0, 0]), one.into());
        let mut at = now;
        for _ in 0..ahead {
            at = state.earliest(&times, at, Units::default(), one.into());
            state.record(at, times.recorded(at), one);
        }
        let truth = state.earliest(&times, at, Units::default(), one.into());
        prop_assert!(estimate <= truth, "{} is later than {}", estimate, truth);
    }
}
