//! Random histories for tests: what the limiters of several processes may ask of one key.

use proptest::collection::vec;
use proptest::prelude::*;

use super::Rule;
use super::ledger::{Ask, DRIFT, Ledger, Outcome, Slot, Terms};

/// One call, and how much time passes before it.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) advance: i64,
    pub(crate) action: Action,
}

#[derive(Debug, Clone)]
pub(crate) enum Action {
    Reserve {
        margin: u64,
        /// Whether no slot may lie before the last one that was handed out.
        in_line: bool,
        asks: Vec<Ask>,
    },
    /// Gives back slots that are held, by their place.
    Release { places: Vec<prop::sample::Index> },
}

/// A reserve's answer: outcomes, remaining and reset.
pub(crate) type Answer = (Vec<Outcome>, u32, u64);

/// One side of a comparison.
pub(crate) trait Side {
    fn reserve(&mut self, now: u64, terms: &Terms, asks: &[Ask]) -> Answer;
    fn release(&mut self, now: u64, slots: &[Slot]);
}

impl Side for Ledger {
    fn reserve(&mut self, now: u64, terms: &Terms, asks: &[Ask]) -> Answer {
        let outcomes = Self::reserve(self, now, terms, asks);
        let reset = self.expires().saturating_sub(now);
        (outcomes.into_vec(), self.remaining(now), reset)
    }

    fn release(&mut self, now: u64, slots: &[Slot]) {
        Self::release(self, now, slots);
    }
}

/// A slot that was handed out and kept.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) slot: Slot,
    /// What it was reserved under.
    pub(crate) margin: u64,
    /// By how much the store's clock had been set back until then.
    pub(crate) set_back: u64,
}

/// Calls both sides with the same history and asserts that they answer alike.
pub(crate) fn run(steps: &[Step], left: &mut dyn Side, right: &mut dyn Side) -> Vec<Kept> {
    let mut now = 1_763_000_000_000_000_u64;
    let mut held: Vec<Kept> = Vec::new();
    let mut last = 0;
    let mut set_back = 0;
    for (number, step) in steps.iter().enumerate() {
        now = now.saturating_add_signed(step.advance);
        set_back += step.advance.min(0).unsigned_abs();
        match &step.action {
            Action::Reserve {
                margin,
                in_line,
                asks,
            } => {
                let terms = Terms {
                    margin: *margin,
                    least_margin: margin / 3,
                    not_before: if *in_line { last } else { 0 },
                    round_trip: margin / 3,
                    stagger: margin / 100,
                };
                let answer = left.reserve(now, &terms, asks);
                let other = right.reserve(now, &terms, asks);
                assert_eq!(answer, other, "step {number}, {step:?}");
                for outcome in answer.0 {
                    if let Outcome::Granted(slot) = outcome {
                        last = slot.at;
                        held.push(Kept {
                            margin: margin
                                .min(&(slot.record - slot.at - (slot.at - now) / DRIFT))
                                .to_owned(),
                            slot,
                            set_back,
                        });
                    }
                }
            }
            Action::Release { places } => {
                let mut slots = Vec::new();
                for place in places.iter().take(held.len()) {
                    slots.push(held.remove(place.index(held.len())).slot);
                }
                left.release(now, &slots);
                right.release(now, &slots);
            }
        }
    }
    held
}

/// Histories of so many steps, in which times are multiples of `unit` or close to them.
pub(crate) fn steps(
    count: usize,
    unit: u64,
    largest_cost: u32,
) -> impl Strategy<Value = Vec<Step>> {
    let some = move |most: u64| (0..=most * 4).prop_map(move |it| it * unit / 4);
    let advance = prop_oneof![
        3 => Just(0),
        3 => some(2).prop_map(u64::cast_signed),
        3 => (0..=unit).prop_map(u64::cast_signed),
        2 => some(20).prop_map(u64::cast_signed),
        1 => (0..=2 * unit).prop_map(|back| -back.cast_signed()),
    ];
    let max_wait = prop_oneof![2 => Just(u64::MAX), 1 => Just(0), 1 => some(8)];
    let ask = (
        1..=6_u32,
        prop_oneof![3 => Just(1), 1 => 1..=largest_cost],
        max_wait,
    )
        .prop_map(|(count, cost, max_wait)| Ask {
            count,
            cost,
            max_wait,
        });
    let margin = prop_oneof![3 => Just(unit / 50), 1 => 0..=unit / 2];
    let action = prop_oneof![
        3 => (margin, any::<bool>(), vec(ask, 1..4))
            .prop_map(|(margin, in_line, asks)| Action::Reserve { margin, in_line, asks }),
        2 => vec(any::<prop::sample::Index>(), 1..6).prop_map(|places| Action::Release { places }),
    ];
    vec(
        (advance, action).prop_map(|(advance, action)| Step { advance, action }),
        count,
    )
}

