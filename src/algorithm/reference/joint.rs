//! The ledger against the naive one.

use proptest::prelude::*;

use super::super::Rule;
use super::super::simulation::{Action, SELDOM_TOGETHER, Step, rules, run_staggered, steps};
use super::ledger::{Naive, Real};

fn compare(steps: &[Step], unit: u64) {
    let is_set_back = steps.iter().any(|step| step.advance < 0);
    for (name, rules, largest_cost) in rules(unit) {
        // The naive one goes on until they agree; the real one has only so much patience.
        if name == SELDOM_TOGETHER {
            continue;
        }
        let mut steps = steps.to_vec();
        // What was trimmed before a clock is set back depends on who looked when: slots that come back then
        // may find their neighbors gone in one and there in the other.
        if is_set_back || is_order_unknown(&rules) {
            steps.retain(|step| matches!(step.action, Action::Reserve { .. }));
        }
        for step in &mut steps {
            if let Action::Reserve { asks, .. } = &mut step.action {
                asks.iter_mut()
                    .for_each(|ask| ask.cost = ask.cost.min(largest_cost));
            }
        }
        let stagger = |margin| {
            if may_part_bursts(&rules) {
                0
            } else {
                margin / 100
            }
        };
        let attempt = std::panic::catch_unwind(|| {
            run_staggered(
                &steps,
                stagger,
                &mut Real::new(&rules),
                &mut Naive::new(&rules),
            );
        });
        assert!(attempt.is_ok(), "{name}: {rules:?} {steps:?}");
    }
}

/// Whether receipts may fail to tell in which order slots of one time and record were handed out:
/// those of a window shrink as slots leave it, so what of them matters to another rule may stand
/// the wrong way round on the free list, and a slot that could leave stays there for its time.
fn is_order_unknown(rules: &[Rule]) -> bool {
    let mut with_receipts = rules.iter().filter(|rule| rule.receipts() > 0);
    matches!(with_receipts.next(), Some(Rule::FixedWindow { .. })) && with_receipts.next().is_some()
}

/// Whether a request may wait for the next window, as it is too late in a burst for this one, though by another
/// quota it leaves later than the burst, and then it would fit.
fn may_part_bursts(rules: &[Rule]) -> bool {
    let is_window = |rule: &Rule| matches!(rule, Rule::FixedWindow { .. });
    rules.len() > 1 && rules.iter().any(is_window)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn the_ledger_answers_like_the_naive_one((mut steps, length) in (steps(40, 1_000_000, 3), 1..=40_usize)) {
        steps.iter_mut().for_each(|step| step.advance = step.advance.abs());
        compare(&steps[..length], 1_000_000);
    }

    #[test]
    fn the_ledger_answers_like_the_naive_one_where_times_coincide((mut steps, length) in (steps(40, 240, 3), 1..=40_usize)) {
        steps.iter_mut().for_each(|step| step.advance = step.advance.abs());
        compare(&steps[..length], 240);
    }

    #[test]
    fn the_ledger_answers_like_the_naive_one_on_a_clock_that_is_set_back(
        (steps, length) in (steps(40, 1_000_000, 3), 1..=40_usize),
    ) {
        compare(&steps[..length], 1_000_000);
    }
}
