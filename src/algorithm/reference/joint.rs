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
        if is_set_back || is_order_unknown(&rules, unit) {
            steps.retain(|step| matches!(step.action, Action::Reserve { .. }));
        }
        let has_releases = steps
            .iter()
            .any(|step| !matches!(step.action, Action::Reserve { .. }));
        let is_uniform = has_releases && matches!(rules[..], [Rule::FixedWindow { .. }]);
        let has_stagger = !is_uniform && !is_joint_window(&rules);
        for step in &mut steps {
            if let Action::Reserve { margin, asks, .. } = &mut step.action {
                asks.iter_mut()
                    .for_each(|ask| ask.cost = ask.cost.min(largest_cost));
                if is_uniform {
                    *margin = unit / 50;
                } else if is_joint_window(&rules) {
                    *margin = off_the_half(*margin, &rules);
                }
            }
        }
        let stagger = |margin| if has_stagger { margin / 100 } else { 0 };
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

/// Whether receipts may fail to tell in which order slots of one time were handed out: those of a window
/// shrink as slots leave it, so what of them matters to another rule may stand the wrong way round on the
/// free list, and a slot that could leave stays there for its time.
///
/// Of a window alone, it makes no difference if their records are the same, as they are where nobody waits
/// so long that clocks drift.
fn is_order_unknown(rules: &[Rule], unit: u64) -> bool {
    let mut with_receipts = rules.iter().filter(|rule| rule.receipts() > 0);
    let is_window = matches!(with_receipts.next(), Some(Rule::FixedWindow { .. }));
    is_window && (unit > 1_000 || with_receipts.next().is_some())
}

/// Whether a request may wait for the next window though another quota brings it to a time at which this one
/// would do, as it is not recorded as late then: behind a burst; or as it is so late that windows are extended.
fn is_joint_window(rules: &[Rule]) -> bool {
    let is_window = |rule: &Rule| matches!(rule, Rule::FixedWindow { .. });
    rules.len() > 1 && rules.iter().any(is_window)
}

/// A margin that does not become more than half of a window while a request waits.
fn off_the_half(margin: u64, rules: &[Rule]) -> u64 {
    let halves = rules.iter().filter_map(|rule| match rule {
        Rule::FixedWindow { window, .. } => Some(window / 2),
        _ => None,
    });
    halves.fold(margin, |margin, half| {
        let below = half - half / 50;
        if (below..=half).contains(&margin) {
            below
        } else {
            margin
        }
    })
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