/// Rules of one kind or several, each with the most that one request may cost.
pub(crate) fn rules(unit: u64) -> Vec<(&'static str, Vec<Rule>, u32)> {
    let log = |limit, windows| Rule::SlidingLog {
        limit,
        window: windows * unit,
    };
    let spacing = Rule::Spacing {
        interval: unit / 3 + 1,
    };
    let gcra = |burst: u64| Rule::Gcra {
        interval: unit / 7 + 1,
        tolerance: (burst - 1) * (unit / 7 + 1),
    };
    vec![
        ("log", vec![log(5, 1)], 5),
        ("log of one", vec![log(1, 1)], 1),
        ("longer log", vec![log(300, 10)], 300),
        ("spacing", vec![spacing], 3),
        ("gcra", vec![gcra(4)], 4),
        ("gcra without a burst", vec![gcra(1)], 1),
        ("two logs", vec![log(3, 1), log(20, 10)], 3),
        ("all", vec![log(5, 1), gcra(4), spacing, log(30, 12)], 4),
    ]
}

mod tests {
    use std::time::Duration;

    use super::*;
    use crate::test_util::history::History;

    const UNIT: u64 = 1_000_000;

    /// When each request departs, on a clock that is never set: at any time that its slot and its
    /// guard allow.
    fn departures(kept: &[Kept], lateness: &[u64]) -> Vec<(u64, u32)> {
        let late = lateness.iter().cycle();
        let depart = |(kept, late): (&Kept, &u64)| {
            let at = kept.slot.at + kept.set_back + late % (kept.margin + 1);
            (at, kept.slot.cost)
        };
        let mut departures: Vec<_> = kept.iter().zip(late).map(depart).collect();
        departures.sort_unstable();
        departures
    }

    fn check(rule: &Rule, departures: &[(u64, u32)]) {
        match *rule {
            Rule::SlidingLog { limit, window } => {
                let mut history = History::new();
                for &(at, cost) in departures {
                    history.push_weighted(Duration::from_micros(at), cost.into());
                }
                history.assert_at_most(limit.into(), Duration::from_micros(window));
            }
            Rule::Spacing { interval } => {
                for pair in departures.windows(2) {
                    let gap = pair[1].0 - pair[0].0;
                    assert!(gap >= interval * u64::from(pair[0].1), "{pair:?}");
                }
            }
            Rule::Gcra {
                interval,
                tolerance,
            } => {
                for (place, first) in departures.iter().enumerate() {
                    let mut count = 0;
                    for last in &departures[place..] {
                        count += u64::from(last.1);
                        let span = last.0 - first.0;
                        assert!(
                            (count - 1) * interval <= span + tolerance,
                            "{first:?} {last:?}"
                        );
                    }
                }
            }
        }
    }

    fn check_all(steps: &[Step], lateness: &[u64]) {
        for (_, rules, largest_cost) in rules(UNIT) {
            let mut steps = steps.to_vec();
            for step in &mut steps {
                if let Action::Reserve { asks, .. } = &mut step.action {
                    asks.iter_mut()
                        .for_each(|ask| ask.cost = ask.cost.min(largest_cost));
                }
            }
            let kept = run(&steps, &mut Ledger::new(&rules), &mut Ledger::new(&rules));
            let departures = departures(&kept, lateness);
            rules.iter().for_each(|rule| check(rule, &departures));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn no_history_breaks_the_bound(
            mut steps in steps(120, UNIT, 3),
            lateness in vec(any::<u64>(), 1..50),
        ) {
            steps.iter_mut().for_each(|step| step.advance = step.advance.abs());
            check_all(&steps, &lateness);
        }

        #[test]
        fn a_clock_that_is_set_back_does_not_break_the_bound(
            mut steps in steps(120, UNIT, 3),
            lateness in vec(any::<u64>(), 1..50),
        ) {
            steps.retain(|step| matches!(step.action, Action::Reserve { .. }));
            check_all(&steps, &lateness);
        }
    }

    #[test]
    fn the_drift_of_clocks_is_within_what_is_recorded() {
        let mut ledger = Ledger::new(&[Rule::Spacing { interval: UNIT }]);
        let ask = Ask {
            count: 100,
            cost: 1,
            max_wait: u64::MAX,
        };
        let terms = Terms {
            margin: 10,
            least_margin: 10,
            not_before: 0,
            round_trip: 0,
            stagger: 0,
        };
        for outcome in ledger.reserve(UNIT, &terms, &[ask]) {
            let Outcome::Granted(slot) = outcome else {
                panic!("refused");
            };
            assert_eq!(slot.record, slot.at + 10 + (slot.at - UNIT) / DRIFT);
        }
    }
}
