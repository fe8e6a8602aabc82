//! Costs that are corrected after the departure, beside a list of all departures.

use proptest::prelude::*;

use super::super::{Costs, Counter, Demand, Mode, Settlement, State, Take};
use super::{MILLI, START, config};
use crate::quota::Quota;

#[derive(Debug, Clone)]
enum Step {
    Wait(u64),
    Depart(u32),
    /// The actual cost of one of the latest departures.
    Settle(usize, u32),
}

/// A departure as it was recorded, and what it has cost as far as that is known.
struct Departed {
    recorded: u64,
    cost: u64,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..400 * MILLI).prop_map(Step::Wait),
        (0..=60_u32).prop_map(Step::Depart),
        (0..6_usize, 0..=90_u32).prop_map(|(nth, cost)| Step::Settle(nth, cost)),
    ];
    prop::collection::vec(step, 1..80)
}

/// The units that a window of the quota holds at a time, of all that were recorded.
fn used(quota: &Counter, departed: &[Departed], now: u64) -> u64 {
    let counts = departed.iter().filter(|it| match quota {
        Counter::Window(window) => it.recorded + window.window > now,
        Counter::Fixed(fixed) => it.recorded - it.recorded % fixed.window + fixed.window > now,
        Counter::Gcra(_) | Counter::Concurrent(_) => unreachable!("it is no window"),
    });
    counts.map(|it| it.cost).sum()
}

proptest! {
    #![proptest_config(config(10_000))]

    #[test]
    fn windows_hold_exactly_what_was_settled(
        steps in steps(),
        quota in prop::sample::select(vec!["100/s", "100/s fixed-window"]),
    ) {
        let quota = Counter::new(&quota.parse::<Quota>().unwrap());
        let (mut state, mut now) = (State::new(std::slice::from_ref(&quota)), START);
        let mut departed: Vec<Departed> = Vec::new();
        for step in steps {
            let mut take = Take::one(Mode::Try, 1);
            match step {
                Step::Wait(span) => now += span,
                // It departs under other quotas.
                Step::Depart(0) => departed.push(Departed { recorded: now, cost: 0 }),
                Step::Depart(cost) => take = Take::one(Mode::Try, cost),
                Step::Settle(nth, cost) => {
                    let Some(last) = departed.iter_mut().rev().nth(nth) else {
                        continue;
                    };
                    let difference = i64::from(cost) - last.cost as i64;
                    // The counter of a fixed window corrects only the present window.
                    let is_window = matches!(quota, Counter::Window(_));
                    if is_window || last.recorded / 1_000_000 == now / 1_000_000 {
                        last.cost = cost.into();
                    }
                    let (recorded, unit) = (last.recorded, 0);
                    take.mode = Mode::Peek;
                    take.settlements.push(Settlement { recorded, unit, difference });
                    // As the peek does not record it.
                    let settled = Take { mode: Mode::Try, demand: Default::default(), ..take.clone() };
                    state.take(0, &settled, now);
                    take.settlements.clear();
                }
            }
            let used = used(&quota, &departed, now);
            let cost = take.demand.units().total();
            let taken = state.take(0, &take, now);
            let fits = used + cost <= 100;
            if take.mode == Mode::Try {
                prop_assert_eq!(!taken.grants.is_empty(), fits, "{} of 100 used", used);
            }
            let left = 100_u64.saturating_sub(used + if take.mode == Mode::Try && fits { cost } else { 0 });
            prop_assert_eq!(taken.remaining, Costs::from(left as u32));
            if let Some(grant) = taken.grants.first() {
                departed.push(Departed { recorded: grant.recorded, cost });
            }
        }
    }

    #[test]
    fn others_never_hold_more_than_their_bound(
        steps in steps(),
        quota in prop::sample::select(vec!["100/s gcra burst=100", "100/s spacing"]),
    ) {
        let quota = Counter::new(&quota.parse::<Quota>().unwrap());
        let Counter::Gcra(gcra) = &quota else { unreachable!() };
        let (burst, spaced) = (u64::from(gcra.burst), gcra.spaced);
        let (mut state, mut now) = (State::new(std::slice::from_ref(&quota)), START);
        let mut departed: Vec<Departed> = Vec::new();
        for step in steps {
            let mut take = Take::one(Mode::Try, 1);
            match step {
                Step::Wait(span) => now += span,
                Step::Depart(cost) => take = Take::one(Mode::Try, cost.max(1)),
                Step::Settle(nth, cost) => {
                    let Some(last) = departed.iter_mut().rev().nth(nth) else {
                        continue;
                    };
                    // Debt is known to be more than the bound.
                    let cost = u64::from(cost).min(last.cost);
                    let difference = cost as i64 - last.cost as i64;
                    last.cost = cost;
                    let (recorded, unit) = (last.recorded, 0);
                    take = Take { demand: Default::default(), ..take };
                    take.settlements.push(Settlement { recorded, unit, difference });
                }
            }
            let cost = take.demand.units().total();
            let taken = state.take(0, &take, now);
            if let Some(grant) = taken.grants.first() {
                departed.push(Departed { recorded: grant.recorded, cost });
            }
            // From each departure until now, at most the burst and one unit per interval.
            let mut units = 0;
            for from in departed.iter().rev() {
                units += from.cost;
                let last = departed.last().unwrap().recorded;
                let most = match spaced {
                    true => departed.last().unwrap().cost + (last - from.recorded) / (10 * MILLI),
                    false => burst + (last - from.recorded) / (10 * MILLI),
                };
                prop_assert!(units <= most, "{units} units, at most {most}");
            }
        }
    }
}

#[test]
fn a_returned_departure_is_for_the_next_two_processes() {
    let quota = Counter::new(&"3/m".parse::<Quota>().unwrap());
    let mut state = State::new(std::slice::from_ref(&quota));
    let take = |process, arrival, returned: &[u64]| Take {
        process,
        number: process,
        horizon: 100 * MILLI,
        demand: match arrival {
            0 => Demand::default(),
            _ => Demand::new([(arrival, 1)].into_iter()),
        },
        settlements: returned
            .iter()
            .map(|&recorded| Settlement {
                recorded,
                unit: 0,
                difference: -1,
            })
            .collect(),
        ..Take::one(Mode::Wait, 1)
    };
    let mut recorded = Vec::new();
    for process in 1..=3 {
        let taken = state.take(0, &take(process << 11, START, &[]), START);
        recorded.push(taken.grants[0].recorded);
    }
    for (process, before) in [(4_u64, 1), (5, 3), (6, 2)] {
        state.take(0, &take(process << 11, START - before, &[]), START);
    }
    // The oldest first, or all if more were returned than the two wait for.
    let returns = |process: u64, recorded: &[u64]| {
        let take = Take {
            number: 9 << 11,
            ..take(process << 11, 0, recorded)
        };
        state.clone().take(0, &take, START).next
    };
    assert_eq!(returns(1, &recorded[..1]), Some([5 << 11, 6 << 11]));
    assert_eq!(returns(1, &recorded), Some([0, 0]));
    // The oldest process takes it itself.
    let own = Take {
        number: 9 << 11,
        ..take(5 << 11, START - 3, &recorded[..1])
    };
    assert_eq!(state.take(0, &own, START).next, None);
}
