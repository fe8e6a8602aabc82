//! Costs that are corrected after the departure, beside a list of all departures.

use proptest::prelude::*;

use super::super::{Command, Costs, Demand, Mode, State, Take, Tally};
use super::{MILLI, SECOND, START, config, counter, judge, settlement};

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

proptest! {
    #![proptest_config(config(1_500))]

    #[test]
    fn windows_hold_exactly_what_was_settled_and_others_no_more_than_their_bound(
        steps in steps(),
        quota in prop::sample::select(vec![
            "100/s", "100/s fixed-window", "100/s gcra burst=100", "100/s spacing",
        ]),
    ) {
        let quota = counter(quota);
        let is_exact = !matches!(quota.tally, Tally::Gcra(_));
        let (mut state, mut now) = (State::new(std::slice::from_ref(&quota)), START);
        let mut departed: Vec<Departed> = Vec::new();
        for step in steps {
            let mut take = Take::one(Mode::Peek, 1);
            match step {
                Step::Wait(span) => now += span,
                // It departs under other quotas.
                Step::Depart(0) if is_exact => departed.push(Departed { recorded: now, cost: 0 }),
                Step::Depart(cost) => take = Take::one(Mode::Try, cost.max(1)),
                Step::Settle(nth, cost) => {
                    let Some(last) = departed.iter_mut().rev().nth(nth) else {
                        continue;
                    };
                    // Without a window, debt is known to be more than the bound.
                    let cost = if is_exact { cost.into() } else { last.cost.min(cost.into()) };
                    let difference = cost as i64 - last.cost as i64;
                    // The counter of a fixed window corrects only the present window.
                    let is_fixed = matches!(quota.tally, Tally::Fixed(_));
                    if !is_fixed || last.recorded / 1_000_000 == now / 1_000_000 {
                        last.cost = cost;
                    }
                    let mut settled = Take::one(Mode::Try, 1);
                    settled.demand = Demand::default();
                    settled.corrections.settlements.push(settlement(last.recorded, difference));
                    state.take(0, &settled, now);
                }
            }
            let counts = departed.iter().filter(|it| match quota.tally {
                Tally::Window(_) => it.recorded + SECOND > now,
                Tally::Fixed(_) => it.recorded - it.recorded % SECOND + SECOND > now,
                Tally::Gcra(_) | Tally::Concurrent(_) => false,
            });
            let used: u64 = counts.map(|it| it.cost).sum();
            let cost = take.demand.units().total();
            let taken = state.take(0, &take, now);
            let departs = take.mode == Mode::Try && used + cost <= 100;
            let left = 100_u64.saturating_sub(used + if departs { cost } else { 0 });
            if is_exact {
                prop_assert_eq!(!taken.grants.is_empty(), departs, "{} of 100 used", used);
                prop_assert_eq!(taken.remaining, Costs::from(left as u32));
            }
            if let Some(grant) = taken.grants.first() {
                departed.push(Departed { recorded: grant.recorded, cost });
            }
            if !is_exact {
                let times = departed.iter().map(|it| (it.recorded - START, it.cost));
                prop_assert_eq!(judge::fault(&quota, &times.collect::<Vec<_>>()), None);
            }
        }
    }
}

#[test]
fn a_departure_before_a_reset_is_not_returned() {
    for quota in ["9/h", "9/h gcra burst=9", "9/h spacing", "9/h fixed-window"] {
        let mut state = State::new(&[counter(quota)]);
        let mut take = Take::one(Mode::Try, 9);
        (take.round_trip, take.horizon) = (500 * MILLI, 790 * MILLI);
        let recorded = state.take(MILLI, &take, START).grants[0].recorded;
        state.control(Command::Reset, START + 1);
        state.control(Command::Reset, START + 1);
        // The next calls are faster.
        (take.round_trip, take.horizon) = (MILLI, 100 * MILLI);
        assert!(state.expires() > START + 3_600 * SECOND);
        assert_eq!(state.take(MILLI, &take, START + 1).granted(), 1);
        take.corrections.settlements.push(settlement(recorded, -9));
        let later = START + 2 * MILLI;
        assert_eq!(state.take(MILLI, &take, later).granted(), 0, "{quota}");
    }
}

#[test]
fn a_departure_right_after_a_reset_is_returned() {
    for quota in ["9/h", "9/h gcra burst=9", "9/h fixed-window"] {
        let mut state = State::new(&[counter(quota)]);
        state.control(Command::Reset, START);
        let mut take = Take::one(Mode::Try, 9);
        let recorded = state.take(MILLI, &take, START + 1).grants[0].recorded;
        take.corrections.settlements.push(settlement(recorded, -9));
        assert_eq!(state.take(MILLI, &take, START + 2 * MILLI).granted(), 1);
    }
}

#[test]
fn a_log_holds_no_more_units_than_its_value_and_all_debt_up_to_that() {
    let mut state = State::new(&[counter("4000000000/50ms")]);
    let mut take = Take::one(Mode::Try, 2_000_000_000);
    let recorded = state.take(0, &take, START).grants[0].recorded;
    take.horizon = 100 * MILLI;
    let debt = settlement(recorded, 1_500_000_000);
    take.corrections.settlements.push(debt);
    let taken = state.take(0, &take, START);
    assert_eq!(taken.remaining, Costs::from(500_000_000));
    assert_eq!(taken.granted(), 0);
}

proptest! {
    #![proptest_config(config(1_000))]

    #[test]
    fn an_allowance_gets_back_only_what_was_taken_from_it(
        steps in steps(),
        quota in prop::sample::select(vec![
            "100/s", "100/s fixed-window", "100/s gcra burst=100", "100 concurrent",
        ]),
        (units, span) in (0..60_u32, 0..SECOND),
    ) {
        let (mut state, mut now, mut until) = (State::new(&[counter(quota)]), START, 0);
        let (middle, evidence) = (steps.len() / 2, u64::MAX);
        let mut departed: Vec<(Departed, bool)> = Vec::new();
        for (nth, step) in steps.into_iter().enumerate() {
            if nth == middle {
                state.control(Command::Allow { unit: 0, units, span, evidence }, now);
                until = now + span;
            }
            match step {
                Step::Wait(span) => now += span,
                Step::Depart(cost) => {
                    let mut take = Take::one(Mode::Try, cost.max(1));
                    take.horizon = 100 * MILLI;
                    let granted = state.take(MILLI, &take, now).grants.into_iter();
                    departed.extend(granted.map(|it| {
                        let it_counts = nth >= middle && it.at < until;
                        (Departed { recorded: it.recorded, cost: cost.max(1).into() }, it_counts)
                    }));
                }
                Step::Settle(nth, cost) => {
                    if let Some((last, _)) = departed.iter_mut().rev().nth(nth) {
                        let cost = last.cost.min(cost.into());
                        let difference = cost as i64 - last.cost as i64;
                        state.correct(&settlement(last.recorded, difference));
                        last.cost = cost;
                    }
                }
            }
            let counted = departed.iter().filter(|(_, it_counts)| *it_counts);
            prop_assert!(counted.map(|(it, _)| it.cost).sum::<u64>() <= units.into());
        }
    }
}
